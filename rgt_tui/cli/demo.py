"""``rgt demo``: the embedded fleet, on a screen, headless, or alone."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine

from rgt_tui.demo.errors import DemoError
from rgt_tui.fleet.source import FleetSource

HINT = "the demo's boxes are starting; in about a minute vast-demo will need you"
FAREWELL = "rgt has left and has taken the demo's boxes down; real boxes would go on without rgt"


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return the exit code: 0 well, 1 a story is missing, 2 it cannot run here."""
    try:
        if arguments.fleet_only:
            return _fleet_only(arguments)
        if arguments.headless or arguments.until or arguments.json:
            return _headless(arguments)
    except DemoError as error:
        sys.stderr.write(f"rgt demo: {error}\n")
        return 2
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
        sys.stderr.write("rgt demo: --fleet-only needs --write-fleet FILE\n")
        return 2
    from rgt_tui.demo import alone

    return _finish(alone.run(arguments.write_fleet, port_base=arguments.port_base, seconds=arguments.seconds))


def _screen(arguments: argparse.Namespace) -> int:
    from rgt_tui.cli.screen import show

    def make() -> FleetSource:
        from rgt_tui.demo.source import DemoFleet

        return DemoFleet(port_base=arguments.port_base, follow_advice=arguments.follow_advice)

    return show(make, title="rgt demo", hint=HINT, farewell=FAREWELL)


def _finish(work: Coroutine[None, None, int]) -> int:
    return asyncio.run(work)
