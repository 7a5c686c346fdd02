"""The fleet's filter: what each term means, what a wrong one is told, and that nothing is hidden in silence."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model import BoxState, FleetState
from rgt_tui.ui import assess_box
from rgt_tui.ui.screens import FleetScreen
from rgt_tui.ui.widgets import EntryNote, text_of
from rgt_tui.ui.widgets.fleet_rows import (
    TEXTS,
    FilterError,
    FleetRow,
    FleetTable,
    FleetView,
    SortOrder,
    filter_rows,
    filter_values,
    parse_filter,
    sort_rows,
    with_filter,
)
from tests.ui.fakes import NOW, lost_box, running_box, sample, stale_box, trouble_box, warn_box
from tests.ui.snap import running, screen_text, settle
from tests.ui.test_gpu_cards import card


def row(box: BoxState, platform: str = "") -> FleetRow:
    return FleetRow(box, assess_box(box, NOW), (), platform, NOW)


ROWS = [
    row(trouble_box(), "Vast.ai"),
    row(lost_box(), "generic SSH"),
    row(warn_box(), "RunPod"),
    row(stale_box(), "generic SSH"),
    row(running_box(), "AutoDL"),
]


def names(text: str, saved: dict[str, str] | None = None) -> list[str]:
    return [one.name.partition("-")[0] for one in filter_rows(ROWS, parse_filter(text, saved)).rows]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "vast lost runpod lab autodl"),
        ("!", "vast lost runpod lab autodl"),
        ("VAST inodes", "vast"),
        ("trouble !runpod", "vast"),
        ("vast nothing", ""),
        ("state:running", "autodl"),
        ("state:stale,unreachable", "lost lab"),
        ("!state:stale", "vast lost runpod autodl"),
        ("platform:autodl", "autodl"),
        ("name:demo !name:lost", "vast runpod autodl"),
        ("gpu<50", "vast"),
        ("gpu>=88% gpu<=92", "lost lab autodl"),
        ("inode=100", "vast"),
        ("cgroup>60", "lost lab"),
        ("age>1m", "vast lost"),
        ("age>42s age<0.1h", "vast lost"),
        ("cost>1", "autodl"),
        ("cost>$0.5", "runpod"),
        ("cost:?", "lost lab"),
        ("!cost:?", "vast runpod autodl"),
        ("loss<1", "lost runpod lab"),
        ("card:4090", "autodl"),
        ("account:demo", "vast lost runpod lab autodl"),
        ("cards=1 power<400", "vast lost runpod lab autodl"),
        ("@busy", "vast"),
        ("!@busy", "lost runpod lab autodl"),
        ("@nested platform:vast", "vast"),
    ],
)
def test_what_a_filter_finds(text: str, found: str) -> None:
    assert names(text, {"busy": "gpu<50 state:trouble", "nested": "@busy"}) == found.split()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gup<50", "there is no gup; there are account, age,"),
        ("gpu<", "gpu<: gpu is a percentage, such as gpu<50"),
        ("gpu<fast", "gpu<fast: gpu is a percentage"),
        ("gpu<5m", "gpu<5m: gpu is a percentage"),
        ("age>5w", "age is a time, such as age<5m"),
        ("cost>€", "cost is an amount, such as cost<1.50, or cost:? for unknown"),
        ("state<5", "state is a word: state:5"),
        ("state:", "a word is missing, such as state:running"),
        ("@gone", "no filter is kept as gone; there are: @busy"),
        ("drop:gone", "no filter is kept as gone"),
        ("save:x", "needs a filter to save"),
        ("gpu<5 save:a/b", "a name is letters"),
        ("@self", "no filter is kept as self"),
    ],
)
def test_a_wrong_term_is_told_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(
            text, {"busy": "gpu<50", "self": "@self"} if "self" in text else {"busy": "gpu<50"}
        )
    assert says in str(caught.value)


def test_every_field_can_be_asked_for_and_what_nobody_knows_is_counted_and_not_taken_for_little() -> (
    None
):
    bare = row(
        BoxState(spec=msgspec.structs.replace(running_box().spec, name="bare", provider=None))
    )
    for field in filter_values():
        for text in (f"{field}<1", f"!{field}<1"):
            found = filter_rows([bare], parse_filter(text))
            assert (found.rows, found.unknown) == ([], 1), text
        assert filter_rows([bare], parse_filter(f"{field}:?")).rows == [bare], field
    for field in TEXTS:
        assert parse_filter(f"{field}:x").tests
    assert (
        filter_rows([bare, *ROWS], parse_filter("gpu<50")).count_text == "1 of 6 shown, 1 unknown"
    )
    assert filter_rows(ROWS, parse_filter("gpu<50")).count_text == "1 of 5 shown"
    assert filter_rows(ROWS, parse_filter("gpu<500")).count_text == ""
    assert filter_rows([bare], parse_filter("gpu<50 zebra")).count_text == "0 of 1 shown", (
        "no is no, whatever else is unknown"
    )


def test_what_is_kept_is_what_was_typed_without_the_word_that_keeps_it() -> None:
    asked = parse_filter("gpu<50 SAVE:idle Vast")
    assert (asked.save, asked.source) == ("idle", "gpu<50 Vast")
    assert parse_filter("drop:idle", {"idle": "x"}).drop == "idle"


def test_the_name_of_a_kept_filter_stays_as_it_was_typed_and_is_found_whatever_its_case() -> None:
    kept = {"Night-A100": "gpu<50"}
    assert parse_filter("GPU<50 save:Night-A100").save == "Night-A100"
    assert (
        names("@night-a100 state:trouble", kept)
        == names("@NIGHT-A100 state:trouble", kept)
        == ["vast"]
    )
    assert parse_filter("DROP:night-A100", kept).drop == "Night-A100", "the one that is kept goes"
    view = with_filter(FleetView(filters=kept), "night-a100", "gpu<20")
    assert view.filters == {"night-a100": "gpu<20"}, "one name in another case is no second one"
    assert with_filter(view, "NIGHT-A100", None).filters == {}
    with pytest.raises(FilterError, match="no filter is kept as Gone; there are: @Night-A100"):
        parse_filter("@Gone", kept)
    own = {"Self": "@sELF"}
    with pytest.raises(FilterError, match="no filter is kept as sELF"):
        parse_filter("@self", own)


STATE = FleetState((running_box(), warn_box(), trouble_box(), stale_box()), (), NOW)


async def test_the_header_counts_what_is_shown_and_a_wrong_term_is_said_beside_it() -> None:
    async with running(STATE, size=(120, 34), keys=("slash", *"gpu")) as (app, pilot, _):
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        table = screen.query_one(FleetTable)
        assert table.row_names == [], "a word that stands nowhere"
        assert "0 of 4 shown" in screen_text(app).splitlines()[0]
        assert "no box matches gpu" in screen_text(app)
        await pilot.press("less_than_sign")
        await settle(pilot)
        note = text_of(screen.query_one(EntryNote).shown_lines[0])
        assert "gpu<: gpu is a percentage, such as gpu<50" in note
        await pilot.press("5", "0")
        await settle(pilot)
        assert screen.query_one(EntryNote).size.width == 0
        assert table.row_names == ["vast-demo"]
        assert "1 of 4 shown" in screen_text(app).splitlines()[0]
        await pilot.press("x", "enter")
        await settle(pilot)
        assert "gpu<50x: gpu is a percentage" in screen_text(app).splitlines()[-2]
        assert table.row_names == ["vast-demo"], (
            "the filter before it holds on, and the header says so"
        )
        await pilot.press("escape")
        await settle(pilot)
        assert len(table.row_names) == 4
        assert "shown" not in screen_text(app).splitlines()[0]


async def test_kept_filters_and_groups_and_the_order_are_there_the_next_time() -> None:
    keys = ("slash", *"gpu", "less_than_sign", *"50", "space", *"save", "colon", *"Low", "enter")
    async with running(STATE, keys=keys) as (app, pilot, _):
        await settle(pilot)
        assert "kept as @Low" in screen_text(app)
        assert app.screen.query_one(FleetTable).row_names == ["vast-demo"]
        await pilot.press("escape", "b", "O")
        await settle(pilot)
        assert "sorted trouble last; O reverses it" in screen_text(app)
        text = screen_text(app)
        assert "▾ AutoDL  1 box  ● 1" in text and "state▴" in text
    async with running(STATE) as (app, pilot, _):
        await settle(pilot)
        table = app.screen.query_one(FleetTable)
        assert table.row_names == ["autodl-demo", "lab-a100-2", "runpod-demo", "vast-demo"], (
            "no filter is on"
        )
        assert "▾ AutoDL  1 box  ● 1" in screen_text(app)
        await pilot.press("F")
        await settle(pilot)
        assert table.row_names == ["vast-demo"]
        assert "@Low  gpu<50" in screen_text(app)
        await pilot.press("F")
        await settle(pilot)
        assert len(table.row_names) == 4
        await pilot.press("slash", "at", *"lOW", "enter")
        await settle(pilot)
        assert table.row_names == ["vast-demo"]
        await pilot.press("F")
        await settle(pilot)
        assert len(table.row_names) == 4, "it was the last one"
        await pilot.press("slash", *"drop", "colon", *"low", "enter")
        await settle(pilot)
        assert "@Low is no longer kept" in screen_text(app)
        await pilot.press("F")
        await settle(pilot)
        assert "no filter is kept; save:NAME in a filter keeps it" in screen_text(app)


@pytest.mark.parametrize(
    ("cards", "worst"),
    [
        ([97.0] * 7 + [None], 0.0),
        ([97.0] * 7 + [4.0], 4.0),
        ([97.0, 91.0], 91.0),
    ],
    ids=["one does not answer", "one idles", "all are busy"],
)
def test_the_worst_card_is_what_is_filtered_and_sorted_by(
    cards: list[float | None], worst: float
) -> None:
    """The mean of seven cards at 97% and a dead one is 97% or 85%: nobody who looks for trouble would find it."""
    gpus = tuple(
        card(place, util=util, error=None if util is not None else "GPU is lost")
        for place, util in enumerate(cards)
    )
    box = running_box("eight")
    eight = row(
        msgspec.structs.replace(box, sample=msgspec.structs.replace(sample(), gpus=gpus)), "RunPod"
    )
    one = row(running_box("one"), "RunPod")
    assert filter_values()["gpu"].read(eight) == worst
    assert bool(filter_rows([eight], parse_filter("gpu<50")).rows) == (worst < 50)
    if worst < 50:
        assert [each.name for each in sort_rows([one, eight], SortOrder("gpu"))] == ["eight", "one"]


def test_cards_that_say_nothing_are_not_at_zero() -> None:
    silent = row(
        msgspec.structs.replace(
            running_box("mute"),
            sample=msgspec.structs.replace(sample(), gpus=(card(0, util=None),)),
        ),
        "RunPod",
    )
    assert filter_values()["gpu"].read(silent) is None
    assert not filter_rows([silent], parse_filter("gpu<50")).rows
