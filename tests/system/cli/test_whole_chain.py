"""From renting to destroying by the documented commands, at the market of each platform, on a machine of real OpenSSH.

The machine that a market creates is an sshd with processes, a home and the users of an image of its own. It lets in the
key that the creation has brought, and is told from others by what the real platform gives: its id in the environment
of the first process, or its address.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.cli import FAILED, OK
from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer
from rgt_tui.fleet.config import load_fleet
from rgt_tui.gate import Journal
from rgt_tui.model import BoxSpec, ProviderRef
from rgt_tui.profiles import load_profile
from tests.contract.cli.conftest import Rgt
from tests.contract.providers.platform_outcomes import Row
from tests.contract.providers.platform_rows import ROWS
from tests.contract.ssh.conftest import ALONE, RealSshd, keygen, running_sshd

KEY, BOX = "SOME_KEY", "rented"
MARKETS = [row for row in ROWS if row.wish is not None]
RESULT = b"".join(b"%06d,%d\n" % (step, step * step % 1009) for step in range(400))
SCRIPT = """\
set -e
[ -n "$RGT_OUT" ]
step=0
while [ $step -lt 400 ]; do
  printf '%06d,%d\\n' $step $((step * step % 1009))
  step=$((step + 1))
done > "$RGT_OUT/losses.csv"
echo "step 400/400"
"""


@dataclass(frozen=True)
class Kind:
    """How a platform's fake keeps its machines, and how a machine of it is known."""

    machines: str
    """The attribute with the machines by their ids."""
    host: str
    """The attribute of a machine that says where it is."""
    named: str = ""
    """The variable of its first process that holds its id; empty = it does not say it, its address does."""
    port: str = ""
    """The attribute with its port; empty = the platform tells an address alone, and sshd is at 22."""


KINDS: Mapping[str, Kind] = {
    "runpod": Kind("pods", "host", "RUNPOD_POD_ID", "port"),
    "vastai": Kind("instances", "host", "CONTAINER_ID", "port"),
    "lambda": Kind("machines", "ip"),
    "digitalocean": Kind("droplets", "host"),
    "paperspace-core": Kind("machines", "ip"),
}
ROOM = """\
set -e
new=$1/root
mkdir "$new" "$1/data"
mount -t tmpfs tmpfs "$new"
for each in /* /home/*; do
  if [ -L "$each" ]; then cp -P "$each" "$new$each"
  elif [ -d "$each" ] && [ "$each" != /home ]; then mkdir -p "$new$each"; mount --rbind "$each" "$new$each"
  fi
done
mkdir -p "$new$2"
mount --bind "$1/data" "$new$2"
mount --bind "$1/passwd" "$new/etc/passwd"
cd /
shift 2
chroot "$new" "$@" || exit
"""
"""``ROOM FOLDER DATA COMMAND…``: in a tree of its own, with a disk at DATA, and users of its own, all of whom are root.

The shell stays the first process: sshd writes its title over its environment, in which the platform tells the id.
"""


def own_address() -> str:
    """Return an address of the loopback that no other process of this machine takes."""
    high, low = divmod(os.getpid() % 65_024, 254)
    return f"127.{77 + high // 256}.{high % 256}.{low + 1}"


def can_be_alone() -> bool:
    return (
        os.geteuid() == 0 and subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0
    )


@dataclass
class Chain:
    """A market, what it has created, and rgt at a shell beside it."""

    row: Row
    rgt: Rgt
    server: LocalServer
    folder: Path
    running: ExitStack
    made: dict[str, RealSshd] = field(default_factory=dict)
    """Its id → the machine."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.row.kind]

    @property
    def key(self) -> Path:
        return self.rgt.folder / "id.pub"

    def boots(
        self, answer: Callable[[LocalRequest], LocalResponse]
    ) -> Callable[[LocalRequest], LocalResponse]:
        """Let every machine that a request creates be a real one."""

        def handle(request: LocalRequest) -> LocalResponse:
            machines: dict[Any, Any] = getattr(self.server, self.kind.machines)
            before = set(machines)
            answered = answer(request)
            for new in set(machines) - before:
                machine = self.boot(str(new))
                if self.kind.port:
                    setattr(machines[new], self.kind.port, machine.port)
                setattr(
                    machines[new], self.kind.host, "127.0.0.1" if self.kind.port else own_address()
                )
            return answered

        return handle

    def boot(self, instance: str) -> RealSshd:
        folder = self.folder / f"machine-{len(self.made)}"
        folder.mkdir()
        users = folder / "passwd"
        root = next(
            line
            for line in Path("/etc/passwd").read_text().splitlines()
            if line.startswith("root:")
        )
        own = [f"{name}:{root.partition(':')[2]}" for name in ("ubuntu", "paperspace")]
        users.write_text("\n".join([Path("/etc/passwd").read_text().rstrip(), *own, ""]))
        data = load_profile(self.row.kind).overrides.data_dir or "/data"
        around = [
            "env",
            f"{self.kind.named or 'LANG'}={instance if self.kind.named else 'C.UTF-8'}",
        ]
        around += [*ALONE, "sh", "-c", ROOM, "sh", str(folder), data]
        options = "" if self.kind.port else f"ListenAddress {own_address()}:22\n"
        machine = self.running.enter_context(running_sshd(folder, around, options))
        lost = f"{data}:{folder}/home"  # What the rest of this machine holds could not be lost with the box.
        (folder / "home/.bashrc").write_text(f"export TMUX_TMPDIR={folder} RGT_ROOTS={lost}\n")
        (folder / "authorized_keys").write_text(self.key.read_text())
        self.made[instance] = machine
        return machine

    async def __call__(self, *words: str, ends: int = OK) -> subprocess.CompletedProcess[str]:
        done = await asyncio.to_thread(self.rgt.on, *words)
        last = done.stdout.splitlines()[-1:]
        why = [json.loads(line).get("reasons") for line in last if line.startswith("{")]
        assert done.returncode == ends, (
            f"{why}\n{done.stderr[-1500:]}\n{done.stdout[-3000:]}\n{words}"
        )
        return done

    async def told(self, *words: str) -> dict[str, Any]:
        """Run a command that prints JSON; return its last object."""
        found: dict[str, Any] = json.loads((await self(*words, "--json")).stdout.splitlines()[-1])
        return found

    def sent(self, verb: str) -> int:
        """Return how many requests of one kind have come; those to destroy name the machine in path or body."""
        begin = self.row.on[verb].replace(f"/{self.row.machine}", "")
        return sum(what.startswith(begin) for what in self.server.requests)


@pytest.fixture(
    # One that a box knows by a name in its environment, and one that it knows by its address; the others' own answers
    # are tested with `rgt up` and `rgt down` in tests/contract.
    params=[
        pytest.param(
            row, id=row.kind, marks=() if row.kind in ("runpod", "lambda") else pytest.mark.full
        )
        for row in MARKETS
    ]
)
async def chain(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Chain]:
    if not can_be_alone():
        pytest.skip("a machine with an address, users and processes of its own takes root")
    row: Row = request.param
    server = row.make(settle_s=0.0)
    rgt = Rgt(tmp_path, tmp_path / "fleet.toml", {KEY: server.key})
    keygen(tmp_path / "id")
    with ExitStack() as running:
        made = Chain(row, rgt, server, tmp_path_factory.mktemp("machines"), running)
        server.handle_request = made.boots(server.handle_request)
        await server.start()
        ref = ProviderRef(row.kind, row.machine, server.base_url, KEY)
        rgt.describe([BoxSpec(name="lab", host="lab.invalid", profile=row.kind, provider=ref)])
        yield made
        await server.stop()


async def test_up_push_run_pull_verify_down(chain: Chain) -> None:
    wish, top = chain.row.wish, chain.rgt.folder
    assert wish is not None
    code, home = top / "code", top / "results"
    code.mkdir()
    (code / "train.sh").write_text(SCRIPT)

    asked = ("up", BOX, "--gpu", wish.gpu, "--disk", str(wish.disk_gb), "--key", str(chain.key))
    shown = await chain.told(*asked, "--dry-run")
    assert chain.sent("create") == 0
    consent = ("--confirm", shown["phrase"], "--evidence", shown["digest"])
    await chain.told(*asked, *consent, "--accept-new-host-key", "--no-check")
    (instance,) = chain.made
    (spec,) = (spec for spec in load_fleet(chain.rgt.fleet) if spec.name == BOX)
    assert spec.provider is not None and spec.provider.instance == instance
    assert any(chain.key.read_text().split()[1].encode() in body for body in chain.server.bodies)

    pushed = (await chain.told("push", BOX, str(code)))["path"]
    await chain("run", BOX, "--wait", "--json", "--", "sh", f"{pushed}/train.sh")
    (written,) = chain.made[instance].folder.rglob("losses.csv")
    assert written.read_bytes() == RESULT

    down = ["down", BOX, "--destroy"]
    refused = json.loads((await chain(*down, "--dry-run", "--json", ends=FAILED)).stdout)
    lost = [item["path"] for item in refused["items"] if item["path"] and not item["ok"]]
    assert any("/runs/" in path for path in lost), lost
    assert pushed not in lost, "what was pushed can be pushed again"

    assert (await chain.told("pull", BOX, "--dest", str(home)))["ok"]
    (pulled,) = home.rglob("losses.csv")
    assert pulled.read_bytes() == RESULT
    assert json.loads((await asyncio.to_thread(chain.rgt, "verify", str(home), "--json")).stdout)[
        "ok"
    ]

    shown = await chain.told(*down, "--dry-run")
    assert (shown["reasons"], chain.sent("destroy")) == ([], 0)
    identity = next(item["text"] for item in shown["items"] if item["key"] == "identity")
    assert (chain.kind.named or "the address is the provider's") in identity
    assert chain.row.truth(chain.server, instance) == "on"
    consent = ("--confirm", shown["phrase"], "--evidence", shown["digest"])
    done = await chain.told(*down, *consent)
    assert done["steps"][-1]["phase"] == "meter-off"

    assert (chain.sent("create"), chain.sent("destroy")) == (1, 1), chain.server.requests
    assert chain.row.truth(chain.server, instance) == "gone"
    assert chain.row.truth(chain.server, chain.row.machine) == "on"
    assert pulled.read_bytes() == RESULT
    assert (await asyncio.to_thread(chain.rgt, "audit", "--verify")).returncode == 0
    assert Journal(top / ".local/state/rgt/journal").open_actions() == ((), ())
