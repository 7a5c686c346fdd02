"""Observers of a fleet that print: what happened as text, how boxes stand as JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TextIO

from rgt_tui.cli.status_line import StatusLine, encode, status_line
from rgt_tui.cli.status_text import NAME_WIDTH, text_line
from rgt_tui.health import assess
from rgt_tui.model.box import BoxState, Health
from rgt_tui.model.fleet import FleetEvent, FleetState
from rgt_tui.model.plain import clean

LOOK_SECONDS = 0.25
BETWEEN_SECONDS = 1.0
"""Least time between two lines about one box."""


class _Watcher:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._boxes: dict[str, BoxState] = {}
        self._changed: set[str] = set()

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Remember what changed until the next look."""
        for box in state.boxes:
            self._boxes.setdefault(box.spec.name, box)
        for _, new in changed:
            self._boxes[new.spec.name] = new
            self._changed.add(new.spec.name)

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Take in what happened."""

    async def close(self) -> None:
        """Nothing is held."""

    async def run(self, clock: Callable[[], float]) -> None:
        """Print until cancelled, or until the reader has gone away.

        Raises:
            BrokenPipeError: it has.
        """
        while True:
            self.look(clock())
            self._out.flush()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self, now: float) -> None:
        """Print what is due at `now` (client clock)."""
        raise NotImplementedError


class TextWatcher(_Watcher):
    """Prints events, and a line about a box whenever its one word becomes another."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._events: list[FleetEvent] = []
        self._words: dict[str, tuple[Health, str]] = {}

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Keep them for the next look."""
        self._events += events

    def look(self, now: float) -> None:
        """Print what happened since the last look."""
        events, self._events = self._events, []
        for event in events:
            self._say(event.at, clean(f"{event.box:<{NAME_WIDTH}} {event.level:<5} {event.text}"))
        for name, box in self._boxes.items():
            seen = assess(box, now)
            word = (seen.health, seen.word)
            if self._words.get(name) != word and (
                name in self._words or seen.health is not Health.CONNECTING
            ):
                self._words[name] = word
                self._say(now, text_line(status_line(box, seen, now)))

    def _say(self, at: float, text: str) -> None:
        self._out.write(f"{time.strftime('%H:%M:%S', time.localtime(at))} {text}\n")


class JsonWatcher(_Watcher):
    """Prints the status line of a box that has changed, in what it says or by growing old."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out)
        self._printed: dict[str, float] = {}
        self._states: dict[str, str] = {}

    def look(self, now: float) -> None:
        """Print the lines that are due."""
        for name, box in self._boxes.items():
            if now - self._printed.get(name, float("-inf")) < BETWEEN_SECONDS:
                continue
            line = status_line(box, assess(box, now), now)
            if name in self._changed or self._states.get(name) != line.state:
                self._print(line, now)

    def _print(self, line: StatusLine, now: float) -> None:
        self._changed.discard(line.box)
        self._printed[line.box] = now
        self._states[line.box] = line.state
        self._out.write(encode(line).decode())
