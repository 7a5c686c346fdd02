"""A walk over very many directories stays in bounded memory, and loses none of their files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rgt_box.commands import result_walk
from rgt_box.commands.result_walk import (
    HELD_GROUPS,
    FolderOwners,
    MountTable,
    ResultWalk,
    WalkLevel,
)


@pytest.mark.parametrize("form", [b"/d%d", b"/a/d%d", b"/a%d/b/c"])
def test_more_directories_than_are_held_are_counted_with_those_above(
    form: bytes, tmp_path: Path
) -> None:
    """Also right in the root, above which there is nothing."""
    (tmp_path / "file").write_text("x")
    seen = os.stat(tmp_path / "file")
    walk = ResultWalk(FolderOwners(), mounts=MountTable(b""))
    walk.pinned.add(b"/")
    many, most, first = 3 * HELD_GROUPS, 0, WalkLevel(form % 0, None)
    for number in range(many):
        level = first if number == 0 else WalkLevel(form % number, None)
        walk._add_result(level, level.path + b"/file", seen)
        most = max(most, len(walk.groups))
    assert most <= HELD_GROUPS + 2
    walk._add_result(
        first, first.path + b"/later", seen
    )  # a group that the first had before others were put together
    assert sum(group.files for group in walk.groups.values()) == many + 1
    walk._merge_unowned()
    assert sum(group.files for group in walk.groups.values()) == many + 1


def test_an_owner_s_directories_are_never_put_together(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    seen = os.stat(tmp_path / "file")
    walk = ResultWalk(FolderOwners(), mounts=MountTable(b""))
    walk.pinned.add(b"/")
    for number in range(2 * HELD_GROUPS):
        level = WalkLevel(b"/d%d" % number, None)
        if number % 4096 == 7:
            level.owner, level.root = "job j", level.path
        walk._add_result(level, level.path + b"/file", seen)
    walk._fold_deepest(result_walk.MOST_GROUPS, into_root=True)
    owned = {path: group.files for path, group in walk.groups.items() if group.owner}
    assert owned == {b"/d7": 1, b"/d4103": 1}


def test_mounts_that_nothing_here_can_ever_write_are_told_from_disks() -> None:
    table = b"""\
1 0 0:1 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
2 1 0:2 / /usr/bin ro - overlay overlay ro,lowerdir=/a:/b
4 1 8:1 / /fault ro - ext4 /dev/sda1 ro,errors=remount-ro
5 1 0:5 / /upper ro - overlay overlay ro,lowerdir=/l,upperdir=/u
"""
    mounts = MountTable(table)
    assert mounts.read_only == {b"/usr/bin"}
    assert mounts.disks == {b"/", b"/fault", b"/upper"}
