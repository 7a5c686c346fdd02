"""A machine that was rented is waited for until its SSH answers; what is not as agreed is said once, and at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.fleet.renting import MachineArrival, agreement, differences, wait_for_ssh
from rgt_tui.fleet.renting.arrival import ssh_answers
from rgt_tui.model import Lifecycle, Meter, Offer, ProviderRef, RentalRequest, RentalTerms
from rgt_tui.providers import Instance, Market, Providers
from tests.contract.providers.fakes.renting_runpod import LocalGpu, RentingRunPod

KEY, NOW, TOKEN = "RGT_TEST_KEY", 1.8e9, "rgt-lab-0011223344556677"
A100 = "NVIDIA A100 80GB PCIe"
WISH = RentalRequest(gpu="A100", disk_gb=50)
replace = msgspec.structs.replace


@dataclass
class World:
    server: RentingRunPod
    market: Market
    offer: Offer
    port: int
    """Where something answers as an SSH server does."""
    said: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    slept: int = 0

    async def wait(self, *steps: Callable[[], object], seconds: float = 600.0) -> MachineArrival:
        """Wait, while each pause brings the next step."""
        left = list(steps)

        async def sleep(_: float) -> None:
            self.slept += 1
            if left:
                left.pop(0)()

        async def seen(machine: Instance) -> None:
            self.seen.append(machine.id)

        return await wait_for_ssh(
            self.market, Instance("pod1", TOKEN, Meter()), self.offer, WISH, TOKEN,
            seconds=seconds, sleep=sleep, ticks=lambda: 0.0, say=self.said.append, seen=seen,
        )  # fmt: skip

    def pod(self, **fields: Any) -> None:
        for key, value in fields.items():
            setattr(self.server.pods["pod1"], key, value)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr("rgt_tui.fleet.renting.arrival.BANNER_SECONDS", 60.0)
    server = RentingRunPod(settle_s=0.0)
    await server.start()
    server.add_gpu(LocalGpu(A100, "A100 PCIe", 80, 1.64, 1.19, stock={("SECURE", "EU-1"): "HIGH"}))

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"a word first\r\nSSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    providers = Providers(clock=lambda: NOW, env={KEY: server.key}, timeout_s=60.0)
    market = providers.find_account(ProviderRef("runpod", "", server.base_url, KEY)).open_market()
    assert market is not None
    (offer,) = await market.find_offers(WISH)
    pod = {"gpu": A100, "gpus": 1, "cost": 1.64, "disk": 40.0, "persistent": 50.0}
    server.add_pod("pod1", TOKEN, created=NOW, status="PROVISIONING", **pod)
    yield World(server, market, offer, listening.sockets[0].getsockname()[1])
    listening.close()
    await providers.close()
    await server.stop()


async def test_it_is_waited_for_until_an_ssh_server_speaks(world: World) -> None:
    arrival = await world.wait(
        lambda: world.pod(status="RUNNING"),
        lambda: world.pod(host="127.0.0.1", port=1),
        lambda: world.pod(port=world.port),
    )
    assert (arrival.reached, arrival.differs, world.slept, world.seen) == (True, (), 3, ["pod1"])
    assert (arrival.machine.host, arrival.machine.port) == ("127.0.0.1", world.port)
    assert [text.partition(",")[0] for text in world.said] == ["PROVISIONING", "RUNNING", "RUNNING"]


async def test_lists_that_lag_or_fail_are_asked_again(world: World) -> None:
    world.pod(status="RUNNING", host="127.0.0.1", port=world.port)
    world.server.inject_faults(
        InjectedFault(on="GET /v2/pods", change=lambda data: {"pods": []}),
        InjectedFault(on="GET /v2/pods", status=500),
    )
    arrival = await world.wait()
    assert (arrival.reached, world.slept) == (True, 2)


async def test_one_that_never_answers_ends_with_the_time(world: World) -> None:
    arrival = await world.wait(seconds=20.0)
    assert (arrival.reached, world.slept) == (False, 4)
    assert arrival.why == "no SSH after 20s: PROVISIONING, no SSH address yet"


@pytest.mark.parametrize(("status", "word"), [("EXITED", "stopped"), ("ERROR", "broken")])
async def test_one_that_will_not_come_is_not_waited_for(
    world: World, status: str, word: str
) -> None:
    arrival = await world.wait(lambda: world.pod(status=status))
    assert (arrival.reached, world.slept) == (False, 1)
    assert arrival.why == f"the platform calls it {word} ({status})"


async def test_what_is_not_as_agreed_is_said_once_and_told_at_the_end(world: World) -> None:
    arrival = await world.wait(
        lambda: world.pod(status="RUNNING", cost=3.28),
        lambda: None,
        lambda: world.pod(host="127.0.0.1", port=world.port),
    )
    assert arrival.reached
    (text,) = [text for text in world.said if text.startswith("NOT AS AGREED")]
    assert arrival.differs == (text.removeprefix("NOT AS AGREED: "),)


OFFER = Offer(
    kind="x",
    id="1",
    gpu="A100-SXM4",
    gpu_count=2,
    gpu_memory_gb=80.0,
    compute_per_hour=2.0,
    storage_per_hour=0.02,
)
METER = Meter(lifecycle=Lifecycle.RUNNING, per_hour=2.02)
MACHINE = Instance("i", "n", METER, gpu="A100-SXM4", gpu_count=2)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (MACHINE, []),
        (replace(MACHINE, gpu=None, gpu_count=None, meter=Meter()), []),
        (replace(MACHINE, meter=replace(METER, per_hour=2.029)), []),
        (replace(MACHINE, gpu="NVIDIA A100 80GB"), []),
        (
            replace(MACHINE, meter=replace(METER, per_hour=2.04)),
            ["it costs $2.04/h, agreed: $2.02/h"],
        ),
        (
            replace(MACHINE, meter=replace(METER, per_hour=float("nan"))),
            ["it costs ?/h, agreed: $2.02/h"],
        ),
        (
            replace(MACHINE, meter=replace(METER, currency="CNY")),
            ["it is billed in CNY (¥2.02/h), agreed: USD"],
        ),
        (
            replace(MACHINE, meter=replace(METER, spot=True)),
            ["it is billed as spot, agreed: on-demand"],
        ),
        (replace(MACHINE, gpu="A10"), ["it has A10, agreed: A100-SXM4"]),
        (replace(MACHINE, gpu_count=1), ["it has 1 GPU, agreed: 2"]),
    ],
)
def test_what_is_read_back(machine: Instance, words: list[str]) -> None:
    assert list(differences(OFFER, replace(WISH, gpu_count=2), machine)) == words


def test_the_fleet_file_keeps_what_was_asked() -> None:
    assert agreement(OFFER, replace(WISH, gpu_count=2)) == RentalTerms(
        spot=False, max_per_hour=OFFER.per_hour, gpu="A100", gpu_count=2
    )
    assert agreement(OFFER, replace(WISH, max_per_hour=3.0)).max_per_hour == 3.0


async def test_something_else_that_answers_is_no_ssh_server() -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 40)
        writer.close()

    server = await asyncio.start_server(chatter, "127.0.0.1", 0)
    assert not await ssh_answers("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()
    assert not await ssh_answers("127.0.0.1", 1)
