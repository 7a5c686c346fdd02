"""``rgt demo`` and ``rgt replay``: the dashboard on boxes of its own, or on a recording."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.printing import print_error, write_json
from rgt_tui.cli.set_up.set_up_arguments import DemoArguments
from rgt_tui.cli.watch_arguments import ReplayArguments
from rgt_tui.language import translate

if TYPE_CHECKING:
    from rgt_tui.fleet import FleetSource

RECORDING_HINT = "a recording: times are of the recording, and its boxes cannot be changed"


def run_replay(arguments: ReplayArguments) -> int:
    """Replay; return the exit code."""
    from pathlib import Path

    from rgt_tui.cli import running
    from rgt_tui.fleet.history.spoken_times import coming_time
    from rgt_tui.recordings import RecordingError, RecordingReader

    headless = arguments.headless or arguments.json
    if headless and arguments.loop:
        print_error(translate("--loop never ends, so it needs the dashboard"))
        return USAGE
    try:
        # Fail before a screen is opened if it is not a recording.
        with contextlib.closing(RecordingReader(Path(arguments.file))) as file:
            started = file.header.started
        skip = arguments.skip
        if arguments.at is not None:
            skip = coming_time(arguments.at, started) - started
    except (RecordingError, ValueError) as error:
        print_error(error)
        return USAGE
    if headless:
        return running.run_coroutine(_print_replay(arguments, skip))
    return _recording_screen(arguments, skip)


def _recording_screen(arguments: ReplayArguments, skip: float) -> int:
    import shlex
    from pathlib import Path

    from rgt_tui.cli.dashboard import run_dashboard

    path = Path(arguments.file)

    def build_fleet() -> FleetSource:
        # After the first frame: reading a recording imports the whole model.
        from rgt_tui.recordings import ReplayFleet

        # On a screen a person watches, so real time; without one the result counts, so full speed.
        return ReplayFleet(path, speed=arguments.speed or 1.0, skip=skip, loop=arguments.loop)

    return run_dashboard(
        build_fleet,
        title=f"rgt replay {path.name}",
        hint=translate(RECORDING_HINT),
        farewell=translate("rgt has closed the recording"),
        without=f"`rgt replay {shlex.quote(arguments.file)} --headless`",
    )


async def _print_replay(arguments: ReplayArguments, skip: float) -> int:
    import asyncio
    from pathlib import Path

    from rgt_tui.cli import running
    from rgt_tui.cli.status import lines_of
    from rgt_tui.cli.status_line import encode_line, text_line
    from rgt_tui.cli.watch import TextWatcher
    from rgt_tui.recordings import ReplayFleet

    over = asyncio.Event()
    # Ctrl-C ends the replay and prints the states so far, as `rgt record` does.
    running.until_signalled(over)
    told = TextWatcher(sys.stderr)
    fleet = ReplayFleet(
        Path(arguments.file),
        speed=arguments.speed or math.inf,
        skip=skip,
        observers=[told],
    )
    await fleet.start()
    try:
        with contextlib.suppress(OSError):  # stdout may be closed; the result is printed anyway
            await running.first_of(over.wait(), fleet.over.wait(), told.run(fleet.now))
    finally:
        await fleet.stop()
    # Events of the last moment: the watcher is cancelled as soon as the recording is over.
    told.print_due(fleet.now())
    for line in lines_of(fleet.state, fleet.now()):
        if arguments.json:
            write_json(encode_line(line), sys.stdout)
        else:
            sys.stdout.write(text_line(line) + "\n")
    # A torn last line is what a killed `rgt record` leaves; other bad lines are damage.
    if fleet.faults or any(not item.torn for item in fleet.skipped):
        return FAILED
    return OK


REPLAY = "REPLAY of a recorded run, over and over"
"""Shown on every screen if the real demo cannot run here."""
HINT = "the demo's boxes are starting; in about a minute, vast-demo needs you"
FAREWELL = "rgt has quit and removed the demo's boxes; real boxes keep running without rgt"


def run_demo(arguments: DemoArguments) -> int:
    """Run the demo; return the exit status."""
    from rgt_tui.demo import DemoError

    try:
        # First, because --fleet-only has no screen either and takes some of the same options.
        if arguments.fleet_only:
            return _fleet_only(arguments)
        if arguments.headless or arguments.until or arguments.json:
            return _run_headless(arguments)
    except DemoError as error:
        print_error(f"demo: {error}")
        return USAGE
    return _run_on_screen(arguments)


def _run_headless(arguments: DemoArguments) -> int:
    from rgt_tui.demo import headless

    if arguments.until == "teardown":
        return _run_to_end(
            headless.run_teardown(as_json=arguments.json, port_base=arguments.port_base)
        )
    if arguments.until == "autostop":
        return _run_to_end(
            headless.run_autostop(as_json=arguments.json, port_base=arguments.port_base)
        )
    return _run_to_end(
        headless.run_headless(
            seconds=arguments.seconds,
            until_story=arguments.until == "story",
            as_json=arguments.json,
            port_base=arguments.port_base,
            follow_advice=arguments.follow_advice,
        )
    )


def _fleet_only(arguments: DemoArguments) -> int:
    if not arguments.write_fleet:
        print_error("demo: --fleet-only needs --write-fleet FILE")
        return USAGE
    from rgt_tui.demo import headless

    return _run_to_end(
        headless.run_boxes_only(
            arguments.write_fleet, port_base=arguments.port_base, seconds=arguments.seconds
        )
    )


def _run_on_screen(arguments: DemoArguments) -> int:
    from rgt_tui.cli.dashboard import run_dashboard
    from rgt_tui.demo import DemoError, sandboxes

    try:
        # Checked before the screen opens; a demo that breaks off after a minute would teach
        # nothing.
        sandboxes.check_torch()
        sandboxes.check_sandboxes()
    except DemoError as error:
        return _replay_recording(str(error))

    def build_fleet() -> FleetSource:
        from rgt_tui.demo.demo_fleet import DemoFleet

        return DemoFleet(port_base=arguments.port_base, follow_advice=arguments.follow_advice)

    return run_dashboard(
        build_fleet,
        title="rgt demo",
        # The only hint with a time: a first-time user would else leave before the story begins.
        hint=translate(HINT),
        farewell=translate(FAREWELL),
        without="`rgt demo --headless`",
        waiting=translate("starting three boxes on this machine …"),
    )


def _replay_recording(why: str) -> int:
    """Play the included recording, and show what the real demo needs."""
    from rgt_tui.cli.dashboard import run_dashboard

    def build_fleet() -> FleetSource:
        from rgt_tui.demo import RECORDING
        from rgt_tui.recordings import ReplayFleet

        return ReplayFleet(RECORDING, loop=True)

    return run_dashboard(
        build_fleet,
        title="rgt demo (REPLAY)",
        hint=translate("a recording of the demo; the real one trains on this machine"),
        farewell=translate("that was a REPLAY: {why}", why=why),
        without="`rgt demo --headless`",
        notice=(translate(REPLAY), _describe_needs(why)),
    )


def _describe_needs(why: str) -> str:
    """Return what the real demo needs, short enough for one line of a screen."""
    if "torch" in why:
        return translate("the real demo: pip install torch")
    # The rest of such a message says how to mend it, which is too long for the notice line.
    return why.partition(";")[0]


def _run_to_end(work: Coroutine[None, None, int]) -> int:
    import asyncio

    # Not `run_coroutine`: the demo waits for its own boxes to end, so no thread is left.
    return asyncio.run(work)
