"""A local vast.ai: instances and volumes, with errors at status 200 and pages of 25.

It rents nothing out. Shape and states: https://docs.vast.ai/api-reference/introduction (2026-08)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rgt_tui.demo.local_server import (
    LocalRequest,
    LocalResponse,
    LocalServer,
    MachineChange,
)

# Also fields that no adapter uses: tests compare these answers with the vendor's specification.
HOST: Mapping[str, object] = {
    "machine_id": 4242,
    "host_id": 77,
    "verification": "verified",
    "static_ip": True,
    "cpu_arch": "amd64",
    "cpu_name": "EPYC 7543",
    "mobo_name": "ROMED8-2T",
    "os_version": "22.04",
    "disk_name": "Samsung SSD 990",
    "reliability2": 0.997,
}
"""Fields of the machine with an instance or a volume."""
INSTANCE: Mapping[str, object] = {
    **HOST,
    "template_id": None,
    "template_hash_id": None,
    "template_name": None,
    "image_uuid": "pytorch/pytorch",
    "image_args": [],
    "image_runtype": "ssh",
    "extra_env": [],
    "onstart": None,
    # Must reach no log and no screen.
    "jupyter_token": "secret",
    "status_msg": "",
    "local_ipaddrs": "10.0.0.5 172.17.0.2",
    "ssh_host": "ssh5.vast.ai",
    "ssh_idx": "5",
    # The proxy's; the vendor's own client adds 1 for an image with Jupyter.
    "ssh_port": 31592,
    "machine_dir_ssh_port": 21000,
    "uptime_mins": None,
    "cpu_cores": 64,
    "cpu_cores_effective": 16.0,
    # MB, as gpu_ram.
    "cpu_ram": 257_000,
    "cpu_util": 0.0,
    "mem_limit": None,
    "mem_usage": None,
    "vmem_usage": None,
    "gpu_arch": "nvidia",
    "gpu_ram": 24564,
    "gpu_totalram": 24564,
    "gpu_util": None,
    "gpu_temp": None,
    "gpu_frac": 0.25,
    "gpu_lanes": 16,
    "gpu_mem_bw": 1008.0,
    "bw_nvlink": 0.0,
    "disk_bw": 2000.0,
    "disk_util": -1,
    # -1 means unknown, not empty.
    "disk_usage": -1,
    "direct_port_count": 20,
    "direct_port_start": -1,
    "direct_port_end": -1,
    "geolocation": "Norway, NO",
    "rentable": True,
    "external": False,
    "vram_costperhour": 0.00003,
    "dlperf": None,
    "dlperf_per_dphtotal": None,
    "flops_per_dphtotal": 120.0,
    "total_flops": 82.6,
    "score": None,
    "pci_gen": 4.0,
    "pcie_bw": 24.0,
    "webpage": None,
    "credit_balance": None,
    "credit_discount": None,
    "credit_discount_max": None,
    "client_run_time": 1.1,
    "host_run_time": 2_592_000.0,
    "time_remaining": "",
    "time_remaining_isbid": "",
    "internet_up_cost_per_tb": 2.0,
}
VOLUME: Mapping[str, object] = {
    **HOST,
    "status": "in-use",
    "public_ipaddr": "198.51.100.40",
    "driver_version": "570.86.15",
    "cuda_max_good": 12.8,
    "inet_up": 900.0,
    "inet_down": 900.0,
}

# 30 days, where RunPod's prices count 730 hours.
MONTH_H = 720.0
RENTAL_S = 30 * 86400.0
"""How long a contract runs if its end is not given."""


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
    # None is the vendor's null: the instance is being created.
    actual: str | None = "running"
    intended: str = "running"
    is_bid: bool = False
    min_bid: float = 0.41
    """$ an hour: the least that keeps it, if it is a bid."""
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
    def is_on(self) -> bool:
        """Whether compute is billed."""
        # "frozen" is billed like running, which the vendor documents.
        return self.actual in ("running", "frozen", "rebooting")

    def charge_time(self, now: float) -> None:
        """Charge the time since the last booking at the present rates.

        Call it before a state change.
        """
        hours = max(0.0, now - self._booked) / 3600.0
        self._booked = max(now, self._booked)
        # In every state: a stop does not end the charge for storage.
        self.spent_disk += hours * self.disk_hour
        if self.is_on:
            self.spent_gpu += hours * self.dph_base

    def to_json(self, *, listed: bool) -> dict[str, object]:
        """Return the instance as the API shows it, alone or in the list (with its volumes)."""
        if self.actual in ("exited", "stopped"):
            resting = "stopped"
        else:
            resting = "running"
        compute = 0.0
        if self.is_on:
            compute = self.dph_base
        total = round(self.disk_hour + compute, 6)
        if self.ends is None:
            ends = self.created + RENTAL_S
        else:
            ends = self.ends
        direct = self.host is not None and self.is_on
        costs = {
            "gpuCostPerHour": compute,
            "diskHour": round(self.disk_hour, 6),
            "totalHour": total,
            "discountTotalHour": 0,
            "discountedTotalPerHour": total,
        }
        shown = {
            **INSTANCE,
            "id": self.id,
            "label": self.label,
            "actual_status": self.actual,
            "intended_status": self.intended,
            "cur_state": resting,
            "next_state": self.intended,
            "gpu_name": self.gpu,
            "num_gpus": self.gpus,
            "dph_base": self.dph_base,
            # With storage, unlike dph_base: a stopped instance is not free.
            "dph_total": total,
            "storage_cost": self.storage_cost,
            "storage_total_cost": round(self.disk_hour, 6),
            "search": costs,
            "instance": costs,
            "is_bid": self.is_bid,
            "min_bid": self.min_bid,
            "start_date": self.created,
            "end_date": ends,
            "duration": ends - self.created,
            "disk_space": self.disk,
            "public_ipaddr": "198.51.100.40" if self.host is None else self.host,
            "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(self.port)}]}
            if direct
            else {},
        }
        if listed:
            return {**shown, "volume_info": [{"id": one} for one in self.volumes]}
        return shown


_INSTANCE = re.compile(r"/api/v0/instances/(?:(reboot)/)?(\d+)")


class LocalVast(LocalServer):
    """A control plane on the loopback that answers like vast.ai's; see `LocalServer`.

    An instance whose change failed is ``offline``.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.instances: dict[int, LocalInstance] = {}
        """Existing instances, without destroyed ones."""
        self.volumes: dict[int, float] = {}
        """Id of a volume → its size."""
        self.network_volumes: set[int] = set()
        """The volumes on a network instead of a machine; the list includes them only on request."""
        self.credit: float | None = 23.45
        self.most_charges = 500
        """Maximum number of contracts on a page of charges."""

    def add_instance(
        self, instance: int, label: str, *, created: float | None = None, **fields: Any
    ) -> LocalInstance:
        """Add an instance with the fields of `LocalInstance`; without `created` it begins now."""
        made = LocalInstance(
            instance, label, self.clock() if created is None else created, **fields
        )
        self.instances[instance] = made
        return made

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as vast.ai does."""
        if status == 401:  # as the specification has it, a key that no user has is not found
            return LocalResponse(
                404,
                {"success": False, "error": "auth_error", "msg": "Invalid user key"},
                headers or {},
            )
        if status == 429:
            words = {"detail": "API requests too frequent endpoint threshold=1.0"}
            return LocalResponse(status, words, headers or {})
        data = {"success": False, "error": text.replace(" ", "_"), "msg": text}
        return LocalResponse(status, data, headers or {})

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        path = request.path.rstrip("/")  # the vendor's own client sends both forms
        fixed = {
            ("GET", "/api/v1/instances"): self._list_instances,
            ("GET", "/api/v0/users/current"): self._describe_user,
            ("GET", "/api/v0/charges"): self._list_charges,
            ("GET", "/api/v0/volumes"): self._list_volumes,
            ("GET", "/api/v0/endptjobs"): self.list_endpoints,
        }.get((request.method, path))
        if fixed is not None:
            return fixed(request)
        if match := _INSTANCE.fullmatch(path):
            return self._answer_instance(int(match[2]), match[1], request)
        return self.build_refusal(404, "not found")

    def _answer_instance(
        self, instance: int, verb: str | None, request: LocalRequest
    ) -> LocalResponse:
        found = self.instances.get(instance)
        if request.method == "GET" and verb is None:
            # A missing instance is null at status 200, not 404.
            return LocalResponse(
                200, {"instances": None if found is None else found.to_json(listed=False)}
            )
        if found is None:
            return self.build_missing(instance)
        body = request.parse_json()
        if request.method == "PUT" and verb == "reboot":
            found.actual = "rebooting"
            self.apply_later(lambda: self.take_effect(found, "restart"))
            return LocalResponse(200, {"success": True})
        if verb is not None:
            return self.build_refusal(404, "not found")
        if request.method == "DELETE":
            self.apply_later(lambda: self.take_effect(found, "terminate"))
            return LocalResponse(200, {"success": True})
        if (
            request.method == "PUT"
            and isinstance(body, dict)
            and isinstance(body.get("label"), str)
        ):
            found.label = body["label"]
            return LocalResponse(200, {"success": True})
        if isinstance(body, dict):
            state = body.get("state")
        else:
            state = None
        if request.method != "PUT" or state not in ("stopped", "running"):
            return self.build_refusal(400, "invalid_args")
        if state == "stopped":
            action = "stop"
        else:
            action = "start"
        # A repeated stop is accepted and does nothing.
        if (found.actual in ("exited", "stopped")) != (action == "stop"):
            found.intended = state
            self.apply_later(lambda: self.take_effect(found, action))
        return LocalResponse(200, {"success": True})

    async def take_effect(self, found: LocalInstance, action: str) -> None:
        """Let an accepted action take effect."""
        # Destroyed or started again since the request.
        if found.id not in self.instances or (action == "stop" and found.intended != "stopped"):
            return
        fine = await self.notify_owner(MachineChange(str(found.id), found.label, action))
        found.charge_time(self.clock())
        if not fine:
            # The one state in which vast.ai bills no storage.
            found.actual = "offline"
        elif action == "terminate":
            self.instances.pop(found.id, None)
        else:
            if action == "stop":
                found.actual = "exited"
            else:
                found.actual = "running"

    def build_missing(self, instance: int) -> LocalResponse:
        """Return the answer to a call for an instance that does not exist."""
        text = f"Instance {instance} not found."
        return LocalResponse(404, {"success": False, "error": "no_such_instance", "msg": text})

    def list_endpoints(self, request: LocalRequest) -> LocalResponse:
        """Return the serverless endpoints: none, which is an error in this API."""
        text = "No endpoints for user found"
        return LocalResponse(400, {"success": False, "error": "invalid_args", "msg": text})

    def _list_instances(self, request: LocalRequest) -> LocalResponse:
        # The vendor's maximum: a client that asks for more gets 25, and must follow the token.
        page_limit = 25
        try:
            filters = json.loads(request.query.get("select_filters", "{}"))
            after = int(request.query.get("after_token", "0"))
            limit = min(page_limit, int(request.query.get("limit", str(page_limit))))
        except ValueError:
            return self.build_refusal(400, "invalid_request")
        label = filters.get("label", {}).get("eq")
        fitting = [one for key, one in sorted(self.instances.items()) if label in (None, one.label)]
        page = [one for one in fitting if one.id > after][:limit]
        more = bool(page) and page[-1] is not fitting[-1]
        data = {
            "success": True,
            "instances_found": len(page),
            "total_instances": len(fitting),
            "label_counts": {},
            "next_token": str(page[-1].id) if more else None,
            "instances": [one.to_json(listed=True) for one in page],
        }
        return LocalResponse(200, data)

    def _describe_user(self, request: LocalRequest) -> LocalResponse:
        user = {
            "id": 1001,
            "email": "a@example.org",
            "username": "a",
            "balance": 0,
            "credit": self.credit,
        }
        return LocalResponse(200, {**user, "ssh_key": "", "sid": "x", "key_id": 1})

    def _list_charges(self, request: LocalRequest) -> LocalResponse:
        now = self.clock()
        for one in self.instances.values():
            one.charge_time(now)
        rows = [self._build_charge(one, int(now)) for one in self.instances.values()]
        try:
            limit = min(self.most_charges, int(request.query.get("limit", "100")))
            after = int(request.query.get("after_token", "0"))
        except ValueError:
            return self.build_refusal(400, "invalid_args")
        # Required by the real endpoint.
        if not {"gte", "lte"} <= set(self._parse_filters(request).get("day", ())):
            words = "Must provide both 'day' gte and lte filters for instance charges"
            return LocalResponse(400, {"success": False, "msg": words})
        page = rows[after : after + limit]
        if after + limit < len(rows):
            token = str(after + limit)
        else:
            token = None
        return LocalResponse(
            200,
            {
                "success": True,
                "count": len(page),
                "total": len(rows),
                "results": page,
                "next_token": token,
            },
        )

    @staticmethod
    def _build_charge(one: LocalInstance, now: int) -> dict[str, object]:
        """Return the cost of an instance, in total and by kind."""
        days = {"start": int(one.created), "end": now, "metadata": {}}

        def build_item(kind: str, amount: float, words: str) -> dict[str, object]:
            sums = {"type": kind, "amount": round(amount, 6), "description": words}
            return {**days, **sums, "source": None, "items": []}

        return {
            **days,
            "type": "instance",
            "source": f"instance-{one.id}",
            "description": f"Instance {one.id} Charges",
            "amount": round(one.spent_gpu + one.spent_disk, 6),
            "items": [
                build_item("gpu", one.spent_gpu, "GPU"),
                build_item("disk", one.spent_disk, "Storage"),
            ],
        }

    @staticmethod
    def _parse_filters(request: LocalRequest) -> dict[str, Any]:
        """Return the JSON of ``select_filters``, or {}."""
        try:
            found = json.loads(request.query.get("select_filters", "{}"))
        except ValueError:
            return {}
        if isinstance(found, dict):
            return found
        return {}

    def _list_volumes(self, request: LocalRequest) -> LocalResponse:
        # Network volumes are only listed on request: a client that forgets it misses what they
        # cost.
        wanted = request.query.get("type", "local_volume")
        rows = [
            {
                **VOLUME,
                "id": volume,
                "start_date": self.clock() - 3600.0,
                "disk_space": size,
                "storage_total_cost": round(size * 0.15 / MONTH_H, 6),
                "instances": [
                    {"id": one.id} for one in self.instances.values() if volume in one.volumes
                ],
            }
            for volume, size in self.volumes.items()
            if wanted == "all_volume"
            or (wanted == "network_volume") is (volume in self.network_volumes)
        ]
        return LocalResponse(200, {"volumes": rows})
