"""A grid of terminal cells: braille dots of many curves, text over them, and who owns which cell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Row = tuple[tuple[str, int], ...]
"""Pieces of one line: text and the number of its style."""

NO_STYLE = 0
_BRAILLE = 0x2800
_SPACE = ord(" ")
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
ASCII_MARKS = "*+ox#%@&"


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

    @property
    def dots(self) -> tuple[int, int]:
        """Columns and rows of dots."""
        return 2 * self.width, 4 * self.height

    def draw(self, grid: NDArray[np.bool_], style: int, mark: int = 0) -> None:
        """Lay the dots of one curve over the others; `mark` is its character without braille."""
        bits = np.zeros((self.height, self.width), dtype=np.uint8)
        for row, pair in enumerate(_BITS):
            for column, bit in enumerate(pair):
                bits |= grid[row::4, column::2].astype(np.uint8) * np.uint8(bit)
        here = bits != 0
        self._mask |= bits
        self._style[here] = style
        if self._ascii:
            self._text[here] = ord(ASCII_MARKS[mark % len(ASCII_MARKS)])
        else:
            self._text[here] = self._mask[here].astype(np.uint32) + _BRAILLE

    def put(self, column: int, row: int, text: str, style: int, *, over: bool = True) -> None:
        """Write `text` from a cell on, clipped; with `over` False only into cells without dots."""
        if not 0 <= row < self.height:
            return
        for i, char in enumerate(text, start=column):
            if 0 <= i < self.width and (over or not self._mask[row, i]):
                self._text[row, i] = ord(char)
                self._style[row, i] = style

    def free(self, column: int, row: int, length: int) -> bool:
        """Whether `length` cells from here on are on the canvas and empty."""
        if not (0 <= row < self.height and column >= 0 and column + length <= self.width):
            return False
        return bool((self._text[row, column : column + length] == _SPACE).all())

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


_LITTLE = np.little_endian
