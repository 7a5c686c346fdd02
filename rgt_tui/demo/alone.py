"""The embedded fleet without a watcher: another rgt opens it by a fleet file."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from rgt_tui.demo.embedded import Embedded
from rgt_tui.demo.errors import DemoError
from rgt_tui.demo.source import METER_SECONDS
from rgt_tui.demo.stories import Director
from rgt_tui.fleet.engine import Fleet
from rgt_tui.fleet.fleet_file import dump_fleet


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
            Path(path).write_text(dump_fleet(embedded.specs))
        except OSError as error:
            raise DemoError(f"cannot write {path}: {error.strerror}") from error
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
