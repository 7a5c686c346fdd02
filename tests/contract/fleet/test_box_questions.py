"""What a billing action asks of a box, over a real OpenSSH server and the real agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import msgspec
import pytest

from rgt_tui.fleet import Fleet, ResultsRequest, request_results, request_seal, request_unseal
from rgt_tui.fleet.pulls.box_lists import list_results
from rgt_tui.fleet.pulls.box_pipe import BoxConnection
from rgt_tui.model import BoxSpec, LinkState, Sample, Seal
from rgt_tui.ssh import (
    BoxError,
    CommandFailed,
    DeployedAgent,
    Unreachable,
    build_agent,
    connect,
    deploy_agent,
    has_sftp,
)
from tests.contract.ssh.conftest import RealSshd, fresh_sshd
from tests.process.box.harness import make_job

Line = tuple[asyncssh.SSHClientConnection, DeployedAgent]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    with fresh_sshd(tmp_path_factory.mktemp("questions")) as running:
        yield running


@contextlib.asynccontextmanager
async def way(box: RealSshd) -> AsyncIterator[Line]:
    async with await connect(box.spec) as connection:
        yield connection, await deploy_agent(connection, build_agent(), (box.spec.python or "",))


@pytest.fixture
def job(box: RealSshd, request: pytest.FixtureRequest) -> Path:
    folder = make_job(box.folder / "box" / request.node.name, ["true"], ["a"])
    (folder / "out/a").mkdir(parents=True)
    (folder / "out/a/model.pt").write_text("weights")
    return folder


def described(box: RealSshd, job: Path) -> BoxSpec:
    return msgspec.structs.replace(box.spec, jobs=(str(job),))


async def test_results_are_those_of_the_box(box: RealSshd, job: Path) -> None:
    (job.parent / "notes").mkdir(exist_ok=True)
    (job.parent / "notes/left.csv").write_text("1")
    async with way(box) as (connection, deployed):
        found = await request_results(connection, deployed, described(box, job))
        less = await request_results(
            connection,
            deployed,
            described(box, job),
            ResultsRequest(ignore=(f"{job.parent}/notes",), since=1.5),
        )
    groups = {group.path: group for group in found.groups}
    assert (groups[f"{job}/out/a"].owner, groups[f"{job}/out/a"].bytes) == ("cell a", 7)
    assert groups[f"{job.parent}/notes"].owner == ""
    assert found.since is None and less.since == 1.5
    assert f"{job.parent}/notes" not in {group.path for group in less.groups}
    assert f"ignored: {job.parent}/notes" in {item.rule for item in less.skipped}


async def test_files_of_more_directories_than_a_command_line_holds_are_listed(
    box: RealSshd, job: Path
) -> None:
    """Sshd gives a command to the shell as one word, of which Linux takes 128 KiB."""
    wanted = ResultsRequest(results=(str(job / "out"),))
    folders = (*(f"{job}/{number:0200d}" for number in range(2000)), str(job / "out/a"))
    connection = BoxConnection(described(box, job))
    try:
        found = await list_results(connection, described(box, job), wanted, folders, folds=False)
    finally:
        await connection.close()
    assert [file.path for file in found.listing.files if file.path.startswith(str(job / "out/a"))]
    assert len(found.listing.refused) == 2000, "the others hold no results"


async def test_a_seal_outlives_the_connection_and_is_opened_by_the_next(
    box: RealSshd, job: Path
) -> None:
    async with way(box) as (connection, deployed):
        seal = await request_seal(connection, deployed, described(box, job))
    async with way(box) as (connection, deployed):
        found = await request_results(connection, deployed, described(box, job))
        assert found.generation == seal.generation
        with pytest.raises(
            CommandFailed,
            match=r"rgt-box seal: this box has another active seal; it expires automatically",
        ):
            await request_seal(connection, deployed, described(box, job))
        command = deployed.build_command("queue", "run", "--job", str(job))
        refused = await connection.run(command)
        assert refused.exit_status == 3
        assert await request_unseal(connection, deployed, seal.nonce) is True
        assert await request_unseal(connection, deployed, seal.nonce) is False
        ran = await connection.run(command)
        assert ran.exit_status == 0


async def names(connection: asyncssh.SSHClientConnection, deployed: DeployedAgent) -> list[str]:
    done = await connection.run(deployed.build_command("sample"), encoding=None)
    assert isinstance(done.stdout, bytes), done
    found = msgspec.json.decode(done.stdout, type=Sample)
    assert found.transfers is not None
    return [transfer.name for transfer in found.transfers]


async def test_a_file_on_its_way_by_sftp_is_seen_and_an_idle_server_is_not(box: RealSshd) -> None:
    async with way(box) as (connection, deployed):
        await has_sftp(connection)
        async with connection.start_sftp_client() as sftp:
            await sftp.listdir(str(box.folder))
            assert "sftp-server" not in await names(connection, deployed)
            async with sftp.open(str(box.folder / "box/half.pt"), "wb") as file:
                await file.write(b"the first half")
                assert "sftp-server" in await names(connection, deployed)
                assert any(
                    "sftp-server" in line
                    for line in (await seal_once(connection, deployed, box)).busy
                )
            assert "sftp-server" not in await names(connection, deployed)


async def seal_once(
    connection: asyncssh.SSHClientConnection, deployed: DeployedAgent, box: RealSshd
) -> Seal:
    seal = await request_seal(connection, deployed, box.spec)
    assert await request_unseal(connection, deployed, seal.nonce)
    return seal


GOOD = {
    "path": "/x",
    "files": 1,
    "bytes": 1,
    "newest": 1.0,
    "newest_path": "/x/y",
    "fingerprint": "f",
}
NO_RESULTS = [
    b"",
    b"hello\n",
    b"{}\n",
    b'{"at": 1.0}\n',
    b'{"at": 1.0, "generation": ""}\n',
    b'{"at": 1.0, "generation": "g", "groups": 3}\n',
    json.dumps({"at": 1.0, "generation": "g", "groups": [GOOD | {"path": "x"}]}).encode(),
    json.dumps({"at": 1.0, "generation": "g", "groups": [GOOD | {"files": -1}]}).encode(),
    json.dumps({"at": 1.0, "generation": "g", "groups": [GOOD | {"fingerprint": ""}]}).encode(),
    b'{"at": 1.0, "generation": "g", "groups": [{"path": "' + b"x" * 9000 + b'"}]}',
    b'{"at": 1.0, "generation": "g", "groups": ' + b"[" * 100_000,
    b'{"at": 1.0, "generation": "g", "groups": []',
]


def saying(folder: Path, out: bytes, status: int = 0) -> DeployedAgent:
    """Return an agent that says this, and nothing else."""
    (folder / "said").write_bytes(out)
    script = folder / "agent.sh"
    script.write_text(f"cat {shlex.quote(str(folder / 'said'))}\nexit {status}\n")
    return DeployedAgent("/bin/sh", str(script))


@pytest.mark.parametrize("out", NO_RESULTS)
async def test_an_answer_that_makes_no_sense_is_an_error_and_never_nothing(
    box: RealSshd, tmp_path: Path, out: bytes
) -> None:
    async with await connect(box.spec) as connection:
        with pytest.raises(CommandFailed, match="rgt-box results: "):
            await request_results(connection, saying(tmp_path, out), box.spec)
        with pytest.raises(CommandFailed):
            await request_seal(connection, saying(tmp_path, out), box.spec)
        with pytest.raises(CommandFailed):
            await request_unseal(connection, saying(tmp_path, out), "n")


async def test_a_good_answer_with_a_bad_status_is_none(box: RealSshd, tmp_path: Path) -> None:
    out = json.dumps({"at": 1.0, "generation": "g", "groups": [GOOD]}).encode()
    async with await connect(box.spec) as connection:
        assert (await request_results(connection, saying(tmp_path, out), box.spec)).groups[
            0
        ].path == "/x"
        with pytest.raises(CommandFailed, match="exit 1"):
            await request_results(connection, saying(tmp_path, out, 1), box.spec)


async def test_an_agent_that_does_not_know_the_question_is_an_error(
    box: RealSshd, tmp_path: Path
) -> None:
    script = tmp_path / "old.sh"
    script.write_text("echo 'unknown verb: results' >&2; exit 2\n")
    async with await connect(box.spec) as connection:
        with pytest.raises(CommandFailed, match="rgt-box results: unknown verb: results"):
            await request_results(connection, DeployedAgent("/bin/sh", str(script)), box.spec)


async def test_words_of_the_box_come_without_what_a_terminal_obeys(
    box: RealSshd, tmp_path: Path
) -> None:
    evil = "\x1b]0;owned\x07x\u202ey"
    said = {
        "at": 1.0,
        "generation": "g",
        "groups": [GOOD | {"owner": evil, "problem": evil}],
        "problems": [evil],
    }
    said["skipped"] = [{"rule": evil, "files": 1, "bytes": 1}]
    seal = {"nonce": "a" * 32, "generation": "g", "at": 1.0, "seconds": 120.0, "busy": [evil]}
    seal |= {"problems": [evil], "mounts": []}
    seal["skipped"] = said["skipped"]
    async with await connect(box.spec) as connection:
        found = await request_results(
            connection, saying(tmp_path, json.dumps(said).encode()), box.spec
        )
        held = await request_seal(connection, saying(tmp_path, json.dumps(seal).encode()), box.spec)
    texts = [
        found.groups[0].owner,
        found.groups[0].problem,
        *found.problems,
        found.skipped[0].rule,
        *held.busy,
        *held.problems,
        held.skipped[0].rule,
    ]
    assert texts == ["xy"] * 7


async def test_a_box_that_hangs_or_is_lost_is_an_error_in_words(
    box: RealSshd, tmp_path: Path
) -> None:
    script = tmp_path / "hang.sh"
    script.write_text("sleep 1000\n")
    hanging = DeployedAgent("/bin/sh", str(script))
    async with await connect(box.spec) as connection:
        with pytest.raises(CommandFailed, match="rgt-box results did not end within"):
            await request_results(connection, hanging, box.spec, seconds=0.2)
        question = asyncio.create_task(request_results(connection, hanging, box.spec))
        await asyncio.sleep(0)
        connection.abort()
        with pytest.raises(BoxError):
            await question


async def test_the_running_session_lends_its_connection(
    box: RealSshd, job: Path, tmp_path: Path
) -> None:
    fleet = Fleet([described(box, job)], audit=tmp_path / "audit.jsonl")
    session = fleet._sessions["real"]
    with pytest.raises(Unreachable, match="real is not connected"):
        _ = session.agent
    live = asyncio.Event()
    fleet.subscribe(lambda state: live.set() if state.boxes[0].sample is not None else None)
    await fleet.start()
    try:
        async with asyncio.timeout(60):
            await live.wait()
        state = fleet.state.boxes[0]
        assert state.link is LinkState.LIVE and state.hello is not None and state.sample is not None
        assert state.sample.input_at == 0 and state.sample.transfers is not None
        found = await request_results(*session.agent, state.spec)
        assert f"{job}/out/a" in {group.path for group in found.groups}
        seal = await request_seal(*session.agent, state.spec)
        assert await request_unseal(*session.agent, seal.nonce)
    finally:
        await fleet.stop()
