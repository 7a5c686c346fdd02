"""Pushing code and data to a box."""

from rgt_tui.fleet.pushes.pushing import (
    Arrived,
    PushChoice,
    PushRefused,
    Versions,
    code_place,
    prune_code,
    push_tree,
    read_source,
    versions_of,
)

__all__ = [
    "Arrived",
    "PushChoice",
    "PushRefused",
    "Versions",
    "code_place",
    "prune_code",
    "push_tree",
    "read_source",
    "versions_of",
]
