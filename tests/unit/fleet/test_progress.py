"""When a run last advanced, by our clock, whatever the box's clock is set to."""

from __future__ import annotations

import pytest

from rgt_tui.fleet import fold_points
from rgt_tui.model import RunState, ScalarPoint, Scalars

NOW = 1_790_000_000.0


def point(
    run: RunState,
    step: int,
    at: float | None,
    now: float,
    skew: float = 0.0,
    written: float | None = None,
) -> RunState:
    points = (ScalarPoint(step=step, at=at, epoch=None, values={"loss": 1.0}),)
    return fold_points(
        run,
        Scalars(
            run="a",
            source="/m.jsonl",
            inode=1,
            start=step,
            end=step + 1,
            points=points,
            written=written,
        ),
        now,
        skew,
    )


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_does_not_make_a_run_look_stalled(jump: float) -> None:
    """The point comes before the news that the clock was set."""
    run = point(RunState("a"), 1, NOW, NOW)
    after = point(run, 2, NOW + 1 + jump, NOW + 1)
    assert after.progressed_at is not None
    assert NOW <= after.progressed_at <= NOW + 1


def test_what_happened_while_nobody_looked_has_its_own_time() -> None:
    assert point(RunState("a"), 1, NOW - 7200, NOW).progressed_at == NOW - 7200
    assert point(RunState("a"), 1, NOW - 7200, NOW, skew=-3600.0).progressed_at == NOW - 3600


def test_a_point_without_a_time_is_of_now() -> None:
    assert point(RunState("a"), 1, None, NOW).progressed_at == NOW


def test_a_point_without_a_time_is_no_younger_than_the_file_that_it_stands_in() -> None:
    """Each connect reads the log of a training that stands still anew: that moves nothing."""
    run = point(RunState("a"), 1, None, NOW, written=NOW - 540)
    assert run.progressed_at == NOW - 540
    assert (
        point(RunState("a"), 1, None, NOW, skew=-3600.0, written=NOW - 7200).progressed_at
        == NOW - 3600
    )
    assert point(RunState("a"), 1, NOW - 60, NOW, written=NOW - 540).progressed_at == NOW - 60
    assert point(RunState("a"), 1, None, NOW, written=NOW + 540).progressed_at == NOW, (
        "a clock that is ahead"
    )
