"""What one rgt copies is seen by another: while it goes on, when it has ended, and when it was killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rgt_tui.fleet import KEPT, DiaryPage, TransferNote, noted_transfer, read_notes, transfer_diary
from rgt_tui.transfer.copying import PullProgress
from tests.process.box.harness import until

CHILD = """
import asyncio, sys
from rgt_tui.fleet import transfer_diary
from rgt_tui.transfer.copying import PullProgress

transfer_diary.EVERY_SECONDS = 0.01

async def main():
    async with transfer_diary.noted_transfer("lab", "pull", ("/w/\\x1b[31m",), "/home/me/pulled") as page:
        page.record_progress(PullProgress(
            phase="pulling", bytes=100, bytes_done=40, rate=5.0, eta=12.0, path="a\\udcff.pt"
        ))
        print("told", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        page.record_result("3 files verified", whole=True)

asyncio.run(main())
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}


def child(env: dict[str, str]) -> subprocess.Popen[str]:
    found = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert found.stdout is not None and found.stdout.readline() == "told\n"
    return found


def test_another_process_is_seen_and_how_it_ended(env: dict[str, str]) -> None:
    process = child(env)
    # One whose writer is held up in the middle of it is not there.
    note = until(
        lambda: next((note for note in read_notes(env) if note.look is not None), None), "its look"
    )
    assert note.under_way and not note.ours and note.pid == process.pid
    assert (note.box, note.kind, note.to) == ("lab", "pull", "/home/me/pulled")
    assert note.look is not None and (note.look.bytes_done, note.look.eta) == (40, 12.0)
    assert "\x1b" not in note.paths[0] and "\udcff" not in note.look.path
    process.communicate("\n", timeout=60)
    (note,) = read_notes(env)
    assert (note.under_way, note.whole, note.text, note.cut_off) == (
        False,
        True,
        "3 files verified",
        False,
    )


def test_one_that_was_killed_is_cut_off_and_not_under_way(env: dict[str, str]) -> None:
    process = child(env)
    process.kill()
    process.communicate(timeout=60)
    (note,) = read_notes(env)
    assert note.cut_off and not note.under_way and note.whole is None and note.ended_at is None


async def test_what_fails_or_is_stopped_says_so(env: dict[str, str]) -> None:
    with pytest.raises(OSError, match="no route"):
        async with noted_transfer("lab", "push code", env=env):
            raise OSError("no route to the box")
    with pytest.raises(asyncio.CancelledError):
        async with noted_transfer("lab", "pull", env=env):
            raise asyncio.CancelledError
    stopped, failed = read_notes(env)
    assert (stopped.text, stopped.whole) == ("stopped", False)
    assert (failed.text, failed.whole, failed.ours) == ("no route to the box", False, True)


def test_a_push_has_a_pace_and_an_end_that_comes_nearer() -> None:
    clock = iter((0.0, 10.0))
    note = TransferNote(box="lab", kind="push data", began_at=0.0, told_at=0.0, pid=1)
    page = DiaryPage(note, lambda: next(clock))
    page.record_push_progress(0, 1000)
    page.record_push_progress(200, 1000)
    assert page.note.look == PullProgress(
        phase="pushing", bytes=1000, bytes_done=200, rate=20.0, eta=40.0
    )
    page.record_result("1 file", whole=True, to="/root/data")
    assert (page.note.to, page.note.under_way) == ("/root/data", False)


async def test_the_oldest_are_forgotten_but_none_that_goes_on(env: dict[str, str]) -> None:
    async with noted_transfer("first", "pull", env=env):
        for number in range(KEPT + 3):
            async with noted_transfer(f"box{number}", "pull", env=env) as page:
                page.record_result("3 files", whole=True)
        notes = read_notes(env)
        assert notes[0].box == f"box{KEPT + 2}" and notes[-1].box == "first" and notes[-1].under_way
        assert len(notes) <= KEPT + 1


async def test_a_disk_that_takes_no_note_hinders_nothing(
    env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rgt").mkdir()
    (tmp_path / "rgt" / "transfers").write_text("in the way")
    async with noted_transfer("lab", "pull", env=env) as page:
        page.record_result("3 files", whole=True)


async def test_a_note_that_is_being_written_is_looked_at_again(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with noted_transfer("lab", "pull", env=env):
        (path,) = (tmp_path / "rgt" / "transfers").glob("*.json")
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 2:
                path.write_bytes(whole)

        monkeypatch.setattr(time, "sleep", wait)
        assert [note.box for note in read_notes(env)] == ["lab"]
        assert len(waits) == 2
        path.write_bytes(b"{")
        assert read_notes(env) == () and len(waits) == 2 + transfer_diary.LOOKS


def test_damaged_and_foreign_files_are_left_out(env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "rgt" / "transfers"
    assert read_notes(env) == ()
    folder.mkdir(parents=True)
    (folder / "1.json").write_bytes(b"\xff{")
    (folder / "2.json").write_text("[" * 5000)
    os.mkfifo(folder / "3.json")
    (folder / "4.json").symlink_to("/dev/zero")
    assert read_notes(env) == ()
