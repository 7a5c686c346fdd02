"""The embedded fleet: sandboxes, SSH servers and control planes, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncssh
import msgspec

from rgt_tui.demo import sandboxes
from rgt_tui.demo.local_autodl import PRO, LocalAutodl
from rgt_tui.demo.local_runpod import LocalRunPod
from rgt_tui.demo.local_server import LocalServer, MachineChange
from rgt_tui.demo.local_vast import LocalVast
from rgt_tui.demo.plan import BOXES, DemoBox
from rgt_tui.demo.sandboxes import TRACES, DiskNamespace, SandboxMachine
from rgt_tui.demo.sshd import HOST, BoxSshd
from rgt_tui.demo.workspace import DemoError, Workspace, kill_marked
from rgt_tui.model import BoxSpec, ProviderRef
from rgt_tui.ssh import trainer_root

END_SECONDS = 6.0
"""Maximum seconds for all steps of the demo's end. The next demo removes what still hangs then."""

log = logging.getLogger("rgt.demo")
KEY_ENV = "RGT_DEMO_KEY"
"""Environment variable with the API key for all of the demo's providers."""
OWN_KEYS = {"runpod": "RUNPOD_API_KEY", "vastai": "CONTAINER_API_KEY"}
"""Variable with the key that a platform gives the machine itself
(https://docs.runpod.io/runpodctl/overview, 2026-06;
https://docs.vast.ai/guides/instances/docker-environment, 2026-11)."""
# Billed as such while the tmpfs are small: costs should look like those of a real machine.
DISK_GB = 20.0
"""Billed size of each disk of a machine."""
NETWORK_GB = 10.0
"""Size of a volume that outlives its machine and is billed further."""
VAST_STORAGE = 0.15
"""$ per GB and month, which every host of vast.ai sets individually."""


async def run_with_deadline(*works: Awaitable[object], seconds: float) -> None:
    """Run awaitables concurrently, and cancel those that are not done after `seconds`.

    One that ignores the cancellation is not waited for either.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        if tasks:
            # Not wait_for, which would wait for a work that ignores its cancellation.
            await asyncio.wait(tasks, timeout=max(0.0, seconds))
    finally:
        for task in tasks:
            if not task.done():
                task.cancel()
            elif not task.cancelled() and (error := task.exception()) is not None:
                log.error("the demo's end: %r", error)


class EmbeddedFleet:
    """Three boxes on loopback, as an async context manager that stops everything at its end."""

    def __init__(self, boxes: Sequence[DemoBox] = BOXES, *, port_base: int | None = None) -> None:
        """Describe the fleet.

        Args:
            boxes: The boxes to start.
            port_base: First of consecutive SSH ports; None for any free ones. The control planes
                use the ports after them.
        """
        self.boxes = tuple(map(with_own_key, boxes))
        self.specs: tuple[BoxSpec, ...] = ()
        self.machines: dict[str, SandboxMachine] = {}
        self.env: dict[str, str] = {}
        self.workspace: Workspace | None = None
        self.stopped: set[str] = set()
        """Boxes that their control plane has stopped or terminated."""
        self._port_base = port_base
        self._room: DiskNamespace | None = None
        self._sshds: dict[str, BoxSshd] = {}
        self._planes = ControlPlanes(self.boxes, self._apply_action)
        self._end_at: float | None = None
        """Deadline of the shutdown, in loop time; None before it has begun."""

    async def __aenter__(self) -> EmbeddedFleet:
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
            DemoError: With the missing requirement and what to do.
        """
        sandboxes.check_torch()
        await asyncio.to_thread(sandboxes.check_sandboxes)
        # Before anything is made: a missing trainer should leave nothing to remove.
        remote = trainer_root()
        await self._make_workspace()
        assert self.workspace is not None
        self._room = DiskNamespace(self.workspace.path, self.boxes)
        await self._room.start()
        self.machines = {
            box.name: SandboxMachine(box, self._room, self.workspace, remote) for box in self.boxes
        }
        await self._start_sshds(self.workspace.path)
        if self._port_base is None:
            base = None
        else:
            base = self._port_base + len(self.boxes)
        # After the SSH servers, whose ports the provider answers with.
        await self._planes.start({name: sshd.port for name, sshd in self._sshds.items()}, base)
        self.env = self._planes.env
        for box in self.boxes:
            if box.profile == "autodl":
                program = shutdown_program(box, self.find_control_plane(box.name))
                self.machines[box.name].programs["shutdown"] = program
        # Last: what a platform adds to a machine may name its control plane.
        await asyncio.gather(*(machine.boot() for machine in self.machines.values()))
        folder = self.workspace.path
        self.specs = tuple(
            describe_box(
                box, folder, self._sshds[box.name].port, self.find_control_plane(box.name).base_url
            )
            for box in self.boxes
        )
        self._write_ssh_config(self.workspace.path)

    async def _make_workspace(self) -> None:
        """Create the directory.

        A thread cannot be cancelled, so wait for it and let `stop` remove its result.
        """
        making = asyncio.ensure_future(asyncio.to_thread(Workspace))
        try:
            await asyncio.shield(making)
        finally:
            self.workspace = await making

    async def kill(self) -> None:
        """Kill every process of the boxes at once: a hanging one would delay all later steps."""
        if self.workspace is not None:
            await asyncio.to_thread(kill_marked, str(self.workspace.path))

    async def stop(self) -> None:
        """Stop everything within `END_SECONDS`: no process, mount, cgroup or file remains."""
        now = asyncio.get_running_loop().time
        if self._end_at is None:
            self._end_at = now() + END_SECONDS
        await run_with_deadline(self.kill(), seconds=self._end_at - now())
        servers = (self._planes.stop(), *(sshd.drop_connections() for sshd in self._sshds.values()))
        # Seconds that the demo's end waits for its SSH servers and control planes; a hanging
        # connection is then abandoned.
        servers_seconds = 2.0
        await run_with_deadline(*servers, seconds=min(servers_seconds, self._end_at - now()))
        await run_with_deadline(
            *(machine.remove_machine() for machine in self.machines.values()),
            seconds=self._end_at - now(),
        )
        if self._room is not None:
            await run_with_deadline(self._room.stop(), seconds=self._end_at - now())
        if self.workspace is not None:
            workspace, self.workspace = self.workspace, None
            await asyncio.to_thread(workspace.close, self._end_at - now())

    def find_control_plane(self, name: str) -> LocalServer:
        """Return the control plane of a box, once it is started."""
        return self._planes.find_server(name)

    async def cut_power(self, name: str) -> None:
        """Cut the power of a box: every process dies, every connection drops."""
        await self._sshds[name].drop_connections()
        await self.machines[name].power_off()

    async def boot_again(self, name: str) -> None:
        """Boot a box again with its surviving disks, the same port and the same host key."""
        await self.machines[name].boot()
        await self._sshds[name].start()

    def find_box_spec(self, name: str) -> BoxSpec:
        """Return the connection settings of a box."""
        return next(spec for spec in self.specs if spec.name == name)

    def ssh_command(self, name: str) -> str:
        """Return the command with which a user logs in on a box."""
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
            if self._port_base is None:
                port = 0
            else:
                port = self._port_base + index
            sshd = BoxSshd(self.machines[box.name], host_key, folder / "authorized_keys", port)
            self._sshds[box.name] = sshd
            await sshd.start()
            known.append(f"[{HOST}]:{sshd.port} {host_key.export_public_key().decode()}")
        (folder / "known_hosts").write_text("".join(known))

    async def _apply_action(self, name: str, action: str) -> None:
        """Apply an action of the control plane to the sandbox."""
        if action in ("stop", "terminate") and name not in self.stopped:
            self.stopped.add(name)
            await self.cut_power(name)
        elif action == "start" and name in self.stopped:
            self.stopped.discard(name)
            await self.boot_again(name)

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


def with_own_key(box: DemoBox) -> DemoBox:
    """Return a box with the key that its platform puts into the machine's environment, if it does."""
    name = OWN_KEYS.get(box.profile)
    if name is None:
        return box
    own = {name: secrets.token_urlsafe(24)}
    return msgspec.structs.replace(box, environment={**box.environment, **own})


def describe_box(box: DemoBox, folder: Path, port: int, provider_url: str) -> BoxSpec:
    """Return a box as in a fleet file.

    Args:
        box: Its plan.
        folder: Where its key and known_hosts are.
        port: Port of its SSH server.
        provider_url: URL of its control plane.
    """
    ref = ProviderRef(
        kind=box.profile, instance=box.instance, base_url=provider_url, key_env=KEY_ENV
    )
    return BoxSpec(
        name=box.name,
        host=HOST,
        port=port,
        user="root",
        profile=box.profile,
        identity=str(folder / "id_ed25519"),
        known_hosts=str(folder / "known_hosts"),
        # The person's own ssh_config must not apply to the demo's boxes.
        ssh_config="none",
        mounts=tuple(disk.path for disk in box.disks),
        jobs=(box.job,),
        durable=box.durable,
        # Said here, because all of them are tmpfs, which no tier would recognise.
        tiers={disk.path: disk.tier for disk in box.disks},
        python=sys.executable,
        gpu_trace=f"{TRACES}/{box.gpu}.json",
        provider=ref,
        currency=box.currency,
    )


# The demo's control planes: one per platform, with the box as a machine at that platform's real
# rates.


def build_runpod(box: DemoBox, port: int | None, **given: Any) -> LocalRunPod:
    """Return a RunPod server with the box as a pod."""
    server = LocalRunPod(**given)
    mounts = [disk.path for disk in box.disks if disk.tier == "network-volume"]
    networks = tuple((f"{box.name}-{place}", path) for place, path in enumerate(mounts))
    for volume, _ in networks:
        server.add_volume(volume, NETWORK_GB)
    server.add_pod(
        box.instance,
        box.name,
        cost=box.per_hour,
        mount=box.data,
        persistent=DISK_GB,
        disk=DISK_GB,
        networks=networks,
        host=HOST,
        port=port,
    )
    return server


def build_vast(box: DemoBox, port: int | None, **given: Any) -> LocalVast:
    """Return a vast.ai server with the box as an instance."""
    server = LocalVast(**given)
    # $; enough that no low-balance countdown starts in a short demo.
    vast_credit = 300.0
    server.credit = vast_credit
    volumes = tuple(range(1, 1 + sum(disk.tier == "volume" for disk in box.disks)))
    server.volumes.update(dict.fromkeys(volumes, NETWORK_GB))
    server.add_instance(
        int(box.instance),
        box.name,
        dph_base=box.per_hour,
        disk=DISK_GB,
        storage_cost=VAST_STORAGE,
        # vast.ai's API has a blank in the name.
        gpu=box.gpu.upper().replace("RTX", "RTX "),
        volumes=volumes,
        host=HOST,
        port=port,
    )
    return server


def build_autodl(box: DemoBox, port: int | None, **given: Any) -> LocalAutodl:
    """Return an AutoDL server with the box as a Pro instance, in yuan."""
    server = LocalAutodl(**given)
    # The same in thousandths of a yuan.
    autodl_assets = 900_000
    server.assets = autodl_assets
    # The sandbox's SSH server keeps its port.
    server.moves = False
    server.add_container(
        box.instance,
        box.name,
        milli_yuan=round(box.per_hour * 1000),
        host=HOST,
        port=port or 0,
    )
    return server


def shutdown_program(box: DemoBox, server: LocalServer) -> str:
    """Return AutoDL's own ``/usr/bin/shutdown``: it ends the container, and with it the charge."""
    body = json.dumps({"instance_uuid": box.instance})
    return f"""#!/bin/sh
exec {shlex.quote(sys.executable)} -I -S - <<'end'
import http.client
plane = http.client.HTTPConnection({server.base_url.partition("//")[2]!r})
plane.request("POST", {f"{PRO}/power_off"!r}, {body!r}, {{"Authorization": {server.key!r}}})
plane.getresponse().read()
end
"""


MAKERS: Mapping[str, Callable[..., LocalServer]] = {
    "autodl": build_autodl,
    "runpod": build_runpod,
    "vastai": build_vast,
}
"""Profile of a box → function that makes its control plane; `port` is that of its SSH server."""


class ControlPlanes:
    """The control planes of the boxes, one for each.

    Args:
        boxes: The demo's boxes.
        on_change: Called with a box's name and an action of its control plane.
    """

    def __init__(
        self,
        boxes: Sequence[DemoBox],
        on_change: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        self._boxes = tuple(boxes)
        self._on_change = on_change
        self._servers: dict[str, LocalServer] = {}
        self._key = secrets.token_urlsafe(24)

    async def start(self, ports: Mapping[str, int], port_base: int | None = None) -> None:
        """Start them.

        Args:
            ports: Box → port of its SSH server, by which some boxes are recognised as their
                machines.
            port_base: First of the ports to listen on; None for any free ones.

        Raises:
            DemoError: A port is taken.
        """
        for place, box in enumerate(self._boxes):
            server = MAKERS[box.profile](
                box, ports.get(box.name), key=self._key, on_change=self._build_callback(box.name)
            )
            self._servers[box.name] = server
            own = box.environment.get(OWN_KEYS.get(box.profile, ""))
            if own is not None:
                server.machine_keys[own] = box.instance
            try:
                await server.start(HOST, 0 if port_base is None else port_base + place)
            except OSError as error:
                raise DemoError(
                    f"the local provider: {error}; leave out --port-base to use any free port"
                ) from error

    def _build_callback(self, box: str) -> Callable[[MachineChange], Awaitable[None]]:
        async def notify_change(change: MachineChange) -> None:
            if self._on_change is not None:
                await self._on_change(box, change.action)

        return notify_change

    async def stop(self) -> None:
        """Stop them all."""
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    @property
    def env(self) -> dict[str, str]:
        """Environment variables that a client needs."""
        return {KEY_ENV: self._key}

    def find_server(self, box: str) -> LocalServer:
        """Return the control plane of a box, once it is started."""
        return self._servers[box]
