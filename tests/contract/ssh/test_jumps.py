"""A box behind two jump hosts, in network namespaces of their own, each with a real sshd."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec, LinkState
from rgt_tui.ssh import (
    AuthFailed,
    ConfigError,
    HostKeyRefused,
    Unreachable,
    build_agent,
    connect,
    connection_label,
    deploy_agent,
)
from rgt_tui.ssh.hop import ENDING
from tests.contract.ssh.conftest import keygen
from tests.contract.ssh.namespaces import Net
from tests.contract.ssh.people import Somebody
from tests.contract.ssh.servers import command
from tests.contract.ssh.watched import Watched

replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with Net(tmp_path_factory.mktemp("net")) as hosts:
        yield hosts


@pytest.fixture
def spec(net: Net) -> BoxSpec:
    for hop in ("gate", "inner", "box"):
        net.trust(hop)
    return BoxSpec(name="far", host="box", ssh_config=str(net.ssh_config()), python=sys.executable)


@pytest.fixture(autouse=True)
async def proxies_end() -> AsyncIterator[None]:
    """Let the loop of a test live until its proxy commands have ended: asyncssh does not wait for them."""
    yield
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == ENDING))


async def say(spec: BoxSpec, who: Somebody | None = None) -> str:
    connection = await connect(spec, person=None if who is None else who.person())
    done = await connection.run("cat $HOME/../host_key.pub")
    label = connection_label(connection)
    connection.abort()
    await connection.wait_closed()
    assert str(done.stdout)
    return label


def test_only_neighbours_reach_each_other(net: Net) -> None:
    probe = f"exec 3<>/dev/tcp/{net.address['box']}/2222"
    assert "unreachable" in net.inside("gate", "bash", "-c", probe).stderr
    assert net.inside("inner", "bash", "-c", probe).returncode == 0


@pytest.mark.parametrize("chain", [False, True], ids=["nested", "list"])
async def test_the_box_is_reached_as_openssh_reaches_it(
    net: Net, spec: BoxSpec, chain: bool
) -> None:
    path = net.ssh_config(chain=chain)
    theirs = command(
        "ssh", "-F", str(path), "-o", "BatchMode=yes", "box", "cat $HOME/../host_key.pub"
    )
    assert theirs.stdout == (net.folder / "box/host_key.pub").read_text(), theirs.stderr
    label = await say(replace(spec, ssh_config=str(path)))
    assert label == f"box (root@{net.address['box']}:2222)"


async def test_each_hop_s_key_is_checked_against_its_own_file(
    net: Net, spec: BoxSpec, tmp_path: Path
) -> None:
    keygen(tmp_path / "other")
    for hop in ("gate", "inner", "box"):
        known = net.folder / hop / "known_hosts"
        known.write_text(f"{net.name_of(hop)} {(tmp_path / 'other.pub').read_text()}")
        with pytest.raises(HostKeyRefused, match="THE HOST KEY HAS CHANGED") as caught:
            await say(spec)
        label = f"box (root@{net.address[hop]}" if hop == "box" else f"jump host {hop} (root@"
        assert label in str(caught.value)
        assert f"{known}:1" in str(caught.value)
        net.trust(hop)
    await say(spec)


async def test_an_unknown_hop_is_asked_about_by_name(net: Net, spec: BoxSpec) -> None:
    for hop in ("gate", "inner", "box"):
        (net.folder / hop / "known_hosts").unlink()
    who = Somebody(host_key="yes")
    await say(spec, who)
    titles = [question.title.split(" (")[0] for question in who.asked]
    assert titles == [
        "new host key of jump host gate",
        "new host key of jump host inner",
        "new host key of box",
    ]
    await say(spec)


async def test_a_login_refused_on_the_way_names_the_hop(net: Net, spec: BoxSpec) -> None:
    keys = net.folder / "inner/authorized_keys"
    text = keys.read_text()
    keys.write_text("")
    try:
        with pytest.raises(AuthFailed, match=r"jump host inner .* refused the login of root"):
            await say(spec)
    finally:
        keys.write_text(text)


async def test_a_circle_is_named(net: Net, spec: BoxSpec) -> None:
    path = net.ssh_config("Host gate\n  ProxyJump box\n")
    with pytest.raises(ConfigError, match="has a loop: box → inner → gate → box"):
        await say(replace(spec, ssh_config=str(path)))


async def test_a_proxy_command_carries_the_connection(net: Net, spec: BoxSpec) -> None:
    (net.folder / "for_ssh").write_text(net.ssh_config().read_text())
    path = net.ssh_config(f"Host box\n  ProxyCommand ssh -F {net.folder}/for_ssh -W %h:%p inner\n")
    await say(replace(spec, ssh_config=str(path)))


async def test_a_proxy_command_that_fails_is_quoted(
    net: Net, spec: BoxSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    path = net.ssh_config("Host box\n  ProxyCommand sh -c 'echo the tunnel is shut >&2; exit 7'\n")
    with pytest.raises(Unreachable, match=r"ended with 7: the tunnel is shut"):
        await say(replace(spec, ssh_config=str(path)))
    assert capfd.readouterr() == ("", "")


async def test_a_silent_hop_dies_by_keepalive(net: Net, spec: BoxSpec) -> None:
    path = net.ssh_config("Host *\n  ServerAliveInterval 1\n  ServerAliveCountMax 1\n")
    connection = await connect(replace(spec, ssh_config=str(path)))
    pids = command("ip", "netns", "pids", net._names["inner"]).stdout.split()
    command("kill", "-STOP", *pids)
    try:
        async with asyncio.timeout(90):
            await connection.wait_closed()
    finally:
        command("kill", "-CONT", *pids)


async def test_a_hop_that_dies_is_named_and_the_stream_goes_on_when_it_is_back(
    net: Net, spec: BoxSpec, tmp_path: Path
) -> None:
    watched = Watched(spec, tmp_path)
    await watched.start()
    try:
        await watched.until(
            lambda state: state.link is LinkState.LIVE and state.counters.samples >= 2
        )
        net.kill("inner")
        lost = await watched.until(
            lambda state: state.link is LinkState.UNREACHABLE and "inner" in state.reason
        )
        assert "jump host inner" in lost.reason
        assert "not reached through jump host gate" in lost.reason
        assert lost.sample is not None
        net.start("inner")
        watched.fleet.retry_box(spec.name)
        back = await watched.until(
            lambda state: (
                state.link is LinkState.LIVE and state.counters.samples > lost.counters.samples
            )
        )
        assert (back.counters.gaps, back.counters.duplicates) == (0, 0)
        assert back.counters.connects == 2
    finally:
        await watched.close()
        connection = await connect(spec)
        agent = await deploy_agent(connection, build_agent(), (sys.executable,))
        await connection.run(agent.build_command("record", "--stop"))
        connection.abort()
