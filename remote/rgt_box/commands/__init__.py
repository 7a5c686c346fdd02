"""Small verbs that verify, copy and search files on a box: one module each, plus shared helpers.

`file_tree` walks a directory without leaving it; `hashing` reads files that may be changing.
"""

from __future__ import annotations

__all__ = [
    "cat",
    "file_tree",
    "fix_steps",
    "gpu_health",
    "grep",
    "hashing",
    "manifest",
    "measure",
    "mirror",
    "mirrors",
    "on_start",
    "reap",
    "reconcile",
    "remove",
    "restorable_files",
    "result_rules",
    "result_walk",
    "results",
    "seal",
    "send",
    "stop",
    "work_folders",
]
"""Modules that other packages may use."""
