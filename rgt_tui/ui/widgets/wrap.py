"""Wrapping of words in one tone."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

from rgt_tui.ui.widgets.spans import Line, Span, Tone


def wrapped(text: str, width: int, tone: Tone = Tone.TEXT, *, most: int = 100) -> list[Line]:
    """Return `text` in lines of at most `width` cells, broken between words where that is possible."""
    rows: list[str] = []
    row = ""
    for word in text.split(" "):
        if row and cell_len(row) + 1 + cell_len(word) > width:
            rows.append(row)
            row = word
        else:
            row = f"{row} {word}" if row else word
        while cell_len(row) > width > 0:
            first = chop_cells(row, width)[0]
            rows.append(first)
            row = row[len(first) :]
    rows.append(row)
    if len(rows) > most:
        rows = [*rows[: most - 1], " ".join(rows[most - 1 :])]
    return [(Span(part, tone),) for part in rows]


def labelled(
    label: str, text: str, width: int, tone: Tone = Tone.TEXT, *, pad: int = 7, most: int = 3
) -> list[Line]:
    """Return wrapped `text` with a dim label in front of its first line."""
    rows = wrapped(text, max(8, width - pad), tone, most=most)
    return [
        (Span((label if index == 0 else "").ljust(pad), Tone.DIM), *row) for index, row in enumerate(rows)
    ]
