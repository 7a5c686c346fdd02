"""The cells of the fleet table: the readings behind the columns, and one pure function per cell."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len

from rgt_tui.health import LIMITS, list_readings
from rgt_tui.language import translate
from rgt_tui.model import AutostopReading, BoxHealth, BoxState, DiskReading, GpuReading, MoneyAmount
from rgt_tui.profiles import byte_pct, inode_pct, memory_pct, prices
from rgt_tui.profiles import compute_percent as ratio
from rgt_tui.ui.box_status import (
    cells_of,
    clock_left,
    current_cell,
    current_run,
    is_limited,
    level_tone,
    old_mark,
    status_label,
)
from rgt_tui.ui.notation import (
    NONE,
    amount_or_dash,
    current_glyphs,
    format_thousands,
    make_displayable,
    narrow_time,
    number_or_dash,
    percent_or_dash,
)
from rgt_tui.ui.widgets.bars import curve_spark, draw_sparkline, thin_bar
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim_span, fit_name, fit_text, make_line

if TYPE_CHECKING:
    from rgt_tui.health import Assessment, ClockReading


class FleetRow(NamedTuple):
    """Everything the table needs to know about one box."""

    box: BoxState
    verdict: Assessment
    clocks: tuple[ClockReading, ...]
    """The active clocks, the one that ends first at the front."""
    platform: str
    now: float = 0.0
    """Client clock; 0 = not given, so times in the future are unknown."""

    @property
    def name(self) -> str:
        """Name of the box: the key of the row."""
        return self.box.spec.name


def choose_tone(value: float | None, warn: float, error: float) -> Tone:
    """Return the tone of a percentage that has two limits."""
    if value is None:
        return Tone.DIM
    if value >= error:
        return Tone.TROUBLE
    if value >= warn:
        return Tone.WARN
    return Tone.TEXT


def max_known(values: list[float | None]) -> float | None:
    """Return the highest known value."""
    return max((v for v in values if v is not None), default=None)


def mean_known(values: list[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = [v for v in values if v is not None]
    if known:
        return sum(known) / len(known)
    return None


def name_cell(row: FleetRow, width: int) -> Line:
    """State glyph and name."""
    glyph, _, tone = status_label(row.box, row.verdict)
    strong = row.verdict.health in {
        BoxHealth.TROUBLE,
        BoxHealth.WARN,
        BoxHealth.UNREACHABLE,
        BoxHealth.UNKNOWN,
    }
    name = fit_name(row.name, width - 2)
    name_tone = Tone.TEXT
    if strong:
        name_tone = Tone.STRONG
    return (Span(f"{glyph} ", tone), Span(name, name_tone))


def state_cell(row: FleetRow, width: int) -> Line:
    """The state word, and the number of further alerts."""
    _, word, tone = status_label(row.box, row.verdict)
    more = sum(not alert.muted for alert in row.verdict.alerts) - 1
    # the word is more important
    besides = ""
    if more > 0 and cell_len(word) + len(f" +{more}") <= width:
        besides = f" +{more}"
    return (Span(fit_text(word + besides, width), tone),)


class OddCards(NamedTuple):
    """GPUs of a box that behave differently from the others."""

    many: int
    dead: bool
    """They do not answer; otherwise they idle while others work."""


def find_odd_cards(gpus: Sequence[GpuReading]) -> OddCards | None:
    """Return the dead GPUs, else those idle while others work; None if all are alike.

    A mean hides them: with seven GPUs at 97% and a dead one it is 85%.
    """
    dead = sum(gpu.error is not None for gpu in gpus)
    if dead:
        return OddCards(dead, True)
    idle = sum(gpu.util is not None and gpu.util < LIMITS.busy_pct for gpu in gpus)
    busy = sum(gpu.util is not None and gpu.util >= LIMITS.busy_pct for gpu in gpus)
    if idle and busy:
        return OddCards(idle, False)
    return None


def gpu_cell(row: FleetRow, width: int) -> Line:
    """The last minute of utilisation, its mean over the box's GPUs, plus a count of outlier GPUs.

    The SIM badge is at the end, between this number and the memory bar, because it applies to both.
    """
    if row.box.sample:
        gpus = row.box.sample.gpus
    else:
        gpus = ()
    badge = ""
    if any(gpu.sim for gpu in gpus):
        badge = " SIM"
        # Shortened, but never left out: a simulated value must not look measured.
        if width < len("100% SIM"):
            badge = "S"
    odd = find_odd_cards(gpus)
    said, tone = "", Tone.TEXT
    if odd is not None:
        said = f"{odd.many}/{len(gpus)}{current_glyphs().trouble if odd.dead else current_glyphs().idle}"
        if odd.dead:
            tone = Tone.TROUBLE
        else:
            tone = Tone.WARN
    value = percent_or_dash(mean_known([gpu.util for gpu in gpus]))
    room = width - len(badge) - len(said)
    if said and room < len(value) + 1:
        value = ""  # drop the mean: it would mislead here
    elif said:
        said = " " + said
    if value:
        line_width = max(0, room - max(5, len(value) + 2))
    else:
        line_width = max(0, room - 1)
    parts = ""
    if line_width > 0:
        parts = draw_sparkline(row.box.rings.gpu_util[-60:], line_width, low=0, high=100)
    shown = fit_text(value, width - line_width - len(badge) - len(said), right=True)
    badge_span: Span | str = ""
    if badge:
        badge_span = Span(badge, Tone.BADGE)
    return make_line(dim_span(parts), Span(shown), Span(said, tone), badge_span)


def hottest_gpu(row: FleetRow) -> float | None:
    """Return the temperature of the hottest GPU, °C."""
    if row.box.sample:
        return max_known([gpu.temp_c for gpu in row.box.sample.gpus])
    return None


def list_live_gpus(row: FleetRow) -> list[GpuReading]:
    """Return the GPUs that answer. Dead ones are in no sum; the GPU column counts them."""
    if row.box.sample:
        return [gpu for gpu in row.box.sample.gpus if gpu.error is None]
    return []


def total_watts(row: FleetRow) -> float | None:
    """Return the total power of the GPUs that report it, in watts; None if none does."""
    drawn = [gpu.power_w for gpu in list_live_gpus(row) if gpu.power_w is not None]
    if drawn:
        return sum(drawn)
    return None


def vram_pct(row: FleetRow) -> float | None:
    """Return the memory use of all answering GPUs in percent; None if one does not report it."""
    gpus = list_live_gpus(row)
    # Counted as 0, a GPU without a reading would look empty.
    if any(gpu.vram_used is None or not gpu.vram_total for gpu in gpus):
        return None
    return ratio(sum(gpu.vram_used or 0 for gpu in gpus), sum(gpu.vram_total or 0 for gpu in gpus))


def seconds_to_end(row: FleetRow) -> float | None:
    """Return the time to the last step of the current run, at the pace of its last quarter.

    None if it is unknown; a stalled run has no pace.
    """
    run = current_run(row.box)
    if any(alert.kind == "stalled" for alert in row.verdict.alerts):
        return None
    if run is None or not run.step or run.total_steps is None or not row.now or row.verdict.stale:
        return None
    # Not needed for the first frame.
    from rgt_tui.profiles.run_advice import list_quarter_paces, seconds_per_step

    pace = seconds_per_step(row.box, run.name, row.now)
    if pace is None or run.total_steps < run.step:
        return None
    # Without quarters: the pace of the whole run.
    return (run.total_steps - run.step) * (list_quarter_paces(run) or [pace])[-1]


def thousand_steps(row: FleetRow) -> MoneyAmount | None:
    """Return the cost of 1,000 steps of the current run; None = unknown."""
    run = current_run(row.box)
    if run is None or not row.now or row.verdict.stale:
        return None
    from rgt_tui.profiles.run_advice import run_cost  # not needed for the first frame

    cost = run_cost(row.box, run.name, row.now)
    if cost is None:
        return None
    return cost.per_1000_steps


def worst_util(row: FleetRow) -> float | None:
    """Return the utilisation of the worst GPU, which a mean hides; a dead GPU counts as 0."""
    if row.box.sample:
        gpus = row.box.sample.gpus
    else:
        gpus = ()
    known = [0.0 if gpu.error is not None else gpu.util for gpu in gpus]
    return min((util for util in known if util is not None), default=None)


def fullest_share(row: FleetRow, share: Callable[[DiskReading], float | None]) -> float | None:
    """Return how full the fullest writable mount is."""
    if row.box.sample:
        disks = row.box.sample.disks
    else:
        disks = ()
    # A read-only mount cannot fill up, and an image is always full.
    return max_known([share(disk) for disk in disks if not disk.read_only])


def bytes_full(row: FleetRow) -> float | None:
    """Return the bytes used on the fullest mount, in percent."""
    return fullest_share(row, byte_pct)


def inodes_full(row: FleetRow) -> float | None:
    """Return the inodes used on the fullest mount, in percent."""
    return fullest_share(row, inode_pct)


def memory_full(row: FleetRow) -> float | None:
    """Return the container's memory against its limit, in percent."""
    if row.box.sample:
        return memory_pct(row.box.sample.mem)
    return None


Read = Callable[[FleetRow], float | None]
Cell = Callable[[FleetRow, int], Line]


def number_cell(
    read: Read,
    write: Callable[[float | None], str],
    tone: Callable[[float], Tone] = lambda value: Tone.TEXT,
) -> Cell:
    """Return a cell that shows one number at its right end, dim where it is not known."""

    def draw_cell(row: FleetRow, width: int) -> Line:
        value = read(row)
        shown_tone = Tone.DIM
        if value is not None:
            shown_tone = tone(value)
        return (Span(fit_text(write(value), width, right=True), shown_tone),)

    return draw_cell


def full_cell(read: Read, warn: float, error: float) -> Cell:
    """Return a cell that shows a percentage with two limits."""
    return number_cell(read, percent_or_dash, lambda value: choose_tone(value, warn, error))


def money_cell(read: Callable[[FleetRow], MoneyAmount | None]) -> Cell:
    """Return a cell that shows an amount."""

    def draw_cell(row: FleetRow, width: int) -> Line:
        value = read(row)
        tone = Tone.TEXT
        if value is None:
            tone = Tone.DIM
        return (Span(fit_text(fit_amount(value, width), width, right=True), tone),)

    return draw_cell


def hourly_cost(row: FleetRow) -> MoneyAmount | None:
    """Return the current cost of an hour."""
    return prices.find_hourly_cost(row.box.meter)


def cost_so_far(row: FleetRow) -> MoneyAmount | None:
    """Return what the box has cost."""
    return prices.find_cost_so_far(row.box.meter)


def power_cell(row: FleetRow, width: int) -> Line:
    """Total power of the GPUs in watts; marked as a minimum if one does not report it."""
    value = total_watts(row)
    silent = any(gpu.power_w is None for gpu in list_live_gpus(row))
    if value is None:
        text = NONE
    elif silent:
        text = f"{current_glyphs().at_least}{value:.0f}"
    else:
        text = f"{value:.0f}W"
    tone = Tone.TEXT
    if value is None:
        tone = Tone.DIM
    return (Span(fit_text(text, width, right=True), tone),)


def heat_text(value: float | None) -> str:
    """Return a temperature."""
    if value is None:
        return NONE
    return f"{value:.0f}{current_glyphs().degree}"


eta_cell = number_cell(seconds_to_end, narrow_time)


def vram_cell(row: FleetRow, width: int) -> Line:
    """Video memory of all GPUs together."""
    return thin_bar(vram_pct(row), width)


def cell_cell(row: FleetRow, width: int) -> Line:
    """Number of the current queue cell, and the total."""
    current = current_cell(row.box)
    total = len(cells_of(row.box))
    if total:
        text = f"{current[0] if current else 0}/{total}"
    else:
        text = NONE
    tone = Tone.DIM
    if total:
        tone = Tone.TEXT
    return (Span(fit_text(text, width, right=True), tone),)


def step_cell(row: FleetRow, width: int) -> Line:
    """Epoch and step of the current run; only the step if both do not fit, so no digit is cut."""
    run = current_run(row.box)
    if run is None or run.step is None:
        return (dim_span(fit_text(NONE, width, right=True)),)
    if run.epoch is None:
        epoch = NONE
    else:
        epoch = f"{run.epoch:.0f}"
    step = format_thousands(run.step)
    # With digits cut off, the step would look like an earlier one.
    if len(step) > width:
        step = f"{run.step:.1e}"
    both = f"{epoch} {current_glyphs().dot}{step:>{max(1, width - len(epoch) - 2)}}"
    shown = step
    if len(both) <= width:
        shown = both
    return (Span(fit_text(shown, width, right=True)),)


def age_cell(row: FleetRow, width: int) -> Line:
    """Time since the run's last progress; for a stale row, the age of its values."""
    verdict = row.verdict
    if verdict.stale and verdict.sample_age is not None:
        if verdict.health in (BoxHealth.UNREACHABLE, BoxHealth.UNKNOWN):
            tone = Tone.WARN
        else:
            tone = Tone.DIM
        sign, age = old_mark(verdict.health), narrow_time(verdict.sample_age)
        if cell_len(sign) + 1 + len(age) > width:
            age = re.sub(
                r"(?<=[a-z]).*", "", age
            )  # 16m instead of 16m34: cut the seconds, but keep the marker
        return (Span(fit_text(f"{sign} {age}", width, right=True), tone),)
    stuck = any(
        alert.id.startswith(("stall", "finding")) and alert.level == "error"
        for alert in verdict.alerts
    )
    tone = Tone.TROUBLE if stuck else Tone.TEXT
    text = narrow_time(verdict.progress_age)
    age_tone = tone
    if verdict.progress_age is None:
        age_tone = Tone.DIM
    return (Span(fit_text(text, width, right=True), age_tone),)


def loss_cell(row: FleetRow, width: int) -> Line:
    """The newest loss, and the whole curve after it if there is room."""
    run = current_run(row.box)
    if run is None or run.loss is None:
        return (dim_span(fit_text(NONE, min(width, 6), right=True)),)
    least = min(width, 6)
    # As many decimals as fit; else without the sign of the exponent.
    tried = [number_or_dash(run.loss, digits) for digits in (3, 2, 1, 0)]
    text = fit_text(
        next((one for one in tried if len(one) <= least), tried[-1].replace("+", "")),
        least,
        right=True,
    )
    if math.isfinite(run.loss):
        tone = Tone.TEXT
    else:
        tone = Tone.TROUBLE
    # The number and a blank take 7 cells.
    room = width - 7
    spark: Span | str = ""
    if room > 2:
        spark = dim_span(" " + curve_spark(run.series.get("loss"), room))
    return make_line(Span(text, tone), spark)


def fit_amount(amount: MoneyAmount | None, width: int) -> str:
    """Return an amount for a column: without spaces, and without cents if they do not fit."""
    text = make_displayable(amount_or_dash(amount).replace(" ", ""))
    if amount is not None and len(text) > width:
        # A lower bound must not be rounded up.
        if amount.at_least:
            whole = math.floor(amount.value)
        else:
            whole = round(amount.value)
        short = amount_or_dash(MoneyAmount(float(whole), amount.currency, amount.at_least))
        text = make_displayable(short.replace(" ", "").replace(".00", ""))
    return text


CLOCK_WORDS = 8
"""Minimum spare cells to show the clock's name."""


class NextEnd(NamedTuple):
    """The first deadline: a danger clock of the platform, or the box's own stop."""

    seconds: float | None
    """None = no deadline, or its time is unknown."""
    clock: ClockReading | None
    own: AutostopReading | None = None
    """Set if the box stops itself before the clock runs out."""


def next_end(row: FleetRow) -> NextEnd:
    """Return the first deadline, including the box's own stop."""
    # A clock without a time counts only if it is a warning.
    reading = next(
        (one for one in row.clocks if one.seconds_left is not None or one.level != "info"), None
    )
    own = [
        one
        for one in list_readings(row.box)
        if one.stops_in_s is not None and one.state in ("armed", "warned")
    ]
    soonest = min(own, key=lambda one: one.stops_in_s or 0.0, default=None)
    if reading is None:
        left = None
    else:
        left = reading.seconds_left
    if (
        soonest is not None
        and soonest.stops_in_s is not None
        and (left is None or soonest.stops_in_s < left)
    ):
        return NextEnd(soonest.stops_in_s, reading, soonest)
    return NextEnd(left, reading)


def clock_cell(row: FleetRow, width: int) -> Line:
    """Time left on the first deadline, own stop included, or the costs that remain after a stop."""
    left, reading, own = next_end(row)
    if own is not None:
        text = f"{current_glyphs().power}{narrow_time(left)}"
        tone = Tone.TEXT
        if own.state == "warned":
            tone = Tone.WARN
        return (Span(fit_text(text, width, right=True), tone),)
    if reading is None:
        return (dim_span(fit_text(NONE, width, right=True)),)
    if left is None:
        text = reading.what
    else:
        text = clock_left(reading, left)
        if len(text) > width:
            # Days alone: "18d 2…" could be 2 or 22 hours.
            text = text.partition(" ")[0]
    if left is not None and width - len(text) > CLOCK_WORDS:
        text = f"{text} {fit_text(reading.what, width - len(text) - 1)}"
        return (Span(fit_text(text, width), level_tone(reading.level)),)
    return (Span(fit_text(text, width, right=True), level_tone(reading.level)),)


def clock_cells(row: FleetRow) -> int:
    """Return how many cells the clock of a box needs, its name included."""
    left, reading, own = next_end(row)
    if own is not None or reading is None:
        # The usual width of the column is enough.
        return 1
    what = cell_len(reading.what)
    if left is None:
        return what
    return max(CLOCK_WORDS, what) + 1 + len(clock_left(reading, left))


def why_cell(row: FleetRow, width: int) -> Line:
    """The worst alert; without one, what the box is doing."""
    verdict = row.verdict
    # An alert about the state itself is in the state's column already.
    worst = next((a for a in verdict.alerts if not a.muted and a.kind != verdict.health), None)
    if worst is not None:
        return (Span(fit_text(worst.text, width), level_tone(worst.level)),)
    if is_limited(row.box, verdict):
        return (
            dim_span(fit_text(translate("limited: {limited}", limited=row.box.limited[0]), width)),
        )
    return (dim_span(fit_text(verdict.why, width)),)
