"""On which line of a TOML text each key stands. The text is known to be valid: tomllib has read it before.

The standard library's reader keeps no positions, so this walks the text once more, looking only for keys.
"""

from __future__ import annotations

import re
from bisect import bisect_right

KeyPath = tuple[str | int, ...]
"""Keys from the top; a number is a place in an array."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")


class Positions:
    """The lines of all keys of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._at = 0
        self._lines: dict[KeyPath, int] = {}
        self._arrays: dict[KeyPath, int] = {}
        self._document()

    @property
    def paths(self) -> frozenset[KeyPath]:
        """Every key, table and array element that was seen."""
        return frozenset(self._lines)

    def line(self, path: KeyPath) -> int:
        """Return the line (from 1) of a key, or of the nearest thing around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _document(self) -> None:
        prefix: KeyPath = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[[", self._at):
                self._at += 2
                prefix = self._array_table()
                self._at += 2
            elif self._text[self._at] == "[":
                self._at += 1
                prefix = self._keys(())
                self._at += 1
            else:
                self._pair(prefix)
            self._skip(_BLANK)

    def _array_table(self) -> KeyPath:
        line = self._line()
        path = self._keys(())
        # `_keys` steps into the newest element of every array on the way, the last one included.
        if path and isinstance(path[-1], int):
            path = path[:-1]
        count = self._arrays.get(path, 0)
        self._arrays[path] = count + 1
        self._lines[*path, count] = line
        return (*path, count)

    def _pair(self, prefix: KeyPath) -> None:
        path = self._keys(prefix)
        self._at += 1  # the equals sign
        self._value(path)

    def _keys(self, prefix: KeyPath) -> KeyPath:
        """Read a dotted key; returns where it leads and notes each step's line."""
        path = prefix
        while True:
            self._skip(_SPACE)
            line = self._line()
            path = (*path, self._key())
            self._lines.setdefault(path, line)
            if not prefix and path in self._arrays:
                path = (*path, self._arrays[path] - 1)
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return path
            self._at += 1

    def _key(self) -> str:
        if self._text[self._at] in "\"'":
            import tomllib

            start = self._at
            self._skip(_STRING)
            value: str = tomllib.loads(f"k = {self._text[start : self._at]}")["k"]
            return value
        match = _BARE_KEY.match(self._text, self._at)
        if match is None:
            raise ValueError(f"no key on line {self._line()}: this is not TOML")
        self._at = match.end()
        return match.group()

    def _value(self, path: KeyPath) -> None:
        self._skip(_BLANK)
        first = self._text[self._at : self._at + 1]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        elif first and first in "\"'":
            self._skip(_STRING)
        else:
            self._skip(_BARE_VALUE)

    def _array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        self._skip(_BLANK)
        while self._text[self._at] != "]":
            self._lines[*path, index] = self._line()
            self._value((*path, index))
            index += 1
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
            self._skip(_BLANK)
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        self._skip(_BLANK)
        while self._text[self._at] != "}":
            self._pair(path)
            self._skip(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
            self._skip(_BLANK)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)
