"""Pictures of the screens as SVG, small enough to be kept with the tests, and what differs between two of them.

Textual's own export needs 50 to 150 KB and 0.1 s for a screen, and names its colours by their order, so that one new
colour changes every line of it. Here a row of the terminal is a line of the file, colours stand where they are
used, and a picture can be read back into cells. RGT_UPDATE_SNAPSHOTS=1 writes the kept ones anew.
"""

from __future__ import annotations

import difflib
import html
import os
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from rgt_tui.ui import RgtApp

KEPT = Path(__file__).parent / "snapshots"
WIDTH, HEIGHT, BASE = 12, 24, 18
"""Of a cell, and how far below its top the letters stand, in units of the picture."""
INK, PAPER = "#e0e0e0", "#121212"
"""Colours of a cell that names none."""


class Cell(NamedTuple):
    """What one place of the terminal shows; a wide letter has an empty cell behind it."""

    letter: str
    ink: str
    paper: str
    marks: str = ""
    """Of ``b`` bold, ``i`` italic, ``u`` underlined, ``d`` dim, ``s`` struck through."""


Row = tuple[Cell, ...]


def rows_on(app: RgtApp) -> list[Row]:
    """Return the cells of the screen on top."""
    return [cells_of(strip) for strip in app.screen._compositor.render_strips()]


def cells_of(strip: Strip) -> Row:
    """Return the cells of a line of the screen."""
    made: list[Cell] = []
    for text, style, control in strip:
        if control:
            continue
        ink, paper, marks = _look(style)
        for letter in text:
            seen = letter != " " or "u" in marks or "s" in marks
            made.append(Cell(letter, ink if seen else "", paper, marks if seen else ""))
            made += [Cell("", "", paper)] * (cell_len(letter) - 1)
    return tuple(made)


def _look(style: Style | None) -> tuple[str, str, str]:
    if style is None:
        return INK, PAPER, ""
    ink = style.color.get_truecolor().hex if style.color and not style.color.is_default else INK
    paper = (
        style.bgcolor.get_truecolor().hex
        if style.bgcolor and not style.bgcolor.is_default
        else PAPER
    )
    if style.reverse:
        ink, paper = paper, ink
    held = (
        ("b", style.bold),
        ("i", style.italic),
        ("u", style.underline),
        ("d", style.dim),
        ("s", style.strike),
    )
    return ink, paper, "".join(mark for mark, on in held if on)


def svg_of(rows: Sequence[Row]) -> str:
    """Return the picture of some rows; the colour that most cells have lies below all of them."""
    papers = [cell.paper for row in rows for cell in row]
    ground = max(sorted(set(papers)), key=papers.count) if papers else PAPER
    inks = [cell.ink for row in rows for cell in row if cell.ink]
    usual = max(sorted(set(inks)), key=inks.count) if inks else INK
    wide, high = max((len(row) for row in rows), default=0) * WIDTH, len(rows) * HEIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">',
        "<style>text{font:20px 'Fira Code',monospace;white-space:pre}.b{font-weight:bold}.i{font-style:italic}"
        ".u{text-decoration:underline}.d{opacity:.6}.s{text-decoration:line-through}</style>",
        f'<rect width="100%" height="100%" fill="{ground}"/>',
        f'<g fill="{usual}">',
    ]
    for y, row in enumerate(rows):
        line = f"{_papers(row, ground)}{_letters(row, usual)}"
        out.append(f'<g transform="translate(0 {y * HEIGHT + BASE})">{line}</g>')
    return "\n".join([*out, "</g></svg>", ""])


def _papers(row: Row, ground: str) -> str:
    x, made = 0, []
    for paper, cells in groupby(row, key=lambda cell: cell.paper):
        count = len(list(cells))
        if paper != ground:
            made.append(
                f'<rect x="{x * WIDTH}" y="-{BASE}" width="{count * WIDTH}" height="{HEIGHT}" fill="{paper}"/>'
            )
        x += count
    return "".join(made)


def _letters(row: Row, usual: str) -> str:
    looks = [(cell.ink, cell.marks, _kind(cell.letter)) if cell.ink else None for cell in row]
    for x, (before, here, after) in enumerate(zip(looks, looks[1:], looks[2:], strict=False), 1):
        if before is not None and (not row[x].letter or (here is None and before == after)):
            looks[x] = before  # a space in a phrase, or the second half of a wide letter
    x, made = 0, []
    for look, cells in groupby(zip(looks, row, strict=True), key=lambda one: one[0]):
        text = "".join(cell.letter for _, cell in cells)
        wide = cell_len(text)
        if look is not None:
            ink, marks, _ = look
            fill = f' fill="{ink}"' if ink != usual else ""
            marked = f' class="{" ".join(marks)}"' if marks else ""
            place = f'x="{x * WIDTH}" textLength="{wide * WIDTH}"'
            made.append(f"<text {place}{fill}{marked}>{html.escape(text, quote=False)}</text>")
        x += wide
    return "".join(made)


def _kind(letter: str) -> int:
    """Letters of one kind come from one font, so that they can be spaced together."""
    return (
        sum(ord(letter) >= first for first in (0x80, 0x2500, 0x2600, 0x2800, 0x2900))
        if letter
        else 0
    )


_HEAD = re.compile(r'<rect width="100%" height="100%" fill="([^"]*)"/>\n<g fill="([^"]*)">')
_ROW = re.compile(r'<g transform="translate\(0 \d+\)">(.*)</g>')
_RECT = re.compile(r'<rect x="(\d+)" y="-\d+" width="(\d+)" height="\d+" fill="([^"]*)"/>')
_TEXT = re.compile(
    r'<text x="(\d+)" textLength="\d+"(?: fill="([^"]*)")?(?: class="([^"]*)")?>([^<]*)</text>'
)
_SIZE = re.compile(r'viewBox="0 0 (\d+) \d+"')


def rows_of(svg: str) -> list[Row]:
    """Return the cells of a picture that `svg_of` made.

    Raises:
        ValueError: it is another SVG.
    """
    head, size = _HEAD.search(svg), _SIZE.search(svg)
    if head is None or size is None:
        raise ValueError("not a picture of a screen")
    ground, usual = head.groups()
    wide, rows = int(size[1]) // WIDTH, []
    for drawn in _ROW.findall(svg):
        papers = [ground] * wide
        for x, width, fill in _RECT.findall(drawn):
            papers[int(x) // WIDTH : (int(x) + int(width)) // WIDTH] = [fill] * (
                int(width) // WIDTH
            )
        cells = [Cell(" ", "", paper) for paper in papers]
        for at, fill, marks, text in _TEXT.findall(drawn):
            x = int(at) // WIDTH
            for letter in html.unescape(text):
                held = marks.replace(" ", "")
                seen = letter != " " or "u" in held or "s" in held
                if seen:
                    cells[x] = Cell(letter, fill or usual, papers[x], held)
                for second in range(x + 1, x + cell_len(letter)):
                    cells[second] = Cell("", "", papers[second])
                x += cell_len(letter)
        rows.append(tuple(cells))
    return rows


def text_of_rows(rows: Sequence[Row]) -> list[str]:
    """Return what stands in the rows, without colours."""
    return ["".join(cell.letter for cell in row).rstrip() for row in rows]


def difference(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """Return what differs, for a person to read: rows whose words do, then cells that only look otherwise."""
    old, new = text_of_rows(before), text_of_rows(after)
    told = [
        row
        for row in difflib.unified_diff(old, new, n=0, lineterm="")
        if row[:3] not in ("---", "+++")
    ]
    if (len(before), len(before[0])) != (len(after), len(after[0])):
        return [*told, f"size {len(before[0])}x{len(before)} → {len(after[0])}x{len(after)}"]
    for y, (was, now) in enumerate(zip(before, after, strict=True)):
        if old[y] == new[y]:
            told += _looks(y, was, now)
    return told


def _looks(y: int, was: Row, now: Row) -> Iterator[str]:
    """Say which cells of a row look otherwise, those side by side that changed alike together."""
    x = 0
    for (before, after), cells in groupby(
        zip(was, now, strict=True), key=lambda pair: (pair[0][1:], pair[1][1:])
    ):
        text = "".join(new.letter for _, new in cells)
        if before != after:
            end = x + max(1, cell_len(text)) - 1
            yield f"row {y + 1}, columns {x + 1} to {end + 1} {text.strip()!r}: {_words(before, after)}"
        x += cell_len(text)


def _words(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    names = ("colour", "background", "marks")
    return ", ".join(
        f"{name} {old or 'none'} → {new or 'none'}"
        for name, old, new in zip(names, before, after, strict=True)
        if old != new
    )


def compared(rows: Sequence[Row], name: str, out: Path) -> str:
    """Compare a screen with ``snapshots/NAME.svg``; return what differs, in words, or nothing.

    Args:
        rows: What is on the screen.
        name: Of the kept picture.
        out: Where the new picture is put, if it differs.
    """
    kept, svg = KEPT / f"{name}.svg", svg_of(rows)
    if os.environ.get("RGT_UPDATE_SNAPSHOTS"):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(svg, encoding="utf-8")
    if not kept.exists():
        return f"{name}: no picture is kept; RGT_UPDATE_SNAPSHOTS=1 writes it"
    before = kept.read_text(encoding="utf-8")
    if before == svg:
        return ""
    fresh = out / f"{name.replace('/', '-')}.svg"
    fresh.write_text(svg, encoding="utf-8")
    told = difference(rows_of(before), rows) or ["(the same cells: the way they are drawn changed)"]
    return "\n".join([f"{name} looks otherwise: {fresh}", *told])
