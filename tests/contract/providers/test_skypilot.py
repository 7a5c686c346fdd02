"""SkyPilot clusters: what a queued request is worth, and what is never sent."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rgt_tui.demo import InjectedFault, LocalRequest, LocalResponse
from rgt_tui.model import BillingVerb, Lifecycle, MeterKind, ProviderRef, StopPhase, StopProgress
from rgt_tui.providers import Provider, Providers, carry_out
from tests.contract.providers.conftest import Clock, permit_for
from tests.contract.providers.fakes.local_skypilot import LocalCluster, LocalSkyPilot

KEY_ENV = "SOME_TOKEN"


@dataclass
class World:
    """A server with a cluster that is up and one that is stopped, and who asks it."""

    clock: Clock
    server: LocalSkyPilot
    providers: Providers

    def box(self, name: str = "train-a", key_env: str | None = KEY_ENV) -> Provider:
        return self.providers.open_control_plane(
            ProviderRef("skypilot", name, self.server.base_url, key_env)
        )

    async def ended(self, verb: BillingVerb, name: str = "train-a") -> list[StopProgress]:
        provider = self.box(name)
        ref = provider.ref
        permit = permit_for(ref, verb)
        steps = carry_out(
            provider, permit, clock=self.clock, sleep=self.clock.advance, timeout_s=4.0, poll_s=1.0
        )
        return [step async for step in steps]

    def sent(self) -> list[tuple[str, dict[str, object]]]:
        """What changes something, with its body."""
        pairs = zip(self.server.requests, self.server.bodies, strict=True)
        return [
            (what, json.loads(body))
            for what, body in pairs
            if what in ("POST /stop", "POST /down", "POST /start")
        ]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock = Clock()
    server = LocalSkyPilot(clock=clock, settle_s=0.0)
    server.add(LocalCluster("train-a"), LocalCluster("old", "STOPPED"))
    (tmp_path / ".sky").mkdir()
    (tmp_path / ".sky" / "user_hash").write_text("0a1b2c3d\n")
    await server.start()
    providers = Providers(
        clock=clock, env={KEY_ENV: server.key, "USER": "alice"}, home=tmp_path, timeout_s=60.0
    )
    yield World(clock, server, providers)
    await providers.close()
    await server.stop()


async def test_a_cluster_costs_what_the_report_says_and_that_is_said_to_be_a_guess(
    world: World,
) -> None:
    listed = {item.id: item for item in await world.box().list()}
    up, stopped = listed["train-a"], listed["old"]
    assert (up.meter.kind, up.meter.per_hour) == (MeterKind.COMPUTE_AND_STORAGE, 0.75)
    assert "catalogue" in (up.meter.doubt or "")
    assert (up.gpu, up.gpu_count, up.region) == ("A10", 1, "AWS us-west-1")
    assert stopped.meter.kind is MeterKind.STORAGE_ONLY
    assert stopped.meter.unpriced == ("the disks of the stopped cluster",), "a stop is not free"


async def test_where_a_cluster_answers_is_read_from_its_own_ssh_configuration(
    world: World, tmp_path: Path
) -> None:
    folder = tmp_path / ".sky" / "generated" / "ssh"
    folder.mkdir(parents=True)
    (folder / "train-a").write_text(
        "Host train-a\n  HostName 198.51.100.9\n  User ubuntu\n  Port 2222\n"
        "Host train-a-worker1\n  HostName 198.51.100.10\n"
    )
    (folder / "old").write_bytes(b"\xff\xfe")
    listed = {item.id: item for item in await world.box().list()}
    assert (listed["train-a"].host, listed["train-a"].port, listed["train-a"].user) == (
        "198.51.100.9",
        2222,
        "ubuntu",
    )
    assert listed["old"].host is None


async def test_what_shows_more_than_ones_own_or_a_pickle_is_never_asked_for(world: World) -> None:
    await world.box().list()
    await world.box().read("train-a")
    bodies = [
        json.loads(b)
        for w, b in zip(world.server.requests, world.server.bodies, strict=True)
        if w == "POST /status"
    ]
    assert [body["refresh"] for body in bodies] == ["AUTO", "FORCE"]
    for body in bodies:
        assert (body["all_users"], body["include_credentials"], body["include_handle"]) == (
            False,
            False,
            False,
        )
        assert body["env_vars"] == {"SKYPILOT_USER_ID": "0a1b2c3d", "SKYPILOT_USER": "alice"}


async def test_a_stop_leaves_disks_and_a_down_nothing(world: World) -> None:
    steps = await world.ended(BillingVerb.PARK)
    assert [step.phase for step in steps] == [
        StopPhase.REQUESTED,
        StopPhase.CONFIRMED,
        StopPhase.METER_OFF,
    ]
    assert "disks of the stopped cluster" in steps[-1].text
    steps = await world.ended(BillingVerb.DESTROY)
    assert steps[-1].phase is StopPhase.METER_OFF
    assert [(what, body["purge"]) for what, body in world.sent()] == [
        ("POST /stop", False),
        ("POST /down", False),
    ]
    meter = await world.box().read("train-a")
    assert (meter.lifecycle, meter.kind) == (Lifecycle.GONE, MeterKind.NONE)


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(on="POST /status", status=500),
        InjectedFault(on="POST /status", headers={"X-Skypilot-Request-ID": "../etc"}),
        InjectedFault(on="GET /api/get", change=lambda data: {**data, "status": "FAILED"}),
        InjectedFault(on="GET /api/get", change=lambda data: {**data, "return_value": "[{"}),
        InjectedFault(
            on="GET /api/get", change=lambda data: {**data, "return_value": '[{"status": "UP"}]'}
        ),
        InjectedFault(on="GET /api/get", cut=9),
    ],
)
async def test_what_cannot_be_read_is_unknown(world: World, fault: InjectedFault) -> None:
    await world.box().list()
    world.server.inject_faults(fault)
    meter = await world.box().read("train-a")
    assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.UNKNOWN)
    assert meter.error


async def test_a_server_of_ones_own_without_logins_is_asked_without_a_key(world: World) -> None:
    world.server.key, world.server.scheme = "", ""
    meter = await world.box(key_env=None).read("train-a")
    assert meter.lifecycle is Lifecycle.RUNNING, meter.error


async def test_an_answer_that_comes_late_is_waited_for(world: World) -> None:
    """The real server sends no byte until the request has ended, which takes longer than other answers may."""
    answer = world.server.answer_with_fault

    def late(request: LocalRequest) -> tuple[LocalResponse, InjectedFault | None]:
        if request.path == "/api/get":
            time.sleep(0.4)  # In the thread of the connection.
        return answer(request)

    world.server.answer_with_fault = late  # type: ignore[method-assign]
    ref = ProviderRef("skypilot", "train-a", world.server.base_url, KEY_ENV)
    hasty = Providers(clock=world.clock, env={KEY_ENV: world.server.key}, timeout_s=0.1)
    meter = await hasty.open_control_plane(ref).read("train-a")
    assert (meter.error, meter.lifecycle) == (None, Lifecycle.RUNNING)
    await hasty.close()


async def test_a_stop_whose_result_cannot_be_read_was_sent_all_the_same(world: World) -> None:
    """Whatever the question about the result is answered with, it is no refusal of the stop."""
    for number, fault in enumerate(
        (
            InjectedFault(on="GET /api/get", status=401),
            InjectedFault(on="GET /api/get", status=429),
            InjectedFault(on="GET /api/get", status=404),
            InjectedFault(on="GET /api/get", drop=True),
        )
    ):
        world.clock.now += 1000.0
        world.server.add(LocalCluster(f"more-{number}"))
        world.server.inject_faults(fault)
        steps = await world.ended(BillingVerb.PARK, f"more-{number}")
        assert steps[0].phase is StopPhase.REQUESTED
        assert "its result is unknown" in steps[0].text
