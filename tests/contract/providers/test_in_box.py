"""A box that switches itself off: the command is run once, over the line that stands, and nobody says it is off."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import BoxSession, ConnectLimit, FleetMeters
from rgt_tui.fleet.config import FleetFileError, read_fleet
from rgt_tui.gate.identity import check_identity
from rgt_tui.model import (
    BillingVerb,
    BoxState,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    ProviderRef,
    StopPhase,
    StopProgress,
)
from rgt_tui.profiles import load_profile
from rgt_tui.providers import carry_out, console
from rgt_tui.providers.console import SelfStoppingBox
from rgt_tui.ssh import AgentBundle, connect
from tests.contract.providers.conftest import Clock, permit_for
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.conftest import real_sshd as real_sshd

REF = ProviderRef("autodl-inbox", "seeta-1")
OFF = """#!/bin/sh
echo off >> {folder}/ran
{then}
"""


@dataclass
class World:
    """A box behind a real sshd, and what switches it off."""

    folder: Path
    session: BoxSession
    meters: FleetMeters

    def shutdown(self, then: str) -> str:
        """Write the box's own shutdown."""
        path = self.folder / "shutdown"
        path.write_text(OFF.format(folder=self.folder, then=then))
        path.chmod(0o755)
        return str(path)

    @property
    def ran(self) -> int:
        found = self.folder / "ran"
        return len(found.read_text().splitlines()) if found.exists() else 0

    def box(self) -> SelfStoppingBox:
        found = self.meters.open_provider(self.session)
        assert isinstance(found, SelfStoppingBox)
        return found

    async def carry_out(self, verb: BillingVerb = BillingVerb.PARK) -> list[StopProgress]:
        box, clock = self.box(), Clock()
        permit = permit_for(REF, verb)
        steps = carry_out(box, permit, clock=clock, sleep=clock.advance, timeout_s=4.0, poll_s=1.0)
        return [step async for step in steps]


@pytest.fixture
async def world(real_sshd: RealSshd, tmp_path: Path) -> AsyncIterator[World]:
    spec = msgspec.structs.replace(
        real_sshd.spec, name="lab", profile="autodl", provider=REF, per_hour=1.98, currency="CNY"
    )
    bundle = AgentBundle(data=b"", digest="", filename="")
    session = BoxSession(
        spec, load_profile("autodl"), bundle, ConnectLimit(), time.time, lambda _: None
    )
    connection: Any = await connect(spec)
    stands: Any = object()
    session._connection, session._channel, session._deployed = connection, stands, stands
    session.state = msgspec.structs.replace(
        session.state, link=LinkState.LIVE, sample_at=time.time()
    )
    meters = FleetMeters({"lab": session}, seconds=60, clock=time.time, say=print)
    yield World(tmp_path, session, meters)
    connection.abort()
    await meters.close()


async def test_the_line_that_is_lost_on_the_way_proves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends the sshd of its own connection, as a machine that goes off does."""
    command = world.shutdown("kill -9 $PPID")
    monkeypatch.setitem(console.COMMANDS, REF.kind, command)
    steps = await world.carry_out()
    assert [step.phase for step in steps] == [StopPhase.REQUESTED, StopPhase.UNCONFIRMED]
    assert "the connection was lost, as when a box stops" in steps[0].text
    assert "check the console: https://www.autodl.com" in steps[-1].text
    assert world.ran == 1


async def test_a_box_without_such_a_shutdown_is_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(console.COMMANDS, REF.kind, str(world.folder / "none"))
    (step,) = await world.carry_out()
    assert step.phase is StopPhase.FAILED
    assert step.text.startswith("nothing was done")


async def test_without_a_connection_nothing_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(console.COMMANDS, REF.kind, world.shutdown("exit 0"))
    world.session._channel = None
    (step,) = await world.carry_out()
    assert step.phase is StopPhase.FAILED
    assert "nothing was sent" in step.text
    assert world.ran == 0


async def test_a_destroy_is_yours_to_click(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(console.COMMANDS, REF.kind, world.shutdown("exit 0"))
    steps = await world.carry_out(BillingVerb.DESTROY)
    assert "do it yourself now: console: 关机 (stop) first, then 释放 (release)" in steps[0].text
    assert world.ran == 0


async def test_only_a_box_that_answers_takes_it_and_its_price_is_the_fleet_file_s(
    world: World,
) -> None:
    box = world.box()
    assert box.native_action(BillingVerb.PARK) == "/usr/bin/shutdown"
    meter = await box.read(REF.instance)
    assert (meter.lifecycle, "/usr/bin/shutdown" in meter.actions) == (Lifecycle.RUNNING, True)
    assert world.meters.store_reading(world.session, meter).per_hour == 1.98
    world.session.state = msgspec.structs.replace(
        world.session.state, link=LinkState.UNREACHABLE, sample_at=time.time() - 300
    )
    meter = await box.read(REF.instance)
    assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.UNKNOWN)
    assert "/usr/bin/shutdown" not in meter.actions
    assert "probably stopped, not confirmed" in (meter.native_status or "")
    assert "/usr/bin/shutdown" in box.describe_call(BillingVerb.PARK, REF.instance)


@pytest.mark.parametrize("on_it", [False, True])
def test_a_command_on_the_box_hits_the_machine_that_we_speak_to(on_it: bool, world: World) -> None:
    state: BoxState = world.session.state
    found = check_identity(state, Meter(), REF.kind, REF.instance, 1.0, on_it=on_it)
    assert found.ok is on_it


FILE = """
[boxes.lab]
host = "connect.westb.seetacloud.com"
profile = "{profile}"
provider = {{ kind = "autodl-inbox", instance = "seeta-1" }}
"""


def test_its_profile_is_that_of_the_platform(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(FILE.format(profile="autodl"))
    (box,) = read_fleet(path).boxes
    assert box.provider == REF
    path.write_text(FILE.format(profile="runpod"))
    with pytest.raises(FleetFileError, match='set profile = "autodl"'):
        read_fleet(path)
