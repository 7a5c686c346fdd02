"""The columns of the fleet table: one pure function per cell, which columns fit a width, and a row as a line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from rgt_tui.health.autostop_words import of_box
from rgt_tui.health.facts import BUSY_PCT, DISK_ERROR_PCT, DISK_WARN_PCT, MEMORY_ERROR_PCT, MEMORY_WARN_PCT
from rgt_tui.model.autostop import AutostopReading
from rgt_tui.model.box import BoxState, Health
from rgt_tui.model.money import Amount
from rgt_tui.model.protocol import Gpu
from rgt_tui.profiles import prices
from rgt_tui.profiles.readings import byte_pct, inode_pct, memory_pct
from rgt_tui.profiles.readings import percent as ratio
from rgt_tui.profiles.run_advice import run_cost, seconds_per_step
from rgt_tui.ui.box_status import (
    cells_of,
    clock_left,
    current_cell,
    current_run,
    is_limited,
    level_tone,
    old_mark,
    standing,
)
from rgt_tui.ui.notation import (
    NONE,
    clean,
    compact_time,
    glyphs,
    known,
    number,
    percent,
    plain,
    thousands,
)
from rgt_tui.ui.widgets.bars import curve_spark, spark, thin_bar
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip, dim, fit, fit_name, line, merged

if TYPE_CHECKING:
    from rgt_tui.health import Assessment, ClockReading


class Row(NamedTuple):
    """What the table needs to know of one box."""

    box: BoxState
    verdict: Assessment
    clocks: tuple[ClockReading, ...]
    """Those that count now, the soonest first."""
    platform: str
    now: float = 0.0
    """Client clock; 0 = not told, and what is to come is not known."""

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
    glyph, _, tone = standing(row.box, row.verdict)
    strong = row.verdict.health in {Health.TROUBLE, Health.WARN, Health.UNREACHABLE, Health.UNKNOWN}
    name = fit_name(clean(row.name), width - 2)
    return (Span(f"{glyph} ", tone), Span(name, Tone.STRONG if strong else Tone.TEXT))


def state_cell(row: Row, width: int) -> Line:
    """The word of the row, and how many alerts hold besides."""
    _, word, tone = standing(row.box, row.verdict)
    more = sum(not alert.muted for alert in row.verdict.alerts) - 1
    besides = (
        f" +{more}" if more > 0 and len(word) + len(f" +{more}") <= width else ""
    )  # the word counts more
    return (Span(fit(word + besides, width), tone),)


class OddCards(NamedTuple):
    """Cards of a box that do not do what the others do."""

    many: int
    dead: bool
    """They do not answer; else they idle while others work."""


def odd_cards(gpus: Sequence[Gpu]) -> OddCards | None:
    """Return the cards that are dead, else those that idle beside others that work; None where all are alike.

    A mean hides them: seven cards at 97% and a dead one are 85%.
    """
    dead = sum(gpu.error is not None for gpu in gpus)
    if dead:
        return OddCards(dead, True)
    idle = sum(gpu.util is not None and gpu.util < BUSY_PCT for gpu in gpus)
    busy = sum(gpu.util is not None and gpu.util >= BUSY_PCT for gpu in gpus)
    return OddCards(idle, False) if idle and busy else None


def gpu_cell(row: Row, width: int) -> Line:
    """The last minute of utilisation, and the newest value: the mean over the box's GPUs, and which stand out of it.

    The badge stands at the end, between this number and the bar of the video memory: it is beside both.
    """
    gpus = row.box.sample.gpus if row.box.sample else ()
    badge = " SIM" if any(gpu.sim for gpu in gpus) else ""
    odd = odd_cards(gpus)
    said, tone = "", Tone.TEXT
    if odd is not None:
        said = f"{odd.many}/{len(gpus)}{glyphs().trouble if odd.dead else glyphs().idle}"
        tone = Tone.TROUBLE if odd.dead else Tone.WARN
    value = percent(mean([gpu.util for gpu in gpus]))
    room = width - len(badge) - len(said)
    if said and room < len(value) + 1:
        value = ""  # the mean is what misleads here
    elif said:
        said = " " + said
    line_width = max(0, room - max(5, len(value) + 2)) if value else max(0, room - 1)
    parts = spark(row.box.rings.gpu_util[-60:], line_width, low=0, high=100) if line_width > 0 else ""
    shown = fit(value, width - line_width - len(badge) - len(said), right=True)
    return line(dim(parts), Span(shown), Span(said, tone), Span(badge, Tone.BADGE) if badge else "")


def heat(row: Row) -> float | None:
    """Return the temperature of the hottest card, °C."""
    return worst([gpu.temp_c for gpu in row.box.sample.gpus]) if row.box.sample else None


def alive(row: Row) -> list[Gpu]:
    """Return the cards that answer: a dead one is part of no sum; the badge of the GPU column counts it."""
    return [gpu for gpu in row.box.sample.gpus if gpu.error is None] if row.box.sample else []


def watts(row: Row) -> float | None:
    """Return what the cards that tell it draw together; None where none does."""
    drawn = [gpu.power_w for gpu in alive(row) if gpu.power_w is not None]
    return sum(drawn) if drawn else None


def vram_pct(row: Row) -> float | None:
    """Return how full the memory of all cards that answer is; None where one of them does not tell."""
    gpus = alive(row)
    if any(gpu.vram_used is None or not gpu.vram_total for gpu in gpus):
        return None
    return ratio(sum(gpu.vram_used or 0 for gpu in gpus), sum(gpu.vram_total or 0 for gpu in gpus))


def seconds_to_end(row: Row) -> float | None:
    """Return the time to the last step of the current run, at the pace of its present attempt; None = not known.

    A run that is stuck has no pace.
    """
    run = current_run(row.box)
    if any(alert.kind == "stalled" for alert in row.verdict.alerts):
        return None
    if run is None or not run.step or run.total_steps is None or not row.now or row.verdict.stale:
        return None
    pace = seconds_per_step(row.box, run.name, row.now)
    return None if pace is None or run.total_steps < run.step else (run.total_steps - run.step) * pace


def thousand_steps(row: Row) -> Amount | None:
    """Return what 1,000 steps of the current run cost; None = not known."""
    run = current_run(row.box)
    cost = None if run is None or not row.now or row.verdict.stale else run_cost(row.box, run.name, row.now)
    return None if cost is None else cost.per_1000_steps


def temp_cell(row: Row, width: int) -> Line:
    """Temperature of the hottest card."""
    value = heat(row)
    text = NONE if value is None else f"{value:.0f}{glyphs().degree}"
    return (Span(fit(text, width, right=True), Tone.DIM if value is None else Tone.TEXT),)


def power_cell(row: Row, width: int) -> Line:
    """What all cards draw together, in watts; at least that, where one of them does not tell."""
    value = watts(row)
    silent = any(gpu.power_w is None for gpu in alive(row))
    text = NONE if value is None else f"{glyphs().at_least}{value:.0f}" if silent else f"{value:.0f}W"
    return (Span(fit(text, width, right=True), Tone.DIM if value is None else Tone.TEXT),)


def eta_cell(row: Row, width: int) -> Line:
    """Time to the last step of the current run."""
    value = seconds_to_end(row)
    return (Span(fit(compact_time(value), width, right=True), Tone.DIM if value is None else Tone.TEXT),)


def per_thousand_cell(row: Row, width: int) -> Line:
    """What 1,000 steps of the current run cost."""
    value = thousand_steps(row)
    return (Span(fit(narrow(value, width), width, right=True), Tone.DIM if value is None else Tone.TEXT),)


def vram_cell(row: Row, width: int) -> Line:
    """Video memory of all GPUs together."""
    return thin_bar(vram_pct(row), width)


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
    """Epoch and step of the current run; the step alone where both do not fit: no digit of it is cut off."""
    run = current_run(row.box)
    if run is None or run.step is None:
        return (dim(fit(NONE, width, right=True)),)
    epoch = NONE if run.epoch is None else f"{run.epoch:.0f}"
    step = thousands(run.step)
    if len(step) > width:
        step = f"{run.step:.1e}"
    both = f"{epoch} {glyphs().dot}{step:>{max(1, width - len(epoch) - 2)}}"
    return (Span(fit(both if len(both) <= width else step, width, right=True)),)


def age_cell(row: Row, width: int) -> Line:
    """How long ago the run advanced; of a row that is no longer fresh, how old all its values are."""
    verdict = row.verdict
    if verdict.stale and verdict.sample_age is not None:
        tone = Tone.WARN if verdict.health in (Health.UNREACHABLE, Health.UNKNOWN) else Tone.DIM
        sign, age = old_mark(verdict.health), compact_time(verdict.sample_age)
        if cell_len(sign) + 1 + len(age) > width:
            age = re.sub(
                r"(?<=[a-z]).*", "", age
            )  # 16m of 16m34: its last digits are cut, not the sign of an end
        return (Span(fit(f"{sign} {age}", width, right=True), tone),)
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
    least = min(width, 6)
    tried = [number(run.loss, digits) for digits in (3, 2, 1, 0)]
    text = fit(
        next((one for one in tried if len(one) <= least), tried[-1].replace("+", "")), least, right=True
    )
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


CLOCK_WORDS = 8
"""Cells from which on a clock is named."""


class NextEnd(NamedTuple):
    """What ends something first: a danger clock of the platform, or the box's own stop."""

    seconds: float | None
    """None = nothing counts down, or nobody knows how long."""
    clock: ClockReading | None
    own: AutostopReading | None = None
    """The box stops itself before the clock strikes."""


def next_end(row: Row) -> NextEnd:
    """Return what ends something first, of the box's own stop too."""
    reading = next((one for one in row.clocks if one.seconds_left is not None or one.level != "info"), None)
    own = [one for one in of_box(row.box) if one.stops_in_s is not None and one.state in ("armed", "warned")]
    soonest = min(own, key=lambda one: one.stops_in_s or 0.0, default=None)
    left = None if reading is None else reading.seconds_left
    if soonest is not None and soonest.stops_in_s is not None and (left is None or soonest.stops_in_s < left):
        return NextEnd(soonest.stops_in_s, reading, soonest)
    return NextEnd(left, reading)


def clock_cell(row: Row, width: int) -> Line:
    """What is left on the danger clock that ends soonest, of its own stop too, or what a stop goes on costing."""
    left, reading, own = next_end(row)
    if own is not None:
        text = f"{glyphs().power}{compact_time(left)}"
        return (Span(fit(text, width, right=True), Tone.WARN if own.state == "warned" else Tone.TEXT),)
    if reading is None:
        return (dim(fit(NONE, width, right=True)),)
    text = clean(reading.what) if left is None else clock_left(reading, left)
    if left is not None and width - len(text) > CLOCK_WORDS:
        text = f"{text} {fit(clean(reading.what), width - len(text) - 1)}"
        return (Span(fit(text, width), level_tone(reading.level)),)
    return (Span(fit(text, width, right=True), level_tone(reading.level)),)


def clock_cells(row: Row) -> int:
    """Return how many cells the clock of a box takes, its name included."""
    left, reading, own = next_end(row)
    if own is not None or reading is None:
        return 1
    what = cell_len(clean(reading.what))
    return what if left is None else max(CLOCK_WORDS, what) + 1 + len(clock_left(reading, left))


def why_cell(row: Row, width: int) -> Line:
    """The worst alert in words; where there is none, what the box is doing."""
    verdict = row.verdict
    worst = next((a for a in verdict.alerts if not a.muted and a.kind != verdict.health), None)
    if worst is not None:
        return (Span(fit(clean(worst.text), width), level_tone(worst.level)),)
    if is_limited(row.box, verdict):
        return (dim(fit(f"limited: {clean(row.box.limited[0])}", width)),)
    return (dim(fit(clean(verdict.why), width)),)


WISHED = 1_000_000
"""Of a column that is not there from some width on, but where room is left, see `WISHES`."""


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


COLUMNS: tuple[Column, ...] = (
    Column("name", "  box", 14, 0, name_cell, right=False),
    Column("state", "state", 11, 0, state_cell, right=False),
    Column("gpu", "gpu", 8, 80, gpu_cell),
    Column("vram", "vram", 6, 120, vram_cell, right=False),
    Column("temp", "temp", 4, WISHED, temp_cell),
    Column("power", "power", 5, WISHED, power_cell),
    Column("disk", "disk", 4, 120, disk_cell),
    Column("inode", "inode", 5, 0, inode_cell),
    Column("cgroup", "cgroup", 6, 0, cgroup_cell),
    Column("cell", "cell", 4, 0, cell_cell),
    Column("step", "ep·step", 8, 120, step_cell),
    Column("eta", "eta", 6, WISHED, eta_cell),
    Column("age", "age", 6, 0, age_cell),
    Column("loss", "loss", 6, 120, loss_cell),
    Column("rate", "/h", 6, 120, rate_cell),
    Column("per1k", "/1k", 6, WISHED, per_thousand_cell),
    Column("spent", "spent", 6, 120, spent_cell),
    Column("clock", "clock", 6, 120, clock_cell),
    Column("why", "alerts", 0, 80, why_cell, right=False),
)
"""The last column takes what the others leave, if that is enough to say something."""

BY_KEY = {column.key: column for column in COLUMNS}
LEAST_WHY = 12
WIDEST_NAME = 40
NARROW_WISHES = ("rate", "eta", "loss")
"""Columns of a table of 80 to 119 cells, most important first, each where it fits.

The alerts come after them: the state says their first word, and the pane below the table the rest.
"""
NARROW_NAME = 18
"""Up to so many cells a name comes before them."""
WISHES: tuple[tuple[str, int], ...] = (
    ("name", WIDEST_NAME),
    ("loss", 7),
    ("eta", 0),
    ("step", 2),
    ("why", 24),
    ("state", 2),
    ("per1k", 0),
    ("temp", 0),
    ("power", 0),
    ("age", 1),
    ("rate", 1),
    ("spent", 1),
    ("clock", 14),
    ("why", 60),
    ("gpu", 4),
    ("state", 1),
)
"""What a table of 120 cells and more does with those left over, most important first: a column, or more room for it.

The name takes what the longest one needs. What is wished for and does not fit is left out, and what is less important
does not take its place unless it is smaller.
"""


@lru_cache(maxsize=64)
def layout(width: int, longest: int = 0, clock: int = WISHED, by: str = "") -> tuple[tuple[Column, int], ...]:
    """Return the columns of a table, each with its width.

    Args:
        width: Of the table, in cells.
        longest: Cells of the longest name.
        clock: Cells of the longest clock; the column is no wider, and the alerts have the rest.
        by: The column that the rows are sorted by: it is there at every width, before the alerts.
    """
    chosen = {
        column.key: column.width for column in COLUMNS[:-1] if width >= column.since or column.key == by
    }
    wanted = min(longest + 2, WIDEST_NAME)
    if width < 80:
        chosen["name"] = 12
        room = width - 2 - sum(chosen.values()) - len(chosen)
        chosen["name"] += max(-2, min(6 if wanted <= 18 else wanted - 12, room))
    elif width < 120:

        def left() -> int:
            return width - 2 - sum(chosen.values()) - len(chosen)

        chosen["name"] += max(0, min(min(wanted, NARROW_NAME) - chosen["name"], left()))
        for key in NARROW_WISHES:
            if key not in chosen and left() > BY_KEY[key].width:
                chosen[key] = BY_KEY[key].width
        chosen["name"] += max(0, min(wanted - chosen["name"], left()))
    else:
        chosen["gpu"] += max(0, min(4, width - 2 - sum(chosen.values()) - len(chosen)))
    spare = width - 2 - sum(chosen.values()) - len(chosen)
    held = 0
    for key, cells in WISHES if width >= 120 else ():
        if key == "why":
            held = max(held, min(cells, spare - 1) if spare - 1 >= LEAST_WHY else 0)
            continue
        need = BY_KEY[key].width + 1 + cells if key not in chosen else cells
        if key == "name":
            need = max(0, min(wanted - chosen["name"], spare - held))
        if key == "clock":
            need = max(0, min(need, clock - chosen["clock"]))
        if key == "loss":
            need = min(need, spare)
            need = need if need >= 4 else 0
        if need <= spare - held:
            chosen[key] = need - 1 if key not in chosen else chosen[key] + need
            spare -= need
    if width >= COLUMNS[-1].since and spare - 1 >= LEAST_WHY:
        chosen["why"] = spare - 1
    return tuple((column, chosen[column.key]) for column in COLUMNS if column.key in chosen)


class InSight(NamedTuple):
    """Which rows are in sight, where not all are."""

    first: int
    """From 1."""
    last: int
    total: int

    def words(self, width: int) -> str:
        """Return it as the title of the boxes, as much as fits."""
        span = f"{self.first}-{self.last}/{self.total}"
        ways = (f"  box {span}", f"  {span}", f"  {self.first}/{self.total}")
        return next((one for one in ways if len(one) <= width), ways[-1])


def heading(
    columns: Sequence[tuple[Column, int]], sort: str, *, rising: bool = False, shown: InSight | None = None
) -> Line:
    """Return the line of titles; the one that the rows are sorted by stands out, with the way it goes.

    Args:
        columns: With their widths.
        sort: Key of the column that the rows are sorted by.
        rising: The smallest is first.
        shown: Which rows are in sight; None = all.
    """
    out: list[Span] = [Span(" ")]
    for index, (column, width) in enumerate(columns):
        gap = "" if index == 0 else " "
        pad = " " if column.key == "why" else ""
        text = "gpu 1m" if column.key == "gpu" and width > 8 else column.title
        if column.key == "name" and shown is not None:
            text = shown.words(width - (sort == "name"))
        if column.key == sort:
            arrow = glyphs().rising if rising else glyphs().opened
            if len(text) < width:
                text += arrow
            else:
                gap = arrow  # in front of a title that fills its column, so that none is cut
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
