"""Drive the real app on the real demo and write what it shows into ``screenshots/``, as SVG and PNG.

Usage: python -m scripts.screenshots [--out DIR] [--no-png]

Nothing is staged: the boxes train, one is preempted, one runs out of inodes, and each picture is
    taken when rgt
itself has seen what it is to show. It takes about two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from textual.pilot import Pilot

from rgt_tui.cli import HINT
from rgt_tui.demo import DemoError, DemoFleet
from rgt_tui.demo.stories import TESTS, queue_done, story_box
from rgt_tui.model import FleetState
from rgt_tui.ui import RgtApp
from rgt_tui.ui.screens import TeardownScreen
from scripts.svg_to_png import convert, find_fonts

SIZES = ((80, 24), (120, 34), (200, 50))
NORMAL = (120, 34)
STORY_SECONDS = 180
ZOOM = 1.5


class Camera:
    """Takes pictures of one running app."""

    def __init__(
        self, app: RgtApp, pilot: Pilot[None], demo: DemoFleet, out: Path, fonts: list[str]
    ) -> None:
        self._app = app
        self._pilot = pilot
        self._demo = demo
        self._out = out
        self._fonts = fonts

    async def take(self, name: str, size: tuple[int, int] = NORMAL) -> None:
        """Write ``NAME.svg`` and ``NAME.png`` of what is on the screen."""
        await self._pilot.resize_terminal(*size)
        await self.settle()
        svg = self._app.export_screenshot(title="rgt")
        (self._out / f"{name}.svg").write_text(svg)
        if self._fonts:
            (self._out / f"{name}.png").write_bytes(convert(svg, self._fonts, ZOOM))
        sys.stderr.write(f"{name}\n")

    async def settle(self) -> None:
        """Let a redraw tick pass, so that the screen shows the newest state."""
        await self._pilot.pause(1.2)

    async def press(self, *keys: str) -> None:
        """Press keys and wait for what they do."""
        await self._pilot.press(*keys)
        await self.settle()

    async def select(self, name: str) -> None:
        """From the fleet screen, put the cursor on a box (the order changes with how the boxes fare)."""
        await self.press("slash", *name, "enter")

    async def top(self) -> None:
        """Go back to the fleet screen, without a filter."""
        while len(self._app.screen_stack) > 1:
            await self.press("escape")
        await self.press("escape")

    async def reviewed(self) -> None:
        """Wait until the teardown page has its review: on a busy machine that takes seconds."""
        async with asyncio.timeout(STORY_SECONDS):
            while (
                not isinstance(self._app.screen, TeardownScreen)
                or self._app.screen.state.review is None
            ):
                await self._pilot.pause(0.25)

    async def until(self, test: Callable[[FleetState], bool]) -> None:
        """Wait until the fleet's state passes a test."""
        async with asyncio.timeout(STORY_SECONDS):
            while not test(self._demo.state):
                await self._pilot.pause(0.25)


def told(demo: DemoFleet, story: str) -> Callable[[FleetState], bool]:
    """Return the test whether a story has happened."""

    def test(state: FleetState) -> bool:
        box = story_box(state, demo.embedded.boxes, story)
        return box is not None and TESTS[story](box)

    return test


async def shoot(out: Path, *, png: bool) -> None:
    """Run the demo once and take all pictures."""
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    fonts = find_fonts() if png else []
    demo = DemoFleet()
    app = RgtApp(lambda: demo, title="rgt demo", hint=HINT)
    async with app.run_test(size=NORMAL) as pilot:
        camera = Camera(app, pilot, demo, out, fonts)
        await camera.until(told(demo, "resume"))
        await camera.until(told(demo, "inodes"))
        for size in SIZES:
            await camera.take("fleet" if size == NORMAL else f"fleet-{size[0]}x{size[1]}", size)
        await camera.select("vast")
        await camera.press("enter")
        for size in SIZES:
            await camera.take("box" if size == NORMAL else f"box-{size[0]}x{size[1]}", size)
        await camera.press("exclamation_mark")
        await camera.take("fix-trial")
        await camera.press("escape")
        await camera.press("p")
        await camera.take("phases")
        await camera.press("escape")
        await camera.press("D")
        await camera.reviewed()
        await camera.take("teardown-refused")
        await camera.press("escape")
        await camera.press("i")
        for size in SIZES:
            await camera.take(
                "platform" if size == NORMAL else f"platform-{size[0]}x{size[1]}", size
            )
        await camera.press("escape")
        await camera.press("H")
        for size in SIZES:
            await camera.take(
                "handbook" if size == NORMAL else f"handbook-{size[0]}x{size[1]}", size
            )
        await camera.press("escape")
        await camera.press("l")
        await camera.take("log")
        await camera.top()
        await camera.select("runpod")
        await camera.press("c")
        await camera.take("curves-resumed")
        await camera.top()
        await camera.press("a")
        await camera.take("alerts")
        await camera.press("escape")
        await camera.press("question_mark")
        await camera.take("help")
        await camera.press("escape")
        await camera.press("J")
        for size in SIZES:
            await camera.take("journal" if size == NORMAL else f"journal-{size[0]}x{size[1]}", size)
        await camera.press("q")
        await camera.press("N")
        for size in SIZES:
            name = "night-ahead"
            if size != NORMAL:
                name += f"-{size[0]}x{size[1]}"
            await camera.take(name, size)
        await camera.press("escape")
        await camera.press("T")
        await camera.press("left", "left", "left")
        await camera.take("time-machine")
        await camera.press("escape")
        await camera.press("ctrl+p", *"runpod")
        await camera.take("palette")
        await camera.press("escape")
        await camera.until(told(demo, "queue"))
        await camera.until(
            lambda state: (box := state.find_box("runpod-demo")) is not None and queue_done(box)
        )
        await camera.select("runpod")
        await camera.press("c")
        await camera.take("curves")
        await camera.press("g")
        await camera.take("curves-grid", SIZES[2])
        await camera.top()
        await camera.select("runpod")
        await camera.press("D")
        await camera.reviewed()
        await camera.take("teardown")
        await stop_the_meter(camera, "runpod-demo")
        await camera.take("teardown-meter-off")
        await camera.top()
        await camera.take("fleet-stopped")


async def stop_the_meter(camera: Camera, name: str) -> None:
    """Type the name, press the button, and wait for the provider."""
    await camera.press(*name)
    await camera.take("teardown-unlocked")
    # Two steps on purpose: an Enter right behind the first one does not press the button.
    await camera.press("enter")
    await camera.press("enter")
    await camera.until(
        lambda state: (
            (box := state.find_box(name)) is not None and box.meter.lifecycle.value == "stopped"
        )
    )
    await camera.settle()


@contextlib.contextmanager
def nobody_s_homes() -> Iterator[None]:
    """Let the app find nothing that a person has set, sorted or looked at, and leave nothing of the kind."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="rgt-shots-") as folder:
        os.environ.update({f"XDG_{what}_HOME": folder for what in ("STATE", "CONFIG")})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def main() -> int:
    """Take the screenshots; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("screenshots"))
    parser.add_argument("--no-png", action="store_true", help="SVG alone (needs no fonts)")
    arguments = parser.parse_args()
    arguments.out.mkdir(exist_ok=True)
    try:
        with nobody_s_homes():
            asyncio.run(shoot(arguments.out, png=not arguments.no_png))
    except (DemoError, FileNotFoundError) as error:
        sys.stderr.write(f"screenshots: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
