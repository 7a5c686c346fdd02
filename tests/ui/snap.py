"""What is on screen as plain text, and the app on a fleet in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot
from textual.worker import WorkerCancelled

import rgt_tui.ui.plot.frame  # noqa: F401  (or the small plot would come up some time later: numpy is imported aside)
from rgt_tui.model import FleetState
from rgt_tui.ui import RgtApp, SeenPlatforms
from tests.ui.fakes import FakeFleet


def screen_text(app: RgtApp) -> str:
    """Return the cells of the screen on top, one line per row, without trailing spaces."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips) + "\n"


def body_text(app: RgtApp) -> str:
    """Return what stands between the fixed lines: the first one and the last two have words whatever is shown."""
    return "\n".join(screen_text(app).splitlines()[1:-2])


def tones(app: RgtApp, widget: str, y: int) -> list[tuple[str, str]]:
    """Return ``(tone, text)`` of one line of a widget."""
    from rgt_tui.ui.widgets import LineWidget

    shown = app.screen.query_one(widget, LineWidget).shown_lines[y]
    return [(span.tone.value, span.text) for span in shown]


async def settle(pilot: Pilot[None]) -> None:
    """Wait until the fleet is there and everything that was asked for is drawn."""
    app = pilot.app
    assert isinstance(app, RgtApp)
    # One that was cancelled belongs to a screen that was removed meanwhile.
    while any(not worker.is_finished for worker in app.workers):
        with contextlib.suppress(WorkerCancelled):
            await app.workers.wait_for_complete()
    await pilot.pause()
    app.tick(force=True)
    await pilot.pause()


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Wait until something holds, which a thread or a timer may bring: how many turns that takes nobody knows."""
    async with asyncio.timeout(60):
        while not holds():
            await pilot.pause()
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(
    source: FakeFleet | FleetState | Callable[[], FakeFleet] | None = None,
    *,
    size: tuple[int, int] = (120, 34),
    keys: tuple[str, ...] = (),
    met: SeenPlatforms | None = None,
) -> AsyncIterator[tuple[RgtApp, Pilot[None], FakeFleet]]:
    """Run the app on a fleet in memory, press some keys, and wait until it is quiet."""
    fleet = FakeFleet(source) if isinstance(source, FleetState) or source is None else source
    made = fleet if isinstance(fleet, FakeFleet) else FakeFleet()
    app = RgtApp(fleet if callable(fleet) else lambda: made, met=met)
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)
        yield app, pilot, made


async def resize(pilot: Pilot[None], width: int, height: int) -> None:
    """Give the terminal another size, and wait until what is shown is laid out in it."""
    await pilot.resize_terminal(width, height)
    await until(pilot, lambda: pilot.app.screen.region.size == (width, height))
    await pilot.pause()
