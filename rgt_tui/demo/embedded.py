"""The embedded fleet: sandboxes, SSH servers and the local provider, started and taken down together."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncssh

from rgt_tui.demo import sandboxes
from rgt_tui.demo.plan import BOXES, DemoBox
from rgt_tui.demo.platforms import Change, LocalRunPod
from rgt_tui.demo.sandboxes import TRACES, Machine, Room
from rgt_tui.demo.sshd import HOST, BoxSshd
from rgt_tui.demo.workspace import DemoError, Workspace
from rgt_tui.model.box import BoxSpec, ProviderRef
from rgt_tui.ssh import trainer_root

KEY_ENV = "RGT_DEMO_KEY"
"""Environment variable in which the fleet looks for the local provider's key."""
POD_DISK_GB = 20.0
"""Disk sizes of its pods that the local provider bills for."""
NETWORK_GB = 10.0
"""Of a network volume; it outlives its pod, and bills on."""


class Embedded:
    """Three boxes on loopback. Use as an async context manager; leaving it takes everything down."""

    def __init__(self, boxes: Sequence[DemoBox] = BOXES, *, port_base: int | None = None) -> None:
        """Describe the fleet.

        Args:
            boxes: What to start.
            port_base: First of a row of SSH ports; None = any free ones. The provider takes the next after them.
        """
        self.boxes = tuple(boxes)
        self.specs: tuple[BoxSpec, ...] = ()
        self.machines: dict[str, Machine] = {}
        self.env: dict[str, str] = {}
        self.workspace: Workspace | None = None
        self.stopped: set[str] = set()
        """Boxes that the provider has stopped or terminated."""
        self._port_base = port_base
        self._room: Room | None = None
        self._sshds: dict[str, BoxSshd] = {}
        self._provider: LocalRunPod | None = None

    async def __aenter__(self) -> Embedded:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything.

        Raises:
            DemoError: with what is missing and what to do.
        """
        sandboxes.check_torch()
        await asyncio.to_thread(sandboxes.check)
        remote = trainer_root()
        await self._make_workspace()
        assert self.workspace is not None
        self._room = Room(self.workspace.path, self.boxes)
        await self._room.start()
        self.machines = {box.name: Machine(box, self._room, self.workspace, remote) for box in self.boxes}
        await asyncio.gather(*(machine.boot() for machine in self.machines.values()))
        await self._start_sshds(self.workspace.path)
        await self._start_provider()
        assert self._provider is not None
        url, folder = self._provider.base_url, self.workspace.path
        self.specs = tuple(described(box, folder, self._sshds[box.name].port, url) for box in self.boxes)
        self._write_ssh_config(self.workspace.path)

    async def _make_workspace(self) -> None:
        """Make the directory. A thread cannot be stopped: what it makes after a Ctrl-C has to be taken down, too."""
        making = asyncio.ensure_future(asyncio.to_thread(Workspace))
        try:
            await asyncio.shield(making)
        finally:
            self.workspace = await making

    async def stop(self) -> None:
        """Take everything down: no process, mount, cgroup or file stays."""
        if self._provider is not None:
            await self._provider.stop()
        await asyncio.gather(*(sshd.drop() for sshd in self._sshds.values()), return_exceptions=True)
        await asyncio.gather(*(m.scrap() for m in self.machines.values()), return_exceptions=True)
        if self._room is not None:
            await self._room.stop()
        if self.workspace is not None:
            workspace, self.workspace = self.workspace, None
            await asyncio.to_thread(workspace.close)

    @property
    def provider(self) -> LocalRunPod:
        """The control plane, once it was started."""
        assert self._provider is not None
        return self._provider

    async def cut(self, name: str) -> None:
        """Pull the plug of a box: every process dies, every connection drops."""
        await self._sshds[name].drop()
        await self.machines[name].unplug()

    async def restore(self, name: str) -> None:
        """Boot a box again, with the disks that survive, on the same port and with the same host key."""
        await self.machines[name].boot()
        await self._sshds[name].start()

    def spec(self, name: str) -> BoxSpec:
        """How to reach a box."""
        return next(spec for spec in self.specs if spec.name == name)

    def ssh_command(self, name: str) -> str:
        """Return the command with which a person logs in on a box."""
        assert self.workspace is not None
        return shlex.join(["ssh", "-F", str(self.workspace.path / "ssh_config"), name])

    async def _start_sshds(self, folder: Path) -> None:
        client = asyncssh.generate_private_key("ssh-ed25519", comment="rgt-demo")
        identity = folder / "id_ed25519"
        identity.touch(mode=0o600)
        identity.write_bytes(client.export_private_key())
        (folder / "authorized_keys").write_bytes(client.export_public_key())
        known = []
        for index, box in enumerate(self.boxes):
            host_key = asyncssh.generate_private_key("ssh-ed25519", comment=box.name)
            port = 0 if self._port_base is None else self._port_base + index
            sshd = BoxSshd(self.machines[box.name], host_key, folder / "authorized_keys", port)
            self._sshds[box.name] = sshd
            await sshd.start()
            known.append(f"[{HOST}]:{sshd.port} {host_key.export_public_key().decode()}")
        (folder / "known_hosts").write_text("".join(known))

    async def _start_provider(self) -> None:
        provider = self._provider = LocalRunPod(on_change=self._pod_changed)
        port = 0 if self._port_base is None else self._port_base + len(self.boxes)
        try:
            await provider.start(HOST, port)
        except OSError as error:
            raise DemoError(
                f"the local provider: {error}; leave out --port-base to use any free port"
            ) from error
        rent(provider, self.boxes, {name: sshd.port for name, sshd in self._sshds.items()})
        self.env = {KEY_ENV: provider.key}

    async def _pod_changed(self, change: Change) -> None:
        """Do to the sandbox what the provider does to the pod."""
        if change.action in ("stop", "terminate") and change.machine not in self.stopped:
            self.stopped.add(change.machine)
            await self.cut(change.machine)
        elif change.action == "start" and change.machine in self.stopped:
            self.stopped.discard(change.machine)
            await self.restore(change.machine)

    def _write_ssh_config(self, folder: Path) -> None:
        if shutil.which("ssh") is None:
            return
        lines = []
        for spec in self.specs:
            lines += [
                f"Host {spec.name}",
                f"  HostName {spec.host}",
                f"  Port {spec.port}",
                f"  User {spec.user}",
                f'  IdentityFile "{spec.identity}"',
                f'  UserKnownHostsFile "{spec.known_hosts}"',
                "  IdentitiesOnly yes",
                "",
            ]
        with contextlib.suppress(OSError):
            (folder / "ssh_config").write_text("\n".join(lines))


def rent(provider: LocalRunPod, boxes: Sequence[DemoBox], ports: Mapping[str, int]) -> None:
    """Let the local provider have a pod for each box that it answers for.

    It speaks as RunPod does: to a box of another platform it would tell another's rules and prices.

    Args:
        provider: The control plane.
        boxes: Those of the demo.
        ports: Where the SSH server of each listens: by that a box is known to be its pod.
    """
    for box in boxes:
        if box.control_plane:
            mounts = [disk.path for disk in box.disks if disk.tier == "network-volume"]
            networks = tuple((f"{box.name}-{place}", path) for place, path in enumerate(mounts))
            for volume, _ in networks:
                provider.add_volume(volume, NETWORK_GB)
            provider.add_pod(
                box.name,
                box.name,
                cost=box.per_hour,
                mount=box.data,
                persistent=POD_DISK_GB,
                disk=POD_DISK_GB,
                networks=networks,
                host=HOST,
                port=ports.get(box.name),
            )


def described(box: DemoBox, folder: Path, port: int, provider_url: str) -> BoxSpec:
    """Return a box as a fleet file describes it.

    Args:
        box: Its plan.
        folder: Where its key and known_hosts are.
        port: Of its SSH server.
        provider_url: Of the local provider.
    """
    ref = ProviderRef(kind=box.profile, instance=box.name, base_url=provider_url, key_env=KEY_ENV)
    return BoxSpec(
        name=box.name,
        host=HOST,
        port=port,
        user="root",
        profile=box.profile,
        identity=str(folder / "id_ed25519"),
        known_hosts=str(folder / "known_hosts"),
        ssh_config="none",
        mounts=tuple(disk.path for disk in box.disks),
        jobs=(box.job,),
        durable=box.durable,
        tiers={disk.path: disk.tier for disk in box.disks},
        python=sys.executable,
        gpu_trace=f"{TRACES}/{box.gpu}.json",
        provider=ref if box.control_plane else None,
        per_hour=None if box.control_plane else box.per_hour,
        currency=box.currency,
    )
