"""The objects of one JSON list, decoded one by one through a small window, however long the list is."""

from __future__ import annotations

import json

from rgt_box.metrics.numbers import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.appended import Window

CHUNK = 64 << 10
MAX_ROW = 1 << 20
BETWEEN = " \t\r\n,"
_decode = json.JSONDecoder(parse_int=whole).raw_decode


class JsonRows:
    """Iterates over a list in a file.

    Attributes:
        at: Place in the file behind the last row.
    """

    def __init__(self, window: Window, at: int) -> None:
        self._window = window
        self.at = at
        self._base, self._text = at, ""

    def next(self) -> dict[str, Any] | None:
        """Return the next object; None at the end of the list. Keys are as in Latin-1: see `ascii_keys`.

        Raises:
            EOFError: when the file ends before the list does.
            ValueError: when what follows is no object.
        """
        length = CHUNK
        at = self.at
        while True:
            text, place = self._text, at - self._base
            while place < len(text) and text[place] in BETWEEN:
                place += 1
            at = self._base + place
            if place < len(text):
                if text[place] == "]":
                    return None
                try:
                    row, end = _decode(text, place)
                    if not isinstance(row, dict):
                        raise RecursionError
                    self.at = self._base + end
                    return row
                except RecursionError:
                    raise ValueError("no object") from None
                except ValueError:
                    if self._base + len(text) >= self._window.size or len(text) - place >= MAX_ROW:
                        raise
            elif self._base + len(text) >= self._window.size:
                raise EOFError
            if len(text) - place >= length:
                length *= 2
            self._base, self._text = at, self._window.at(at, length).decode("latin-1")
            if not self._text:
                raise EOFError


def ascii_keys(row: dict[str, Any]) -> dict[str, Any]:
    """Return `row` with keys that were UTF-8 put right."""
    if all(key.isascii() for key in row):
        return row
    return {utf8(key): value for key, value in row.items()}


def utf8(text: str) -> str:
    """Return what was decoded as Latin-1 and meant as UTF-8."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
