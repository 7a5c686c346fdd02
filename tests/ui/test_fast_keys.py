"""Keys that come in one burst, faster than a screen or an entry can be put up: they go on in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import RenderableType
from textual import events
from textual._xterm_parser import XTermParser
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from rgt_tui import health
from rgt_tui.health import Assessment
from rgt_tui.model import BoxQuestion, BoxState, QuestionKind
from rgt_tui.ui import RgtApp, key_turns
from rgt_tui.ui.screens import BoxScreen, FleetScreen, LogScreen, QuestionScreen, TeardownScreen
from rgt_tui.ui.widgets import Line, text_of
from rgt_tui.ui.widgets.fleet_rows import FleetColumn, FleetRow, FleetTable, fleet_table, row_line
from tests.ui.fakes import FakeFleet, demo_state, many_boxes
from tests.ui.snap import running, screen_text, settle

PATIENCE_TURNS = 6000
"""Of a hundredth of a second."""
NAMED = {"/": "slash", "\r": "enter", ":": "colon", "\x1b": "escape", "-": "minus", " ": "space"}


def burst(app: RgtApp, text: str) -> None:
    """Post keys as the driver does when they lie ready in the terminal: all at once, nothing in between."""
    for char in text:
        app.post_message(events.Key(NAMED.get(char, char), char))


async def typed(pilot: Pilot[None], until: str) -> str:
    """Wait until the entry holds `until` (the machine may be loaded), and return what it holds."""
    app = pilot.app
    for _ in range(PATIENCE_TURNS):
        await pilot.pause(0.01)
        found = app.screen.query(Input)
        if found and found.first().value == until:
            break
    return found.first().value if found else ""


@pytest.mark.parametrize("text", ["Demo", "prod", "D", "qqq", "ocLap", "autodl-demo", "?"])
async def test_a_filter_takes_every_letter_typed_after_the_slash(text: str) -> None:
    async with running() as (app, pilot, fleet):
        burst(app, f"/{text}")
        assert await typed(pilot, text) == text
        assert isinstance(app.screen, FleetScreen)
        assert len(app.screen_stack) == 1
        assert fleet.told == []


async def test_keys_behind_the_entry_s_end_act_on_what_it_left() -> None:
    async with running() as (app, pilot, _):
        burst(app, "/autodl\r\r")
        await wait_for(pilot, lambda: isinstance(app.screen, BoxScreen))
        assert isinstance(app.screen, BoxScreen)
        assert app.screen.box_name == "autodl-demo"


async def test_a_burst_may_give_the_entry_up_and_go_on() -> None:
    async with running() as (app, pilot, _):
        burst(app, "/auto\x1bG")
        table = app.screen.query_one(FleetTable)
        await wait_for(pilot, lambda: table.picked_key == table.row_names[-1] != table.row_names[0])
        assert len(table.row_names) == 4, "the filter was given up"
        assert table.picked_key == table.row_names[-1]
        assert not app.screen.query(Input)


async def test_a_search_behind_the_key_that_opens_the_log() -> None:
    async with running() as (app, pilot, _):
        burst(app, "l/loss")
        assert await typed(pilot, "loss") == "loss"
        assert isinstance(app.screen, LogScreen)


async def test_the_palette_takes_what_is_typed_behind_its_key() -> None:
    async with running() as (app, pilot, _):
        burst(app, ":Dtear")
        assert await typed(pilot, "Dtear") == "Dtear"
        assert isinstance(app.screen, CommandPalette)
        assert len(app.screen_stack) == 2
        # What looks for commands fails where the app ends before it has begun.
        await wait_for(pilot, lambda: all(one.is_finished for one in app.workers))


async def test_a_name_typed_behind_the_teardown_s_key_moves_nothing_else() -> None:
    async with running() as (app, pilot, fleet):
        burst(app, "Dqpac\r/")
        await wait_for(pilot, lambda: isinstance(app.screen, TeardownScreen))
        await settle(pilot)
        assert isinstance(app.screen, TeardownScreen)
        assert len(app.screen_stack) == 2
        assert fleet.executed == []


async def test_a_paste_keeps_its_place_among_the_keys() -> None:
    async with running() as (app, pilot, _):
        burst(app, "/a")
        app.post_message(events.Paste("uto"))
        burst(app, "dl")
        assert await typed(pilot, "autodl") == "autodl"


async def test_a_question_that_comes_up_takes_no_key_meant_for_the_screen_below() -> None:
    secret = BoxQuestion(id=2, box="vast-demo", kind=QuestionKind.SECRET, title="password")
    async with running() as (app, pilot, fleet):
        fleet.push(msgspec.structs.replace(fleet.state, questions=(secret,)))
        app.tick(force=True)
        burst(app, "\r")
        await wait_for(pilot, lambda: isinstance(app.screen, QuestionScreen))
        await settle(pilot)
        assert isinstance(app.screen, QuestionScreen)
        assert fleet.told == [], "an Enter for the list is no answer"
        fleet.advance(1.0)
        await pilot.press(*"x", "enter")
        assert fleet.told == [("answer", 2, "x")]


async def test_an_answer_typed_behind_the_key_that_asks_for_the_question_is_taken_whole() -> None:
    secret = BoxQuestion(id=2, box="vast-demo", kind=QuestionKind.SECRET, title="password")
    first = FakeFleet()
    first.push(msgspec.structs.replace(first.state, questions=(secret,)))
    async with running(first) as (app, pilot, fleet):
        fleet.advance(1.0)
        await pilot.press("escape")
        await wait_for(pilot, lambda: isinstance(app.screen, FleetScreen))
        burst(app, "AhunterD2")
        assert await typed(pilot, "hunterD2") == "hunterD2"
        burst(app, "\r")
        await wait_for(pilot, lambda: bool(fleet.told))
        assert fleet.told == [("answer", 2, "hunterD2")]


async def test_a_question_that_ends_while_it_is_answered_gives_no_letter_to_the_screen_below() -> (
    None
):
    secret = BoxQuestion(id=2, box="vast-demo", kind=QuestionKind.SECRET, title="password")
    first = FakeFleet()
    first.push(msgspec.structs.replace(first.state, questions=(secret,)))
    async with running(first) as (app, pilot, fleet):
        fleet.advance(1.0)
        await pilot.press(*"hunt")
        fleet.push(msgspec.structs.replace(fleet.state, questions=()))
        app.tick(force=True)
        await settle(pilot)
        await pilot.press(*"erD")
        await settle(pilot)
        assert isinstance(app.screen, QuestionScreen)
        assert "no longer asking" in screen_text(app)
        await pilot.press("enter")
        await wait_for(pilot, lambda: isinstance(app.screen, FleetScreen))
        assert fleet.told == [], "nobody waits for it"


async def test_keys_for_what_never_stands_go_nowhere_and_one_can_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_turns, "KEY_PACES", replace(key_turns.KEY_PACES, longest_s=0.2))
    async with running() as (app, pilot, fleet):
        monkeypatch.setattr(FleetScreen, "takes_keys", property(lambda screen: False))
        burst(app, "DpPq")
        for _ in range(60):
            await pilot.pause(0.01)
        assert isinstance(app.screen, FleetScreen)
        assert fleet.told == []
        monkeypatch.setattr(FleetScreen, "takes_keys", property(lambda screen: True))
        await pilot.pause(0.3)
        burst(app, "j")
        table = app.screen.query_one(FleetTable)
        await wait_for(pilot, lambda: table.picked_key == table.row_names[1])
        assert table.picked_key == table.row_names[1], "later keys are taken again"
        monkeypatch.setattr(FleetScreen, "takes_keys", property(lambda screen: False))
        app.post_message(events.Key("ctrl+q", None))
        await wait_for(pilot, lambda: fleet.stopped > 0)
        assert fleet.stopped == 1


async def wait_for(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, for a minute at most."""
    for _ in range(PATIENCE_TURNS):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError(f"it never held (line {condition.__code__.co_firstlineno})")


async def test_what_a_key_does_is_painted_without_waiting_for_a_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as (app, pilot, _):
        await settle(pilot)
        monkeypatch.setattr(app.screen._update_timer, "resume", lambda: None)
        painted: list[str | None] = []
        display = app._display

        def record(screen: Screen[object], update: RenderableType | None) -> None:
            painted.append(app.screen.query_one(FleetTable).picked_key)
            display(screen, update)

        monkeypatch.setattr(app, "_display", record)
        names = app.screen.query_one(FleetTable).row_names
        burst(app, "j")
        await unpainted(lambda: names[1] in painted)
        burst(app, "jj")
        await unpainted(lambda: names[3] in painted)
        assert names[3] in painted
        assert names[2] not in painted, "of keys that came together the last one alone is painted"


async def unpainted(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds without `pilot.pause`, which paints; no longer than a minute."""
    for _ in range(PATIENCE_TURNS):
        if condition():
            return
        await asyncio.sleep(0.01)


class Steps:
    """Something long to draw; its clock goes on by 3 ms with every step."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __iter__(self) -> Iterator[None]:
        while self.left:
            self.left -= 1
            yield

    def __call__(self) -> float:
        return -0.003 * self.left


async def test_a_key_is_dealt_with_and_painted_before_the_data_that_were_to_be_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as (app, pilot, _):
        await settle(pilot)
        table = app.screen.query_one(FleetTable)
        steps = Steps(40)
        monkeypatch.setattr(app._keys, "_clock", steps)
        monkeypatch.setattr(key_turns, "KEY_PACES", replace(key_turns.KEY_PACES, between_s=0.0))
        left_when: list[int] = []
        display = app._display

        def record(screen: Screen[object], update: RenderableType | None) -> None:
            if table.picked_key == table.row_names[1]:
                left_when.append(steps.left)
            display(screen, update)

        monkeypatch.setattr(app, "_display", record)
        burst(app, "j")
        await app._keys.run_between_keys(steps)
        assert steps.left == 0, "the data come, too"
        assert left_when
        assert left_when[0] >= 34, "the key is on the screen after the first slices"


async def test_data_come_at_last_for_somebody_who_holds_a_key_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_turns.KeyTurns, "is_busy", True)
    monkeypatch.setattr(key_turns, "KEY_PACES", replace(key_turns.KEY_PACES, held_s=0.0))
    async with running() as (app, _, _fleet):
        steps = Steps(9)
        await app._keys.run_between_keys(steps)
        assert steps.left == 0


async def test_a_beat_draws_the_state_that_it_judged_and_judges_no_box_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rgt_tui.ui.screens import base

    judged: list[str] = []

    def assess(box: BoxState, now: float) -> Assessment:
        judged.append(box.spec.name)
        return health.assess_box(box, now)

    async with running() as (app, pilot, fleet):
        await settle(pilot)
        fleet.advance(1.0)
        fleet.push(msgspec.structs.replace(fleet.state, at=fleet.now()))
        monkeypatch.setattr(base, "assess_box", assess)
        judged.clear()
        await app.redraw_in_steps()
        assert isinstance(app.screen, FleetScreen)
        assert app.screen.fleet_state is fleet.state
        names = [box.spec.name for box in fleet.state.boxes]
        assert judged == names
        await pilot.press("o", "o")
        await settle(pilot)
        assert judged == names, "what a key sorts anew was judged a moment ago"
        fleet.advance(1.0)
        app.screen.redraw_now()
        assert judged == names * 2, "ages go on"


async def test_who_comes_back_to_hundreds_of_boxes_sees_them_before_they_are_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rgt_tui.ui.screens import base

    judged: list[str] = []
    painted: list[int] = []

    def assess(box: BoxState, now: float) -> Assessment:
        judged.append(box.spec.name)
        return health.assess_box(box, now)

    async with running(many_boxes(60)) as (app, pilot, fleet):
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, BoxScreen)
        fleet.advance(10.0)
        fleet.push(msgspec.structs.replace(fleet.state, at=fleet.now()))
        display = app._display

        def record(screen: Screen[object], update: RenderableType | None) -> None:
            if isinstance(screen, FleetScreen):
                painted.append(len(judged))
            display(screen, update)

        monkeypatch.setattr(app, "_display", record)
        monkeypatch.setattr(base, "assess_box", assess)
        await pilot.press("q")
        await settle(pilot)
        assert painted[0] < 60, "the screen stands before all of its boxes are judged anew"
        assert isinstance(app.screen, FleetScreen)
        assert app.screen.fleet_state is fleet.state and set(judged) == set(
            app.screen._judged.verdicts
        )
        assert len(set(judged)) == 60


async def test_a_row_that_was_drawn_is_not_drawn_again_for_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[str] = []
    draw = row_line

    def noted(row: FleetRow, columns: Sequence[tuple[FleetColumn, int]]) -> Line:
        drawn.append(row.name)
        return draw(row, columns)

    async with running(many_boxes(60)) as (app, pilot, fleet):
        monkeypatch.setattr(fleet_table, "row_line", noted)
        fleet.advance(1.0)
        fleet.push(msgspec.structs.replace(fleet.state, at=fleet.now()))
        await app.redraw_in_steps()
        table = app.screen.query_one(FleetTable)
        in_sight = table.row_names[: table.page_rows]
        assert sorted(drawn) == sorted(in_sight), "each once, before the state is handed on"
        await pilot.press("O", "O")
        await settle(pilot)
        assert len(drawn) == len(set(drawn)), "sorted, and back again"
        assert text_of(table.shown_lines[1]).split()[1] == table.row_names[0]


def keys_of(data: str) -> list[str]:
    """Return the keys that a terminal's bytes are, when nothing comes behind them."""
    parser = XTermParser()
    found = [*parser.feed(data), *parser.feed("")]
    return [event.key for event in found if isinstance(event, events.Key)]


async def test_alt_with_an_arrow_moves_by_words_in_an_entry_and_is_an_escape_and_a_key_elsewhere() -> (
    None
):
    """Terminals of macOS send `alt+left` as an escape and a `b`; a tmux, an escape and a `b` typed behind it."""
    async with running() as (app, pilot, _):
        assert keys_of("\x1bb") == ["escape", "b"]
        await pilot.press("slash")
        await settle(pilot)
        assert isinstance(app.focused, Input)
        assert keys_of("\x1bb") == ["ctrl+left"] and keys_of("\x1bd") == ["alt+d"]
        for event in XTermParser().feed("\x1bd"):
            app.post_message(event)
        await settle(pilot)
        assert app.focused.value == "", "and its letter is not typed"
        await pilot.press("escape")
        await settle(pilot)
        assert keys_of("\x1bd") == ["escape", "d"]


async def test_a_key_that_is_left_when_the_app_has_ended_is_no_fault() -> None:
    async with running(FakeFleet(demo_state())) as (app, _, _):
        pass
    assert not app.screen_stack
    assert app._keys.has_turn(events.Key("j", "j"))
