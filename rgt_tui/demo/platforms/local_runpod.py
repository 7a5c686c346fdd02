"""A local RunPod: its pods and rules, what each call does, and when its effect begins to show.

Shape and states: https://docs.runpod.io/api-reference-v2/overview; prices:
https://docs.runpod.io/pods/pricing; the rules of a creation:
https://docs.runpod.io/api-reference-v2/pods/create-a-pod
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rgt_tui.demo.platforms.local_server import (
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


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def format_iso(at: float) -> str:
    """Return epoch seconds as the API writes times."""
    # The API writes Z, Python +00:00.
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class LocalGpu:
    """One type of GPU in the catalogue; its prices are for one GPU and an hour."""

    id: str
    name: str
    memory: int = 24
    secure: float = 0.69
    community: float = 0.34
    most: int = 8
    stock: dict[tuple[str, str], str] = field(default_factory=dict)
    """``(cloud, data center)`` → NONE, LOW, MEDIUM or HIGH; no stock if missing."""
    bid: float | None = None
    """The lowest spot bid per hour, or None."""
    cuda: str = "12.8"
    """The newest that any host of this type knows."""

    def find_price(self, cloud: str) -> float:
        """Return what one costs an hour."""
        if cloud == "COMMUNITY":
            return self.community
        return self.secure

    def to_json(self, cloud: str, count: int, least_cuda: str) -> dict[str, object]:
        """Return its entry, with the stock for so many in one of the clouds."""
        usable = count <= self.most and _parse_version(least_cuda) <= _parse_version(self.cuda)
        places = [
            {"id": place, "name": place, "availability": level}
            for (of, place), level in self.stock.items()
            # `maxCount` is a ceiling of the type, not its stock.
            if of == cloud and usable and level != "NONE"
        ]
        levels = [str(place["availability"]) for place in places]
        entry: dict[str, object] = {
            "id": self.id,
            "name": self.name,
            "pool": None,
            "manufacturer": "NVIDIA",
            "memory": self.memory,
            "secure": True,
            "community": True,
            "price": {"secure": self.secure, "community": self.community},
            "maxCount": {"secure": self.most, "community": self.most},
            "availability": max(levels, key=LEVELS.index, default="NONE"),
        }
        if places:
            return {**entry, "dataCenters": places}
        return entry


LEVELS = ("NONE", "LOW", "MEDIUM", "HIGH")
VERBS = ("stop", "start", "restart", "terminate")
CREATION_KEYS = frozenset(
    (
        *(
            "name",
            "image",
            "templateId",
            "cloud",
            "cpu",
            "dataCenterIds",
            "globalNetworking",
            "gpu",
            "mounts",
        ),
        *("startJupyter", "startSsh", "args", "disk", "env", "ports", "registry"),
    )
)
"""Allowed fields of a creation; any other is refused with 422."""
# RunPod's own text: clients can only recognise the lack of capacity by it, since 400 also means a
# broken rule.
NO_CAPACITY = "There are no longer any instances available with the requested specifications."

_POD = re.compile(r"/v2/pods/([^/]+)(/action)?")
_LIBRARY = re.compile(r"(?i)python-(urllib|httpx|requests)|aiohttp|urllib3|Go-http-client")
"""User agents of HTTP libraries, used by programs without a user agent of their own."""
_WORKERS = re.compile(r"/v2/serverless/([^/]+)/workers")


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
        self.gpus: dict[str, LocalGpu] = {}
        """The catalogue, by id."""
        self.endpoints: dict[str, tuple[int, int]] = {}
        """Serverless endpoints by id: always-on workers, and currently running workers."""
        self.clusters: dict[str, int] = {}
        """Clusters by their id: how many pods each has."""
        self.page_size: int | None = None
        """Maximum number of items on a page; None for all."""
        self.balance: float | None = None
        """The account's balance; None if no API reports it."""

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

    def add_gpu(self, gpu: LocalGpu) -> None:
        """Put a type of GPU into the catalogue."""
        self.gpus[gpu.id] = gpu

    def add_volume(self, volume: str, size: float) -> None:
        """Add a network volume of `size` GB, which pods may mount by its id."""
        self.volumes[volume] = NetworkVolume(id=volume, size=size, kind="STANDARD")

    def set_balance(self, amount: float | None) -> None:
        """Set the account's balance; None if no API reports it."""
        self.balance = amount

    def _check_and_answer(self, request: LocalRequest) -> LocalResponse:
        # Cloudflare, in front of RunPod, bans programs without a name of their own; the API does
        # not see the request.
        if not request.headers.get("user-agent", "").strip() or _LIBRARY.match(
            request.headers["user-agent"]
        ):
            return LocalResponse(
                403, headers={"Content-Type": "text/plain"}, raw=b"error code: 1010"
            )
        return super()._check_and_answer(request)

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        now = self.clock()
        fixed = {
            "/v2/pods": self._list_pods,
            "/v2/billing/pods": self._list_billing,
            "/v2/network-volumes": self._list_volumes,
            "/v2/serverless": self._endpoints,
            "/v2/clusters": self._list_clusters,
            "/v2/catalog/gpus": self._catalogue,
        }.get(request.path)
        if request.path == "/v2/pods" and request.method == "POST":
            return self._create_pod(request, now)
        if fixed is not None:
            if request.method == "GET":
                return fixed(request, now)
            return build_problem(405, "only GET is taken here")
        if request.path == "/graphql" and b"gpuTypes" in request.body:
            return self._list_bids()
        if request.path == "/graphql" and b"podRentInterruptable" in request.body:
            return self._rent_spot(request)
        if request.path == "/graphql" and self.balance is not None:
            return self._answer_myself(request, now)
        if workers := _WORKERS.fullmatch(request.path):
            return self._list_workers(workers[1])
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

    def _list_pods(self, request: LocalRequest, now: float) -> LocalResponse:
        pods = [p.to_json(now) for p in self.pods.values() if p.status != "TERMINATED"]
        return self._build_page(request, "pods", pods)

    def _build_page(
        self, request: LocalRequest, key: str, items: list[dict[str, object]]
    ) -> LocalResponse:
        """Return a page of a list; a cursor is the index of its first item, as escaped letters."""
        # The + checks that a client escapes a cursor, which is opaque text of the vendor.
        first = int(request.query.get("cursor", "at=0+").strip("at=+ "))
        most = min(int(request.query.get("limit", "1000")), self.page_size or 1000)
        more = first + most < len(items)
        pagination = {"nextCursor": f"at={first + most}+" if more else None, "hasNextPage": more}
        return LocalResponse(200, {key: items[first : first + most], "pagination": pagination})

    def _endpoints(self, request: LocalRequest, now: float) -> LocalResponse:
        items: list[dict[str, object]] = [
            {
                "id": endpoint,
                "name": endpoint,
                "type": "QUEUE",
                "workers": {"min": least, "max": 3},
                "scaling": {"type": "QUEUE_DELAY", "queueDelay": 4.0},
                "dataCenterIds": [],
                "networkVolumes": [],
                "timeout": 600,
                "flashboot": "OFF",
                "createdAt": format_iso(now),
            }
            for endpoint, (least, _) in self.endpoints.items()
        ]
        return self._build_page(request, "endpoints", items)

    def _list_workers(self, endpoint: str) -> LocalResponse:
        if endpoint not in self.endpoints:
            # Also for terminated pods: a second DELETE is 404 there.
            return build_problem(404, "not found")
        states = ("running", "idle", "initializing", "throttled", "unhealthy")
        running = self.endpoints[endpoint][1]
        summary: dict[str, int] = dict.fromkeys(states, 0) | {"running": running, "total": running}
        worker = {"status": "RUNNING", "isStale": False, "gpuCount": 1}
        workers = [{"id": f"w{number}", **worker} for number in range(running)]
        return LocalResponse(200, {"workers": workers, "summary": summary})

    def _list_clusters(self, request: LocalRequest, now: float) -> LocalResponse:
        items: list[dict[str, object]] = [
            {
                "id": cluster,
                "name": cluster,
                "type": "TRAINING",
                "compute": {
                    "gpuTypeId": "NVIDIA H100 80GB HBM3",
                    "gpuCountPerPod": 8,
                    "podCount": count,
                },
                "pods": {"total": count, "byStatus": {"RUNNING": count}},
                "createdAt": format_iso(now),
            }
            for cluster, count in self.clusters.items()
        ]
        return self._build_page(request, "clusters", items)

    def _catalogue(self, request: LocalRequest, now: float) -> LocalResponse:
        """Answer with prices, and with the stock for pods, which has to be asked for by name."""
        query = request.query
        # Without both, the real API has no stock in its answer.
        if query.get("include") != "AVAILABILITY" or query.get("product") != "POD":
            return build_problem(
                400, "include=AVAILABILITY needs product, and the other filters need both"
            )
        cloud, count = query.get("cloud", "SECURE"), int(query.get("count", "1"))
        gpus = [
            gpu.to_json(cloud, count, query.get("minCudaVersion", "0.0"))
            for gpu in self.gpus.values()
        ]
        return LocalResponse(200, {"gpus": gpus})

    def _create_pod(self, request: LocalRequest, now: float) -> LocalResponse:
        body = request.parse_json()
        if not isinstance(body, dict) or not isinstance(body.get("name"), str) or not body["name"]:
            return build_problem(422, "$: a name is required")
        # The vendor refuses unknown keys, so a misspelt limit cannot be ignored.
        if unknown := sorted(set(body) - CREATION_KEYS):
            return build_problem(422, f"$: additional properties {', '.join(unknown)} not allowed")
        wanted, mounts = body.get("gpu") or {}, body.get("mounts") or {}
        if (
            not isinstance(body.get("image"), str)
            or not isinstance(wanted, dict)
            or "id" not in wanted
        ):
            return build_problem(422, "$: image and gpu are required")
        if not isinstance(mounts, dict):
            return build_problem(422, "$.mounts: must be an object")
        volume = mounts.get("persistent")
        # The vendor's minimum.
        if volume is not None and volume.get("size", 0) < 10:
            return build_problem(422, "$.mounts.persistent.size: must be at least 10")
        if "persistent" in mounts and "network" in mounts:
            return build_problem(400, "mounts.persistent and mounts.network are mutually exclusive")
        gpu, count = self.gpus.get(wanted["id"]), wanted.get("count", 1)
        cloud, places = body.get("cloud", "SECURE"), body.get("dataCenterIds") or []
        if gpu is None:
            stocked = {}
        else:
            stocked = gpu.to_json(cloud, count, wanted.get("minCudaVersion", "0.0"))
        place = self._choose_data_center(stocked, places)
        if gpu is None or place is None:
            return build_problem(400, NO_CAPACITY)
        cost = gpu.find_price(cloud) * count
        # The vendor demands credit for an hour.
        if self.balance is not None and self.balance < cost:
            return build_problem(402, "insufficient balance: deploying needs credit for an hour")
        pod = self.add_pod(
            f"made{len(self.pods):04d}{secrets.token_hex(3)}",
            body["name"],
            cost=cost,
            disk=body.get("disk", 50),
            persistent=None if volume is None else volume["size"],
            mount="/workspace" if volume is None else volume["path"],
            gpu=gpu.id,
            gpus=count,
            cloud=cloud,
            region=place,
            # 201 means accepted: it runs later, see `apply_later`.
            status="PROVISIONING",
            changing="create",
        )
        self.apply_later(lambda: self._take_effect(pod, "create"))
        return LocalResponse(201, pod.to_json(now))

    @staticmethod
    def _choose_data_center(stocked: Mapping[str, Any], wanted: list[str]) -> str | None:
        """Return the data center of a new pod; None without capacity in the wanted ones."""
        places = [place["id"] for place in stocked.get("dataCenters", ())]
        return next((place for place in places if not wanted or place in wanted), None)

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

    def _answer_myself(self, request: LocalRequest, now: float) -> LocalResponse:
        """Answer as GraphQL does: errors in a query have status 200."""
        if request.method != "POST" or b"clientBalance" not in request.body:
            # GraphQL has errors at status 200.
            return LocalResponse(200, {"errors": [{"message": "the query is not understood"}]})
        costs = [pod.to_json(now)["cost"] for pod in self.pods.values()]
        burn = sum(cost for cost in costs if isinstance(cost, float))
        return LocalResponse(
            200, {"data": {"myself": {"clientBalance": self.balance, "currentSpendPerHr": burn}}}
        )

    def _list_bids(self) -> LocalResponse:
        """Return the least bids, as GraphQL does for the aliases that rgt chooses."""
        rows = [
            {
                "id": gpu.id,
                "displayName": gpu.name,
                "memoryInGb": gpu.memory,
                **{
                    cloud: {
                        "minimumBidPrice": gpu.bid
                        if any(of == cloud for of, _ in gpu.stock)
                        else None,
                        "stockStatus": "Low",
                    }
                    for cloud in ("SECURE", "COMMUNITY")
                },
            }
            for gpu in self.gpus.values()
        ]
        return LocalResponse(200, {"data": {"gpuTypes": rows}})

    def _rent_spot(self, request: LocalRequest) -> LocalResponse:
        """Rent a pod by a bid; errors have status 200."""
        wanted = request.parse_json()["variables"]["input"]
        gpu = self.gpus.get(wanted["gpuTypeId"])
        if gpu is None or gpu.bid is None or wanted["bidPerGpu"] < gpu.bid:
            return LocalResponse(
                200, {"errors": [{"message": NO_CAPACITY}], "data": {"podRentInterruptable": None}}
            )
        pod = self.add_pod(
            f"spot{len(self.pods):04d}{secrets.token_hex(3)}",
            wanted["name"],
            cost=wanted["bidPerGpu"] * wanted["gpuCount"],
            disk=wanted["containerDiskInGb"],
            persistent=wanted["volumeInGb"],
            mount=wanted["volumeMountPath"],
            gpu=gpu.id,
            gpus=wanted["gpuCount"],
            cloud=wanted["cloudType"],
            region=None,
            status="PROVISIONING",
            changing="create",
        )
        self.apply_later(lambda: self._take_effect(pod, "create"))
        return LocalResponse(200, {"data": {"podRentInterruptable": {"id": pod.id}}})

    def _list_volumes(self, request: LocalRequest, now: float) -> LocalResponse:
        items: list[dict[str, object]] = [
            {
                "id": v.id,
                "name": v.id,
                "size": _as_whole_number(v.size),
                "dataCenter": "LOCAL-1",
                "type": v.kind,
            }
            for v in self.volumes.values()
        ]
        return self._build_page(request, "networkVolumes", items)

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
        self.apply_later(lambda: self._take_effect(pod, action))
        return None

    async def _take_effect(self, pod: LocalPod, action: str) -> None:
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
