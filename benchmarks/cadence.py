"""Is the checkpoint interval that the trainer chooses a good one? On simulated machines that are taken away.

Up-times are drawn from heavy-tailed (lognormal) distributions like those of public spot traces. The
trainer's own `SaveCadence` and ledger decide, knowing only the up-times they have seen; the oracle
is the best fixed interval, found afterwards on the very same up-times.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Row, main

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))

from rgt_train.cadence import ASSUMED, CEILING_S, FLOOR_S, FailureRate, SaveCadence, daly_interval_s
from rgt_train.tracking.run_log import AttemptHistory

NAME = "cadence"
HOUR = 3600.0
ZONES = ((1.4, 0.34), (1.8, 0.45), (2.3, 0.70), (3.2, 1.04))
"""Mean and median hours that a machine stays up. The means are those of V100 spot machines in four
zones; their medians lay between 0.34 and 1.04 h."""
STEP = 0.355
"""Seconds of a training step."""
RESTART = 60.0
"""Seconds from a failure until the training goes on."""


@dataclass(frozen=True)
class Cost:
    """What a save costs: seconds the training feels, and seconds until it is on the disk."""

    name: str
    felt: float
    write: float


COSTS = (
    Cost("ours_500MB", 0.045, 0.30),
    Cost("slow_disk", 1.0, 20.0),
    Cost("synchronous_5GB", 8.0, 8.0),
)
Interval = Callable[[AttemptHistory], float]
"""Chooses the seconds between saves from what a run has seen so far."""


def uptimes(mean_h: float, median_h: float, count: int, draw: random.Random) -> list[float]:
    """Draw `count` up-times in seconds."""
    sigma = math.sqrt(2 * math.log(mean_h / median_h))
    return [HOUR * median_h * math.exp(sigma * draw.gauss(0, 1)) for _ in range(count)]


def goodput(lives: Sequence[float], cost: Cost, interval: Interval) -> float:
    """The share of the time that went into work that was kept."""
    kept = total = up = 0.0
    for failures, life in enumerate(lives):
        past = AttemptHistory(attempts=failures, cause="killed", up_s=up, failures=failures)
        period = interval(past)
        working = max(0.0, life - RESTART)
        # The n-th save begins after n periods and counts once it is written; the work goes on
        # meanwhile.
        saves = max(0, int((working - cost.write) // (period + cost.felt)))
        kept += saves * period
        total += life
        up += life
    return kept / total


def ours(cost: Cost, platform: str) -> Interval:
    """What the trainer does."""

    def choose(past: AttemptHistory) -> float:
        cadence = SaveCadence(0, past.expected_failures(ASSUMED[platform]))
        for _ in range(5):
            cadence.measured_step(STEP)
        cadence.measured_save(cost.felt, cost.write)
        return cadence.current_interval().steps * STEP

    return choose


def fixed(seconds: float) -> Interval:
    """Always the same."""
    return lambda past: seconds


def oracle(lives: Sequence[float], cost: Cost) -> float:
    """The goodput of the best fixed interval."""
    grid = [max(cost.write, 2.0) * 1.15**power for power in range(60)]
    return max(goodput(lives, cost, fixed(seconds)) for seconds in grid if seconds < 4 * HOUR)


def worst_deviation() -> float:
    """The largest relative distance of the chosen interval from Daly's optimum, where no bound is in the way."""
    worst = 0.0
    for felt in (0.02, 0.045, 0.2, 1.0, 5.0, 20.0):
        for hours in (0.25, 1.0, 4.0, 24.0, 200.0):
            for step in (0.05, 0.355, 2.0):
                optimum = daly_interval_s(felt, hours * HOUR)
                if not FLOOR_S < optimum < CEILING_S or optimum < 5 * step:
                    continue
                cadence = SaveCadence(0, FailureRate(hours * HOUR))
                cadence.measured_step(step)
                cadence.measured_save(felt)
                worst = max(worst, abs(cadence.current_interval().steps * step / optimum - 1))
    return worst


def run(quick: bool) -> list[Row]:
    """Simulate runs of many failures in each zone."""
    runs, failures = (10, 40) if quick else (60, 100)
    rows = [Row("interval_from_daly", 100 * worst_deviation(), "% at most", goal=10)]
    for cost in COSTS:
        found: dict[str, list[float]] = {}
        for zone in ZONES:
            for seed in range(runs):
                lives = uptimes(*zone, failures, random.Random(f"{zone}{seed}"))
                policies = {
                    "ours": ours(cost, "unknown"),
                    "ours_told_spot": ours(cost, "spot"),
                    "every_500_steps": fixed(500 * STEP),
                    "every_10_minutes": fixed(600.0),
                    "every_hour": fixed(HOUR),
                }
                best = oracle(lives, cost)
                found.setdefault("oracle", []).append(best)
                for name, interval in policies.items():
                    found.setdefault(name, []).append(goodput(lives, cost, interval))
        mean = {name: sum(values) / len(values) for name, values in found.items()}
        for name, value in mean.items():
            of = None if name == "oracle" else "oracle"
            if of is None:
                ratio = None
            else:
                ratio = value / mean["oracle"]
            rows.append(Row(f"{cost.name}_{name}", 100 * value, "% goodput", ratio, of))
        rows.append(
            Row(f"{cost.name}_ours_over_500_steps", 100 * mean["ours"], "% goodput",
                mean["ours"] / mean["every_500_steps"], "every 500 steps")
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main(NAME, run))
