"""Formats numbers, times, money and texts, in characters that the terminal can show."""

from __future__ import annotations

import locale
import math
import os
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from rgt_tui import model
from rgt_tui.model import MoneyAmount, clean_text, format_duration, format_money

NONE = "–"
"""Shown for a value that was not reported. Never zero."""

MINUTE, HOUR, DAY = 60, 3600, 86400


def compact_time(seconds: float | None) -> str:
    """Return a duration, ``0s 42s 2m14 3h07 14d 6h``; a dash if it is unknown."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    return format_duration(seconds)


def narrow_time(seconds: float | None, width: int = 6) -> str:
    """Return `compact_time`, without the hours after the days if they do not fit."""
    text = compact_time(seconds)
    if len(text) > width:
        return text.partition(" ")[0]
    return text


def format_position_time(seconds: float) -> str:
    """Return a position in a recording: ``12:04``, ``1:30:00``."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, HOUR)
    if hours:
        return f"{hours}:{rest // MINUTE:02d}:{rest % MINUTE:02d}"
    return f"{rest // MINUTE}:{rest % MINUTE:02d}"


def clock_or_dash(at: float | None) -> str:
    """Return the local time of day, ``14:02:11``."""
    if at is None:
        return NONE
    import time

    return time.strftime("%H:%M:%S", time.localtime(at))


def percent_or_dash(value: float | None) -> str:
    """Return a percentage in at most four characters, as in alerts and findings."""
    return model.pct(value, none=NONE)


def size_or_dash(count: float | None) -> str:
    """Return a size in bytes for disks and transfers, ``38.2 GB``."""
    return model.size(count, none=NONE)


def memory_or_dash(count: float | None) -> str:
    """Return a size in bytes for memory, ``62.0 GiB``."""
    return model.memory(count, none=NONE)


def gib_or_dash(count: float | None) -> str:
    """Return bytes of memory as a bare number of GiB, for several values that share a unit."""
    if count is None:
        return NONE
    value = count / (1 << 30)
    # More would be rounded to 100.0, which is a character wider.
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}"


def gib_of(used: float | None, total: float | None) -> tuple[str, str]:
    """Return used and total memory, the total with the unit: ``16.9`` and ``/24 GiB``."""
    return gib_or_dash(used), f"/{gib_or_dash(total).removesuffix('.0')} GiB"


def format_thousands(count: float | None) -> str:
    """Return a whole number with separators: ``9,120``."""
    if count is None or not math.isfinite(count):
        return NONE
    return f"{count:,.0f}"


def number_or_dash(value: float | None, digits: int = 3) -> str:
    """Return a measured value (a loss) with a fixed number of decimals.

    NaN and infinity by name.
    """
    if value is None:
        return NONE
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        if value > 0:
            return "inf"
        return "-inf"
    # With fixed decimals, these would be shown as 0.000, or with digits that mean nothing.
    if value != 0 and (abs(value) >= 10_000 or abs(value) < 10**-digits):
        # Python writes at least two digits of the exponent.
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+")
    return f"{value:.{digits}f}"


def money_or_dash(
    value: float | None, currency: str = "USD", at_least: bool = False, *, estimated: bool = False
) -> str:
    """Return an amount with its currency: ``$1.11``, ``7.00 PLN``, ``<$0.01``, ``≥ $0.50``."""
    return format_money(value, currency, at_least, estimated=estimated, none=NONE)


def amount_or_dash(amount: MoneyAmount | None) -> str:
    """Return an amount with its currency and bound; a dash if it is unknown, never zero."""
    if amount is None:
        return NONE
    return money_or_dash(amount.value, amount.currency, amount.at_least, estimated=amount.estimated)


class GlyphSet(NamedTuple):
    """A set of characters."""

    name: str
    ok: str = "●"
    idle: str = "◇"
    warn: str = "▲"
    trouble: str = "✖"
    stale: str = "◌"
    unreachable: str = "⊘"
    paused: str = "‖"
    limited: str = "◐"
    gone: str = "∅"
    stopped: str = "○"
    finished: str = "◆"
    unknown: str = "·"
    check: str = "✔"
    person: str = "?"
    closed: str = "▸"
    opened: str = "▾"
    rising: str = "▴"
    arrow: str = "→"
    crumb: str = "›"
    back: str = "‹"
    dot: str = "·"
    dash: str = "–"
    ellipsis: str = "…"
    limit: str = "│"
    cursor: str = "▌"
    more: str = "▼"
    """Marks that there is more below."""
    margin: str = "◀"
    """Precedes a remark about the line."""
    bar: str = " ▏▎▍▌▋▊▉█"
    """From empty to full, one character per eighth."""
    bar_rest: str = "·"
    thin: str = "━╸"
    """A bar with space to the rows above and below: a full cell and half of one."""
    spark: str = "▁▂▃▄▅▆▇█"
    braille: bool = True
    frame: str = "╭─╮│╯╰├┤"
    """Top left, horizontal, top right, vertical, bottom right, bottom left, left tee, right tee."""
    at_least: str = "≥"
    at_most: str = "≤"
    degree: str = "°"
    times: str = "×"
    power: str = "⏻"
    earlier: str = "◀"
    later: str = "▶"


UNICODE = GlyphSet("unicode")
ASCII = GlyphSet(
    "ascii",
    ok="*",
    idle="o",
    warn="!",
    trouble="X",
    stale="~",
    unreachable="/",
    paused="=",
    limited="%",
    gone="_",
    stopped="-",
    finished="#",
    unknown=".",
    check="+",
    closed=">",
    opened="v",
    rising="^",
    arrow="->",
    crumb=">",
    back="<",
    dot=".",
    dash="-",
    ellipsis="..",
    limit="|",
    cursor=">",
    more="v",
    margin="<",
    bar="    #####",
    bar_rest=".",
    thin="= ",
    spark="_.,-=+*#",
    braille=False,
    frame="+-+|++++",
    at_least=">=",
    at_most="<=",
    degree="",
    times="x",
    power="@",
    earlier="<",
    later=">",
)

# For texts written with these characters instead of `current_glyphs`.
_TO_ASCII = str.maketrans(
    {
        "–": "-", "—": "-", "…": "..", "·": ".", "→": "->", "›": ">", "‹": "<", "×": "x", "°": "",
        "¥": "Y", "€": "E", "£": "L",
        "≥": ">=", "≤": "<=", "●": "*", "▲": "!", "✖": "X", "◌": "~", "○": "-", "◆": "#", "✔": "+",
        "⊘": "/", "‖": "=", "◐": "%", "∅": "_", "▾": "v", "▴": "^",
        "↑": "up", "↓": "down", "←": "left", "▏": "|",
    }
)  # fmt: skip


POOR = frozenset({"dumb", "linux"})
"""TERM of terminals that lack our characters: the Linux console has at most 512, and no braille."""


def choose_glyphs(environ: Mapping[str, str], encoding: str) -> GlyphSet:
    """Return the character set for a terminal.

    ``RGT_ASCII=1`` selects ASCII, ``0`` Unicode; else a poor or non-UTF-8 terminal gets ASCII.
    """
    wish = environ.get("RGT_ASCII", "")
    if wish:
        if wish == "0":
            return UNICODE
        return ASCII
    # Python and locales spell it UTF-8, utf8 or utf_8.
    utf8 = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    if utf8 and environ.get("TERM") not in POOR:
        return UNICODE
    return ASCII


@cache
def current_glyphs() -> GlyphSet:
    """Return the character set of this process, chosen once."""
    # False: does not change the locale of the process.
    return choose_glyphs(os.environ, locale.getpreferredencoding(False))


def make_displayable(text: str) -> str:
    """Return `text` cleaned, and in ASCII if this process draws in ASCII."""
    text = clean_text(text)
    if current_glyphs() is UNICODE or text.isascii():
        return text
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")
