"""The order and the groups of the fleet, what is kept of them, and the states that must not be taken for each other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from rgt_tui.health import ClockReading
from rgt_tui.model import (
    Alert,
    AutostopReading,
    BoxHealth,
    BoxState,
    ClockMode,
    FleetState,
    Lifecycle,
    LinkState,
)
from rgt_tui.ui import ASCII, UNICODE, assess_box, current_glyphs, health_mark, status_label
from rgt_tui.ui.screens import ChoiceScreen, FleetScreen
from rgt_tui.ui.widgets import Tone, text_of
from rgt_tui.ui.widgets.fleet_rows import (
    COLUMNS,
    FILE,
    FLEET_GROUPS,
    Arrangement,
    FleetColumn,
    FleetRow,
    FleetTable,
    FleetView,
    SortOrder,
    Unreadable,
    can_sort,
    choose_columns,
    clock_cell,
    clock_cells,
    draw_heading,
    filter_rows,
    find_odd_cards,
    gpu_cell,
    group_rows,
    parse_filter,
    read_view,
    row_line,
    save_view,
    sort_choices,
    sort_rows,
    state_cell,
    view_path,
    with_arrangement,
    with_filter,
)
from tests.ui.fakes import (
    NOW,
    FakeFleet,
    gpu,
    lost_box,
    many_boxes,
    meter,
    running_box,
    sample,
    spec,
    stale_box,
    trouble_box,
    warn_box,
)
from tests.ui.snap import running, screen_text, settle
from tests.ui.test_fast_keys import wait_for

replace = msgspec.structs.replace


def row(box: BoxState, platform: str = "AutoDL") -> FleetRow:
    return FleetRow(box, assess_box(box, NOW), (), platform, NOW)


def rows(count: int = 16) -> list[FleetRow]:
    return [row(box) for box in many_boxes(count).boxes]


BY_KEY = {column.key: column for column in COLUMNS}
KEYS = [column.key for column in COLUMNS if can_sort(column.key)] + [FILE]


@pytest.mark.parametrize("key", KEYS)
def test_every_order_keeps_every_row_and_leaves_what_is_equal_where_it_was(key: str) -> None:
    made = rows()
    for flipped in (False, True):
        once = sort_rows(made, SortOrder(key, flipped))
        assert sorted(one.name for one in once) == sorted(one.name for one in made)
        if key != FILE:
            again = sort_rows(list(reversed(made)), SortOrder(key, flipped))
            assert [one.name for one in again] == [one.name for one in once], "whatever came first"
        assert SortOrder(key, flipped).order_text != SortOrder(key, not flipped).order_text


def test_all_columns_but_the_words_can_be_sorted_by() -> None:
    assert {column.key for column in COLUMNS} - set(KEYS) == {"why"}


def test_most_first_least_first_and_what_nobody_knows_last() -> None:
    dear, cheap = (
        row(replace(running_box(name), meter=meter(price)))
        for name, price in (("a", 3.0), ("b", 1.0))
    )
    none = row(replace(running_box("c"), meter=meter(None)))
    yuan = row(replace(running_box("d"), meter=meter(2.0, currency="CNY")))
    made = [none, cheap, dear, yuan]
    assert [one.name for one in sort_rows(made, SortOrder("rate"))] == ["d", "a", "b", "c"], (
        "currencies are not mixed"
    )
    assert [one.name for one in sort_rows(made, SortOrder("rate", True))] == ["d", "b", "a", "c"]


def test_what_changes_every_second_does_not_make_rows_jump() -> None:
    def at(*utils: float) -> list[str]:
        made = [
            row(replace(running_box(name), sample=sample(gpus=(gpu(util),))))
            for name, util in zip("abc", utils, strict=True)
        ]
        return [one.name for one in sort_rows(made, SortOrder("gpu"))]

    assert at(91, 95, 12) == at(97, 92, 18) == ["c", "a", "b"]


@pytest.mark.parametrize("by", list(FLEET_GROUPS))
def test_groups_hold_all_rows_and_the_worst_one_is_on_top(by: str) -> None:
    made = [row(box, box.spec.profile) for box in many_boxes(16).boxes]
    worst = sort_rows(made, SortOrder())
    out, heads = group_rows(worst, by)
    assert sorted(one.name for one in out) == sorted(one.name for one in made)
    assert out[0] is worst[0]
    assert bool(heads) == bool(by)
    labels = [FLEET_GROUPS[by][1](one) for one in out]
    assert len(list(itertools.groupby(labels))) == len(set(labels)) == max(1, len(heads))


def test_what_is_kept_comes_back_and_a_damaged_file_is_left_alone(tmp_path: Path) -> None:
    path = view_path({"XDG_STATE_HOME": str(tmp_path)})
    assert read_view(path) == FleetView()
    save_view(
        path,
        lambda view: with_arrangement(
            view, "/a", lambda one: replace(one, sort="gpu", flipped=True)
        ),
    )
    kept = save_view(path, lambda view: with_filter(view, "low", "gpu<50"))
    assert (
        read_view(path)
        == kept
        == FleetView(fleets={"/a": Arrangement("gpu", True)}, filters={"low": "gpu<50"})
    )
    assert kept.arrangement_of("/a").sort_order == SortOrder("gpu", True)
    assert kept.arrangement_of("/b").sort_order == SortOrder(), (
        "what suits one fleet hides the trouble of another"
    )
    assert with_filter(kept, "low", None).filters == {}
    assert Arrangement(sort="nothing", group="nothing").sort_order == SortOrder()
    assert Arrangement(sort="nothing", group="nothing").valid_grouping == ""
    for damage in (b"{", b"\xff", b'{"version": 7}'):
        path.write_bytes(damage)
        with pytest.raises(Unreadable, match=r"fleet-view\.json"):
            save_view(path, lambda view: FleetView())
        assert path.read_bytes() == damage


async def test_a_damaged_view_is_said_and_the_screen_works_all_the_same(state_home: Path) -> None:
    state_home.mkdir(parents=True)
    (state_home / "fleet-view.json").write_text("{")
    async with running(many_boxes(3), size=(300, 34), keys=("o", "o")) as (app, _pilot, _):
        assert "not kept:" in screen_text(app) and "fleet-view.json cannot be read" in screen_text(
            app
        )
        assert "gpu 1m▴" in screen_text(app)
    assert (state_home / "fleet-view.json").read_text() == "{"


async def test_trouble_that_an_order_hides_is_counted_and_one_key_shows_it() -> None:
    state = FleetState((*many_boxes(30).boxes, replace(trouble_box(), spec=spec("zz-trouble"))))
    async with running(state, size=(120, 24)) as (app, pilot, _):
        assert "out of sight" not in screen_text(app), "trouble is first"
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        screen._set_order(SortOrder("name"))
        await wait_for(pilot, lambda: "out of sight: t" in screen_text(app))
        assert "3 out of sight: t" in screen_text(app)
        await pilot.press("t")
        await wait_for(pilot, lambda: "out of sight" not in screen_text(app))
        table = screen.query_one(FleetTable)
        assert table.row_names[0] == table.picked_key


async def test_an_order_is_kept_for_its_own_fleet_alone(state_home: Path) -> None:
    async with running(many_boxes(3), size=(120, 34), keys=("o", "o")) as (_app, pilot, _):
        path = state_home / "fleet-view.json"
        await wait_for(pilot, path.exists)
    other = FakeFleet(many_boxes(3))
    other.fleet_file = Path("/fleets/other.toml")
    for fleet, sort in ((FakeFleet(many_boxes(3)), "gpu"), (other, "state")):
        screen = FleetScreen(fleet)
        screen._view = read_view(path)
        assert screen._arrangement.sort_order.key == sort


@pytest.mark.parametrize("width", [60, 80, 100, 119, 120, 200])
@pytest.mark.parametrize("key", [column.key for column in COLUMNS if can_sort(column.key)])
def test_what_is_sorted_by_is_shown_and_the_table_stays_in_its_width(width: int, key: str) -> None:
    columns = choose_columns(width, 30, 6, key)
    assert key in [column.key for column, _ in columns]
    assert 2 + sum(cells + 1 for _, cells in columns) <= width
    made = text_of(draw_heading(columns, key, rising=True))
    assert made.count(current_glyphs().rising) == 1 and len(made) <= width
    assert next(column.title.strip() for column in COLUMNS if column.key == key) in made, (
        "no title is cut"
    )


@pytest.mark.parametrize("size", [(240, 34), (80, 24), (60, 20)])
async def test_o_goes_through_the_columns_and_the_sorted_one_has_the_glyph(
    size: tuple[int, int],
) -> None:
    async with running(many_boxes(6), size=size) as (app, pilot, _):
        seen: list[str] = []
        for _ in range(len(KEYS)):
            await pilot.press("o", "o")
            await settle(pilot)
            line = screen_text(app).splitlines()[1]
            assert line.count("▾") + line.count("▴") == (
                0 if "fleet file" in screen_text(app) else 1
            )
            seen.append(screen_text(app).splitlines()[-2].strip())
        assert len(set(seen)) == len(KEYS)
        assert seen[-1] == "sorted trouble first; O reverses it"


async def test_o_and_a_letter_sort_by_that_column_and_other_keys_leave_the_order() -> None:
    async with running(many_boxes(6), size=(120, 34)) as (app, pilot, _):
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        await pilot.press("o")
        await settle(pilot)
        assert "sort by  n box  s state  g gpu" in screen_text(app)
        await pilot.press("x")
        assert isinstance(app.screen, ChoiceScreen), "no choice has this letter"
        await pilot.press("d")
        await settle(pilot)
        assert screen._arrangement.sort_order == SortOrder("disk")
        await pilot.press("o", "d")
        await settle(pilot)
        assert screen._arrangement.sort_order == SortOrder("disk", flipped=True), "again: reversed"
        await pilot.press("o", "escape")
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        assert screen._arrangement.sort_order.key == "disk"


def test_no_two_columns_have_the_same_letter() -> None:
    choices = sort_choices()
    assert {key for _, _, key in choices} == {*KEYS}
    assert len({letter for letter, _, _ in choices} | {"o"}) == len(choices) + 1


async def test_headings_are_no_rows() -> None:
    async with running(many_boxes(30), size=(120, 24), keys=("b", "b")) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        assert "grouped by state" in screen_text(app)
        for _ in range(29):
            await pilot.press("j")
        await settle(pilot)
        assert table.picked_key == table.row_names[-1]
        assert table.selected_line() is not None
        assert "/30 " in screen_text(app)
        await pilot.press("g")
        await settle(pilot)
        assert table.selected_line() == 2, "the heading of the first group is in sight, too"
        await pilot.click(FleetTable, offset=(10, 1))
        await settle(pilot)
        assert table.picked_key == table.row_names[0], "a click on a heading chooses nothing"


def test_each_state_has_a_glyph_and_a_word_of_its_own() -> None:
    stopped = replace(
        running_box(),
        link=LinkState.UNREACHABLE,
        meter=replace(meter(), lifecycle=Lifecycle.STOPPED),
    )
    boxes = [
        running_box(),
        stale_box(),
        lost_box(),
        warn_box(),
        trouble_box(),
        replace(running_box(), link=LinkState.PAUSED),
        replace(running_box(), limited=("no Python",)),
        replace(stopped),
        replace(stopped, meter=replace(meter(), lifecycle=Lifecycle.GONE)),
        replace(
            running_box(),
            queues=(replace(running_box().queues[0], cells=(), done=True),),
            sample=sample(),
        ),
    ]
    told = [status_label(box, assess_box(box, NOW)) for box in boxes]
    assert len({glyph for glyph, _, _ in told}) >= 9
    assert len({word for _, word, _ in told}) >= 9
    assert [word for _, word, _ in told[5:9]] == ["paused", "limited", "stopped", "gone"]
    for glyph_set in (UNICODE, ASCII):
        marks = [
            glyph_set.stale,
            glyph_set.unreachable,
            glyph_set.paused,
            glyph_set.limited,
            glyph_set.gone,
        ]
        marks += [
            glyph_set.stopped,
            glyph_set.finished,
            glyph_set.ok,
            glyph_set.warn,
            glyph_set.trouble,
        ]
        assert len(set(marks)) == len(marks)
        assert all(len(one) == 1 for one in marks)
    assert health_mark(BoxHealth.STALE) != health_mark(BoxHealth.UNREACHABLE)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_stale_and_unreachable_differ_in_glyph_word_and_order_at_every_width(width: int) -> None:
    made = sort_rows([row(stale_box("b")), row(lost_box("c")), row(running_box("a"))], SortOrder())
    assert [one.name for one in made] == ["c", "b", "a"]
    lost, stale = (text_of(row_line(one, choose_columns(width, 4))) for one in made[:2])
    assert "⊘ c" in lost and "unreachable" in lost and "◌" not in lost
    assert "◌ b" in stale and "stale" in stale and "⊘" not in stale


def test_the_word_of_a_state_is_not_cut_for_the_count_of_its_alerts() -> None:
    lost = replace(
        lost_box(), alerts_kept=True, alerts=tuple(Alert(f"a{n}", "warn", "x") for n in range(4))
    )
    cut, whole = (text_of(state_cell(row(lost), width)) for width in (11, 14))
    assert cut == "unreachable" and whole == "unreachable +3"


@pytest.mark.parametrize("width", [8, 12, 16])
@pytest.mark.parametrize("sim", [False, True])
def test_one_bad_card_of_eight_is_seen(width: int, sim: bool) -> None:
    well = [gpu(97, index=i, sim=sim) for i in range(7)]
    dead = replace(gpu(0, index=7, sim=sim), error="GPU is lost", util=None)
    idle = gpu(0, index=7, sim=sim)

    def cell(*gpus: object) -> tuple[str, set[Tone]]:
        made = gpu_cell(row(replace(running_box(), sample=replace(sample(), gpus=gpus))), width)
        assert len(text_of(made)) == width
        return text_of(made), {span.tone for span in made if span.text.strip()}

    text, tones = cell(*well, dead)
    assert "1/8✖" in text and Tone.TROUBLE in tones
    text, tones = cell(*well, idle)
    assert "1/8◇" in text and Tone.WARN in tones
    text, tones = cell(*well, replace(idle, util=97.0))
    assert "/8" not in text and "97%" in text
    assert find_odd_cards([idle, idle]) is None, "all idle is not one that stands out"
    assert find_odd_cards([]) is None
    if width >= 16 and not sim:
        assert "97%" in cell(*well, dead)[0] or "85%" in cell(*well, dead)[0]


@pytest.mark.parametrize("width", [80, 140, 200, 300])
def test_names_are_shown_up_to_their_length_where_there_is_room(width: int) -> None:
    name = "gpu-worker-eu-central-17"
    made = text_of(row_line(row(running_box(name)), choose_columns(width, len(name))))
    assert (name in made) == (width >= 140), made
    assert len(text_of(row_line(row(running_box(name)), choose_columns(width, len(name))))) <= width


def test_wide_tables_have_more_columns_and_not_wider_bars() -> None:
    made = text_of(row_line(row(running_box()), choose_columns(240, 12)))
    for part in ("71°", "398W", "31m58", "¥0.60"):
        assert part in made
    assert {column.key: width for column, width in choose_columns(300, 12)}["vram"] == 6


def test_a_box_that_stops_itself_soon_is_sorted_and_filtered_by_that() -> None:
    soon = replace(
        sample(), autostop=AutostopReading(idle_s=2148.0, limit_s=2700.0, stops_in_s=552.0)
    )
    made = [
        row(running_box("a")),
        row(replace(running_box("b"), sample=soon)),
        row(running_box("c")),
    ]
    assert [one.name for one in sort_rows(made, SortOrder("clock"))] == ["b", "a", "c"]
    assert [one.name for one in filter_rows(made, parse_filter("clock<10m")).rows] == ["b"]


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 34), (200, 50)], ids=str)
async def test_where_one_is_among_many_boxes_covers_no_title(size: tuple[int, int]) -> None:
    async with running(many_boxes(200), size=size) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        for key in ("", "G", "g", "pagedown"):
            if key:
                await pilot.press(key)
                await settle(pilot)
            top, count = table._top + 1, table.size.height - 1
            titles = screen_text(app).splitlines()[1]
            assert f"{top}-{top + count - 1}/200" in titles
            for column, _ in table.shown_columns:
                assert column.key == "name" or column.title in titles, titles


def test_the_clock_is_as_wide_as_what_it_says_and_the_alerts_have_the_rest() -> None:
    bare, named = (
        dict(_by_key(choose_columns(200, 11, 1))),
        dict(_by_key(choose_columns(200, 11, 18))),
    )
    assert (bare["clock"], named["clock"]) == (BY_KEY["clock"].width, 18)
    assert bare["why"] == named["why"] + 18 - BY_KEY["clock"].width
    assert sum(width + 1 for width in bare.values()) == sum(width + 1 for width in named.values())
    without = row(running_box())
    assert clock_cells(without) == 1
    reading = ClockReading(
        what="auto-release",
        mode=ClockMode.COUNTDOWN,
        seconds_left=5 * 86400.0,
        consequence="",
        level="info",
        text="",
    )
    assert clock_cells(without._replace(clocks=(reading,))) == len("5d 0h auto-release")
    later = msgspec.structs.replace(reading, seconds_left=18 * 86400.0 + 22 * 3600.0)
    shown = clock_cell(without._replace(clocks=(later,)), BY_KEY["clock"].width)
    assert text_of(shown) == "   18d", "what does not fit is left out, and not cut"


def _by_key(columns: Sequence[tuple[FleetColumn, int]]) -> list[tuple[str, int]]:
    return [(column.key, width) for column, width in columns]
