"""Read the meters of all boxes that have a control plane, every few seconds, and never let it disturb the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rgt_tui.fleet.session import BoxSession
from rgt_tui.model.money import Meter
from rgt_tui.providers.base import Provider, keep_last_good
from rgt_tui.providers.registry import Providers


class Meters:
    """Polls the providers. A reading that fails keeps the last good one, with the reason and its growing age."""

    def __init__(
        self,
        sessions: Mapping[str, BoxSession],
        *,
        seconds: float,
        clock: Callable[[], float],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._sessions = [session for session in sessions.values() if session.state.spec.provider is not None]
        self._seconds = seconds
        self._clock = clock
        self._providers = Providers(clock=clock, env=env)

    def provider(self, box: BoxSession) -> Provider | None:
        """Return the control plane of a box, or None where it has none."""
        ref = box.state.spec.provider
        return None if ref is None else self._providers.open(ref)

    def put(self, box: BoxSession, fresh: Meter) -> Meter:
        """Store a reading in the box's state; return what is shown."""
        shown = keep_last_good(box.state.meter, fresh)
        if shown != box.state.meter:
            box.set_meter(shown)
        return shown

    async def run(self) -> None:
        """Poll until cancelled."""
        while self._sessions:
            await self.read_all()
            await asyncio.sleep(self._seconds)

    async def read_all(self) -> None:
        """Read every box's meter once."""
        refs = [session.state.spec.provider for session in self._sessions]
        try:
            meters = await self._providers.poll(ref for ref in refs if ref is not None)
        except ValueError as error:
            for session in self._sessions:
                self.put(session, Meter(at=self._clock(), error=str(error)))
            return
        for session in self._sessions:
            ref = session.state.spec.provider
            if ref is not None and ref.instance in meters:
                self.put(session, meters[ref.instance])

    async def close(self) -> None:
        """Close the connections to the providers."""
        await self._providers.close()
