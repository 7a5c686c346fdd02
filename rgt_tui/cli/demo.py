"""``rgt demo``: the embedded fleet, on a screen, headless, or alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import command, json_option, port, positive_seconds
from rgt_tui.cli.commands import Subparsers

if TYPE_CHECKING:
    from rgt_tui.fleet.source import FleetSource

HINT = "the demo's boxes are starting; in about a minute vast-demo will need you"
FAREWELL = "rgt has left and has taken the demo's boxes down; real boxes would go on without rgt"


def add_demo(subparsers: Subparsers) -> None:
    """Declare the command."""
    demo = command(
        subparsers,
        "demo",
        about="Open the dashboard on the embedded fleet: three sandboxed boxes that really train.",
        examples=(
            "rgt demo",
            "rgt demo --headless --for 45 --json",
            "rgt demo --headless --until story",
            "rgt demo --fleet-only --write-fleet demo.toml",
        ),
    )
    demo.add_argument("--headless", action="store_true", help="no screen: progress on stderr")
    demo.add_argument(
        "--for", dest="seconds", type=positive_seconds, metavar="SECONDS", help="stop after this time"
    )
    demo.add_argument("--until", choices=["story"], help="stop when all three stories have happened")
    json_option(demo, "print one JSON object on the last line")
    demo.add_argument("--port-base", type=port, metavar="PORT", help="first SSH port (default: any free)")
    demo.add_argument(
        "--follow-advice",
        action="store_true",
        help="remove what fills the disk once rgt has said so (otherwise that is yours to do)",
    )
    demo.add_argument(
        "--fleet-only", action="store_true", help="run the boxes alone, for another rgt to watch"
    )
    demo.add_argument("--write-fleet", metavar="FILE", help="with --fleet-only: write the fleet file there")


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo; return the exit code: 0 well, 1 a story is missing, 2 it cannot run here."""
    from rgt_tui.demo.errors import DemoError

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

    return show(make, title="rgt demo", hint=HINT, farewell=FAREWELL, without="`rgt demo --headless`")


def _finish(work: Coroutine[None, None, int]) -> int:
    import asyncio

    return asyncio.run(work)
