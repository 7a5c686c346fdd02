"""The transfers of this rgt: how far, how fast, how they ended, and how they go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot

from rgt_tui.fleet import PullResult, TransferNote
from rgt_tui.model import CopyProgram, LinkState, Sample
from rgt_tui.transfer.copying import PullProgress
from rgt_tui.ui import BoxPull, RgtApp
from rgt_tui.ui.screens import (
    BoxScreen,
    TransfersScreen,
    entry_details,
    from_note,
    pull_row,
    silent_for,
    state_of,
)
from rgt_tui.ui.widgets import Tone, text_of, width_of
from tests.ui.boxes import cell, queue
from tests.ui.fakes import GIB, NOW, FakeFleet
from tests.ui.snap import running, screen_text, settle, until

LOOK = PullProgress(
    phase="pulling",
    files=214,
    files_done=131,
    bytes=38 * GIB,
    bytes_done=24 * GIB,
    rate=312e6,
    eta=45.0,
    path="a/b.pt",
)


@pytest.mark.parametrize(
    ("pull", "words"),
    [
        (BoxPull(("/w",), began_at=NOW), ("●", "connecting")),
        (
            BoxPull(("/w",), progress=LOOK),
            (
                "pulling",
                "63%",
                "25.8 GB of 40.8 GB",
                "131 of 214 files",
                "312 MB/s",
                "45s left",
                "0 refused",
            ),
        ),
        (
            BoxPull(("/w",), end=PullResult(whole=True, text="3 files"), ended_at=NOW),
            ("✔", "complete", "3 files"),
        ),
        (
            BoxPull(("/w",), end=PullResult(whole=False, text="lost"), ended_at=NOW),
            ("✖", "incomplete", "lost"),
        ),
        (
            BoxPull(("/w",), end=PullResult(whole=False, text="x"), stopped=True, ended_at=NOW),
            ("▲", "stopped"),
        ),
    ],
)
def test_a_pull_in_one_line(pull: BoxPull, words: tuple[str, ...]) -> None:
    text = text_of(pull_row("lab\x1b[31m", pull, 6, NOW))
    assert all(word in text for word in words), text
    assert "\x1b" not in text


def test_refused_files_are_loud_and_an_unknown_speed_is_said() -> None:
    row = pull_row(
        "lab", BoxPull((), progress=PullProgress(phase="pulling", bytes=10, problems=2)), 3, NOW
    )
    assert "2 problems" in text_of(row) and "speed unknown yet" in text_of(row)
    assert state_of(BoxPull(()))[2] == "connecting"


def without_copies(fleet: FakeFleet) -> None:
    """Let no cell have a durable copy."""
    for box in fleet.state.boxes:
        fleet.change(box.spec.name, queues=())


async def test_transfers_are_stopped_resumed_copied_and_opened(state_home: Path) -> None:
    fleet = FakeFleet()
    fleet.pull_looks, fleet.pull_gate = (LOOK,), asyncio.Event()
    without_copies(fleet)
    async with running(fleet, size=(140, 30)) as (app, pilot, _):
        await pilot.press("x", "s", "Y", "r")
        await pilot.pause()
        assert isinstance(app.screen, TransfersScreen)
        assert "nothing has been copied yet" in screen_text(app)
        app.pulls.start(fleet, "vast-demo", ("/workspace",))
        await until(pilot, lambda: "63%" in screen_text(app))
        text = screen_text(app)
        assert "1 under way" in text and "of     /workspace" in text and "a/b.pt" in text
        await pilot.press("r")
        await pilot.pause()
        assert "it is in progress" in screen_text(app)
        await pilot.press("Y")
        await pilot.pause()
        assert "needs no answer" in screen_text(app)
        await pilot.press("s")
        await settle(pilot)
        assert fleet.pulls_stopped == 1
        assert "r pulls again" in screen_text(app) or "the next pull resumes" in screen_text(app)
        await pilot.press("y")
        await pilot.pause()
        assert "vast-demo: /workspace:" in (state_home / "copied.txt").read_text()
        fleet.pull_gate.set()
        fleet.advance(60)
        await pilot.press("r")
        await settle(pilot)
        assert fleet.pulls == [("vast-demo", ("/workspace",))] * 2
        assert "0 under way   2 ended" in screen_text(app)
        assert "3 files, 3.0 GB verified" in screen_text(app)
        fleet.pull_gate.clear()
        fleet.advance(60)
        app.pulls.start(fleet, "vast-demo", ("/other",))
        await until(pilot, lambda: "1 under way" in screen_text(app))
        await pilot.press("end", "r")
        await pilot.pause()
        assert "it is in progress" in screen_text(app), "one pull of a box at a time"
        fleet.pull_gate.set()
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)


def note(name: str, **changes: Any) -> TransferNote:
    base = TransferNote(
        box="vast-demo", kind="pull", paths=("/workspace",), to="/home/me/pulled", began_at=NOW - 600, pid=4321,
        told_at=NOW, name=name,
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def test_what_another_rgt_wrote_is_told_as_it_was_left() -> None:
    rows = {
        "pushing": note(
            "1", kind="push data", look=msgspec.structs.replace(LOOK, phase="pushing", files=0)
        ),
        "complete": note("2", ended_at=NOW - 3 * 86400, whole=True, text="214 files verified"),
        "cut off": note("3", cut_off=True, told_at=NOW - 7200),
        "stopped": note("4", ended_at=NOW - 5, whole=False, text="stopped"),
    }
    shown = {}
    for word, one in rows.items():
        entry = from_note(one)
        assert state_of(entry.pull)[2] == word
        shown[word] = text_of(pull_row(entry.box, entry.pull, 9, NOW, entry.kind))
    assert (
        "push data" in shown["pushing"]
        and "63%" in shown["pushing"]
        and "files" not in shown["pushing"]
    )
    assert "3d 0h ago" in shown["complete"] and "214 files verified" in shown["complete"]
    assert "2h00 ago" in shown["cut off"] and "its rgt was killed" in shown["cut off"]


def seen_copying(fleet: FakeFleet) -> Sample:
    """What autodl-demo would say while a program copies there, in a fleet where nothing else does."""
    without_copies(fleet)
    autodl = fleet.state.find_box("autodl-demo")
    assert autodl is not None and autodl.sample is not None
    return msgspec.structs.replace(autodl.sample, transfers=(CopyProgram(pid=77, name="rsync"),))


async def test_other_rgts_the_boxes_themselves_and_earlier_days_are_listed() -> None:
    fleet = FakeFleet()
    copying = seen_copying(fleet)
    waits = queue(
        cell(
            "gpt-a",
            "done",
            durable="verified",
            durable_path="/root/autodl-fs/runs/gpt-a",
            ended=NOW - 60,
        ),
        cell(
            "gpt-b",
            "failed",
            durable="failed",
            durable_path="/root/autodl-fs/runs/gpt-b",
            ended=NOW - 90,
        ),
        cell("gpt-c", "running", durable="pending", durable_path="/root/autodl-fs/runs/gpt-c"),
    )
    fleet.change("autodl-demo", sample=copying, queues=(waits,))
    fleet.notes = (
        note("1", kind="push code", look=LOOK),
        note("2", box="gone-box", ended_at=NOW - 86400, whole=True, text="3 files verified"),
    )
    async with running(fleet, size=(150, 30)) as (app, pilot, _):
        await pilot.press("x")
        await settle(pilot)
        text = screen_text(app)
        for words in ("2 under way   3 ended", "push code  ", "312 MB/s", "rsync, process 77", "1d 0h ago",
                      "result of gpt-a was copied to /root/autodl-fs/runs/gpt-a, read back and", "gone-box",
                      "result of gpt-b is NOT on /root/autodl-fs/runs/gpt-b"):  # fmt: skip
            assert words in text, text
        assert "of gpt-c" not in text
        keys: dict[str, str | None] = {"another": None, "is no box": None}
        await pilot.press("home")
        for _ in range(5):
            screen = app.screen
            assert isinstance(screen, TransfersScreen)
            picked = screen._find_picked()
            assert picked is not None
            if picked.key == "note\x001":
                await pilot.press("s")
                assert "process 4321 of this machine is doing it" in await hint_of(app, pilot)
                assert "to     /home/me/pulled" in screen_text(app)
                await pilot.press("r")
                assert "nothing to pull" in await hint_of(app, pilot), "it is a push"
                keys["another"] = picked.key
            if picked.box == "gone-box":
                await pilot.press("r")
                assert "gone-box is not a box of this fleet" in await hint_of(app, pilot)
                keys["is no box"] = picked.key
            await pilot.press("down")
            await pilot.pause()
        assert all(keys.values()), keys
        fleet.notes = OSError("Input/output error")
        fleet.advance(2)
        await settle(pilot)
        assert "transfers of others are unknown: Input/output error" in screen_text(app)


def test_of_a_pull_that_was_cut_off_it_is_said_how_far_it_came() -> None:
    """Its plan, *6 of 6 files*, is what there was to fetch."""
    cut = from_note(note("2", look=LOOK, plan="6 of 6 files, 40.8 GB", cut_off=True))
    text = "\n".join(map(text_of, entry_details(cut, 100, NOW)))
    assert "came   25.8 GB of 40.8 GB (maybe more)" in text
    done = from_note(note("3", look=LOOK, ended_at=NOW, whole=True, text="ok"))
    assert "came" not in "\n".join(map(text_of, entry_details(done, 100, NOW)))


async def test_what_copied_on_a_box_that_is_lost_is_not_said_to_go_on() -> None:
    fleet = FakeFleet()
    copying = seen_copying(fleet)
    fleet.change("autodl-demo", sample=copying, sample_at=NOW - 90, link=LinkState.UNREACHABLE)
    async with running(fleet, size=(150, 30), keys=("x",)) as (app, pilot, _):
        await settle(pilot)
        text = screen_text(app)
        assert "0 under way   1 unknown" in text, text
        assert (
            "· autodl-demo  unknown     on box     rsync, process 77 there; as of the last contact with"
            in text
        )
        assert "1m30 ago" in text
        fleet.change("autodl-demo", sample_at=NOW, link=LinkState.LIVE)
        await settle(pilot)
        assert "1 under way   " in screen_text(app)


async def hint_of(app: RgtApp, pilot: Pilot[None]) -> str:
    await pilot.pause()
    return screen_text(app)


def test_the_row_says_why_before_anything_that_could_be_cut_off() -> None:
    failed = BoxPull(
        ("/w",), end=PullResult(whole=False, text="no space left on this disk"), ended_at=NOW - 4000
    )
    row = text_of(pull_row("lab", failed, 3, NOW, width=80))
    assert row.index("no space left on this disk") < row.index(
        "1h06 ago"
    ) and row.rstrip().endswith("1h06 ago")
    tight = text_of(pull_row("lab", failed, 3, NOW, width=64))
    assert "no space left on this" in tight and "1h06 ago" in tight


def test_a_transfer_that_waits_says_so_in_its_row_at_every_width() -> None:
    entry = from_note(note("1", look=LOOK, told_at=NOW - 300))
    assert (
        silent_for(entry, NOW) == 300.0 and silent_for(from_note(note("2", look=LOOK)), NOW) == 0.0
    )
    for width in (60, 80, 120, 200):
        made = pull_row("lab", entry.pull, 3, NOW, width=width, silent=300.0)
        assert "no bytes for 5m00" in text_of(made) and width_of(made) <= width
        assert any(span.tone is Tone.WARN and "no bytes" in span.text for span in made)
    several = msgspec.structs.replace(LOOK, problems=3)
    assert "3 problems" in text_of(pull_row("lab", BoxPull((), progress=several), 3, NOW, width=64))
