"""Bytes of a console → pieces of text: carriage returns and newlines both end one. Pure."""

from __future__ import annotations

import re

CAP = 8192
"""Bytes of a piece that are looked at; the rest of a longer one is dropped."""

PIECE = re.compile(rb"[^\r\n]+")

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x08\x00]")
"""Escape sequences, and the backspaces with which Keras takes its bar back."""

_RANK = re.compile(
    r"(?:\[([A-Za-z_]{1,40}\d{1,6})\]:|(\([\w.]{1,80} pid=\d{1,10}(?:, ip=[\d.a-f:]{1,50})?\))|(\d{1,4}):(?= ))\s?"
)
"""What torchrun ``--tee``, Ray and ``srun -l`` put before each line of a rank."""


def complete(data: bytes) -> int:
    """Return how many bytes of `data` belong to pieces that are ended."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def clean(piece: bytes) -> tuple[str, str]:
    """Return (rank, text) of a piece: escape sequences gone, the rank's prefix apart; "" where there is none."""
    text = piece[:CAP].decode("utf-8", "replace")
    if "\x1b" in text or "\x08" in text or "\x00" in text:
        text = _ANSI.sub("", text)
    found = _RANK.match(text)
    if found is None:
        return "", text
    return found.group(1) or found.group(2) or found.group(3), text[found.end() :]
