from __future__ import annotations

import msgspec
import pytest
from textual.widgets import Input

from rgt_tui.model import BoxQuestion, QuestionKind, clean_decoded
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import QuestionScreen, question_lines
from rgt_tui.ui.widgets import text_of
from tests.ui.fakes import FakeFleet, demo_state
from tests.ui.snap import running, screen_text, settle

KEY = BoxQuestion(
    id=1,
    box="runpod-demo",
    kind=QuestionKind.HOST_KEY,
    title="first host key of 1.2.3.4:40022",
    lines=("ED25519 SHA256:abc", "written to ~/.ssh/known_hosts"),
)
SECRET = BoxQuestion(
    id=2, box="vast-demo", kind=QuestionKind.SECRET, title="password of root@1.2.3.4"
)


def asking(*questions: BoxQuestion) -> FakeFleet:
    return FakeFleet(msgspec.structs.replace(demo_state(), questions=questions))


def read(app: RgtApp) -> None:
    """Let the time pass in which a person reads a question that came up by itself."""
    assert isinstance(app.fleet, FakeFleet)
    app.fleet.advance(1.0)


async def test_a_question_comes_up_and_yes_accepts_the_key() -> None:
    async with running(lambda: asking(KEY)) as (app, pilot, _):
        read(app)
        assert isinstance(app.screen, QuestionScreen)
        text = screen_text(app)
        assert "SHA256:abc" in text
        assert "first host key of 1.2.3.4:40022" in text
        fleet = app.fleet
        assert isinstance(fleet, FakeFleet)
        await pilot.press(*"yes", "enter")
        assert fleet.told == [("answer", 1, "yes")]
        await settle(pilot)
        assert not isinstance(app.screen, QuestionScreen), (
            "it is not asked twice while the answer is on its way"
        )


@pytest.mark.parametrize("typed", ["no", "y", "", "yes please"])
async def test_anything_but_yes_refuses_a_key(typed: str) -> None:
    async with running(lambda: asking(KEY)) as (app, pilot, _):
        read(app)
        app.screen.query_one(Input).value = typed
        await pilot.press("enter")
        assert isinstance(app.fleet, FakeFleet)
        assert app.fleet.told == [("answer", 1, None)]


async def test_a_secret_is_never_on_the_screen() -> None:
    async with running(lambda: asking(SECRET)) as (app, pilot, _):
        read(app)
        await pilot.press(*"hunter2")
        await pilot.pause()
        assert "hunter2" not in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.fleet, FakeFleet)
        assert app.fleet.told == [("answer", 2, "hunter2")]
        assert "hunter2" not in app.export_screenshot()


async def test_later_leaves_it_open_and_it_can_be_opened_again() -> None:
    async with running(lambda: asking(KEY)) as (app, pilot, _):
        read(app)
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen, QuestionScreen)
        assert isinstance(app.fleet, FakeFleet)
        assert app.fleet.told == []
        await pilot.press("A")
        await settle(pilot)
        assert isinstance(app.screen, QuestionScreen)


async def test_it_closes_when_nobody_waits_any_more() -> None:
    async with running(lambda: asking(KEY)) as (app, pilot, _):
        read(app)
        fleet = app.fleet
        assert isinstance(fleet, FakeFleet)
        fleet.push(msgspec.structs.replace(fleet.state, questions=()))
        await settle(pilot)
        assert not isinstance(app.screen, QuestionScreen)


async def test_it_does_not_come_between_a_person_and_what_they_type() -> None:
    async with running(keys=("slash",)) as (app, pilot, fleet):
        fleet.push(msgspec.structs.replace(fleet.state, questions=(SECRET,)))
        await settle(pilot)
        assert not isinstance(app.screen, QuestionScreen)
        await pilot.press("escape")
        await settle(pilot)
        await settle(pilot)
        assert isinstance(app.screen, QuestionScreen)


async def test_it_stays_away_from_the_teardown_dialog() -> None:
    async with running(keys=("D",)) as (app, pilot, fleet):
        fleet.push(msgspec.structs.replace(fleet.state, questions=(SECRET,)))
        await settle(pilot)
        assert not isinstance(app.screen, QuestionScreen)


def test_hostile_text_is_stripped() -> None:
    bad = msgspec.structs.replace(KEY, title="\x1b[2Jkey", lines=("a\x07b\x1b]0;x\x07",))
    text = "\n".join(text_of(made) for made in question_lines(clean_decoded(bad), 60))
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 34), (200, 50)])
async def test_the_entry_is_in_sight_however_small_the_terminal(size: tuple[int, int]) -> None:
    art = tuple(f"|{row:>17}|" for row in range(11))
    long = msgspec.structs.replace(KEY, lines=(*KEY.lines, "shown by the server", *art))
    async with running(lambda: asking(long), size=size) as (app, _, _):
        text = screen_text(app)
        assert "type yes" in text
        assert "SHA256:abc" in text
        assert "type yes to accept it" in text


async def test_without_a_question_the_key_says_so() -> None:
    async with running(keys=("A",)) as (app, _, _):
        assert "no question is open" in screen_text(app)
