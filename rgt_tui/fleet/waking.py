"""When the computer slept, or its clock was set: what was live may be dead, and ages are wrong."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from rgt_tui.model.box import BoxState

JUMP_SECONDS = 5.0
"""Less is a loop that was busy, or a clock that is being adjusted."""

replace = msgspec.structs.replace


class Times(NamedTuple):
    """The clocks at one moment, in seconds."""

    wall: float
    """Epoch; may be set."""
    awake: float
    """Never set; stands still while the computer sleeps."""
    elapsed: float
    """Never set; goes on while it sleeps. Where there is no such clock, the same as `awake`."""


class Jump(NamedTuple):
    """What happened between two moments."""

    slept: float = 0.0
    moved: float = 0.0
    """By how much the clock was set, positive = ahead."""

    @property
    def words(self) -> str:
        """For the event line."""
        if self.slept:
            return f"this computer slept for {self.slept:.0f} s: connecting again"
        return f"this computer's clock moved by {self.moved:+.0f} s"


def read(wall: float) -> Times:
    """Return the clocks now; `wall` is the fleet's own."""
    return Times(wall, time.monotonic(), elapsed())


def elapsed() -> float:
    """Return a clock that goes on while the computer sleeps, where the system has one."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # Linux; macOS, whose `monotonic` stands still
        number = getattr(time, name, None)
        if number is not None:
            return time.clock_gettime(number)
    return time.monotonic()


def jump(before: Times, after: Times) -> Jump | None:
    """Return what happened in between; None = nothing out of the ordinary."""
    slept = (after.elapsed - before.elapsed) - (after.awake - before.awake)
    moved = (after.wall - before.wall) - (after.elapsed - before.elapsed)
    if slept < JUMP_SECONDS and abs(moved) < JUMP_SECONDS:
        return None
    return Jump(
        max(0.0, slept) if slept >= JUMP_SECONDS else 0.0, moved if abs(moved) >= JUMP_SECONDS else 0.0
    )


def shifted(state: BoxState, seconds: float) -> BoxState:
    """Return the state as the client's clock tells it after it was set: ages stay what they were.

    Args:
        state: A box.
        seconds: By how much the clock was set, positive = ahead.
    """
    if not seconds:
        return state
    return replace(
        state,
        since=state.since + seconds,
        sample_at=_plus(state.sample_at, seconds),
        clock_skew=_plus(state.clock_skew, -seconds),
        retry_at=_plus(state.retry_at, seconds),
        remembered_at=_plus(state.remembered_at, seconds),
        runs=tuple(replace(run, progressed_at=_plus(run.progressed_at, seconds)) for run in state.runs),
        logs=tuple(replace(view, at=_plus(view.at, seconds)) for view in state.logs),
    )


def _plus(value: float | None, seconds: float) -> float | None:
    return None if value is None else value + seconds
