"""Format figures for people: percentages, sizes, counts, durations, times, money and names."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable

from rgt_wire import memory_text, size_text

from rgt_tui.language import count_nouns, translate
from rgt_tui.model.plain import clean_text
from rgt_tui.model.renting import MoneyAmount

UNKNOWN = "?"
LEAST = "≥ "
# Others are written with their code: "$" could be any dollar.
SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "CNY": "¥", "JPY": "¥"}


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
    return count_nouns(f"{count:,}", noun(count, one, many))


_WIDE_RANGES = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff60\uffe0-\uffe6"
)
_WIDE = re.compile(f"[{_WIDE_RANGES}]")
"""A letter that takes two cells of a terminal."""

NO_LINE_START = "，。、；：！？）】》〉」』〕％…”’"
NO_LINE_END = "（【《〈「『〔“‘"
"""Punctuation that no line of Chinese starts or ends with (https://www.w3.org/TR/clreq/)."""

_UNIT = re.compile(
    f"[{NO_LINE_END}]*(?:[{_WIDE_RANGES}]|[^{_WIDE_RANGES}{NO_LINE_END}]+)[{NO_LINE_START}]*"
    f"|[{NO_LINE_END}]+"
)


def split_units(word: str) -> list[str]:
    """Return the parts of a word between which a line may break.

    A line may break between two Chinese characters, but not next to punctuation that belongs to
    one of them.
    """
    if word.isascii():
        return [word]
    return _UNIT.findall(word)


def count_cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    return len(text) + len(_WIDE.findall(text))


def pad_cells(text: str, width: int) -> str:
    """Return a text with blanks up to a width in cells."""
    return text + " " * (width - count_cells(text))


def break_lines(
    text: str, width: int, indent: int = 0, measure: Callable[[str], int] = count_cells
) -> list[str]:
    """Return a text in lines of at most `width` cells, broken between words if possible.

    Args:
        text: One line. Blanks are kept, but not at the end of a line.
        width: Cells of a line.
        indent: Blanks before every line but the first.
        measure: Returns the cells of a text.
    """
    rows: list[str] = []
    row = ""
    for gap, word in re.findall(r"( *)([^ ]+)", text):
        for unit in split_units(word):
            if row and measure(row) + len(gap) + measure(unit) > width:
                rows.append(row)
                row = " " * indent + unit
            else:
                row += gap + unit
            gap = ""
            least = 1
            if rows:
                least = indent + 1
            while measure(row) > width > 0 and len(row) > least:
                end = _find_cut(row, width, least, measure)
                rows.append(row[:end])
                row = " " * indent + row[end:]
                least = indent + 1
    return [*rows, row]


def _find_cut(row: str, width: int, least: int, measure: Callable[[str], int]) -> int:
    """Return how many characters of a row without a place to break go into its first line.

    Args:
        row: Wider than `width`, and longer than `least`.
        width: Cells of a line.
        least: Characters that the line gets at any width: more than its indent, which the rest
            of the row gets again.
        measure: Returns the cells of a text.
    """
    fitting = least
    while measure(row[: fitting + 1]) <= width:
        fitting += 1
    end = fitting
    while end > least and row[end] in NO_LINE_START:
        end -= 1
    # A row of nothing but punctuation.
    if row[end] in NO_LINE_START:
        return fitting
    return end


def wrap_cells(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the lines of a text, none of them wider than `width` cells."""
    if not text.strip():
        return []
    return break_lines(text, max(width, indent + 2), indent)


def format_duration(seconds: float | None) -> str:
    """Return a duration as text: ``0s 42s 2m14 3h07 14d 6h``; ``?`` if unknown.

    All screens, commands and alerts show durations and ages of whole seconds in this form.
    """
    if seconds is None or not math.isfinite(seconds):
        return "?"
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes, left = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{left:02d}"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}"
    days, hours = divmod(hours, 24)
    # Hours no longer matter then, and the text stays within its column.
    if days < 1000:
        return f"{days}d {hours}h"
    return f"{days}d"


def format_time_ago(then: float | None, now: float) -> str:
    """Return e.g. ``3s ago``."""
    if then is None:
        return translate("at an unknown time")
    return translate("{now} ago", now=format_duration(now - then))


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


def format_money(
    amount: float | None,
    currency: str,
    at_least: bool = False,
    *,
    estimated: bool = False,
    none: str = "?",
) -> str:
    """Return an amount with its currency: ``$0.42``, ``7.00 PLN``, ``≥ $0.50``; `none` if unknown.

    A small amount is written ``<$0.01``, as it is not free; a lower bound is rounded down, so that
    it holds. An estimate is written ``~$0.42`` and is no lower bound: the real amount may be lower.
    """
    if amount is None or not math.isfinite(amount):
        return none
    # Before the lower bound: an estimate may be too high.
    if estimated:
        return f"~{format_amount(amount, currency)}"
    if not at_least:
        # Would be rounded to 0.00.
        if 0 < amount < 0.005:
            return f"<{_add_currency('0.01', currency)}"
        return format_amount(amount, currency)
    if 0 < amount < 0.01:
        return f"> {_add_currency('0.00', currency)}"
    # Rounded in the digits that are shown; 1e-9, because 0.29 * 100 is 28.999….
    unit = 100.0 if abs(amount) < 1000 else 1.0
    return LEAST + format_amount(math.floor(amount * unit + 1e-9) / unit, currency)


def format_amount(amount: float, currency: str) -> str:
    """Return an amount with two decimals, or none from a thousand on."""
    if abs(amount) < 1000:
        text = f"{amount:,.2f}"
    else:
        text = f"{amount:,.0f}"
    return _add_currency(text, currency)


def format_unit_price(amount: float, currency: str) -> str:
    """Return a unit price as text; see `format_price`."""
    # Two decimals would show a price per GB as 0.00.
    if 0 < amount < 0.01:
        return _add_currency(f"{amount:.3g}", currency)
    return format_amount(amount, currency)


def _add_currency(digits: str, currency: str) -> str:
    symbol = SYMBOLS.get(currency)
    if symbol:
        return f"{symbol}{digits}"
    return f"{digits} {clean_text(currency)[:3]}"


def format_sums(amounts: Iterable[MoneyAmount], none: str = "?") -> str:
    """Return sums joined, never added: ``$1.11 + ≥ ¥1.98``; `none` without one."""
    texts = (
        format_money(each.value, each.currency, each.at_least, estimated=each.estimated)
        for each in amounts
    )
    return " + ".join(texts) or none


def quote_name(text: str, limit: int = 120) -> str:
    """Return a name or path from a box without terminal control characters."""
    # One character more than shown, to see whether it was cut.
    shown = "".join(char if char.isprintable() else "·" for char in text[: limit + 1])
    if len(shown) <= limit:
        return shown
    return shown[:limit] + "…"


def join_names(names: list[str], limit: int = 4) -> str:
    """Return e.g. ``gpt-a, gpt-b and 3 more``."""
    shown = [quote_name(name, 60) for name in names[:limit]]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (translate(" and {rest} more", rest=rest) if rest else "")
