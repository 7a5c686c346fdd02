"""The columns of the fleet table: which there are at which width, and one pure function per cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rgt_tui.health import Bound, ClockReading
from rgt_tui.health.autostop_words import of_box
from rgt_tui.health.facts import DISK_ERROR_PCT, DISK_WARN_PCT, MEMORY_ERROR_PCT, MEMORY_WARN_PCT
from rgt_tui.model.box import BoxState, Health
from rgt_tui.model.money import Amount
from rgt_tui.profiles import prices
from rgt_tui.profiles.readings import byte_pct, inode_pct, memory_pct
from rgt_tui.ui.box_status import Assessment, cells_of, current_cell, current_run, level_tone, mark
from rgt_tui.ui.notation import (
    DAY,
    NONE,
    clean,
    compact_time,
    glyphs,
    known,
    number,
    percent,
    plain,
    ratio,
    thousands,
)
from rgt_tui.ui.widgets.bars import curve_spark, spark, thin_bar
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, dim, fit, line, merged


class Row(NamedTuple):
    """What the table needs to know of one box."""

    box: BoxState
    verdict: Assessment
    clocks: tuple[ClockReading, ...]
    """Those that count now, the soonest first."""
    platform: str

    @property
    def name(self) -> str:
        """Name of the box: the key of the row."""
        return self.box.spec.name


def level(value: float | None, warn: float, error: float) -> Tone:
    """Return the tone of a percentage that has two limits."""
    if value is None:
        return Tone.DIM
    return Tone.TROUBLE if value >= error else Tone.WARN if value >= warn else Tone.TEXT


def worst(values: list[float | None]) -> float | None:
    """Return the highest of the values that are known."""
    return max((v for v in values if v is not None), default=None)


def mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that are known."""
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _percent(value: float | None, width: int, tone: Tone) -> Line:
    return (Span(fit(percent(value), width, right=True), Tone.DIM if value is None else tone),)


def name_cell(row: Row, width: int) -> Line:
    """State glyph and name."""
    glyph, tone = mark(row.verdict.health)
    strong = row.verdict.health in {Health.TROUBLE, Health.WARN, Health.UNREACHABLE, Health.UNKNOWN}
    name = fit(clean(row.name), width - 2)
    return (Span(f"{glyph} ", tone), Span(name, Tone.STRONG if strong else Tone.TEXT))


def state_cell(row: Row, width: int) -> Line:
    """The word of the row, and how many alerts hold besides."""
    _, tone = mark(row.verdict.health)
    more = sum(not alert.muted for alert in row.verdict.alerts) - 1
    text = clean(row.verdict.word) + (f" +{more}" if more > 0 else "")
    return (Span(fit(text, width), tone),)


def gpu_cell(row: Row, width: int) -> Line:
    """The last minute of utilisation, and the newest value; the mean over the box's GPUs.

    The badge stands at the end, between this number and the bar of the video memory: it is beside both.
    """
    gpus = row.box.sample.gpus if row.box.sample else ()
    value = mean([gpu.util for gpu in gpus])
    badge = " SIM" if any(gpu.sim for gpu in gpus) else ""
    line_width = max(0, width - 5 - len(badge))
    parts = spark(row.box.rings.gpu_util[-60:], line_width, low=0, high=100) if line_width > 0 else ""
    shown = fit(percent(value), width - line_width - len(badge), right=True)
    return line(dim(parts), Span(shown), Span(badge, Tone.BADGE) if badge else "")


def vram_cell(row: Row, width: int) -> Line:
    """Video memory of all GPUs together."""
    gpus = row.box.sample.gpus if row.box.sample else ()
    known = [(gpu.vram_used, gpu.vram_total) for gpu in gpus]
    if any(used is None or not total for used, total in known):
        return thin_bar(None, width)
    return thin_bar(ratio(sum(u or 0 for u, _ in known), sum(t or 0 for _, t in known)), width)


def disk_cell(row: Row, width: int) -> Line:
    """The fullest mount by bytes."""
    value = worst([byte_pct(d) for d in row.box.sample.disks if not d.read_only]) if row.box.sample else None
    return _percent(value, width, level(value, DISK_WARN_PCT, DISK_ERROR_PCT))


def inode_cell(row: Row, width: int) -> Line:
    """The fullest mount by inodes."""
    value = worst([inode_pct(d) for d in row.box.sample.disks if not d.read_only]) if row.box.sample else None
    return _percent(value, width, level(value, DISK_WARN_PCT, DISK_ERROR_PCT))


def cgroup_cell(row: Row, width: int) -> Line:
    """The container's memory against its limit."""
    value = memory_pct(row.box.sample.mem) if row.box.sample else None
    return _percent(value, width, level(value, MEMORY_WARN_PCT, MEMORY_ERROR_PCT))


def cell_cell(row: Row, width: int) -> Line:
    """Which cell of how many."""
    current = current_cell(row.box)
    total = len(cells_of(row.box))
    text = f"{current[0] if current else 0}/{total}" if total else NONE
    return (Span(fit(text, width, right=True), Tone.TEXT if total else Tone.DIM),)


def step_cell(row: Row, width: int) -> Line:
    """Epoch and step of the current run."""
    run = current_run(row.box)
    if run is None or run.step is None:
        return (dim(fit(NONE, width, right=True)),)
    epoch = NONE if run.epoch is None else f"{run.epoch:.0f}"
    step = thousands(run.step)
    return (Span(fit(f"{epoch} {glyphs().dot}{step:>{max(1, width - len(epoch) - 2)}}", width, right=True)),)


def age_cell(row: Row, width: int) -> Line:
    """How long ago the run advanced; of a row that is no longer fresh, how old all its values are."""
    verdict = row.verdict
    if verdict.stale and verdict.sample_age is not None:
        tone = Tone.WARN if verdict.health in (Health.UNREACHABLE, Health.UNKNOWN) else Tone.DIM
        return (Span(fit(f"{glyphs().stale} {compact_time(verdict.sample_age)}", width, right=True), tone),)
    stuck = any(
        alert.id.startswith(("stall", "finding")) and alert.level == "error" for alert in verdict.alerts
    )
    tone = Tone.TROUBLE if stuck else Tone.TEXT
    text = compact_time(verdict.progress_age)
    return (Span(fit(text, width, right=True), Tone.DIM if verdict.progress_age is None else tone),)


def loss_cell(row: Row, width: int) -> Line:
    """The newest loss, and the whole curve behind it where there is room."""
    run = current_run(row.box)
    if run is None or run.loss is None:
        return (dim(fit(NONE, min(width, 6), right=True)),)
    text = fit(number(run.loss), min(width, 6), right=True)
    tone = Tone.TEXT if math.isfinite(run.loss) else Tone.TROUBLE
    room = width - 7
    return line(Span(text, tone), dim(" " + curve_spark(run.series.get("loss"), room)) if room > 2 else "")


def narrow(amount: Amount | None, width: int) -> str:
    """Return an amount for a column: without blanks, and without its cents where they do not fit."""
    text = plain(known(amount).replace(" ", ""))
    if amount is not None and len(text) > width:
        whole = math.floor(amount.value) if amount.at_least else round(amount.value)
        short = known(Amount(float(whole), amount.currency, amount.at_least))
        text = plain(short.replace(" ", "").replace(".00", ""))
    return text


def rate_cell(row: Row, width: int) -> Line:
    """What an hour costs now."""
    meter = row.box.meter
    text = narrow(prices.rate(meter), width)
    return (Span(fit(text, width, right=True), Tone.DIM if meter.per_hour is None else Tone.TEXT),)


def spent_cell(row: Row, width: int) -> Line:
    """What the box has cost."""
    meter = row.box.meter
    text = narrow(prices.spent(meter), width)
    return (Span(fit(text, width, right=True), Tone.DIM if meter.spent is None else Tone.TEXT),)


def clock_cell(row: Row, width: int) -> Line:
    """What is left on the danger clock that ends soonest, of its own stop too, or what a stop goes on costing."""
    reading = next((one for one in row.clocks if one.seconds_left is not None or one.level != "info"), None)
    own = [one for one in of_box(row.box) if one.stops_in_s is not None and one.state in ("armed", "warned")]
    soonest = min(own, key=lambda one: one.stops_in_s or 0.0, default=None)
    left = None if reading is None else reading.seconds_left
    if soonest is not None and soonest.stops_in_s is not None and (left is None or soonest.stops_in_s < left):
        text = f"{glyphs().power}{compact_time(soonest.stops_in_s)}"
        tone = Tone.WARN if soonest.state == "warned" else Tone.TEXT
        return (Span(fit(text, width, right=True), tone),)
    if reading is None:
        return (dim(fit(NONE, width, right=True)),)
    text = clean(reading.what) if left is None else clock_left(reading, left)
    return (Span(fit(text, width, right=True), level_tone(reading.level)),)


def clock_left(reading: ClockReading, left: float) -> str:
    """Return the time left, and how far it can be relied on: whole days where the sign takes the room."""
    sign = {Bound.AT_LEAST: glyphs().at_least, Bound.AT_MOST: glyphs().at_most}.get(
        reading.bound, "~" if reading.approx else ""
    )
    return f"{sign}{int(left // DAY)}d" if sign and left >= DAY else f"{sign}{compact_time(left)}"


def why_cell(row: Row, width: int) -> Line:
    """The worst alert in words; where there is none, what the box is doing."""
    verdict = row.verdict
    worst = next((a for a in verdict.alerts if not a.muted and a.kind != verdict.health), None)
    if worst is not None:
        return (Span(fit(clean(worst.text), width), level_tone(worst.level)),)
    return (dim(fit(clean(verdict.why), width)),)


@dataclass(frozen=True)
class Column:
    """One column."""

    key: str
    title: str
    width: int
    since: int
    """Width of the table from which on the column is there."""
    cell: Callable[[Row, int], Line]
    right: bool = True
    more: int = 0
    """Cells it can use besides, where they are left over."""


COLUMNS: tuple[Column, ...] = (
    Column("name", "  box", 14, 0, name_cell, right=False, more=4),
    Column("state", "state", 11, 0, state_cell, right=False, more=2),
    Column("gpu", "gpu", 8, 80, gpu_cell),
    Column("vram", "vram", 6, 120, vram_cell, right=False, more=2),
    Column("disk", "disk", 4, 120, disk_cell),
    Column("inode", "inode", 5, 0, inode_cell),
    Column("cgroup", "cgroup", 6, 0, cgroup_cell),
    Column("cell", "cell", 4, 0, cell_cell, more=1),
    Column("step", "ep·step", 8, 120, step_cell, more=2),
    Column("age", "age", 6, 0, age_cell, more=1),
    Column("loss", "loss", 6, 120, loss_cell, more=7),
    Column("rate", "/h", 6, 120, rate_cell, more=1),
    Column("spent", "spent", 6, 120, spent_cell, more=1),
    Column("clock", "clock", 6, 120, clock_cell, more=1),
    Column("why", "alerts", 0, 80, why_cell, right=False),
)
"""The last column takes what the others leave, if that is enough to say something."""

LEAST_WHY = 12
WIDEN_FIRST = ("loss", "name", "gpu", "step", "state")


def layout(width: int) -> list[tuple[Column, int]]:
    """Return the columns of a table `width` cells wide, each with its width."""
    chosen = {column.key: column.width for column in COLUMNS[:-1] if width >= column.since}
    if width < 80:
        chosen["name"] = 12
        chosen["name"] += max(0, min(6, width - 2 - sum(chosen.values()) - len(chosen)))
    elif width >= 120:
        chosen["gpu"] = 12
    spare = width - 2 - sum(chosen.values()) - len(chosen)
    if width >= 120:
        by_key = {column.key: column for column in COLUMNS}
        rest = [key for key in chosen if key not in WIDEN_FIRST]
        for key in (*WIDEN_FIRST, *(rest if spare >= 60 else ())):
            more = min(by_key[key].more, spare)
            if more >= 4 or more == by_key[key].more:
                chosen[key] += more
                spare -= more
    if width >= COLUMNS[-1].since and spare - 1 >= LEAST_WHY:
        chosen["why"] = spare - 1
    return [(column, chosen[column.key]) for column in COLUMNS if column.key in chosen]


def heading(columns: Sequence[tuple[Column, int]], sort: str) -> Line:
    """Return the line of titles; the one that the rows are sorted by stands out."""
    out: list[Span] = [Span(" ")]
    for index, (column, width) in enumerate(columns):
        gap = "" if index == 0 else " "
        pad = " " if column.key == "why" else ""
        text = "gpu 1m" if column.key == "gpu" and width > 8 else column.title
        if column.key == "loss":
            text = text.rjust(6)
        title = fit(pad + text, width, right=column.right and column.key != "loss")
        out.append(Span(gap + title, Tone.ACCENT if column.key == sort else Tone.DIM))
    return tuple(out)


def row_line(row: Row, columns: Sequence[tuple[Column, int]]) -> Line:
    """Return one box as a line; all but its mark is dim when its values are old."""
    out: list[Span] = [Span(" ")]
    for index, (column, width) in enumerate(columns):
        if index:
            out.append(Span(" "))
        if column.key == "why":
            out.append(Span(" "))
            width -= 1
        made = column.cell(row, width)
        if row.verdict.stale and column.key not in {"name", "state", "age", "why", "clock"}:
            made = tuple(dim(span.text) for span in made)
        out.extend(clip(made, width))
    return merged(out) if out else line(EMPTY)
