"""The cells of a plot, 2 by 4 dots each: curves, marks and words are put on them, and lines of text come out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rgt_tui.ui.plot.dots import Rows

Row = tuple[tuple[str, int], ...]
"""Pieces of one line: text and the number of its style."""

_BRAILLE = 0x2800
_SPACE = ord(" ")
_LITTLE = np.little_endian
ASCII_MARKS = "*+ox#%@&"
DASHES = ("11111111", "11111100", "10101010", "11101000")
"""Columns of dots that a thin line shows, again and again: solid, dashed, dotted, both."""

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


_PATTERNS = np.array([[mark == "1" for mark in dash] for dash in DASHES])


class Canvas:
    """Cells of 2 by 4 dots. What is drawn later lies on top and gives the cell its style."""

    def __init__(self, width: int, height: int, *, ascii_only: bool = False) -> None:
        self.width, self.height = max(1, width), max(1, height)
        self._ascii = ascii_only
        shape = (self.height, self.width)
        self._tags: set[tuple[int, int]] = set()
        self._mask: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
        self._style: NDArray[np.int16] = np.zeros(shape, dtype=np.int16)
        self._text: NDArray[np.uint32] = np.full(shape, _SPACE, dtype=np.uint32)
        self._settled: NDArray[np.bool_] | None = None

    @property
    def dots(self) -> tuple[int, int]:
        """Columns and rows of dots."""
        return 2 * self.width, 4 * self.height

    def draw(self, first: Rows, last: Rows, styles: Sequence[tuple[int, int, int]]) -> None:
        """Lay curves over what is there, a row of `first` and `last` lit dots for each, the topmost last.

        Args:
            first: Per curve and column of dots.
            last: The same; before the first where nothing is lit.
            styles: Per curve its style, its mark without braille, and its dash.
        """
        shown = last >= first
        dash = np.array([each[2] for each in styles], dtype=np.intp)
        if dash.any():
            # A dash is left out where the line is thin: what is high there, a spike, is never hidden.
            pattern = _PATTERNS[dash % len(DASHES)][:, np.arange(first.shape[1]) % 8]
            shown &= pattern | (last - first > 1)
        curve, column = np.nonzero(shown)
        if not len(curve):
            return
        top, bottom = first[curve, column], last[curve, column]
        self._light(top, bottom, column)
        counts = bottom // 4 - top // 4 + 1
        over = np.repeat(np.cumsum(counts) - counts - top // 4, counts)
        flat = (np.arange(len(over)) - over) * self.width + np.repeat(column // 2, counts)
        # Of several values for one place the last one stays, which is that of the topmost curve.
        owner = np.repeat(curve, counts)
        self._style.reshape(-1)[flat] = np.array([one[0] for one in styles], dtype=np.int16)[owner]
        if self._ascii:
            marks = np.array([ord(ASCII_MARKS[one[1] % len(ASCII_MARKS)]) for one in styles], dtype=np.uint32)
            self._text.reshape(-1)[flat] = marks[owner]
        else:
            lit = np.zeros(self._mask.shape, dtype=np.bool_)
            lit.reshape(-1)[flat] = True
            self._text[lit] = self._mask[lit].astype(np.uint32) + _BRAILLE

    def _light(self, top: Rows, bottom: Rows, column: Rows) -> None:
        """Light the dots of some bars: where more of them begin than have ended, there is light."""
        width, height = self.dots
        size = (height + 1) * width
        begun = np.bincount(top * width + column, minlength=size)
        ended = np.bincount((bottom + 1) * width + column, minlength=size)
        grid = np.cumsum((begun - ended).reshape(height + 1, width), axis=0) > 0
        for side in (0, 1):
            for row in range(4):
                self._mask |= grid[row:height:4, side::2].astype(np.uint8) * np.uint8(_DOTS[side][row])

    def put(self, column: int, row: int, text: str, style: int, *, over: bool = True) -> None:
        """Write `text` from a cell on, clipped; with `over` False only into empty cells."""
        if not 0 <= row < self.height:
            return
        for i, char in enumerate(text, start=column):
            if 0 <= i < self.width and (over or self._text[row, i] == _SPACE):
                self._text[row, i] = ord(char)
                self._style[row, i] = style

    def free(self, column: int, row: int, length: int) -> bool:
        """Whether some cells from here on are on the canvas and empty."""
        if column < 0 or row < 0 or column + length > self.width or row >= self.height:
            return False
        return not self.covered(column, row, length)

    def settle(self) -> None:
        """From now on, what is drawn does not count as covered: it may be hidden, as a crosshair may."""
        self._settled = self._text != _SPACE

    def covered(self, column: int, row: int, length: int, height: int = 1) -> int:
        """Return how many cells from here on are not empty."""
        taken = self._text != _SPACE if self._settled is None else self._settled
        here = taken[max(0, row) : max(0, row + height), max(0, column) : max(0, column + length)]
        return int(here.sum())

    def untagged(self, column: int, row: int) -> bool:
        """Whether a cell is on the canvas and no tag stands there yet."""
        return 0 <= row < self.height and 0 <= column < self.width and (column, row) not in self._tags

    def tag(self, column: int, row: int, text: str, style: int) -> None:
        """Write the tag of a curve over whatever is there."""
        self._tags.add((column, row))
        self.put(column, row, text, style)

    def rows(self) -> list[Row]:
        """Return the lines, neighbouring cells of one style in one piece."""
        out: list[Row] = []
        for codes, styles in zip(self._text, self._style, strict=True):
            line = codes.tobytes().decode("utf-32-le" if _LITTLE else "utf-32-be")
            cuts = [0, *(np.flatnonzero(np.diff(styles)) + 1).tolist(), self.width]
            out.append(tuple((line[a:b], int(styles[a])) for a, b in pairwise(cuts)))
        return out
