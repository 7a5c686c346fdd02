"""``rgt watch``: like status, and it goes on: events as text, or status lines as JSON when something changes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from rgt_tui.cli import running
from rgt_tui.cli.commands import OK, USAGE
from rgt_tui.cli.composing import make_kept_fleet
from rgt_tui.cli.gathering import stop
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.watching import JsonWatcher, TextWatcher
from rgt_tui.fleet.fleet_file import FleetConfig
from rgt_tui.model.box import BoxSpec


def run_watch(arguments: argparse.Namespace) -> int:
    """Watch; return the exit code."""
    opened = open_boxes(arguments, arguments.boxes, trusted=True)
    if opened is None:
        return USAGE
    config, specs = opened

    return running.run(_watch(specs, config, arguments), boxes=len(specs))


async def _watch(specs: Sequence[BoxSpec], config: FleetConfig, arguments: argparse.Namespace) -> int:
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
