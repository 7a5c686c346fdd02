from __future__ import annotations

import msgspec
import pytest

from rgt_tui.model.fleet import FleetState
from rgt_tui.ui import glyphs
from rgt_tui.ui.widgets import lines
from tests.ui.fakes import NOW, demo_state, lost_box, many_boxes, running_box
from tests.ui.snap import SIZES, check, running, screen_text

LOST = FleetState((lost_box(),), (), NOW)
CALM = FleetState((running_box(),), (), NOW)
STATES = {"demo": demo_state(), "lost": LOST}


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_fleet_snapshots(size: tuple[int, int]) -> None:
    async with running(demo_state(), size=size) as (app, _, __):
        check(app, f"fleet-{size[0]}x{size[1]}")


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
async def test_box_snapshots(size: tuple[int, int]) -> None:
    async with running(CALM, size=size, keys=("enter",)) as (app, _, __):
        check(app, f"box-{size[0]}x{size[1]}")


async def test_a_lost_box_at_eighty_columns() -> None:
    async with running(LOST, size=(80, 24), keys=("enter",)) as (app, _, __):
        check(app, "box-lost-80x24")


@pytest.mark.parametrize(
    "keys", [(), ("enter",), ("l",), ("question_mark",)], ids=["fleet", "box", "log", "help"]
)
@pytest.mark.parametrize("size", [(20, 5), (40, 12), (60, 20), (79, 23), (81, 24), (159, 40), (300, 80)])
async def test_every_size_draws_something_that_fits(size: tuple[int, int], keys: tuple[str, ...]) -> None:
    async with running(demo_state(), size=size, keys=keys) as (app, _, __):
        rows = screen_text(app).splitlines()
        assert len(rows) == size[1]
        assert max(len(row) for row in rows) <= size[0]
        assert app.return_code is None


async def test_the_terminal_may_change_its_size() -> None:
    async with running(many_boxes(30), size=(200, 50), keys=("j",)) as (app, pilot, _):
        for size in ((80, 24), (60, 20), (30, 8), (120, 34)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            await pilot.pause()
            assert max(len(row) for row in screen_text(app).splitlines()) <= size[0]
        assert "box-015" in screen_text(app)


async def test_everything_is_ascii_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RGT_ASCII", "1")
    glyphs.glyphs.cache_clear()
    lines._safe.cache_clear()
    box = msgspec.structs.replace(running_box(), reason="verbunden über 训练")
    for keys in ((), ("enter",), ("l",), ("question_mark",)):
        async with running(FleetState((*demo_state().boxes, box), demo_state().events, NOW), keys=keys) as (
            app,
            _,
            __,
        ):
            text = screen_text(app)
            assert text.isascii(), [c for c in text if not c.isascii()]
