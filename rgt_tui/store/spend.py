"""What a box costs, minute by minute, so that no second is counted twice, whoever watches. Pure.

A minute knows which of its 60 seconds somebody watched (a bit each), so what two rgts saw of it adds up to what was
seen, and seeing it twice changes nothing. Time that nobody watched counts only where the provider's own sum before and
after it says what it cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

MINUTE = 60
DAY = 86400.0
GAP_SECONDS = 90.0
"""Less unwatched time than this between two readings of the provider's sum is not looked into."""
SAME_SECONDS = 1.0
"""Two readings belong to one sum when they begin at the same time, as near as this."""


class Minute(msgspec.Struct, frozen=True):
    """One minute of one box in one currency."""

    minute: int
    """Since the epoch."""
    currency: str
    rate: float = 0.0
    """Price of an hour; the highest that was read within the minute."""
    covered: int = 0
    """Seconds for which somebody knew that price to be charged, a bit each, the first is bit 0."""
    idle: int = 0
    """Of these: somebody saw that no run was alive."""
    busy: int = 0
    """Somebody saw that one was; this overrules `idle`."""
    spent: float | None = None
    """The provider's own sum, if it was read within the minute: the last reading."""
    since: float | None = None
    at: float | None = None
    """When `spent` was read."""
    gap: float = 0.0
    """What unwatched time before `at` cost, by the provider's sums on both sides."""
    gap_from: float = 0.0
    """When that time began."""

    @property
    def seconds(self) -> int:
        """Seconds that were watched."""
        return self.covered.bit_count()

    @property
    def billed(self) -> float:
        """What the watched seconds cost."""
        return self.rate * self.covered.bit_count() / 3600.0

    @property
    def idle_billed(self) -> float:
        """Of that, while no run was alive."""
        return self.rate * (self.covered & self.idle & ~self.busy).bit_count() / 3600.0


def masks(start: float, stop: float) -> Iterator[tuple[int, int]]:
    """Yield (minute, mask) of the whole seconds from `start` to `stop`."""
    first, last = int(start), int(stop)
    while first < last:
        minute = first // MINUTE
        end = min(last, (minute + 1) * MINUTE)
        yield minute, ((1 << (end - first)) - 1) << (first - minute * MINUTE)
        first = end


def merged(one: Minute | None, other: Minute) -> Minute:
    """Return what two watchers know together of the same minute; the order does not matter."""
    if one is None:
        return other
    later = max(one, other, key=lambda each: (each.at is not None, each.at or 0.0, each.spent or 0.0))
    gap = max(one, other, key=lambda each: (each.gap, each.gap_from))
    return Minute(
        minute=one.minute,
        currency=one.currency,
        rate=max(one.rate, other.rate),
        covered=one.covered | other.covered,
        idle=one.idle | other.idle,
        busy=one.busy | other.busy,
        spent=later.spent,
        since=later.since,
        at=later.at,
        gap=gap.gap,
        gap_from=gap.gap_from,
    )


class Since(msgspec.Struct, frozen=True):
    """From where a reading of the provider's sum is looked back at."""

    start: float
    """Everything before this is accounted for already."""
    base: float
    """When the sum stood at `before`; not later than `start`."""
    before: float


def looking_back(new: Minute, last: Minute | None, same: Minute | None) -> Since | None:
    """Return from where a reading says something new; None where it says nothing.

    Args:
        new: A minute with a reading.
        last: The last one before it with a reading of any sum (a provider may have two: its books, and an estimate).
        same: The last one before it with a reading of this very sum.
    """
    if new.since is None:
        return None
    if same is not None and same.at is not None and same.spent is not None:
        start = same.at if last is None or last.at is None else max(same.at, last.at)
        return Since(start, same.at, same.spent)
    if last is None or last.at is None or new.since >= last.at:
        return Since(new.since, new.since, 0.0)
    return None


def with_gap(new: Minute, back: Since | None, rows: Iterable[Minute]) -> Minute:
    """Return `new` with what the time before its reading cost, as far as nobody watched.

    Args:
        new: A minute with a reading of the provider's sum.
        back: From where it is looked back at.
        rows: The minutes from ``back.base`` up to `new`, which is the last.
    """
    none = msgspec.structs.replace(new, gap=0.0, gap_from=0.0)
    if back is None or new.spent is None or new.at is None:
        return none
    left, amount = new.at - back.start, new.spent - back.before
    for row in rows:
        amount -= _within(row, back.base, new.at)[1]
        left -= _within(row, back.start, new.at)[0]
        if row.minute != new.minute and row.at is not None:
            amount -= gap_share(row.gap, row.gap_from, row.at, back.base, new.at)
    if left < GAP_SECONDS or amount <= 0:
        return none
    return msgspec.structs.replace(new, gap=amount, gap_from=back.start)


def _within(minute: Minute, start: float, stop: float) -> tuple[int, float]:
    """Return how many seconds of a minute were watched between two times, and what they cost."""
    wanted = 0
    for number, mask in masks(max(start, minute.minute * MINUTE), min(stop, (minute.minute + 1) * MINUTE)):
        wanted |= mask if number == minute.minute else 0
    seconds = (minute.covered & wanted).bit_count()
    return seconds, minute.rate * seconds / 3600.0


def gap_share(gap: float, gap_from: float, gap_to: float, start: float, stop: float) -> float:
    """Return the part of a gap's cost that falls between `start` and `stop`, as if it had cost the same all along."""
    if gap <= 0 or gap_to <= gap_from:
        return 0.0
    overlap = min(gap_to, stop) - max(gap_from, start)
    return gap * max(0.0, overlap) / (gap_to - gap_from)
