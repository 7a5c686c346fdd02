"""Real OpenSSH servers with options of their own, and one that gives nothing but a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh

from rgt_tui.model import BoxSpec
from tests.contract.ssh.conftest import keygen, wait_for_banner
from tests.free_ports import free_port

USER = "root" if os.geteuid() == 0 else os.environ.get("USER", "root")
BASE = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
LogLevel ERROR
SetEnv SHLVL=1 "PATH={path}"
"""
"""With that level bash reads no ~/.bashrc: those of who runs the tests are no part of them. One of pyenv is killed with
its session and leaves a lock, for which every later command waits a minute."""


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a short local program."""
    return subprocess.run(words, capture_output=True, text=True, check=False)


def ssh_keygen(*words: str) -> str:
    done = command("ssh-keygen", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_keys(folder: Path) -> None:
    for name in ("host_key", "id"):
        if not (folder / name).exists():
            keygen(folder / name)
    shutil.copy(folder / "id.pub", folder / "authorized_keys")


def spec_of(folder: Path, port: int, **fields: object) -> BoxSpec:
    described: dict[str, object] = {
        "name": "box",
        "host": "127.0.0.1",
        "port": port,
        "user": USER,
        "identity": str(folder / "id"),
        "known_hosts": str(folder / "known_hosts"),
        "ssh_config": "none",
    }
    return BoxSpec(**{**described, **fields})  # type: ignore[arg-type]


def trust(folder: Path, port: int, key: str = "host_key.pub") -> None:
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / key).read_text()}")


@contextlib.contextmanager
def sshd(
    folder: Path, options: str = "", *, port: int | None = None, wrapper: tuple[str, ...] = ()
) -> Iterator[int]:
    """Run an sshd with more options in front of the usual ones (the first value counts); yield its port."""
    make_keys(folder)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    port = port or free_port()
    config = folder / f"sshd_config.{port}"
    config.write_text(options + BASE.format(port=port, folder=folder, path=os.environ["PATH"]))
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    process = subprocess.Popen(
        [*wrapper, program, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE
    )
    try:
        wait_for_banner(port, process)
        trust(folder, port)
        yield port
    finally:
        # `unshare --fork` waits for its child whatever it is told; its death takes the whole namespace along.
        (process.kill if "--fork" in wrapper else process.terminate)()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


class _Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True


@contextlib.asynccontextmanager
async def terminal_only(
    folder: Path, shell: tuple[str, ...], greeting: bytes = b""
) -> AsyncIterator[int]:
    """Serve like a proxied SSH: an error for every command, a real shell on a real terminal, no subsystem."""
    make_keys(folder)
    running: set[asyncio.Task[None]] = set()

    def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        running.add(asyncio.create_task(terminal(process)))

    async def terminal(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if not process.term_type or process.command is not None:
            process.stdout.write(b"Error: Your SSH client doesn't support PTY\n")
            process.exit(1)
            return
        process.stdout.write(greeting)
        await _terminal(process, shell)

    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=_Server,
        server_host_keys=[str(folder / "host_key")],
        authorized_client_keys=str(folder / "authorized_keys"),
        process_factory=serve,
        encoding=None,
        line_editor=False,
    )
    try:
        port = server.get_port()
        trust(folder, port)
        yield port
    finally:
        server.close()
        await server.wait_closed()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _terminal(process: asyncssh.SSHServerProcess[bytes], shell: tuple[str, ...]) -> None:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    child = await asyncio.create_subprocess_exec(
        "setsid", "--ctty", "--wait", *shell, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    loop = asyncio.get_running_loop()
    output = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(os.dup(master), "rb", 0)
    )

    async def keys() -> None:
        while data := await process.stdin.read(1 << 12):
            # A terminal takes what fits; the rest would be lost, as on any real one.
            await asyncio.to_thread(os.write, master, data)

    feeder = asyncio.create_task(keys())
    try:
        with contextlib.suppress(OSError, asyncssh.Error):
            while data := await output.read(1 << 14):
                process.stdout.write(data)
        process.exit(0)
    finally:
        feeder.cancel()
        await asyncio.gather(feeder, return_exceptions=True)
        if child.returncode is None:
            child.kill()
        await child.wait()
        transport.close()
        os.close(master)
