"""The demo's control planes: one per platform, with the box as a machine at that platform's real rates."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rgt_tui.demo.plan import DemoBox
from rgt_tui.demo.platforms import Change, LocalAutodl, LocalRunPod, LocalServer, LocalVast
from rgt_tui.demo.sshd import HOST
from rgt_tui.demo.workspace import DemoError

KEY_ENV = "RGT_DEMO_KEY"
"""Environment variable in which the fleet looks for the key of all of them."""
RUNPOD_KEY = "RUNPOD_API_KEY"
"""What RunPod calls a pod's own key in its environment (https://docs.runpod.io/runpodctl/overview, 2026-06)."""
DISK_GB = 20.0
"""What each disk of a machine is billed for."""
NETWORK_GB = 10.0
"""Of a volume that outlives its machine, and bills on."""
VAST_STORAGE = 0.15
"""$ per GB and month, which every host of vast.ai sets for itself."""
VAST_CREDIT = 300.0
"""$; enough that no clock of the balance runs in a short demo."""
AUTODL_ASSETS = 900_000
"""The same in thousandths of a yuan."""


def runpod(box: DemoBox, port: int | None, **given: Any) -> LocalRunPod:
    """Return a RunPod that has the box as a pod."""
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
    if own := box.environment.get(RUNPOD_KEY):
        server.machine_keys[own] = box.instance
    return server


def vast(box: DemoBox, port: int | None, **given: Any) -> LocalVast:
    """Return a vast.ai that has the box as an instance."""
    server = LocalVast(**given)
    server.credit = VAST_CREDIT
    volumes = tuple(range(1, 1 + sum(disk.tier == "volume" for disk in box.disks)))
    server.volumes.update(dict.fromkeys(volumes, NETWORK_GB))
    server.add_instance(
        int(box.instance),
        box.name,
        dph_base=box.per_hour,
        disk=DISK_GB,
        storage_cost=VAST_STORAGE,
        gpu=box.gpu.upper().replace("RTX", "RTX "),
        volumes=volumes,
        host=HOST,
        port=port,
    )
    return server


def autodl(box: DemoBox, port: int | None, **given: Any) -> LocalAutodl:
    """Return an AutoDL that has the box as a Pro instance, in yuan."""
    server = LocalAutodl(**given)
    server.assets = AUTODL_ASSETS
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


MAKERS: Mapping[str, Callable[..., LocalServer]] = {"autodl": autodl, "runpod": runpod, "vastai": vast}
"""Profile of a box → what makes its control plane; `port` is where its SSH server listens."""


class Planes:
    """The control planes of some boxes; each box alone in its own.

    Args:
        boxes: Those of the demo.
        on_change: Told of a box by its name, and of what happens to it.
    """

    def __init__(
        self, boxes: Sequence[DemoBox], on_change: Callable[[str, str], Awaitable[None]] | None = None
    ) -> None:
        self._boxes = tuple(boxes)
        self._on_change = on_change
        self._servers: dict[str, LocalServer] = {}
        self._key = secrets.token_urlsafe(24)

    async def start(self, ports: Mapping[str, int], port_base: int | None = None) -> None:
        """Start them.

        Args:
            ports: Box → where its SSH server listens: by that some boxes are known to be their machines.
            port_base: First of the ports to listen on; None = any free ones.

        Raises:
            DemoError: a port is taken.
        """
        for place, box in enumerate(self._boxes):
            server = MAKERS[box.profile](
                box, ports.get(box.name), key=self._key, on_change=self._teller(box.name)
            )
            self._servers[box.name] = server
            try:
                await server.start(HOST, 0 if port_base is None else port_base + place)
            except OSError as error:
                raise DemoError(
                    f"the local provider: {error}; leave out --port-base to use any free port"
                ) from error

    def _teller(self, box: str) -> Callable[[Change], Awaitable[None]]:
        async def tell(change: Change) -> None:
            if self._on_change is not None:
                await self._on_change(box, change.action)

        return tell

    async def stop(self) -> None:
        """Stop them all."""
        await asyncio.gather(*(server.stop() for server in self._servers.values()))

    @property
    def env(self) -> dict[str, str]:
        """Return what a client needs in its environment."""
        return {KEY_ENV: self._key}

    def of(self, box: str) -> LocalServer:
        """Return the control plane of a box, once it was started."""
        return self._servers[box]
