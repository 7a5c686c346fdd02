"""``rgt demo``: the embedded fleet, on a screen, headless, or alone."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from rgt_tui.cli.commands import USAGE
from rgt_tui.cli.printing import complain

if TYPE_CHECKING:
    from rgt_tui.fleet.source import FleetSource

REPLAY = "REPLAY of a recorded run, over and over"
"""On every screen, where the demo cannot run."""
HINT = "the demo's boxes are starting; in about a minute vast-demo will need you"
FAREWELL = "rgt has left and has taken the demo's boxes down; real boxes would go on without rgt"


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo; return the exit status."""
    from rgt_tui.demo.errors import DemoError

    try:
        if arguments.fleet_only:
            return _fleet_only(arguments)
        if arguments.headless or arguments.until or arguments.json:
            return _headless(arguments)
    except DemoError as error:
        complain(f"demo: {error}")
        return USAGE
    return _screen(arguments)


def _headless(arguments: argparse.Namespace) -> int:
    from rgt_tui.demo import headless

    return _finish(
        headless.run(
            seconds=arguments.seconds,
            until_story=arguments.until == "story",
            as_json=arguments.json,
            port_base=arguments.port_base,
            follow_advice=arguments.follow_advice,
        )
    )


def _fleet_only(arguments: argparse.Namespace) -> int:
    if not arguments.write_fleet:
        complain("demo: --fleet-only needs --write-fleet FILE")
        return USAGE
    from rgt_tui.demo import alone

    return _finish(alone.run(arguments.write_fleet, port_base=arguments.port_base, seconds=arguments.seconds))


def _screen(arguments: argparse.Namespace) -> int:
    from rgt_tui.cli.screen import show
    from rgt_tui.demo.errors import DemoError
    from rgt_tui.demo.sandbox import modes

    try:
        modes.check_torch()
        modes.check()
    except DemoError as error:
        return _replay(str(error))

    def make() -> FleetSource:
        from rgt_tui.demo.source import DemoFleet

        return DemoFleet(port_base=arguments.port_base, follow_advice=arguments.follow_advice)

    return show(make, title="rgt demo", hint=HINT, farewell=FAREWELL, without="`rgt demo --headless`")


def _replay(why: str) -> int:
    """Play the recording that is shipped, and say what the real demo needs."""
    from rgt_tui.cli.screen import show

    def make() -> FleetSource:
        from rgt_tui.demo import RECORDING
        from rgt_tui.recordings.replay_fleet import ReplayFleet

        return ReplayFleet(RECORDING, loop=True)

    return show(
        make,
        title="rgt demo (REPLAY)",
        hint="a recording of the demo; the real one trains on this machine",
        farewell=f"that was a REPLAY: {why}",
        without="`rgt demo --headless`",
        notice=(REPLAY, _needs(why)),
    )


def _needs(why: str) -> str:
    """Return what the real demo lacks, for one line of a screen."""
    return 'the real demo: pip install "rgt-tui[train]"' if "torch" in why else why.partition(";")[0]


def _finish(work: Coroutine[None, None, int]) -> int:
    import asyncio

    return asyncio.run(work)
