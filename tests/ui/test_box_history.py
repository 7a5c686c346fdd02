"""The past of a box: holes stay holes, extremes are said, and a key goes from 10 minutes to a day."""

from __future__ import annotations

import math

import msgspec
import pytest
from rgt_box.recorder.ring_history import summary_figures as of_the_box

from rgt_tui.fleet.history.past import kept_percentages
from rgt_tui.model import BoxState, FleetState, ReducedHistory, Sample
from rgt_tui.profiles import CARD_FIGURES, MOST_CARDS, is_of_card
from rgt_tui.store.minute_means import iterate_percentages
from rgt_tui.ui.screens import BoxScreen
from rgt_tui.ui.widgets import (
    TALLEST,
    course_of,
    fitting_span,
    label_of,
    mean_per_cell,
    names_of,
    past_room,
    past_section,
    text_of,
    width_of,
)
from tests.ui.boxes import gpu, sample
from tests.ui.fakes import NOW, running_box, trouble_box
from tests.ui.snap import resize, running, screen_text

NAMES = ("util", "vram", "disk:/root/data", "inodes:/root/data")


def kept(width: float, count: int, holes: range = range(0), level: float = 50.0) -> ReducedHistory:
    rows = [i for i in range(count) if i not in holes]
    return ReducedHistory(
        names=NAMES,
        at=tuple(NOW - (count - 1 - i) * width for i in rows),
        values=tuple((level + 40 * math.sin(i / 5), level, 41.0, None) for i in rows),
        width=width,
    )


def box_with(past: ReducedHistory, recent: ReducedHistory | None = None) -> BoxState:
    return msgspec.structs.replace(running_box(), past=past, recent=recent or ReducedHistory())


def lines(box: BoxState, span: int, width: int = 60, height: int = 20) -> list[str]:
    return [text_of(made) for made in past_section(box, span, width, height, NOW).body]


def test_the_stretch_that_is_under_way_is_no_hole() -> None:
    def ends(age: float) -> str:
        past = kept(20.0, 60)
        older = msgspec.structs.replace(past, at=tuple(at - age for at in past.at))
        return lines(box_with(ReducedHistory(), older), 0, width=150, height=6)[-2][:132].rstrip()[
            -1
        ]

    assert ends(29.0) not in "·⡀⢀⣀", "it is merely not whole yet"
    assert ends(120.0) == "·", "nobody saw it"


def test_a_stretch_that_nobody_saw_is_a_hole_at_every_resolution() -> None:
    past = ReducedHistory(
        names=("util",), at=(60.0, 120.0, 300.0), values=((10.0,), (20.0,), (math.nan,)), width=60.0
    )
    assert mean_per_cell(past, 0, 0.0, 300.0, 5) == [10.0, 20.0, None, None, None]
    assert mean_per_cell(past, 0, 0.0, 300.0, 10)[:5] == [10.0, 10.0, 20.0, 20.0, None]
    assert mean_per_cell(past, 0, 0.0, 300.0, 1) == [15.0]
    assert mean_per_cell(past, 0, 1000.0, 1300.0, 5) == [None] * 5
    assert mean_per_cell(past, 0, -600.0, -300.0, 5) == [None] * 5


def test_what_was_seen_finely_is_drawn_finely_and_what_came_before_as_it_is_kept() -> None:
    box = box_with(kept(480, 100, level=10.0), kept(20, 60, holes=range(20, 30), level=90.0))
    vram = course_of(box, "vram", NOW - 3600, NOW, 180)
    assert vram[0] == 10.0 and vram[-1] == 90.0
    assert set(vram[140:149]) == {None}, (
        "the day's stretches do not fill a hole that was seen to be one"
    )
    assert (
        course_of(box_with(ReducedHistory(), kept(20, 60)), "vram", NOW - 3600, NOW, 180)[:119]
        == [None] * 119
    )


def test_each_figure_says_its_extremes_and_the_tall_ones_what_it_is_now() -> None:
    box = box_with(kept(60, 600))
    body = lines(box, 1, height=5)
    assert len(body) == 4, "a figure of which nothing is known has no line"
    assert [row.split()[0] for row in body[:3]] == ["gpu", "vram", "disk"]
    assert (
        "min  10% max  89%" in body[0] and "min  50% max  50%" in body[1] and "disk data" in body[2]
    )
    assert body[-1].split() == ["1", "h", "ago", "30", "min", "now"]
    tall = lines(box, 1, height=20)
    assert len(tall) == TALLEST + TALLEST + 1 + 1 and "now" in tall[0]
    assert tall[0].index("⣀") == len("disk data") + 2, "names take the columns that they need"
    assert all(width_of(made) <= 60 for made in past_section(box, 1, 60, 20, NOW).body)


def test_a_box_that_was_just_met_shows_ten_minutes_and_the_cards_come_first() -> None:
    young = box_with(
        ReducedHistory(names=("disk:/", "vram"), at=(NOW - 60,), values=((1.0, 2.0),), width=60.0)
    )
    assert fitting_span(young, NOW) == 0 and fitting_span(running_box(), NOW) == 0
    assert fitting_span(box_with(kept(60, 600)), NOW) == 1
    assert names_of(young) == ["vram", "disk:/"]
    turned = ReducedHistory(
        names=("cgroup", "vram", "util"), at=(NOW - 60,), values=((1.0, 2.0, 3.0),), width=60.0
    )
    assert names_of(box_with(turned)) == ["util", "vram", "cgroup"], "in one order on every box"
    tmp, fs = (label_of(f"disk:/root/autodl-{end}") for end in ("tmp", "fs"))
    assert (tmp, fs) == ("disk autodl-tmp", "disk autodl-fs")
    mounts = box_with(
        ReducedHistory(
            names=("inodes:/root/autodl-tmp",), at=(NOW - 60,), values=((1.0,),), width=60.0
        )
    )
    assert "inode autodl-tmp " in lines(mounts, 0)[0], "mounts that begin alike are told apart"


def test_the_pane_takes_what_it_can_use_and_no_more() -> None:
    box = box_with(kept(60, 600))
    assert [past_room(box, height) for height in (5, 7, 9, 11, 40)] == [
        5,
        6,
        8,
        10,
        2 * TALLEST + 1 + 3,
    ]
    assert past_room(running_box(), 40) == 3
    assert lines(running_box(), 2) == ["no data of the last 24 h"]


async def test_the_key_goes_through_the_stretches_and_gives_a_small_screen_its_log_back() -> None:
    state = FleetState((box_with(kept(480, 180), kept(20, 180)),), (), NOW)
    async with running(state, size=(120, 34), keys=("enter",)) as (app, pilot, _):
        assert "past 1 h" in screen_text(app) and "gpt-c.log" in screen_text(app)
        for words in ("past 24 h", "the log alone", "past 10 min", "past 1 h"):
            await pilot.press("h")
            await pilot.pause()
            assert words in screen_text(app) and "gpt-c.log" in screen_text(app)
        await resize(pilot, 80, 24)
        await pilot.pause()
        await pilot.pause()
        assert isinstance(app.screen, BoxScreen)
        assert "past 1 h" in screen_text(app) and "gpt-c.log" not in screen_text(app)
        await pilot.press("h", "h")
        await pilot.pause()
        assert "gpt-c.log" in screen_text(app) and "past" not in screen_text(app).split("h past")[0]
        assert "the log alone" in screen_text(app)
        await pilot.press("h")
        await pilot.pause()
        assert "past 10 min" in screen_text(app) and "the last 10 min" in screen_text(app)
        assert app.focused is app.screen.query_one("#past")
        await pilot.press("h", "h", "h")
        assert app.focused is app.screen.log_pane


async def test_what_nobody_asked_for_takes_no_room_from_trouble_or_log() -> None:
    stuck = msgspec.structs.replace(trouble_box(), past=kept(480, 180))
    async with running(FleetState((stuck,), (), NOW), size=(120, 34), keys=("enter",)) as (
        app,
        pilot,
        _,
    ):
        text = screen_text(app)
        assert "lstm-b.log" in text and "what is wrong" in text and "past 1 h" not in text
        await pilot.press("h")
        await pilot.pause()
        assert "past 10 min" in screen_text(app)
    async with running(FleetState((running_box(),), (), NOW), size=(120, 34), keys=("enter",)) as (
        app,
        _,
        __,
    ):
        assert "past" not in screen_text(app).split("h past")[0], "of nothing there is no pane"


def cards(count: int) -> Sample:
    made = [gpu(util=10.0 * card, index=card) for card in range(count)]
    if made:
        made[-1] = msgspec.structs.replace(made[-1], temp_c=None, power_limit_w=None)
    return sample(gpus=made)


def test_each_of_several_cards_has_a_course_of_its_own_and_one_card_has_none_beside_the_box_s() -> (
    None
):
    assert not any(is_of_card(name) for name in kept_percentages(cards(1)))
    found = kept_percentages(cards(3))
    assert {name: found[name] for name in found if name.endswith(":1")} == {
        "util:1": 10.0, "vram:1": pytest.approx(100 * 15.8 / 24, 0.001), "temp:1": 71.0,
        "power:1": pytest.approx(100 * 398 / 450),
    }  # fmt: skip
    assert "temp:2" not in found and "power:2" not in found, (
        "what a card does not tell is not made up"
    )
    assert dict(iterate_percentages(cards(3)))["util:2"] == found["util:2"] == 20.0
    assert {name for name in kept_percentages(cards(40)) if is_of_card(name)} == {
        f"{kind}:{card}" for kind in CARD_FIGURES for card in range(MOST_CARDS)
    }
    told = msgspec.to_builtins(cards(3))
    assert {
        name: value for name, value in of_the_box(told).items() if is_of_card(name)
    } == pytest.approx({name: value for name, value in found.items() if is_of_card(name)}), (
        "the recorder on the box keeps the same"
    )


def test_cards_stand_one_after_the_other_below_the_box_with_their_units() -> None:
    names = ("util", "util:10", "temp:2", "util:2", "disk:/", "power:2", "vram:2")
    past = ReducedHistory(
        names=names,
        at=(NOW - 60, NOW),
        values=((50.0, 1.0, 71.0, 99.6, 40.0, 88.0, 3.0),) * 2,
        width=60.0,
    )
    box = box_with(past)
    assert names_of(box) == ["util", "disk:/", "util:2", "vram:2", "temp:2", "power:2", "util:10"]
    text = "\n".join(lines(box, 0, width=90))
    for words in (
        "GPU 2 util",
        "GPU 2 temp",
        "71°C",
        "GPU 2 power",
        "88%",
        "GPU 10 util",
        "disk /",
    ):
        assert words in text, text
    assert "min  99% max  99%" in text


def test_what_is_not_kept_of_single_cards_is_said() -> None:
    old = kept(60, 10)
    several = msgspec.structs.replace(box_with(old), sample=cards(4))
    assert "no per-GPU data is recorded for the last 10 min" in "\n".join(lines(several, 0))
    assert "single cards" not in "\n".join(lines(box_with(old), 0))
    each = ReducedHistory(names=("util", "util:0"), at=(NOW,), values=((1.0, 2.0),), width=60.0)
    many = msgspec.structs.replace(box_with(each), sample=cards(9))
    assert "only the first 8 of 9 GPUs are recorded separately" in "\n".join(lines(many, 0))
