"""Quiet hours: a stretch of the local day, which may go over midnight."""

from __future__ import annotations

import re

_TIMES = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)\s*-\s*([01]?\d|2[0-3]):([0-5]\d)")
DAY = 24 * 60


def window(text: str) -> tuple[int, int] | None:
    """Return ``22:00-07:00`` as minutes of the day (1320, 420); None when it is no such stretch."""
    match = _TIMES.fullmatch(text.strip())
    if match is None:
        return None
    hours = [int(part) for part in match.groups()]
    start, end = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
    return (start, end) if start != end else None


def minutes_left(text: str | None, minute: int) -> int:
    """Return for how many minutes the quiet goes on at `minute` of the local day; 0 = it is not quiet."""
    found = window(text) if text is not None else None
    if found is None:
        return 0
    start, end = found
    inside = start <= minute < end if start < end else minute >= start or minute < end
    return (end - minute) % DAY if inside else 0
