"""Hours of a box's figures: live samples and the recorder's summary on one time grid.

Pure functions.

The grid follows the client's clock, in slots of equal width. A slot that has a value keeps it, so
merging the same history twice, or samples already counted, changes nothing. A slot without data is
a gap, never interpolated.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from operator import add

import msgspec

from rgt_tui.model import FrozenStruct, HistoryRequest, RecordedHistory, ReducedHistory, Sample
from rgt_tui.profiles import card_figures, is_of_card, memory_pct

WIDTHS = (60.0, 120.0, 240.0, 480.0)
"""Slot widths in seconds; the narrowest is used that does not exceed the number of slots."""


class HistoryGrid(FrozenStruct):
    """The slots into which the figures of the last hours are reduced."""

    longest_s: float = 86400.0
    """Seconds covered at most: a day."""
    slots: int = 240
    """Default number of slots kept."""
    names: int = 128
    """Figures kept of a box; a box has a handful, and two for each mount."""
    long_gap_s: float = 120.0
    """After a gap of more seconds the recorder's summary is requested; the agent then omits old
    samples."""
    recent_s: float = 20.0
    """Width in seconds of a slot of the finer, recent history."""
    recent_part: int = 4
    """The recent history has this many times fewer slots: an hour in a small fleet, 20 minutes in a
    large one."""


HISTORY_GRID = HistoryGrid()

EARLIEST, LATEST = -6e10, 6e10
"""Client clock, epoch seconds: times beyond are invalid and not put on the grid."""
NARROWEST, WIDEST = 1.0, 3600.0
"""Valid widths of a recorder's row in seconds."""

Values = dict[str, float | None]


def kept_percentages(sample: Sample, *, cards: bool = True) -> Values:
    """Return the percentages of a sample that are kept, by the names of the ``history`` frame.

    Args:
        sample: The sample.
        cards: Also those of each card.

    Returns:
        ``util``, ``vram`` and ``cgroup`` always, None if unknown; known values of cards and mounts.
    """
    found: Values = {
        "util": utilisation(sample),
        "vram": used_vram_percent(sample),
        "cgroup": memory_pct(sample.mem),
    }
    if cards:
        found |= card_figures(sample.gpus)
    for disk in sample.disks:
        space, inodes = _disk_names(disk.mount)
        if (used := percent_of(disk.bytes_used, disk.bytes_total)) is not None:
            found[space] = used
        if (used := percent_of(disk.inodes_used, disk.inodes_total)) is not None:
            found[inodes] = used
    return found


@functools.lru_cache(256)
def _disk_names(mount: str) -> tuple[str, str]:
    return f"disk:{mount}", f"inodes:{mount}"


def utilisation(sample: Sample) -> float | None:
    """Return the mean utilisation of the GPUs that report it, in percent."""
    utils = [gpu.util for gpu in sample.gpus if gpu.util is not None]
    if utils:
        return sum(utils) / len(utils)
    return None


def used_vram_percent(sample: Sample) -> float | None:
    """Return the used share of the memory of all GPUs together, in percent."""
    used = total = 0
    # Sums, not a mean of shares: cards may have different sizes.
    for gpu in sample.gpus:
        used += gpu.vram_used or 0
        total += gpu.vram_total or 0
    return percent_of(used, total)


def percent_of(part: float | None, whole: float | None) -> float | None:
    """Return the percentage, or None if it is unknown."""
    if whole and part is not None:
        return 100.0 * part / whole
    return None


def round_to_tenth(value: float | None) -> float | None:
    """Return a percentage to one decimal.

    Equal values are the same object, to save memory: hundreds of boxes keep many.
    """
    if value is None or not 0.0 <= value <= 100.0:
        return value
    return _TENTHS[round(value * 10)]


_TENTHS = tuple(round(number / 10, 1) for number in range(1001))


class SlotAccumulator:
    """Adds up the samples of the current slot.

    Nearly always a sample has the same figures as the previous one; then the sums are a list by
    position, which is faster than a dict by name.
    """

    __slots__ = ("_counts", "_names", "_place", "_rounds", "_sums", "_totals", "_width")

    def __init__(self) -> None:
        self._place: int | None = None
        self._width = WIDTHS[0]
        self._begin_sums({})

    def _begin_sums(self, sums: dict[str, tuple[float, int]], names: tuple[str, ...] = ()) -> None:
        """Continue from the sums so far with samples that have these figures."""
        self._sums, self._names, self._rounds = sums, names, 0
        before = [sums.get(name, _NONE) for name in names]
        self._totals = [total for total, _ in before]
        self._counts = [count for _, count in before]

    def _sum_figures(self) -> dict[str, tuple[float, int]]:
        """Return sum and number of the values of each figure."""
        column = zip(self._names, self._totals, self._counts, strict=True)
        return self._sums | {name: (total, count + self._rounds) for name, total, count in column}

    def add_sample(self, at: float, found: Values, width: float) -> ReducedHistory | None:
        """Add a sample.

        Args:
            at: Client clock of the sample.
            found: Its `kept_percentages`.
            width: Width of a slot in seconds.

        Returns:
            The finished slot, if `at` is in another one.
        """
        done = self.begin_slot(at, width)
        values: Collection[float | None] = found.values()
        if None in values:
            found = {name: value for name, value in found.items() if value is not None}
            values = found.values()
        names = tuple(found)
        # A card or a mount has come or gone.
        if names != self._names:
            self._begin_sums(self._sum_figures(), names)
        self._totals = list(map(add, self._totals, values))
        self._rounds += 1
        return done

    def begin_slot(self, at: float, width: float) -> ReducedHistory | None:
        """Make the slot of `at` the current one; return the finished slot if it changed."""
        if self.is_in_slot(at, width):
            return None
        done = self._finish_slot()
        self._place, self._width = math.floor(at / width), width
        self._begin_sums({})
        return done

    def is_in_slot(self, at: float, width: float) -> bool:
        """Return whether a time is in the current slot."""
        return math.floor(at / width) == self._place and width == self._width

    def add_all(self, other: SlotAccumulator) -> None:
        """Add the sums of `other`, a slot within this one."""
        sums = self._sum_figures()
        for name, (total, count) in other._sum_figures().items():
            before, counted = sums.get(name, _NONE)
            sums[name] = before + total, counted + count
        self._begin_sums(sums)

    def _finish_slot(self) -> ReducedHistory | None:
        sums = dict(islice(self._sum_figures().items(), HISTORY_GRID.names))
        if self._place is None or not sums:
            return None
        means = tuple(round_to_tenth(total / count) for total, count in sums.values())
        at = (self._place + 1) * self._width
        return ReducedHistory(names=tuple(sums), at=(at,), values=(means,), width=self._width)


_NONE = (0.0, 0)


class Stretches:
    """Adds up the samples of a box, each once.

    A wide slot is the sum of the narrow ones within it.
    """

    __slots__ = ("_narrow", "_wide")

    def __init__(self) -> None:
        self._narrow, self._wide = SlotAccumulator(), SlotAccumulator()

    def add_sample(
        self, at: float, found: Values, width: float
    ) -> tuple[ReducedHistory | None, ReducedHistory | None]:
        """Add a sample.

        Args:
            at: Client clock of the sample.
            found: Its `kept_percentages`.
            width: Width of a wide slot in seconds, one of `WIDTHS`.

        Returns:
            The narrow and the wide slot that are finished now.
        """
        if self._narrow.is_in_slot(at, HISTORY_GRID.recent_s):
            self._narrow.add_sample(at, found, HISTORY_GRID.recent_s)
            return None, None
        # Only finished narrow slots are added, so that no sample counts twice.
        self._wide.add_all(self._narrow)
        return self._narrow.add_sample(at, found, HISTORY_GRID.recent_s), self._wide.begin_slot(
            at, width
        )


def build_history_request(
    last: float | None, now: float, stretches: int = HISTORY_GRID.slots
) -> HistoryRequest | None:
    """Return the request to the recorder on connecting.

    Args:
        last: Client clock of the newest known sample; None = no sample yet.
        now: Client clock.
        stretches: Maximum number of rows.

    Returns:
        None when the gap is short enough to be filled sample by sample.
    """
    if last is None:
        gap = HISTORY_GRID.longest_s
    else:
        gap = now - last
    if gap <= HISTORY_GRID.long_gap_s:
        return None
    gap = min(gap, HISTORY_GRID.longest_s)
    width = _choose_width(gap, stretches)
    points = max(2, math.ceil(gap / width))
    return HistoryRequest(seconds=points * width, points=points)


def from_history(frame: RecordedHistory, skew: float) -> ReducedHistory:
    """Return the recorder's history on the client's clock.

    The recorder cuts its rows by a monotonic clock of the box, but stamps them with a clock that
    may jump. A row whose time does not fit its position gets the time of its position. Of more rows
    than a day has, the newest are kept.

    Args:
        frame: The frame.
        skew: Box clock minus client clock, seconds.
    """
    newest = next(
        (place for place in range(len(frame.rows) - 1, -1, -1) if frame.rows[place].count), None
    )
    # A box decides about these numbers; a width of 0 would make an endless grid.
    if newest is None or not NARROWEST <= frame.width <= WIDEST:
        return ReducedHistory()
    kept = []
    # A box may send any number of rows.
    first = max(0, len(frame.rows) - 1 - math.ceil(HISTORY_GRID.longest_s / frame.width))
    for place, row in enumerate(frame.rows[first:], first):
        by_place = frame.rows[newest].at + (place - newest) * frame.width
        if abs(row.at - by_place) <= 1.5 * frame.width:
            at = row.at
        else:
            at = by_place
        means = tuple(
            round_to_tenth(value[1]) if value is not None else None
            for value in row.values[: HISTORY_GRID.names]
        )
        fits = len(row.values) == len(frame.names) and EARLIEST < at - skew < LATEST
        if row.count and fits:
            kept.append((at - skew, means))
    return ReducedHistory(
        names=frame.names[: HISTORY_GRID.names],
        at=tuple(at for at, _ in kept),
        values=tuple(means for _, means in kept),
        width=frame.width,
    )


def without_cards(frame: RecordedHistory) -> RecordedHistory:
    """Return the frame without its figures of single cards.

    They take half a megabyte for a box with eight cards.
    """
    kept = [place for place, name in enumerate(frame.names) if not is_of_card(name)]
    if len(kept) == len(frame.names):
        return frame
    rows = tuple(
        msgspec.structs.replace(
            row,
            values=tuple(row.values[place] for place in kept)
            if len(row.values) == len(frame.names)
            else (),
        )
        for row in frame.rows
    )
    return msgspec.structs.replace(
        frame, names=tuple(frame.names[place] for place in kept), rows=rows
    )


def merge_history(
    old: ReducedHistory, new: ReducedHistory, stretches: int = HISTORY_GRID.slots
) -> ReducedHistory:
    """Return `old` with its gaps filled from `new`.

    Args:
        old: Known history; its values are kept.
        new: More history.
        stretches: Number of slots to keep; the slots become wider before there are more.
    """
    if not new.at:
        return old
    # The usual case: no grid must be filled.
    if len(new.at) == 1 and _continues_grid(old, new) and len(old.at) < stretches:
        return ReducedHistory(
            names=old.names, at=old.at + new.at, values=old.values + new.values, width=old.width
        )
    end = max(old.at[-1:] + new.at[-1:])
    names = tuple(dict.fromkeys((*old.names, *new.names)))[: HISTORY_GRID.names]
    # The width never shrinks again: the lost resolution cannot be recovered.
    if old.at:
        least = min(old.width, WIDTHS[-1])
    else:
        least = WIDTHS[0]
    for width in (width for width in WIDTHS if width >= least):
        known = _fill_grid(old, new, width)
        first = math.ceil((end - HISTORY_GRID.longest_s) / width)
        places = sorted(place for place in known if place >= first)
        if len(places) <= stretches:
            break
    places = places[-stretches:]
    return ReducedHistory(
        names=names,
        at=tuple((place + 1) * width for place in places),
        values=tuple(tuple(known[place].get(name) for name in names) for place in places),
        width=width,
    )


def append_slot(old: ReducedHistory, new: ReducedHistory, most: int) -> ReducedHistory:
    """Return `old` with the one slot of `new` appended, cut to the newest `most`.

    If the clock was set back, slots at or after the new one are dropped.
    """
    if not new.at:
        return old
    if set(new.names) <= set(old.names):
        names = old.names
    else:
        names = tuple(dict.fromkeys((*old.names, *new.names)))[: HISTORY_GRID.names]
    found = dict(zip(new.names, new.values[-1], strict=False))
    # Room for the new one.
    keep = [place for place, at in enumerate(old.at) if at < new.at[-1]][-(most - 1) :]
    return ReducedHistory(
        names=names,
        at=(*(old.at[place] for place in keep), new.at[-1]),
        values=(*(old.values[place] for place in keep), tuple(found.get(name) for name in names)),
        width=new.width,
    )


def unwatched(old: ReducedHistory, new: ReducedHistory, now: float) -> ReducedHistory:
    """Return the slots of `new` recorded only by the box's recorder: missing in `old`, not recent.

    Args:
        old: The history known before.
        new: The history known now.
        now: Client clock.
    """
    spans = [(at - old.width, at) for at in old.at]
    ends = [end for _, end in spans]
    kept = []
    for place, at in enumerate(new.at):
        # The middle decides, because slots of two widths overlap at their ends.
        middle = at - new.width / 2
        after = bisect_left(ends, middle)
        known = after < len(spans) and spans[after][0] <= middle
        if not known and at <= now - HISTORY_GRID.long_gap_s:
            kept.append(place)
    return new.only(kept)


def _fill_grid(old: ReducedHistory, new: ReducedHistory, width: float) -> dict[int, Values]:
    known = dict(_on_grid(new, width))
    for place, values in _on_grid(old, width):
        # Own values win: they were seen, the recorder's are means of a summary.
        known[place] = known.get(place, {}) | {
            name: v for name, v in values.items() if v is not None
        }
    return known


def _continues_grid(old: ReducedHistory, new: ReducedHistory) -> bool:
    if not old.at or old.width != new.width or old.names != new.names:
        return False
    return old.at[-1] < new.at[0] <= old.at[0] - old.width + HISTORY_GRID.longest_s


def _choose_width(seconds: float, stretches: int) -> float:
    return next((width for width in WIDTHS if seconds <= width * stretches), WIDTHS[-1])


def _on_grid(past: ReducedHistory, width: float) -> Iterator[tuple[int, Values]]:
    """Yield for each slot of the grid the means of overlapping slots, weighted by the overlap."""
    covered: dict[int, float] = {}
    sums: dict[int, dict[str, tuple[float, float]]] = {}
    for at, values in zip(past.at, past.values, strict=False):
        for place, seconds in _iterate_overlaps(at - past.width, at, width):
            covered[place] = covered.get(place, 0.0) + seconds
            into = sums.setdefault(place, {})
            for name, value in zip(past.names, values, strict=False):
                if value is not None:
                    total, weight = into.get(name, (0.0, 0.0))
                    into[name] = (total + value * seconds, weight + seconds)
    # A slot has a value if at least this share of it was covered.
    half = 0.5
    for place, seconds in covered.items():
        if seconds >= half * width - 1e-6:
            yield (
                place,
                {
                    name: round_to_tenth(total / weight)
                    for name, (total, weight) in sums[place].items()
                },
            )


def _iterate_overlaps(begin: float, end: float, width: float) -> Iterable[tuple[int, float]]:
    place = math.floor(begin / width)
    while place * width < end - 1e-6:
        seconds = min(end, (place + 1) * width) - max(begin, place * width)
        if seconds > 1e-6:
            yield place, seconds
        place += 1
