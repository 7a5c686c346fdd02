"""A local provider with a hand-turned clock, and the adapter that talks to it over the loopback."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
from rgt_wire import USER_AGENT

from rgt_tui.demo import (
    InjectedFault,
    LocalRequest,
    LocalResponse,
    LocalRunPod,
    LocalServer,
    LocalVast,
    MachineChange,
)
from rgt_tui.model import BillingVerb, Meter, Permit, ProviderRef, StopProgress, steady_time
from rgt_tui.profiles import load_api_tables
from rgt_tui.providers import Provider, Providers, carry_out
from tests.contract.providers.api_check import answer_faults, request_faults
from tests.contract.providers.fakes.local_digitalocean import LocalDigitalOcean
from tests.contract.providers.fakes.local_lambda import LocalLambda
from tests.contract.providers.fakes.local_paperspace import LocalPaperspace
from tests.contract.providers.fakes.renting_runpod import RentingRunPod

START = 1_790_000_000.0
POD = "k3v9q0x1fake01"


TABLES = {
    LocalRunPod: "runpod",
    LocalVast: "vastai",
    LocalDigitalOcean: "digitalocean",
    LocalLambda: "lambda",
    LocalPaperspace: "paperspace-core",
}
"""Local server → table in ``profiles/api`` with which each of its exchanges is compared."""


@pytest.fixture(autouse=True)
def exchanges_fit_the_table(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Compare every exchange of a local server with the platform's table: what rgt sends, and what our server answers.

    An answer that a fault distorts is not compared. ``@pytest.mark.odd_exchanges`` is for a test that sends, or puts
    into a server, on purpose what the platform does not have.
    """
    answer, tables, found = LocalServer.answer_with_fault, load_api_tables(), set[str]()

    def compared(
        self: LocalServer, asked: LocalRequest
    ) -> tuple[LocalResponse, InjectedFault | None]:
        response, fault = answer(self, asked)
        name = next((TABLES[kind] for kind in type(self).__mro__ if kind in TABLES), None)
        if name is not None:
            what = asked.method, asked.path
            if asked.headers.get("user-agent") == USER_AGENT:
                found.update(request_faults(tables[name], *what, asked.query, asked.body))
            if fault is None and response.headers.get("Content-Type") != "text/plain":
                found.update(answer_faults(tables[name], *what, response.status, response.body))
        return response, fault

    monkeypatch.setattr(LocalServer, "answer_with_fault", compared)
    yield
    if request.node.get_closest_marker("odd_exchanges") is None:
        assert sorted(found) == []


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
    ref: ProviderRef,
    verb: BillingVerb,
    *,
    instance: str | None = None,
    expires: float | None = None,
) -> Permit:
    """Return what the gate would give out for a machine, good for a minute."""
    return Permit(
        "box",
        verb,
        ref.instance if instance is None else instance,
        "digest",
        steady_time() + 60 if expires is None else expires,
        kind=ref.kind,
        account=ref.account,
        nonce=secrets.token_hex(8),
    )


@dataclass
class World:
    """Everything a test needs."""

    clock: Clock
    server: RentingRunPod
    providers: Providers
    provider: Provider
    changes: list[MachineChange]

    async def read(self) -> Meter:
        return await self.provider.read(POD)

    def permit(self, verb: BillingVerb, instance: str = POD) -> Permit:
        ref = self.provider.ref
        return permit_for(ref, verb, instance=instance)

    async def carry_out(self, verb: BillingVerb, timeout_s: float = 20.0) -> list[StopProgress]:
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
    changes: list[MachineChange] = []
    server = RentingRunPod(clock=clock, sleep=clock.sleep, settle_s=2.0, on_change=changes.append)
    await server.start()
    server.add_pod(POD, "train-a", created=START - 3600)
    providers = Providers(clock=clock, env={"DEMO_KEY": server.key}, timeout_s=10.0)
    provider = providers.open_control_plane(
        ProviderRef("runpod", POD, base_url=server.base_url, key_env="DEMO_KEY")
    )
    yield World(clock, server, providers, provider, changes)
    await providers.close()
    await server.stop()
