"""What is wrong with a profile, in words that lead to the line to mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ProfileError(Exception):
    """A profile that is missing or broken; says file, key and the nearest known name."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the known name closest to `word`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
