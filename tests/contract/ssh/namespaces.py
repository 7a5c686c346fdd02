"""Hosts in network namespaces, one behind the other, each with a real sshd: only neighbours reach each other.

this machine ── gate ── inner ── box
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.contract.ssh.conftest import keygen
from tests.contract.ssh.servers import command

HOPS = ("gate", "inner", "box")
PORTS = {"gate": 2201, "inner": 22, "box": 2222}
CONFIG = """
Port {port}
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel ERROR
SetEnv "HOME={folder}/home" "XDG_CACHE_HOME={folder}/home/.cache" "PATH={path}"
"""


def unavailable(why: str) -> None:
    """End the test: an unprivileged person need not be able to run it (CI must: it lets nothing be skipped)."""
    pytest.skip(f"needs network namespaces: {why}")


def _a_net_of_its_own() -> tuple[socket.socket, int]:
    """Return the number of addresses that no other test of this machine has, and what holds it."""
    for number in range(80):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0rgt-test-net-{number}")
        except OSError:
            held.close()
            continue
        return held, number
    raise AssertionError("80 tests have nets of their own")


class Net:
    """The hosts. Each has a host key, a client key that opens it, and a known_hosts file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        mark = secrets.token_hex(3)
        self._names = {hop: f"rgt-{mark}-{hop}" for hop in HOPS}
        self._held, number = _a_net_of_its_own()
        third = 3 * number
        self.address = {hop: f"10.213.{third + place}.2" for place, hop in enumerate(HOPS)}
        self._near = {hop: f"10.213.{third + place}.1" for place, hop in enumerate(HOPS)}
        self._links = {hop: f"rgt{mark}{place}" for place, hop in enumerate(HOPS)}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Net:
        if os.geteuid() != 0:
            unavailable("this is not root")
        try:
            self._make()
            for hop in HOPS:
                self._prepare(hop)
                self.start(hop)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        before: str | None = None
        for hop in HOPS:
            name, link = self._names[hop], self._links[hop]
            done = command("ip", "netns", "add", name)
            if done.returncode != 0:
                unavailable(done.stderr.strip() or "ip netns add failed")
            inside = ("ip", "-n", before) if before else ("ip",)
            for words in (
                (
                    *inside,
                    "link",
                    "add",
                    link,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "up0",
                    "netns",
                    name,
                ),
                (*inside, "addr", "add", f"{self._near[hop]}/30", "dev", link),
                (*inside, "link", "set", link, "up"),
                ("ip", "-n", name, "addr", "add", f"{self.address[hop]}/30", "dev", "up0"),
                ("ip", "-n", name, "link", "set", "up0", "up"),
                ("ip", "-n", name, "link", "set", "lo", "up"),
            ):
                done = command(*words)
                if done.returncode != 0:
                    unavailable(f"{' '.join(words)}: {done.stderr.strip()}")
            before = name

    def _prepare(self, hop: str) -> None:
        folder = self.folder / hop
        (folder / "home").mkdir(parents=True)
        for key in ("host_key", "id"):
            keygen(folder / key)
        shutil.copy(folder / "id.pub", folder / "authorized_keys")
        self.trust(hop)
        config = CONFIG.format(
            port=PORTS[hop], address=self.address[hop], folder=folder, path=os.environ["PATH"]
        )
        (folder / "sshd_config").write_text(config)

    def name_of(self, hop: str) -> str:
        """The name in known_hosts."""
        port = PORTS[hop]
        return self.address[hop] if port == 22 else f"[{self.address[hop]}]:{port}"

    def trust(self, hop: str) -> None:
        """Let the hop's known_hosts have its key."""
        folder = self.folder / hop
        (folder / "known_hosts").write_text(
            f"{self.name_of(hop)} {(folder / 'host_key.pub').read_text()}"
        )

    def ssh_config(self, extra: str = "", *, chain: bool = False) -> Path:
        """Write an ssh_config by which `box` is reached, hop behind hop or by one list."""
        jumps = {"gate": "none", "inner": "gate", "box": "inner"}
        if chain:
            jumps = {"gate": "none", "inner": "nowhere", "box": "gate,inner"}
        lines = [extra]
        for hop in HOPS:
            folder = self.folder / hop
            lines.append(
                f"Host {hop}\n  HostName {self.address[hop]}\n  Port {PORTS[hop]}\n  ProxyJump {jumps[hop]}\n"
                f"  IdentityFile {folder}/id\n  UserKnownHostsFile {folder}/known_hosts\n"
            )
        lines.append("Host *\n  User root\n  IdentitiesOnly yes\n  GlobalKnownHostsFile none\n")
        path = self.folder / "ssh_config"
        path.write_text("\n".join(lines))
        return path

    def start(self, hop: str) -> None:
        """Start the hop's sshd and wait until it listens."""
        Path("/run/sshd").mkdir(exist_ok=True)
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        config = str(self.folder / hop / "sshd_config")
        self._servers[hop] = server = subprocess.Popen(
            ["ip", "netns", "exec", self._names[hop], program, "-D", "-e", "-f", config],
            stderr=subprocess.PIPE,
        )
        while f":{PORTS[hop]} " not in self.inside(hop, "ss", "-ltn").stdout:
            if server.poll() is not None:
                assert server.stderr is not None
                raise RuntimeError(f"sshd of {hop} ended: {server.stderr.read().decode()}")

    def inside(self, hop: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program on a hop."""
        return command("ip", "netns", "exec", self._names[hop], *words)

    def kill(self, hop: str) -> None:
        """Kill the hop's sshd and all of its connections."""
        for pid in command("ip", "netns", "pids", self._names[hop]).stdout.split():
            command("kill", "-9", pid)
        server = self._servers.pop(hop, None)
        if server is not None:
            server.wait()
            assert server.stderr is not None
            server.stderr.close()

    def close(self) -> None:
        """Take everything down."""
        for hop in HOPS:
            self.kill(hop)
            command("ip", "netns", "del", self._names[hop])
        command("ip", "link", "del", self._links["gate"])
        self._held.close()
