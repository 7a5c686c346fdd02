"""When a line of a log was written: by its own timestamp, or else by when it arrived."""

from __future__ import annotations

import calendar
import math
import re
from typing import NamedTuple

_TIME = r"(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)(?:[.,](?P<f>\d{1,9}))?(?![\d:])"
_STAMP = re.compile(
    r"(?P<y>20\d\d)[-/](?P<mo>0[1-9]|1[0-2])[-/](?P<d>0[1-9]|[12]\d|3[01])[T ]"
    + _TIME
    + r"\s?(?P<z>Z|[+-]\d\d:?\d\d)?"
)
_CLOCK = re.compile(r"[\[(]?" + _TIME + r"(?!<)")
_GLOG = re.compile(r"[IWEF](?P<mo>0[1-9]|1[0-2])(?P<d>0[1-9]|[12]\d|3[01]) " + _TIME)
BEGINNING = 100
"""Characters of a line in which its time is looked for."""
DAY = 86400.0
QUARTER = 900.0
EARLY = 3600.0 + QUARTER
"""Seconds by which a line may seem to be written after it came: its clocks were set back an hour at the end of summer,
and differ a little."""


MOST_APART = 3600.0
"""Seconds between two lines with a time of day alone that are taken to be less than a day apart: of a longer rest
nobody can tell whether it took a day more."""
OUT_OF_ORDER = 2.0
"""Seconds by which a line may stand before an older one, where several processes write."""


def written_before(of_day: float, behind: float) -> float | None:
    """Return when a line with a time of day was written that stands before one of a known time.

    Args:
        of_day: Seconds since some midnight, by our clock.
        behind: When the line behind it was written (client clock).

    Returns:
        None = it cannot be told of which day it is.
    """
    apart = (behind - of_day) % DAY
    apart = apart - DAY if apart > DAY - OUT_OF_ORDER else apart
    if apart <= MOST_APART:
        return behind - apart
    return None


class Written(NamedTuple):
    """A time as a line has it."""

    clock: str
    """``02:31:07``, as it stands there."""
    seconds: float
    """As if it were UTC: since the epoch, or since midnight where the line has no date."""
    dated: bool
    zone: float | None
    """Seconds east of UTC, where the line says so."""


def written(line: str) -> Written | None:
    """Return the time that a line has; None where it has none."""
    head = line[:BEGINNING]
    if ":" not in head:
        return None
    match = _STAMP.search(head)
    clock = match is None
    if match is None:
        match = _CLOCK.match(head) or _GLOG.match(head)
        if match is None:
            return None
    parts = match.groupdict()
    of_day = int(parts["h"]) * 3600 + int(parts["m"]) * 60 + int(parts["s"])
    shown = f"{parts['h']}:{parts['m']}:{parts['s']}"
    fraction = float(f"0.{parts['f']}") if parts.get("f") else 0.0
    if clock:
        return Written(shown, of_day + fraction, False, None)
    days = calendar.timegm((int(parts["y"]), int(parts["mo"]), int(parts["d"]), 0, 0, 0))
    return Written(shown, days + of_day + fraction, True, _zone(parts["z"]))


def _zone(text: str | None) -> float | None:
    if not text:
        return None
    if text == "Z":
        return 0.0
    hours, minutes = int(text[1:3]), int(text[-2:])
    return (-1 if text[0] == "-" else 1) * (hours * 3600.0 + minutes * 60.0)


class WrittenZone:
    """Learns how far the times in a log's lines are from ours, by lines that came as they were written."""

    def __init__(self) -> None:
        self._learned: float | None = None
        self.assumed: float | None = None
        """What holds until it is learned: the box's own zone; None = the box does not tell it."""

    @property
    def seconds(self) -> float | None:
        """East of UTC, the box's clock error included to a quarter of an hour; None = not known yet."""
        if self._learned is None:
            return self.assumed
        return self._learned

    def learn(self, line: str, came: float | None) -> None:
        """Take in a line that came just now."""
        found = written(line) if came is not None else None
        if found is None or came is None or found.zone is not None:
            return
        apart = found.seconds - came
        if not found.dated:
            apart = (apart + DAY / 2) % DAY - DAY / 2
        self._learned = round(apart / QUARTER) * QUARTER

    def when(self, line: str, came: float | None, otherwise: float | None = None) -> float | None:
        """Return when a line was written (client clock); None where nobody knows.

        Args:
            line: The line.
            came: When it came.
            otherwise: The zone where it is not known.
        """
        found = written(line)
        if found is None:
            return came
        zone = (
            found.zone
            if found.zone is not None
            else self.seconds
            if self.seconds is not None
            else otherwise
        )
        if zone is None:
            return came
        if found.dated:
            return found.seconds - zone
        if came is None:
            return None
        # Not after it came: lines of a night without a connection come late.
        return (
            found.seconds - zone + DAY * math.floor((came + EARLY - (found.seconds - zone)) / DAY)
        )
