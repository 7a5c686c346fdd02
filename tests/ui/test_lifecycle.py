"""The phases of a box: what is proved, what is not, and how one gets to it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from textual.pilot import Pilot

from rgt_tui.model.evidence import CheckResult, CheckStatus
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens.fleet import FleetScreen
from rgt_tui.ui.screens.lifecycle import LifecycleScreen
from rgt_tui.ui.widgets.checklist import (
    CheckDetail,
    Checklist,
    Phase,
    detail_lines,
    next_check,
    phases_of,
    rail_line,
    row_line,
    rows_of,
    summary_parts,
)
from rgt_tui.ui.widgets.fixed_lines import HeaderLine
from rgt_tui.ui.widgets.spans import Tone, text_of, width_of, wrapped
from tests.ui.fakes import NOW, FakeFleet, default_checks

BOX = "autodl-demo"


def check(id_: str, status: CheckStatus = CheckStatus.PASSED, **changes: object) -> CheckResult:
    made = CheckResult(id_, int(id_.split(".")[0]), f"title {id_}", status, f"evidence {id_}", NOW - 5)
    return msgspec.structs.replace(made, **changes)


def test_the_six_phases_are_there_and_ids_sort_as_numbers() -> None:
    phases = phases_of([check("4.10"), check("4.2"), check("9.1")])
    assert [phase.number for phase in phases] == [0, 1, 2, 3, 4, 5, 9]
    assert [c.id for c in phases[4].checks] == ["4.2", "4.10"]
    assert phases[6].name == "phase 9"


@pytest.mark.parametrize(
    ("found", "worst"),
    [
        ([CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.WARN], CheckStatus.FAILED),
        ([CheckStatus.PASSED, CheckStatus.WARN, CheckStatus.PERSON], CheckStatus.WARN),
        ([CheckStatus.PASSED, CheckStatus.PERSON], CheckStatus.PERSON),
        ([CheckStatus.PASSED, CheckStatus.WAITING], CheckStatus.WAITING),
        ([CheckStatus.PASSED], CheckStatus.PASSED),
        ([], CheckStatus.WAITING),
    ],
)
def test_a_phase_is_as_good_as_its_worst_check(found: list[CheckStatus], worst: CheckStatus) -> None:
    assert Phase(0, tuple(check(f"0.{i}", status) for i, status in enumerate(found))).status is worst


def test_green_is_for_proved_alone() -> None:
    for status in CheckStatus:
        for made in (
            row_line(
                rows_of(phases_of([check("0.1", status)]), frozenset({0}), closed_too=False)[1],
                100,
                NOW,
                opened=True,
            ),
            rail_line(Phase(0, (check("0.1", status),)), opened=False),
        ):
            assert any(span.tone is Tone.PROVED for span in made) == (status is CheckStatus.PASSED)


def test_what_failed_comes_next_then_what_is_not_proved() -> None:
    waiting, failed = check("1.1", CheckStatus.WAITING), check("4.3", CheckStatus.FAILED)
    assert next_check(phases_of([check("0.1"), waiting, failed])) == failed
    assert next_check(phases_of([check("0.1"), waiting])) == waiting
    assert next_check(phases_of([check("0.1")])) is None


def test_the_summary_counts() -> None:
    parts = [text_of(part) for _, part in summary_parts(phases_of(default_checks()))]
    assert parts == ["4 of 8 proved", "✖ 1 failed", "▲ 1 warning", "1 needs you", "next: 5.2"]
    assert "nothing left" in text_of(summary_parts(phases_of([check("0.1")]))[-1][1])


@pytest.mark.parametrize("width", [40, 60, 100, 180])
def test_lines_fit_and_have_the_age(width: int) -> None:
    row = rows_of(phases_of([check("0.1", evidence="x" * 500)]), frozenset({0}), closed_too=True)[1]
    made = row_line(row, width, NOW, opened=True)
    assert width_of(made) <= width
    assert text_of(made).rstrip().endswith("5s")


def test_the_detail_cuts_nothing_that_has_room() -> None:
    text = " ".join(f"word{i}" for i in range(40))
    row = rows_of(phases_of([check("0.1", evidence=text)]), frozenset({0}), closed_too=True)[1]
    shown = " ".join(text_of(made) for made in detail_lines(row, 50, 20, NOW))
    assert text in shown.replace("\n", " ")
    assert len(detail_lines(row, 50, 3, NOW)) == 3
    assert [text_of(row) for row in wrapped("a" * 25, 10)] == ["a" * 10, "a" * 10, "a" * 5]


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    for _ in range(200):
        if holds():
            return
        await pilot.pause()
    raise AssertionError("it did not come to that")


async def opened(pilot: Pilot[None]) -> LifecycleScreen:
    app = pilot.app
    assert isinstance(app, RgtApp)
    await until(pilot, lambda: app.fleet is not None)
    app.open_screen("phases", BOX)
    await until(pilot, lambda: isinstance(app.screen, LifecycleScreen) and bool(app.screen.phases))
    screen = app.screen
    assert isinstance(screen, LifecycleScreen)
    await pilot.pause()
    return screen


def listed(screen: LifecycleScreen) -> str:
    return "\n".join(text_of(made) for made in screen.query_one(Checklist).shown_lines)


async def test_it_opens_at_what_failed_and_moves(fleet: FakeFleet) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        assert screen.cursor == "5.2"
        assert screen.opened == {4, 5}
        assert "results pulled" in listed(screen)
        assert "read the profile" not in listed(screen)
        assert "next: 5.2" in text_of(screen.query_one(HeaderLine).shown_lines[0])
        detail = "\n".join(text_of(made) for made in screen.query_one(CheckDetail).shown_lines)
        assert "2 of 214 files differ" in detail

        await pilot.press("e")
        assert screen.cursor == "4.3"
        await pilot.press("e")
        assert screen.cursor == "4.4"
        await pilot.press("E", "k")
        assert screen.cursor == "4.2"
        await pilot.press("g")
        assert screen.cursor == "phase 4"
        await pilot.press("enter")
        assert screen.opened == {5}
        assert "four layers" not in listed(screen)
        await pilot.press("left")
        assert screen.opened == {4, 5}
        assert screen.cursor == "phase 4"
        await pilot.press("a")
        assert screen.opened == {0, 1, 2, 3, 4, 5}
        assert "read the profile" in listed(screen)
        await pilot.press("G")
        assert screen.cursor == "5.2"


async def test_the_mouse_folds_and_selects(fleet: FakeFleet) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        assert await pilot.click("#checks", offset=(4, 0))
        assert 0 in screen.opened
        assert "read the profile" in listed(screen)
        assert await pilot.click("#checks", offset=(40, 1))
        assert screen.cursor == "0.1"


async def test_what_fails_later_opens_by_itself_and_ages_grow(fleet: FakeFleet) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("g", "enter")
        assert 4 not in screen.opened
        failed = msgspec.structs.replace(fleet.check_results[1], status=CheckStatus.FAILED)
        fleet.check_results = (fleet.check_results[0], failed, *fleet.check_results[2:])
        fleet.advance(120)
        fleet.change(BOX, reason="again")
        app = pilot.app
        assert isinstance(app, RgtApp)
        app.tick(force=True)
        await until(pilot, lambda: 1 in screen.opened)
        assert 4 not in screen.opened
        assert "2m00" in listed(screen)


async def test_every_size_without_checks_and_without_the_box(fleet: FakeFleet) -> None:
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(60, 20)) as pilot:
        screen = await opened(pilot)
        assert "▸" in listed(screen)
        for size in ((60, 20), (80, 24), (120, 34), (200, 50), (20, 6)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert "proved" in text_of(screen.query_one(HeaderLine).shown_lines[0]) or size[0] < 80
        await pilot.resize_terminal(80, 24)
        fleet.check_results = ()
        app.tick(force=True)
        await until(pilot, lambda: "No checks are known" in listed(screen))
        await pilot.press("e", "j", "enter", "a", "left")
        fleet.push(msgspec.structs.replace(fleet.state, boxes=()))
        app.tick(force=True)
        await until(pilot, lambda: isinstance(app.screen, FleetScreen))


async def test_hostile_evidence_is_plain_text(fleet: FakeFleet) -> None:
    fleet.check_results = (
        check("0.1", CheckStatus.FAILED, title="[bold]x[/]\x1b[2J", evidence="\x1b]0;t\x07[red]y\u202e"),
    )
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        shown = listed(screen)
        assert "[bold]x[/]" in shown
        assert "[red]y" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown
