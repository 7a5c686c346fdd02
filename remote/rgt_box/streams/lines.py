"""Bytes of a log → lines fit for a screen. Pure."""

from __future__ import annotations

MAX_LINE = 16 * 1024
CUT = " … [line cut]"
MAX_PARTIAL = 1024
"""Of an unfinished line so much is shown: it is sent again and again while it grows."""


def clean(raw: bytes) -> str:
    """Return one line, without its newline, as text.

    A progress bar that rewrites itself by carriage returns is folded to its last state, a long line is cut with
    a marker, and bytes that are no UTF-8 become U+FFFD.
    """
    raw = raw.rstrip(b"\r")
    if b"\r" in raw:
        raw = raw[raw.rindex(b"\r") + 1 :]
    if len(raw) > MAX_LINE:
        return raw[:MAX_LINE].decode("utf-8", "replace") + CUT
    return raw.decode("utf-8", "replace")


class Splitter:
    """Cuts a byte stream into complete lines, with bounded memory however long a line grows.

    Attributes:
        done: Bytes fed so far that belong to complete lines.
    """

    def __init__(self) -> None:
        self._head = b""
        self._held = 0
        self.done = 0

    @property
    def partial(self) -> str:
        """The unfinished line as it would be shown now; "" where there is none."""
        head = clean(self._head) if self._head else ""
        return head if len(head) <= MAX_PARTIAL else head[:MAX_PARTIAL] + CUT

    def finish(self) -> str:
        """Take the unfinished line for complete: nothing will follow it."""
        line = clean(self._head)
        self.done += self._held
        self._head, self._held = b"", 0
        return line

    @property
    def held(self) -> int:
        """Bytes of the unfinished line."""
        return self._held

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes; returns the lines that became complete."""
        end = data.rfind(b"\n")
        if end < 0:
            self._hold(data)
            return []
        rows = (self._head + data[:end]).split(b"\n")
        self.done += self._held + end + 1
        self._head, self._held = b"", 0
        self._hold(data[end + 1 :])
        return [clean(row) for row in rows]

    def _hold(self, data: bytes) -> None:
        """Keep of an unfinished line what will be shown of it: the last rewrite's beginning."""
        self._held += len(data)
        head = self._head + data
        cut = head.rstrip(b"\r").rfind(b"\r")
        if cut >= 0:
            head = head[cut + 1 :]
        if len(head) > 2 * MAX_LINE:
            ends_with_return = head.endswith(b"\r")
            head = head[: MAX_LINE + 1] + (b"\r" if ends_with_return else b"")
        self._head = head
