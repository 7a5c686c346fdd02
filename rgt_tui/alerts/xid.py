"""Xid numbers by class: is the card broken, was it the program, or is it a note.

The agent has the same table with the meanings (``remote/rgt_box/sampling/xid.py``, from
https://docs.nvidia.com/deploy/xid-errors/); a test keeps the two equal.
"""

from __future__ import annotations

HARDWARE, SOFTWARE, NOTE = "error", "warn", "info"

_HARDWARE = (32, 38, 46, 48, 54, 61, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 140, 143, 149)
_NOTE = (45,)


def level_of(number: int) -> str:
    """Return the level of an Xid; an unknown number may be anything, so it is a warning."""
    if number in _HARDWARE:
        return HARDWARE
    return NOTE if number in _NOTE else SOFTWARE
