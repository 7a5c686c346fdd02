"""The pods of the local provider: their states, their prices, and their JSON as RunPod's REST v2 writes it.

Shape and states: https://docs.runpod.io/api-reference-v2/overview; prices: https://docs.runpod.io/pods/pricing
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

ACTIONS = {
    "PROVISIONING": ("stop", "terminate"),
    "STARTING": ("stop", "terminate"),
    "RUNNING": ("stop", "restart", "terminate"),
    "EXITED": ("start", "terminate"),
    "ERROR": ("start", "terminate"),
    "TERMINATED": (),
}
"""What a pod accepts in which state."""

MONTH_H = 730.0


@dataclass
class LocalPod:
    """One pod. Sizes in GB, money in $ per hour, times in epoch seconds."""

    id: str
    name: str
    created: float
    cost: float = 1.38
    """Compute, while running."""
    disk: float = 40.0
    persistent: float | None = 100.0
    """Volume disk; None = none."""
    mount: str = "/workspace"
    """Where the volume disk is mounted."""
    networks: tuple[tuple[str, str], ...] = ()
    """``(volume id, mount point)`` of each network volume."""
    gpu: str = "NVIDIA GeForce RTX 4090"
    gpus: int = 1
    status: str = "RUNNING"
    locked: bool = False
    host: str | None = None
    port: int | None = None
    started: float | None = None
    changing: str | None = None
    """The action that is under way but does not show in `status` yet."""
    spent_gpu: float = 0.0
    spent_disk: float = 0.0
    _booked: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self._booked = self.created
        if self.started is None and self.status == "RUNNING":
            self.started = self.created

    @property
    def actions(self) -> tuple[str, ...]:
        """What the pod accepts now; a locked one can be neither stopped nor terminated."""
        barred = ("stop", "terminate") if self.locked else ()
        return tuple(action for action in ACTIONS.get(self.status, ()) if action not in barred)

    @property
    def on(self) -> bool:
        """Whether compute is billed."""
        return self.status in ("PROVISIONING", "STARTING", "RUNNING")

    def book(self, now: float) -> None:
        """Charge the time since the last booking at the present rates. Call before the state changes."""
        hours = max(0.0, now - self._booked) / 3600.0
        self._booked = max(now, self._booked)
        volume = self.persistent or 0.0
        if self.on:
            self.spent_gpu += hours * self.cost
            self.spent_disk += hours * (volume + self.disk) * 0.10 / MONTH_H
        elif self.status != "TERMINATED":
            self.spent_disk += hours * volume * 0.20 / MONTH_H

    def json(self, now: float) -> dict[str, object]:
        """Return the pod as the API shows it."""
        direct = None
        if self.host is not None and self.status == "RUNNING":
            command = f"ssh root@{self.host} -p {self.port}"
            direct = {"host": self.host, "port": self.port, "username": "root", "command": command}
        runtime = None
        if self.status == "RUNNING":
            uptime = int(max(0.0, now - (self.started or now)))
            runtime = {"uptime": uptime, "gpus": [], "cpu": None, "memory": None, "ports": []}
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "actions": list(self.actions),
            "image": "rgt/demo",
            "args": None,
            "disk": self.disk,
            "mounts": {
                "persistent": None
                if self.persistent is None
                else {"size": self.persistent, "path": self.mount},
                "network": [{"volumeId": volume, "path": path} for volume, path in self.networks],
            },
            "gpu": {"id": self.gpu, "count": self.gpus},
            "cpu": None,
            "cloud": "SECURE",
            "dataCenterId": "LOCAL-1",
            "cudaVersion": None,
            "ssh": {"proxy": None, "direct": direct},
            "template": None,
            # 0.0 while stopped although the volume disk bills: the vendor's answer leaves storage out.
            "cost": self.cost if self.on else 0.0,
            "locked": self.locked,
            "runtime": runtime,
            "createdAt": iso(self.created),
            "startedAt": iso(self.started) if self.started is not None else None,
            "globalNetworking": False,
            "cluster": None,
        }

    def billing(self, now: float) -> dict[str, object]:
        """Return the pod's record in the books up to now."""
        self.book(now)
        return {
            "startTime": iso(self.created),
            "endTime": iso(now),
            "podId": self.id,
            "totalAmount": round(self.spent_gpu + self.spent_disk, 6),
            "gpuAmount": round(self.spent_gpu, 6),
            "cpuAmount": 0.0,
            "diskAmount": round(self.spent_disk, 6),
        }


def iso(at: float) -> str:
    """Return epoch seconds as the API writes times."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
