"""What the alerts leave for the next rgt: in memory at once, on disk a moment later, merged with what others wrote."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rgt_tui.alerts.mute import Mute, put
from rgt_tui.alerts.statefile import Notes, Stored, Told, update

SAVE_S = 2.0
"""What changed is on disk after so long."""

replace = msgspec.structs.replace

Change = Callable[[Stored], Stored]


class AlertFile:
    """The file as this process knows it. A disk that fails costs nothing but the memory of the next rgt.

    Args:
        path: Where it is; None = in memory only.
        clock: Epoch seconds.
        trouble: Called with the reason when it cannot be read or written, and with None when it can again.
    """

    def __init__(
        self, path: Path | None, clock: Callable[[], float], trouble: Callable[[str | None], None]
    ) -> None:
        self.stored = Stored()
        self._path = path
        self._clock = clock
        self._trouble = trouble
        self._changes: list[Change] = []
        self._poke = asyncio.Event()
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Read what is there."""
        await self._sync()

    def note(self, box: str, notes: Notes) -> None:
        """Remember what holds on a box."""
        self._apply(lambda stored: replace(stored, boxes={**stored.boxes, box: notes}))

    def mute(self, box: str, what: str, seconds: float | None) -> None:
        """Remember a mute; see `rgt_tui.alerts.mute.put`."""
        now = self._clock()
        self._apply(lambda stored: replace(stored, mutes=put(stored.mutes, box, what, seconds, now)))

    def unmute(self, ended: tuple[Mute, ...]) -> None:
        """Forget mutes that have ended; one that was said anew meanwhile stays."""
        gone = set(ended)
        self._apply(lambda stored: replace(stored, mutes=tuple(m for m in stored.mutes if m not in gone)))

    async def told(self, sink: str) -> Mapping[str, Told]:
        """Return what a sink was told, by this rgt or another one."""
        await self._sync()
        return self.stored.told.get(sink, {})

    async def tell(self, sink: str, news: Mapping[str, Told | None]) -> None:
        """Remember what a sink was told now; None forgets. On disk when this returns, so that it is not told twice."""
        self._apply(functools.partial(_retold, sink=sink, news=dict(news)))
        await self._sync()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._poke.wait()
            await asyncio.sleep(SAVE_S)
            self._poke.clear()
            await self._sync()

    async def close(self) -> None:
        """Write what is left."""
        if self._changes:
            await self._sync()

    def _apply(self, change: Change) -> None:
        self.stored = change(self.stored)
        if self._path is not None:
            self._changes.append(change)
            self._poke.set()

    async def _sync(self) -> None:
        """Apply our changes to what is in the file now, and take over the result."""
        if self._path is None:
            return
        async with self._lock:
            changes, self._changes = self._changes, []
            try:
                made = await asyncio.to_thread(update, self._path, _chain(changes), self._clock())
            except OSError as error:
                self._changes = changes + self._changes
                self._trouble(f"{self._path} cannot be kept: {error.strerror or error}")
                return
            self.stored = _chain(self._changes)(made)
            self._trouble(None)


def _chain(changes: list[Change]) -> Change:
    kept = tuple(changes)
    return lambda stored: functools.reduce(lambda now, change: change(now), kept, stored)


def _retold(stored: Stored, *, sink: str, news: Mapping[str, Told | None]) -> Stored:
    known = {**stored.told.get(sink, {}), **news}
    told = {key: what for key, what in known.items() if what is not None}
    return replace(stored, told={**stored.told, sink: told})
