"""The embedded fleet without a watcher: another rgt opens it by a fleet file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

from rgt_tui.demo.embedded import Embedded
from rgt_tui.demo.errors import DemoError
from rgt_tui.demo.source import METER_SECONDS
from rgt_tui.demo.stories import Director
from rgt_tui.fleet.config.errors import FleetFileError
from rgt_tui.fleet.config.load import read_source
from rgt_tui.fleet.config.trusted import default_path, renew
from rgt_tui.fleet.config.write import dump_fleet, write_atomically
from rgt_tui.fleet.engine import Fleet


def _write(path: Path, text: str) -> None:
    """Write the fleet file, which stays trusted if it was, or is if it is new."""
    before = read_source(path) if path.is_file() else None
    write_atomically(path, text)
    with contextlib.suppress(FleetFileError):
        renew(default_path(os.environ), before, read_source(path), os.environ)


async def run(path: str, *, port_base: int | None, seconds: float | None) -> int:
    """Run the boxes until a signal or the time's end.

    Prints one JSON line ``{"fleet", "env"}`` when they stand; `env` is what a watcher needs in its environment.

    Raises:
        DemoError: they cannot run here, or the file cannot be written.
    """
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    async with Embedded(port_base=port_base) as embedded:
        try:
            _write(Path(path), dump_fleet(embedded.specs))
        except (OSError, FleetFileError) as error:
            raise DemoError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error
        assert embedded.workspace is not None
        fleet = Fleet(
            embedded.specs,
            audit=embedded.workspace.path / "audit.jsonl",
            env=embedded.env,
            meter_seconds=METER_SECONDS,
        )
        await fleet.start()
        director = asyncio.create_task(Director(embedded, lambda: fleet.state).run())
        sys.stdout.write(json.dumps({"fleet": str(Path(path).resolve()), "env": embedded.env}) + "\n")
        sys.stdout.flush()
        try:
            await asyncio.wait_for(over.wait(), seconds)
        except TimeoutError:
            pass
        finally:
            director.cancel()
            await asyncio.gather(director, return_exceptions=True)
            await fleet.stop()
    return 0
