"""The disk refuses, comes back, the box reboots, the clock jumps: what was recorded stays whole and in order."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from rgt_box.recorder import ring, state_files
from rgt_box.recorder import ring as rings
from rgt_box.recorder import ring_history as stores
from rgt_box.recorder.daemon import comparable_state, transitions
from rgt_box.recorder.ring_history import ChainReader, HistoryStore, HistorySummary

BOOT = "boot-1"


class Disk:
    """A disk that can be told to refuse."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: int | None = None
        self._folder = str(folder)
        monkeypatch.setenv("RGT_RAM_DIR", str(folder.parent / "memory"))
        monkeypatch.setenv("RGT_RING_BYTES", str(8 * rings.MIN_SEGMENT))
        monkeypatch.setattr(stores, "RETRY", 0.0)
        (folder.parent / "memory").mkdir()
        pwrite, opened = os.pwrite, os.open

        def guarded_write(fd: int, data: Any, offset: int) -> int:
            self._check(os.readlink(f"/proc/self/fd/{fd}"))
            return pwrite(fd, data, offset)

        def guarded_open(path: str, flags: int, *rest: Any, **named: Any) -> int:
            if flags & (os.O_RDWR | os.O_WRONLY):
                self._check(path)
            return opened(path, flags, *rest, **named)

        monkeypatch.setattr(os, "pwrite", guarded_write)
        monkeypatch.setattr(os, "open", guarded_open)

    def _check(self, path: Any) -> None:
        if self.error is not None and str(path).startswith(self._folder):
            raise OSError(self.error, os.strerror(self.error))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "state").mkdir()
    return Disk(tmp_path / "state", monkeypatch)


def write(store: HistoryStore, count: int) -> None:
    for _ in range(count):
        store.append_frame(ring.SAMPLE, {"t": "sample", "x": "x" * 90})


def seqs(reader: ChainReader) -> list[int]:
    found: list[int] = []
    while True:
        records = reader.read_records()
        if not records:
            return found
        assert all(record.skipped == 0 for record in records)
        found += [json.loads(record.payload)["seq"] for record in records]


def reader_at(folder: Path, boot: str | None = BOOT, seq: int = 0) -> ChainReader:
    reader = ChainReader(str(folder))
    reader.seek_after(boot, seq)
    return reader


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_nothing_is_lost_while_the_disk_refuses_nor_when_it_takes_again(
    disk: Disk, tmp_path: Path, error: int
) -> None:
    state = tmp_path / "state"
    store, live = HistoryStore(str(state), BOOT), reader_at(state)
    found: list[int] = []
    for turn in range(3):
        write(store, 10)
        found += seqs(live)
        disk.error = error
        write(store, 10)
        found += seqs(live)
        assert seqs(reader_at(state)) == list(range(1, 20 * turn + 21))
        disk.error = None
    write(store, 5)
    found += seqs(live)
    assert found == list(range(1, 66))
    assert seqs(reader_at(state)) == found
    assert [kind for kind, _, _ in store.news] == ["history-in-memory", "history-on-disk"] * 3
    memory = state_files.memory_folder(str(state))
    assert memory is not None
    assert not os.path.exists(os.path.join(memory, state_files.RING))


def test_a_recorder_that_begins_and_ends_beside_a_refusing_disk_hands_its_records_on(
    disk: Disk, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    write(HistoryStore(str(state), BOOT), 4)
    disk.error = errno.EROFS
    write(HistoryStore(str(state), BOOT), 4)
    write(HistoryStore(str(state), BOOT), 4)
    assert seqs(reader_at(state, None)) == list(range(1, 13))
    disk.error = None
    store = HistoryStore(str(state), "boot-2")
    assert store.last_boot == BOOT
    write(store, 2)
    assert seqs(reader_at(state)) == [*range(1, 13), 1, 2]


def test_a_disk_that_refuses_again_while_it_takes_over_costs_nothing(
    disk: Disk, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    store, live = HistoryStore(str(state), BOOT), reader_at(state)
    disk.error = errno.ENOSPC
    write(store, 20)
    writes = 0
    check = disk._check

    def fail_later(path: Any) -> None:
        nonlocal writes
        writes += 1
        disk.error = errno.ENOSPC if 7 < writes < 15 else None
        check(path)

    disk._check = fail_later  # type: ignore[method-assign]
    found: list[int] = []
    for _ in range(12):
        write(store, 3)
        found += seqs(live)
    assert found == list(range(1, 57))
    assert store.trouble is None
    assert seqs(reader_at(state)) == found


def test_the_memory_of_another_user_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGT_RAM_DIR", str(tmp_path))
    made = state_files.memory_folder("/x", make=True)
    assert made is not None
    os.chmod(made, 0o777)
    assert state_files.memory_folder("/x", make=True) is None


def sample(seq: int, up: float, at: float, util: float, boot: str = BOOT) -> dict[str, Any]:
    gpus = [{"index": 0, "util": util, "vram_used": 1, "vram_total": 4}]
    disks = [{"mount": "/", "bytes_used": 3, "bytes_total": 4}]
    fields = {"gpus": gpus, "mem": {"used": 5, "cache": 3, "limit": 10}, "disks": disks}
    return {"boot": boot, "seq": seq, "at": at, "session": {"uptime_s": up}} | fields


@pytest.mark.parametrize("jump", [0.0, 3600.0, -3600.0])
def test_the_past_is_summed_up_by_a_clock_that_does_not_jump(jump: float) -> None:
    summary = HistorySummary(40.0, 4)
    for second in range(100):
        at = 1000.0 + second + (jump if second >= 70 else 0.0)
        summary.add_sample(sample(second + 1, 500.0 + second, at, float(second)))
    frame = summary.build_frame()
    assert (frame["boot"], frame["seq"], frame["width"]) == (BOOT, 100, 10.0)
    assert frame["names"] == ["cgroup", "disk:/", "util", "vram"]
    util = frame["names"].index("util")
    assert [row[1] for row in frame["rows"]] == [10, 10, 10, 10]
    assert [row[2][util] for row in frame["rows"]] == [
        [n, n + 4.5, n + 9] for n in (60, 70, 80, 90)
    ]
    assert frame["rows"][0][2][0] == [20, 20, 20]


def test_time_without_a_recorder_is_shown_as_such_and_a_reboot_goes_on() -> None:
    summary = HistorySummary(60.0, 6)
    summary.add_sample(sample(1, 100.0, 1000.0, 1.0))
    summary.add_sample(sample(1, 5.0, 1035.0, 2.0, boot="boot-2"))
    assert [row[1] for row in summary.build_frame()["rows"]] == [1, 0, 0, 1]


def test_a_clock_that_is_set_is_noticed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = state_files.ClockWatch()
    assert watch.read_jump() == 0.0
    real = time.time
    for jump in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        assert watch.read_jump() == pytest.approx(jump, abs=1.0) or jump < 0
        assert watch.read_jump() == 0.0


def test_a_stop_between_two_clocks_is_no_clock_that_was_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = state_files.ClockWatch()
    real, stops = time.clock_gettime, iter([60.0])
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + next(stops, 0.0))
    assert watch.read_jump() == 0.0


def cell(
    name: str, state: str, attempts: int = 0, started: float = 0.0, ended: float = 0.0, **more: Any
) -> Any:
    return {
        "name": name,
        "state": state,
        "attempts": attempts,
        "started": started,
        "ended": ended,
    } | more


def test_cells_are_told_in_the_order_in_which_it_happened() -> None:
    old = [cell("a", "running", 1, 10.0), cell("b", "waiting"), cell("c", "waiting")]
    new = [
        cell("a", "failed", 1, 10.0, 20.0, reason="out of memory", exit_code=137),
        cell("b", "done", 2, 25.0, 30.0, exit_code=0),
        cell("c", "running", 1, 31.0),
        cell("d", "waiting"),
    ]
    before, after = ({"cells": cells, "done": False} for cells in (old, new))
    found = transitions(comparable_state(before), comparable_state(after), new)
    assert [(kind, text) for kind, text, _ in found] == [
        ("cell-failed", "a: failed, out of memory, exit 137"),
        ("cell-running", "b: running, attempt 2"),
        ("cell-done", "b: done, exit 0"),
        ("cell-running", "c: running, attempt 1"),
    ]
    assert found[0][2] == "error"
    again = transitions(comparable_state(after), comparable_state(after | {"done": True}), new)
    assert [kind for kind, _, _ in again] == ["queue-done"]
