"""What the numbers in a log show where no line reports a fault: a loss that never moves, a step count that restarts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rgt_tui.handbook.file_triage import SYMPTOM, FileFinding
from rgt_tui.handbook.pages import Page
from rgt_tui.model import Severity

STILL, SLOW, AGAIN, GROWN, BROKEN = "O2", "U31", "C12", "P12", "P8"
"""Pages of a loss that never changes, a training on the processor, a count that begins anew, a loss that explodes, and
one that is no number."""
LEAST_LOSSES = 10
"""Losses from which a curve is judged."""
LEAST_DIGITS = 4
"""Digits of a loss that must be there: two equal ones of fewer are no wonder."""
GROWTH, LARGE = 1000.0, 100.0
"""Times its first and lowest value, and the least value, from which a loss has exploded."""
LONGEST = 1000
"""Characters of a line that are looked at."""
_LOSS = re.compile(
    r"(?i)(?<![A-Za-z_/])(?:(?:train|training|total)[_/ ])?loss['\"]?\s{0,3}[=:]?\s{0,3}['\"]?"
    r"(\d{1,30}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)(?![\w.])"
)
_PLACE = re.compile(r"(?i)(?<![A-Za-z])(step|epoch|iter)(?:ation)?\b['\"]?[\s:=\[#]{0,4}(\d{1,9})(?![.\d])")
_LOADED = re.compile(
    r"(?i)\bresum(?:ed|ing)\b|\b(?:loaded|restored|loading|restoring) (?:from )?(?:the )?(?:latest |last |newest )?"
    r"(?:checkpoint|ckpt|state)\b(?!.{0,80}(?:best|pretrain|eval|shards))"
)
_LOADS = ("resum", "load", "restor")
_ON_CPU = re.compile(
    r"(?i)\b(?:using|use|on|selected|training)[ :]{1,2}(?:the )?(?:torch )?device:? ?[=:(]{0,2} ?['\"]?cpu\b"
    r"|^\W{0,3}device['\"]? ?[=:] ?(?:torch\.device\(|device\()?(?:type=)?['\"]?cpu['\"]?\W{0,3}$"
)
_CELLS = re.compile(r"[ \t]*[|,\t][ \t]*")
_LOSS_CELL = re.compile(r"(?i)(?:train(?:ing)?|total)?[_/ ]?loss")
_NO_NUMBER = ("nan", "inf", "-inf", "+inf")


class Sign(msgspec.Struct, frozen=True):
    """A page that the numbers support, and the line that shows it; `place` counts from 0."""

    page: str
    line: str
    place: int


def curve_findings(
    lines: Sequence[str], pages: Mapping[str, Page], found: Sequence[FileFinding], *, whole: bool = True
) -> list[FileFinding]:
    """Return `found`, and behind it what the figures show where nothing was found that ended the run.

    Args:
        lines: Of the log, in their order.
        pages: The handbook.
        found: What the lines themselves say.
        whole: No line is missing: their places are their numbers.
    """
    known = {one.gotcha for one in found}
    if any(one.severity == Severity.FATAL for one in found):
        return [*found]
    more = [
        FileFinding.of(pages[sign.page], sign.line.strip(), SYMPTOM, line_no=sign.place + 1 if whole else 0)
        for sign in signs(lines)
        if sign.page in pages and sign.page not in known
    ]
    return [*found, *more]


def signs(lines: Sequence[str]) -> Iterator[Sign]:
    """Yield what the figures of a log show."""
    losses = [
        (place, match[1])
        for place, line in enumerate(lines)
        if ("loss" in line or "Loss" in line) and (match := _LOSS.search(line[:LONGEST])) is not None
    ]
    yield from _curve(lines, losses)
    if (place := _broken_in_table(lines)) is not None:
        yield Sign(BROKEN, lines[place], place)
    if (place := _begins_anew(lines)) is not None:
        yield Sign(AGAIN, lines[place], place)
    device = (place for place, line in enumerate(lines) if "device" in line or "Device" in line)
    on_cpu = next((place for place in device if _ON_CPU.search(lines[place][:LONGEST])), None)
    if on_cpu is not None:
        yield Sign(SLOW, lines[on_cpu], on_cpu)


def _curve(lines: Sequence[str], losses: Sequence[tuple[int, str]]) -> Iterator[Sign]:
    if len(losses) < LEAST_LOSSES:
        return
    last, text = losses[-1]
    if (
        sum(char.isdigit() for char in text) >= LEAST_DIGITS
        and float(text)
        and len({said for _, said in losses}) == 1
    ):
        yield Sign(STILL, lines[last], last)
    values = [float(said) for _, said in losses]
    least = max(LARGE, GROWTH * max(values[0], min(values)))
    if math.isfinite(values[-1]) and values[-1] >= least:
        yield Sign(GROWN, lines[last], last)


def _broken_in_table(lines: Sequence[str]) -> int | None:
    """Return the first row of a table whose loss, a number in an earlier row, is none."""
    width = column = 0
    finite = False
    for place, line in enumerate(lines):
        if not width and "loss" not in line.lower():
            continue
        cells = _CELLS.split(line[:LONGEST].strip(" \t\r|"))
        named = [at for at, cell in enumerate(cells) if _LOSS_CELL.fullmatch(cell)] if len(cells) > 1 else []
        if named:
            width, column, finite = len(cells), named[0], False
        elif width and len(cells) == width:
            if finite and cells[column].lower() in _NO_NUMBER:
                return place
            finite = finite or cells[column][:1].isdigit()
    return None


def _begins_anew(lines: Sequence[str]) -> int | None:
    """Return the line in which step or epoch begin at 0 or 1 although a checkpoint was loaded right before."""
    highest: dict[str, int] = {}
    loaded = False
    for place, line in enumerate(lines):
        said = {match[1].lower(): int(match[2]) for match in _PLACE.finditer(line[:LONGEST])}
        low = line[:LONGEST].lower()
        if any(word in low for word in _LOADS) and _LOADED.search(low):
            loaded = max(highest.values(), default=0) > 2 and all(number < 2 for number in said.values())
        elif said:
            if loaded and max(said.values()) < 2 and any(highest.get(name, 0) > 2 for name in said):
                return place
            loaded = False
            for name, number in said.items():
                highest[name] = max(number, highest.get(name, 0))
    return None
