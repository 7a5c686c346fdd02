"""A recording whose file can no longer be written ends, and says so."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rgt_tui.model import BoxSpec
from rgt_tui.recordings import FleetRecorder, LineFile, RecordFailed, RecordingReader
from rgt_tui.recordings import recording_writer as module

LINE = b'{"t":"sample","boot":"b","seq":1,"at":1.0,"x":"%s"}' % (b"x" * 1000)


class Told(LineFile):
    """Says when something was written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.wrote = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def append_lines(self, lines: bytes) -> None:
        super().append_lines(lines)
        self._loop.call_soon_threadsafe(self.wrote.set)


@pytest.fixture
async def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FleetRecorder]:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.0)
    file = Told(tmp_path / "r.jsonl")
    recorder = FleetRecorder(file, [BoxSpec(name="a", host="h")], 1.0)
    await asyncio.wait_for(file.wrote.wait(), 90)  # the header is there
    yield recorder
    await recorder.close()


def instead(recorder: FleetRecorder, fd: int) -> None:
    """Let the recorder's file be another one from now on."""
    os.dup2(fd, recorder._file._fd)
    os.close(fd)


async def ended(recorder: FleetRecorder) -> str:
    async with asyncio.timeout(90):
        await recorder.failed.wait()
    return str(recorder.failure)


async def test_a_disk_that_cannot_even_be_cut_back_is_said(
    recorder: FleetRecorder, tmp_path: Path
) -> None:
    instead(recorder, os.open("/dev/full", os.O_WRONLY))
    recorder.record_line("a", 2.0, LINE)
    path = tmp_path / "r.jsonl"
    assert (
        await ended(recorder)
        == f"{path} ends here: the disk is full. What it holds can be replayed"
    )
    RecordingReader(path).close()


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_recording_without_a_line_holds_nothing_and_stands_in_nobodys_way(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    for _ in range(2):
        file = LineFile(path)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, file._fd)
        os.close(full)
        with pytest.raises(RecordFailed) as failed:
            file.append_lines(LINE)
        assert str(failed.value) == f"{path}: the disk is full; nothing was written"
        with contextlib.suppress(RecordFailed):  # a device cannot be synced
            file.close()
        assert not path.exists()


async def test_a_fault_of_rgt_ends_it_too(
    recorder: FleetRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(lines: bytes) -> None:
        raise KeyError("lines")

    monkeypatch.setattr(recorder._file, "append_lines", fail)
    recorder.record_line("a", 2.0, LINE)
    assert "KeyError: 'lines'; this is a fault of rgt" in await ended(recorder)


async def test_a_disk_that_hangs_makes_no_heap_and_holds_nobody_up(
    recorder: FleetRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3 << 20)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    other, pipe = os.pipe()
    instead(recorder, pipe)  # nobody reads: it takes 64 KiB
    for _ in range(4000):
        recorder.record_line("a", 2.0, LINE)
    assert "the disk does not keep up, 3 MiB wait to be written" in str(recorder.failure)
    assert recorder._lines.qsize() < 3200
    assert recorder.failed.is_set()
    await recorder.close()
    assert recorder._thread.is_alive()
    os.close(other)
    await asyncio.to_thread(recorder._thread.join, 90)
    assert not recorder._thread.is_alive()


async def test_an_end_that_hangs_is_said(
    recorder: FleetRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    other, pipe = os.pipe()
    instead(recorder, pipe)
    for _ in range(200):
        recorder.record_line("a", 2.0, LINE)
    await recorder.close()
    assert "the disk has not answered for 0 s" in str(recorder.failure)
    os.close(other)
    await asyncio.to_thread(recorder._thread.join, 90)


def test_an_end_that_does_not_reach_the_disk_is_said(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "r.jsonl.gz")
    file.append_lines(b"{}\n")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file._fd)
    os.close(full)
    with pytest.raises(RecordFailed, match="ends here: the disk is full"):
        file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file._fd)
