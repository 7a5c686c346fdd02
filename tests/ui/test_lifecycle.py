"""The phases of a box: what is proved, what is not, and how one gets to it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rgt_tui.model import CheckResult, CheckStatus
from rgt_tui.ui import RgtApp, export_name, phases_markdown
from rgt_tui.ui.screens import AlertsScreen, FleetScreen, LifecycleScreen
from rgt_tui.ui.widgets import (
    CheckDetail,
    Checklist,
    EntryLabel,
    EntryLine,
    HeaderLine,
    KeyLine,
    PhaseChecks,
    Tone,
    detail_lines,
    next_check,
    phases_of,
    rail_line,
    row_line,
    rows_of,
    summary_parts,
    text_of,
    then_lines,
    width_of,
    wrap_text,
)
from tests.ui.fakes import NOW, FakeFleet, default_checks
from tests.ui.snap import resize, until
from tests.ui.stages import rest, staged

BOX = "autodl-demo"


def check(id_: str, status: CheckStatus = CheckStatus.PASSED, **changes: object) -> CheckResult:
    made = CheckResult(
        id_, int(id_.split(".")[0]), f"title {id_}", status, f"evidence {id_}", NOW - 5
    )
    return msgspec.structs.replace(made, **changes)


def test_the_six_phases_are_there_and_ids_sort_as_numbers() -> None:
    phases = phases_of([check("4.10"), check("4.2"), check("9.1")])
    assert [phase.number for phase in phases] == [0, 1, 2, 3, 4, 5, 9]
    assert [c.id for c in phases[4].checks] == ["4.2", "4.10"]
    assert phases[6].name == "phase 9"


@pytest.mark.parametrize("width", [40, 56, 76, 120])
def test_advice_stands_at_its_check_behind_the_evidence_and_whole_below(width: int) -> None:
    made = check(
        "4.5",
        advice="a: saves every 40m00; 5m38 would lose less (a save costs 2.0 s, no failure in 8h00)",
    )
    row = rows_of(phases_of([made]), frozenset({4}), closed_too=False)[1]
    drawn = row_line(row, width, NOW, opened=True)
    assert width_of(drawn) <= width and mark_of(text_of(drawn)) == "✔"
    assert ("· a: saves" in text_of(drawn)) == (width >= 76)
    lines = detail_lines(row, width, 12, NOW)
    text = " ".join(text_of(one).strip() for one in lines)
    assert "advice a: saves every 40m00;" in " ".join(text.split())
    assert "in 8h00)" in text and all(width_of(one) <= width for one in lines)
    assert "; advice: a: saves every 40m00; 5m38" in phases_markdown("b", phases_of([made]), NOW)


def mark_of(text: str) -> str:
    return text.strip()[0]


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
def test_a_phase_is_as_good_as_its_worst_check(
    found: list[CheckStatus], worst: CheckStatus
) -> None:
    assert (
        PhaseChecks(0, tuple(check(f"0.{i}", status) for i, status in enumerate(found))).status
        is worst
    )


def test_green_is_for_proved_alone() -> None:
    for status in CheckStatus:
        for made in (
            row_line(
                rows_of(phases_of([check("0.1", status)]), frozenset({0}), closed_too=False)[1],
                100,
                NOW,
                opened=True,
            ),
            rail_line(PhaseChecks(0, (check("0.1", status),)), opened=False),
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
    assert [text_of(row) for row in wrap_text("a" * 25, 10)] == ["a" * 10, "a" * 10, "a" * 5]


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


def shown_text(screen: LifecycleScreen) -> str:
    """Everything on screen."""
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


async def test_it_opens_at_what_failed_and_moves(fleet: FakeFleet) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        assert screen.cursor_key == "5.2"
        assert screen.opened == {4, 5}
        assert "results pulled" in listed(screen)
        assert "read the profile" not in listed(screen)
        assert "next: 5.2" in text_of(screen.query_one(HeaderLine).shown_lines[0])
        detail = "\n".join(text_of(made) for made in screen.query_one(CheckDetail).shown_lines)
        assert "2 of 214 files differ" in detail

        await pilot.press("e")
        assert screen.cursor_key == "4.3"
        await pilot.press("e")
        assert screen.cursor_key == "4.4"
        await pilot.press("E", "k")
        assert screen.cursor_key == "4.2"
        await pilot.press("g")
        assert screen.cursor_key == "phase 4"
        await pilot.press("enter")
        assert screen.opened == {5}
        assert "four layers" not in listed(screen)
        await pilot.press("left")
        assert screen.opened == {4, 5}
        assert screen.cursor_key == "phase 4"
        await pilot.press("z")
        assert screen.opened == {0, 1, 2, 3, 4, 5}
        assert "read the profile" in listed(screen)
        await pilot.press("G")
        assert screen.cursor_key == "5.2"


async def test_the_mouse_folds_and_selects(fleet: FakeFleet) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        assert await pilot.click("#checks", offset=(4, 0))
        assert 0 in screen.opened
        assert "read the profile" in listed(screen)
        assert await pilot.click("#checks", offset=(40, 1))
        assert screen.cursor_key == "0.1"


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
            await resize(pilot, *size)
            await pilot.pause()
            assert "proved" in text_of(screen.query_one(HeaderLine).shown_lines[0]) or size[0] < 80
        await resize(pilot, 80, 24)
        fleet.check_results = ()
        app.tick(force=True)
        await until(pilot, lambda: "This box has no checks" in listed(screen))
        await pilot.press("e", "j", "enter", "z", "left", "space", "f", "X", "y")
        fleet.push(msgspec.structs.replace(fleet.state, boxes=()))
        app.tick(force=True)
        await until(pilot, lambda: isinstance(app.screen, FleetScreen))


async def test_hostile_evidence_is_plain_text(fleet: FakeFleet) -> None:
    fleet.check_results = (
        check(
            "0.1",
            CheckStatus.FAILED,
            title="[bold]x[/]\x1b[2J",
            evidence="\x1b]0;t\x07[red]y\u202e",
        ),
    )
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        shown = listed(screen)
        assert "[bold]x[/]" in shown
        assert "[red]y" in shown
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def asked(screen: LifecycleScreen) -> str:
    """What the entry line asks for; the check's own words name a note and a name, too."""
    labels = [
        label
        for entry in screen.query(EntryLine)
        if not entry.leaving
        for label in entry.query(EntryLabel)
    ]
    return " ".join(text_of(row).strip() for label in labels for row in label.shown_lines)


def detail_text(screen: LifecycleScreen) -> str:
    return "\n".join(text_of(made).rstrip() for made in screen.query_one(CheckDetail).shown_lines)


async def test_what_only_a_person_can_tell_is_ticked_with_a_note_and_a_name(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "han")
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("e", "e")
        assert screen.cursor_key == "4.4" and "space ticks it" in detail_text(screen)
        await pilot.press("space")
        await until(pilot, lambda: bool(screen.query("EntryLine Input")))
        await pilot.press(*"both read well", "enter")
        await until(pilot, lambda: "your name" in asked(screen))
        await pilot.press("enter")
        await until(pilot, lambda: "4.4" in fleet.ticks)
        (said,) = fleet.ticks["4.4"]
        assert (said.ticked, said.note, said.by, said.at) == (True, "both read well", "han", NOW)
        await until(pilot, lambda: "ticked by han" in detail_text(screen))
        assert "both read well (han)" in listed(screen) and "✔" in listed(screen)
        await pilot.press("space")
        await until(pilot, lambda: len(fleet.ticks["4.4"]) == 2)
        await until(pilot, lambda: "unticked by han, was: both read well" in listed(screen))
        assert "space ticks it" in detail_text(screen)


@pytest.mark.parametrize(
    "keys", [("escape",), ("enter",), ("x", "enter", "escape"), (" ", "enter")]
)
async def test_without_a_note_or_a_name_nothing_is_ticked(
    fleet: FakeFleet, keys: tuple[str, ...]
) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("e", "e", "space")
        for key in keys:
            await until(pilot, lambda: bool(screen.query("EntryLine Input")))
            await pilot.press("space" if key == " " else key)
            await pilot.pause()
        await until(pilot, lambda: "nothing was ticked" in shown_text(screen))
        assert fleet.ticks == {} and screen.is_current


async def test_the_second_entry_waits_for_no_turn_of_the_first_one_that_goes(
    fleet: FakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A screen that asks itself again and again whether the first one has gone never lets it go."""
    gone = asyncio.Event()

    async def held(self: EntryLine) -> None:
        await gone.wait()

    monkeypatch.setattr(EntryLine, "on_unmount", held, raising=False)
    asked = LifecycleScreen.call_after_refresh
    turns = 0

    def counted(self: LifecycleScreen, *what: Any, **more: Any) -> bool:
        nonlocal turns
        turns += 1
        return turns > 1000 or asked(self, *what, **more)

    monkeypatch.setattr(LifecycleScreen, "call_after_refresh", counted)
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        try:
            screen = await opened(pilot)
            await pilot.press("e", "e", "space")
            await until(pilot, lambda: bool(screen.query("EntryLine Input")))
            await pilot.press("x")
            first = screen.query_one(EntryLine)
            first.post_message(Input.Submitted(first.query_one(Input), "x"))
            async with asyncio.timeout(60):  # a pilot would wait for the one that goes, too
                while turns <= 1000 and screen.query(EntryLine).last() is first:  # noqa: ASYNC110  (nothing tells)
                    await asyncio.sleep(0.005)
            assert turns < 1000, "it spins"
            assert not first.display
            assert not screen.takes_keys, "the letters of the name wait until the first one is gone"
        finally:
            gone.set()
        await until(pilot, lambda: screen.takes_keys)
        await pilot.press("enter")
        await until(pilot, lambda: "4.4" in fleet.ticks)


async def test_what_readings_judge_is_not_ticked_and_a_failure_to_write_is_said(
    fleet: FakeFleet,
) -> None:
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        keys = screen.query_one(KeyLine).shown_lines[0]
        assert not {"run", "tick"} & set(text_of(keys).split()), (
            "neither can be done with this check"
        )
        await pilot.press("space")
        await pilot.pause()
        assert "5.2 is judged by its readings" in shown_text(screen) and not screen.query(
            "EntryLine"
        )
        fleet.tick_trouble = "/state/ticks.json: No space left on device\x1b[2J; nothing was ticked"
        await pilot.press("e", "e", "space")
        await until(pilot, lambda: bool(screen.query("EntryLine Input")))
        await pilot.press("x", "enter")
        await until(pilot, lambda: "your name" in asked(screen))
        await pilot.press("h", "enter")
        await until(pilot, lambda: "No space left on device" in shown_text(screen))
        assert "ticked by" not in listed(screen)


async def test_a_check_is_run_on_request_and_what_it_prints_stands_below(
    fleet: FakeFleet, state_home: Path
) -> None:
    fleet.runs = {
        "5.2": tuple(f"row {i} [red]\x1b[31m" for i in range(60)),
        "4.3": ValueError("no fleet file"),
    }
    fleet.run_gate = asyncio.Event()
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        assert "enter runs  rgt doctor autodl-demo" in detail_text(screen)
        await pilot.press("enter")
        await until(pilot, lambda: "runs for" in detail_text(screen))
        assert "row 59 [red]" in detail_text(screen) and "row 0 " not in detail_text(screen)
        await pilot.press("enter")
        assert "it is running" in shown_text(screen)
        fleet.run_gate.set()
        await until(pilot, lambda: "exit status 0" in detail_text(screen))
        await pilot.press("y")
        copied = (state_home / "copied.txt").read_text()
        assert copied.startswith("$ rgt doctor autodl-demo\nrow 0 [red]") and "\x1b" not in copied

        fleet.run_gate.clear()
        await pilot.press("enter")
        await until(pilot, lambda: "runs for" in detail_text(screen))
        await pilot.press("escape")
        await until(pilot, lambda: "ended by you" in detail_text(screen))
        assert ("cancelled", "5.2") in fleet.told and screen.is_current
        await pilot.press("e")
        assert screen.cursor_key == "4.3"
        await pilot.press("enter")
        await until(pilot, lambda: "no fleet file" in detail_text(screen))
        await pilot.press("e", "enter")
        await pilot.pause()
        assert "4.4 has no command to run here" in shown_text(screen)
        fleet.run_gate.clear()
        await pilot.press("E", "E", "enter")
        await until(pilot, lambda: "runs for" in detail_text(screen))
        await pilot.press("q")
        await until(pilot, lambda: fleet.told.count(("cancelled", "5.2")) == 2)


async def test_a_recording_is_neither_ticked_nor_run(fleet: FakeFleet) -> None:
    fleet.runs_checks = False
    fleet.why_nothing = "a recording: nothing changes"
    async with RgtApp(lambda: fleet).run_test(size=(120, 34)) as pilot:
        screen = await opened(pilot)
        await pilot.press("e", "e", "space")
        await pilot.pause()
        assert fleet.why_nothing in shown_text(screen)
        screen.hint("")
        await pilot.press("enter")
        await pilot.pause()
        assert fleet.why_nothing in shown_text(screen)


async def test_the_phases_are_taken_along_as_markdown(
    fleet: FakeFleet, state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    async with RgtApp(lambda: fleet).run_test(size=(300, 50)) as pilot:
        screen = await opened(pilot)
        await pilot.press("y")
        text = (state_home / "copied.txt").read_text()
        assert "- [x] 0.1 read the profile (proved, 0s old): autodl, confidence high" in text
        assert "- [ ] 5.2 results pulled (failed, 1m00 old): 2 of 214 files differ" in text
        await pilot.press("X")
        await until(pilot, lambda: "written: " in shown_text(screen))
        (path,) = (tmp_path / "here").glob("phases-autodl-demo-*.md")
        assert path.read_text() == text and path.name in shown_text(screen)
        monkeypatch.setattr(Path, "cwd", lambda: Path("/proc"))
        await pilot.press("X")
        await until(pilot, lambda: "exports" in shown_text(screen))
        await pilot.press("a")
        await until(pilot, lambda: isinstance(pilot.app.screen, AlertsScreen))


def test_what_a_box_says_is_no_markup_in_the_export() -> None:
    bad = check(
        "0.1", title="<script>x</script> | [a](b)", evidence="# h\n- [x] 9.9 *forged*\x1b[2J"
    )
    text = phases_markdown("b`ox", phases_of([bad]), NOW)
    assert (
        text.count("- [x]") == 1 and "\x1b" not in text and "<script" not in text.replace("\\<", "")
    )
    assert export_name("../../etc/x y", NOW).startswith("phases-etc-x-y-")
    assert export_name("\x00", NOW).startswith("phases-box-")


@pytest.mark.parametrize("state", ["live", "readonly"])
async def test_no_line_is_left_empty_while_something_asks_for_a_look(
    state: str, tmp_path: Path, state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the list does not fit the detail takes no more than it has to say; else it says what else is open."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    async with staged("phases", state, home=state_home, size=(120, 34)) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, LifecycleScreen)
        detail = [text_of(made).strip() for made in screen.query_one(CheckDetail).shown_lines]
        if state == "live":
            assert detail[0].startswith("▼") and all(detail)
        else:
            assert detail.count("") == 2, "above, and between the selected check and the others"
            assert any("no directory is named" in row or "5.3" in row for row in detail)
        await pilot.press("e")
        await rest(app, pilot)
        assert screen.cursor_key is not None
        assert not any(
            f" {screen.cursor_key} " in text_of(made)
            for made in screen.query_one(CheckDetail).shown_lines[2:]
        )


def test_what_else_is_open_is_said_whole_or_not_at_all() -> None:
    checks = [
        check("0.2", CheckStatus.FAILED, evidence="word " * 30),
        check("4.7", CheckStatus.WARN),
    ]
    made = [text_of(row) for row in then_lines(checks, 60, 9)]
    assert made[0] == "" and made[1].startswith("✖ 0.2") and made[-1].startswith("▲ 4.7")
    assert sum(row.count("word") for row in made) == 30
    cut = then_lines(checks, 60, len(made) - 1)
    assert [text_of(row) for row in cut] == made[:-1]
    assert then_lines(checks, 60, 2) == [] and then_lines([], 60, 9) == []
