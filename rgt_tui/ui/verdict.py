"""How a box stands, as the screens show it: the glyph and tone of each state, and which run is the current one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rgt_tui.health import Assessment, assess
from rgt_tui.model.box import BoxState, Health
from rgt_tui.model.protocol import Cell
from rgt_tui.model.run import RunState
from rgt_tui.ui.enduring import words
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.spans import Tone

__all__ = [
    "Assessment",
    "assess",
    "cells_of",
    "counts",
    "current_cell",
    "current_run",
    "failed",
    "level_tone",
    "mark",
]


def failed(box: BoxState, error: Exception) -> Assessment:
    """Return what is said of a box that rgt itself failed to judge: its state is unknown, and why."""
    return Assessment(
        health=Health.UNKNOWN,
        word="unknown",
        why=f"rgt failed to judge this box: {words(error)}",
        alerts=(),
        progress_age=None,
        sample_age=None,
        stale=False,
        rank=(list(Health).index(Health.UNKNOWN), 0, 0, 0.0, box.spec.name),
    )


def mark(health: Health) -> tuple[str, Tone]:
    """Return the glyph of a state and the tone it is shown in."""
    g = glyphs()
    return {
        Health.TROUBLE: (g.trouble, Tone.TROUBLE),
        Health.UNREACHABLE: (g.stale, Tone.WARN),
        Health.WARN: (g.warn, Tone.WARN),
        Health.UNKNOWN: (g.warn, Tone.WARN),
        Health.STALE: (g.stale, Tone.DIM),
        Health.CONNECTING: (g.unknown, Tone.DIM),
        Health.RUNNING: (g.ok, Tone.TEXT),
        Health.IDLE: (g.idle, Tone.TEXT),
        Health.FINISHED: (g.finished, Tone.TEXT),
        Health.STOPPED: (g.stopped, Tone.DIM),
        Health.GONE: (g.unknown, Tone.DIM),
    }[health]


def level_tone(level: str) -> Tone:
    """Return the tone of an alert, an event or a clock."""
    return {"error": Tone.TROUBLE, "warn": Tone.WARN}.get(level, Tone.TEXT)


def counts(healths: Iterable[Health]) -> list[tuple[Health, int]]:
    """Return how many boxes are in each state, worst first."""
    found = Counter(healths)
    return [(health, found[health]) for health in Health if found[health]]


def cells_of(box: BoxState) -> tuple[Cell, ...]:
    """Return the cells of all queues of a box."""
    if len(box.queues) == 1:
        return box.queues[0].cells
    return tuple(cell for queue in box.queues for cell in queue.cells)


def current_cell(box: BoxState) -> tuple[int, Cell] | None:
    """Return the running cell with its place (from 1), else the last one that was started."""
    started: tuple[int, Cell] | None = None
    for place, cell in enumerate(cells_of(box), 1):
        if cell.state == "running":
            return place, cell
        if cell.state != "waiting":
            started = place, cell
    return started


def current_run(box: BoxState) -> RunState | None:
    """Return the run of the current cell, else the one that moved last."""
    if not box.runs:
        return None
    current = current_cell(box)
    if current is not None:
        for run in box.runs:
            if run.name == current[1].name:
                return run
        if current[1].state == "running":
            return None
    return max(box.runs, key=lambda run: run.progressed_at or 0.0)
