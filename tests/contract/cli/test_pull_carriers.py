"""Bytes of a pull through the system's ``ssh``: held to what asyncssh has proven, and done without elsewhere."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import stat
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_wire import block_packing

from rgt_tui.cli.teardown.pull import print_report
from rgt_tui.fleet import connected, connected_agent
from rgt_tui.fleet.pulls import box_pipe, pulling
from rgt_tui.fleet.pulls.pull_stream import PullFailed, PullRequest
from rgt_tui.fleet.pulls.pulling import PullReport
from rgt_tui.fleet.pushes import PushChoice, push_transport, pushing
from rgt_tui.model import BoxSpec
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import BulkClient, HostKeyRefused, NotCarried, bulk_client, openssh_client
from rgt_tui.transfer.copying import RANGE_BYTES, PullFetcher, StreamError
from tests.contract.ssh.conftest import RealSshd, running_sshd

BIG = 2 * RANGE_BYTES + 12345
SMALL = 20


@pytest.fixture
def source(real_sshd: RealSshd) -> Iterator[Path]:
    folder = real_sshd.folder / "box" / "carried"
    folder.mkdir(parents=True)
    draw = random.Random(2)
    (folder / "a.pt").write_bytes(draw.randbytes(BIG))
    for number in range(SMALL):
        (folder / f"{number}.txt").write_bytes(draw.randbytes(100 * number + 1))
    for path in folder.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every `ssh` that carries bytes from now on."""
    found: list[subprocess.Popen[bytes]] = []
    start = BulkClient.start_command

    def keep(self: BulkClient, command: str) -> subprocess.Popen[bytes]:
        found.append(start(self, command))
        return found[-1]

    monkeypatch.setattr(BulkClient, "start_command", keep)
    return found


def pulled(spec: BoxSpec, source: Path, to: Path, **options: Any) -> PullReport:
    request = PullRequest(paths=(str(source),), destination=to, **{"ssh_from": 0, **options})
    return asyncio.run(pulling.pull_box(spec, request))


def is_whole(source: Path, to: Path) -> bool:
    copies = to / str(source).lstrip("/")
    return all((copies / path.name).read_bytes() == path.read_bytes() for path in source.iterdir())


@pytest.mark.usefixtures("env")
def test_bytes_go_through_the_systems_ssh(
    lab: BoxSpec,
    source: Path,
    tmp_path: Path,
    started: list[subprocess.Popen[bytes]],
) -> None:
    report = pulled(lab, source, tmp_path / "out")
    assert (report.is_complete, report.carrier) == (True, "")
    assert is_whole(source, tmp_path / "out")
    assert started
    assert [process.returncode for process in started] == [0] * len(started)
    words = started[0].args
    assert isinstance(words, list)
    for said in (
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "GlobalKnownHostsFile=/dev/null",
        "IdentityAgent=none",
    ):
        assert said in words
    assert not Path(
        next(word for word in words if "UserKnownHostsFile=" in word).split("=")[1]
    ).exists()


@pytest.mark.usefixtures("env")
def test_without_an_ssh_program_its_own_client_receives_it_and_that_is_said(
    lab: BoxSpec,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = pulled(lab, source, tmp_path / "out")
    assert (report.is_complete, report.carrier) == (True, "there is no ssh program on this machine")
    assert is_whole(source, tmp_path / "out")
    print_report(report, as_json=False)
    assert "which is slower: there is no ssh program on this machine" in capsys.readouterr().err


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize("round_trip", [None, 0.2])
def test_a_long_line_is_for_its_own_client(
    lab: BoxSpec,
    source: Path,
    tmp_path: Path,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    round_trip: float | None,
) -> None:
    monkeypatch.setattr(box_pipe, "round_trip_s", lambda connection: round_trip)
    report = pulled(lab, source, tmp_path / "out")
    assert (report.is_complete, report.carrier, started) == (True, "", [])
    assert report.packed_bytes > 0, "blocks may be packed"
    assert is_whole(source, tmp_path / "out")


@pytest.mark.usefixtures("env")
def test_a_login_of_ssh_is_for_large_pulls(
    lab: BoxSpec, source: Path, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    report = pulled(lab, source, tmp_path / "out", ssh_from=2 * BIG)
    assert (report.is_complete, report.carrier, started) == (True, "", [])
    assert is_whole(source, tmp_path / "out")


@pytest.mark.usefixtures("env")
def test_through_a_jump_host_its_own_client_receives_it(
    lab: BoxSpec, source: Path, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    def host(name: str, spec: BoxSpec, jump: str) -> str:
        return (
            f"Host {name}\nHostName 127.0.0.1\nPort {spec.port}\nUser {spec.user}\nProxyJump {jump}\n"
            f"IdentityFile {spec.identity}\nUserKnownHostsFile {spec.known_hosts}\n"
        )

    (tmp_path / "gate").mkdir()
    config = tmp_path / "config"
    with running_sshd(tmp_path / "gate") as gate:
        config.write_text(host("gate", gate.spec, "none") + host("far", lab, "gate"))
        far = msgspec.structs.replace(
            lab, host="far", port=None, identity=None, known_hosts=None, ssh_config=str(config)
        )
        report = pulled(far, source, tmp_path / "out")
    assert report.is_complete
    assert report.carrier == "the way there leads through another host or program"
    assert report.packed_bytes > 0, "the round trip to the jump host is not that to the box"
    assert started == []
    assert is_whole(source, tmp_path / "out")


@pytest.mark.usefixtures("env")
async def test_the_round_trip_on_this_machine_is_known_and_short(lab: BoxSpec) -> None:
    async with connected(lab) as connection:
        found = box_pipe.round_trip_s(connection)
    assert found is not None
    assert 0 < found < 0.03


def program(folder: Path, text: str) -> None:
    """Put another ``ssh`` in front."""
    path = folder / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.usefixtures("env")
def test_an_ssh_that_does_not_get_there_is_done_without(
    lab: BoxSpec, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "echo 'command-line line 0: Bad SSH2 cipher spec' >&2; exit 255\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    report = pulled(lab, source, tmp_path / "out")
    assert report.is_complete
    assert report.carrier == "ssh does not get there (command-line line 0: Bad SSH2 cipher spec)"
    assert is_whole(source, tmp_path / "out")


@pytest.mark.usefixtures("env")
def test_one_that_is_killed_is_started_again_and_no_file_is_lost(
    lab: BoxSpec,
    source: Path,
    tmp_path: Path,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    came, killed = PullFetcher.count_received, []

    def kill(self: PullFetcher, task: Any, count: int) -> None:
        came(self, task, count)
        for at in (RANGE_BYTES // 2, RANGE_BYTES + 5):
            if self.received_bytes >= at and at not in killed:
                killed.append(at)
                started[-1].kill()

    monkeypatch.setattr(PullFetcher, "count_received", kill)
    report = pulled(lab, source, tmp_path / "out")
    assert (report.is_complete, report.carrier, len(killed)) == (True, "", 2)
    assert len(started) >= 2
    assert is_whole(source, tmp_path / "out")


@pytest.mark.usefixtures("env")
def test_another_host_key_than_the_one_that_was_verified_ends_it(
    lab: BoxSpec, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second server stands where `ssh` arrives: it would let us in, and has files of the same names."""
    (tmp_path / "other").mkdir()
    with running_sshd(tmp_path / "other") as other:
        authorized = Path(str(lab.identity) + ".pub").read_text()
        (other.folder / "authorized_keys").write_text(authorized)
        words = openssh_client._ssh_arguments

        def led_astray(*args: Any) -> tuple[str, ...]:
            return tuple(
                str(other.port) if word == str(lab.port) else word for word in words(*args)
            )

        monkeypatch.setattr(openssh_client, "_ssh_arguments", led_astray)
        with pytest.raises(HostKeyRefused, match="another one to ssh just now"):
            pulled(lab, source, tmp_path / "out")
    assert not [
        path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.stat().st_size
    ]


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize(
    "sends",
    [
        """printf '{"id":77,"n":5,"stamp":[5,1,2,3]}\\nhello'; cat >/dev/null""",
        """printf '{"id":1,"n":5000000000,"stamp":[5,1,2,3]}\\n'; cat /dev/zero""",
        "cat /dev/zero",
    ],
    ids=["another file", "more than was asked for", "no word of an agent"],
)
def test_what_no_agent_sends_is_not_taken(
    lab: BoxSpec, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sends: str
) -> None:
    program(tmp_path, f"read line\n{sends}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(PullFailed, match="the box sent what its agent does not send"):
        pulled(lab, source, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.txt"))


def client(spec: BoxSpec, **known: Any) -> BulkClient:
    async def ask() -> BulkClient:
        async with connected(spec) as connection:
            connection.set_extra_info(
                **{name: value or connection for name, value in known.items()}
            )
            return bulk_client(connection)

    return asyncio.run(ask())


@pytest.mark.usefixtures("env")
def test_it_knows_one_host_key_and_one_key(lab: BoxSpec, real_sshd: RealSshd) -> None:
    found = client(lab)
    try:
        (known,) = Path(found._folder.name).glob("*")
        kind, key, *_ = (real_sshd.folder / "host_key.pub").read_text().split()
        assert known.read_text().split()[:3] == [openssh_client.ALIAS, kind, key]
        words = found._words
        assert words[words.index("-i") + 1] == lab.identity
        assert "HostKeyAlgorithms=ssh-ed25519" in words
    finally:
        found.close()


@pytest.mark.usefixtures("env")
def test_a_key_of_the_agent_is_named_by_its_public_half(
    lab: BoxSpec, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = str(tmp_path / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        while (
            subprocess.run(
                ["ssh-add", "-l"], env={"SSH_AUTH_SOCK": socket}, capture_output=True
            ).returncode
            == 2
        ):
            assert agent.poll() is None
        subprocess.run(
            ["ssh-add", "-q", str(lab.identity)],
            env={"SSH_AUTH_SOCK": socket},
            check=True,
            capture_output=True,
        )
        shutil.copy(f"{lab.identity}.pub", tmp_path / "id.pub")
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        report = pulled(
            msgspec.structs.replace(lab, identity=str(tmp_path / "id")), source, tmp_path / "out"
        )
    finally:
        agent.kill()
        agent.wait()
    assert (report.is_complete, report.carrier) == (True, "")


@pytest.mark.usefixtures("env")
def test_a_way_over_another_host_is_not_taken(lab: BoxSpec) -> None:
    with pytest.raises(NotCarried, match="leads through another host"):
        client(lab, rgt_below=None)
    with pytest.raises(NotCarried, match="how the login was done is not known"):
        client(lab, rgt_login=lab)


@pytest.mark.usefixtures("env")
@pytest.mark.parametrize("ssh_from", [0.0, float("inf")])
def test_what_is_packed_on_the_way_arrives_as_it_was(
    lab: BoxSpec,
    source: Path,
    tmp_path: Path,
    ssh_from: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (source / "log.jsonl").write_text('{"step": 1, "loss": 2.5}\n' * 100_000)
    report = pulled(lab, source, tmp_path / "out", ssh_from=ssh_from, pack_from_s=0.0)
    assert report.is_complete
    assert is_whole(source, tmp_path / "out")
    assert report.packed_bytes > report.landed_bytes, "the rows between the files are counted, too"
    assert report.line_bytes > 0
    plain = pulled(lab, source, tmp_path / "plain", ssh_from=ssh_from, pack_from_s=1e9)
    assert (plain.packed_bytes, plain.line_bytes) == (0, 0)
    told = msgspec.structs.replace(report, packed_bytes=31_400_000, line_bytes=9_800_000)
    capsys.readouterr()
    print_report(told, as_json=False)
    assert "packed on the way: 31.4 MB as 9.8 MB (3.2:1)" in capsys.readouterr().out


class Scripted:
    """A pipe that hands out prepared bytes, a few at a time."""

    def __init__(self, data: bytes, at_once: int) -> None:
        self.data, self.at_once, self.line_bytes, self.is_alive = data, at_once, 0, True

    def write(self, data: bytes) -> None: ...

    def has_output(self) -> bool:
        return True

    def read(self, buffer: bytearray | memoryview) -> int:
        part, self.data = self.data[: self.at_once], self.data[self.at_once :]
        buffer[: len(part)] = part
        return len(part)

    def ending_error(self) -> Exception:
        return EOFError()

    def kill(self) -> None: ...

    def close(self) -> None: ...


def frame(kind: bytes, body: bytes) -> bytes:
    return kind + len(body).to_bytes(4, "big") + body


def read_all(data: bytes, at_once: int) -> bytes:
    pipe, out, buffer = box_pipe.UnpackingPipe(Scripted(data, at_once)), b"", bytearray(7)
    while True:
        if pipe.has_output():
            count = pipe.read(buffer)
            if not count:
                assert pipe.line_bytes == len(data)
                return out
            out += buffer[:count]


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_frames_are_unpacked_wherever_they_are_cut(at_once: int) -> None:
    data = frame(b"r", b"as it is") + frame(b"r", b"") + frame(b"z", zlib.compress(b"packed" * 9))
    assert read_all(data, at_once) == b"as it is" + b"packed" * 9


@pytest.mark.parametrize(
    "data",
    [
        frame(b"x", b"no kind"),
        b"r" + (1 << 30).to_bytes(4, "big"),
        frame(b"z", b"no stream"),
        frame(b"z", zlib.compress(bytes((1 << 20) + 1))),
        frame(b"z", zlib.compress(b"twice") * 2),
        frame(b"z", zlib.compress(b"cut short")[:-3]),
    ],
)
def test_a_box_that_packs_wrongly_ends_the_stream(data: bytes) -> None:
    """Also one block of zeros that would fill the memory here."""
    with pytest.raises(StreamError):
        read_all(data, 1 << 16)


@pytest.mark.usefixtures("env")
def test_a_push_that_is_packed_arrives_as_it_was(
    lab: BoxSpec, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a long line; whether a block is packed is decided elsewhere."""
    monkeypatch.setattr(push_transport, "may_pack", lambda connection, from_s: True)
    monkeypatch.setattr(
        block_packing.BlockPacker, "pack_block", lambda packer, block: zlib.compress(block)
    )
    place = tmp_path / "place"
    place.mkdir()

    async def push() -> str:
        async with connected_agent(lab) as (connection, deployed):
            choice = PushChoice(kind="data", to=str(place))
            profile = load_profile("generic-ssh")
            return (await pushing.push_tree(connection, deployed, profile, source, choice)).path

    arrived = Path(asyncio.run(push()))
    assert {path.name: path.read_bytes() for path in source.iterdir()} == {
        path.name: path.read_bytes() for path in arrived.iterdir() if path.is_file()
    }
