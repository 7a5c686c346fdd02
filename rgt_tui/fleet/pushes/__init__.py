"""Pushing code and data to a box."""

from rgt_tui.fleet.pushes.pushing import (
    PushChoice,
    PushedVersions,
    PushRefused,
    PushResult,
    code_place,
    prune_code,
    push_tree,
    read_source,
    versions_of,
)

__all__ = [
    "PushChoice",
    "PushRefused",
    "PushResult",
    "PushedVersions",
    "code_place",
    "prune_code",
    "push_tree",
    "read_source",
    "versions_of",
]
