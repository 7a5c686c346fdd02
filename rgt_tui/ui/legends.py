"""The meaning of each screen's glyphs and columns: the second half of its help."""

from __future__ import annotations

from typing import NamedTuple

from rgt_tui.language import translate
from rgt_tui.model import BoxHealth
from rgt_tui.ui.box_status import SEVERITIES, STATES, UNSEEN
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.widgets.fleet_rows import COLUMNS


class LegendRow(NamedTuple):
    """One glyph, letter or title, and its meaning."""

    mark: str
    means: str


Legend = tuple[tuple[str, tuple[LegendRow, ...]], ...]
"""Titles, each with its rows."""


def state_legend() -> tuple[LegendRow, ...]:
    """Return the glyphs of the states of a box, worst first."""
    return tuple(LegendRow(look.glyph_and_tone[0], look.means) for look in STATES.values())


def _fleet_legend() -> Legend:
    g = current_glyphs()
    columns = tuple(LegendRow(column.shown_title.strip(), column.means) for column in COLUMNS)
    signs = (
        LegendRow("SIM", "the GPU is simulated, as in rgt demo"),
        LegendRow(f"{g.stale} 42s", "a value that is no longer fresh, and its age"),
        LegendRow(g.limited, "limited: rgt sees little of this box; no problem in what it sees"),
        LegendRow(
            f"1/8{g.trouble} 1/8{g.idle}",
            "one GPU of eight does not answer; one is idle while others work",
        ),
        LegendRow(
            f"{g.opened} {g.rising}",
            "the rows are sorted by this column, the most first; the least first",
        ),
        LegendRow(g.dash, "not reported (it is not zero and not free)"),
        LegendRow(f"{g.at_least} {g.at_most} ~", "at least, at most, about"),
        LegendRow(g.power, "the box stops itself then (rgt autostop)"),
    )
    return (("states", state_legend()), ("columns", columns), ("signs", signs))


def _box_legend() -> Legend:
    g = current_glyphs()
    return (
        ("states", state_legend()),
        ("disks", (
            LegendRow("s", "files there survive stopping the box"),
            LegendRow("d", "files there survive destroying the box"),
            LegendRow(g.unknown, "files there are lost"),
            LegendRow("?", "unknown whether they survive"),
            LegendRow(g.limit, "the position of the limit in the bar"),
        )),
        ("queue", run_legend()),
    )  # fmt: skip


def run_legend() -> tuple[LegendRow, ...]:
    """Return the glyphs of runs and cells."""
    g = current_glyphs()
    return (
        LegendRow(g.ok, "runs"),
        LegendRow(g.finished, "done"),
        LegendRow(g.trouble, "failed"),
        LegendRow(g.warn, "interrupted"),
        LegendRow(g.unknown, "waits"),
    )


def _curves_legend() -> Legend:
    # As the plot draws them (`plot/frame.py`).
    up, cross = ("⇡", "╳") if current_glyphs().braille else ("^", "X")
    rows = (
        LegendRow(up, "resumed from a checkpoint at this step"),
        LegendRow(cross, "NaN or infinity: a gap, never a line through it"),
    )
    lost = tuple(
        LegendRow(f"{look.glyph_and_tone[0]} 42s", look.means)
        for health, look in STATES.items()
        if health is BoxHealth.STALE or health in UNSEEN
    )
    return (
        ("marks", rows),
        ("runs", run_legend()),
        (translate("before a run's age: why it is not visible"), lost),
    )


def _phases_legend() -> Legend:
    g = current_glyphs()
    return (
        ("checks", (
            LegendRow(g.check, "proved, by the reading next to it"),
            LegendRow(g.trouble, "failed"),
            LegendRow(g.warn, "true now, but not for long"),
            LegendRow(g.person, "only you can confirm it"),
            LegendRow(g.unknown, "no reading yet"),
        )),
    )  # fmt: skip


def _alerts_legend() -> Legend:
    g = current_glyphs()
    return (
        ("alerts", (
            LegendRow(g.trouble, "error: something is lost or stuck"),
            LegendRow(g.warn, "warning: something will be lost or stuck unless you act"),
            LegendRow(g.check, "ended: no longer true"),
            LegendRow("dim", "muted, or ended"),
        )),
    )  # fmt: skip


def _teardown_legend() -> Legend:
    g = current_glyphs()
    return (
        ("evidence", (
            LegendRow(g.check, "proved, as long ago as its age says"),
            LegendRow(g.trouble, "not proved: it blocks the action"),
            LegendRow(g.more, "it is being pulled"),
            LegendRow(g.warn, "given up by name"),
            LegendRow(g.dash, "ignored: marked as no result by a person, not proved"),
        )),
    )  # fmt: skip


def _handbook_legend() -> Legend:
    severities = tuple(
        LegendRow(look.glyph_and_tone[0], look.means) for look in SEVERITIES.values()
    )
    return ((translate("before a page: a box shows it now"), severities),)


_LEGENDS = {
    "fleet": _fleet_legend,
    "box": _box_legend,
    "curves": _curves_legend,
    "phases": _phases_legend,
    "alerts": _alerts_legend,
    "handbook": _handbook_legend,
    "tear down": _teardown_legend,
}


def legend_of(place: str) -> Legend:
    """Return the legend of a screen for its help; empty if it has none of its own."""
    make = _LEGENDS.get(place)
    if make is not None:
        return make()
    return ()
