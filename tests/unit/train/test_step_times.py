"""How a step's seconds are split, for each kind of run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rgt_train.ranks import heartbeat
from rgt_train.ranks.heartbeat import Heartbeat, StepTimes


def beat(seconds: dict[str, float], *, loads: bool = True) -> Heartbeat:
    made = Heartbeat()
    made.loads = loads
    made._phase = heartbeat.END
    for name, spent in seconds.items():
        made._spent[heartbeat.PHASES.index(name)] = int(spent * 1e9)
    return made


class Ddp(torch.nn.Module):
    """What DDP tells, in nanoseconds."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__()
        self.told = told
        self.asked = 0

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        self.asked += 1
        return self.told


TOLD = {"backward_comm_time": 900_000_000, "backward_compute_comm_overlap_time": 500_000_000}
SPENT = {"loop": 1.0, "data": 3.0, "forward": 2.0, "backward": 4.0, "collective": 1.0, "optimizer": 1.0,
         "checkpoint": 50.0, "evaluation": 70.0, "start": 9.0}  # fmt: skip


def mean_times(times: StepTimes, steps: int) -> dict[str, float]:
    return times.mean_times(times.take_times(steps))


@pytest.mark.parametrize(
    ("world", "models", "backward", "told"),
    [
        (1, [], 1, {"step_time": 6.0, "data_time": 1.5, "compute_time": 4.5}),
        (2, [], 1, {"step_time": 6.0, "data_time": 1.5, "compute_comm_time": 4.5}),
        (2, [Ddp(TOLD)], 1, {"step_time": 6.0, "data_time": 1.5, "compute_time": 3.6, "comm_time": 0.9}),
        (2, [Ddp({})], 1, {"step_time": 6.0, "data_time": 1.5, "compute_comm_time": 4.5}),
        (2, [Ddp(TOLD)], 4, {"step_time": 6.0, "data_time": 1.5, "compute_comm_time": 4.5}),
        (2, [Ddp(TOLD), Ddp(TOLD)], 1, {"step_time": 6.0, "data_time": 1.5, "compute_comm_time": 4.5}),
        (2, [Ddp({name: 10**12 * n for n, name in enumerate(reversed(TOLD))})], 1,
         {"step_time": 6.0, "data_time": 1.5, "compute_time": 0.0, "comm_time": 4.5}),
    ],
    ids=["alone", "several", "ddp", "ddp-not-yet", "accumulated", "two-models", "more-than-the-step"],
)  # fmt: skip
def test_the_parts_of_a_step(
    world: int, models: list[torch.nn.Module], backward: int, told: dict[str, float]
) -> None:
    assert mean_times(StepTimes(beat(SPENT), models, world, backward), 2) == pytest.approx(told)


def test_without_a_loader_that_is_known_only_the_step_is_told() -> None:
    assert mean_times(StepTimes(beat(SPENT, loads=False), [], 1), 2) == pytest.approx(
        {"step_time": 6.0}
    )


def test_ddp_is_asked_seldom() -> None:
    """It takes longer than anything else here."""
    model = Ddp(TOLD)
    times = StepTimes(beat(SPENT), [model], 2)
    for _ in range(5):
        mean_times(times, 1)
    assert model.asked == 1


def test_ddp_is_asked_by_the_thread_that_trains_alone() -> None:
    """Another one may compute the means, when it writes lines that no step followed."""
    model = Ddp(TOLD)
    times = StepTimes(beat(SPENT), [model], 2)
    taken = times.take_times(1)
    asked = model.asked
    assert "comm_time" in times.mean_times(taken)
    assert (asked, model.asked) == (1, 1)
