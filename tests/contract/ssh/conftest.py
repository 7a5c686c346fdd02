"""A real OpenSSH server per test session, on a loopback port, with keys of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rgt_tui.model import BoxSpec
from tests.free_ports import free_port

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
LogLevel ERROR
Subsystem sftp internal-sftp
SetEnv "HOME={folder}/home" "XDG_CACHE_HOME={folder}/home/.cache" "PATH={path}" "RGT_FIND_SECONDS=0.5" \
"RGT_SPARE_DIRS={folder}/spare" "RGT_ROOTS={folder}/box" "RGT_TERMINALS=" "RGT_AUTOSTOP_PACE=0.02"
"""
"""On this box nobody types, and all that could be lost lies below ``FOLDER/box``."""


ALONE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
"""Processes of its own: the agent finds whatever trains on a machine, and other tests do train."""


@dataclass(frozen=True)
class RealSshd:
    """A running sshd: where it listens and how to log in."""

    folder: Path
    port: int
    spec: BoxSpec


def keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


@pytest.fixture(scope="session")
def real_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    """Give a box whose processes are this machine's: a test can start trainings on it, or kill its agent."""
    with running_sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running
        stop_recorder(running)


@pytest.fixture(scope="session")
def lone_sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    """Give a box that has nothing but its own processes.

    Otherwise its agent finds what other tests train, and a pull goes through all their directories.
    """
    with fresh_sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@contextmanager
def fresh_sshd(folder: Path, options: str = "") -> Iterator[RealSshd]:
    """Run a box with processes of its own, where this machine allows that, and with these options of sshd."""
    alone = (
        shutil.which("unshare")
        and subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0
    )
    with running_sshd(folder, ALONE if alone else (), options) as running:
        yield running
        if not alone:  # otherwise the kernel ends everything on this "box"
            stop_recorder(running)


def stop_recorder(running: RealSshd) -> None:
    """The recorder outlives every connection, and must not outlive the tests."""
    for agent in (running.folder / "home/.cache/rgt").glob("rgt-box-*.pyz"):
        state = {**os.environ, "XDG_CACHE_HOME": str(agent.parent.parent)}
        subprocess.run(
            [sys.executable, "-I", "-S", str(agent), "record", "--stop"], env=state, check=False
        )


@contextmanager
def running_sshd(folder: Path, around: Sequence[str] = (), options: str = "") -> Iterator[RealSshd]:
    """Run an sshd; `around` is a command that runs another one, such as `unshare`, `options` are lines of its own."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    (folder / "home").mkdir()
    (folder / "box").mkdir()
    for name in ("host_key", "id", "stranger"):
        keygen(folder / name)
    shutil.copy(folder / "id.pub", folder / "authorized_keys")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where OpenSSH drops its privileges
    port = free_port()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    described = CONFIG.format(port=port, folder=folder, path=path)
    (folder / "sshd_config").write_text(f"{described}{options}\n")
    host_key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    process = subprocess.Popen(
        [*around, sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.PIPE
    )
    try:
        wait_for_banner(port, process)
        user = os.environ.get("USER") or "root"
        spec = BoxSpec(
            name="real",
            host="127.0.0.1",
            port=port,
            user=user if os.geteuid() else "root",
            identity=str(folder / "id"),
            known_hosts=str(folder / "known_hosts"),
            ssh_config="none",
            python=sys.executable,
        )
        yield RealSshd(folder=folder, port=port, spec=spec)
    finally:
        # `unshare` waits for its child whatever it is told; its death takes the whole namespace along.
        (process.kill if around else process.terminate)()
        process.wait()


def wait_for_banner(port: int, process: subprocess.Popen[bytes]) -> None:
    """Retry to connect until the server greets; fail with its own words when it ends first."""
    while True:
        if process.poll() is not None:
            assert process.stderr is not None
            raise RuntimeError(f"sshd ended: {process.stderr.read().decode()}")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
                if sock.recv(4) == b"SSH-":
                    return
        except ConnectionRefusedError:
            continue
