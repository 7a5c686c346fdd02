"""A billing action through the fleet: real local provider, gate and audit log; only the box's state is set by hand."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo import LocalProvider
from rgt_tui.fleet import GateClosed
from rgt_tui.fleet.billing_actions import Teardown
from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.fleet.connector import ConnectLimit
from rgt_tui.fleet.meters import Meters
from rgt_tui.model.box import BoxSpec, BoxState, Link, ProviderRef
from rgt_tui.model.evidence import StopPhase, Verb
from rgt_tui.model.money import Lifecycle
from rgt_tui.model.protocol import Cell, Disk, Hello, Proc, QueueState, Sample
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import AgentBundle

BOX = "lab"
KEY = "RGT_TEST_KEY"


@dataclass
class World:
    server: LocalProvider
    session: BoxSession
    teardown: Teardown
    audit: Path

    def put(self, **changes: object) -> None:
        """Change the box's state, with a sample of this very moment."""
        now = time.time()
        base: BoxState = self.session.state
        assert base.sample is not None
        self.session.state = msgspec.structs.replace(base, sample_at=now, **changes)

    def lines(self) -> list[dict[str, object]]:
        return (
            [json.loads(line) for line in self.audit.read_text().splitlines()] if self.audit.exists() else []
        )

    def sent(self) -> list[str]:
        return [what for what in self.server.requests if not what.startswith("GET ")]

    async def execute(self, verb: Verb = Verb.PARK, typed: str = BOX) -> list[StopPhase]:
        return [step.phase async for step in self.teardown.execute(BOX, verb, typed)]


def quiet_state(spec: BoxSpec) -> BoxState:
    now = time.time()
    cell = Cell(
        name="a", cfg="a.yaml", task="t", state="done", durable="verified", durable_path="/root/autodl-fs/a"
    )
    return BoxState(
        spec=spec,
        link=Link.LIVE,
        hello=Hello(proto=1, agent="0" * 16, boot="b", host="h", python="3.11", pid=1, at=now),
        sample=Sample(
            boot="b",
            seq=1,
            at=now,
            disks=(
                Disk(
                    mount="/root/autodl-tmp",
                    bytes_total=100,
                    bytes_used=10,
                    bytes_free=90,
                    inodes_total=100,
                    inodes_used=10,
                ),
            ),
        ),
        sample_at=now,
        clock_skew=0.0,
        queues=(QueueState(path="/q", at=now, cells=(cell,), done=True),),
    )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = LocalProvider(settle_s=0.0)
    await server.start()
    server.add_pod("pod1", BOX, cost=0.5, mount="/root/autodl-tmp", persistent=10.0)
    spec = BoxSpec(
        name=BOX,
        host="127.0.0.1",
        profile="autodl",
        tiers={"/root/autodl-tmp": "data", "/root/autodl-fs": "shared-fs", "/": "system"},
        provider=ProviderRef("runpod", "pod1", base_url=server.base_url, key_env=KEY),
    )
    profile = load_profile("autodl")
    bundle = AgentBundle(data=b"", digest="", filename="")
    session = BoxSession(spec, profile, bundle, ConnectLimit(), time.time, lambda _: None)
    session.state = quiet_state(spec)
    meters = Meters({BOX: session}, seconds=60, clock=time.time, say=print, env={KEY: server.key})
    audit = tmp_path / "audit.jsonl"
    teardown = Teardown({BOX: session}, {BOX: profile}, meters, audit, time.time)
    yield World(server, session, teardown, audit)
    await meters.close()
    await server.stop()


async def test_a_quiet_box_is_parked_and_every_step_is_recorded(world: World) -> None:
    review = await world.teardown.review(BOX, Verb.PARK)
    assert review.refusals == ()
    assert review.native_label.startswith("关机")
    assert review.per_hour is not None
    assert '{"action":"stop"}' in review.will_send
    phases = await world.execute()
    assert phases == [StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF]
    assert world.sent() == ["POST /v2/pods/pod1/action"]
    assert world.session.state.meter.lifecycle is Lifecycle.STOPPED
    assert [line["event"] for line in world.lines()] == ["requested", "answer", "answer", "answer"]
    assert all(line["typed"] == BOX and line["shown"] for line in world.lines())


async def test_a_training_box_is_refused_with_what_trains_and_nothing_is_sent(world: World) -> None:
    running = Cell(name="b", cfg="b.yaml", task="t", state="running", attempts=1)
    queue = QueueState(path="/q", at=time.time(), cells=(running,), runner_alive=True, runner_pid=7)
    assert world.session.state.sample is not None
    sample = msgspec.structs.replace(
        world.session.state.sample, procs=(Proc(pid=231, started=1.0, cmd="train"),)
    )
    world.put(queues=(queue,), sample=sample)
    review = await world.teardown.review(BOX, Verb.PARK)
    assert any("231" in reason for reason in review.refusals)
    with pytest.raises(GateClosed) as closed:
        await world.execute()
    assert any("231" in reason for reason in closed.value.reasons)
    assert world.sent() == []
    assert [line["event"] for line in world.lines()] == ["refused"]


async def test_a_wrong_name_sends_nothing(world: World) -> None:
    for typed in ("", "Lab", "lab ", "lаb"):  # the last one has a Cyrillic letter
        with pytest.raises(GateClosed):
            await world.execute(typed=typed)
    assert world.sent() == []


async def test_what_changed_since_it_was_shown_closes_the_gate(world: World) -> None:
    """The provider still accepts the stop, but what goes on billing is no longer what the person read."""
    await world.teardown.review(BOX, Verb.PARK)
    world.server.pods["pod1"].persistent = 500.0
    with pytest.raises(GateClosed) as closed:
        await world.execute()
    assert any("what goes on billing has changed" in reason for reason in closed.value.reasons)
    assert world.sent() == []
    await world.teardown.review(BOX, Verb.PARK)
    assert (await world.execute())[-1] is StopPhase.METER_OFF


async def test_an_action_that_cannot_be_recorded_is_not_sent(world: World) -> None:
    world.audit.mkdir()
    with pytest.raises(GateClosed, match="Nothing was sent"):
        await world.execute()
    assert world.sent() == []


async def test_a_box_without_a_control_plane_is_sent_to_its_console(world: World) -> None:
    world.session.state = msgspec.structs.replace(
        world.session.state, spec=msgspec.structs.replace(world.session.state.spec, provider=None)
    )
    with pytest.raises(GateClosed, match="console"):
        await world.teardown.review(BOX, Verb.PARK)
