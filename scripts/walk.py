"""Walk through the demo as a person would, and write ``docs/screens/walk.md`` with a picture of each step.

Usage: python -m scripts.walk [--png DIR] [--only STEP,STEP]

Nothing is staged: each step presses its keys in the real app on the real demo, and the picture
    shows what came of
them. It takes about five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from rgt_tui.cli import HINT
from rgt_tui.demo import DemoError, DemoFleet
from rgt_tui.demo.stories import TESTS, queue_done
from rgt_tui.ui import RgtApp
from scripts.screenshots import NORMAL, SIZES, Camera, nobody_s_homes, told
from scripts.svg_to_png import convert, find_fonts

THEMES = {"dark": "rgt-dark", "light": "rgt-light"}
PICTURES = Path("screenshots/walk")
PAGE = Path("docs/screens/walk.md")
HEAD = """# An evening with the demo

What each key does, in the order of an evening: from the first look to the receipt of a parked box. The pictures are of
the real demo; `python -m scripts.walk` presses the same keys and writes this page again. Each step is shown at
120×34, dark; the links have the light theme and, where the layout differs, 80×24 and 200×50.
"""


class WalkStep(NamedTuple):
    """One step: what to press, what is then on the screen."""

    name: str
    title: str
    keys: tuple[str, ...]
    """As Textual names them, or `type:` and a text; pressed after `wait`."""
    shows: str
    """What to see, in a sentence or two."""
    wait: str = ""
    """The demo's story that must have happened before the keys are pressed, or the box whose queue
    must be done.
    """
    until: str = ""
    """A regular expression that the screen must match before the picture."""
    all_sizes: bool = False
    box: str = ""
    """The box to select first, from the fleet screen."""
    close: bool = True
    """Go back to the fleet screen before the step."""


STEPS = (
    WalkStep("opening", "The first minute", (),
             "Three boxes train on this computer. The first line says what they "
             "cost; the pane below is about the selected box; the last line has the next keys.",
             until="loss", all_sizes=True),
    WalkStep("help", "What can I press?", ("question_mark",),
             "`?` lists the keys that work now, the important ones "
             "first. `/` searches."),
    WalkStep("mark-moment", "Remember this moment", ("apostrophe",),
             "`'` marks a moment of the selected box, "
             "to compare a later one with.", box="vast"),
    WalkStep("sort", "Sort by a letter", ("o",),
             "`o` names the columns with their letters; `i` sorts by inodes.",
             wait="inodes", all_sizes=True),
    WalkStep("marks", "Mark several boxes", ("space", "space"),
             "`space` marks, `v` begins and ends a range, `*` marks "
             "all. The first line counts the marked boxes and what they cost."),
    WalkStep("marked-choices", "Act on all of them", ("m",),
             "`m` offers what can be done for all marked boxes; `w` "
             "starts a pull, push, run or queue on them, and `D` here opens one tear-down after "
             "the other.",
             close=False),
    WalkStep("pull-preview", "Pull, with its dry run", ("w", "p", "enter"),
             "`w` `p` writes the command, `enter` shows "
             "its dry run. `enter` again would run it; `esc` closes.", until="enter again",
             box="runpod",
             all_sizes=True),
    WalkStep("editor", "Open it in an editor", ("E",),
             "`E` prints what VS Code, Cursor and JetBrains need.",
             until="JetBrains", box="runpod"),
    WalkStep("forward", "Forward a port", ("f",),
             "`f` asks for a port: `6006` for TensorBoard. `s` opens a shell, `S` "
             "one in the directory of the run.", box="runpod"),
    WalkStep("log", "The line in the log", ("l", "e"),
             "`l` opens the log, `e` goes to the next error. `S` here opens "
             "the file at this line in the box's pager; `q` comes back.", box="vast"),
    WalkStep("what-changed", "What changed?", ("apostrophe",),
             "The second `'` compares now with the marked moment, "
             "likeliest cause first.", box="vast", wait="inodes", until="what changed",
             all_sizes=True),
    WalkStep("fix-trial", "Try the fix", ("exclamation_mark",),
             "`!` runs the steps that only look, and says what the "
             "removal would free. You type its name to remove it.", box="vast", wait="inodes",
             until="type viz",
             all_sizes=True),
    WalkStep("fix-done", "Remove the files", ("type:viz", "enter"),
             "The files are gone, the run saves and "
             "continues.", until="removed", close=False),
    WalkStep("difference", "Where do two runs part?", ("c", "j", "R", "j", "d"),
             "In the curves, `R` pins a run; `d` "
             "goes to the first step where it and the selected one differ.", box="autodl",
             wait="queue",
             all_sizes=True),
    WalkStep("night", "The night ahead", ("N",),
             "`N` forecasts what each box does until noon, what that costs, and "
             "what is worth doing before sleep.", wait="runpod-demo", all_sizes=True),
    WalkStep("night-do", "Do one of them", ("2", "enter"),
             "`2` opens the second proposed command; `enter` shows its "
             "dry run.", until="enter again|exit status", close=False),
    WalkStep("teardown", "Stop paying", ("D",),
             "`D` says what stopping saves, loses and needs; the last line has "
             "the keys.", box="runpod", wait="runpod-demo", until="type exactly", all_sizes=True),
    WalkStep("receipt", "The receipt", ("type:runpod-demo", "enter", "enter"),
             "The box is parked, and this is what "
             "remains of it: what was saved where, what it cost, what still bills.",
             until="still bills",
             all_sizes=True, close=False),
)  # fmt: skip


class Walker(Camera):
    """Takes the walk's pictures, in both themes and at several sizes."""

    png: Path | None = None

    def screen_lines(self) -> str:
        """Return the text on the screen."""
        size = self._app.size
        strips = self._app.screen._compositor.render_strips(size)
        return "\n".join(strip.text for strip in strips)

    async def wait_for(self, text: str) -> None:
        """Wait until the screen has a text, given as a regular expression."""
        async with asyncio.timeout(180):
            while not re.search(text, self.screen_lines()):
                await self._pilot.pause(0.25)

    async def export(self) -> str:
        """Return the screen as SVG; between two layouts Textual has none yet."""
        try:
            return self._app.export_screenshot(title="rgt")
        except TypeError:
            await self.settle()
            return self._app.export_screenshot(title="rgt")

    async def take_step(self, step: WalkStep) -> None:
        """Do one step and take its pictures."""
        if step.close:
            await self.top()
            # The first closes an entry, the second the filter.
            await self.press("escape")
        if step.wait in TESTS:
            await self.until(told(self._demo, step.wait))
        elif step.wait:
            await self.until(
                lambda state: (box := state.find_box(step.wait)) is not None and queue_done(box)
            )
        if step.box:
            await self.select(step.box)
        for key in step.keys:
            if key.startswith("type:"):
                await self.press(*key.removeprefix("type:"))
            else:
                await self.press(key)
        if step.until:
            await self.wait_for(step.until)
        for size in SIZES if step.all_sizes else (NORMAL,):
            await self._pilot.resize_terminal(*size)
            for look, theme in THEMES.items():
                if look == "light" and size != NORMAL:
                    continue
                self._app.theme = theme
                await self.settle()
                svg = await self.export()
                name = picture_name(step, size, look)
                (self._out / f"{name}.svg").write_text(svg)
                if self.png is not None:
                    (self.png / f"{name}.png").write_bytes(convert(svg, self._fonts, 1.0))
        self._app.theme = THEMES["dark"]
        await self._pilot.resize_terminal(*NORMAL)
        await self.settle()
        sys.stderr.write(f"{step.name}\n")


def picture_name(step: WalkStep, size: tuple[int, int], look: str) -> str:
    """Return the name of a step's picture, without its ending."""
    number = STEPS.index(step) + 1
    name = f"{number:02}-{step.name}"
    if size != NORMAL:
        name += f"-{size[0]}x{size[1]}"
    if look == "light":
        name += "-light"
    return name


def key_text(keys: tuple[str, ...]) -> str:
    """Return keys as a person writes them."""
    glyphs = {"question_mark": "?", "apostrophe": "'", "exclamation_mark": "!"}
    return " ".join(f"`{glyphs.get(key, key.removeprefix('type:'))}`" for key in keys)


def write_page() -> None:
    """Write the page of all steps."""
    parts = [HEAD]
    for number, step in enumerate(STEPS, 1):
        place = f"../../{PICTURES}"
        links = [f"[light]({place}/{picture_name(step, NORMAL, 'light')}.svg)"]
        if step.all_sizes:
            links += [
                f"[{size[0]}×{size[1]}]({place}/{picture_name(step, size, 'dark')}.svg)"
                for size in SIZES
                if size != NORMAL
            ]
        keys = ""
        if step.keys:
            on = f" on `{step.box}-demo`" if step.box else ""
            keys = f"Keys{on}: {key_text(step.keys)}\n\n"
        picture = f"![{step.title}]({place}/{picture_name(step, NORMAL, 'dark')}.svg)"
        shown = f"{step.shows} ({', '.join(links)})"
        parts.append(f"## {number}. {step.title}\n\n{keys}{wrap_prose(shown)}\n\n{picture}\n")
    PAGE.write_text("\n".join(parts), encoding="utf-8")


def wrap_prose(text: str) -> str:
    """Return a paragraph in lines of at most 120 characters."""
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False))


async def walk(png: Path | None, only: list[str]) -> None:
    """Do all steps, or only some of them."""
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    demo = DemoFleet()
    app = RgtApp(lambda: demo, title="rgt demo", hint=HINT)
    async with app.run_test(size=NORMAL) as pilot:
        walker = Walker(app, pilot, demo, PICTURES, find_fonts() if png is not None else [])
        walker.png = png
        for step in STEPS:
            if only and step.name not in only:
                continue
            try:
                await walker.take_step(step)
            except TimeoutError as error:
                raise DemoError(
                    f"{step.name}: not seen: {step.until or step.wait}\n{walker.screen_lines()}"
                ) from error


def main() -> int:
    """Walk; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--png", type=Path, help="also write PNG files there, to look at")
    parser.add_argument(
        "--only", default="", help="names of steps, with commas; the other pictures are left"
    )
    arguments = parser.parse_args()
    PICTURES.mkdir(parents=True, exist_ok=True)
    if arguments.png is not None:
        arguments.png.mkdir(parents=True, exist_ok=True)
    try:
        with nobody_s_homes():
            asyncio.run(walk(arguments.png, arguments.only.split(",") if arguments.only else []))
    except (DemoError, FileNotFoundError) as error:
        sys.stderr.write(f"walk: {error}\n")
        return 2
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
