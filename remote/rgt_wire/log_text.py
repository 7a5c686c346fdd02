"""The text of a log's line, as the agent sends it and as the client makes it of bytes that it has fetched."""

from __future__ import annotations

MAX_LINE = 16 << 10
"""Bytes of a line that are kept."""
CUT = " … [line cut]"


def line_text(raw: bytes) -> str:
    """Return one line, without its newline, as text.

    A progress bar that rewrites itself by carriage returns is folded to its last state, a long line is cut with
    a marker, and bytes that are no UTF-8 become U+FFFD.
    """
    raw = raw.rstrip(b"\r")
    raw = raw[raw.rfind(b"\r") + 1 :]
    if len(raw) > MAX_LINE:
        return raw[:MAX_LINE].decode("utf-8", "replace") + CUT
    return raw.decode("utf-8", "replace")
