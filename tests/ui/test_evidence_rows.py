"""The evidence on the teardown page: what blocks the action comes first, and is given up by name or not at all."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from rich.cells import cell_len
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from rgt_tui import language
from rgt_tui.model import BillingVerb, EvidenceItem, Meter, RiskLevel
from rgt_tui.ui.screens import TeardownScreen
from rgt_tui.ui.widgets import Line, Tone, text_of, width_of
from rgt_tui.ui.widgets.teardown.confirm_state import NOTHING, ConfirmState, DialogStage, ItemChoice
from rgt_tui.ui.widgets.teardown.confirm_view import typing_prompt
from rgt_tui.ui.widgets.teardown.evidence_list import (
    EvidenceList,
    in_order,
    key_hints,
    list_lines,
    rows_of,
)
from tests.ui.fakes import GIB, NOW
from tests.ui.snap import resize, until
from tests.ui.test_teardown import (
    BOX,
    SIZES,
    ParkFleet,
    app_of,
    button,
    open_dialog,
    said,
    type_name,
)
from tests.ui.test_teardown_state import LATER, review
from tests.unit.gate.builders import evidence, group, told

PROVED = EvidenceItem(
    "results:/w/a", True, "/w/a: a verified copy", NOW, path="/w/a", bytes=GIB, newest=NOW
)
GIVABLE = EvidenceItem(
    "results:/w/b", False, "/w/b is erased; not pulled", NOW, fact="/w/b f1", forfeitable=True,
    path="/w/b", bytes=3 * GIB, newest=NOW - 700,
)  # fmt: skip
NOBODYS = EvidenceItem(
    "results:/home/x", False, "nobody owns 12 files; not pulled", NOW, fact="/home/x f1", forfeitable=True,
    ignorable=True, path="/home/x", bytes=GIB // 2, newest=NOW - 86_400,
)  # fmt: skip
FIXED = EvidenceItem("identity", False, "wrong machine: it calls itself pod-b", NOW)
QUIET = EvidenceItem("quiet", True, "nothing trains", NOW - 4)
ITEMS = (QUIET, PROVED, GIVABLE, NOBODYS)


def lines_of(
    *items: EvidenceItem, picked: str = "", width: int = 100, choice: ItemChoice = NOTHING
) -> list[Line]:
    made = review(items=items, at=NOW, steady_at=NOW)
    return [each for _, each in list_lines(rows_of(made, choice, NOW), picked, width)]


def texts(lines: Iterable[Line]) -> list[str]:
    return [text_of(made) for made in lines]


def opened(*items: EvidenceItem) -> ConfirmState:
    return ConfirmState(BOX, BillingVerb.DESTROY, NOW).apply_review(review(items=items), NOW)


def test_each_kind_stands_together_and_what_is_against_comes_first() -> None:
    made = review(items=(QUIET, PROVED, FIXED, GIVABLE, EvidenceItem("name", False, "not typed")))
    assert [item.key for item in in_order(made)] == [
        "results:/w/b",
        "results:/w/a",
        "identity",
        "quiet",
    ]


def test_a_kind_is_named_once_and_every_row_has_its_age() -> None:
    shown = texts(lines_of(*ITEMS))
    assert "size" in shown[0] and "newest" in shown[0] and "age" in shown[0]
    assert [" results " in row for row in shown[1:]] == [True, False, False, False]
    assert "3.2 GB" in shown[1]
    assert "11m40" in shown[1]
    assert shown[-1].endswith("4s")


def test_an_unknown_age_is_no_age() -> None:
    assert (
        texts(lines_of(EvidenceItem("quiet", True, "nothing trains")))[1]
        .rstrip()
        .endswith("nothing trains")
    )


def test_what_nobody_owns_is_shown_with_its_directory_and_size() -> None:
    row = texts(lines_of(NOBODYS))[1]
    assert "/home/x: nobody owns 12 files" in row
    assert "537 MB" in row


def test_green_is_neither_what_is_given_up_nor_what_is_ignored() -> None:
    given = msgspec.structs.replace(GIVABLE, forfeited=True)
    ignored = msgspec.structs.replace(NOBODYS, ok=True)
    for item in (given, ignored):
        assert not any(span.tone is Tone.PROVED for span in lines_of(item)[1])
    assert "given up: /w/b" in texts(lines_of(given))[1]
    assert any(span.tone is Tone.PROVED for span in lines_of(PROVED)[1])


def test_the_selected_row_is_whole_and_says_what_its_keys_do() -> None:
    long = msgspec.structs.replace(
        NOBODYS, text="nobody owns " + " ".join(f"file{n}" for n in range(40))
    )
    shown = "\n".join(texts(lines_of(long, picked=long.key, width=80)))
    assert "file39" in shown
    assert "f gives it up: 537 MB, newest 1d 0h ago" in shown
    assert "i it is no result" in shown
    assert "cannot be given up" in "\n".join(texts(lines_of(FIXED, picked="identity")))
    assert key_hints(rows_of(review(items=(PROVED,)), NOTHING, NOW)[0], 80) == []


@pytest.mark.parametrize("width", [24, 56, 76, 118, 196])
def test_no_line_is_wider_than_its_room(width: int) -> None:
    for item in (*ITEMS, FIXED):
        for made in lines_of(*ITEMS, FIXED, picked=item.key, width=width):
            assert width_of(made) <= width


def test_giving_up_asks_for_a_new_review_and_empties_the_field() -> None:
    state = opened(GIVABLE).enter_text(BOX).give_up(GIVABLE.key, LATER)
    assert state.typed == ""
    assert state.choice.forfeit_keys == {GIVABLE.key}
    assert "the review is being repeated" in state.list_blockers(LATER + 1)
    assert state.give_up(GIVABLE.key, LATER).choice == NOTHING


@pytest.mark.parametrize("item", [FIXED, PROVED, QUIET, msgspec.structs.replace(GIVABLE, ok=True)])
def test_what_cannot_be_given_up_is_not(item: EvidenceItem) -> None:
    state = opened(item).enter_text(BOX)
    after = state.give_up(item.key, LATER)
    assert after.choice == NOTHING
    assert after.told
    assert after.typed == BOX


def test_only_what_nobody_owns_is_ignored() -> None:
    state = opened(GIVABLE, NOBODYS)
    assert state.toggle_ignored(GIVABLE.key, LATER).choice == NOTHING
    assert state.toggle_ignored(NOBODYS.key, LATER).choice.ignored_keys == {NOBODYS.key}
    assert (
        state.toggle_ignored(NOBODYS.key, LATER).toggle_ignored(NOBODYS.key, LATER).choice
        == NOTHING
    )
    by_file = msgspec.structs.replace(NOBODYS, ok=True, text="ignored by the fleet file")
    assert opened(by_file).toggle_ignored(by_file.key, LATER).choice == NOTHING
    both = state.give_up(NOBODYS.key, LATER).toggle_ignored(NOBODYS.key, LATER).choice
    assert (both.forfeit_keys, both.ignored_keys) == (frozenset(), frozenset({NOBODYS.key}))


def test_a_review_for_another_choice_does_not_count() -> None:
    state = opened(GIVABLE).give_up(GIVABLE.key, LATER)
    late = review(items=(PROVED,), at=LATER)
    assert state.apply_review(late, LATER, NOTHING) == state
    counted = state.apply_review(late, LATER, state.choice)
    assert counted.review == late


def test_a_review_that_gives_up_more_than_the_person_locks() -> None:
    given = msgspec.structs.replace(GIVABLE, forfeited=True)
    forfeits = opened(GIVABLE).give_up(GIVABLE.key, LATER).choice.forfeits
    state = opened(given)
    state = state.apply_review(
        review(items=(given,), forfeits=forfeits, phrase="x", at=LATER), LATER
    ).enter_text("x")
    assert not state.may_confirm(LATER + 1)


@pytest.mark.parametrize(
    ("now", "part"),
    [
        (
            msgspec.structs.replace(
                GIVABLE, fact="/w/b f2", text="/w/b has a newer file", forfeited=True
            ),
            "newer file",
        ),
        (msgspec.structs.replace(GIVABLE, ok=True, text="pulled and verified"), "it is proved now"),
        (QUIET, "no longer exists"),
    ],
)
def test_a_forfeit_of_what_has_changed_since_is_dropped_and_said(
    now: EvidenceItem, part: str
) -> None:
    state = opened(GIVABLE).give_up(GIVABLE.key, LATER)
    first = msgspec.structs.replace(GIVABLE, forfeited=True)
    phrase = f"forfeit 1 of {BOX}"
    state = state.apply_review(
        review(items=(first,), phrase=phrase, forfeits=state.choice.forfeits, at=LATER), LATER
    ).enter_text(phrase)
    assert state.may_confirm(LATER + 1)
    changed = state.apply_review(
        review(items=(now,), phrase=phrase, forfeits=state.choice.forfeits, at=LATER), LATER
    )
    assert changed.choice == NOTHING
    assert part in "\n".join(changed.changed)
    assert changed.typed == ""
    assert not changed.enter_text(phrase).may_confirm(LATER + 1), (
        "the review is for what is no longer given up"
    )


def test_an_ignored_directory_with_a_newer_file_is_not_ignored_any_more() -> None:
    state = opened(NOBODYS).toggle_ignored(NOBODYS.key, LATER)
    calm = msgspec.structs.replace(
        NOBODYS, ok=True, text="ignored by you", fact="x", newest=NOW - 86_399
    )
    newer = msgspec.structs.replace(calm, newest=NOW)
    more = msgspec.structs.replace(calm, bytes=GIB)
    assert state.apply_review(review(items=(calm,), at=LATER), LATER).choice == state.choice
    for item in (newer, more):
        changed = state.apply_review(review(items=(item,), at=LATER), LATER)
        assert changed.choice == NOTHING
        assert "has changed" in changed.changed[0]


def test_what_follows_from_a_choice_is_no_news() -> None:
    state = opened(GIVABLE, NOBODYS).give_up(GIVABLE.key, LATER)
    given = msgspec.structs.replace(GIVABLE, forfeited=True)
    after = state.apply_review(
        review(
            items=(given, NOBODYS), phrase="forfeit 1", forfeits=state.choice.forfeits, at=LATER
        ),
        LATER,
    )
    assert after.changed == ()


def test_protection_is_lifted_by_its_own_phrase_first() -> None:
    state = ConfirmState(BOX, BillingVerb.DESTROY, NOW).apply_review(
        review(unprotect=f"unprotect {BOX}", phrase=BOX), NOW
    )
    assert state.wanted_text == f"unprotect {BOX}"
    assert not state.enter_text(BOX).may_confirm(LATER)
    assert state.enter_text(BOX).lift_protection(LATER) == state.enter_text(BOX)
    assert not state.enter_text(f"unprotect {BOX}").may_confirm(LATER)
    lifted = state.enter_text(f"unprotect {BOX}").lift_protection(LATER)
    assert lifted.choice.unprotect == f"unprotect {BOX}"
    assert lifted.typed == ""
    after = lifted.apply_review(review(phrase=BOX, at=LATER), LATER)
    assert after.wanted_text == BOX
    assert after.enter_text(BOX).may_confirm(LATER + 1)


@pytest.mark.parametrize(
    ("level", "typed"),
    [
        (RiskLevel.LOCAL, ""),
        (RiskLevel.RECOVERABLE, ""),
        (RiskLevel.METER, BOX),
        (RiskLevel.IRREVERSIBLE, BOX),
    ],
)
def test_each_level_asks_for_its_own(level: RiskLevel, typed: str) -> None:
    made = review(irreversible=False, level=level, refusals=())
    state = ConfirmState(BOX, BillingVerb.DESTROY, NOW).apply_review(made, NOW)
    assert state.wanted_text == typed
    assert state.may_confirm(LATER) == (typed == "")
    assert state.enter_text(typed).may_confirm(LATER)
    assert ("nothing to type" in text_of(typing_prompt(state, 100))) == (typed == "")


# In the app


async def evidence_page(
    pilot: Pilot[None], fleet: ParkFleet, *items: EvidenceItem
) -> TeardownScreen:
    fleet.review_changes = {"items": items or ITEMS}
    screen = await open_dialog(pilot, fleet)
    await pilot.press("down")
    return screen


async def choose(pilot: Pilot[None], fleet: ParkFleet, screen: TeardownScreen, key: str) -> None:
    fleet.advance(1.0)
    asked_before = len(fleet.reviewed)
    await pilot.press(key)
    await until(
        pilot,
        lambda: (
            len(fleet.reviewed) > asked_before and screen.state.reviewed_for == screen.state.choice
        ),
    )
    fleet.advance(1.0)


async def test_the_rows_are_walked_and_given_up_by_name_and_the_longer_phrase_sends() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet)
        rows = screen.query_one(EvidenceList)
        assert screen.focused is rows
        assert rows.picked_key == GIVABLE.key
        await choose(pilot, fleet, screen, "f")
        await pilot.press("down")
        assert rows.picked_key == NOBODYS.key
        await choose(pilot, fleet, screen, "i")
        assert fleet.reviewed[-1][1:3] == (frozenset({GIVABLE.key}), frozenset({NOBODYS.key}))
        phrase = f"forfeit 1 of {BOX}"
        assert f"type exactly    {phrase}" in said(screen).replace(
            "type exactly   ", "type exactly    ", 1
        ) or (phrase in said(screen))
        assert "gives up 1 thing: 3.2 GB" in said(screen)
        await type_name(pilot, screen, BOX)
        assert button(screen, "ok").disabled, "the name alone does not do any more"
        screen.query_one(Input).value = ""
        await type_name(pilot, screen, phrase)
        assert not button(screen, "ok").disabled
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.OFF)
        assert fleet.executed == [(BOX, BillingVerb.PARK, phrase)]


async def test_no_single_key_on_a_row_sends_anything() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet)
        for key in ("f", "i", "space", "enter", "p", "P", "D", "y", "Y", "down", "ctrl+m", "f"):
            for _ in range(3):
                fleet.advance(1.0)
                await pilot.press(key)
            assert pilot.app.screen is screen, key
            assert screen.state.stage is DialogStage.REVIEW, key
            assert screen.query_one(Input).value == "", key
        assert fleet.executed == []


WRONG = (
    "",
    BOX,
    f"forfeit 1 of {BOX} ",
    f" forfeit 1 of {BOX}",
    f"Forfeit 1 of {BOX}",
    f"forfeit 2 of {BOX}",
    f"fоrfeit 1 of {BOX}",
    f"forfeit\u00a01 of {BOX}",
    f"forfeit 1 of {BOX}\u200b",
    f"forfeit 1 of {BOX.replace('-', '‐')}",
    f"forfeit １ of {BOX}",
)


async def test_nothing_but_the_exact_phrase_sends() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet, QUIET, GIVABLE)
        await choose(pilot, fleet, screen, "f")
        ok, field = button(screen, "ok"), screen.query_one(Input)
        field.focus()
        for typed in WRONG:
            field.value = typed
            await until(pilot, lambda: screen.state.typed == typed)  # noqa: B023
            fleet.advance(1.0)
            await pilot.press("enter", "enter", "enter")
            assert ok.disabled, typed
            assert screen.focused is field, typed
            assert screen.state.stage is DialogStage.REVIEW
        field.value = ""
        field.post_message(events.Paste(f"forfeit 1 of {BOX}\u202e"))
        field.post_message(events.Paste(f"forfeit 1\x1b[31m of {BOX}"))
        await pilot.pause()
        assert field.value == ""
        assert fleet.executed == []
        field.post_message(events.Paste(f"forfeit 1 of {BOX}\nrm -rf /\n"))
        await until(pilot, lambda: not ok.disabled)
        assert fleet.executed == [], "a paste with its line feed presses nothing"


async def test_the_gate_may_shut_at_ok_and_what_was_given_up_stays_named() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet, QUIET, GIVABLE)
        await choose(pilot, fleet, screen, "f")
        await type_name(pilot, screen, f"forfeit 1 of {BOX}")
        fleet.review_changes = {"items": (FIXED, GIVABLE)}
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: bool(screen.state.closed))
        assert "nothing was sent" in said(screen)
        assert screen.query_one(Input).value == ""
        assert screen.state.choice.forfeit_keys == {GIVABLE.key}
        assert fleet.executed == []


@pytest.mark.parametrize("break_after", [0, 1])
async def test_losing_the_network_in_mid_call_leaves_an_unknown_state(break_after: int) -> None:
    fleet = ParkFleet()
    fleet.break_after = break_after
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet, QUIET, GIVABLE)
        await choose(pilot, fleet, screen, "f")
        await type_name(pilot, screen, f"forfeit 1 of {BOX}")
        await pilot.press("tab", "tab", "enter")
        await until(pilot, lambda: screen.state.stage is DialogStage.UNKNOWN)
        assert "state unknown, check the console" in said(screen)
        await pilot.press("up", "f", "p", "P", "i")
        await type_into_nothing(pilot, screen)
        assert len(fleet.executed) == 1
        assert fleet.pulls == []


async def type_into_nothing(pilot: Pilot[None], screen: TeardownScreen) -> None:
    assert screen.query_one(Input).disabled
    await pilot.press(*BOX, "enter")


async def test_a_click_selects_a_row_and_nothing_else() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet)
        rows = screen.query_one(EvidenceList)
        await pilot.click(EvidenceList, offset=(20, len(rows.shown_lines) - 1))
        assert rows.picked_key == QUIET.key
        await pilot.click(EvidenceList, offset=(20, 0))
        assert rows.picked_key == QUIET.key
        assert screen.state.choice == NOTHING
        assert fleet.executed == []


async def test_letters_on_a_row_are_no_name() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet)
        await pilot.press("v", "a")
        assert screen.query_one(Input).value == ""
        assert "tab goes to the field" in said(screen)


async def test_a_forfeit_whose_item_changes_while_the_page_is_open_is_dropped_and_shut() -> None:
    fleet = ParkFleet()
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await evidence_page(pilot, fleet, QUIET, GIVABLE)
        await choose(pilot, fleet, screen, "f")
        await type_name(pilot, screen, f"forfeit 1 of {BOX}")
        assert not button(screen, "ok").disabled
        newer = msgspec.structs.replace(GIVABLE, fact="/w/b f2", text="/w/b has a newer checkpoint")
        fleet.review_changes = {"items": (QUIET, newer)}
        screen.start_review()
        await until(
            pilot, lambda: not screen.state.choice.forfeits and screen.state.reviewed_for == NOTHING
        )
        assert "no longer given up, it has changed: /w/b has a newer checkpoint" in said(screen)
        assert screen.query_one(Input).value == ""
        assert button(screen, "ok").disabled
        assert fleet.reviewed[-1][1] == frozenset()
        assert fleet.executed == []


async def test_a_protected_box_asks_for_its_own_act_first() -> None:
    fleet = ParkFleet()
    fleet.protected = True
    async with app_of(fleet).run_test(size=(120, 34)) as pilot:
        screen = await open_dialog(pilot, fleet)
        assert f"unprotect {BOX}" in said(screen)
        await type_name(pilot, screen, BOX)
        await pilot.press("enter", "enter")
        assert fleet.executed == []
        screen.query_one(Input).value = ""
        await type_name(pilot, screen, f"unprotect {BOX}")
        assert button(screen, "ok").disabled
        await pilot.press("enter")
        await until(
            pilot, lambda: screen.state.review is not None and not screen.state.review.unprotect
        )
        assert screen.query_one(Input).value == ""
        assert button(screen, "ok").disabled
        fleet.advance(1.0)
        await type_name(pilot, screen, BOX)
        assert not button(screen, "ok").disabled
        assert fleet.executed == []


async def test_many_rows_scroll_and_what_is_out_of_sight_is_counted() -> None:
    fleet = ParkFleet()
    items = tuple(
        msgspec.structs.replace(NOBODYS, key=f"results:/data/{n:03}", path=f"/data/{n:03}")
        for n in range(60)
    )
    async with app_of(fleet).run_test(size=SIZES[1]) as pilot:
        screen = await evidence_page(pilot, fleet, *items)
        for size in SIZES:
            await resize(pilot, *size)
            await pilot.pause()
            assert "more" in said(screen)
            for name in ("#name", "#cancel", "#ok", "#status", "#asked", "#keys"):
                region = screen.query_one(name).region
                assert region.area > 0
                assert screen.region.contains_region(region), (name, size)
        await resize(pilot, *SIZES[1])
        await pilot.press(*["down"] * 59)
        await pilot.pause()
        rows = screen.query_one(EvidenceList)
        assert rows.picked_key == "results:/data/059"
        scroll = screen.query_one("#scroll").region
        top = rows.region.y + rows.selection[0]
        assert scroll.y <= top < scroll.bottom
        assert "above" in said(screen)


@pytest.mark.parametrize("width", [76, 116])
def test_the_rows_are_aligned_in_wide_characters(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language, "_current_catalogue", lambda: language.load_catalogue("zh_CN"))
    rows = evidence(told=told(group(owner=""), group(path="/workspace/b")), meter=Meter(error="x"))
    lines = lines_of(*rows.items, width=width)
    assert len(lines) > 5
    ages = set()
    for line in lines:
        assert width_of(line) == width, text_of(line)
        ages.add(cell_len(text_of(line).rstrip()))
    assert ages == {width}, "the last column ends at the edge in every row"
