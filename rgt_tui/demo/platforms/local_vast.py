"""A local vast.ai: instances, asks and volumes, with errors at status 200, pages of 25, and null for what is gone.

Shape and states: https://docs.vast.ai/api-reference/introduction (2026-08)
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from rgt_tui.demo.platforms.local_server import Change, LocalServer, Request, Response

PAGE = 25
MONTH_H = 730.0


@dataclass
class LocalInstance:
    """One instance. Sizes in GB, money in $ per hour, times in epoch seconds."""

    id: int
    label: str
    created: float
    dph_base: float = 0.68
    disk: float = 60.0
    storage_cost: float = 0.1667
    """$ per GB and month, in every state."""
    gpu: str = "RTX 4090"
    gpus: int = 1
    actual: str | None = "running"
    intended: str = "running"
    is_bid: bool = False
    host: str | None = None
    port: int | None = None
    ends: float | None = None
    volumes: tuple[int, ...] = ()
    spent_gpu: float = 0.0
    spent_disk: float = 0.0
    _booked: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        self._booked = self.created

    @property
    def disk_hour(self) -> float:
        """What the disk costs an hour."""
        return self.disk * self.storage_cost / MONTH_H

    @property
    def on(self) -> bool:
        """Whether compute is billed."""
        return self.actual in ("running", "frozen", "rebooting")

    def book(self, now: float) -> None:
        """Charge the time since the last booking at the present rates. Call before the state changes."""
        hours = max(0.0, now - self._booked) / 3600.0
        self._booked = max(now, self._booked)
        self.spent_disk += hours * self.disk_hour
        if self.on:
            self.spent_gpu += hours * self.dph_base

    def json(self) -> dict[str, object]:
        """Return the instance as the API shows it."""
        resting = "stopped" if self.actual in ("exited", "stopped") else "running"
        total = self.disk_hour + (self.dph_base if self.on else 0.0)
        direct = self.host is not None and self.on
        return {
            "id": self.id,
            "label": self.label,
            "actual_status": self.actual,
            "intended_status": self.intended,
            "cur_state": resting,
            "next_state": self.intended,
            "status_msg": "",
            "machine_id": 4242,
            "host_id": 77,
            "gpu_name": self.gpu,
            "num_gpus": self.gpus,
            "gpu_ram": 24564,
            "dph_base": self.dph_base,
            "dph_total": round(total, 6),
            "storage_cost": self.storage_cost,
            "storage_total_cost": round(self.disk_hour, 6),
            "internet_up_cost_per_tb": 2.0,
            "is_bid": self.is_bid,
            "min_bid": 0.41,
            "start_date": self.created,
            "end_date": self.ends,
            "uptime_mins": None,
            "disk_space": self.disk,
            "disk_usage": -1,
            "ssh_host": "ssh5.vast.ai",
            "ssh_port": 31592,
            "image_runtype": "ssh",
            "public_ipaddr": self.host,
            "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(self.port)}]} if direct else {},
            "geolocation": "Norway, NO",
            "extra_env": [],
            "jupyter_token": "secret",
            "volume_info": [{"id": one} for one in self.volumes],
        }


@dataclass(frozen=True)
class Ask:
    """An offer of a host. Money in $ per hour."""

    id: int
    gpu: str = "RTX 4090"
    gpus: int = 1
    dph_base: float = 0.40
    min_bid: float = 0.15
    storage_cost: float = 0.15
    disk: float = 500.0


_INSTANCE = re.compile(r"/api/v0/instances/(\d+)/")
_ASK = re.compile(r"/api/v0/asks/(\d+)/")


class LocalVast(LocalServer):
    """A control plane on the loopback that answers like vast.ai's; the arguments are those of `LocalServer`.

    An instance whose change failed is ``offline``.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.instances: dict[int, LocalInstance] = {}
        """What is there; a destroyed one is not."""
        self.asks: dict[int, Ask] = {}
        self.volumes: dict[int, float] = {}
        """Id of a volume → its size."""
        self.credit: float | None = 23.45
        self.created: list[dict[str, Any]] = []
        """The bodies of the creations that were carried out."""

    def add_instance(
        self, instance: int, label: str, *, created: float | None = None, **fields: Any
    ) -> LocalInstance:
        """Add an instance; `fields` are those of `LocalInstance`. Without `created` it begins now."""
        made = LocalInstance(instance, label, self.clock() if created is None else created, **fields)
        self.instances[instance] = made
        return made

    def refusal(self, status: int, text: str, headers: dict[str, str] | None = None) -> Response:
        """Return an error as vast.ai does."""
        words = {429: "API requests too frequent: endpoint threshold=1.0"}.get(status, text)
        data = {"success": False, "error": text.replace(" ", "_"), "msg": words}
        return Response(status, data, headers or {})

    def handle(self, request: Request) -> Response:
        """Answer one request whose key has been checked."""
        fixed = {
            ("GET", "/api/v1/instances/"): self._list,
            ("GET", "/api/v0/instances/"): self._deprecated,
            ("GET", "/api/v0/users/current/"): self._user,
            ("GET", "/api/v0/charges/"): self._charges,
            ("GET", "/api/v0/volumes/"): self._volumes,
            ("POST", "/api/v0/bundles/"): self._search,
        }.get((request.method, request.path))
        if fixed is not None:
            return fixed(request)
        if match := _ASK.fullmatch(request.path):
            return self._take(int(match[1]), request)
        if match := _INSTANCE.fullmatch(request.path):
            return self._instance(int(match[1]), request)
        return self.refusal(404, "not found")

    def _instance(self, instance: int, request: Request) -> Response:
        found = self.instances.get(instance)
        if request.method == "GET":
            return Response(200, {"instances": None if found is None else found.json()})
        if found is None:
            words = {"success": False, "error": "no_such_instance", "msg": f"Instance {instance} not found."}
            return Response(404, words)
        if request.method == "DELETE":
            self.later(lambda: self._take_effect(found, "terminate"))
            return Response(200, {"success": True})
        body = request.json()
        state = body.get("state") if isinstance(body, dict) else None
        if request.method != "PUT" or state not in ("stopped", "running"):
            return self.refusal(400, "invalid_args")
        action = "stop" if state == "stopped" else "start"
        if (found.actual in ("exited", "stopped")) != (action == "stop"):
            found.intended = state
            self.later(lambda: self._take_effect(found, action))
        return Response(200, {"success": True})

    async def _take_effect(self, found: LocalInstance, action: str) -> None:
        if found.id not in self.instances or (action == "stop" and found.intended != "stopped"):
            return
        fine = await self.told(Change(str(found.id), found.label, action))
        found.book(self.clock())
        if not fine:
            found.actual = "offline"
        elif action == "terminate":
            self.instances.pop(found.id, None)
        else:
            found.actual = "exited" if action == "stop" else "running"

    def _list(self, request: Request) -> Response:
        try:
            filters = json.loads(request.query.get("select_filters", "{}"))
            after = int(request.query.get("after_token", "0"))
            limit = min(PAGE, int(request.query.get("limit", str(PAGE))))
        except ValueError:
            return self.refusal(400, "invalid_args")
        label = filters.get("label", {}).get("eq")
        fitting = [one for key, one in sorted(self.instances.items()) if label in (None, one.label)]
        page = [one for one in fitting if one.id > after][:limit]
        more = bool(page) and page[-1] is not fitting[-1]
        data = {
            "success": True,
            "instances_found": len(fitting),
            "total_instances": len(self.instances),
            "label_counts": {},
            "next_token": str(page[-1].id) if more else None,
            "instances": [one.json() for one in page],
        }
        return Response(200, data)

    def _deprecated(self, request: Request) -> Response:
        words = {"success": False, "error": "deprecated_endpoint", "msg": "use /api/v1/instances/"}
        return Response(200, words)

    def _user(self, request: Request) -> Response:
        return Response(200, {"id": 1001, "email": "a@example.org", "balance": 0, "credit": self.credit})

    def _charges(self, request: Request) -> Response:
        now = self.clock()
        for one in self.instances.values():
            one.book(now)
        rows = [
            {
                "start": one.created,
                "end": now,
                "type": "instance",
                "source": f"instance-{one.id}",
                "amount": round(one.spent_gpu + one.spent_disk, 6),
                "items": [
                    {"type": "gpu", "amount": round(one.spent_gpu, 6), "description": "GPU"},
                    {"type": "disk", "amount": round(one.spent_disk, 6), "description": "Storage"},
                ],
            }
            for one in self.instances.values()
        ]
        return Response(200, {"success": True, "results": rows})

    def _volumes(self, request: Request) -> Response:
        rows = [
            {
                "id": volume,
                "disk_space": size,
                "storage_total_cost": round(size * 0.15 / MONTH_H, 6),
                "instances": [{"id": one.id} for one in self.instances.values() if volume in one.volumes],
                "machine_id": 4242,
                "status": "in-use",
            }
            for volume, size in self.volumes.items()
        ]
        return Response(200, {"volumes": rows})

    def _search(self, request: Request) -> Response:
        body = request.json()
        if not isinstance(body, dict):
            return self.refusal(400, "invalid_args")
        disk = float(body.get("allocated_storage", 8))
        names = body.get("gpu_name", {}).get("in")
        count = body.get("num_gpus", {}).get("eq")
        rows = [
            {
                "id": ask.id,
                "gpu_name": ask.gpu,
                "num_gpus": ask.gpus,
                "gpu_ram": 24564,
                "dph_base": ask.dph_base,
                "dph_total": round(ask.dph_base + disk * ask.storage_cost / MONTH_H, 6),
                "min_bid": ask.min_bid,
                "storage_cost": ask.storage_cost,
                "inet_up_cost": 0.002,
                "inet_down_cost": 0.001,
                "disk_space": ask.disk,
                "reliability": 0.997,
                "duration": 864000.0,
                "direct_port_count": 20,
                "geolocation": "Norway, NO",
            }
            for ask in self.asks.values()
            if (names is None or ask.gpu in names) and count in (None, ask.gpus) and ask.disk >= disk
        ]
        return Response(200, {"success": True, "offers": rows})

    def _take(self, ask: int, request: Request) -> Response:
        """Rent an ask: a ``price`` makes it a bid; one that is too low leaves a stopped instance, and an error."""
        body, offer = request.json(), self.asks.get(ask)
        if request.method != "PUT" or not isinstance(body, dict) or "image" not in body:
            return self.refusal(400, "invalid_args")
        if offer is None:
            return Response(
                410, {"success": False, "error": "no_such_ask", "msg": f"Ask {ask} is not available."}
            )
        price = body.get("price")
        if price is not None and not 0.001 <= price <= 128:
            return self.refusal(400, "invalid_price")
        self.created.append(body)
        low = price is not None and price < offer.min_bid
        made = self.add_instance(
            max(self.instances, default=5000) + 1,
            str(body.get("label") or ""),
            dph_base=offer.dph_base if price is None else price,
            disk=float(body.get("disk", 8)),
            storage_cost=offer.storage_cost,
            gpu=offer.gpu,
            gpus=offer.gpus,
            is_bid=price is not None,
            actual="stopped" if low else None,
            intended="stopped" if low else "running",
        )
        if low:
            words = {
                "success": False,
                "error": "bid_too_low",
                "msg": "The bid is too low.",
                "new_contract": made.id,
            }
            return Response(400, words)
        del self.asks[ask]
        self.later(lambda: self._take_effect(made, "start"))
        return Response(200, {"success": True, "new_contract": made.id})
