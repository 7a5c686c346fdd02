"""A local provider with a hand-turned clock, and the adapter that talks to it over the loopback."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from rgt_tui.demo import Change, LocalRunPod
from rgt_tui.model.box import ProviderRef
from rgt_tui.model.evidence import Permit, StopProgress, Verb, steady
from rgt_tui.model.money import Meter
from rgt_tui.providers import Provider, Providers, carry_out

START = 1_790_000_000.0
POD = "k3v9q0x1fake01"


@dataclass
class Clock:
    """Time that moves only when a test says so; those who sleep wake when it has moved far enough."""

    now: float = START
    waiters: list[tuple[float, asyncio.Event]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self.waiters.append((self.now + seconds, event))
        await event.wait()

    async def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [item for item in self.waiters if item[0] <= self.now]
        self.waiters = [item for item in self.waiters if item[0] > self.now]
        for _, event in due:
            event.set()
        await asyncio.sleep(0)


def permit_for(
    ref: ProviderRef, verb: Verb, *, instance: str | None = None, expires: float | None = None
) -> Permit:
    """Return what the gate would give out for a machine, good for a minute."""
    return Permit(
        "box",
        verb,
        ref.instance if instance is None else instance,
        "digest",
        steady() + 60 if expires is None else expires,
        kind=ref.kind,
        account=ref.account,
        nonce=secrets.token_hex(8),
    )


@dataclass
class World:
    """Everything a test needs."""

    clock: Clock
    server: LocalRunPod
    providers: Providers
    provider: Provider
    changes: list[Change]

    async def read(self) -> Meter:
        return await self.provider.read(POD)

    def permit(self, verb: Verb, instance: str = POD) -> Permit:
        ref = self.provider.ref
        return permit_for(ref, verb, instance=instance)

    async def carry_out(self, verb: Verb, timeout_s: float = 20.0) -> list[StopProgress]:
        """Carry an action out; each pause between two readings moves the clock."""
        return [
            step
            async for step in carry_out(
                self.provider,
                self.permit(verb),
                clock=self.clock,
                sleep=self.clock.advance,
                timeout_s=timeout_s,
                poll_s=1.0,
            )
        ]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    clock = Clock()
    changes: list[Change] = []
    server = LocalRunPod(clock=clock, sleep=clock.sleep, settle_s=2.0, on_change=changes.append)
    await server.start()
    server.add_pod(POD, "train-a", created=START - 3600)
    providers = Providers(clock=clock, env={"DEMO_KEY": server.key}, timeout_s=10.0)
    provider = providers.open(ProviderRef("runpod", POD, base_url=server.base_url, key_env="DEMO_KEY"))
    yield World(clock, server, providers, provider, changes)
    await providers.close()
    await server.stop()
