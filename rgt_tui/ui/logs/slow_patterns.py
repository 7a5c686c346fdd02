"""Runs a person's regular expression in a separate process, so that a slow one can be killed and blocks nothing.

Run as a file, this module is that process; it imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import subprocess
import sys
import threading
from typing import Any

SECONDS = 3.0
"""For some tens of kilobytes; an expression that is none of the catastrophic ones takes milliseconds."""
_HEAD = struct.Struct(">cI")
_LINES, _SPANS = b"l", b"s"


class TooSlow(Exception):
    """A pattern takes too long; the message says so to the person."""


class PatternProcess:
    """One expression and its process, which starts with the first question. For one thread at a time.

    Args:
        pattern: It compiles.
        fold: Upper and lower case are the same.
    """

    def __init__(self, pattern: str, *, fold: bool, seconds: float = SECONDS) -> None:
        self._pattern, self._fold, self._seconds = pattern, fold, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self.ended = ""
        """Why nothing is answered any more; empty = it is."""

    def lines(self, text: bytes) -> list[int]:
        """Return which lines of a text match.

        Raises:
            TooSlow: that took too long, now or before.
        """
        return [int(index) for index in self._ask(_LINES, text)]

    def spans(self, line: str) -> tuple[tuple[int, int], ...]:
        """Return where a line matches.

        Raises:
            TooSlow: that took too long, now or before.
        """
        return tuple((start, end) for start, end in self._ask(_SPANS, line.encode()))

    def _ask(self, kind: bytes, data: bytes) -> list[Any]:
        if self.ended:
            raise TooSlow(self.ended)
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._send(b"p", json.dumps([self._pattern, self._fold]).encode())
        process = self._process
        watch = threading.Timer(self._seconds, process.kill)
        watch.daemon = True
        watch.start()
        try:
            self._send(kind, data)
            assert process.stdout is not None
            answer = process.stdout.readline()
        except (OSError, ValueError):  # it was ended meanwhile
            answer = b""
        finally:
            watch.cancel()
        if not answer:
            self.close("this pattern took too long and was given up; try a simpler one")
            raise TooSlow(self.ended)
        found: list[Any] = json.loads(answer)
        return found

    def _send(self, kind: bytes, data: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(_HEAD.pack(kind, len(data)) + data)
        self._process.stdin.flush()

    def close(self, why: str = "the search has ended") -> None:
        """End the process, and say why to whoever asks later."""
        self.ended = self.ended or why
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what was on its way goes nowhere
                        pipe.close()


def main() -> None:
    """Answer until standard input ends."""
    pattern = re.compile("")
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while len(head := stdin.read(_HEAD.size)) == _HEAD.size:
        kind, length = _HEAD.unpack(head)
        data = stdin.read(length)
        answer: list[Any] = []
        if kind == b"p":
            text, fold = json.loads(data)
            pattern = re.compile(text, re.IGNORECASE if fold else 0)
            continue
        if kind == _LINES:
            rows = data.decode("utf-8", "replace").split("\n")[:-1]
            answer = [index for index, row in enumerate(rows) if pattern.search(row)]
        else:
            answer = [
                match.span() for match in pattern.finditer(data.decode("utf-8", "replace")) if match.group()
            ]
        stdout.write(json.dumps(answer).encode() + b"\n")
        stdout.flush()


if __name__ == "__main__":
    main()
