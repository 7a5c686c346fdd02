"""What the alerts leave for the next rgt: in memory at once, on disk a moment later, merged with what others wrote."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import LOCK_S
from rgt_tui.health.alert_sinks import Aside
from rgt_tui.health.mutes import Mute, Notes, Stored, Told, put, silences, stamp, update

SAVE_S = 2.0
"""What changed is on disk after so long."""
LOOK_S = 5.0
"""So often it is seen whether another rgt has written."""
DISK_S = LOCK_S + 5.0
"""A disk that does not answer for so long hangs: memory goes on alone."""

replace = msgspec.structs.replace

Change = Callable[[Stored], Stored]


class AlertFile:
    """The file as this process knows it. A disk that fails costs nothing but the memory of the next rgt.

    Args:
        path: Where it is; None = in memory only.
        clock: Epoch seconds.
        trouble: Called with the reason when it cannot be read or written, and with None when it can again.
        remuted: Called when another rgt has muted something, or speaks again.
    """

    def __init__(
        self,
        path: Path | None,
        clock: Callable[[], float],
        trouble: Callable[[str | None], None],
        remuted: Callable[[], None] = lambda: None,
    ) -> None:
        self.stored = Stored()
        self._path = path
        self._clock = clock
        self._trouble = trouble
        self._remuted = remuted
        self._disk = Aside()
        self._stamp = (0, 0)
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
        """Remember a mute; see `rgt_tui.health.mutes.put`."""
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

    def is_muted(self, key: str) -> bool:
        """Say whether ``BOX ALERT`` is muted now, as far as is known since the last look into the file."""
        box, _, id_ = key.partition(" ")
        return silences(self.stored.mutes, box, id_, self._clock())

    async def tell(self, sink: str, news: Mapping[str, Told | None]) -> None:
        """Remember what a sink was told now; None forgets. On disk when this returns, so that it is not told twice."""
        self._apply(functools.partial(_retold, sink=sink, news=dict(news)))
        await self._sync()

    async def run(self) -> None:
        """Write, and take over what another rgt writes, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._poke.wait()
            if self._poke.is_set():
                await asyncio.sleep(SAVE_S)
                self._poke.clear()
                await self._sync()
            elif self._changes or await self._is_another():
                await self._sync()

    async def _is_another(self) -> bool:
        """Say whether somebody has written since the last look; where that cannot be told, reading says why."""
        path = self._path
        if path is None:
            return False
        try:
            return await self._disk.call(lambda: stamp(path), DISK_S) != self._stamp
        except OSError:
            return True

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
        path = self._path
        if path is None:
            return
        async with self._lock:
            changes, self._changes = self._changes, []
            change, now = _chain(changes), self._clock()

            def exchange() -> tuple[tuple[int, int], Stored]:
                return stamp(path), update(path, change, now)

            try:
                seen, made = await self._disk.call(exchange, DISK_S)
            except BaseException as error:
                # Also when this is cancelled: made twice, a change does no harm.
                self._changes = changes + self._changes
                if not isinstance(error, Exception):
                    raise
                self._trouble(f"{path} cannot be kept: {_why(error)}")
                return
            mutes, self._stamp = self.stored.mutes, seen
            self.stored = _chain(self._changes)(made)
            self._trouble(None)
            if self.stored.mutes != mutes:
                self._remuted()


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error) or f"the disk has not answered for {DISK_S:g} s"
    return f"{type(error).__name__}: {error}; this is a fault of rgt"


def _chain(changes: list[Change]) -> Change:
    kept = tuple(changes)
    return lambda stored: functools.reduce(lambda now, change: change(now), kept, stored)


def _retold(stored: Stored, *, sink: str, news: Mapping[str, Told | None]) -> Stored:
    known = {**stored.told.get(sink, {}), **news}
    told = {key: what for key, what in known.items() if what is not None}
    return replace(stored, told={**stored.told, sink: told})
