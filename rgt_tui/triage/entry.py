"""One entry of the handbook."""

from __future__ import annotations

import re

import msgspec

from rgt_tui.model.evidence import Fix, Severity


class Entry(msgspec.Struct, frozen=True):
    """A known way for training to go wrong, and how a log shows it."""

    id: str
    """Stable for ever."""
    title: str
    severity: Severity
    resource: str
    """What ran out or broke; ``{name}`` is filled with the first group of the pattern, where there is one."""
    fixes: tuple[Fix, ...]
    """In the order in which to try them; every command is shown, never run."""
    never: str
    needles: tuple[str, ...]
    """Literals of which at least one stands in every text that a pattern can match: a cheap first look."""
    patterns: tuple[re.Pattern[str], ...]
    """Searched in a window of a run's own log."""
    cleared_by: str = "step"
    """What a run that goes on shows when it is over: a finite ``step``, or a checkpoint ``saved``."""
    beats: tuple[str, ...] = ()
    """More general entries that this one explains away."""
    sources: tuple[str, ...] = ("https://github.com/Hanyuyuan6/remote-gpu-trainer (2026-08)",)
    """Where the facts come from, with the month."""


def patterns(*texts: str) -> tuple[re.Pattern[str], ...]:
    """Compile `texts` the way windows are searched: ``^`` and ``$`` at every line."""
    return tuple(re.compile(text, re.MULTILINE) for text in texts)
