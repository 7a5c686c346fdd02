"""Frozen structs only: the words that every other package speaks. Imports nothing of ours."""

__all__ = [
    "alert",
    "autostop",
    "box",
    "evidence",
    "figures",
    "fleet",
    "money",
    "plain",
    "profile",
    "protocol",
    "renting",
    "run",
]
"""Modules that other packages may use."""
