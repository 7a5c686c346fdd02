"""A rental that moved, stopped or is gone: every command asks the provider before it calls a box unreachable."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncssh
import msgspec
import pytest

from rgt_tui.cli import gather_state
from rgt_tui.cli.set_up.doctor_box import BoxDoctor
from rgt_tui.demo import LocalPod, LocalRunPod
from rgt_tui.fleet import connected, connected_agent
from rgt_tui.health import assess_box
from rgt_tui.model import BoxHealth, BoxSpec, LinkState, ProviderRef
from rgt_tui.ssh import HostKeyPolicy, Unreachable, connection_label
from tests.contract.ssh.conftest import RealSshd
from tests.free_ports import free_port

replace = msgspec.structs.replace


@dataclass
class Rental:
    """A box whose described port is closed, and the provider that knows better."""

    spec: BoxSpec
    pod: LocalPod
    port: int
    """Where the box really answers."""

    def moves(self) -> None:
        self.pod.host, self.pod.port = "127.0.0.1", self.port


@pytest.fixture
async def rental(real_sshd: RealSshd, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rental]:
    server = LocalRunPod(clock=time.time)
    await server.start()
    pod = server.add_pod("pod1", "lab", created=time.time() - 3600)
    monkeypatch.setenv("RGT_TEST_KEY", server.key)
    ref = ProviderRef(
        kind="runpod", instance="pod1", key_env="RGT_TEST_KEY", base_url=server.base_url
    )
    described = replace(
        real_sshd.spec, name="lab", port=free_port(), provider=ref, pattern="^none$"
    )
    try:
        yield Rental(described, pod, real_sshd.port)
    finally:
        await server.stop()


async def test_a_box_that_moved_is_reached_at_the_address_that_the_provider_tells(
    rental: Rental,
) -> None:
    rental.moves()
    state = (await gather_state([rental.spec], 30)).boxes[0]
    assert (state.link, state.sample is not None) == (LinkState.LIVE, True), state.reason
    async with connected_agent(rental.spec) as (connection, deployed):
        assert str(rental.port) in connection_label(connection)
        assert deployed.path
    found = {
        item.id.removeprefix("box.lab."): item
        for item in await BoxDoctor(rental.spec, HostKeyPolicy.ASK).run_checks(30)
    }
    assert (found["tcp"].status, found["login"].status) == ("warn", "ok")
    assert f"reports that it is now at 127.0.0.1:{rental.port}" in found["tcp"].text


@pytest.mark.parametrize(
    ("status", "health"), [("EXITED", BoxHealth.STOPPED), ("TERMINATED", BoxHealth.GONE)]
)
async def test_a_stopped_or_lost_box_is_called_so_with_its_price(
    rental: Rental, status: str, health: BoxHealth
) -> None:
    rental.pod.status = status
    state = (await gather_state([rental.spec], 30)).boxes[0]
    assert assess_box(state, time.time()).health is health
    assert (state.link, state.meter.at is not None) == (LinkState.UNREACHABLE, True)


async def test_an_errand_to_a_stopped_box_fails_with_the_provider_s_word(rental: Rental) -> None:
    rental.pod.status = "EXITED"
    with pytest.raises(Unreachable, match=r"refused the connection.*says stopped \(EXITED\)"):
        async with connected(rental.spec):
            pass
    found = {
        item.id: item for item in await BoxDoctor(rental.spec, HostKeyPolicy.ASK).run_checks(30)
    }
    assert (found["box.lab.tcp"].status, "says stopped" in found["box.lab.tcp"].text) == (
        "fail",
        True,
    )


async def test_both_addresses_are_named_where_neither_answers(rental: Rental) -> None:
    rental.pod.host, rental.pod.port = "127.0.0.1", free_port()
    with pytest.raises(
        Unreachable,
        match=f":{rental.spec.port}.*; also not at the address from .*:{rental.pod.port}",
    ):
        async with connected(rental.spec):
            pass


async def test_a_connection_that_breaks_off_in_the_midst_of_an_errand_is_no_fault_of_rgt(
    rental: Rental, real_sshd: RealSshd
) -> None:
    with pytest.raises(Unreachable, match=f"127.0.0.1:{rental.port}: the connection was lost"):
        async with connected(real_sshd.spec) as connection:
            assert isinstance(connection, asyncssh.SSHClientConnection)
            connection.abort()
            await connection.run("true")
    with pytest.raises(Unreachable, match="the connection was lost"):
        async with connected(real_sshd.spec) as connection:
            assert isinstance(connection, asyncssh.SSHClientConnection)
            await connection.run("sleep 600", timeout=0.05)
