"""The dialog that tries a fix: what only looks runs at once, a removal waits for its last word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from textual.widgets import Input

from rgt_tui.fleet import DiskFigures, FixRefused, NotOffered, OpenHandle, RemovalPreview
from rgt_tui.health import LookTrial, RemovalTrial
from rgt_tui.model import FixStep
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import FixTrialScreen
from tests.ui.boxes import NOW, demo_state, inode_finding, trouble_box
from tests.ui.fakes import FakeFleet
from tests.ui.snap import resize, running, screen_text, settle, until

PREVIEW = RemovalPreview(
    at=NOW,
    path="/workspace/.cache/viz",
    files=58_204,
    folders=12,
    bytes=228 << 20,
    inodes=58_216,
    oldest=NOW - 7200,
    newest=NOW - 3,
    owners={"root": 58_216},
    logs=0,
    checkpoints=0,
    refused=(),
    digest="d" * 64,
    open=(OpenHandle(pid=231, name="python", handles=1, writes=1),),
    disk=DiskFigures(
        bytes_total=100 << 30, bytes_used=63 << 30, inodes_total=65_536, inodes_used=65_536
    ),
)


class FakeTrials:
    """Answers as a box would."""

    def __init__(self) -> None:
        self.looks: list[LookTrial] = []
        self.removed: list[tuple[str, str]] = []
        self.preview: RemovalPreview | Exception = PREVIEW
        self.gate: asyncio.Event | None = None
        """Looking waits for it."""
        room = DiskFigures(
            bytes_total=100 << 30, bytes_used=62 << 30, inodes_total=65_536, inodes_used=7_320
        )
        self.end: RemovalPreview | Exception = replace(PREVIEW, removed=True, disk=room)

    async def run_look(self, trial: LookTrial, on_line: Callable[[str], None]) -> int:
        self.looks.append(trial)
        if self.gate is not None:
            await self.gate.wait()
        on_line(f"{trial.stages[0][0]} printed this")
        return 0

    async def preview_removal(self, trial: RemovalTrial) -> RemovalPreview:
        if isinstance(self.preview, Exception):
            raise self.preview
        return self.preview

    async def remove_previewed(self, preview: RemovalPreview, typed: str) -> RemovalPreview:
        self.removed.append((preview.path, typed))
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


class TrialFleet(FakeFleet):
    """A fleet whose boxes answer."""

    def __init__(self) -> None:
        super().__init__(demo_state(NOW))
        self.trials: FakeTrials | None = FakeTrials()

    def fix_trials(self, box: str) -> FakeTrials:  # type: ignore[override]
        assert box == "vast-demo"
        if self.trials is None:
            raise NotOffered
        return self.trials


def dialog(app: RgtApp) -> FixTrialScreen:
    assert isinstance(app.screen, FixTrialScreen)
    return app.screen


@pytest.mark.parametrize(
    "keys", [("exclamation_mark",), ("enter", "exclamation_mark"), ("a", "exclamation_mark")]
)
async def test_looking_runs_at_once_and_a_removal_is_previewed(keys: tuple[str, ...]) -> None:
    fleet = TrialFleet()
    assert fleet.trials is not None
    async with running(fleet, keys=keys) as (app, _, _):
        found = dialog(app)
        assert [one.stages[0][0] for one in fleet.trials.looks] == ["df", "ls"]
        assert found.awaited_step is found.trials[2]
        text = screen_text(app)
        for words in ("df printed this", "58,204 files", "pid 231 python writes 1 file", "no checkpoint",
                      "inodes 100% → 11%", "do not destroy", "type viz"):  # fmt: skip
            assert words in text, words
        assert fleet.trials.removed == []


async def test_only_the_last_word_removes() -> None:
    fleet = TrialFleet()
    assert fleet.trials is not None
    async with running(fleet, keys=("exclamation_mark",)) as (app, pilot, _):
        await pilot.press(*"cache", "enter")
        await settle(pilot)
        assert fleet.trials.removed == [] and "nothing was removed" in screen_text(app)
        await pilot.press(*"viz", "enter")
        await settle(pilot)
        assert fleet.trials.removed == [("/workspace/.cache/viz", "viz")]
        assert "removed; inodes 100% → 11%" in screen_text(app)
        assert dialog(app).awaited_step is None and not app.screen.query_one(Input).display
        await pilot.press("escape")
        assert not isinstance(app.screen, FixTrialScreen)


async def test_a_removal_does_not_end_the_steps_after_it() -> None:
    fleet = TrialFleet()
    assert fleet.trials is not None
    look, _, remove = inode_finding().fixes
    box = replace(trouble_box(), findings=(replace(inode_finding(), fixes=(remove, look)),))
    fleet.push(replace(fleet.state, boxes=(box,)))
    fleet.trials.gate = asyncio.Event()
    async with running(fleet) as (app, pilot, _):
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: dialog(app).trials[1].result == "running")
        await pilot.press(*"viz", "enter")
        await until(pilot, lambda: "removed; inodes" in screen_text(app))
        fleet.trials.gate.set()
        await until(pilot, lambda: dialog(app).trials[1].result == "")
        assert "df printed this" in screen_text(app)


async def test_a_removal_that_the_box_refuses_cannot_be_typed() -> None:
    fleet = TrialFleet()
    assert fleet.trials is not None
    fleet.trials.preview = replace(
        PREVIEW, checkpoints=2, refused=("2 files look like checkpoints",)
    )
    async with running(fleet, keys=("exclamation_mark",)) as (app, _, _):
        assert dialog(app).awaited_step is None
        assert "2 files look like checkpoints" in screen_text(app)


async def test_a_change_since_the_preview_shows_a_new_one() -> None:
    fleet = TrialFleet()
    assert fleet.trials is not None
    fleet.trials.end = FixRefused("it has changed since the preview: look again")
    async with running(fleet, keys=("exclamation_mark",)) as (app, pilot, _):
        fleet.trials.preview = replace(PREVIEW, files=3)
        await pilot.press(*"viz", "enter")
        await settle(pilot)
        assert "it has changed" in screen_text(app) and "3 files" in screen_text(app)
        assert dialog(app).awaited_step is not None


async def test_commands_that_are_no_steps_of_the_handbook_are_only_shown() -> None:
    fleet = TrialFleet()
    assert fleet.trials is not None
    steps = (FixStep("A", "reboot"), FixStep("B", "df -h -- '/a'; rm -rf /"), FixStep("C"))
    box = replace(trouble_box(), findings=(replace(inode_finding(), fixes=steps),))
    fleet.push(replace(fleet.state, boxes=(box,)))
    async with running(fleet, keys=("exclamation_mark",)) as (app, _, _):
        assert fleet.trials.looks == [] and dialog(app).awaited_step is None
        assert screen_text(app).count("copy it") == 2


async def test_boxes_that_cannot_be_asked_say_so() -> None:
    fleet = TrialFleet()
    fleet.trials = None
    async with running(fleet, keys=("exclamation_mark",)) as (app, _, _):
        assert "only a connected box" in screen_text(app)


async def test_a_box_without_a_finding_has_no_dialog() -> None:
    fleet = TrialFleet()
    fleet.push(replace(fleet.state, boxes=(replace(trouble_box(), findings=()),)))
    async with running(fleet, keys=("exclamation_mark",)) as (app, _, _):
        assert not isinstance(app.screen, FixTrialScreen)
        assert "no known fix" in screen_text(app)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 50)])
async def test_at_every_size_the_word_to_type_is_visible(size: tuple[int, int]) -> None:
    async with running(TrialFleet(), size=size, keys=("exclamation_mark",)) as (app, _, _):
        assert "type viz" in screen_text(app)
        assert "disk then" in screen_text(app), "and what the removal changes"


async def test_in_a_smaller_terminal_what_the_removal_changes_stays_in_sight() -> None:
    async with running(TrialFleet(), size=(120, 50), keys=("exclamation_mark",)) as (app, pilot, _):
        await resize(pilot, 60, 20)
        assert "disk then" in screen_text(app)


async def test_a_box_that_has_left_the_fleet_says_that_nothing_was_removed() -> None:
    fleet = TrialFleet()
    async with running(fleet, keys=("exclamation_mark",)) as (app, pilot, _):
        fleet.trials = None
        await pilot.press(*"viz", "enter")
        await settle(pilot)
        assert "nothing was removed: only a connected box can be asked" in screen_text(app)
