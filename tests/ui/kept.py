"""A history of the fleet in memory: a night in which something happened, kept minute by minute."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rgt_tui.model import FleetEvent, FleetState
from rgt_tui.store import FLEET, BoxWrites, HistoryFile, ObservedCost
from rgt_tui.store.spending import day_of
from tests.ui.boxes import NOW, demo_state

HOUR = 3600.0
STORY = (
    (
        -5.0,
        "vast-demo",
        "error",
        "inodes:/workspace",
        "no inodes left on /workspace, saves fail since step 812",
    ),
    (
        -4.9,
        "vast-demo",
        "info",
        "inodes:/workspace",
        "/workspace has free inodes again, after 6m00",
    ),
    (-4.8, "runpod-demo", "warn", "run:gpt-a", "gpt-a interrupted: SIGTERM, 5 s grace"),
    (-4.7, "runpod-demo", "info", "run:gpt-a", "gpt-a resumed from step 320 (SIGTERM)"),
    (-3.0, "autodl-demo", "error", "failed:gpt-b", "gpt-b failed: exit 1"),
    (-0.5, "autodl-demo", "info", "run:gpt-c", "gpt-c started"),
)
"""Hours before now, box, level, what it is about, in words."""


def told_story() -> tuple[FleetEvent, ...]:
    """Return the story as events."""
    return tuple(
        FleetEvent(at=NOW + hours * HOUR, box=box, text=text, level=level, about=about)
        for hours, box, level, about, text in STORY
    )


def keep_night(
    path: Path, state: FleetState | None = None, *, minutes: bool = True, more: int = 0
) -> HistoryFile:
    """Write the story, what it cost, and how the boxes stood, into a new history.

    Args:
        path: The file.
        state: How the boxes stand now; None = those of the demo.
        minutes: Keep moments, too: one each half hour of the last twelve, and the two minutes around each event.
        more: So many events before the story.
    """
    state = demo_state(NOW) if state is None else state
    file = HistoryFile(path, clock=lambda: NOW)
    file.adopt_boxes([box.spec for box in state.boxes])
    name = state.boxes[0].spec.name
    file.commit_batch({box.spec.name: BoxWrites(runs=box) for box in state.boxes})
    if more:
        old = tuple(
            FleetEvent(at=NOW - 9 * HOUR + n, box=name, text=f"old event {n}") for n in range(more)
        )
        file.commit_batch({name: BoxWrites(events=old)})
    times = sorted(
        {NOW - hours / 2 * HOUR for hours in range(25)}
        | {NOW + hours * HOUR for hours, *_ in STORY}
    )
    if minutes:
        times = sorted(
            {
                *times,
                *(at + 60.0 * step for at in times for step in (-1, 1) if at + 60.0 * step <= NOW),
            }
        )
    for at in times:
        cost = ObservedCost(day_of(at), "USD", 0.1, 0.01, 60.0)
        file.commit_batch({name: BoxWrites(costs=(cost,))})
        if minutes:
            file.commit_batch({FLEET: BoxWrites(moments=(as_then(state, at),))})
    for event in told_story():
        file.commit_batch({event.box: BoxWrites(events=(event,))})
    return file


def as_then(state: FleetState, at: float) -> FleetState:
    """Return the boxes as if they had been so at an earlier time."""
    ago = NOW - at
    boxes = tuple(
        msgspec.structs.replace(
            box,
            since=box.since - ago,
            sample_at=None if box.sample_at is None else box.sample_at - ago,
            reason=f"as of {round(at - NOW)}",
            alerts=(),
            alerts_kept=True,
        )
        for box in state.boxes
    )
    return msgspec.structs.replace(state, boxes=boxes, at=at, events=())
