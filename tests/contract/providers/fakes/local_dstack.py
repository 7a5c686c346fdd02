"""A dstack server on the loopback: fleets and their instances, runs, volumes.

It answers as server 0.22.5 does in the recordings of `tests.contract.services`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer

_FLEETS = re.compile(r"/api/project/([^/]+)/fleets/delete_instances")


@dataclass
class LocalInstance:
    """One instance of a fleet."""

    project: str
    fleet: str
    place: int
    status: str = "idle"
    price: float | None = 0.69
    host: str = "203.0.113.7"
    below: str | None = None
    """Its id at the provider below, which only a run tells."""
    created: str = "2026-11-20T08:00:00Z"
    uuid: str = ""
    """The server's own identifier; another instance may later get the same number in the fleet."""

    def __post_init__(self) -> None:
        self.uuid = self.uuid or f"00000000-0000-4000-8000-{self.place:012}"

    @property
    def id(self) -> str:
        """``project/fleet/number``."""
        return f"{self.project}/{self.fleet}/{self.place}"

    def json(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        resources = {
            "cpus": 16,
            "memory_mib": 62464,
            "gpus": [{"name": "RTX4090", "memory_mib": 24576}],
            "spot": False,
        }
        return {
            "id": self.uuid,
            "project_name": self.project,
            "backend": "runpod",
            "instance_type": {"name": "NVIDIA GeForce RTX 4090", "resources": resources},
            "name": f"{self.fleet}-{self.place}",
            "fleet_name": self.fleet,
            "instance_num": self.place,
            "job_name": None,
            "hostname": self.host,
            "status": self.status,
            "unreachable": False,
            "health_status": "healthy",
            "termination_reason": None,
            "created": self.created,
            "finished_at": None,
            "region": "EU-RO-1",
            "price": self.price,
            "total_blocks": 1,
            "busy_blocks": int(self.status == "busy"),
        }


class LocalDstack(LocalServer):
    """Instances by their ids; a busy one cannot be deleted."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.instances: dict[str, LocalInstance] = {}
        self.volumes: list[dict[str, Any]] = []

    def add(self, *instances: LocalInstance) -> None:
        """Add instances."""
        self.instances.update((one.id, one) for one in instances)

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as the server does: a wrong token is 403, and only a refused call has a list."""
        if status == 400:
            return LocalResponse(400, {"detail": [{"msg": text, "code": "error"}]}, headers or {})
        return LocalResponse(
            403 if status == 401 else status, {"detail": {"msg": text, "code": None}}, headers or {}
        )

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        body = request.parse_json() or {}
        if request.path == "/api/instances/list":
            wanted = body.get("project_names")
            active = ("idle", "busy") if body.get("only_active") else None
            rows = [
                one.json()
                for one in self.instances.values()
                if (wanted is None or one.project in wanted)
                and (active is None or one.status in active)
            ]
            rows.sort(key=lambda row: (row["created"], row["id"]), reverse=True)
            ids = [row["id"] for row in rows]
            begin = ids.index(body["prev_id"]) + 1 if body.get("prev_id") in ids else 0
            return LocalResponse(200, rows[begin : begin + body["limit"]])
        if request.path == "/api/runs/list":
            told = [one for one in self.instances.values() if one.below]
            data = [{"hostname": one.host, "instance_id": one.below} for one in told]
            return LocalResponse(
                200, [{"latest_job_submission": {"job_provisioning_data": one}} for one in data]
            )
        if request.path == "/api/volumes/list":
            return LocalResponse(200, self.volumes)
        match = _FLEETS.fullmatch(request.path)
        if match is None:
            return self.build_refusal(404, "Not found")
        return self._delete(match[1], body)

    def _delete(self, project: str, body: dict[str, Any]) -> LocalResponse:
        wanted = [f"{project}/{body['name']}/{place}" for place in body["instance_nums"]]
        found = [self.instances[one] for one in wanted if one in self.instances]
        if any(one.status == "busy" for one in found):
            places = body["instance_nums"]
            return self.build_refusal(
                400,
                f"Failed to delete fleet {body['name']} instances {places}. Fleet instances are in use.",
            )
        for one in found:
            one.status = "terminating"
        self.apply_later(lambda: self._end(found))
        # The answer does not depend on whether the instance exists.
        return LocalResponse(200, raw=b"null")

    async def _end(self, found: list[LocalInstance]) -> None:
        for one in found:
            one.status = "terminated"
