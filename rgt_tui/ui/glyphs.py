"""The characters that the screens draw with: one set for terminals that speak UTF-8, one of plain ASCII."""

from __future__ import annotations

import locale
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Glyphs:
    """One set of characters."""

    name: str
    ok: str = "●"
    idle: str = "◇"
    warn: str = "▲"
    trouble: str = "✖"
    stale: str = "◌"
    stopped: str = "○"
    finished: str = "◆"
    unknown: str = "·"
    check: str = "✔"
    person: str = "?"
    closed: str = "▸"
    opened: str = "▾"
    arrow: str = "→"
    crumb: str = "›"
    dot: str = "·"
    dash: str = "–"
    ellipsis: str = "…"
    limit: str = "│"
    cursor: str = "▌"
    more: str = "▼"
    """There is more below."""
    bar: str = " ▏▎▍▌▋▊▉█"
    """From empty to full, one character per eighth."""
    bar_rest: str = "·"
    thin: str = "━╸"
    """A bar that does not touch the rows above and below: a whole cell and half of one."""
    spark: str = "▁▂▃▄▅▆▇█"
    braille: bool = True
    frame: str = "╭─╮│╯╰├┤"
    """Top left, horizontal, top right, vertical, bottom right, bottom left, left tee, right tee."""
    degree: str = "°"
    times: str = "×"


UNICODE = Glyphs("unicode")
ASCII = Glyphs(
    "ascii",
    ok="*",
    idle="o",
    warn="!",
    trouble="X",
    stale="~",
    stopped="-",
    finished="#",
    unknown=".",
    check="+",
    closed=">",
    opened="v",
    arrow="->",
    crumb=">",
    dot=".",
    dash="-",
    ellipsis="..",
    limit="|",
    cursor=">",
    more="v",
    bar=" ########"[:1] + "   " + "#####",
    bar_rest=".",
    thin="= ",
    spark="_.,-=+*#",
    braille=False,
    frame="+-+|++++",
    degree="",
    times="x",
)

_TO_ASCII = str.maketrans(
    {
        "–": "-", "—": "-", "…": "..", "·": ".", "→": "->", "›": ">", "×": "x", "°": "",
        "¥": "Y", "€": "E", "£": "L",
        "≥": ">=", "≤": "<=", "●": "*", "▲": "!", "✖": "X", "◌": "~", "○": "-", "◆": "#", "✔": "+",
        "↑": "up", "↓": "down", "←": "left", "▏": "|",
    }
)  # fmt: skip


def choose(environ: Mapping[str, str], encoding: str) -> Glyphs:
    """Return the set that fits a terminal.

    ``RGT_ASCII=1`` asks for ASCII, ``0`` for Unicode; else a dumb or non-UTF-8 terminal gets ASCII.
    """
    wish = environ.get("RGT_ASCII", "")
    if wish:
        return UNICODE if wish == "0" else ASCII
    utf8 = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    return UNICODE if utf8 and environ.get("TERM") != "dumb" else ASCII


@cache
def glyphs() -> Glyphs:
    """Return the set of this process, chosen once."""
    return choose(os.environ, locale.getpreferredencoding(False))


def plain(text: str) -> str:
    """Return `text` unchanged, or in ASCII when this process draws in ASCII."""
    if glyphs() is UNICODE or text.isascii():
        return text
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")
