"""Which copies are believed without being fetched again, and what is said where one cannot be written."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.transfer import FileRow, FileStamp, Ledger
from rgt_tui.transfer.copying import BoxListing, RemoteFile, plan_pull
from rgt_tui.transfer.copying.local_copy import free_space_text, write_failure

THERE = FileStamp(5, 1, 2, 3)
BOX = "/w/a.pt"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "copies" / "w" / "a.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"12345")
    return path


Planned = Callable[..., tuple[int, int, list[FileRow]]]


@pytest.fixture
def planned(tmp_path: Path, copy: Path) -> Planned:
    """Pull once on paper, change something, and say what stands, what is fetched, and what is written down."""
    here = FileStamp.from_stat(copy.stat())

    def look(
        there: FileStamp = THERE, instance: str = "i", sha256: str = ""
    ) -> tuple[int, int, list[FileRow]]:
        ledger = Ledger(tmp_path / "ledger.jsonl")
        known = sha256 or hashlib.sha256(b"12345").hexdigest()
        ledger.append_rows(
            [FileRow(path=BOX, local=str(copy), sha256=known, there=THERE, here=here, instance="i")]
        )
        noted: list[FileRow] = []
        files = (RemoteFile(BOX, there, 1),)
        listing = BoxListing(roots=("/w",), files=files)
        made = plan_pull(listing, ledger, tmp_path / "copies", instance, noted.append)
        ledger.close()
        return len(made.same), len(made.steps), noted

    return look


def test_an_untouched_copy_stands_without_being_read(copy: Path, planned: Planned) -> None:
    assert planned(sha256="0" * 64) == (1, 0, []), "size, times and inode say it"


def test_a_copy_that_was_touched_is_read_and_its_new_times_are_noted(
    copy: Path, planned: Planned
) -> None:
    os.utime(copy, ns=(7, 7))
    same, fetched, (row,) = planned()
    assert (same, fetched, row.here) == (1, 0, FileStamp.from_stat(copy.stat()))


@pytest.mark.parametrize("content", [b"12346", b"1234", b"123456"])
def test_a_copy_that_was_changed_is_fetched(copy: Path, planned: Planned, content: bytes) -> None:
    copy.write_bytes(content)
    assert planned() == (0, 1, [])


def test_a_copy_that_is_gone_or_a_link_is_fetched(copy: Path, planned: Planned) -> None:
    copy.rename(copy.with_name("b.pt"))
    assert planned() == (0, 1, [])
    copy.symlink_to("b.pt")
    assert planned() == (0, 1, [])


def test_what_the_box_changed_or_another_machine_has_is_fetched(planned: Planned) -> None:
    assert planned(there=FileStamp(5, 1, 2, 4)) == (0, 1, [])
    assert planned(instance="j") == (0, 1, [])


def test_a_full_disk_says_what_is_needed_and_what_is_free(tmp_path: Path) -> None:
    for number in (errno.ENOSPC, errno.EDQUOT):
        said = str(write_failure(BOX, 12_000, tmp_path, OSError(number, "x")))
        assert f"the disk under {tmp_path} is full: {BOX} needs 12,000 bytes, " in said
        assert "bytes are free" in said and "None" not in said
    assert free_space_text(tmp_path / "none") == "an unknown number of bytes"


def test_what_else_fails_names_the_file_here_where_it_is_known(tmp_path: Path) -> None:
    with_name = write_failure(
        BOX, 1, tmp_path, OSError(errno.EACCES, "Permission denied", "/here/a")
    )
    assert str(with_name) == f"cannot write {BOX} below {tmp_path} (/here/a): Permission denied"
    assert str(write_failure(BOX, 1, tmp_path, OSError(errno.EACCES, "Permission denied"))) == (
        f"cannot write {BOX} below {tmp_path}: Permission denied"
    )
