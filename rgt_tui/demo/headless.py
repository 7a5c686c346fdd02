"""The demo without a screen: progress to stderr, one JSON object at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time

from rgt_tui.demo.report import report
from rgt_tui.demo.source import DemoFleet
from rgt_tui.demo.stories import Stories
from rgt_tui.model.fleet import FleetState

STORY_SECONDS = 180.0
"""How long ``--until story`` waits before it says what is missing."""
EXIT_INTERRUPTED = 130


def say(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


async def run(
    *,
    seconds: float | None,
    until_story: bool,
    as_json: bool,
    port_base: int | None = None,
    follow_advice: bool = False,
) -> int:
    """Run the demo for a time, or until the stories have been told; return the exit code.

    Args:
        seconds: How long, in seconds; with `until_story`, the longest wait. None = until interrupted.
        until_story: End as soon as all three stories have happened; 1 when one is missing at the end.
        as_json: Print the JSON object as the last line of standard output.
        port_base: First SSH port; None = any free.
        follow_advice: Remove what fills the disk once rgt has said so.

    Raises:
        DemoError: the demo cannot run here.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Progress()], force=True)
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupted.set)
    demo = DemoFleet(port_base=port_base, follow_advice=follow_advice)
    stories = Stories(demo.embedded.boxes)
    told = asyncio.Event()
    watcher = _Watcher(stories, told)
    demo.subscribe(watcher.look)
    began = time.monotonic()
    starting = asyncio.create_task(demo.start())
    try:
        await _first(starting, interrupted.wait())
        if not interrupted.is_set():
            await starting
            for box in demo.embedded.boxes:
                say(f"{box.name}: {demo.embedded.ssh_command(box.name)}")
            limit = STORY_SECONDS if seconds is None and until_story else seconds
            waits = [interrupted.wait(), *([told.wait()] if until_story else [])]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await _first(*waits)
        result = report(demo.state, stories, demo.now(), time.monotonic() - began)
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await demo.stop()
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    if interrupted.is_set():
        say("interrupted; everything of the demo is taken down")
        return EXIT_INTERRUPTED
    if until_story and stories.missing:
        say(f"missing: {', '.join(stories.missing)}")
        return 1
    return 0


class _Watcher:
    """Tells on stderr what happens, and when all stories have been told."""

    def __init__(self, stories: Stories, told: asyncio.Event) -> None:
        self._stories = stories
        self._told = told
        self._last: object = None

    def look(self, state: FleetState) -> None:
        events = list(state.events)
        start = events.index(self._last) + 1 if self._last in events else 0
        for event in events[start:]:
            say(f"{event.box} {event.text}")
        if events:
            self._last = events[-1]
        for story in self._stories.look(state):
            say(f"story told: {story}")
        if not self._stories.missing:
            self._told.set()


class _Progress(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


async def _first(*awaitables: object) -> None:
    """Wait until one of several has ended, and drop the others (a task that was handed in is left alone)."""
    tasks = {item if isinstance(item, asyncio.Task) else asyncio.ensure_future(item) for item in awaitables}  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            if task not in awaitables:
                task.cancel()
