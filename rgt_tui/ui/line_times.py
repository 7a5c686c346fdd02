"""When a log line was written: by its own timestamp, or else by its arrival."""

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
# tqdm writes `elapsed<remaining`, which is no time of day.
_CLOCK = re.compile(r"[\[(]?" + _TIME + r"(?!<)")
# glog writes no year, so only its time of day is used.
_GLOG = re.compile(r"[IWEF](?P<mo>0[1-9]|1[0-2])(?P<d>0[1-9]|[12]\d|3[01]) " + _TIME)
DAY = 86400.0
QUARTER = 900.0
EARLY = 3600.0 + QUARTER
"""Seconds by which a line may seem to be written after its arrival: clocks are set back an hour at
the end of summer, and differ slightly."""


def written_before(of_day: float, behind: float) -> float | None:
    """Return when a line with only a time of day was written, given the time of the next line.

    Args:
        of_day: Seconds since midnight of an unknown day, by our clock.
        behind: When the next line was written (client clock).

    Returns:
        None if its day is uncertain.
    """
    apart = (behind - of_day) % DAY
    # Seconds by which a line may precede an older one if several processes write.
    out_of_order = 2.0
    if apart > DAY - out_of_order:
        apart = apart - DAY
    # Maximum seconds between two lines that have only a time of day. After a longer pause it is
    # unknown whether another day has passed.
    most_apart = 3600.0
    if apart <= most_apart:
        return behind - apart
    return None


class WrittenTime(NamedTuple):
    """A time as written in a line."""

    clock: str
    """``02:31:07``, as in the line."""
    seconds: float
    """Interpreted as UTC: since the epoch, or since midnight if the line has no date."""
    dated: bool
    zone: float | None
    """UTC offset in seconds, if the line has one."""


def read_written_time(line: str) -> WrittenTime | None:
    """Return the time in a line, None if it has none."""
    # Characters at the start of a line in which its time is searched.
    beginning = 100
    head = line[:beginning]
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
    fraction = 0.0
    if parts.get("f"):
        fraction = float(f"0.{parts['f']}")
    if clock:
        return WrittenTime(shown, of_day + fraction, False, None)
    days = calendar.timegm((int(parts["y"]), int(parts["mo"]), int(parts["d"]), 0, 0, 0))
    return WrittenTime(shown, days + of_day + fraction, True, _parse_zone(parts["z"]))


def _parse_zone(text: str | None) -> float | None:
    if not text:
        return None
    if text == "Z":
        return 0.0
    hours, minutes = int(text[1:3]), int(text[-2:])
    return (-1 if text[0] == "-" else 1) * (hours * 3600.0 + minutes * 60.0)


class WrittenZone:
    """Learns the UTC offset of a log's times from lines that arrived when they were written."""

    def __init__(self) -> None:
        self._learned: float | None = None
        self.assumed: float | None = None
        """Used until the offset is learned: the box's own zone; None = unknown."""

    @property
    def utc_offset(self) -> float | None:
        """UTC offset in seconds, including the box's clock error, rounded to 15 minutes.

        None = unknown.
        """
        if self._learned is None:
            return self.assumed
        return self._learned

    def learn_from(self, line: str, came: float | None) -> None:
        """Learn from a line that has just arrived."""
        if came is not None:
            found = read_written_time(line)
        else:
            found = None
        if found is None or came is None or found.zone is not None:
            return
        apart = found.seconds - came
        if not found.dated:
            # Without a date, whole days cannot be part of the offset.
            apart = (apart + DAY / 2) % DAY - DAY / 2
        self._learned = round(apart / QUARTER) * QUARTER

    def time_of_line(
        self, line: str, came: float | None, otherwise: float | None = None
    ) -> float | None:
        """Return when a line was written (client clock), None if unknown.

        Args:
            line: The line.
            came: When it arrived.
            otherwise: The UTC offset to use if it is unknown.
        """
        found = read_written_time(line)
        if found is None:
            return came
        zone = found.zone
        if zone is None:
            zone = self.utc_offset
        if zone is None:
            zone = otherwise
        if zone is None:
            return came
        if found.dated:
            return found.seconds - zone
        if came is None:
            return None
        # Not after its arrival: the lines of a night without a connection arrive late.
        return (
            found.seconds - zone + DAY * math.floor((came + EARLY - (found.seconds - zone)) / DAY)
        )
