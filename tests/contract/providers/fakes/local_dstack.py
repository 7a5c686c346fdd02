"""A dstack server on the loopback: fleets and their instances, runs, volumes; https://dstack.ai/docs (0.22.5)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rgt_tui.demo.platforms import LocalServer, Request, Response

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
    created: str = "2026-11-20T08:00:00+00:00"

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
            "id": f"00000000-0000-4000-8000-{self.place:012}",
            "project_name": self.project,
            "backend": "runpod",
            "instance_type": {"name": "NVIDIA GeForce RTX 4090", "resources": resources},
            "name": f"{self.fleet}-{self.place}",
            "fleet_name": self.fleet,
            "instance_num": self.place,
            "hostname": self.host,
            "status": self.status,
            "unreachable": False,
            "health_status": "healthy",
            "created": self.created,
            "region": "EU-RO-1",
            "price": self.price,
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

    def refusal(self, status: int, text: str, headers: dict[str, str] | None = None) -> Response:
        """Return an error as the server does."""
        code = {401: "not_authenticated", 404: "resource_not_exists"}.get(status, "error")
        return Response(status, {"detail": [{"msg": text, "code": code}]}, headers or {})

    def handle(self, request: Request) -> Response:
        """Answer one request whose key has been checked."""
        body = request.json() or {}
        if request.path == "/api/instances/list":
            wanted = body.get("project_names")
            rows = [one for one in self.instances.values() if wanted is None or one.project in wanted]
            live = [one.json() for one in rows if one.status != "terminated"]
            ids = [one["id"] for one in live]
            begin = ids.index(body["prev_id"]) + 1 if body.get("prev_id") in ids else 0
            return Response(200, live[begin : begin + body["limit"]])
        if request.path == "/api/runs/list":
            told = [one for one in self.instances.values() if one.below]
            data = [{"hostname": one.host, "instance_id": one.below} for one in told]
            return Response(200, [{"latest_job_submission": {"job_provisioning_data": one}} for one in data])
        if request.path == "/api/volumes/list":
            return Response(200, self.volumes)
        match = _FLEETS.fullmatch(request.path)
        if match is None:
            return self.refusal(404, "not found")
        return self._delete(match[1], body)

    def _delete(self, project: str, body: dict[str, Any]) -> Response:
        wanted = [f"{project}/{body['name']}/{place}" for place in body["instance_nums"]]
        found = [self.instances[one] for one in wanted if one in self.instances]
        if any(one.status == "busy" for one in found):
            return self.refusal(400, "Failed to delete fleet instances. Fleet instances are in use.")
        for one in found:
            one.status = "terminating"
        self.later(lambda: self._end(found))
        # The server says nothing of what was not there.
        return Response(200, raw=b"null")

    async def _end(self, found: list[LocalInstance]) -> None:
        for one in found:
            one.status = "terminated"
