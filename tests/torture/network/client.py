"""A whole rgt in a process of its own, to be killed: SPECS.json. Prints a line once every box has brought a sample."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from rgt_tui.fleet import Fleet
from rgt_tui.model import BoxSpec, FleetState


async def main(path: Path) -> None:
    """Watch until killed."""
    specs = msgspec.json.decode(path.read_bytes(), type=list[BoxSpec])
    fleet = Fleet(specs, audit=path.with_name("audit.jsonl"))
    seen = asyncio.Event()

    def take(state: FleetState) -> None:
        if all(box.counters.samples for box in state.boxes):
            seen.set()

    fleet.subscribe(take)
    await fleet.start()
    await seen.wait()
    print("watching", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
