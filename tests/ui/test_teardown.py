"""The teardown dialog in the app: nothing is sent by accident, and what was sent is never lost from sight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from rgt_tui.fleet import GateClosed, NoControlPlane
from rgt_tui.gate import ActionState, KeptResults, Receipt
from rgt_tui.model import (
    ActionReview,
    BillingAction,
    BillingVerb,
    EvidenceItem,
    Lifecycle,
    Meter,
    MeterKind,
    Profile,
    StopPhase,
    StopProgress,
)
from rgt_tui.profiles import load_profile
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import TOO_SOON, HelpScreen, ReceiptScreen, TeardownScreen, teardown
from rgt_tui.ui.widgets import FittedLines, text_of
from rgt_tui.ui.widgets.teardown.confirm import DialogButton
from rgt_tui.ui.widgets.teardown.confirm_state import DialogStage
from rgt_tui.ui.widgets.teardown.evidence_list import EvidenceList
from tests.ui.fakes import FakeFleet
from tests.ui.snap import resize, screen_text, until

BOX = "vast-demo"
SIZES = [(60, 20), (80, 24), (120, 34), (200, 50)]


class ParkFleet(FakeFleet):
    """A fleet whose platform can park as well as destroy."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews: list[BillingVerb] = []
        self.fail_review: Exception | None = None
        self.break_after: int | None = None

    def profile_of(self, box: str) -> Profile:
        return msgspec.structs.replace(
            super().profile_of(box),
            billing=(
                BillingAction("stop", "Stop", "park", True, False, True),
                BillingAction("destroy", "Destroy", "destroy", True, True, False),
            ),
        )

    async def review_action(
        self,
        box: str,
        verb: BillingVerb,
        *,
        forfeits: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
        unprotect: str = "",
    ) -> ActionReview:
        self.reviews.append(verb)
        if self.fail_review is not None:
            raise self.fail_review
        return await super().review_action(
            box, verb, forfeits=forfeits, ignored=ignored, unprotect=unprotect
        )

    async def execute_action(
        self,
        box: str,
        verb: BillingVerb,
        typed: str,
        *,
        forfeits: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
        unprotect: str = "",
        evidence_digest: str | None = None,
    ) -> AsyncIterator[StopProgress]:
        count = 0
        steps = super().execute_action(
            box, verb, typed, forfeits=forfeits, ignored=ignored, unprotect=unprotect
        )
        async for step in steps:
            if count == self.break_after:
                raise ConnectionError("connection reset by peer")
            count += 1
            yield step


async def open_dialog(
    pilot: Pilot[None], fleet: ParkFleet, *, guarded: bool = False
) -> TeardownScreen:
    app = pilot.app
    assert isinstance(app, RgtApp)
    await until(pilot, lambda: app.fleet is not None)
    app.open_screen("teardown", BOX)
    await until(pilot, lambda: isinstance(app.screen, TeardownScreen) and app.screen.is_mounted)
    screen = app.screen
    assert isinstance(screen, TeardownScreen)
    await until(
        pilot, lambda: screen.state.review is not None or screen.state.review_error is not None
    )
    if not guarded:
        fleet.advance(1.0)
    return screen


async def type_name(pilot: Pilot[None], screen: TeardownScreen, name: str = BOX) -> None:
    screen.query_one(Input).focus()
    await pilot.pause()
    screen.query_one(Input).post_message(events.Paste(name))
    await until(pilot, lambda: screen.state.typed == name)


def button(screen: TeardownScreen, name: str) -> DialogButton:
    return screen.query_one(f"#{name}", DialogButton)


def said(screen: TeardownScreen) -> str:
    return "\n".join(text_of(row) for part in screen.query(FittedLines) for row in part.shown_lines)


def app_of(fleet: ParkFleet) -> RgtApp:
    return RgtApp(lambda: fleet)


async def test_it_opens_on_cancel_with_park_chosen_and_nothing_typed() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        assert screen.focused is button(screen, "cancel")
        assert screen.state.verb is BillingVerb.PARK
        assert screen.query_one(Input).value == ""
        assert button(screen, "ok").disabled
        assert button(screen, "ok").text == "Stop vast-demo"
        assert "will send" in said(screen)


async def test_enter_mash_after_the_opening_key_cancels_at_worst() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet, guarded=True)
        await pilot.press("D", "D", "enter", "enter", "enter")
        assert pilot.app.screen is screen
        assert screen.query_one(Input).value == ""
        fleet.advance(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert fleet.executed == []


async def test_input_that_comes_too_early_is_dropped() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet, guarded=True)
        screen.query_one(Input).focus()
        await pilot.press("v", "a", "escape")
        assert pilot.app.screen is screen
        assert screen.query_one(Input).value == ""


async def test_a_key_right_behind_a_change_is_lost_and_that_is_said() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        screen._apply_state(replace(screen.state, guard_from=fleet.now()))
        screen.query_one(EvidenceList).focus()
        await pilot.press("P")
        assert not screen.pulls.find_pull(BOX)
        assert f"▲ {TOO_SOON}" in said(screen)
        fleet.advance(1.0)
        screen.query_one(Input).focus()
        await pilot.press("v")
        assert screen.state.typed == "v"
        assert TOO_SOON not in said(screen)


@pytest.mark.parametrize("key", ["escape", "enter"])
async def test_cancel_counts_right_behind_a_change(key: str) -> None:
    """It loses nothing; a box that trains changes its evidence every other second, and one had to press it again."""
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        screen._apply_state(replace(screen.state, guard_from=fleet.now()))
        assert screen.query_one("#cancel").has_focus
        await pilot.press(key)
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert fleet.executed == []


async def test_escape_cancels() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is not screen)
        assert fleet.executed == []


async def test_a_wrong_name_sends_nothing() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        for typed in ("vast-dem", "vast-demo ", "Vast-demo"):
            screen.query_one(Input).value = ""
            await type_name(pilot, screen, typed)
            assert button(screen, "ok").disabled
            await pilot.press("enter", "enter")
        await pilot.press("tab", "enter")
        await pilot.pause()
        assert fleet.executed == []


async def test_the_name_then_the_button_parks() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await pilot.press("shift+tab", *BOX)
        assert screen.state.typed == BOX
        assert not button(screen, "ok").disabled
        await pilot.press("enter")
        assert screen.focused is button(screen, "ok")
        await pilot.press("enter")
        await pilot.pause()
        assert fleet.executed == [], "the Enter that left the field must not press the button"
        fleet.advance(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.OFF)
        assert fleet.executed == [(BOX, BillingVerb.PARK, BOX)]
        assert "✔ meter off" in said(screen)
        assert not button(screen, "ok").display, "nothing is left to press"
        assert str(screen.query_one("#dialog").border_title).startswith("vast-demo: stopped"), (
            "no question"
        )
        assert button(screen, "cancel").text == "Close"


async def test_pasting_is_typing() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        field = screen.query_one(Input)
        field.focus()
        field.post_message(events.Paste("vast-\x1b[31mdemo"))
        await pilot.pause()
        assert field.value == ""
        field.post_message(events.Paste("vast-demo\n"))
        await until(pilot, lambda: screen.state.may_confirm(fleet.now()))


async def test_changing_to_destroy_empties_the_name() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        await pilot.press("shift+tab", "shift+tab", "right")
        await until(
            pilot,
            lambda: screen.state.verb is BillingVerb.DESTROY and screen.state.review is not None,
        )
        assert screen.query_one(Input).value == ""
        assert button(screen, "ok").text == "Destroy vast-demo"
        assert button(screen, "ok").disabled
        assert fleet.reviews[-1] is BillingVerb.DESTROY
        fleet.advance(1.0)
        assert await pilot.click("#verbs", offset=(17, 0))
        await until(pilot, lambda: screen.state.verb is BillingVerb.PARK)


async def test_it_is_reviewed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "REVIEW_SECONDS", 0.01)
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        fleet.review_changes = {"status": "stopped"}
        await until(pilot, lambda: "provider says stopped, was running" in said(screen))


async def test_the_button_obeys_the_newest_review() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        ok = button(screen, "ok")

        fleet.review_changes = {"status": "stopped"}
        screen.start_review()
        await until(pilot, lambda: bool(screen.state.changed))
        assert "provider says stopped, was running" in said(screen)
        assert screen.query_one(Input).value == "", "it was typed for something else"
        assert ok.disabled
        fleet.advance(1.0)
        await type_name(pilot, screen)
        assert not ok.disabled

        fleet.review_changes = {
            "status": "stopped",
            "refusals": ("training runs: gpt-b pid 231 step 655 advanced 1 s ago",),
        }
        screen.start_review()
        await until(pilot, lambda: ok.disabled)
        assert "training runs: gpt-b pid 231" in said(screen)

        fleet.review_changes = {"status": "stopped"}
        screen.start_review()
        await until(pilot, lambda: not ok.disabled)

        fleet.fail_review = TimeoutError()
        screen.start_review()
        await until(pilot, lambda: ok.disabled)
        assert "TimeoutError" in said(screen)


async def test_the_gate_closing_at_ok_sends_nothing_and_says_so() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        fleet.review_changes = {"refusals": ("a training process started 1 s ago",)}
        await pilot.press("tab", "tab")
        assert screen.focused is button(screen, "ok")
        await pilot.press("enter")
        await until(pilot, lambda: bool(screen.state.closed))
        assert fleet.executed == []
        assert "nothing was sent" in said(screen)
        assert "a training process started" in said(screen)
        assert screen.query_one(Input).value == ""
        assert screen.focused is button(screen, "cancel")


@pytest.mark.parametrize("break_after", [0, 1])
async def test_losing_the_network_in_mid_call_is_never_silent(break_after: int) -> None:
    fleet = ParkFleet()
    fleet.break_after = break_after
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.UNKNOWN)
        assert "state unknown, check the console" in said(screen)
        assert "connection reset" in said(screen)


async def test_unconfirmed_is_an_unknown_state() -> None:
    fleet = ParkFleet()
    fleet.steps = (StopPhase.REQUESTED, StopPhase.UNCONFIRMED)
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.UNKNOWN)
        assert "✔ meter off" not in said(screen)


async def test_closing_leaves_the_request_going_and_says_so() -> None:
    fleet = ParkFleet()
    fleet.progress_gate = asyncio.Event()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: screen.state.in_flight)
        assert "closing this does not stop the request" in said(screen)
        hints: list[str] = []
        behind = pilot.app.screen_stack[-2]
        behind.hint = hints.append  # type: ignore[attr-defined]
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is behind)
        assert "continues" in hints[0]
        again = await open_dialog(pilot, fleet)
        assert again.state.elsewhere
        await type_name(pilot, again)
        assert button(again, "ok").disabled
        await pilot.press("escape")
        await until(pilot, lambda: pilot.app.screen is behind)
        fleet.progress_gate.set()
        await until(pilot, lambda: len(hints) == 2)
        assert "meter is off" in hints[1]
        assert len(fleet.executed) == 1


async def test_a_bad_end_after_closing_is_a_notification() -> None:
    fleet = ParkFleet()
    fleet.progress_gate = asyncio.Event()
    fleet.steps = (StopPhase.REQUESTED, StopPhase.FAILED)
    app = app_of(fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: screen.state.in_flight)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not screen)
        fleet.progress_gate.set()
        await until(pilot, lambda: len(app._notifications) == 1)
        assert "state unknown" in next(iter(app._notifications)).message


async def test_hostile_texts_are_not_markup() -> None:
    fleet = ParkFleet()
    fleet.review_changes = {
        "instance": "[red]9[/red]\x1b[31m",
        "native_label": "[link=x]Stop",
        "will_send": "POST /[bold]x\x1b]0;title\x07",
        "lost": ("[/]",),
        "status": "[blink",
    }
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        assert "POST /[bold]x" in said(screen)
        assert button(screen, "ok").text == "Stop ([link=x]Stop) vast-demo"
        assert "\x1b" not in said(screen)
        assert "[red]9[/red]" in screen.query_one("#dialog")._border_title.plain  # type: ignore[union-attr]


async def test_what_must_be_done_is_on_screen_at_every_size() -> None:
    fleet = ParkFleet()
    fleet.review_changes = {"refusals": tuple(f"reason {i} " + "x" * 60 for i in range(8))}
    async with app_of(fleet).run_test(size=SIZES[0]) as pilot:
        screen = await open_dialog(pilot, fleet)
        for width, height in SIZES:
            await resize(pilot, width, height)
            await pilot.pause()
            for name in ("#name", "#cancel", "#ok", "#status"):
                region = screen.query_one(name).region
                assert region.width > 0
                assert screen.region.contains_region(region), (name, width)
        await pilot.press("pagedown", "pageup")


async def test_every_key_is_declared() -> None:
    ids = [command.id for command in TeardownScreen.commands()]
    assert len(ids) == len(set(ids))
    assert {"teardown.close", "teardown.press", "teardown.other-verb"} <= set(ids)


async def test_typing_goes_into_the_name_field_wherever_the_focus_is() -> None:
    fleet = ParkFleet()
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        assert screen.focused is not None
        assert screen.focused.id == "cancel"
        await pilot.press(*BOX)
        assert screen.query_one(Input).value == BOX
        assert screen.state.typed == BOX


async def test_the_key_that_opened_the_dialog_is_not_typed_when_it_repeats() -> None:
    fleet = ParkFleet()
    app = RgtApp(lambda: fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet, guarded=True)
        await pilot.press("D", "D", "space")
        assert screen.query_one(Input).value == ""
        assert screen.focused is not None
        assert screen.focused.id == "cancel"


async def test_a_box_without_a_control_plane_shows_the_platform_s_own_way_and_sends_nothing() -> (
    None
):
    class Unowned(ParkFleet):
        async def review_action(self, box: str, verb: BillingVerb, **_: object) -> ActionReview:
            raise GateClosed((f"{box} has no control plane in the fleet file",))

        def profile_of(self, box: str) -> Profile:
            return load_profile("vastai")

    fleet = Unowned()
    async with app_of(fleet).run_test(size=(80, 24)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await until(pilot, lambda: "by hand" in said(screen))
        assert "console: Stop" in said(screen)
        assert "charged until you destroy" in said(screen)
        assert "container-disk: price unknown" in said(screen)
        await type_name(pilot, screen)
        assert button(screen, "ok").disabled
        assert fleet.executed == []


async def test_without_a_control_plane_there_is_nothing_to_type_and_y_copies_the_steps(
    state_home: Path,
) -> None:
    class Chinese(ParkFleet):
        def profile_of(self, box: str) -> Profile:
            action = BillingAction(
                "stop", "关机", "park", True, False, True, how=("console: 关机",)
            )
            return msgspec.structs.replace(super().profile_of(box), billing=(action,))

    fleet = Chinese()
    fleet.fail_review = NoControlPlane((f"{BOX} has no control plane in the fleet file",))
    async with app_of(fleet).run_test(size=(100, 30)) as pilot:
        screen = await open_dialog(pilot, fleet)
        text = said(screen)
        assert "1              open the console of" in text and "2              click 关机" in text
        assert not screen.query_one(Input).display or not screen.query_one("#typing").display
        assert not button(screen, "ok").display
        await pilot.press("x", "y")
        await until(pilot, lambda: (state_home / "copied.txt").exists())
        assert (state_home / "copied.txt").read_text().splitlines()[1] == "2. click 关机"
        assert "copied what to click for vast-demo" in said(screen)
        assert screen.state.typed == "" and fleet.executed == []
        assert str(screen.query_one("#dialog").border_title) == "Stop (关机) vast-demo?"
        fleet.fail_review = None
        screen.start_review()
        await until(pilot, lambda: screen.state.review is not None)
        assert screen.query_one("#typing").display, "the fleet file names one now"
        assert button(screen, "ok").text == "Stop vast-demo"


async def test_y_copies_a_row_of_the_evidence_and_is_a_letter_in_the_field(
    state_home: Path,
) -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(100, 40)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await pilot.press("down", "y")
        await until(pilot, lambda: (state_home / "copied.txt").exists())
        assert (state_home / "copied.txt").read_text().startswith("roster: 3 cells")
        assert "copied the evidence roster" in said(screen)
        await pilot.press("tab", "y")
        await until(pilot, lambda: screen.state.typed == "y")


class LongFleet(ParkFleet):
    """A review with more of everything than a small screen has lines."""

    LOST = tuple(f"/data/{place:02}" for place in range(30))
    ITEMS = tuple(
        EvidenceItem(f"row{place}", True, f"item {place:02} holds", 0.0) for place in range(30)
    )

    async def review_action(
        self,
        box: str,
        verb: BillingVerb,
        *,
        forfeits: frozenset[str] = frozenset(),
        ignored: frozenset[str] = frozenset(),
        unprotect: str = "",
    ) -> ActionReview:
        made = await super().review_action(
            box, verb, forfeits=forfeits, ignored=ignored, unprotect=unprotect
        )
        return msgspec.structs.replace(made, lost=self.LOST, items=self.ITEMS)


async def test_all_that_is_lost_and_all_evidence_can_be_scrolled_to() -> None:
    fleet = LongFleet()
    app = app_of(fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await until(
            pilot, lambda: "more" in text_of(screen.query_one("#more", FittedLines).shown_lines[0])
        )
        seen = screen_text(app)
        assert "▼" in seen
        for _ in range(30):
            await pilot.press("pagedown")
            await pilot.pause()
            seen += screen_text(app)
        assert all(text in seen for text in fleet.LOST)
        assert all(item.text in seen for item in fleet.ITEMS)
        assert "▼" not in text_of(screen.query_one("#more", FittedLines).shown_lines[0])


@pytest.mark.parametrize("focus", ["#cancel", "#name"])
async def test_the_help_key_opens_the_page_of_keys_and_types_nothing(focus: str) -> None:
    fleet = ParkFleet()
    app = app_of(fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        screen.query_one(focus).focus()
        await pilot.pause()
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
        assert screen.state.typed == ""


LONG = "compute off; keeps billing: " + "; ".join(
    f"volume {n}, 10 GB, $1.50 a month" for n in range(6)
)
RECEIPT_OF = Receipt(
    action="a1",
    box=BOX,
    verb=BillingVerb.DESTROY,
    label="Destroy",
    platform="Vast.ai",
    instance="9918231",
    who="han@desk",
    begun_at=1.0,
    call="DELETE /instances/9918231/",
    state=ActionState.OFF,
    ended_at=2.0,
    said=LONG,
    spent=4.2,
    per_hour=0.42,
    kept=(
        KeptResults(
            path="/workspace/out",
            owner="cell lstm-b",
            files=3,
            bytes=99,
            by="copy",
            where="/h/p",
            sha256="e" * 64,
        ),
    ),
    keeps_billing=tuple(f"volume {n}, 10 GB, $1.50 a month" for n in range(6)),
    to_end="Destroy, and the deletion of every Volume",
)


class WithReceipt(ParkFleet):
    """The call ends with a sentence that is longer than any line."""

    def __init__(self, receipt: Receipt = RECEIPT_OF) -> None:
        super().__init__()
        self.made = receipt

    async def execute_action(self, *arguments: Any, **given: Any) -> AsyncIterator[StopProgress]:
        async for step in super().execute_action(*arguments, **given):
            yield (
                StopProgress(step.phase, step.at, LONG)
                if step.phase is StopPhase.METER_OFF
                else step
            )
        self.receipts[BOX] = self.made


@pytest.mark.parametrize("size", SIZES)
async def test_it_ends_with_a_receipt_and_what_still_bills_is_not_cut_off(
    size: tuple[int, int],
) -> None:
    fleet = WithReceipt()
    app = app_of(fleet)
    async with app.run_test(size=size) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        screen.query_one("#ok").focus()
        fleet.advance(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.OFF)
        await until(pilot, lambda: screen.receipt is not None)
        await until(pilot, lambda: screen.focused is button(screen, "cancel"))
        rows = screen.query_one("#facts", FittedLines)
        await until(pilot, lambda: "to end that" in "".join(map(text_of, rows.shown_lines)))
        text = " ".join(" ".join(text_of(row) for row in rows.shown_lines).split())
        for part in (
            "still bills",
            "volume 5",
            "to end that",
            "Vast.ai 9918231",
            "e" * 8,
            "$4.20 in all",
        ):
            assert part in text, part
        assert "disk" not in text and "is kept" not in text, (
            "the machine was destroyed with its disk"
        )
        assert text.count("volume 5") == 1, "the end does not repeat what still bills"
        labels = {text_of(row)[:15].strip() for row in rows.shown_lines}
        assert {"still bills", "to end that"} <= labels, "the column of labels is as wide as below"
        for hidden in ("#typing", "#asked", "#verbs", "#ok"):
            assert not screen.query_one(hidden).display, hidden
        shown = screen_text(app)
        assert "esc close" in shown and "esc cancel" not in shown
        assert "meter off " in text_of(screen.query_one("#course", FittedLines).shown_lines[0])
        assert "here" not in [row.strip() for row in shown.splitlines()]
        assert not screen.query_one(EvidenceList).display
        copied = screen.to_copy()
        assert copied is not None and copied.text.startswith(f"# {BOX}: destroyed")
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not screen)


async def test_after_a_park_d_reviews_destroying_as_the_receipt_offers() -> None:
    fleet = WithReceipt(msgspec.structs.replace(RECEIPT_OF, verb=BillingVerb.PARK))
    app = app_of(fleet)
    async with app.run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await pilot.press("D")
        assert screen.state.typed == "D", "in the review it is a letter of the name"
        await pilot.press("backspace")
        await type_name(pilot, screen)
        screen.query_one("#ok").focus()
        fleet.advance(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: screen.receipt is not None)
        await until(pilot, lambda: "D end what still bills" in screen_text(app))
        fleet.change(BOX, meter=Meter(lifecycle=Lifecycle.STOPPED, kind=MeterKind.STORAGE_ONLY))
        await pilot.press("D")
        await until(pilot, lambda: app.screen is not screen)
        review = app.screen
        assert isinstance(review, TeardownScreen)
        assert (review.state.stage, review.state.verb) == (DialogStage.REVIEW, BillingVerb.DESTROY)
        assert screen not in app.screen_stack


async def test_at_80_by_24_the_first_reason_and_the_keys_are_in_sight() -> None:
    fleet = ParkFleet()
    why = "a process of lab trains: python train.py"
    fleet.review_changes = {"items": (EvidenceItem("quiet", False, why, fleet.now()),)}
    app = app_of(fleet)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await open_dialog(pilot, fleet)
        text = screen_text(app)
        assert f"quiet: {why}" in text
        assert "↓ evidence" in text and "? help" in text and "esc cancel" in text
        await pilot.press("down")
        await until(pilot, lambda: "f give up" in screen_text(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        assert screen.query_one(Input).value == ""


async def test_the_line_below_the_field_says_which_key_leads_to_the_button() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        await until(pilot, lambda: "the button sends it; enter goes there" in said(screen))
        await pilot.press("enter")
        await until(pilot, lambda: "the button sends it; enter presses it" in said(screen))


async def test_d_on_a_machine_that_is_gone_shows_the_receipt_and_offers_no_action() -> None:
    fleet = WithReceipt()
    app = app_of(fleet)
    gone = Meter(
        lifecycle=Lifecycle.GONE,
        kind=MeterKind.STORAGE_ONLY,
        at=1.0,
        source="vast",
        native_status="404",
    )
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.fleet is not None)
        fleet.change(BOX, meter=gone)
        app.open_screen("teardown", BOX)
        await until(pilot, lambda: isinstance(app.screen, ReceiptScreen) and app.screen.is_read)
        text = "\n".join(text_of(row) for row in app.screen.query_one(FittedLines).shown_lines)
        assert "was not stopped from here" in text and "storage that outlived it" in text
        assert "kept" not in text, "nothing says that the disk of a destroyed machine is kept"
        assert fleet.reviews == []


class Clicked(ParkFleet):
    """Nobody but the person can stop its meter: the call ends at the console."""

    steps_by_hand = (StopPhase.YOURS,)

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.steps_by_hand
        self.waits = ""

    async def review_action(self, *arguments: Any, **given: Any) -> ActionReview:
        made = await super().review_action(*arguments, **given)
        return msgspec.structs.replace(
            made, waits=self.waits, waiting=BillingVerb.DESTROY if self.waits else None
        )


async def test_the_click_is_the_person_s_and_so_is_the_word_that_it_is_done() -> None:
    fleet = Clicked()
    fleet.fail_done = GateClosed((f"{BOX} still answers over SSH",))
    async with app_of(fleet).run_test(size=(100, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await type_name(pilot, screen)
        screen.query_one("#ok").focus()
        fleet.advance(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.YOURS)
        assert "click" in said(screen)
        assert screen.focused is button(screen, "cancel"), "the word is given on purpose"
        assert button(screen, "ok").text == f"{BOX} is stopped"
        assert not str(screen.query_one("#dialog").border_title).endswith("?")
        screen.query_one("#ok").focus()
        fleet.advance(1.0)
        await pilot.press("enter")
        await until(pilot, lambda: "still answers over SSH" in said(screen))
        assert screen.state.stage is DialogStage.YOURS
        fleet.fail_done = None
        await pilot.press("enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.OFF)
        assert fleet.done_asked == 2


async def test_a_dialog_that_is_opened_again_waits_for_the_word() -> None:
    fleet = Clicked()
    fleet.waits = f"destroy of {BOX} waits since 05:20 for your click on the console"
    async with app_of(fleet).run_test(size=(100, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        await until(pilot, lambda: screen.state.stage is DialogStage.YOURS)
        assert screen.state.verb is BillingVerb.DESTROY
        assert "waits since 05:20" in said(screen)
        assert button(screen, "ok").text == f"{BOX} is destroyed"
