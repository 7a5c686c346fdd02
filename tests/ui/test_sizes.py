from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import (
    CpuReading,
    DetachedSessions,
    DiskReading,
    FleetState,
    GpuReading,
    InodeHog,
    LogView,
    MemoryReading,
    RowSparklines,
    RunState,
    Sample,
    TrainingProcess,
)
from rgt_tui.ui import notation
from rgt_tui.ui.screens import LifecycleScreen, LogScreen
from rgt_tui.ui.widgets import CheckRun, lines
from tests.pseudo_terminal import PseudoTerminal
from tests.ui.fakes import NOW, cell, demo_state, many_boxes, queue, running_box
from tests.ui.snap import body_text, resize, running, screen_text, settle
from tests.ui.stages import rest, staged

WALK = ("", "enter", "q", "l", "q", "question_mark", "escape")
"""Keys that lead through every screen and back."""


@pytest.mark.parametrize("size", [(20, 5), (40, 12), (79, 23), (159, 40), (300, 80)], ids=str)
async def test_every_size_draws_something_that_fits(size: tuple[int, int]) -> None:
    async with running(demo_state(), size=size) as (app, pilot, _):
        for key in WALK:
            if key:
                await pilot.press(key)
                await settle(pilot)
            rows = screen_text(app).splitlines()
            assert len(rows) == size[1]
            assert max(len(row) for row in rows) <= size[0]
        assert app.return_code is None


async def test_the_terminal_may_change_its_size() -> None:
    async with running(many_boxes(30), size=(200, 50), keys=("j",)) as (app, pilot, _):
        for size in ((80, 24), (60, 20), (30, 8), (120, 34)):
            await resize(pilot, *size)
            await pilot.pause()
            await pilot.pause()
            assert max(len(row) for row in screen_text(app).splitlines()) <= size[0]
        assert "box-015" in screen_text(app)


async def test_everything_is_ascii_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGT_ASCII", "1")
    notation.current_glyphs.cache_clear()
    lines._replace_controls.cache_clear()
    box = msgspec.structs.replace(running_box(), reason="verbunden über 训练")
    async with running(FleetState((*demo_state().boxes, box), demo_state().events, NOW)) as (
        app,
        pilot,
        _,
    ):
        for key in WALK:
            if key:
                await pilot.press(key)
                await settle(pilot)
            text = screen_text(app)
            assert text.isascii(), [c for c in text if not c.isascii()]


NAN, INF = float("nan"), float("inf")
NOTHING = Sample(
    boot="b",
    seq=1,
    at=NOW,
    gpus=(GpuReading(index=0, name=""),),
    mem=MemoryReading(),
    cpu=CpuReading(),
    disks=(DiskReading(mount="/"),),
    procs=(TrainingProcess(pid=1, started=0.0, cmd=""),),
    session=DetachedSessions(),
)
NONSENSE = Sample(
    boot="b",
    seq=1,
    at=NOW + 1e6,
    gpus=(
        GpuReading(
            index=0,
            name="x",
            util=NAN,
            vram_used=-5,
            vram_total=0,
            temp_c=INF,
            power_w=NAN,
            power_limit_w=NAN,
            clock_mhz=INF,
            clock_max_mhz=NAN,
            throttle=("?",),
        ),
        GpuReading(index=1, name="y", util=1e9, vram_used=10, vram_total=5, error="\x1b[2Jlost"),
    ),
    mem=MemoryReading(
        cgroup=1,
        used=-1,
        cache=10,
        limit=0,
        peak=None,
        oom_kills=-3,
        host_used=10**20,
        host_total=1,
    ),
    cpu=CpuReading(quota=NAN, cores=0, load1=INF, throttled_pct=NAN),
    disks=(
        DiskReading(
            mount="", bytes_total=0, bytes_used=10, bytes_free=-4, inodes_total=0, inodes_used=7
        ),
        DiskReading(
            mount="/" + "x" * 300,
            bytes_total=10**18,
            bytes_used=10**19,
            bytes_free=0,
            inodes_total=10,
            inodes_used=11,
            hogs=(InodeHog(path="/h", inodes=10**12, bytes=-1),),
        ),
    ),
    procs=(
        TrainingProcess(
            pid=-1,
            started=INF,
            cmd="c" * 500,
            rss=-1,
            threads=-1,
            state="Z",
            cpu_pct=NAN,
            age_s=NAN,
        ),
    ),
    session=DetachedSessions(tmux=(), uptime_s=NAN),
)


@pytest.mark.parametrize(
    "reading", [NOTHING, NONSENSE, None], ids=["nothing", "nonsense", "no-sample"]
)
@pytest.mark.parametrize("size", [(60, 20), (200, 50)], ids=["60x20", "200x50"])
async def test_odd_readings_are_drawn(reading: Sample | None, size: tuple[int, int]) -> None:
    odd = msgspec.structs.replace(
        running_box(),
        sample=reading,
        sample_at=None if reading is None else NOW,
        rings=RowSparklines((None, NAN, INF, -5.0)),
        runs=(RunState("gpt-c", 10, NAN, INF, NAN, total_steps=0, progressed_at=NAN, last_at=NAN),),
        queues=(queue(cell("gpt-c", "running", started=NAN), cell("z", "odd", exit_code=-9)),),
        logs=(LogView("", ("", "\x00", "x" * 10_000)),),
        meter=msgspec.structs.replace(
            running_box().meter, per_hour=NAN, spent=INF, currency="\x1b[31m"
        ),
    )
    async with running(FleetState((odd,), (), NOW), size=size) as (app, pilot, _):
        for key in (*WALK[:4], "w"):
            if key:
                await pilot.press(key)
                await settle(pilot)
            assert "autodl-demo" in screen_text(app) and re.search(r"[a-z]{3}", body_text(app))
            assert "\x1b" not in screen_text(app)


IN_A_TERMINAL = """
from itertools import count
from rgt_tui.ui import RgtApp
from tests.ui.fakes import FakeFleet

app, beats, beat = RgtApp(FakeFleet), count(), RgtApp.redraw_in_steps

async def counted(self):
    if next(beats) == 12:
        self.exit()
    await beat(self)

RgtApp.redraw_in_steps = counted
app.run()
"""


def written(script: Path, rows: int, columns: int) -> bytes:
    """Return what the app writes in twelve beats to a real terminal that says it has this size."""
    root = Path(__file__).parents[2]
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment = kept | {"TERM": "xterm-256color", "PYTHONPATH": str(root)}
    command = [sys.executable, str(script)]
    with PseudoTerminal(command, env=environment, size=(rows, columns)) as terminal:
        while terminal.read() and len(terminal.said) < 4_000_000:
            pass
        return terminal.said


@pytest.mark.parametrize("size", [(0, 0), (0, 120), (24, 80)], ids=str)
def test_a_terminal_that_does_not_know_its_size_is_not_flooded(
    size: tuple[int, int], tmp_path: Path
) -> None:
    script = tmp_path / "app_in_a_terminal.py"
    script.write_text(IN_A_TERMINAL)
    out = written(script, *size)
    assert b"autodl-demo" in out
    assert len(out) < 100_000, f"{len(out)} bytes in twelve beats"


WHOLE = {
    "question": ("anything else refuses",),
    "teardown": (
        "provider says running", "storage $0.02/h goes on", "and 2 more reasons", "f give up", "the box's name",
    ),
    "welcome": ("demo boxes that train on this computer, or a recording of them",),
}  # fmt: skip


@pytest.mark.parametrize("screen", WHOLE)
async def test_what_one_decides_by_is_whole_in_the_smallest_terminal(
    screen: str, state_home: Path
) -> None:
    async with staged(screen, "live", home=state_home, size=(60, 20)) as (app, pilot):
        for part in app.screen.query("#scroll"):  # the picture is one of a row that was walked to
            part.scroll_home(animate=False, immediate=True)
        await settle(pilot)
        shown = " ".join(" ".join(row.strip(" │") for row in screen_text(app).splitlines()).split())
        assert all(words in shown for words in WHOLE[screen]), shown


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 34)], ids=str)
async def test_phases_that_do_not_fit_are_counted(size: tuple[int, int], state_home: Path) -> None:
    async with staged("phases", "live", home=state_home, size=size) as (app, pilot):
        for key, left in (("g", True), ("G", False)):
            await pilot.press(key)
            await settle(pilot)
            screen = app.screen
            assert isinstance(screen, LifecycleScreen)
            shown, rows = screen.checklist.size.height, screen.checklist.selectable_rows
            text = screen_text(app)
            assert (f"▼ {len(rows) - shown} more" in text) == left
            assert (" 0.2  inodes" in text) == (key == "g")


@pytest.mark.parametrize("screen", ["phases", "journal", "transfers"])
async def test_a_short_list_in_a_tall_terminal_shows_the_box_of_its_selected_line(
    screen: str, state_home: Path
) -> None:
    async with staged(screen, "live", home=state_home, size=(300, 80)) as (app, pilot):
        if screen == "journal":
            assert "autodl-demo  now" in screen_text(app)
            await pilot.press("g")
            await rest(app, pilot)
            assert "✖ inodes of /workspace" in screen_text(app), "what is wrong there now"
        text = screen_text(app)
        for words in (
            f"vast-demo  {'now' if screen == 'journal' else 'what happened'}",
            "log  lstm-b.log",
            "past 1 h",
        ):
            assert words in text, text
        rows = [row for row in text.splitlines() if row.strip()]
        assert len(rows) > 60, "most of the terminal says something"
        await rest(app, pilot, (80, 20))
        assert "log  lstm-b.log" not in screen_text(app)
        await pilot.press("l")
        await rest(app, pilot)
        assert isinstance(app.screen, LogScreen), "the key that the pane names works here"


async def test_a_list_that_does_not_fit_says_how_much_is_out_of_sight() -> None:
    async with running(many_boxes(200), size=(120, 34), keys=("a",)) as (app, pilot, _):
        assert re.search(r"^ ▼ \d+ more$", screen_text(app), re.M)
        await pilot.press("G")
        await settle(pilot)
        assert "above" in screen_text(app) and "more" not in screen_text(app)


async def test_what_a_check_prints_has_the_room_of_what_is_known_of_the_box(
    state_home: Path,
) -> None:
    async with staged("phases", "live", home=state_home, size=(120, 60)) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, LifecycleScreen) and screen.selected_check is not None
        assert "vast-demo  what happened" in screen_text(app)
        screen.runs[screen.selected_check.id] = CheckRun(
            "df -i", NOW, [f"row {n}" for n in range(20)], NOW, 0
        )
        screen.redraw_now()
        await settle(pilot)
        assert "vast-demo  what happened" not in screen_text(app)
        assert all(f"row {n}" in screen_text(app) for n in range(20))


async def test_no_box_is_not_a_box_without_trouble() -> None:
    async with running(FleetState((), (), NOW), size=(80, 24), keys=("a",)) as (app, _, __):
        assert "no box is watched" in screen_text(app) and "nothing is wrong" not in screen_text(
            app
        )
