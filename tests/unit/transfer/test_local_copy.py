"""What happens when something stands where a finished copy wants to go: whatever it is, both are there afterwards."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from rgt_tui.transfer import FileRow, FileStamp
from rgt_tui.transfer.copying import PullProgress, TransferRate, time_to_go
from rgt_tui.transfer.copying.local_copy import (
    LandedCopy,
    PartFile,
    set_mtime,
    settle_part,
    version_path,
    write_part,
)
from rgt_tui.transfer.copying.pull_plan import split_ranges

OLD = b"twelve bytes"


class Place:
    """A directory with what stands there, and a finished copy beside it."""

    def __init__(self, folder: Path) -> None:
        self.local, self.part = folder / "last.pt", folder / "part"

    def settle(self, new: bytes, known: FileRow | None = None, mtime: int = 9) -> LandedCopy:
        self.part.write_bytes(new)
        digest = hashlib.sha256(new).hexdigest()
        return settle_part(
            str(self.part), str(self.local), digest, FileStamp(len(new), mtime, 0, 0), known
        )

    def verified(self, data: bytes = OLD, mtime: int = 5) -> FileRow:
        self.local.write_bytes(data)
        return FileRow(
            path="/w/last.pt",
            local=str(self.local),
            sha256=hashlib.sha256(data).hexdigest(),
            there=FileStamp(len(data), mtime, 0, 0),
            here=FileStamp.from_stat(self.local.stat()),
        )

    def held(self) -> set[bytes]:
        return {path.read_bytes() for path in self.local.parent.iterdir()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_empty_place_is_taken(place: Place) -> None:
    landed = place.settle(b"new")
    assert (landed.local, landed.note) == (str(place.local), None)
    assert landed.stamp == FileStamp.from_stat(place.local.stat())
    assert place.held() == {b"new"}


def test_the_same_content_is_left_as_it_is(place: Place) -> None:
    known = place.verified()
    assert place.settle(OLD, known).stamp == known.here
    assert place.held() == {OLD}


@pytest.mark.parametrize("known", [True, False])
def test_what_went_on_replaces_its_own_beginning(place: Place, known: bool) -> None:
    row = place.verified()
    landed = place.settle(OLD + b" and more", row if known else None)
    assert landed.note is None
    assert place.held() == {OLD + b" and more"}


def test_a_later_version_takes_the_name_and_the_verified_one_is_kept(place: Place) -> None:
    landed = place.settle(b"other 12 b..", place.verified())
    assert landed.local == str(place.local)
    assert place.local.read_bytes() == b"other 12 b.."
    assert place.held() == {OLD, b"other 12 b.."}
    assert landed.note is not None
    assert Path(landed.note.rpartition(" ")[2]).read_bytes() == OLD


@pytest.mark.parametrize(
    ("new", "mtime"),
    [(b"short", 9), (b"", 9), (b"other 12 b..", 5), (b"longer, but older than it", 4)],
)
def test_a_version_that_may_be_worse_lands_beside(place: Place, new: bytes, mtime: int) -> None:
    landed = place.settle(new, place.verified(), mtime)
    assert place.local.read_bytes() == OLD
    assert Path(landed.local).read_bytes() == new
    assert landed.local.endswith(".pt")
    assert "may be better" in str(landed.note)


def test_a_file_that_nobody_pulled_is_not_touched(place: Place) -> None:
    place.local.write_bytes(b"mine")
    landed = place.settle(b"new and longer")
    assert place.local.read_bytes() == b"mine"
    assert "did not pull" in str(landed.note)


def test_a_copy_that_was_changed_here_is_kept(place: Place) -> None:
    known = place.verified()
    place.local.write_bytes(b"edited")
    landed = place.settle(OLD, known, 5)
    assert landed.local == str(place.local)
    assert place.held() == {OLD, b"edited"}


def test_a_directory_or_a_link_in_the_way_stays(place: Place) -> None:
    place.local.mkdir()
    assert Path(place.settle(b"new").local).read_bytes() == b"new"
    place.local.rmdir()
    place.local.symlink_to("/etc/passwd")
    assert Path(place.settle(b"other").local).read_bytes() == b"other"
    assert place.local.is_symlink()


@pytest.mark.parametrize("name", ["a.pt", "n" * 255, "é" * 120 + ".pt", os.fsdecode(b"\xff" * 255)])
def test_a_name_beside_can_be_had(tmp_path: Path, name: str) -> None:
    other = version_path(str(tmp_path / name), "f" * 64)
    Path(other).touch()
    assert "rgt-ffffffffffff" in other


def test_ranges_land_in_any_order_and_are_hashed_in_theirs(tmp_path: Path) -> None:
    data = os.urandom(1000)
    part = PartFile(str(tmp_path / "part"), 1000)
    for start, end in ((600, 1000), (0, 300), (300, 600)):
        assert part.full_digest() is None
        assert part.write_chunks(start, [data[start : start + 7], data[start + 7 : end]]) == end
        part.mark_range(start, end)
        part.hash_good_ranges()
    assert part.full_digest() == hashlib.sha256(data).hexdigest()
    assert part.hash_range(5, 900) == hashlib.sha256(data[5:900]).hexdigest()
    part.close()
    shorter = PartFile(str(tmp_path / "part"), 400)
    assert shorter.present == 400
    shorter.close()


def test_a_part_has_one_writer_and_the_next_one_goes_on_with_it(tmp_path: Path) -> None:
    """Two boxes may be pulled to one directory, with files of the same path."""
    path = str(tmp_path / "part")
    part = PartFile(path, 1000)
    part.write_chunks(0, [b"good"])
    with pytest.raises(OSError, match="another rgt writes to it"):
        PartFile(path, 1000)
    inherited = os.dup(
        part._fd
    )  # by a process that is being started: it has every descriptor until its exec
    part.close()
    again = PartFile(path, 1000)
    os.close(inherited)
    assert again.present == 4
    with pytest.raises(OSError, match="another rgt writes to it"):
        PartFile(path, 1000)
    again.close()


def test_many_small_pieces_are_written_at_once(tmp_path: Path) -> None:
    part = PartFile(str(tmp_path / "part"), 5000)
    part.write_chunks(0, [bytes([number % 256]) for number in range(5000)])
    part.close()
    assert (tmp_path / "part").read_bytes() == bytes(number % 256 for number in range(5000))


def test_a_time_that_no_file_can_have_is_no_error(place: Place) -> None:
    place.local.touch()
    set_mtime(str(place.local), 10**40)
    set_mtime(str(place.local), 7 * 10**9)
    assert place.local.stat().st_mtime == 7


@pytest.mark.parametrize("size", [0, 1, 8, 9, 16, 17])
def test_ranges_cover_a_file_once(size: int) -> None:
    pieces = split_ranges(size, 8)
    assert [at for start, end in pieces for at in range(start, end)] == list(range(size))


def test_the_rate_is_that_of_the_last_seconds() -> None:
    rate = TransferRate()
    assert rate.add_reading(0.0, 0) is None
    assert rate.add_reading(0.1, 1000) is None, "too early to tell"
    assert rate.add_reading(1.0, 1000) == 1000
    for second in range(2, 30):
        last = rate.add_reading(float(second), 1000 + 10 * (second - 1))
    assert last is not None
    assert 9 <= last <= 11


def test_what_cannot_be_told_is_not_told() -> None:
    assert time_to_go(100, None) is None
    assert time_to_go(100, 0.0) is None
    assert time_to_go(100, 50.0) == 2.0
    assert time_to_go(0, None) == 0.0
    assert PullProgress(phase="pulling").done_share == 0.0
    assert PullProgress(phase="done").done_share == 1.0
    assert PullProgress(phase="pulling", bytes=10, bytes_done=20).done_share == 1.0


def test_a_disk_that_takes_a_part_gets_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, chunks, offset: whole(fd, [chunks[0][:3]], offset)
    )
    part = PartFile(str(tmp_path / "part"), 10)
    assert part.write_chunks(0, [b"01234", b"56789"]) == 10
    part.close()
    assert (tmp_path / "part").read_bytes() == b"0123456789"


def test_a_small_file_is_on_the_disk_before_it_can_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, a lost laptop has names of files that hold nothing."""
    synced: list[bytes] = []
    sync = os.fsync

    def note(fd: int) -> None:
        sync(fd)
        synced.append((tmp_path / "part").read_bytes())

    monkeypatch.setattr(os, "fsync", note)
    write_part(str(tmp_path / "part"), [b"all ", b"of it"], 5)
    assert synced == [b"all of it"]
    assert (tmp_path / "part").stat().st_mtime_ns == 5


def test_pieces_are_hashed_from_memory_in_their_turn_and_the_rest_from_the_file(
    tmp_path: Path,
) -> None:
    part = PartFile(str(tmp_path / "part"), 12)
    part.write_chunks(0, [b"abcdefghijkl"])
    part.hash_piece(0, 0, memoryview(b"ab"))
    part.hash_piece(4, 4, memoryview(b"never looked at: it is not its turn"))
    part.mark_range(0, 4)
    part.mark_range(4, 8)
    part.hash_good_ranges()
    part.hash_piece(8, 8, memoryview(b"ijkl"))
    assert part.full_digest() == hashlib.sha256(b"abcdefghijkl").hexdigest()
    part.close()


def test_what_was_hashed_of_a_range_that_broke_off_is_forgotten(tmp_path: Path) -> None:
    """The hash is that of what stands in the file, though the range came as other bytes the second time."""
    part = PartFile(str(tmp_path / "part"), 8)
    part.write_chunks(0, [b"abcdXY"])
    part.hash_piece(0, 0, memoryview(b"abcd"))
    part.mark_range(0, 4)
    part.hash_piece(4, 4, memoryview(b"XY"))
    part.undo_hashing(4)
    part.write_chunks(4, [b"efgh"])
    part.hash_piece(4, 4, memoryview(b"efgh"))
    part.mark_range(4, 8)
    part.hash_good_ranges()
    assert part.full_digest() == hashlib.sha256(b"abcdefgh").hexdigest()
    part.close()


def test_it_is_hashed_anew_where_another_stream_had_gone_on_behind_it(tmp_path: Path) -> None:
    part = PartFile(str(tmp_path / "part"), 12)
    part.write_chunks(0, [b"abcdWXYZijkl"])
    part.mark_range(0, 4)
    part.hash_good_ranges()
    part.hash_piece(4, 4, memoryview(b"WXYZ"))
    part.hash_piece(8, 8, memoryview(b"ijkl"))
    part.mark_range(8, 12)
    part.undo_hashing(4)
    part.write_chunks(4, [b"efgh"])
    part.mark_range(4, 8)
    part.hash_good_ranges()
    assert part.full_digest() == hashlib.sha256(b"abcdefghijkl").hexdigest()
    part.close()
