"""A local RunPod: its pods and rules, what each call does, and when its effect begins to show.

It rents nothing out. Shape and states: https://docs.runpod.io/api-reference-v2/overview; prices:
https://docs.runpod.io/pods/pricing
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rgt_tui.demo.local_server import (
    LocalRequest,
    LocalResponse,
    LocalServer,
    MachineChange,
    build_problem,
)

ACTIONS = {
    "PROVISIONING": ("stop", "terminate"),
    "STARTING": ("stop", "terminate"),
    "RUNNING": ("stop", "restart", "terminate"),
    "EXITED": ("start", "terminate"),
    "ERROR": ("start", "terminate"),
    "TERMINATED": (),
}
"""What a pod accepts in which state."""


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
    """Size of the volume disk; None for no volume disk."""
    mount: str = "/workspace"
    """Where the volume disk is mounted."""
    networks: tuple[tuple[str, str], ...] = ()
    """``(volume id, mount point)`` of each network volume."""
    gpu: str = "NVIDIA GeForce RTX 4090"
    gpus: int = 1
    status: str = "RUNNING"
    locked: bool = False
    machine_full: bool = False
    """Its machine has no free GPU, so a start is refused."""
    cloud: str = "SECURE"
    region: str | None = "LOCAL-1"
    host: str | None = None
    port: int | None = None
    started: float | None = None
    changing: str | None = None
    """The pending action that does not show in `status` yet."""
    spent_gpu: float = 0.0
    spent_disk: float = 0.0
    _booked: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self._booked = self.created
        if self.started is None and self.status == "RUNNING":
            self.started = self.created

    @property
    def allowed_actions(self) -> tuple[str, ...]:
        """What the pod accepts now; a locked one can be neither stopped nor terminated."""
        # The vendor's `locked` blocks both.
        barred = ("stop", "terminate") if self.locked else ()
        return tuple(action for action in ACTIONS.get(self.status, ()) if action not in barred)

    @property
    def is_on(self) -> bool:
        """Whether compute is billed."""
        # From the creation on: nothing documents that the pull of an image is free.
        return self.status in ("PROVISIONING", "STARTING", "RUNNING")

    def charge_time(self, now: float) -> None:
        """Charge the time since the last booking at the present rates.

        Call it before a state change.
        """
        # A clock that is set back must not refund anything.
        hours = max(0.0, now - self._booked) / 3600.0
        self._booked = max(now, self._booked)
        volume = self.persistent or 0.0
        month_h = 730.0
        if self.is_on:
            self.spent_gpu += hours * self.cost
            # $ per GB and month, as published; a stopped volume disk costs twice as much, see
            # below.
            self.spent_disk += hours * (volume + self.disk) * 0.10 / month_h
        elif self.status != "TERMINATED":
            self.spent_disk += hours * volume * 0.20 / month_h

    def to_json(self, now: float) -> dict[str, object]:
        """Return the pod as the API shows it."""
        direct = None
        # `ssh.direct` is null until the pod runs and its port is mapped.
        if self.host is not None and self.status == "RUNNING":
            command = f"ssh root@{self.host} -p {self.port}"
            direct = {"host": self.host, "port": self.port, "username": "root", "command": command}
        runtime = None
        if self.status == "RUNNING":
            uptime = int(max(0.0, now - (self.started or now)))
            port = {"private": 22, "public": self.port, "type": "tcp", "ip": self.host}
            runtime = {"uptime": uptime, "gpus": [], "ports": [port] if direct else []}
        mounts: dict[str, object] = {}
        if self.persistent is not None:
            mounts["persistent"] = {"size": _as_whole_number(self.persistent), "path": self.mount}
        if self.networks:
            mounts["network"] = [
                {"volumeId": volume, "path": path} for volume, path in self.networks
            ]
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "actions": list(self.allowed_actions),
            "image": "rgt/demo",
            "args": "",
            "disk": _as_whole_number(self.disk),
            "mounts": mounts,
            "ports": ["22/tcp", "8888/http"],
            "env": {},
            "registry": None,
            "gpu": {"id": self.gpu, "count": self.gpus},
            "cloud": self.cloud,
            "dataCenterId": self.region,
            "cudaVersion": None,
            "ssh": {"proxy": None, "direct": direct},
            "template": None,
            # 0.0 while stopped although the volume disk bills: the vendor's answer leaves storage
            # out.
            "cost": self.cost if self.is_on else 0.0,
            "locked": self.locked,
            "runtime": runtime,
            "createdAt": format_iso(self.created),
            "startedAt": format_iso(self.started) if self.started is not None else None,
            "globalNetworking": {"enabled": False},
        }

    def build_billing(self, now: float) -> dict[str, object]:
        """Return the pod's record in the books up to now."""
        self.charge_time(now)
        return {
            "startTime": format_iso(self.created),
            "endTime": format_iso(now),
            "podId": self.id,
            "totalAmount": round(self.spent_gpu + self.spent_disk, 6),
            "gpuAmount": round(self.spent_gpu, 6),
            "cpuAmount": 0.0,
            "diskAmount": round(self.spent_disk, 6),
        }


def _as_whole_number(size: float) -> float:
    """Return a size as the API writes it: GB are integers there."""
    if size == int(size):
        return int(size)
    return size


def format_iso(at: float) -> str:
    """Return epoch seconds as the API writes times."""
    # The API writes Z, Python +00:00.
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


VERBS = ("stop", "start", "restart", "terminate")
_POD = re.compile(r"/v2/pods/([^/]+)(/action)?")


@dataclass(frozen=True)
class NetworkVolume:
    """A network volume; `size` in GB."""

    id: str
    size: float
    kind: str = "STANDARD"


class LocalRunPod(LocalServer):
    """A control plane on the loopback that answers like RunPod's REST v2; see `LocalServer`.

    A pod whose change failed goes to ``ERROR``.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # Terminated pods stay, because their records stay in the books.
        self.pods: dict[str, LocalPod] = {}
        """The pods by id, including the terminated ones."""
        self.volumes: dict[str, NetworkVolume] = {}

    def add_pod(
        self, pod_id: str, name: str, *, created: float | None = None, **fields: Any
    ) -> LocalPod:
        """Add a pod; `fields` are those of `LocalPod`. Without `created` it begins now.

        Raises:
            ValueError: the id is taken.
        """
        if pod_id in self.pods:
            raise ValueError(f"there is a pod {pod_id} already")
        pod = LocalPod(pod_id, name, self.clock() if created is None else created, **fields)
        self.pods[pod_id] = pod
        return pod

    def add_volume(self, volume: str, size: float) -> None:
        """Add a network volume of `size` GB, which pods may mount by its id."""
        self.volumes[volume] = NetworkVolume(id=volume, size=size, kind="STANDARD")

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        now = self.clock()
        lists = {
            "/v2/network-volumes": ("networkVolumes", self._list_volumes),
            "/v2/pods": ("pods", self._list_pods),
            "/v2/serverless": ("endpoints", self.list_endpoints),
            "/v2/clusters": ("clusters", self.list_clusters),
        }
        if request.path in lists or request.path == "/v2/billing/pods":
            if request.method != "GET":
                return build_problem(405, "only GET is taken here")
            if request.path not in lists:
                return self._list_billing(request, now)
            key, list_items = lists[request.path]
            return self.build_page(request, key, list_items())
        match = _POD.fullmatch(request.path)
        if match:
            pod = self.pods.get(match[1])
        else:
            pod = None
        if match is None or pod is None or pod.status == "TERMINATED":
            return build_problem(404, "not found")
        if match[2]:
            if request.method == "POST":
                return self._act_on_pod(pod, request)
            return build_problem(405, "only POST is taken")
        if request.method == "GET":
            return LocalResponse(200, pod.to_json(now))
        if request.method == "DELETE":
            # DELETE and the action `terminate` are the same; both answer 204.
            refused = self._begin_action(pod, "terminate")
            return refused or LocalResponse(204)
        return build_problem(405, "only GET and DELETE are taken here")

    def list_endpoints(self) -> list[dict[str, object]]:
        """Return the serverless endpoints: none."""
        return []

    def list_clusters(self) -> list[dict[str, object]]:
        """Return the clusters: none."""
        return []

    def build_page(
        self, request: LocalRequest, key: str, items: list[dict[str, object]]
    ) -> LocalResponse:
        """Return a list of the API on one page."""
        return LocalResponse(
            200, {key: items, "pagination": {"nextCursor": None, "hasNextPage": False}}
        )

    def _list_pods(self) -> list[dict[str, object]]:
        now = self.clock()
        return [p.to_json(now) for p in self.pods.values() if p.status != "TERMINATED"]

    def _list_billing(self, request: LocalRequest, now: float) -> LocalResponse:
        wanted = request.query.get("podId")
        records = [pod.build_billing(now) for pod in self.pods.values() if wanted in (None, pod.id)]
        amounts = ("totalAmount", "gpuAmount", "cpuAmount", "diskAmount")
        totals = {key: round(sum(float(str(r[key])) for r in records), 6) for key in amounts}
        query = {
            "startTime": format_iso(now - 86400.0),
            "endTime": format_iso(now),
            "bucketSize": "day",
            **request.query,
        }
        metadata = {
            "query": query,
            "recordCount": len(records),
            "totals": totals,
            "uniquePodCount": len(records),
        }
        return LocalResponse(200, {"records": records, "metadata": metadata})

    def _list_volumes(self) -> list[dict[str, object]]:
        return [
            {
                "id": v.id,
                "name": v.id,
                "size": _as_whole_number(v.size),
                "dataCenter": "LOCAL-1",
                "type": v.kind,
            }
            for v in self.volumes.values()
        ]

    def _act_on_pod(self, pod: LocalPod, request: LocalRequest) -> LocalResponse:
        try:
            body = json.loads(request.body or b"{}")
        except (ValueError, RecursionError):
            return build_problem(422, "the body is not JSON")
        if isinstance(body, dict):
            action = body.get("action")
        else:
            action = None
        if action not in VERBS:
            return build_problem(422, f"action must be one of {', '.join(VERBS)}")
        refused = self._begin_action(pod, action)
        if refused is not None:
            return refused
        if action == "terminate":
            return LocalResponse(204)
        return LocalResponse(200, pod.to_json(self.clock()))

    def _begin_action(self, pod: LocalPod, action: str) -> LocalResponse | None:
        """Accept an action, or return an error; it takes effect later (*requested*, not *done*)."""
        if action not in pod.allowed_actions:
            if pod.locked:
                why = "the pod is locked"
            else:
                why = f"pod is {pod.status}"
            return build_problem(409, f"action '{action}' is not available while {why}")
        # A stop frees the GPU, which another tenant may have now.
        if action == "start" and pod.machine_full:
            return LocalResponse(400, {"error": "not enough free GPUs on the host machine"})
        if pod.changing not in (None, "create") and action != "terminate":
            return build_problem(
                409, f"action '{action}' is not available while '{pod.changing}' is under way"
            )
        pod.changing = action
        self.apply_later(lambda: self.take_effect(pod, action))
        return None

    async def take_effect(self, pod: LocalPod, action: str) -> None:
        """Let an accepted action take effect."""
        if pod.changing != action or pod.status == "TERMINATED":
            return  # A terminate was requested after it.
        status = {"stop": "EXITED", "terminate": "TERMINATED"}.get(action, "RUNNING")
        if not await self.notify_owner(MachineChange(pod.id, pod.name, action)):
            # The sandbox could not follow, so the pod must not look stopped.
            status = "ERROR"
        now = self.clock()
        pod.charge_time(now)
        pod.status = status
        if pod.changing == action:
            pod.changing = None
        if status == "RUNNING":
            pod.started = now
        else:
            pod.started = None
