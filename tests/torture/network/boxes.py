"""Many boxes on this machine: a real sshd, a state directory and a boot id each; and a writer that feeds them all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from rgt_tui.model import BoxSpec
from tests.contract.ssh.conftest import keygen, wait_for_banner
from tests.free_ports import free_port
from tests.process.box.harness import make_job
from tests.torture.network import writer as writers

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {keys}/host_key
AuthorizedKeysFile {keys}/authorized_keys
PidFile {home}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
LogLevel ERROR
SetEnv {env}
"""


@dataclass
class Place:
    """One box: where it listens, lives and writes."""

    name: str
    port: int
    home: Path
    keys: Path
    boot: str
    more: tuple[str, ...] = ()
    """Further ``NAME=value`` of its environment."""
    job: Path = field(default_factory=Path)
    server: subprocess.Popen[bytes] | None = None

    def environment(self, path: str) -> tuple[str, ...]:
        """Return what every process of the box has in its environment."""
        return (
            f"HOME={self.home}",
            f"XDG_CACHE_HOME={self.home}/.cache",
            f"RGT_RAM_DIR={self.home}/ram",
            f"RGT_BOOT_ID={self.boot}",
            f"PATH={path}",
            *self.more,
        )

    @property
    def log(self) -> Path:
        """Log of its one cell."""
        return self.job / "logs" / "a.log"

    @property
    def metrics(self) -> Path:
        """Metrics of its one cell."""
        return self.job / "out" / "a" / "metrics.jsonl"

    def start(self) -> None:
        """Start the server, or start it again with what has changed."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = " ".join(f'"{word}"' for word in self.environment(path))
        config = self.home / "sshd_config"
        config.write_text(CONFIG.format(port=self.port, keys=self.keys, home=self.home, env=env))
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        self.server = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE
        )
        wait_for_banner(self.port, self.server)

    def kill_server(self) -> None:
        """``kill -9`` the listening server and the process of every connection."""
        assert self.server is not None
        for pid in (self.server.pid, *descendants(self.server.pid)):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                    os.kill(pid, signal.SIGKILL)
        self.server.communicate()

    def kill_agents(self, *verbs: str) -> int:
        """``kill -9`` the box's agent processes of these verbs; returns how many there were."""
        pids = [pid for verb, found in self.agents().items() if verb in verbs for pid in found]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def stop(self) -> None:
        """End the server, and everything that the box left running."""
        if self.server is not None:
            self.kill_server()  # the processes of connections too: one that is left would hold the pipe open
        self.kill_agents("watch", "record")

    def agents(self) -> dict[str, list[int]]:
        """Return the pids of this box's agent processes by verb, found by their environment."""
        found: dict[str, list[int]] = {"watch": [], "record": []}
        mark = f"HOME={self.home}\0".encode()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if mark not in (folder / "environ").read_bytes():
                    continue
                words = (folder / "cmdline").read_bytes().split(b"\0")
                for verb in found:
                    if any(b"rgt-box-" in word for word in words) and verb.encode() in words:
                        found[verb].append(int(folder.name))
        return found


class Boxes:
    """All boxes, and the keys that they share.

    Args:
        folder: Everything of it is below.
        count: How many boxes.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        for name in ("host_key", "id"):
            keygen(folder / name)
        shutil.copy(folder / "id.pub", folder / "authorized_keys")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.places: list[Place] = []
        for number in range(count):
            home = folder / f"box-{number:02d}"
            (home / "ram").mkdir(parents=True)
            place = Place(f"box-{number:02d}", free_port(), home, folder, f"boot-{number:02d}-a")
            place.job = make_job(home / "job", ["true"], ["a"])
            (place.job / "logs").mkdir()
            place.metrics.parent.mkdir(parents=True)
            self.places.append(place)

    def start(self) -> None:
        """Start every server."""
        for place in self.places:
            place.start()

    def stop(self) -> None:
        """End the servers, and everything that the boxes left running."""
        for place in self.places:
            place.stop()

    def spec(self, place: Place, port: int) -> BoxSpec:
        """Return the description of a box that is reached through `port`."""
        known = place.home / "known_hosts"
        known.write_text(f"[127.0.0.1]:{port} {(self._folder / 'host_key.pub').read_text()}")
        return BoxSpec(
            name=place.name,
            host="127.0.0.1",
            port=port,
            user="root" if os.geteuid() == 0 else os.environ["USER"],
            identity=str(self._folder / "id"),
            known_hosts=str(known),
            python=sys.executable,
            jobs=(str(place.job),),
            mounts=("/",),
        )


def descendants(pid: int) -> list[int]:
    """Return all processes below one."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(folder.name))
    out: list[int] = []
    todo = [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        out += below
        todo += below
    return out


@contextlib.asynccontextmanager
async def writing(places: list[Place]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the writer for all places; `finish` ends it and tells how much it wrote."""
    words = [f"{place.log}={place.metrics}" for place in places]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        writers.__file__,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def finish(process: asyncio.subprocess.Process) -> int:
    """End the writer; return the number of the last line, the same for every place."""
    out, _ = await process.communicate(b"")
    return int(json.loads(out)["last"])
