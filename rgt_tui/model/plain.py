"""Make text from a box safe to store and show, and hide secret values from ``repr``.

Also the base of all values.
"""

from __future__ import annotations

import re
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

T = TypeVar("T")


# The decorator is for type checkers, which would take the flag as that of one class.
@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class FrozenStruct(msgspec.Struct, frozen=True):
    """A value that does not change; msgspec decodes it and writes it as JSON."""


EXACT = msgspec.Meta(extra={"exact": True})
Exact = Annotated[str, EXACT]
"""A text that `clean_decoded` leaves as the box sent it, because it is compared or sent back: a
path, a name, a boot id. Screens and commands clean it when they print it. `is_exact_path` returns
whether it equals the displayed text."""

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
