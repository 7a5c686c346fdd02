"""Boxes that cannot run the agent: no Python, or nothing but a terminal; with real shells and a real sshd."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.model import BoxSpec, ControlLine, Frame, Hello, Sample, SampleCursor, WatchConfig
from rgt_tui.ssh import (
    BoxStream,
    NoCommands,
    ProbeFailed,
    ShellProbe,
    Unreachable,
    build_agent,
    connect,
    has_sftp,
    open_channel,
    start_watch,
)
from rgt_tui.ssh import channel as channels
from rgt_tui.ssh import sh_probe as shells
from rgt_tui.ssh.deployment import PLACES
from rgt_tui.ssh.remote_command import open_session
from rgt_tui.ssh.sh_probe import open_shell
from tests.contract.ssh.servers import spec_of, sshd, terminal_only

SHELLS = {"dash": ("dash",), "bash": ("bash", "--norc", "-i"), "busybox": ("busybox", "sh", "-i")}
SECONDS = 60.0


class Frames:
    """What came, with a way to wait for more."""

    def __init__(self) -> None:
        self.all: list[Frame] = []
        self.bad = 0
        self._news = asyncio.Event()

    def add(self, frame: Frame) -> None:
        self.all.append(frame)
        self._news.set()

    def count(self, number: int) -> None:
        self.bad += number

    @property
    def samples(self) -> list[Sample]:
        return [frame for frame in self.all if isinstance(frame, Sample)]

    async def until(self, samples: int) -> list[Sample]:
        async with asyncio.timeout(SECONDS):
            while len(self.samples) < samples:
                self._news.clear()
                await self._news.wait()
        return self.samples


@asynccontextmanager
async def watching(spec: BoxSpec, config: WatchConfig) -> AsyncIterator[tuple[BoxStream, Frames]]:
    frames = Frames()
    connection = await connect(spec)
    running = None
    try:
        running = await start_watch(connection, build_agent(), (), config, frames.add, frames.count)
        yield running, frames
    finally:
        if running is not None:
            running.channel.close()
        connection.abort()
        await connection.wait_closed()


def without_python(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return sshd options and a wrapper for a machine on which no Python is found.

    PATH leads to busybox alone, and in a mount namespace of the server's own an empty file covers the interpreters
    that the agent is looked for with by their full path.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root: it covers the system's Python in a mount namespace")
    applets = folder / "applets"
    applets.mkdir()
    busybox = shutil.which("busybox")
    assert busybox is not None
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        (applets / name).symlink_to(busybox)
    places = [place for place in PLACES if place.startswith("/")]
    hidden = sorted(
        {str(found.resolve()) for place in places for found in Path("/").glob(place[1:])}
    )
    cover = "".join(f"mount --bind /dev/null {path} && " for path in hidden)
    wrapper = (
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        cover + 'exec "$0" "$@"',
    )
    return f'SetEnv "PATH={applets}" "HOME={folder}"\n', wrapper


async def test_a_box_without_python_gives_samples_and_says_what_it_lacks(tmp_path: Path) -> None:
    options, wrapper = without_python(tmp_path)
    config = WatchConfig(interval=1.0, mounts=("/dev/shm", "/does/not/exist"))
    with sshd(tmp_path, options, wrapper=wrapper) as port:
        async with watching(spec_of(tmp_path, port), config) as (running, frames):
            first, second, *_ = await frames.until(2)
    assert isinstance(running.channel, ShellProbe)
    assert "no Python 3.8" in running.limited[0]
    assert "no log, no curve" in running.limited[0]
    hello = frames.all[0]
    assert isinstance(hello, Hello)
    assert (hello.agent, hello.limited, hello.boot) == ("sh", running.limited, first.boot)
    assert (first.seq, second.seq) == (1, 2)
    assert second.at >= first.at
    root, memory, missing = first.disks
    actual = os.statvfs("/")
    assert root.bytes_total == pytest.approx(actual.f_blocks * actual.f_frsize, rel=0.01)
    assert root.inodes_total == (actual.f_files or None)
    assert not root.read_only
    assert (memory.mount, memory.kind, memory.error) == ("/dev/shm", "tmpfs", None)
    assert missing.error == "there is no such directory"
    assert first.mem.host_total == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert first.mem.host_used is not None
    assert 0 < first.mem.host_used < first.mem.host_total
    assert first.cpu.load1 is not None
    assert first.session.uptime_s is not None
    assert "cannot see" in (first.unseen or "")
    assert frames.bad == 0


async def test_a_training_on_a_box_without_python_is_seen_by_its_command_line(
    tmp_path: Path,
) -> None:
    """Its arguments are not told: they may hold a key, and a line feed in them is no line of the probe's."""
    options, wrapper = without_python(tmp_path)
    script = tmp_path / "train_here.py"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(3600)\n")
    python = (
        tmp_path / "python"
    )  # the probe shows a command up to its second blank, and this tree may stand at one
    python.symlink_to(sys.executable)
    words = [str(python), str(script), "--wandb-key", "S3CRET", "x\nRGT g 0, forged", r"x\nRGT u 7"]
    config = WatchConfig(interval=1.0, pattern="train_here")
    training = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    try:
        assert training.stdout is not None
        assert await training.stdout.readline() == b"up\n"
        with sshd(tmp_path, options, wrapper=wrapper) as port:
            async with watching(spec_of(tmp_path, port), config) as (_, frames):
                first = (await frames.until(1))[0]
    finally:
        training.kill()
        await training.wait()
    (proc,) = first.procs
    assert (proc.pid, proc.cmd) == (training.pid, f"{python} {script} …")
    assert abs(proc.started - time.time()) < SECONDS and (proc.rss or 0) > 1 << 20
    assert "cannot see" in (first.unseen or "")
    assert first.session.uptime_s != 7 and "forged" not in str(first.gpus)


async def test_the_sequence_goes_on_after_a_reconnect(tmp_path: Path) -> None:
    options, wrapper = without_python(tmp_path)
    with sshd(tmp_path, options, wrapper=wrapper) as port:
        async with watching(spec_of(tmp_path, port), WatchConfig()) as (_, frames):
            last = (await frames.until(2))[-1]
        after = WatchConfig(samples_after=SampleCursor(boot=last.boot, seq=last.seq))
        async with watching(spec_of(tmp_path, port), after) as (_, frames):
            assert (await frames.until(1))[0].seq == last.seq + 1


async def test_no_place_for_the_agent_is_no_reason_to_see_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/.cache").write_text("a file where the agent's folder should be")
    options = f'SetEnv "HOME={tmp_path}/home" "XDG_CACHE_HOME={tmp_path}/home/.cache" "RGT_SPARE_DIRS=/none"\n'
    with sshd(tmp_path, options) as port:
        async with watching(spec_of(tmp_path, port), WatchConfig()) as (running, frames):
            assert await frames.until(1)
    assert "cannot write the agent" in running.limited[0]
    assert "retry" in running.limited[0]


@pytest.mark.parametrize("name", SHELLS)
async def test_a_terminal_alone_is_recognised_and_used(name: str, tmp_path: Path) -> None:
    greeting = b"\r\n\x1b[1m-- A PROXY --\x1b[0m\r\nEnjoy your Pod!\r\n"
    async with (
        terminal_only(tmp_path, SHELLS[name], greeting) as port,
        watching(spec_of(tmp_path, port), WatchConfig()) as (running, frames),
    ):
        first, second, *_ = await frames.until(2)
    assert "doesn't support PTY" in running.limited[0]
    assert "terminal only" in running.limited[0]
    assert "SFTP" in running.limited[1]
    assert (first.seq, second.seq) == (1, 2)
    assert first.disks[0].bytes_total
    assert first.mem.host_total
    assert frames.bad == 0


async def test_the_interval_can_be_changed_on_the_way(tmp_path: Path) -> None:
    async with (
        terminal_only(tmp_path, SHELLS["dash"]) as port,
        watching(spec_of(tmp_path, port), WatchConfig(interval=3600.0)) as (running, frames),
    ):
        await frames.until(1)
        running.channel.send(ControlLine(op="interval", seconds=1.0))
        assert len(await frames.until(3)) >= 3


async def test_a_box_without_any_shell_is_said_to_be_one(tmp_path: Path) -> None:
    with sshd(
        tmp_path, "ForceCommand echo 'This account is currently not available.'; exit 1\n"
    ) as port:
        connection = await connect(spec_of(tmp_path, port))
        frames = Frames()
        with pytest.raises(NoCommands, match="not available"):
            await start_watch(
                connection, build_agent(), (), WatchConfig(), frames.add, frames.count
            )
        connection.abort()


async def closed_at_once(connection: Any, factory: Any, command: str | None, **more: Any) -> Any:
    """Open a session as ever, and go on once the box has closed it."""
    opened: Any = await open_session(connection, factory, command, **more)
    async with asyncio.timeout(SECONDS):
        while not opened.is_closing():  # noqa: ASYNC110  (nothing tells when a channel closes)
            await asyncio.sleep(0.01)
    return opened


async def test_what_closes_before_anything_is_sent_to_it_is_told_by_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shells, "open_session", closed_at_once)
    monkeypatch.setattr(channels, "open_session", closed_at_once)
    with sshd(
        tmp_path, "ForceCommand echo 'This account is currently not available.'; exit 3\n"
    ) as port:
        connection = await connect(spec_of(tmp_path, port))
        for terminal in (False, True):
            with pytest.raises(NoCommands, match="not available"):
                await open_shell(connection, "echo first\n", terminal=terminal)
        frames = Frames()
        channel = await open_channel(connection, "watch", WatchConfig(), frames.add, frames.count)
        channel.send(ControlLine(op="ping", id=1))
        async with asyncio.timeout(SECONDS):
            assert "its login shell ended with 3 before the command" in await channel.wait()
        connection.abort()


async def test_a_garbled_script_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shells, "cksum_of", lambda _: 1)
    with sshd(tmp_path) as port:
        connection = await connect(spec_of(tmp_path, port))
        with pytest.raises(ProbeFailed, match="arrived damaged"):
            await open_shell(connection, f"touch {tmp_path}/ran\n", terminal=False)
        connection.abort()
    assert not (tmp_path / "ran").exists()


async def test_nothing_that_a_script_says_is_lost_however_late_one_listens(tmp_path: Path) -> None:
    with sshd(tmp_path) as port:
        connection = await connect(spec_of(tmp_path, port))
        shell = await open_shell(connection, "echo first; echo second\n", terminal=False)
        async with asyncio.timeout(SECONDS):
            await shell.ended
        lines: list[str] = []
        shell.set_listener(lines.append)
        assert lines == ["first", "second"]
        connection.abort()


async def test_a_probe_that_ends_tells_why(tmp_path: Path) -> None:
    with sshd(tmp_path) as port:
        connection = await connect(spec_of(tmp_path, port))
        shell = await open_shell(connection, "exit 3\n", terminal=False)
        async with asyncio.timeout(SECONDS):
            assert await shell.ended == "the shell on the box ended with 3"
        connection.abort()


async def test_a_box_without_sftp_is_told_from_one_with_it(tmp_path: Path) -> None:
    for options, expected in (("", False), ("Subsystem sftp internal-sftp\n", True)):
        with sshd(tmp_path, options) as port:
            connection = await connect(spec_of(tmp_path, port))
            assert await has_sftp(connection) is expected
            connection.abort()
            with pytest.raises(Unreachable, match="the connection was lost"):
                await has_sftp(connection)
    async with terminal_only(tmp_path, SHELLS["dash"]) as port:
        connection = await connect(spec_of(tmp_path, port))
        assert not await has_sftp(connection)
        connection.abort()
