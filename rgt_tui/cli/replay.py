"""``rgt replay``: show a recording as if it happened now."""

from __future__ import annotations

import argparse
import math
import sys
from typing import TYPE_CHECKING

from rgt_tui.cli.commands import FAILED, OK, USAGE

if TYPE_CHECKING:
    from rgt_tui.fleet.source import FleetSource

KEYS = "the recording's own clock counts; nothing can be done to its boxes"


def run_replay(arguments: argparse.Namespace) -> int:
    """Replay; return the exit code."""
    from rgt_tui.cli.printing import complain
    from rgt_tui.recordings.recording_lines import RecordingError

    headless = arguments.headless or arguments.json
    if headless and arguments.loop:
        complain("--loop never ends; it is for the screen")
        return USAGE
    try:
        return _headless(arguments) if headless else _screen(arguments)
    except RecordingError as error:
        complain(error)
        return USAGE


def _screen(arguments: argparse.Namespace) -> int:
    import shlex
    from pathlib import Path

    from rgt_tui.cli.screen import show
    from rgt_tui.recordings.recording_reader import RecordingReader

    path = Path(arguments.file)
    RecordingReader(path).close()  # what is no recording is said before a screen is opened

    def make() -> FleetSource:
        from rgt_tui.recordings.replay_fleet import ReplayFleet

        return ReplayFleet(path, speed=arguments.speed or 1.0, skip=arguments.skip, loop=arguments.loop)

    return show(
        make,
        title=f"rgt replay {path.name}",
        hint=KEYS,
        farewell="rgt has left the recording",
        without=f"`rgt replay {shlex.quote(arguments.file)} --headless`",
    )


def _headless(arguments: argparse.Namespace) -> int:
    from rgt_tui.cli import running

    return running.run(_play(arguments))


async def _play(arguments: argparse.Namespace) -> int:
    import asyncio
    from pathlib import Path

    from rgt_tui.cli import running
    from rgt_tui.cli.status import lines_of
    from rgt_tui.cli.status_line import encode
    from rgt_tui.cli.status_text import text_line
    from rgt_tui.cli.watching import TextWatcher
    from rgt_tui.recordings.replay_fleet import ReplayFleet

    over = asyncio.Event()
    running.until_signalled(over)
    told = TextWatcher(sys.stderr)
    fleet = ReplayFleet(
        Path(arguments.file), speed=arguments.speed or math.inf, skip=arguments.skip, observers=[told]
    )
    await fleet.start()
    waits = [asyncio.create_task(each) for each in (over.wait(), fleet.over.wait(), told.run(fleet.now))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await fleet.stop()
    told.look(fleet.now())
    for line in lines_of(fleet.state, fleet.now()):
        sys.stdout.write(encode(line).decode() if arguments.json else text_line(line) + "\n")
    return FAILED if fleet.faults or any(not item.torn for item in fleet.skipped) else OK
