"""Pushing a directory: what is left out and why, and the hashes by which the box knows the rest."""

from rgt_tui.transfer.sending.source_tree import (
    ALWAYS_LEFT_OUT,
    IgnoreRules,
    LeftOut,
    OwnFiles,
    SourceError,
    SourceFile,
    SourceTree,
    read_tree,
    why_secret,
)

__all__ = [
    "ALWAYS_LEFT_OUT",
    "IgnoreRules",
    "LeftOut",
    "OwnFiles",
    "SourceError",
    "SourceFile",
    "SourceTree",
    "read_tree",
    "why_secret",
]
