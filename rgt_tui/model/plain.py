"""Make text from a box safe to store and show, hide secret values from ``repr``, and format figures.

Also the base of all values.
"""

from __future__ import annotations

import math
import re
import time
from functools import cache, lru_cache
from operator import is_
from typing import (
    Annotated,
    Any,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from rgt_wire import memory_text, size_text

from rgt_tui.language import translate, translate_noun

T = TypeVar("T")


# The decorator is for type checkers, which would take the flag as that of one class.
@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class FrozenStruct(msgspec.Struct, frozen=True):
    """A value that does not change; msgspec decodes it and writes it as JSON."""


EXACT = msgspec.Meta(extra={"exact": True})
Exact = Annotated[str, EXACT]
"""A text that `clean_decoded` leaves as the box sent it, because it is compared or sent back: a path, a
name, a boot id. Screens and commands clean it when they print it. `is_exact_path` returns whether it equals
the displayed text."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC and their text
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI in one byte
    r"|[\x90\x98\x9d-\x9f][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
INVISIBLE = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    r"|[\ud800-\udfff]|[\U000e0000-\U000e0fff]"
)
"""Characters that a terminal interprets, or that change the direction of the text around them."""
_UNSEEN = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3]"
)
"""Letters and marks that fonts draw as nothing (Unicode's ``Default_Ignorable_Code_Point``, and a
blank of braille). They are part of normal text, for instance of emoji, and are shown; but a name
with one looks the same as a name without."""
_ESCAPED = re.compile(rb"\\[bfnrtu]")
"""JSON escapes of control characters; msgspec refuses unescaped ones."""


def clean_text(text: str) -> str:
    """Return `text` as one printable line.

    Escape sequences, control and direction characters are removed; tabs become spaces.
    """
    if text.isascii() and text.isprintable():
        return text
    # Maximum characters of a cached text. Names recur; log lines and counters hardly do: caching
    # 4,096 texts of any length made an idle dashboard grow for hours.
    longest_cached = 256
    if len(text) <= longest_cached:
        return _clean_cached(text)
    return _printable(text)


@lru_cache(maxsize=1024)
def _clean_cached(text: str) -> str:
    return _printable(text)


def _printable(text: str) -> str:
    tab_width = 4
    plain = INVISIBLE.sub("", _SEQUENCE.sub("", text)).expandtabs(tab_width)
    # Reuse the object, which may be stored in several places.
    if plain == text:
        return text
    return plain


def clean_decoded(value: T) -> T:
    """Return decoded data with every text cleaned, except struct fields declared as `Exact`.

    Raises:
        RecursionError: it is nested too deeply.
    """
    return cast("T", _clean_value(value))


def _clean_value(value: Any) -> Any:
    """Return the cleaned value; the same object if nothing changes.

    That is for speed: every sample of hundreds of boxes may pass through here.
    """
    kind: Any = type(value)
    if kind is str:
        return clean_text(value)
    if kind is tuple or kind is list:
        items = list(map(_clean_value, value))
        if all(map(is_, items, value)):
            return value
        return kind(items)
    if isinstance(value, msgspec.Struct):
        changed = {}
        for name in _cleaned_fields(kind):
            before = getattr(value, name)
            # Most fields of a frame are None or empty.
            if before and (after := _clean_value(before)) is not before:
                changed[name] = after
        if changed:
            return msgspec.structs.replace(value, **changed)
        return value
    if kind is dict:
        return {_clean_value(key): _clean_value(item) for key, item in value.items()}
    return value


@cache
def _cleaned_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(name for name in kind.__struct_fields__ if _holds_text(hints[name]))


def _holds_text(hint: Any) -> bool:
    """Return whether a field can contain a text that is not exact."""
    parts = get_args(hint)
    if get_origin(hint) is Annotated:
        return not any(meta.extra == EXACT.extra for meta in hint.__metadata__) and _holds_text(
            parts[0]
        )
    if parts:
        return any(map(_holds_text, parts))
    return hint not in (int, float, bool, type(None), ...)


def is_plain_json(line: bytes) -> bool:
    """Return whether no text of a JSON line can need cleaning. A false negative only costs time."""
    return line.isascii() and 0x7F not in line and (0x5C not in line or not _ESCAPED.search(line))


def short_command(cmd: str) -> str:
    """Return a command line with its program's directory removed."""
    program, _, rest = clean_text(cmd).partition(" ")
    return f"{program.rsplit('/', 1)[-1] or program} {rest}".rstrip()


def is_exact_path(path: str) -> bool:
    """Return whether a path sent by a box is, byte for byte, the one displayed.

    A name changed by `clean_text` would be shown, copied and run as another name. The agent sends
    invalid UTF-8 as ``?`` or U+FFFD, which may mean any byte.
    """
    if path.isascii():
        return path.isprintable() and "?" not in path
    seen = path.isprintable() and not _UNSEEN.search(path)
    return seen and clean_text(path) == path and not set(path) & {"?", "\ufffd"}


class Secret:
    """A key, address or token that appears in no repr, traceback, log or pickle."""

    __slots__ = ("_value", "place")

    def __init__(self, value: str, place: str = "") -> None:
        self._value = value
        self.place = place
        """Where it was found, for messages."""

    def reveal(self) -> str:
        """Return the value. Use only where it is sent."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")


# Percentages, sizes, counts and times, formatted the same everywhere.


UNKNOWN = "?"


def pct(value: float | None, *, none: str = UNKNOWN) -> str:
    """Format a percentage, ``63%``, rounded down; a small positive value is ``<1%``.

    So no limit appears reached before it is, and no small value appears as zero.

    Args:
        value: In percent.
        none: Text for an unknown value.
    """
    if value is None or not math.isfinite(value):
        return none
    if 0 < value < 1:
        return "<1%"
    return f"{math.floor(value + 1e-9)}%"


def size(count: float | None, *, none: str = UNKNOWN) -> str:
    """Format bytes on a disk or in transfer, e.g. ``38.2 GB``: powers of 1,000."""
    if count is None or not math.isfinite(count):
        return none
    return size_text(count)


def memory(count: float | None, *, none: str = UNKNOWN) -> str:
    """Format bytes of memory, e.g. ``62.0 GiB``: powers of 1,024."""
    if count is None or not math.isfinite(count):
        return none
    return memory_text(count)


def noun(count: int, one: str, many: str = "") -> str:
    """Return the singular or plural of a noun; `many` for an irregular plural."""
    if count == 1:
        return one
    return many or one + "s"


def how_many(count: int, one: str, many: str = "") -> str:
    """Return e.g. ``1 cell``, ``2,310 cells``, with the noun in the person's language."""
    return f"{count:,} {translate_noun(noun(count, one, many))}"


def moment(at: float) -> str:
    """Format a time by the local clock, ``2026-11-24 14:02:11``; an invalid time as a number."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def time_of_day(at: float, now: float | None = None) -> str:
    """Format a time briefly: ``14:02``, with the date before it unless it is today.

    Args:
        at: A time; an invalid one is returned as a number.
        now: The time that defines "today"; None = the clock.
    """
    try:
        then = time.localtime(at)
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"
    today = time.localtime(now)
    return time.strftime("%H:%M" if then[:3] == today[:3] else "%Y-%m-%d %H:%M", then)


def parse_seconds(text: str) -> float:
    """Return the seconds of a duration such as ``90s``, ``30m``, ``2h``, ``1d``, ``1h30``.

    A bare number is seconds.

    Raises:
        ValueError: It is not a duration.
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    unit = units.get(text[-1:], 1.0)
    number = text
    if text[-1:] in units:
        number = text[:-1]
    # float() also reads 1.5h, which the pattern of parts does not.
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not seconds:
        # 1h30 means 1h30m; a bare number without hours before it stays seconds.
        if re.fullmatch(r".*h\d+", text, re.ASCII):
            text = f"{text}m"
        parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", text, re.ASCII)
        if parts is not None:
            sizes = (86400, 3600, 60, 1)
            seconds = sum(
                float(part) * size for part, size in zip(parts.groups("0"), sizes, strict=True)
            )
    # 115 days: longer ones are typing errors, and nan and inf fail the comparison, too.
    longest_s = 1e7
    if not 0 < seconds < longest_s:
        raise ValueError(
            translate("{words!r} is not a time such as 90s, 30m, 2h, 1h30 or 1d", words=text)
        )
    return seconds
