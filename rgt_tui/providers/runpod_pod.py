"""RunPod's pod object and its cost: only documented fields, read so that no odd value breaks anything.

Fields and states: https://docs.runpod.io/api-reference-v2/overview (OpenAPI of REST v2).
Prices are those of the profile, each with its source and its month.
"""

from __future__ import annotations

import re

import msgspec

from rgt_tui.model import Lifecycle
from rgt_tui.profiles import load_profile, storage_per_hour
from rgt_tui.providers.answers import Parts, array, number, table, text, when
from rgt_tui.providers.control_plane import BadAnswer, printable

ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
"""What may stand in the path of a request: an id from a file must not be able to name another resource."""
LIFECYCLES = {
    "PROVISIONING": Lifecycle.STARTING,
    "STARTING": Lifecycle.STARTING,
    "RUNNING": Lifecycle.RUNNING,
    "EXITED": Lifecycle.STOPPED,
    "ERROR": Lifecycle.ERROR,
    "TERMINATED": Lifecycle.GONE,
}


class NetworkMount(msgspec.Struct, frozen=True):
    """A network volume on a pod."""

    volume: str
    path: str


class Pod(msgspec.Struct, frozen=True):
    """What we use of a pod. None = not said. Sizes in GB, money in $ per hour, times in epoch seconds."""

    id: str
    name: str
    status: str
    actions: tuple[str, ...] = ()
    cost: float | None = None
    container_gb: float | None = None
    volume_gb: float | None = None
    """0 = the answer shows that there is none."""
    volume_path: str = "/workspace"
    networks: tuple[NetworkMount, ...] | None = None
    created: float | None = None
    started: float | None = None
    locked: bool = False
    host: str | None = None
    port: int | None = None
    user: str | None = None
    gpu: str | None = None
    gpu_count: int | None = None
    region: str | None = None
    """The data center."""
    cluster: str | None = None
    """Id of the cluster that it is part of."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The state in our words; one that we do not know is ``unknown``, never an error."""
        return LIFECYCLES.get(self.status, Lifecycle.UNKNOWN)

    def disks(self, *, running: bool) -> Parts:
        """Return what the pod's own disks cost an hour by the profile, network volumes apart.

        A disk that costs nothing in that state is left out; one whose size was not said has no price.
        """
        sizes = {"volume-disk": self.volume_gb, "container-disk": self.container_gb if running else 0.0}
        return tuple(
            (tier.replace("-", " "), None if size is None else price_of(tier, size, running=running))
            for tier, size in sizes.items()
            if size != 0
        )


def parse_pod(raw: object, console: str = "") -> Pod:
    """Read one pod.

    Raises:
        BadAnswer: it is not an object with an id; anything else that is odd becomes None.
    """
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str) or not ID.fullmatch(raw["id"]):
        raise BadAnswer("a pod without an id in RunPod's answer; look at the console", console=console)
    volume_gb, volume_path, networks = _mounts(raw.get("mounts"))
    direct = table(table(raw.get("ssh")).get("direct"))
    port = direct.get("port")
    gpu, cluster = table(raw.get("gpu")), table(raw.get("cluster"))
    count = gpu.get("count")
    return Pod(
        id=raw["id"],
        name=printable(raw.get("name") or "", 120),
        status=printable(raw.get("status") or "not said", 40),
        actions=tuple(printable(a, 40) for a in array(raw.get("actions")) if isinstance(a, str)),
        cost=number(raw.get("cost")),
        container_gb=number(raw.get("disk")),
        volume_gb=volume_gb,
        volume_path=volume_path,
        networks=networks,
        created=when(raw.get("createdAt")),
        started=when(raw.get("startedAt")),
        locked=raw.get("locked") is True,
        host=printable(direct["host"], 200) if isinstance(direct.get("host"), str) else None,
        port=port if isinstance(port, int) and 0 < port < 65536 else None,
        user=printable(direct["username"], 60) if isinstance(direct.get("username"), str) else None,
        gpu=printable(gpu["id"], 80) if isinstance(gpu.get("id"), str) else None,
        gpu_count=count if type(count) is int and count > 0 else None,
        cluster=text(cluster.get("id"), 80),
        region=printable(raw["dataCenterId"], 40) if isinstance(raw.get("dataCenterId"), str) else None,
    )


def _mounts(raw: object) -> tuple[float | None, str, tuple[NetworkMount, ...] | None]:
    """Return the volume's size and path, and the network volumes. Without a mounts object all is unknown."""
    if not isinstance(raw, dict):
        return None, "/workspace", None
    volume = raw.get("persistent")
    size: float | None = 0.0
    path = "/workspace"
    if volume is not None:
        size = number(table(volume).get("size"))
        path = printable(table(volume).get("path") or path, 200)
    networks = tuple(
        NetworkMount(
            volume=printable(item["volumeId"], 80), path=printable(item.get("path") or "/workspace", 200)
        )
        for item in array(raw.get("network"))
        if isinstance(item, dict) and isinstance(item.get("volumeId"), str)
    )
    return size, path, networks


def price_of(tier: str, size_gb: float, *, running: bool, kind: str | None = None) -> float | None:
    """Return the $ an hour of a storage tier by RunPod's profile; None = the profile has no price for it."""
    found = storage_per_hour(load_profile("runpod"), tier, size_gb, running=running, grade=kind)
    return None if found is None else found.value


def network_per_hour(size_gb: float, kind: str) -> float | None:
    """Return what a network volume costs an hour; it bills until it is deleted, with or without a pod."""
    grade = None if kind == "STANDARD" else kind
    return price_of("network-volume", size_gb, running=True, kind=grade)
