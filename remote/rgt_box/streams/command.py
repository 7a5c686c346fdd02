"""The ``watch`` verb."""

from __future__ import annotations

import os
import signal
import sys
import time

from rgt_box import jsonline, options, place
from rgt_box.streams import config as configs
from rgt_box.streams.inbox import Inbox
from rgt_box.streams.outbox import Closed, Outbox
from rgt_box.streams.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELP = """
usage: watch < CONTROL > FRAMES

Read one JSON configuration line from stdin, then stream frames (JSON lines) to stdout until stdin ends.
Further lines control it: {"op": "interval", "seconds": S}, {"op": "follow" | "unfollow", "path": P},
{"op": "ping", "id": N}. docs/protocol.md describes every frame.
"""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status: 0 at the end of stdin, 2 for a bad configuration."""
    options.parse_or_exit(argv, {}, HELP)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _leave)
    try:
        line, rest = _first_line()
        config = configs.parse(line)
    except configs.BadConfig as problem:
        event: dict[str, Any] = {"t": "event", "boot": place.boot_id(), "seq": 0, "at": round(time.time(), 3)}
        event.update(kind="bad-config", text=str(problem), level="error")
        sys.stdout.buffer.write(jsonline.line(event))
        sys.stdout.flush()
        return 2
    inbox = Inbox(0, rest)
    outbox = Outbox(1)
    watch = None
    try:
        watch = Watch(config, inbox, outbox)
        watch.run()
    except Closed:
        pass
    finally:
        if watch is not None:
            watch.close()
    return 0


def _first_line() -> tuple[bytes, bytes]:
    """Read the configuration; returns it and what came behind it, which are control lines.

    Raises:
        BadConfig: when stdin ends or the line has no end.
    """
    line = bytearray()
    while True:
        data = os.read(0, 1 << 20)
        end = data.find(b"\n")
        if end >= 0:
            return bytes(line + data[:end]), data[end + 1 :]
        line += data
        if not data or len(line) >= configs.MAX_LINE:
            raise configs.BadConfig("the configuration line has no end")


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)
