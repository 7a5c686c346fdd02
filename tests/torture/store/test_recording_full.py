"""A recording whose disk fills up ends with a whole line, says so, and plays up to there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.model import BoxSpec
from rgt_tui.recordings import FULL, FleetRecorder, LineFile, ReplayFleet
from rgt_tui.recordings.recording_writer import MOST_AT_ONCE

SPEC = BoxSpec(name="a", host="h")


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
async def test_a_full_disk_ends_the_recording_and_spoils_nothing(
    small_disk: Callable[[str], Path], name: str
) -> None:
    path = small_disk("128k") / name
    recorder = FleetRecorder(LineFile(path), [SPEC], 1000.0)
    number = 0
    async with asyncio.timeout(60):
        while not recorder.failed.is_set():
            number += 1
            line = f'{{"t":"sample","boot":"b","seq":{number},"at":{1000 + number},"x":"{hash((number, 7)):x}"}}'
            recorder.record_line("a", 1000.0 + number, line.encode())
            await asyncio.sleep(0)
    assert recorder.failure is not None
    assert str(recorder.failure).startswith(f"{path} ends here: the disk is full")
    await recorder.close()
    fleet = ReplayFleet(path, speed=FULL)
    await fleet.start()
    await asyncio.wait_for(fleet.over.wait(), 60)
    await fleet.stop()
    counters = fleet.state.boxes[0].counters
    assert counters.samples > 100
    assert (counters.gaps, counters.duplicates) == (0, 0)
    assert all(item.torn for item in fleet.skipped)


async def test_what_waits_is_written_in_small_pieces_so_that_a_full_disk_takes_what_fits(
    tmp_path: Path,
) -> None:
    """A disk that held up the writer got all that had waited in one piece, and took none of it: no header."""
    held, sizes = threading.Event(), []

    class Slow(LineFile):
        def append_lines(self, lines: bytes) -> None:
            sizes.append(len(lines))
            assert held.wait(60)
            super().append_lines(lines)

    recorder = FleetRecorder(Slow(tmp_path / "r.jsonl"), [SPEC], 1000.0)
    line = b'{"t":"sample","boot":"b","seq":1,"at":1001,"x":"%s"}' % (b"x" * 1000)
    for _ in range(200):
        recorder.record_line("a", 1001.0, line)
    held.set()
    await recorder.close()
    assert sum(sizes) > 200_000
    assert max(sizes) < 2 * MOST_AT_ONCE
