"""A recording whose disk fills up ends with a whole line, says so, and plays up to there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt_tui.model.box import BoxSpec
from rgt_tui.recordings import FULL, LineFile, Recorder, ReplayFleet

SPEC = BoxSpec(name="a", host="h")


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
async def test_a_full_disk_ends_the_recording_and_spoils_nothing(
    small_disk: Callable[[str], Path], name: str
) -> None:
    path = small_disk("128k") / name
    recorder = Recorder(LineFile(path), [SPEC], 1000.0)
    number = 0
    async with asyncio.timeout(60):
        while not recorder.failed.is_set():
            number += 1
            line = (
                f'{{"t":"sample","boot":"b","seq":{number},"at":{1000 + number},"x":"{hash((number, 7)):x}"}}'
            )
            recorder.tap("a", 1000.0 + number, line.encode())
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
