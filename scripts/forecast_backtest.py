"""How well the night ahead would have forecast the ends of recorded runs.

Usage: python -m scripts.forecast_backtest [RECORDING.jsonl.gz ...]

Replays each recording (`rgt record` writes them; by default the demo's and the test's) and asks for
the end of each run at every tenth of its steps. A forecast counts as right if the time left was
right within 15 %.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rgt_tui.demo import RECORDING
from rgt_tui.fleet import FrameIntake
from rgt_tui.fleet.history.night_forecast import ForecastTime, forecast_end
from rgt_tui.model import BoxState
from rgt_tui.profiles import load_profile
from rgt_tui.recordings.recording_lines import RecordingReader, SkippedLine
from rgt_tui.recordings.replay_fleet import ReplayedBox

TEST_RECORDING = Path(__file__).parent.parent / "tests/fixtures/recordings/three-boxes.jsonl.gz"


class Forecast(NamedTuple):
    """A forecast, and what became of it."""

    run: str
    tenth: int
    """Tenths of the run's steps at the time of the forecast."""
    at: float
    when: ForecastTime | None
    """None = the end was unknown."""
    ended: float

    @property
    def error(self) -> float | None:
        """The error of the time left, as a share of it."""
        if self.when is None:
            return None
        return abs(self.when.likely - self.ended) / (self.ended - self.at)

    @property
    def in_spread(self) -> bool:
        """Whether the end was within the forecast's spread."""
        if self.when is None:
            return False
        return self.when.earliest <= self.ended <= (self.when.latest or float("inf"))


def replay_forecasts(path: Path) -> Iterator[Forecast]:
    """Yield the forecasts of all runs of a recording that reached their last step."""
    with contextlib.closing(RecordingReader(path)) as file:
        boxes = {
            spec.name: ReplayedBox(
                BoxState(spec=spec, since=file.header.started),
                FrameIntake(spec, load_profile(spec.profile)),
            )
            for spec in file.header.boxes
        }
        asked: dict[tuple[str, str], dict[int, tuple[float, ForecastTime | None]]] = {}
        done: set[tuple[str, str]] = set()
        while items := file.read():
            for item in items:
                if isinstance(item, SkippedLine):
                    continue
                entry = item.entry
                box = boxes[entry.box]
                box.apply_entry(entry)
                for run in box.state.runs:
                    key = (entry.box, run.name)
                    if key in done or run.step is None or not run.total_steps:
                        continue
                    if run.step >= run.total_steps:
                        done.add(key)
                        for tenth, (at, when) in asked.get(key, {}).items():
                            if entry.at > at:
                                yield Forecast(f"{entry.box}/{run.name}", tenth, at, when, entry.at)
                        continue
                    tenth = 10 * run.step // run.total_steps
                    known = asked.setdefault(key, {})
                    if tenth and tenth not in known:
                        known[tenth] = (entry.at, forecast_end(box.state, run, entry.at))


def report_forecasts(found: list[Forecast]) -> str:
    """Return the table: per tenth and in all, how many forecasts were right within 15 %."""
    most_off = 0.15
    lines = [f"{'done':>6} {'forecasts':>10} {'unknown':>8} {'within 15 %':>12} {'in spread':>10}"]
    for label, rows in [
        *((f"{t}0 %", [one for one in found if one.tenth == t]) for t in range(1, 10)),
        ("all", found),
    ]:
        known = [one for one in rows if one.error is not None]
        good = sum((one.error or 0.0) <= most_off for one in known)
        inside = sum(one.in_spread for one in known)
        lines.append(
            f"{label:>6} {len(rows):>10} {len(rows) - len(known):>8} "
            f"{f'{good} of {len(known)}':>12} {f'{inside} of {len(known)}':>10}"
        )
    return "\n".join(lines)


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recordings", nargs="*", type=Path, default=[RECORDING, TEST_RECORDING])
    found = []
    for path in parser.parse_args().recordings:
        each = list(replay_forecasts(path))
        sys.stdout.write(f"{path.name}: {len({one.run for one in each})} runs reached their end\n")
        found += each
    sys.stdout.write(f"{report_forecasts(found)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
