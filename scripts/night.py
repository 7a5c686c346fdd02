"""Film a night at the demo: the real app, the real boxes, one SVG that heads the README.

Usage: python -m scripts.night [--out FILE]

Trouble, its fix run on the box by ``ssh``, the curve, the journal, the time machine, the results
pulled, the meter off. It takes two to three minutes. `tests/torture/demo/test_night.py` walks the
same way with keys in a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from textual.pilot import Pilot

from rgt_tui.cli import HINT
from rgt_tui.demo import DemoError, DemoFleet
from rgt_tui.demo.stories import queue_done
from rgt_tui.ui import RgtApp
from scripts.film import FilmError, Frame, film
from scripts.screenshots import NORMAL, Camera, nobody_s_homes
from scripts.svg_to_png import convert, find_fonts

TROUBLED, FINISHED = "vast-demo", "autodl-demo"
FIX = "rm -rf -- /workspace/.cache/viz"
"""What the fleet screen proposes; the demo's box is a sandbox."""


class Projector(Camera):
    """Keeps the pictures of a film, besides."""

    def __init__(self, app: RgtApp, pilot: Pilot[None], demo: DemoFleet, out: Path) -> None:
        super().__init__(app, pilot, demo, out, [])
        self.frames: list[Frame] = []

    async def shoot(self, seconds: float) -> None:
        """Take what is on the screen into the film, to stand for so long."""
        await self.settle()
        self.frames.append(Frame(self._app.export_screenshot(title="rgt"), seconds))
        sys.stderr.write(".")
        sys.stderr.flush()

    def shown(self) -> str:
        """Return the words on the screen."""
        return "\n".join(strip.text for strip in self._app.screen._compositor.render_strips())

    async def shows(self, *words: str) -> None:
        """Wait until all these words are on the screen."""
        async with asyncio.timeout(180):
            while not all(word in self.shown() for word in words):
                await self._pilot.pause(0.25)


async def night() -> list[Frame]:
    """Run the demo once; return the pictures."""
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    demo = DemoFleet()
    app = RgtApp(lambda: demo, title="rgt demo", hint=HINT)
    async with app.run_test(size=NORMAL) as pilot:
        with tempfile.TemporaryDirectory() as folder:
            here = Projector(app, pilot, demo, Path(folder))
            await here.shows("autodl", "runpod", "vast", "%")
            await here.shoot(2.5)
            await here.shows(f"✖ {TROUBLED}", "$ rm -rf -- ")
            await here.shoot(5.0)
            await here.press("y")
            await here.shoot(2.0)
            await repaired(demo)
            await here.until(
                lambda state: (box := state.find_box(TROUBLED)) is not None and not box.findings
            )
            await here.shoot(2.5)
            await here.select(TROUBLED)
            await here.press("c")
            await here.shoot(4.0)
            await here.top()
            await here.until(
                lambda state: (box := state.find_box(FINISHED)) is not None and queue_done(box)
            )
            await here.press("J")
            await here.shoot(4.5)
            await here.top()
            await here.press("T")
            await here.shows("time machine")
            for _ in range(80):
                if f"✖ {TROUBLED}" in here.shown():
                    break
                await here.press("left")
            await here.shoot(4.0)
            await here.press("escape")
            await here.top()
            await stopped(here)
    return here.frames


async def repaired(demo: DemoFleet) -> None:
    """Do what the screen proposes, on the box."""
    assert demo.embedded.workspace is not None
    argv = ["ssh", "-F", str(demo.embedded.workspace.path / "ssh_config"), TROUBLED, FIX]
    process = await asyncio.create_subprocess_exec(*argv)
    if await process.wait():
        raise DemoError(f"{TROUBLED}: {FIX} failed")


async def stopped(here: Projector) -> None:
    """Pull the results of the box that has finished, and stop its meter."""
    await here.select(FINISHED)
    await here.press("D")
    await here.shows("the name has not been typed")
    await here.press("tab", "right")
    await here.shows("not pulled")
    await here.shoot(3.5)
    await here.press("tab", "P")
    await here.shows("verified in ")
    await here.shoot(3.0)
    await here.press("escape")
    await here.press("D")
    await here.shows("✔ quiet")
    await here.press(*FINISHED)
    await here.shows("ready: the button sends it")
    await here.shoot(2.0)
    await here.press("enter")
    await here.press("enter")
    await here.until(
        lambda state: (
            (box := state.find_box(FINISHED)) is not None and box.meter.lifecycle.value == "stopped"
        )
    )
    await here.shows("meter off")
    await here.shoot(3.0)
    await here.top()
    await here.shoot(4.0)


def main() -> int:
    """Make the film; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("screenshots/night.svg"))
    parser.add_argument("--stills", type=Path, help="write each picture there, too, as PNG")
    arguments = parser.parse_args()
    try:
        with nobody_s_homes():
            frames = asyncio.run(night())
        arguments.out.write_text(film(frames), encoding="utf-8")
        if arguments.stills:
            arguments.stills.mkdir(exist_ok=True)
            fonts = find_fonts()
            for place, frame in enumerate(frames):
                (arguments.stills / f"night-{place:02}.png").write_bytes(
                    convert(frame.svg, fonts, 1.0)
                )
    except (DemoError, FilmError, FileNotFoundError, TimeoutError) as error:
        sys.stderr.write(f"night: {str(error) or 'what was to be shown did not come'}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
