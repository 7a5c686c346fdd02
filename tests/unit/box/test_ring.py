from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rgt_box.recorder import ring as rings
from rgt_box.recorder.ring import MIN_SEGMENT, HistoryRing, RingReader

BOOT = "boot-1"


def open_ring(folder: Path, boot: str = BOOT, size: int = 4 * MIN_SEGMENT) -> HistoryRing:
    return HistoryRing(str(folder), boot, size)


def write(ring: HistoryRing, count: int, padding: int = 0, kind: bytes = rings.SAMPLE) -> None:
    for _ in range(count):
        ring.append_frame(kind, {"t": "sample", "x": "x" * padding})


def drain(reader: RingReader) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    while True:
        records = reader.read_records()
        if not records:
            return found
        for record in records:
            payload = json.loads(record.payload)
            assert (payload["boot"], payload["seq"]) == (record.boot, record.seq)
        found += [(record.boot, record.seq, record.skipped) for record in records]


def seqs(found: list[tuple[str, int, int]]) -> list[int]:
    return [seq for _, seq, _ in found]


def reader_at(folder: Path, boot: str | None, seq: int) -> RingReader:
    reader = RingReader(str(folder))
    reader.seek_after(boot, seq)
    return reader


def test_records_come_back_in_order_after_any_cursor(tmp_path: Path) -> None:
    write(open_ring(tmp_path), 300, padding=200)
    for after in (0, 1, 150, 299, 300):
        assert seqs(drain(reader_at(tmp_path, BOOT, after))) == list(range(after + 1, 301))


def test_without_a_cursor_only_the_newest_history_comes(tmp_path: Path) -> None:
    write(open_ring(tmp_path), 300)
    assert seqs(drain(reader_at(tmp_path, None, 0))) == list(range(301 - rings.HISTORY, 301))


def test_a_reader_follows_the_writer_through_segments(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    reader = reader_at(tmp_path, None, 0)
    found: list[int] = []
    for _ in range(100):
        write(ring, 7, padding=500)
        found += seqs(drain(reader))
    assert found == list(range(1, 701))


def test_the_ring_is_bounded_and_what_it_lost_is_counted(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    reader = reader_at(tmp_path, BOOT, 0)
    write(ring, 2000, padding=500)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4 * MIN_SEGMENT
    for each in (reader, reader_at(tmp_path, BOOT, 3)):
        each_found = drain(each)
        first = each_found[0]
        assert first[2] == first[1] - (1 if each is reader else 4)
        assert seqs(each_found) == list(range(first[1], 2001))


def test_a_reader_that_is_overtaken_while_it_reads_goes_on_with_what_is_left(
    tmp_path: Path,
) -> None:
    ring = open_ring(tmp_path)
    write(ring, 100, padding=500)
    reader = reader_at(tmp_path, BOOT, 0)
    found = [(record.boot, record.seq, record.skipped) for record in reader.read_records(2000)]
    write(ring, 1000, padding=500)
    found += drain(reader)
    assert sum(skipped for _, _, skipped in found) + len(found) == 1100
    assert seqs(found) == sorted(set(seqs(found)))


def test_the_sequence_goes_on_after_a_restart(tmp_path: Path) -> None:
    for _ in range(5):
        ring = open_ring(tmp_path)
        write(ring, 10)
        ring.close()
    assert seqs(drain(reader_at(tmp_path, BOOT, 0))) == list(range(1, 51))


def test_a_new_boot_counts_anew_and_old_records_stay(tmp_path: Path) -> None:
    write(open_ring(tmp_path), 5)
    ring = open_ring(tmp_path, "boot-2")
    assert ring.last_boot == BOOT
    write(ring, 3)
    expected = [(BOOT, 4, 0), (BOOT, 5, 0), ("boot-2", 1, 0), ("boot-2", 2, 0), ("boot-2", 3, 0)]
    assert drain(reader_at(tmp_path, BOOT, 3)) == expected


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_record_is_dropped_and_overwritten(tmp_path: Path, cut: int) -> None:
    ring = open_ring(tmp_path)
    write(ring, 3)
    position, (number,) = ring._position, rings.segment_numbers(str(tmp_path))
    record = rings.encode_record(number, rings.SAMPLE, 4, b'{"t":"sample","boot":"boot-1","seq":4}')
    with open(rings.segment_path(str(tmp_path), number), "r+b") as file:
        file.seek(position)
        file.write(record[: min(cut, len(record) - 1)])
    reader = reader_at(tmp_path, BOOT, 0)
    assert seqs(drain(reader)) == [1, 2, 3]
    ring = open_ring(tmp_path)
    assert ring.last_seq == 3
    write(ring, 2)
    assert seqs(drain(reader)) == [4, 5]


def test_what_a_recycled_file_held_before_never_comes_back(tmp_path: Path) -> None:
    ring = open_ring(tmp_path, size=2 * MIN_SEGMENT)
    write(ring, 600, padding=300)
    found = seqs(drain(reader_at(tmp_path, BOOT, 0)))
    assert found == list(range(found[0], 601))


def test_the_segment_that_died_between_rename_and_header_is_passed_over(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    write(ring, 3)
    number = rings.segment_numbers(str(tmp_path))[-1]
    (tmp_path / "spare-000002").rename(rings.segment_path(str(tmp_path), number + 1)) if (
        tmp_path / "spare-000002"
    ).exists() else rings.allocate_file(rings.segment_path(str(tmp_path), number + 1), MIN_SEGMENT)
    reader = reader_at(tmp_path, BOOT, 0)
    assert seqs(drain(reader)) == [1, 2, 3]
    ring = open_ring(tmp_path)
    write(ring, 2)
    assert seqs(drain(reader)) == [4, 5]


def test_numbers_that_a_client_has_seen_are_not_used_again(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    write(ring, 2)
    ring.skip_to(50)
    write(ring, 1)
    assert drain(reader_at(tmp_path, BOOT, 50)) == [(BOOT, 51, 0)]


def test_a_cursor_of_an_unknown_boot_gets_what_there_is(tmp_path: Path) -> None:
    write(open_ring(tmp_path), 3)
    assert seqs(drain(reader_at(tmp_path, "boot-0", 77))) == [1, 2, 3]


def test_a_disk_that_fills_up_while_the_ring_grows_makes_a_smaller_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def allocate(path: str, size: int) -> None:
        if len(made) >= 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        made.append(path)
        Path(path).write_bytes(b"\0" * size)

    monkeypatch.setattr(rings, "allocate_file", allocate)
    ring = open_ring(tmp_path, size=16 * MIN_SEGMENT)
    while ring.add_segment():
        pass
    write(ring, 1000, padding=300)
    assert len(list(tmp_path.iterdir())) == 2
    assert seqs(drain(reader_at(tmp_path, BOOT, 990))) == list(range(991, 1001))


def test_no_room_for_even_one_segment_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(path: str, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rings, "allocate_file", allocate)
    with pytest.raises(OSError, match="No space"):
        open_ring(tmp_path)


def test_a_frame_that_cannot_fit_is_refused(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    with pytest.raises(ValueError, match="does not fit"):
        write(ring, 1, padding=MIN_SEGMENT)
    write(ring, 1)
    assert ring.last_seq == 1


def test_a_foreign_or_broken_line_is_no_record() -> None:
    good = rings.encode_record(7, rings.EVENT, 3, b"{}")
    assert rings.decode_record(7, good[:-1]) == (rings.EVENT, 3, b"{}")
    broken: list[Any] = [
        (8, good[:-1]),
        (7, good[:-2]),
        (7, b""),
        (7, b"zzzzzzzz S 1 {}"),
        (7, b"00000000"),
    ]
    for number, line in broken:
        assert rings.decode_record(number, line) is None


def test_a_spare_segment_for_which_there_is_no_room_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a spare would be taken for a whole one by the next recorder, and overrun the disk at the worst time."""
    ring = open_ring(tmp_path)
    assert ring.add_segment() is True
    real = rings.allocate_file

    def allocate(path: str, size: int) -> None:
        real(path, size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rings, "allocate_file", allocate)
    before = sorted(os.listdir(tmp_path))
    assert ring.add_segment() is False
    assert sorted(os.listdir(tmp_path)) == before
    monkeypatch.setattr(
        rings, "allocate_file", lambda *_: pytest.fail("the disk is full: it is not tried again")
    )
    assert ring.add_segment() is False
    write(ring, 200, 1000)  # it goes on in what it has
    ring.close()
    assert {os.path.getsize(tmp_path / name) for name in os.listdir(tmp_path)} == {MIN_SEGMENT}
    found = drain(reader_at(tmp_path, BOOT, 0))
    assert found[-1][1] == 200
    assert seqs(found) == list(range(found[0][1], 201))


def test_a_ring_of_events_alone_is_gone_on_with_and_holds_one_file_open(tmp_path: Path) -> None:
    ring = open_ring(tmp_path)
    write(ring, 3, kind=rings.EVENT)
    ring.close()
    ring = open_ring(tmp_path)
    assert (ring.last_seq, ring.last_sample) == (3, {})
    before = len(os.listdir("/proc/self/fd"))
    write(ring, 300, 1000, rings.EVENT)  # through several segments
    assert len(os.listdir("/proc/self/fd")) <= before  # garbage of other tests may close some
    ring.close()


def test_who_follows_the_ring_reads_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, read = open_ring(tmp_path), [0]
    reader = reader_at(tmp_path, BOOT, 0)
    really = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        data = really(fd, size, at)
        read[0] += len(data)
        return data

    monkeypatch.setattr(os, "pread", pread)
    for padding in (10, 3000, 15000):  # the last one is longer than what is read first
        write(ring, 1, padding)
        assert len(drain(reader)) == 1
    read[0] = 0
    assert drain(reader) == []
    assert 0 < read[0] < MIN_SEGMENT / 2, (
        "the rest of a segment is read for nothing, several times a second"
    )
