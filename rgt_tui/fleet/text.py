"""Text from a box is hostile: make it harmless before anything stores or shows it."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences (colours, cursor)
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating-system commands and other strings
    r"|\x1b[ -/]*[0-~]?"  # other escapes
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TAB_WIDTH = 4


def clean(text: str) -> str:
    """Return `text` as one printable line: no escape sequences, control or direction characters; tabs as spaces."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub("", _ESCAPES.sub("", text).replace("\n", " ").expandtabs(TAB_WIDTH))
