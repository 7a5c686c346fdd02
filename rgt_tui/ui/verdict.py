"""How a box stands, as the screens use it: the word of its row, why, and how old what we know is."""

from __future__ import annotations

from collections import Counter

import msgspec

from rgt_tui.model.box import BoxState, Health, Link
from rgt_tui.model.evidence import Severity
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.spans import Tone


class Assessment(msgspec.Struct, frozen=True):
    """What one look at a box says."""

    health: Health
    word: str
    why: str
    alerts: tuple[str, ...] = ()
    progress_age: float | None = None
    sample_age: float | None = None
    stale: bool = False
    rank: int = 0


def assess(box: BoxState, now: float) -> Assessment:
    """Judge a box."""
    age = None if box.sample_at is None else max(0.0, now - box.sample_at)
    stale = age is not None and age > 3 * box.spec.interval
    running = next((r for r in reversed(box.runs) if r.progressed_at is not None), None)
    progress = (
        None if running is None or running.progressed_at is None else max(0.0, now - running.progressed_at)
    )
    health, why = _health(box, stale)
    rank = list(Health).index(health)
    alerts = tuple(f.resource for f in box.findings if not f.cleared)
    return Assessment(
        health, health.value, why, alerts, progress, age, stale or health is Health.UNREACHABLE, rank
    )


def _health(box: BoxState, stale: bool) -> tuple[Health, str]:
    if box.meter.lifecycle == "stopped":
        return Health.STOPPED, box.meter.source
    if box.meter.lifecycle == "gone":
        return Health.GONE, box.meter.source
    live = [f for f in box.findings if not f.cleared]
    if live:
        worst = live[0]
        bad = worst.severity in {Severity.FATAL, Severity.SILENT_WRONG}
        return (Health.TROUBLE if bad else Health.WARN), worst.title
    if box.link in {Link.UNREACHABLE, Link.REFUSED_KEY}:
        return Health.UNREACHABLE, box.reason
    if box.link is Link.CONNECTING and box.sample is None:
        return Health.CONNECTING, box.reason
    if stale:
        return Health.STALE, "no sample since"
    if box.queues and all(q.done for q in box.queues):
        return Health.FINISHED, "queue done"
    if any(c.state == "running" for q in box.queues for c in q.cells):
        return Health.RUNNING, "a cell is running"
    return Health.IDLE, "nothing runs"


def mark(health: Health) -> tuple[str, Tone]:
    """Return the glyph of a state and the tone it is shown in."""
    g = glyphs()
    return {
        Health.TROUBLE: (g.trouble, Tone.TROUBLE),
        Health.UNREACHABLE: (g.stale, Tone.WARN),
        Health.WARN: (g.warn, Tone.WARN),
        Health.STALE: (g.stale, Tone.DIM),
        Health.CONNECTING: (g.unknown, Tone.DIM),
        Health.RUNNING: (g.ok, Tone.TEXT),
        Health.IDLE: (g.idle, Tone.TEXT),
        Health.FINISHED: (g.finished, Tone.TEXT),
        Health.STOPPED: (g.stopped, Tone.DIM),
        Health.GONE: (g.unknown, Tone.DIM),
    }[health]


def counts(assessments: list[Assessment]) -> list[tuple[Health, int]]:
    """Return how many boxes are in each state, worst first."""
    found = Counter(a.health for a in assessments)
    return [(health, found[health]) for health in Health if found[health]]
