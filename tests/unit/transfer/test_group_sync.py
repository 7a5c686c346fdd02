"""Small files that are brought to the disk together: no name and no row of the ledger before that."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.transfer import FileStamp, Ledger
from rgt_tui.transfer.copying import (
    BoxListing,
    LandingFailed,
    PullFetcher,
    RemoteFile,
    fetching,
    local_copy,
    plan_pull,
)
from rgt_tui.transfer.copying.local_copy import BatchThread, GroupSync, file_system, group_sync
from rgt_tui.transfer.copying.piece_stream import AnswerTail

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/root rw
30 22 0:45 / /mnt/a\\040b rw - fuse.sshfs me@there:/ rw
31 22 0:46 / /cut
"""
DATA = b"some bytes\n"


class Watched(GroupSync):
    """Notes what stands there at each sync, and fails when it is told to."""

    def __init__(self, folder: Path, ledger: Path) -> None:
        super().__init__(folder)
        self.folder, self.ledger = folder, ledger
        self.seen: list[tuple[set[str], bool]] = []
        self.error: OSError | None = None
        self.alone = False

    def is_on_device(self, fd: int) -> bool:
        return not self.alone and super().is_on_device(fd)

    def sync(self) -> None:
        names = {
            path.name for path in (self.folder / "w").iterdir() if not path.name.startswith(".")
        }
        self.seen.append((names, self.ledger.exists()))
        if self.error is not None:
            raise self.error
        super().sync()


class Case:
    """Some small files of a box that have come."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "out"
        self.folder.mkdir()
        self.ledger = Ledger(folder / "ledger.jsonl")
        self.group = Watched(self.folder, self.ledger.path)
        monkeypatch.setattr(fetching, "group_sync", lambda folder: self.group)

    def land(self, *names: str) -> PullFetcher:
        files = tuple(RemoteFile(f"/w/{name}", FileStamp(len(DATA), 1, 2, 3), 1) for name in names)
        todo = plan_pull(BoxListing(roots=("/w",), files=files), self.ledger, self.folder)
        fetcher = PullFetcher(todo, self.ledger, self.folder, "", lambda: None)
        while (task := fetcher.next_task()) is not None:
            tail = AnswerTail(
                task.number, FileStamp(len(DATA), 1, 2, 3), hashlib.sha256(DATA).hexdigest()
            )
            fetcher.end_answer(tail, task, [DATA])
        fetcher.close()
        return fetcher


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    found = Case(tmp_path, monkeypatch)
    yield found
    found.ledger.close()


def test_a_file_takes_its_name_and_its_row_after_it_was_synced(case: Case) -> None:
    fetcher = case.land("a")
    assert case.group.seen == [(set(), False)]
    assert [row.path for row in fetcher.landed] == ["/w/a"]
    assert (case.folder / "w/a").read_bytes() == DATA
    assert case.ledger.find_file("/w/a") is not None


def test_what_cannot_be_brought_to_the_disk_is_not_there(case: Case) -> None:
    case.group.error = OSError(errno.EIO, "Input/output error")
    fetcher = case.land("a", "b")
    assert isinstance(fetcher.failure, LandingFailed)
    assert "cannot write /w/" in str(fetcher.failure)
    assert fetcher.landed == []
    assert case.ledger.find_file("/w/a") is None
    assert not (case.folder / "w/a").exists()


def test_a_name_that_cannot_be_taken_is_named_and_the_others_land(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = local_copy.settle_part

    def settle(part: str, local: str, *rest: Any) -> object:
        if local.endswith("/a"):
            raise PermissionError(errno.EACCES, "Permission denied", local)
        return real(part, local, *rest)

    monkeypatch.setattr(fetching, "settle_part", settle)
    fetcher = case.land("a", "b")
    assert fetcher.failure is None
    assert [row.path for row in fetcher.landed] == ["/w/b"]
    assert [(row.path, "Permission denied" in row.reason) for row in fetcher.problems] == [
        ("/w/a", True)
    ]


def test_whose_turn_it_is_waits_for_no_disk(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []
    turns: list[Any] = []

    class Seen(PullFetcher):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words)
            turns.append(self.turn)

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def watched(*words: Any) -> Any:
            seen.append((name, turns[0].locked()))
            return real(*words)

        monkeypatch.setattr(owner, name, watched)

    watch(case.group, "sync")
    watch(fetching, "settle_part")
    watch(case.ledger, "append_rows")
    monkeypatch.setattr(fetching, "ROWS", 1)
    monkeypatch.setitem(globals(), "PullFetcher", Seen)
    case.land("a")
    assert seen[:3] == [("sync", False), ("settle_part", True), ("append_rows", False)]


def test_a_file_on_another_file_system_is_synced_by_itself(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.group.alone = True
    synced: list[int] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.fstat(fd).st_size)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    case.land("a")
    assert case.group.seen == []
    assert synced[0] == len(DATA)
    assert case.ledger.find_file("/w/a") is not None


def test_what_gathers_meanwhile_is_done_together() -> None:
    begun, go = threading.Event(), threading.Event()
    done: list[list[int]] = []

    def work(some: list[int]) -> None:
        begun.set()
        assert go.wait(60)
        done.append(some)

    gatherer = BatchThread(work)
    gatherer.add_item(1)
    assert begun.wait(60)
    for number in (2, 3, 4):
        gatherer.add_item(number)
    go.set()
    gatherer.close()
    assert done == [[1], [2, 3, 4]]


@pytest.mark.parametrize(
    ("device", "kind"), [((254, 0), "ext4"), ((0, 45), "fuse.sshfs"), ((0, 46), ""), ((8, 1), "")]
)
def test_the_type_of_a_file_system(device: tuple[int, int], kind: str) -> None:
    assert file_system(MOUNTS, *device) == kind


def test_an_older_kernel_does_not_say_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = os.uname_result(("Linux", "box", "5.4.0-99-generic", "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: old)
    assert group_sync(tmp_path) is None
