"""A local RunPod that rents pods out: the demo's, with a catalogue, creations, bids, endpoints, clusters and pages.

The rules of a creation: https://docs.runpod.io/api-reference-v2/pods/create-a-pod
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rgt_tui.demo import (
    LocalRequest,
    LocalResponse,
    LocalRunPod,
    build_problem,
    format_iso,
)


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


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


_LIBRARY = re.compile(r"(?i)python-(urllib|httpx|requests)|aiohttp|urllib3|Go-http-client")
"""User agents of HTTP libraries, used by programs without a user agent of their own."""
_WORKERS = re.compile(r"/v2/serverless/([^/]+)/workers")


class RentingRunPod(LocalRunPod):
    """A `LocalRunPod` with everything that bills, and with a market."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
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

    def add_gpu(self, gpu: LocalGpu) -> None:
        """Put a type of GPU into the catalogue."""
        self.gpus[gpu.id] = gpu

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
        if request.path == "/v2/pods" and request.method == "POST":
            return self._create_pod(request)
        if request.path == "/v2/catalog/gpus":
            if request.method == "GET":
                return self._catalogue(request)
            return build_problem(405, "only GET is taken here")
        if request.path == "/graphql" and b"gpuTypes" in request.body:
            return self._list_bids()
        if request.path == "/graphql" and b"podRentInterruptable" in request.body:
            return self._rent_spot(request)
        if request.path == "/graphql" and self.balance is not None:
            return self._answer_myself(request)
        if workers := _WORKERS.fullmatch(request.path):
            return self._list_workers(workers[1])
        return super().handle_request(request)

    def build_page(
        self, request: LocalRequest, key: str, items: list[dict[str, object]]
    ) -> LocalResponse:
        """Return a page of a list; a cursor is the index of its first item, as escaped letters."""
        # The + checks that a client escapes a cursor, which is opaque text of the vendor.
        first = int(request.query.get("cursor", "at=0+").strip("at=+ "))
        most = min(int(request.query.get("limit", "1000")), self.page_size or 1000)
        more = first + most < len(items)
        pagination = {"nextCursor": f"at={first + most}+" if more else None, "hasNextPage": more}
        return LocalResponse(200, {key: items[first : first + most], "pagination": pagination})

    def list_endpoints(self) -> list[dict[str, object]]:
        return [
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
                "createdAt": format_iso(self.clock()),
            }
            for endpoint, (least, _) in self.endpoints.items()
        ]

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

    def list_clusters(self) -> list[dict[str, object]]:
        return [
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
                "createdAt": format_iso(self.clock()),
            }
            for cluster, count in self.clusters.items()
        ]

    def _catalogue(self, request: LocalRequest) -> LocalResponse:
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

    def _create_pod(self, request: LocalRequest) -> LocalResponse:
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
        self.apply_later(lambda: self.take_effect(pod, "create"))
        return LocalResponse(201, pod.to_json(self.clock()))

    @staticmethod
    def _choose_data_center(stocked: Mapping[str, Any], wanted: list[str]) -> str | None:
        """Return the data center of a new pod; None without capacity in the wanted ones."""
        places = [place["id"] for place in stocked.get("dataCenters", ())]
        return next((place for place in places if not wanted or place in wanted), None)

    def _answer_myself(self, request: LocalRequest) -> LocalResponse:
        """Answer as GraphQL does: errors in a query have status 200."""
        if request.method != "POST" or b"clientBalance" not in request.body:
            # GraphQL has errors at status 200.
            return LocalResponse(200, {"errors": [{"message": "the query is not understood"}]})
        now = self.clock()
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
        self.apply_later(lambda: self.take_effect(pod, "create"))
        return LocalResponse(200, {"data": {"podRentInterruptable": {"id": pod.id}}})
