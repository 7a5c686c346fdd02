"""Text in styled spans: the result of every drawing function, and the input of every widget.

Fitting, wrapping and clipping also clean the text, because a box can report any name or path.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from rgt_tui.language import translate
from rgt_tui.model import break_lines, clean_text
from rgt_tui.ui.notation import current_glyphs


class Tone(enum.StrEnum):
    """The meaning of a style. The theme alone decides on colours."""

    TEXT = "text"
    DIM = "dim"
    STRONG = "strong"
    ACCENT = "accent"
    WARN = "warn"
    TROUBLE = "trouble"
    PROVED = "proved"
    BADGE = "badge"
    MATCH = "match"


class Span(NamedTuple):
    """A piece of text in one tone."""

    text: str
    tone: Tone = Tone.TEXT


Line = tuple[Span, ...]
"""One line of a screen."""

EMPTY: Line = ()


def make_line(*parts: Span | str | Line) -> Line:
    """Join spans, plain texts and lines to one line."""
    spans: list[Span] = []
    for part in parts:
        if isinstance(part, Span):
            spans.append(part)
        elif isinstance(part, str):
            spans.append(Span(part))
        else:
            spans.extend(part)
    return tuple(spans)


def dim_span(text: str) -> Span:
    """Return `text` in the dim tone."""
    return Span(text, Tone.DIM)


def text_of(spans: Line) -> str:
    """Return the bare text of a line."""
    return "".join(span.text for span in spans)


def width_of(spans: Line) -> int:
    """Return how many cells a line takes."""
    return sum(cell_len(span.text) for span in spans)


def fit_text(text: str, width: int, *, right: bool = False) -> str:
    """Return `text` in exactly `width` cells: padded, or cut with an ellipsis."""
    return _fit_to_cells(clean_text(text), width, current_glyphs().ellipsis, right=right)


def _fit_to_cells(text: str, width: int, mark: str, *, right: bool = False) -> str:
    if width <= 0:
        return ""
    cells = cell_len(text)
    if cells <= width:
        pad = " " * (width - cells)
        if right:
            return pad + text
        return text + pad
    if width <= len(mark):
        return set_cell_size(text, width)
    return set_cell_size(text, width - len(mark)) + mark


def fit_name(text: str, width: int) -> str:
    """Return a name in `width` cells, cut in the middle: long names often differ at the end."""
    text, mark = clean_text(text), current_glyphs().ellipsis
    end = (width - len(mark)) * 2 // 5
    if cell_len(text) <= width or end < 2:
        return fit_text(text, width)
    return (
        # Reversed, because `set_cell_size` cuts at the end.
        set_cell_size(text, width - len(mark) - end) + mark + set_cell_size(text[::-1], end)[::-1]
    )


def name_width(names: Iterable[str], width: int) -> int:
    """Return the width of a column of names: the longest, but at most a sixth of `width` or 20."""
    return min(max(20, width // 6), max(map(cell_len, names), default=0))


def clip_line(spans: Line, width: int) -> Line:
    """Return a line in exactly `width` cells."""
    return _clip_cached(spans, width, current_glyphs().ellipsis)


@lru_cache(maxsize=1024)
def _clip_cached(spans: Line, width: int, mark: str) -> Line:
    """Clip a line. Cached, because most lines of a drawing were also in the previous one."""
    spans = tuple(Span(clean_text(text), tone) for text, tone in spans)
    out: list[Span] = []
    used = 0
    for index, span in enumerate(spans):
        cells = cell_len(span.text)
        if used + cells > width:
            out.append(Span(_fit_to_cells(span.text, width - used, mark), span.tone))
            used = width
            break
        if cells:
            out.append(span)
            used += cells
        # The line is full; the rest would only add empty spans.
        if used == width and any(rest.text for rest in spans[index + 1 :]):
            break
    if used < width:
        out.append(Span(" " * (width - used)))
    return tuple(out)


def cut_line(spans: Line, width: int) -> Line:
    """Return the first `width` cells of a line, without an ellipsis."""
    out: list[Span] = []
    for span in spans:
        if width <= 0:
            break
        if cell_len(span.text) <= width:
            text = span.text
        else:
            text = set_cell_size(span.text, width)
        out.append(Span(text, span.tone))
        width -= cell_len(text)
    return tuple(out)


def split_line(spans: Line, width: int) -> tuple[Line, Line]:
    """Return the first `width` cells of a line, and the rest of it."""
    left = cut_line(spans, width)
    skip = sum(len(span.text) for span in left)
    right: list[Span] = []
    for span in spans:
        if len(span.text) > skip:
            right.append(Span(span.text[skip:], span.tone))
        skip = max(0, skip - len(span.text))
    return left, tuple(right)


def spread_line(left: Line, right: Line, width: int) -> Line:
    """Return `left` and `right` at the two ends of a line; if both do not fit, `left` is cut."""
    right_cells = min(width_of(right), width)
    room = max(0, width - right_cells)
    return clip_line((*clip_line(left, room), *right), width)


def tone_line(spans: Line, tone: Tone) -> Line:
    """Return a line in one tone (a stale row, a closed section)."""
    return (Span(text_of(spans), tone),)


def merge_spans(spans: Iterable[Span]) -> Line:
    """Merge neighbours of the same tone, so that a row needs few styles."""
    out: list[Span] = []
    for span in spans:
        if not span.text:
            continue
        if out and out[-1].tone is span.tone:
            out[-1] = Span(out[-1].text + span.text, span.tone)
        else:
            out.append(span)
    return tuple(out)


def join_fitting(width: int, parts: Sequence[tuple[int, Line]], gap: str = "  ") -> Line:
    """Join the parts that fit into `width`, in order; lower numbers are more important."""
    chosen: set[int] = set()
    used = 0
    for index in sorted(range(len(parts)), key=lambda i: (parts[i][0], i)):
        cells = width_of(parts[index][1])
        if not cells:
            continue
        need = cells + (len(gap) if chosen else 0)
        if used + need <= width:
            chosen.add(index)
            used += need
    out: list[Span] = []
    for index in sorted(chosen):
        if out:
            out.append(Span(gap))
        out.extend(parts[index][1])
    return tuple(out)


def find_differing_runs(old: Line, new: Line) -> list[tuple[int, int]]:
    """Return the runs of cells in which two lines differ, as ``(first column, end column)``."""
    before, after = _split_cells(old), _split_cells(new)
    # With a wide character, columns are no characters: the whole line is repainted.
    if before is None or after is None or len(before) != len(after):
        return [(0, max(width_of(old), width_of(new)))]
    runs: list[tuple[int, int]] = []
    # Runs of changed cells closer than this are merged: moving the cursor costs as much.
    near = 8
    for column, (a, b) in enumerate(zip(before, after, strict=True)):
        if a != b:
            if runs and column - runs[-1][1] < near:
                runs[-1] = (runs[-1][0], column + 1)
            else:
                runs.append((column, column + 1))
    return runs


# Every line is compared twice, first as the new one and then as the old one.
@lru_cache(maxsize=256)
def _split_cells(spans: Line) -> Sequence[tuple[str, Tone]] | None:
    """Return a line as cells, or None if a character is not one cell wide."""
    if not all(span.text.isascii() or cell_len(span.text) == len(span.text) for span in spans):
        return None
    return [(character, span.tone) for span in spans for character in span.text]


def wrap_text(text: str, width: int, tone: Tone = Tone.TEXT, *, most: int = 100) -> list[Line]:
    """Return `text` in lines of at most `width` cells, broken between words if possible."""
    rows = _wrap_rows(text, width)
    if len(rows) > most:
        # One line that is too long, so that the widget cuts it with an ellipsis.
        rows = (*rows[: most - 1], " ".join(rows[most - 1 :]))
    return [(Span(part, tone),) for part in rows]


@lru_cache(maxsize=512)
def _wrap_rows(text: str, width: int) -> tuple[str, ...]:
    return tuple(break_lines(clean_text(text).lstrip(" "), width, measure=cell_len))


def label_lines(
    label: str, text: str, width: int, tone: Tone = Tone.TEXT, *, pad: int = 7, most: int = 3
) -> list[Line]:
    """Return wrapped `text` with a dim label before its first line."""
    shown = translate(label)
    # A translated label may be wider than the English one.
    if not shown.isascii():
        pad = max(pad, cell_len(shown) + 1)
    rows = wrap_text(text, max(8, width - pad), tone, most=most)
    return [
        (Span(fit_text(shown if index == 0 else "", pad), Tone.DIM), *row)
        for index, row in enumerate(rows)
    ]


def join_parts(parts: Sequence[Line], width: int, gap: str = "   ") -> list[Line]:
    """Return parts side by side, as many per line as fit."""
    out: list[Line] = []
    for part in parts:
        if out and width_of(out[-1]) + len(gap) + width_of(part) <= width:
            out[-1] = make_line(*out[-1], gap, *part)
        else:
            out.append(make_line(*part))
    return out
