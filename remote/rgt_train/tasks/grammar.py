"""Text without a download: documents of a tiny grammar, the same for the same seed."""

from __future__ import annotations

import random
from typing import Dict, List, Tuple

ALPHABET = "\n .,abcdefghijklmnopqrstuvwxyz"
"""The characters; the first one ends a document."""

_RULES: Dict[str, Tuple[str, ...]] = {
    "S": ("N V N P.", "P, N V N.", "N V N that V N.", "N V N and N V N."),
    "N": ("the A B", "a A B", "the B", "every B", "the A B of the B"),
    "A": ("old", "quiet", "green", "broken", "heavy", "early", "little", "narrow", "bright", "hungry"),
    "B": ("river", "engine", "garden", "letter", "winter", "captain", "bridge", "lantern", "market", "fox"),
    "V": ("sees", "follows", "carries", "forgets", "paints", "hears", "leaves", "finds"),
    "P": ("near N", "before N", "under N", "without N", "after a long day"),
}


def documents(characters: int, seed: int) -> List[str]:
    """Return documents of one or two sentences with at least `characters` characters in all."""
    draw = random.Random(seed)  # its own generator: the global one belongs to the training
    found: List[str] = []
    size = 0
    while size < characters:
        document = _expand("S", draw)
        if draw.random() < 0.3:
            document += " " + _expand("S", draw)
        found.append(document)
        size += len(document) + 1
    return found


def _expand(symbol: str, draw: random.Random) -> str:
    # random() is stable over Python versions by its documentation; choice() is not.
    options = _RULES[symbol]
    rule = options[int(draw.random() * len(options))]
    return "".join(_expand(c, draw) if c in _RULES else c for c in rule)
