"""``rgt watch``: like status, and it goes on: events as text, or status lines as JSON when something changes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import (
    boxes_argument,
    command,
    fleet_option,
    history_option,
    host_key_option,
    json_option,
    positive_seconds,
)
from rgt_tui.cli.commands import OK, USAGE, Subparsers

if TYPE_CHECKING:
    from rgt_tui.fleet.fleet_file import FleetConfig
    from rgt_tui.model.box import BoxSpec


def add_watch(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "watch",
        about="Stay connected and print a line whenever something happens on a box; alerts reach the sinks of the\n"
        "fleet file. With --json: the line of `rgt status --json` whenever a box has changed, at most one a\n"
        "second for each.",
        examples=("rgt watch", "rgt watch lab --json | jq -r .reason", "rgt watch --for 3600"),
    )
    boxes_argument(parser)
    fleet_option(parser)
    json_option(parser, "print status lines as JSON objects")
    parser.add_argument(
        "--for", dest="seconds", type=positive_seconds, metavar="S", help="end after this time"
    )
    host_key_option(parser)
    history_option(parser)


def run_watch(arguments: argparse.Namespace) -> int:
    """Watch; return the exit code."""
    from rgt_tui.cli.opening import open_boxes

    opened = open_boxes(arguments, arguments.boxes, trusted=True)
    if opened is None:
        return USAGE
    config, specs = opened
    from rgt_tui.cli import running

    return running.run(_watch(specs, config, arguments), boxes=len(specs))


async def _watch(specs: Sequence[BoxSpec], config: FleetConfig, arguments: argparse.Namespace) -> int:
    import asyncio

    from rgt_tui.cli import running
    from rgt_tui.cli.composing import make_kept_fleet
    from rgt_tui.cli.gathering import stop
    from rgt_tui.cli.watching import JsonWatcher, TextWatcher

    over = asyncio.Event()
    running.until_signalled(over)
    watcher = JsonWatcher(sys.stdout) if arguments.json else TextWatcher(sys.stdout)
    fleet = make_kept_fleet(
        specs,
        config.alerts,
        fleet_file=config.path,
        history=not getattr(arguments, "no_history", False),
        accept_new_host_keys=arguments.accept_new_host_key,
        observers=[watcher],
    )
    await fleet.start()
    waiting = asyncio.create_task(over.wait())
    ticking = asyncio.create_task(watcher.run(fleet.now))
    try:
        await asyncio.wait({waiting, ticking}, timeout=arguments.seconds, return_when=asyncio.FIRST_COMPLETED)
        if ticking.done():
            ticking.result()  # a reader that has gone away is told of by its exception
    finally:
        waiting.cancel()
        ticking.cancel()
        await asyncio.gather(waiting, ticking, return_exceptions=True)
        await stop(fleet)
    return OK
