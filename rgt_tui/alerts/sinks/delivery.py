"""Tells one sink what holds: late rather than twice, again until it works, and never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping

from rgt_tui.alerts.sinks.base import Sink, SinkError
from rgt_tui.alerts.sinks.plan import digest, plan
from rgt_tui.alerts.statefile import Told
from rgt_tui.model.alert import AlertEvent, SinkSettings

GATHER_S = (2.0, 5.0)
"""Wait so long for more of the same: what breaks on ten boxes at once is one message. Drawn anew each time, so
that of two rgt on one machine one is first, and the other sees what it has written."""
FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 900.0
MARGIN_S = 2.0
"""Beyond the sink's own time limit: what hangs all the same is given up."""

Read = Callable[[], Awaitable[Mapping[str, Told]]]
Note = Callable[[Mapping[str, Told | None]], Awaitable[None]]


class Delivery:
    """One sink. What holds is set by `want`; the rest happens in `run`.

    Args:
        sink: Where to.
        settings: Its table.
        read: Returns what it was told, also by another rgt on this machine.
        note: Writes down what it was told now; None forgets.
        trouble: Called with the reason when it fails, and with None when it works again.
        is_muted: Says of a key whether somebody muted it meanwhile, perhaps in another rgt; asked after `read`.
        clock: Epoch seconds.
        gather_s: Shortest and longest wait for more.
        rng: For that wait and the retries.
    """

    def __init__(
        self,
        sink: Sink,
        settings: SinkSettings,
        *,
        read: Read,
        note: Note,
        trouble: Callable[[str | None], None],
        is_muted: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.time,
        gather_s: tuple[float, float] = GATHER_S,
        rng: random.Random | None = None,
    ) -> None:
        self.settings = settings
        self.failures = 0
        self._sink = sink
        self._read = read
        self._note = note
        self._trouble = trouble
        self._is_muted = is_muted
        self._clock = clock
        self._gather_s = gather_s
        self._rng = rng or random.Random()
        self._active: Mapping[str, AlertEvent] = {}
        self._ours: tuple[str, ...] = ()
        self._held: frozenset[str] = frozenset()
        self._poke = asyncio.Event()

    def want(
        self, active: Mapping[str, AlertEvent], ours: tuple[str, ...], held: frozenset[str] = frozenset()
    ) -> None:
        """Set what is to be told of the boxes whose keys begin with `ours`, and what holds besides.

        Returns at once; the mapping is not kept.
        """
        self._active, self._ours, self._held = dict(active), ours, held
        self._poke.set()

    async def run(self) -> None:
        """Deliver until cancelled."""
        wait: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._poke.wait()
            if not self.failures:
                await asyncio.sleep(self._rng.uniform(*self._gather_s))
            self._poke.clear()
            wait = await self._round()
            if self.failures:
                # Whatever comes meanwhile waits with the rest.
                await asyncio.sleep(wait or 0.0)
                self._poke.set()

    async def _round(self) -> float | None:
        """Tell what is due; return when to look again."""
        try:
            again = await self._tell()
        except Exception as error:  # a sink's mistake, too, must not end its delivery
            self.failures += 1
            self._trouble(reason(error))
            pause = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** (self.failures - 1))
            return pause * self._rng.uniform(0.5, 1.0)
        if self.failures:
            self.failures = 0
            self._trouble(None)
        return again

    async def _tell(self) -> float | None:
        now = self._clock()
        local = time.localtime(now)
        told = await self._read()
        muted = {key for key in self._active if self._is_muted(key)}
        due = plan(
            {key: event for key, event in self._active.items() if key not in muted},
            told,
            self.settings,
            now,
            local.tm_hour * 60 + local.tm_min,
            self._ours,
            self._held | muted,
        )
        if due.forget:
            await self._note(dict.fromkeys(due.forget))
        if len(due.send) > self.settings.digest_over:
            await self._send(digest([event for _, event in due.send], now))
            await self._note({key: _told(event, now) for key, event in due.send})
        else:
            for key, event in due.send:
                await self._send(event)
                await self._note({key: _told(event, now)})
        return due.again_in

    async def _send(self, event: AlertEvent) -> None:
        async with asyncio.timeout(self.settings.timeout_s + MARGIN_S):
            await self._sink.send(event)

    async def close(self) -> None:
        """Let go of the sink."""
        await self._sink.close()


def reason(error: Exception) -> str:
    """Say why, in words that hold no address: those of our own errors alone are known to."""
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return str(error) if isinstance(error, SinkError) else f"{type(error).__name__}"


def _told(event: AlertEvent, now: float) -> Told:
    return Told(level=event.level, at=now, over=event.what == "resolved")
