"""Parse times as people write them (``02:30``, ``-3h``); find when the night began.

Pure functions.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from rgt_tui.language import translate

LONGEST_SECONDS = 7 * 86400.0
"""A report reaches no further back, unless requested."""
FORMS = "02:30, yesterday 14:00, 2026-11-21 14:00, 3 days ago, -3h or now"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_BACK = re.compile(
    r"-?\s*(?:(\d+)\s*d(?:ays?)?)?\s*(?:(\d+)\s*h(?:ours?)?)?\s*(?:(\d+)\s*m(?:in(?:utes?)?)?)?(?:\s+ago)?"
)


def parse_past_time(text: str, now: float) -> float:
    """Parse a past time by the local clock; return epoch seconds.

    A time of day alone is its last occurrence: ``02:30`` at 01:00 is yesterday's.

    Raises:
        ValueError: it has none of the forms; the message lists them.
    """
    words = text.strip().casefold()
    if words in ("now", ""):
        if words:
            return now
        raise ValueError(translate("give a time, such as {forms}", forms=FORMS))
    back = _BACK.fullmatch(words)
    if back is not None and any(back.groups()):
        days, hours, minutes = (int(part or 0) for part in back.groups())
        return now - (86400.0 * days + 3600.0 * hours + 60.0 * minutes)
    here = local_time(now)
    try:
        return _parse_dated(words, here).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            translate("{words!r} is not a time; give one such as {forms}", words=text, forms=FORMS)
        ) from None


COMING = "07:00, tomorrow 07:00, 2026-11-21 07:00, 30m or 2h"


def coming_time(text: str, now: float) -> float:
    """Parse a future time by the local clock; return epoch seconds.

    A time of day alone is its next occurrence: ``07:00`` at 23:00 is tomorrow's.

    Raises:
        ValueError: it has none of the forms, or is past; the message lists them.
    """
    words, here = text.strip().casefold(), local_time(now)
    span = _BACK.fullmatch(words)
    if span is not None and any(span.groups()) and words[0].isdigit() and not words.endswith("ago"):
        days, hours, minutes = (int(part or 0) for part in span.groups())
        return now + 86400.0 * days + 3600.0 * hours + 60.0 * minutes
    first, _, rest = words.partition(" ")
    try:
        if first == "tomorrow":
            found = _at_clock_time(here + timedelta(days=1), rest.strip() or "00:00")
        elif _CLOCK.fullmatch(words):
            found = _at_clock_time(here, words)
            if found <= here:
                found = _at_clock_time(here + timedelta(days=1), words)
        else:
            found = _parse_dated(words, here)
        at = found.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            translate("{words!r} is not a time; give one such as {forms}", words=text, forms=COMING)
        ) from None
    if at <= now:
        raise ValueError(
            translate(
                "{words!r} is not after {now}; give a time such as {forms}",
                words=text,
                now=day_and_clock(now, now),
                forms=COMING,
            )
        )
    return at


def _parse_dated(words: str, here: datetime) -> datetime:
    first, _, rest = (
        words.replace("t", " ", 1).partition(" ") if _DATE.match(words) else words.partition(" ")
    )
    date = _DATE.fullmatch(first)
    if date is not None:
        year, month, number = (int(part) for part in date.groups())
        return _at_clock_time(
            here.replace(year=year, month=month, day=number), rest.strip() or "00:00"
        )
    if first in ("yesterday", "today"):
        day = here - timedelta(days=first == "yesterday")
        return _at_clock_time(day, rest.strip() or "00:00")
    found = _at_clock_time(here, words)
    if found <= here:
        return found
    return _at_clock_time(here - timedelta(days=1), words)


def local_time(at: float) -> datetime:
    """Return a local time without its zone, because another day may have another UTC offset."""
    return datetime.fromtimestamp(at).astimezone().replace(tzinfo=None)


def _at_clock_time(day: datetime, words: str) -> datetime:
    clock = _CLOCK.fullmatch(words)
    if clock is None:
        raise ValueError(words)
    hour, minute, second = (int(part or 0) for part in clock.groups())
    return day.replace(hour=hour, minute=minute, second=second, microsecond=0)


def night_began(now: float, looked: float | None = None) -> float:
    """Return since when a person has not seen the events.

    That is 23:00, or when they last looked, if that was earlier.

    Args:
        now: Client clock.
        looked: When a person last looked; None = unknown.
    """
    here = local_time(now)
    night_hour = 23
    evening = here.replace(hour=night_hour, minute=0, second=0, microsecond=0)
    if evening > here:
        evening -= timedelta(days=1)
    began = evening.timestamp()
    if looked is None:
        return began
    return max(min(began, looked), now - LONGEST_SECONDS)


def day_and_clock(at: float, now: float) -> str:
    """Format a past time: ``02:31`` within the last day, otherwise with its date."""
    then = local_time(at)
    near = abs(now - at) < 86400.0
    return then.strftime("%H:%M" if near else "%Y-%m-%d %H:%M")


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def night_or_day(at: float, now: float) -> str:
    """Return the part of the day of a time.

    That is ``today``, ``last night``, ``yesterday``, ``on Friday`` or ``on 2026-11-21``.
    """
    then, here = local_time(at), local_time(now)
    days = (here.date() - then.date()).days
    if days == 0:
        if then.hour < 6 <= here.hour:
            return translate("last night")
        return translate("today")
    if days == 1:
        if then.hour >= 22 and here.hour < 18:
            return translate("last night")
        return translate("yesterday")
    if 1 < days < 7:
        return translate("on {day}", day=translate(WEEKDAYS[then.weekday()]))
    return translate("on {day}", day=then.date().isoformat())
