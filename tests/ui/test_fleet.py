from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from rgt_tui.model import FixStep, FleetEvent, FleetState, Lifecycle, LinkState
from rgt_tui.ui import assess_box, current_glyphs
from rgt_tui.ui.screens import FleetScreen
from rgt_tui.ui.widgets import (
    KeyLine,
    Pane,
    Tone,
    finding_lines,
    layout_keys,
    split_heights,
    text_of,
    why_blocks,
    why_lines,
    width_of,
)
from rgt_tui.ui.widgets.fleet_rows import (
    COLUMNS,
    FleetRow,
    FleetTable,
    SortOrder,
    choose_columns,
    row_line,
    sort_rows,
)
from tests.ui.fakes import (
    NOW,
    demo_state,
    lost_box,
    many_boxes,
    running_box,
    stale_box,
    trouble_box,
    warn_box,
)
from tests.ui.snap import running, screen_text, settle, tones


def rows(state: FleetState) -> list[FleetRow]:
    return [FleetRow(box, assess_box(box, NOW), (), "AutoDL") for box in state.boxes]


def test_the_worst_box_is_first_and_calm_rows_do_not_change_places() -> None:
    state = FleetState(
        (running_box("b"), running_box("a"), stale_box(), warn_box(), trouble_box(), lost_box())
    )
    names = [row.name for row in sort_rows(rows(state), SortOrder())]
    assert names == ["vast-demo", "lost-demo", "runpod-demo", "lab-a100-2", "a", "b"]
    older = msgspec.structs.replace(
        state.boxes[0],
        runs=(msgspec.structs.replace(state.boxes[0].runs[-1], progressed_at=NOW - 9),),
    )
    again = msgspec.structs.replace(state, boxes=(older, *state.boxes[1:]))
    assert [row.name for row in sort_rows(rows(again), SortOrder())] == names


@pytest.mark.parametrize("width", [40, 60, 79, 80, 119, 120, 138, 160, 200, 300])
def test_columns_fit_and_a_wider_table_never_has_fewer(width: int) -> None:
    columns = choose_columns(width)
    row = rows(FleetState((trouble_box(),)))[0]
    made = row_line(row, columns)
    assert width_of(made) <= max(width, 1 + sum(w + 1 for _, w in columns))
    if width >= 60:
        assert width_of(made) <= width
        wider = {column.key for column, _ in choose_columns(width + 20)}
        assert {column.key for column, _ in columns} - {"why"} <= wider


def test_eighty_columns_keep_what_matters() -> None:
    keys = [column.key for column, _ in choose_columns(80)]
    assert keys == ["name", "state", "gpu", "inode", "cgroup", "cell", "eta", "age", "loss", "rate"]
    assert [column.key for column, _ in choose_columns(80, 16)][-1] == "rate", (
        "money comes before the time that is left"
    )
    assert "loss" in [column.key for column, _ in choose_columns(90)]
    assert "why" in [column.key for column, _ in choose_columns(110)]
    wide = {column.key for column, _ in choose_columns(120)}
    assert wide == {"vram", "disk", "step", "rate", "spent", "clock"} | set(keys) - {"eta"}
    assert {column.key for column, _ in choose_columns(240)} == {column.key for column in COLUMNS}


def test_heights_of_table_and_pane() -> None:
    assert split_heights(5, 30, 10) == (6, 10)
    assert split_heights(200, 30, 10) == split_heights(200, 30, 4) == (18, 12)
    assert split_heights(5, 7, 10) == (7, 0)


@pytest.mark.parametrize("age", [0, 60], ids=["fresh", "stale"])
def test_a_finding_is_said_once_however_old_the_values_are(age: int) -> None:
    box = trouble_box()
    row = FleetRow(box, assess_box(box, NOW + age), (), "Vast.ai")
    text = "\n".join(text_of(made) for made in why_lines(row, 120, NOW + age))
    assert row.verdict.stale is bool(age)
    assert text.count("65,536 of 65,536 inodes used") == 1


@pytest.mark.parametrize("link", [LinkState.REFUSED_KEY, LinkState.REFUSED_LOGIN])
def test_why_a_box_lets_nobody_in_is_said_once_with_what_to_do(link: LinkState) -> None:
    why = "ssh: lab (root@127.0.0.1:22): it does not like what it was shown"
    box = msgspec.structs.replace(lost_box(), link=link, reason=why, retry_at=None)
    row = FleetRow(box, assess_box(box, NOW), (), "Vast.ai")
    for made in (
        why_lines(row, 200, NOW, brief=True),
        why_lines(row, 200, NOW),
        [line for block in why_blocks(row, 200, NOW) for line in block.rows],
    ):
        assert "\n".join(text_of(line) for line in made).count("does not like") == 1
    told = [text_of(line).split()[0] for line in why_lines(row, 200, NOW, brief=True)]
    assert told.count("do") == 1


def test_a_stale_row_is_dim_and_carries_its_age_and_a_lost_one_keeps_its_values() -> None:
    for box, age in ((stale_box(), "◌ 42s"), (lost_box(), "⊘ 3m20")):
        row = FleetRow(box, assess_box(box, NOW), (), "lab")
        made = row_line(row, choose_columns(120))
        text = text_of(made)
        assert age in text
        assert "88%" in text
        assert "9,120" in text
        dim = "".join(span.text for span in made if span.tone is Tone.DIM)
        assert "88%" in dim
        assert "0.441" in dim


def test_no_digit_of_a_number_is_cut_off() -> None:
    box = running_box()
    name = next(run.name for run in box.runs if run.step == 655)
    for step, shown in (
        (655, "2 ·  655"),
        (9_120, "2 ·9,120"),
        (14_563, "14,563"),
        (1_234_567, "1.2e+06"),
    ):
        for loss, told in (
            (1.702, "1.702"),
            (123.456, "123.46"),
            (-1234.5, "-1234"),
            (-98765.4, "-9.9e4"),
        ):
            runs = tuple(
                replace(run, step=step, loss=loss) if run.name == name else run for run in box.runs
            )
            changed = replace(box, runs=runs)
            text = text_of(
                row_line(
                    FleetRow(changed, assess_box(changed, NOW), (), "AutoDL"), choose_columns(120)
                )
            )
            assert shown in text and told in text and "…" not in text, (step, loss, text)


def test_a_healthy_row_has_no_colour() -> None:
    box = running_box()
    made = row_line(FleetRow(box, assess_box(box, NOW), (), "AutoDL"), choose_columns(160))
    assert {span.tone for span in made} <= {Tone.TEXT, Tone.DIM, Tone.BADGE}


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_simulated_gpu_is_marked_in_its_row_and_a_real_one_is_not(width: int) -> None:
    box = running_box()
    assert box.sample is not None
    badge = "% SIM" if width > 99 else "%S"
    assert badge in text_of(
        row_line(FleetRow(box, assess_box(box, NOW), (), "AutoDL"), choose_columns(width))
    )
    gpus = tuple(msgspec.structs.replace(gpu, sim=False) for gpu in box.sample.gpus)
    real = msgspec.structs.replace(box, sample=msgspec.structs.replace(box.sample, gpus=gpus))
    assert badge not in text_of(
        row_line(FleetRow(real, assess_box(real, NOW), (), "AutoDL"), choose_columns(width))
    )


async def test_the_selection_stays_on_its_box_when_the_order_changes() -> None:
    async with running(keys=("j", "j", "j")) as (app, pilot, fleet):
        table = app.screen.query_one(FleetTable)
        assert table.picked_key == "autodl-demo"
        fleet.change(
            "autodl-demo", link=LinkState.UNREACHABLE, reason="ssh: timed out", sample_at=NOW - 90
        )
        app.tick()
        await pilot.pause()
        assert table.row_names[1] == "autodl-demo"
        assert table.picked_key == "autodl-demo"
        assert table.selected_line() == 2


async def test_until_someone_chooses_the_worst_box_is_selected() -> None:
    calm = FleetState((running_box("a-box"), running_box("b-box")))
    async with running(calm) as (app, pilot, fleet):
        table = app.screen.query_one(FleetTable)
        assert table.picked_key == "a-box"
        fleet.push(FleetState((running_box("a-box"), trouble_box("b-box"))))
        app.tick()
        await pilot.pause()
        assert table.picked_key == "b-box"
        await pilot.press("j")
        assert table.picked_key == "a-box"
        fleet.push(FleetState((running_box("a-box"), lost_box("b-box"))))
        app.tick()
        await pilot.pause()
        assert table.picked_key == "a-box"


async def test_opening_a_box_is_choosing_it() -> None:
    async with running(
        FleetState((running_box("a-box"), running_box("b-box"))), keys=("enter",)
    ) as (
        app,
        pilot,
        fleet,
    ):
        await pilot.press("q")
        fleet.push(FleetState((running_box("a-box"), trouble_box("b-box"))))
        app.tick(force=True)
        await settle(pilot)
        assert app.screen.query_one(FleetTable).picked_key == "a-box"


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 34), (200, 50)])
@pytest.mark.parametrize("place", ["fleet", "box"])
async def test_no_screen_shows_a_removal_without_the_look_and_the_warning_above_it(
    size: tuple[int, int], place: str
) -> None:
    async with running(size=size, keys=("enter",) if place == "box" else ()) as (app, _, _):
        text = screen_text(app)
        shown = [
            text.find(word) for word in ("✖ inodes of /workspace", "never", "$ df", "$ ls", "$ rm")
        ]
        known = [at for at in shown if at >= 0]
        assert known == sorted(known)
        assert shown[: len(known)] == known, "what does not fit is at the end"
        assert -1 not in shown or "▼" in text, "what is not in sight is said"
        if size[1] >= 24:
            assert shown[1] >= 0


@pytest.mark.parametrize("size", [(80, 24), (60, 20)])
@pytest.mark.parametrize("place", ["fleet", "box"])
async def test_what_does_not_fit_is_scrolled_to(size: tuple[int, int], place: str) -> None:
    state = many_boxes(30)
    state = FleetState((trouble_box(), *state.boxes))
    async with running(state, size=size, keys=("enter",) if place == "box" else ()) as (
        app,
        pilot,
        _,
    ):
        pane = app.screen.query_one("#why" if place == "fleet" else "#trouble", Pane)
        for _ in range(5):
            if pane.has_focus:
                break
            await pilot.press("tab")
        assert pane.has_focus
        seen = screen_text(app)
        assert "▼" in seen
        for _ in range(12):
            await pilot.press("j")
            seen += screen_text(app)
        assert "$ rm -rf -- '/workspace/.cache/viz'" in seen
        await pilot.press("G")
        assert "▼" not in "\n".join(text_of(row) for row in pane.shown_lines)
        await pilot.press("g")
        assert "▼" in "\n".join(text_of(row) for row in pane.shown_lines)


async def test_tab_gives_the_keys_to_the_pane_and_back_to_the_boxes() -> None:
    async with running(size=(200, 50)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        first = table.picked_key
        await pilot.press("tab", "j")
        assert app.focused is app.screen.query_one("#why")
        assert table.picked_key == first
        await pilot.press("tab")
        assert app.focused is app.screen.query_one("#since")
        await pilot.press("tab")
        assert app.focused is app.screen.query_one("#detail")
        await pilot.press("tab", "j")
        assert app.focused is None
        assert table.picked_key != first
        await pilot.press("shift+tab")
        assert app.focused is app.screen.query_one("#detail")


def test_a_command_that_this_terminal_cannot_show_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finding = trouble_box().findings[0]
    step = FixStep("remove it", "rm -rf -- '/w/.cache/ä'")
    finding = msgspec.structs.replace(finding, fixes=(step,))
    assert any("$ rm -rf" in text_of(made) for made in finding_lines(finding, 80, NOW))
    monkeypatch.setenv("RGT_ASCII", "1")
    current_glyphs.cache_clear()
    made = [text_of(made) for made in finding_lines(finding, 80, NOW)]
    assert not any("rm -rf" in text for text in made), "an ä drawn as ? names another directory"
    assert any("cannot be displayed here" in text for text in made)


async def test_moving_stops_at_both_ends() -> None:
    async with running(keys=("k",)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        assert table.picked_key == "vast-demo"
        await pilot.press("G", "j", "down")
        assert table.picked_key == table.row_names[-1]
        await pilot.press("g")
        assert table.picked_key == table.row_names[0]
        await pilot.press("end", "home", "pagedown")
        assert table.picked_key == table.row_names[-1]


async def test_filter_as_one_types_and_clear_with_escape() -> None:
    async with running(keys=("slash", "a", "u", "t", "o")) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        assert table.row_names == ["autodl-demo"]
        await pilot.press("enter")
        await settle(pilot)
        assert table.row_names == ["autodl-demo"]
        await pilot.press("j")
        assert app.focused is None
        await pilot.press("escape")
        await settle(pilot)
        assert len(table.row_names) == 4
        assert isinstance(app.screen, FleetScreen)


async def test_escape_in_the_filter_line_gives_it_up_and_an_empty_result_says_so() -> None:
    async with running(keys=("slash", "z", "z")) as (app, pilot, _):
        assert "no box matches zz" in screen_text(app)
        await pilot.press("escape")
        await settle(pilot)
        assert len(app.screen.query_one(FleetTable).row_names) == 4
        assert app.return_code is None


async def test_an_empty_fleet_says_what_to_do() -> None:
    async with running(FleetState()) as (app, pilot, _):
        assert "the fleet has no boxes" in screen_text(app)
        await pilot.press("enter", "l", "j", "G")
        await pilot.pause()
        assert "no box selected" in screen_text(app)


async def test_a_click_selects_a_double_click_opens_and_a_title_sorts() -> None:
    async with running() as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        await pilot.click(FleetTable, offset=(10, 3))
        await settle(pilot)
        assert table.picked_key == table.row_names[2]
        await pilot.click(FleetTable, offset=(5, 0))
        await settle(pilot)
        assert table.row_names[0] == "autodl-demo"
        assert "box▴" in screen_text(app).splitlines()[1]
        await pilot.click(FleetTable, offset=(5, 0))
        await settle(pilot)
        assert table.row_names[-1] == "autodl-demo"
        await pilot.click(FleetTable, offset=(5, 0))
        await pilot.click(FleetTable, offset=(10, 4))
        await settle(pilot)
        assert table.picked_key == table.row_names[3]
        assert isinstance(app.screen, FleetScreen), (
            "one click opens nothing, wherever the selection is"
        )
        await pilot.double_click(FleetTable, offset=(10, 4))
        await settle(pilot)
        assert "rgt  fleet › " + table.row_names[3] in screen_text(app)


async def test_the_keys_in_the_key_line_can_be_clicked() -> None:
    async with running() as (app, pilot, _):
        places = layout_keys(app.screen.query_one(KeyLine)._commands, 120)
        start = next(start for start, _, command in places if command.id == "app.help")
        await pilot.click(KeyLine, offset=(start, 0))
        await settle(pilot)
        assert "fleet: keys" in screen_text(app)


async def test_the_wheel_scrolls_and_keeps_the_selection() -> None:
    async with running(many_boxes(60), size=(80, 24)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        first = table.picked_key
        table.scroll_lines(table.WHEEL)
        await pilot.pause()
        assert table.picked_key == first
        assert table.selected_line() is None
        assert "3-" in screen_text(app).splitlines()[1]
        await pilot.press("j")
        assert table.selected_line() is not None


async def test_the_pane_names_the_reading_the_proof_and_the_fix() -> None:
    async with running(size=(99, 34)) as (app, _, __):
        text = screen_text(app)
        for part in (
            "✖ inodes of /workspace",
            "65,536 of 65,536 inodes used (bytes 63%)",
            "[Errno 28] No space left on device",
            "U7 · 2m14 ago",
            "58,204 files in /workspace/.cache/viz can be recreated",
            "$ rm -rf -- '/workspace/.cache/viz'",
            "do not destroy the box",
        ):
            assert part in text


async def test_the_pane_of_a_healthy_box_tells_its_run_and_its_queue() -> None:
    async with running(keys=("G",)) as (app, _, __):
        text = screen_text(app)
        assert "gpt-c at step 655" in text
        assert "step 655 of 2,400 (27%)" in text
        assert "◆ gpt-a  ◆ gpt-b  ● gpt-c  · gpt-d" in text


async def test_hostile_text_is_shown_as_text() -> None:
    bad = "\x1b]0;pwned\x07\x1b[31m[bold red]evil[/]\x1b[2J\u202e\x9b5n"
    box = trouble_box()
    finding = msgspec.structs.replace(
        box.findings[0], evidence=bad, resource=bad, title=bad, reading=bad, gotcha=bad
    )
    cells = tuple(msgspec.structs.replace(c, name=bad) for c in box.queues[0].cells)
    box = msgspec.structs.replace(
        box,
        spec=msgspec.structs.replace(box.spec, name="a" + bad),
        findings=(finding,),
        queues=(msgspec.structs.replace(box.queues[0], cells=cells),),
        reason=bad,
    )
    state = FleetState((box,), (FleetEvent(NOW, bad, bad, "error"),), NOW)
    async with running(state, keys=("j",)) as (app, pilot, _):
        for key in ("", "enter", "l"):
            if key:
                await pilot.press(key)
                await settle(pilot)
            text = screen_text(app)
            assert "\x1b" not in text
            assert "\x9b" not in text
            assert "\u202e" not in text
            assert "pwned" not in text
            assert "[bold red]evil[/]" in text


async def test_stopped_gone_unreachable_are_three_words() -> None:
    stopped = msgspec.structs.replace(
        running_box("s"), link=LinkState.UNREACHABLE, sample_at=NOW - 500
    )
    meter = msgspec.structs.replace(stopped.meter, lifecycle=Lifecycle.STOPPED, at=NOW)
    stopped = msgspec.structs.replace(stopped, meter=meter)
    gone = msgspec.structs.replace(
        stopped,
        spec=msgspec.structs.replace(stopped.spec, name="g"),
        meter=msgspec.structs.replace(meter, lifecycle=Lifecycle.GONE),
    )
    async with running(FleetState((stopped, gone, lost_box("u")), (), NOW)) as (app, _, __):
        text = screen_text(app)
        assert "○ s" in text
        for word in ("stopped", "gone", "unreachable"):
            assert word in text


async def test_the_header_counts_states_and_adds_money_per_currency() -> None:
    async with running(size=(160, 34)) as (app, _, __):
        head = screen_text(app).splitlines()[0]
        assert "4 boxes  ✖ 1  ▲ 1  ◌ 1  ● 1" in head
        assert "≥ ¥1.98 + ≥ $1.11 /h" in head, (
            "one box has no price: what the others cost is a lower bound"
        )
        assert "1 without a price" in head
    priced = tuple(box for box in demo_state().boxes if box.meter.per_hour is not None)
    async with running(FleetState(priced, (), NOW)) as (app, _, __):
        head = screen_text(app).splitlines()[0]
        assert "¥1.98 + $1.11 /h" in head
        assert "≥" not in head


async def test_a_lower_bound_looks_like_one_in_its_row_and_on_its_page() -> None:
    meter = msgspec.structs.replace(
        running_box().meter, per_hour=0.5055, at_least=True, spent_at_least=True
    )
    box = msgspec.structs.replace(running_box(), meter=meter)
    async with running(FleetState((box,), (), NOW), size=(130, 34)) as (app, pilot, _):
        row = next(line for line in screen_text(app).splitlines()[2:] if box.spec.name in line)
        assert "≥¥0.50 ≥¥5.12" in row
        await pilot.press("enter")
        await pilot.pause()
        head = screen_text(app).splitlines()[0]
        assert "≥ ¥0.50/h" in head
        assert "spent ≥ ¥5.12" in head


async def test_the_sim_badge_is_there_only_for_simulated_gpus() -> None:
    async with running(FleetState((stale_box(),), (), NOW)) as (app, _, __):
        assert "SIM" not in screen_text(app)
    async with running(FleetState((running_box(),), (), NOW)) as (app, _, __):
        assert "SIM GPU" in screen_text(app).splitlines()[-1]


async def test_trouble_alone_is_red() -> None:
    async with running() as (app, _, __):
        red = [text for tone, text in tones(app, "#table", 1) if tone == "trouble"]
        assert any("100%" in text for text in red)
        assert not [text for tone, text in tones(app, "#table", 4) if tone in {"trouble", "warn"}]


async def test_two_hundred_boxes_are_drawn_by_what_is_in_sight() -> None:
    async with running(many_boxes(200), size=(160, 50)) as (app, pilot, _):
        table = app.screen.query_one(FleetTable)
        assert len(table.row_names) == 200
        assert len(table.shown_lines) == table.size.height < 50
        await pilot.press("G")
        assert "/200" in screen_text(app)


def test_the_demo_state_is_what_the_sketch_has() -> None:
    assert [box.spec.name for box in demo_state().boxes][2] == "vast-demo"


async def test_the_smallest_usual_terminal_shows_the_price_and_when_the_run_ends() -> None:
    async with running(demo_state(), size=(80, 24)) as (app, _, __):
        heading, *rows = screen_text(app).splitlines()[1:6]
        assert {"eta", "/h"} <= set(heading.split())
        vast = next(row for row in rows if "vast-demo" in row)
        assert "$0.42" in vast
