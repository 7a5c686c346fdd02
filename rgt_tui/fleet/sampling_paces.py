"""How often each box of a running fleet is sampled: by who is looking, and by what a person chose.

A key that opens a box changes what is asked of all the others, and to write to two hundred connections takes longer
than to draw the screen. So the box that is opened is told at once, and the others later, a few at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Protocol

from rgt_tui.fleet.attention import attention, interval
from rgt_tui.model import BoxState

STAYS_SECONDS = 3.0
"""Whoever has looked into a box for so long stays there: now the others may sample slowly."""
BACK_SECONDS = 0.1
"""Behind the drawing of the rows that are to be fast again."""
AT_A_TIME = 4
"""Boxes that are told in one turn of the loop, which takes a fraction of a millisecond."""
SPREAD_SECONDS = 1.0
"""In which all are told. A box samples as soon as it is told: what was told at once would from then on come at once."""


class Kept(Protocol):
    """How much of a box is kept."""

    focused: bool


class Sampled(Protocol):
    """A session, as far as its pace goes."""

    state: BoxState

    @property
    def intake(self) -> Kept:
        """What is kept of the box."""
        ...

    def set_interval(self, seconds: float) -> None:
        """Ask for a sample every `seconds`; nothing is sent where that is so already."""
        ...


class SamplingPaces:
    """Tells boxes how often to sample.

    Args:
        sessions: By name; it is seen to change.
    """

    def __init__(self, sessions: Mapping[str, Sampled]) -> None:
        self._sessions = sessions
        self._focus: str | None = None
        self._looking = True
        self._chosen: dict[str, float] = {}
        """Box → seconds between samples that a person asked for."""
        self._asked = asyncio.Event()

    def focus(self, box: str | None) -> None:
        """Sample the box on screen fast, and, in a large fleet, the others slowly after a while."""
        if box == self._focus:
            return
        before, self._focus = self._focus, box
        for name in (before, box):
            if name is not None and name in self._sessions:
                self._sessions[name].intake.focused = name == box
        self._tell(box)
        self._asked.set()

    def look(self, looking: bool) -> None:
        """Say whether anybody looks at the screen; while nobody does, the boxes are asked less."""
        if looking != self._looking:
            self._looking = looking
            self._asked.set()

    def choose(self, box: str, seconds: float | None) -> None:
        """Sample a box every so many seconds from now on; None = as its description says, and who looks."""
        if seconds is None:
            self._chosen.pop(box, None)
        else:
            self._chosen[box] = seconds
        self._tell(box)

    def boxes_changed(self) -> None:
        """Adjust to boxes having come or gone: their number counts, too."""
        if self._focus is not None and self._focus in self._sessions:
            self._sessions[self._focus].intake.focused = True
        self._asked.set()

    async def run(self) -> None:
        """Tell the boxes what has changed for them until cancelled."""
        while True:
            await self._asked.wait()
            while self._asked.is_set():
                self._asked.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BACK_SECONDS if self._focus is None else STAYS_SECONDS):
                        await self._asked.wait()
            names = tuple(self._sessions)
            for place, name in enumerate(names, 1):
                self._tell(name)
                if place % AT_A_TIME == 0:
                    await asyncio.sleep(SPREAD_SECONDS * AT_A_TIME / len(names))
                    if self._asked.is_set():
                        break  # somebody looks elsewhere by now, who may not stay there

    def _tell(self, box: str | None) -> None:
        if box is None or box not in self._sessions:
            return
        session = self._sessions[box]
        paid = attention(box, self._focus, self._looking)
        seconds = interval(session.state.spec.interval, paid, len(self._sessions))
        session.set_interval(self._chosen.get(box, seconds))
