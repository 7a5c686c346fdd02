from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest
from rich.console import RenderableType
from textual.geometry import Region
from textual.screen import Screen

from rgt_tui.health import assess_box
from rgt_tui.model import (
    BoxHealth,
    BoxSpec,
    BoxState,
    Checkpoint,
    Checkpoints,
    FleetState,
    LinkState,
    LogView,
    MemoryReading,
    RunState,
    short_command,
)
from rgt_tui.profiles import load_profile
from rgt_tui.ui import choose_log, health_mark
from rgt_tui.ui.screens import (
    LEAST_LOG,
    BoxScreen,
    FleetScreen,
    LogScreen,
    WantedHeights,
    place_panes,
)
from rgt_tui.ui.widgets import (
    LogPane,
    Pane,
    Tone,
    dangers_section,
    detail_sections,
    disk_lines,
    draw_sections,
    gpu_sections,
    is_old,
    memory_lines,
    platform_section,
    run_lines,
    text_of,
    vitals_sections,
)
from rgt_tui.ui.widgets.fleet_rows import FleetRow, age_cell, eta_cell
from rgt_tui.ui.widgets.queue_lines import queue_lines
from tests.ui.fakes import (
    LOG,
    NOW,
    FakeFleet,
    cell,
    disk,
    gpu,
    inode_finding,
    lost_box,
    profile,
    queue,
    running_box,
    sample,
    spec,
    trouble_box,
)
from tests.ui.snap import running, screen_text, settle, until


def fleet_of(*boxes: object) -> FleetState:
    return FleetState(boxes, (), NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("trouble", [0, 12])
@pytest.mark.parametrize(
    "size", [(60, 16), (76, 20), (80, 20), (110, 30), (120, 30), (200, 46), (40, 8), (300, 90)]
)
def test_panes_tile_the_screen_without_overlap(size: tuple[int, int], trouble: int) -> None:
    regions = place_panes(*size, WantedHeights(18, trouble, 7))
    assert "log" in regions
    assert ("trouble" in regions) == bool(trouble)
    cells = 0
    for name, region in regions.items():
        assert region.x >= 0
        assert region.right <= size[0], name
        assert region.bottom <= size[1], name
        cells += region.area
        others = [other for key, other in regions.items() if key != name]
        assert not any(region.overlaps(other) for other in others)
    assert cells == size[0] * size[1]


def test_the_past_takes_more_than_half_where_it_is_whole_then() -> None:
    """Of the room for past and log; one line less is the line of times."""
    for least in (8, 12, 14):
        regions = place_panes(
            200, 46, WantedHeights(18, 15, 8, lambda lines: min(lines, 14), past_least=least)
        )
        both = regions["past"].height + regions["log"].height
        assert regions["past"].height >= min(least, both - LEAST_LOG)
        assert regions["log"].height >= LEAST_LOG


async def test_the_box_screen_shows_every_pane() -> None:
    async with running(keys=("G", "enter")) as (app, _, __):
        text = screen_text(app)
        for part in (
            "rgt  fleet › autodl-demo",
            "● running  up 3h07  AutoDL  RTX 4090 ×1  ¥1.98/h  spent ¥5.12",
            "GPU 0  RTX 4090 ",
            "SIM ",
            "15.8/24 GiB",
            "71 °C   398/450 W   2,520/2,610 MHz",
            "memory (cgroup v2)",
            "29.0/100 GiB",
            "oom kills 0",
            "cache 8.0  host 251/503 GiB",
            "/root/autodl-fs",
            "s survives stop  d destroy",
            "2231 R python -m rgt",
            "durable: verified",
            "step 655 of 2,400 (27%)",
            "gpt-c.log",
            "following",
            "SIM GPU",
        ):
            assert part in text, part


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 34), (200, 50)])
async def test_trouble_says_what_to_do_at_every_size(size: tuple[int, int]) -> None:
    async with running(size=size, keys=("enter",)) as (app, _, __):
        text = screen_text(app)
        assert "✖ inodes of /workspace" in text
        assert "fix 1  Check" in text
        assert "58,204 files" in text or "▼" in text
        assert "lstm-b.log" in text


@pytest.mark.parametrize("screen", ["box", "fleet"])
async def test_a_hung_run_is_shown_with_the_command_that_arms_the_box_for_it(screen: str) -> None:
    box = running_box()
    assert box.sample is not None
    process = msgspec.structs.replace(box.sample.procs[0], run="gpt-c", cpu_pct=0.3)
    stuck = msgspec.structs.replace(box.runs[-1], progressed_at=NOW - 2460.0)
    hung = msgspec.structs.replace(
        box,
        sample=sample(gpus=(gpu(0.0, sim=False),), procs=(process,)),
        runs=(*box.runs[:-1], stuck),
    )
    keys = ("enter",) if screen == "box" else ()
    async with running(lambda: FakeFleet(fleet_of(hung)), size=(160, 45), keys=keys) as (
        app,
        pilot,
        _,
    ):
        await settle(pilot)
        text = " ".join(screen_text(app).split())
    assert "lives and holds GPU 0 (15.8 GiB)" in text, text
    assert "--idle-if" in text, text


def test_survival_badges_come_from_the_profile() -> None:
    box = running_box()
    rows = [text_of(row) for row in disk_lines(box, profile("autodl"), 42)]
    assert rows[0].endswith("s ·")
    assert rows[1].endswith("s d")
    assert rows[2].endswith("s ·")
    bare = msgspec.structs.replace(profile("runpod"), tiers=())
    assert text_of(disk_lines(box, bare, 42)[0]).endswith("? ?"), (
        "not known is not the same as lost"
    )


def test_inodes_near_the_cap_are_red_and_read_only_mounts_are_quiet() -> None:
    full = msgspec.structs.replace(disk("/data", 10, 99), read_only=False)
    quiet = msgspec.structs.replace(disk("/ro", 100, 100), read_only=True)
    box = msgspec.structs.replace(running_box(), sample=sample(disks=(full, quiet)))
    first, second = disk_lines(box, None, 40)
    assert any(span.tone is Tone.TROUBLE and "98%" in span.text for span in first)
    assert {span.tone for span in second} == {Tone.DIM}


def test_a_mount_that_cannot_be_read_says_why() -> None:
    broken = msgspec.structs.replace(disk("/nfs", 1, 1), error="stale NFS handle\x1b[31m")
    box = msgspec.structs.replace(running_box(), sample=sample(disks=(broken,)))
    assert "stale NFS handle" in text_of(disk_lines(box, None, 40)[0])


def test_eight_gpus_take_a_line_each_and_throttling_is_named() -> None:
    gpus = [gpu(50 + i, index=i) for i in range(8)]
    box = msgspec.structs.replace(running_box(), sample=sample(gpus=gpus))
    parts = gpu_sections(box, 50)
    assert len(parts) == 1
    assert len(parts[0].body) == 8
    hot = msgspec.structs.replace(gpu(), throttle=("sw-thermal",))
    box = msgspec.structs.replace(running_box(), sample=sample(gpus=(hot,)))
    assert "throttled: sw-thermal" in "".join(text_of(row) for row in gpu_sections(box, 50)[0].body)


def test_memory_without_a_limit_or_a_controller_is_not_a_percentage() -> None:
    base = running_box()
    assert base.sample is not None
    for memory, limit in (
        (MemoryReading(cgroup=2, used=5 << 30, cache=0, limit=None), "no limit"),
        (MemoryReading(), "limit unknown"),
    ):
        box = msgspec.structs.replace(base, sample=msgspec.structs.replace(base.sample, mem=memory))
        text = " ".join(text_of(row) for row in memory_lines(box, 40))
        assert limit in text
        assert "0 of" not in text


def test_the_memory_of_the_host_is_not_cut_off() -> None:
    base = running_box()
    assert base.sample is not None
    mem = MemoryReading(
        cgroup=1,
        used=1 << 28,
        cache=0,
        limit=1 << 30,
        oom_kills=0,
        host_used=6 << 30,
        host_total=47 << 29,
    )
    box = msgspec.structs.replace(base, sample=msgspec.structs.replace(base.sample, mem=mem))
    told = {width: text_of(memory_lines(box, width)[1]).rstrip() for width in (44, 40, 32, 26)}
    assert told == {
        44: "oom kills 0  cache 0.0  host 6.0/23.5 GiB",
        40: "oom kills 0  cache 0.0  host 6.0/23.5",
        32: "oom kills 0  host 6.0/23.5 GiB",
        26: "oom kills 0  host 6.0/23.5",
    }


def test_what_is_not_known_of_a_price_stands_with_the_platform() -> None:
    base = running_box()
    odd = msgspec.structs.replace(
        base.meter, at_least=True, unpriced=("volume disk",), doubt="it may be less"
    )
    told = "\n".join(
        text_of(row)
        for row in platform_section(
            load_profile("runpod"), msgspec.structs.replace(base, meter=odd), 90, NOW
        ).body
    )
    assert "price  without a price that is known: volume disk" in told
    assert "price  it may be less" in told
    assert "price" not in "\n".join(
        text_of(row)[:6] for row in platform_section(load_profile("runpod"), base, 90, NOW).body
    )


def test_what_a_stop_goes_on_billing_is_said_once() -> None:
    box = running_box()
    for name in ("vastai", "digitalocean", "lanrui", "runpod"):
        known = load_profile(name)
        told = [text_of(row) for row in platform_section(known, box, 90, NOW).body]
        assert not any("none counts; from a stop on" in row for row in told), name
        assert any(
            re.search(r"\b(bill(s|ing)?|price)\b", text_of(row))
            for row in dangers_section(known, 90).body
        ), name
    autodl = [text_of(row) for row in platform_section(load_profile("autodl"), box, 90, NOW).body]
    assert any("bills while stopped" in row for row in autodl), (
        "its worst danger does not speak of the bill"
    )


@pytest.mark.parametrize("health", [BoxHealth.STALE, BoxHealth.UNREACHABLE, BoxHealth.PAUSED])
def test_old_values_carry_the_same_glyph_on_every_screen(health: BoxHealth) -> None:
    box = msgspec.structs.replace(running_box(), sample_at=NOW - 200)
    parts = vitals_sections(box, profile(), 44, NOW, short=True, health=health)
    assert f"{health_mark(health)[0]} 3m20 old" in text_of(parts[0].title)
    verdict = msgspec.structs.replace(
        assess_box(box, NOW), health=health, stale=True, sample_age=200.0
    )
    row = FleetRow(box, verdict, (), "AutoDL")
    assert f"{health_mark(health)[0]} 3m20" in text_of(age_cell(row, 8))
    state = FleetState((box,), (), NOW)
    assert f"{health_mark(health)[0]} 3m20 old" in text_of(
        detail_sections(row, state, 44, NOW)[0].hint
    )


def test_an_age_that_does_not_fit_loses_its_last_digits_only() -> None:
    verdict = msgspec.structs.replace(
        assess_box(running_box(), NOW), health=BoxHealth.UNREACHABLE, stale=True
    )
    for age, told in (
        (42, "⊘ 42s"),
        (134, "⊘ 2m14"),
        (994, "⊘ 16m"),
        (11_220, "⊘ 3h07"),
        (14 * 86400, "⊘ 14d"),
    ):
        row = FleetRow(
            running_box(), msgspec.structs.replace(verdict, sample_age=age), (), "AutoDL"
        )
        assert text_of(age_cell(row, 6)).strip() == told


def test_what_runs_on_a_box_that_says_nothing_stands_as_it_was_last_seen() -> None:
    """It may have ended since: for how long it runs, and how long it will, is known up to the last sample."""
    box = msgspec.structs.replace(running_box(), sample_at=NOW - 200)
    seen = queue_lines(box, 80, NOW)
    live = queue_lines(running_box(), 80, NOW - 200)
    told = [text_of(row).replace("●", "·") for row in live]  # nobody knows whether it runs
    assert list(map(text_of, seen)) == told == list(map(text_of, queue_lines(box, 80, NOW + 99)))
    assert {span.tone for row in live for span in row} - {Tone.DIM}
    assert {span.tone for row in seen for span in row if span.text.strip()} == {Tone.DIM}


def test_who_is_asked_seldom_is_not_old_between_two_samples() -> None:
    box = msgspec.structs.replace(running_box(), sample_at=NOW - 60, interval=60.0)
    assert not is_old(box, NOW) and is_old(box, NOW + 1000)


def test_queue_lines_tell_each_state() -> None:
    box = msgspec.structs.replace(
        running_box(),
        queues=(
            queue(
                cell("ok", "done", exit_code=0, started=NOW - 90, ended=NOW, durable="verified"),
                cell("lost", "done", exit_code=0, started=NOW - 90, ended=NOW, durable="failed"),
                cell(
                    "bad",
                    "failed",
                    exit_code=1,
                    started=NOW - 90,
                    ended=NOW,
                    reason="CUDA out of memory",
                ),
                cell(
                    "cut", "interrupted", exit_code=75, signal="SIGTERM", started=NOW - 9, ended=NOW
                ),
                cell("next"),
            ),
        ),
        runs=(),
    )
    for width, told in (
        (80, "◆ ok    exit 0  1m30  durable: verified"),
        (34, "◆ ok    exit 0  durable: verified"),
        (30, "◆ ok    durable: verified"),
    ):
        assert text_of(queue_lines(box, width, NOW)[0]) == told, (
            "what matters least is left out, nothing is cut off"
        )
    assert "CUDA out of" in text_of(queue_lines(box, 30, NOW)[2])[:30]
    text = [text_of(row) for row in queue_lines(box, 80, NOW)]
    assert text[0].startswith("◆ ok")
    assert "durable: verified" in text[0]
    assert "NO durable copy" in text[1]
    assert text[2].startswith("✖ bad")
    assert "exit 1" in text[2]
    assert "CUDA out of memory" in text[2]
    assert text[3].startswith("▲ cut")
    assert "SIGTERM" in text[3]
    assert text[4].endswith("waiting")


def test_checkpoints_and_the_link_are_told() -> None:
    items = (
        Checkpoint(path="/c/1", step=600, bytes=38 << 20, at=NOW - 120),
        Checkpoint(path="/c/2", step=640, bytes=38 << 20, at=NOW - 60),
    )
    box = msgspec.structs.replace(
        running_box(), checkpoints=(Checkpoints(run="gpt-c", at=NOW, items=items),)
    )
    parts = {
        text_of(p.title): [text_of(r) for r in p.body]
        for p in vitals_sections(box, profile(), 40, NOW, short=False)
    }
    assert "step 640" in parts["checkpoints"][0]
    assert "1m00 ago" in parts["checkpoints"][0]
    assert "0 gaps" in parts["link"][1]


async def test_a_box_that_was_never_reached_has_no_age_and_says_why_in_the_whole_width() -> None:
    why = "ssh: root@gpu-9.example:22: Name or service not known; check `host`, and whether this machine is online"
    box = BoxState(
        spec("never", "generic-ssh"),
        LinkState.UNREACHABLE,
        reason=why,
        since=NOW - 200,
        retry_at=NOW + 30,
    )
    async with running(fleet_of(box)) as (app, _, __):
        text = screen_text(app)
        assert "no sample yet" in text
        assert " old" not in text
        told = [row.split("││")[0].strip("│ ") for row in text.splitlines() if row.startswith("│")]
        said = told[: told.index("next   retries in 30s")]
        assert " ".join(" ".join(said).split()) == f"⊘ unreachable {why}"
        assert len(said) == 3, said


async def test_a_lost_box_keeps_its_last_values_dim_and_says_how_old() -> None:
    async with running(fleet_of(lost_box()), keys=("enter",)) as (app, _, __):
        text = screen_text(app)
        assert "⊘ 3m20 old" in text
        assert "88%" in text
        assert "ssh: connection refused" in text
        assert "retries in 12s" in text
        vitals = app.screen.query_one("#vitals", Pane).shown_lines
        bright = [s.text for row in vitals for s in row if s.tone is Tone.TEXT and "88%" in s.text]
        assert bright == []


async def test_a_box_that_leaves_the_fleet_is_said_to_have_left() -> None:
    async with running(fleet_of(running_box()), keys=("enter",)) as (app, pilot, fleet):
        fleet.push(FleetState((), (), NOW))
        app.tick()
        await settle(pilot)
        assert isinstance(app.screen, FleetScreen)
        assert "is no longer in the fleet file" in screen_text(app)


def test_the_log_of_the_running_cell_is_chosen() -> None:
    box = running_box()
    chosen = choose_log(box, None)
    assert chosen is not None
    assert chosen.path.endswith("gpt-c.log")
    other = choose_log(box, "/jobs/demo/master.log")
    assert other is not None
    assert other.path.endswith("master.log")
    assert choose_log(msgspec.structs.replace(box, logs=()), None) is None
    idle = msgspec.structs.replace(box, queues=())
    newest = choose_log(idle, None)
    assert newest is not None and newest.at is not None
    empty = LogView("/jobs/demo/new.log", at=newest.at + 60.0)
    assert choose_log(msgspec.structs.replace(idle, logs=(*idle.logs, empty)), None) == newest
    assert choose_log(msgspec.structs.replace(idle, logs=(empty,)), None) == empty


async def test_a_log_that_is_not_followed_yet_is_asked_for_once() -> None:
    box = msgspec.structs.replace(running_box(), logs=())
    async with running(fleet_of(box), keys=("enter",)) as (app, _, fleet):
        app.tick(force=True)
        assert fleet.followed == [("autodl-demo", "/jobs/demo/logs/gpt-c.log")]
        assert "no log is followed on this box" in screen_text(app)


def grow(fleet: FakeFleet, count: int) -> None:
    box = fleet.state.boxes[0]
    log = box.logs[0]
    lines = (*log.lines, *(f"new {i}" for i in range(count)))
    fleet.change(box.spec.name, logs=(LogView(log.path, lines, 0, NOW), *box.logs[1:]))


async def test_following_ends_when_one_scrolls_up_and_the_chip_counts() -> None:
    async with running(fleet_of(running_box()), keys=("enter",)) as (app, pilot, fleet):
        assert LOG[-1] in screen_text(app)
        await pilot.press("k", "k", "k")
        before = screen_text(app)
        grow(fleet, 12)
        app.tick()
        await pilot.pause()
        after = screen_text(app)
        assert "+12 lines  F follows" in after
        assert LOG[-4] in before
        assert LOG[-4] in after
        assert "new 11" not in after
        await pilot.press("F")
        await pilot.pause()
        assert "new 11" in screen_text(app)
        await pilot.press("k", "end")
        assert app.screen.query_one("#log", LogPane).cursor.following


async def test_errors_are_found_from_the_box_screen() -> None:
    async with running(fleet_of(trouble_box()), keys=("enter",)) as (app, pilot, fleet):
        grow(fleet, 60)
        app.tick()
        await pilot.press("E")
        await pilot.pause()
        await settle(pilot)
        pane = app.screen.query_one("#log", LogPane)
        assert inode_finding().evidence in pane.chosen_lines()[0]
        await pilot.press("e")
        await settle(pilot)
        assert "the only error in the lines kept here" in screen_text(app)


async def test_another_log_can_be_shown() -> None:
    async with running(fleet_of(running_box()), keys=("enter", "right_square_bracket")) as (
        app,
        pilot,
        _,
    ):
        assert "master.log" in screen_text(app)
        await pilot.press("left_square_bracket")
        await settle(pilot)
        assert "gpt-c.log" in screen_text(app)


async def test_tab_gives_another_pane_the_keys() -> None:
    async with running(fleet_of(running_box()), size=(80, 24), keys=("enter", "tab")) as (
        app,
        pilot,
        _,
    ):
        assert isinstance(app.screen, BoxScreen)
        assert isinstance(app.focused, Pane)
        top = app.focused.shown_lines
        await pilot.press("j")
        await pilot.pause()
        assert app.screen.query_one("#log", LogPane).cursor.following
        assert isinstance(app.focused, Pane)
        assert (
            app.focused.shown_lines != top
            or app.focused.wanted_height(40) <= app.focused.size.height
        )


async def test_search_in_the_full_log() -> None:
    async with running(fleet_of(running_box()), keys=("l", "slash", *"step 50")) as (app, pilot, _):
        assert isinstance(app.screen, LogScreen)
        pane = app.screen.query_one("#log", LogPane)
        assert pane.count_matches() == 10
        await pilot.press("enter")
        await settle(pilot)
        assert "step 509" in pane.chosen_lines()[0]
        await pilot.press("N")
        assert "step 508" in pane.chosen_lines()[0]
        await pilot.press("n")
        assert "step 509" in pane.chosen_lines()[0]
        assert any(s.tone is Tone.MATCH for row in pane.shown_lines for s in row)
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(app.screen, LogScreen)
        assert pane.searched_text == ""
        await pilot.press("escape")
        await settle(pilot)
        assert not isinstance(app.screen, LogScreen)


async def test_long_lines_are_cut_scrolled_or_wrapped() -> None:
    long = "start " + "x" * 200 + " end"
    box = msgspec.structs.replace(
        running_box(), logs=(LogView("/jobs/demo/logs/gpt-c.log", (long,), 7, NOW),)
    )
    async with running(fleet_of(box), size=(80, 24), keys=("l",)) as (app, pilot, _):
        assert " end" not in screen_text(app)
        assert "7 earlier lines on the box" in screen_text(app)
        await pilot.press("w")
        await pilot.pause()
        assert " end" in screen_text(app)
        await pilot.press("w", *["right"] * 10)
        await pilot.pause()
        assert " end" in screen_text(app)
        assert "start" not in screen_text(app)


@pytest.mark.parametrize(
    ("cmd", "shown"),
    [
        ("/opt/conda/bin/python -m rgt_train --out /data", "python -m rgt_train --out /data"),
        ("python train.py", "python train.py"),
        ("/", "/"),
        ("", ""),
    ],
)
def test_a_command_begins_with_the_name_of_its_program(cmd: str, shown: str) -> None:
    assert short_command(cmd) == shown


@pytest.mark.parametrize("width", [24, 30, 36, 44, 60])
def test_the_badge_of_a_simulated_gpu_stays_however_long_its_name_is(width: int) -> None:
    long = gpu(name="NVIDIA GeForce RTX 4090 Laptop GPU")
    box = msgspec.structs.replace(running_box(), sample=sample(gpus=(long,)))
    top = text_of(draw_sections(gpu_sections(box, width - 4), width, 8)[0])
    assert "GPU 0" in top
    assert " SIM " in top
    assert len(top) == width


async def test_y_takes_along_what_the_pane_with_the_keys_is_about(state_home: Path) -> None:
    def copied() -> str:
        return (state_home / "copied.txt").read_text().rstrip("\n")

    async with running(fleet_of(trouble_box()), size=(120, 34), keys=("enter",)) as (
        app,
        pilot,
        fleet,
    ):
        assert "y copies fix 1" in screen_text(app)
        for place, command in enumerate(("df -i -- '/workspace'", "ls -A -- ", "rm -rf -- "), 1):
            await pilot.press("y")
            await pilot.pause()
            assert copied().startswith(command) and "\n" not in copied()
            assert f"copied fix {place} of U7" in screen_text(app)
        assert "y copies fix 1" in screen_text(app), "and from the first one again"
        app.screen.query_one("#queue").focus()
        await pilot.press("y")
        assert copied() == "/jobs/demo/logs/lstm-b.log"
        app.screen.query_one("#vitals").focus()
        await pilot.press("y")
        await pilot.pause()
        assert copied() == "ssh -p 2222 127.0.0.1" and "how to log in to vast-demo" in screen_text(
            app
        )
        app.screen.query_one("#log").focus()
        await pilot.press("E", "y")
        assert "No space left on device" in copied()
        cleared = msgspec.structs.replace(inode_finding(), cleared=True)
        fleet.change("vast-demo", findings=(cleared,))
        app.tick(force=True)
        await pilot.press("F")
        await pilot.pause()
        shown = screen_text(app)
        assert "fix 1" in shown and "✔ 1" not in shown, "nobody knows which step was done"
        assert "y copies fix" not in screen_text(app)
        await pilot.press("y")
        assert copied() == "ssh -p 2222 127.0.0.1"


async def test_a_fix_whose_cause_is_over_is_ticked_and_one_that_nobody_can_tell_of_is_not() -> None:
    read = msgspec.structs.replace(inode_finding(), where="sample", run=None, step=None)
    stuck = msgspec.structs.replace(trouble_box(), findings=(read,))
    async with running(fleet_of(stuck), size=(120, 34), keys=("enter",)) as (app, pilot, fleet):
        fleet.change("vast-demo", findings=(), link=LinkState.UNREACHABLE)
        app.tick(force=True)
        await pilot.pause()
        assert "· inodes of /workspace" in screen_text(
            app
        ) and "does not report it now" in screen_text(app)
        room = sample(disks=(disk("/workspace", 63, 10),))
        fleet.change("vast-demo", link=LinkState.LIVE, sample=room)
        app.tick(force=True)
        await pilot.pause()
        shown = screen_text(app)
        assert "✔ inodes of /workspace" in shown
        assert "Check: it is the inodes" in shown and "✔ Check" not in shown, (
            "nobody knows which step was done"
        )


def test_how_one_logs_in_is_what_the_description_says() -> None:
    spec = BoxSpec(
        name="a", host="1.2.3.4", port=40022, identity="/k/my key", known_hosts="/k/hosts"
    )
    words = shlex.join(spec.login_words("root"))
    assert words == "ssh -i '/k/my key' -o UserKnownHostsFile=/k/hosts -p 40022 -l root 1.2.3.4"
    assert BoxSpec(name="a", host="alias", ssh_config="/c").login_words("root") == [
        "ssh",
        "-F",
        "/c",
        "alias",
    ]
    assert BoxSpec(name="a", host="-oProxyCommand=x").login_words()[-2:] == [
        "--",
        "-oProxyCommand=x",
    ]


@pytest.mark.parametrize(
    ("size", "shown"), [((120, 34), False), ((200, 50), True), ((300, 80), True)]
)
async def test_the_loss_stands_beside_the_queue_where_there_is_room(
    size: tuple[int, int], shown: bool
) -> None:
    async with running(FleetState((trouble_box(),), (), NOW), size=size, keys=("enter",)) as (
        app,
        pilot,
        fleet,
    ):
        pane = app.screen.query_one("#loss")
        assert pane.display == shown == ("loss  lstm-b  1.284" in screen_text(app))
        if shown:
            queue = app.screen.query_one("#queue")
            assert (pane.region.y, pane.region.right) == (queue.region.y, size[0])
            assert pane.region.height == queue.region.height >= 8
            await pilot.click("#loss")
            await settle(pilot)
            assert getattr(app.screen, "PLACE", "") == "curves"
            await pilot.press("q")
            fleet.change("vast-demo", runs=())
            await settle(pilot)
            assert not pane.display and queue.region.right == size[0], (
                "nothing to draw takes no room"
            )


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (
            90,
            "● lstm-b  step 812 of 2,400 (33%)  loss 1.284  23m20 of about 1h08  $0.20/1k steps, $0.32 to go",
        ),
        (60, "● lstm-b  step 812 of 2,400 (33%)  23m20 of about 1h08"),
        (40, "● lstm-b  step 812 of 2,400 (33%)"),
        (20, "● lstm-b  step 812 of 2,400 (33%)"),
    ],
)
def test_a_running_cell_says_first_how_far_it_is(width: int, told: str) -> None:
    assert told.startswith(text_of(queue_lines(trouble_box(), width, NOW)[1]))


def test_a_run_that_is_stuck_has_no_time_to_its_end() -> None:
    def told(box: BoxState) -> str:
        return text_of(eta_cell(FleetRow(box, assess_box(box, NOW), (), "vast", NOW), 7)).strip()

    stuck = trouble_box()
    assert any(alert.kind == "stalled" for alert in assess_box(stuck, NOW).alerts)
    assert told(stuck) == "–"
    moving = msgspec.structs.replace(stuck, runs=tuple(
        msgspec.structs.replace(run, progressed_at=NOW, last_at=NOW) for run in stuck.runs
    ))  # fmt: skip
    assert told(moving) not in ("–", "")


async def test_the_first_paint_has_the_panes_where_they_stay_and_the_keys_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as (app, pilot, _):
        await settle(pilot)
        first: list[tuple[dict[str, Region], str | None]] = []
        display = app._display

        def places() -> dict[str, Region]:
            return {
                str(pane.id): pane.region for pane in app.screen.query("#body > *") if pane.display
            }

        def record(screen: Screen[object], update: RenderableType | None) -> None:
            if isinstance(screen, BoxScreen) and update is not None:
                first.append((places(), None if app.focused is None else app.focused.id))
            display(screen, update)

        monkeypatch.setattr(app, "_display", record)
        await pilot.press("enter")
        await until(pilot, lambda: bool(first))
        await settle(pilot)
        assert first[0] == (places(), "log")
        assert len(places()) >= 4


def test_a_best_that_nobody_has_measured_is_not_spoken_of() -> None:
    known = RunState(name="a", step=3, loss=1.5, best=1.7)
    assert (
        "loss 1.5" in (told := " ".join(text_of(row) for row in run_lines(known, 80)))
        and "best val 1.7" in told
    )
    assert "best" not in " ".join(
        text_of(row) for row in run_lines(msgspec.structs.replace(known, best=None), 80)
    )
