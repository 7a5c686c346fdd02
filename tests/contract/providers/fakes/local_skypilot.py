"""A SkyPilot API server on the loopback: requests are queued, and what came of them is asked for by an id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rgt_tui.demo.platforms import LocalServer, Request, Response

AFTER = {"/stop": "STOPPED", "/down": "gone", "/start": "UP"}


@dataclass
class LocalCluster:
    """One cluster."""

    name: str
    status: str = "UP"
    cloud: str = "Lambda"
    rate: float | None = 0.75

    def json(self) -> dict[str, Any]:
        """Return it as ``/status`` shows it with ``include_handle`` off."""
        return {
            "name": self.name,
            "launched_at": 1795075200,
            "status": self.status,
            "autostop": -1,
            "to_down": False,
            "cluster_hash": "c0ffee",
            "user_name": "alice",
            "workspace": "default",
            "nodes": 1,
            "cloud": self.cloud,
            "region": "us-west-1",
            "cpus": "30",
            "memory": "200",
            "accelerators": "{'A10': 1}",
            "resources_str": "1x Lambda(gpu_1x_a10)",
            "is_managed": False,
        }


class LocalSkyPilot(LocalServer):
    """Clusters by their names. It refuses a request without the two words that say who asks."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.clusters: dict[str, LocalCluster] = {}
        self.stops = True
        """Whether the cloud below can stop; else the request fails, and the cluster is as it was."""
        self._results: dict[str, tuple[str, Any]] = {}

    def add(self, *clusters: LocalCluster) -> None:
        """Add clusters."""
        self.clusters.update((one.name, one) for one in clusters)

    def handle(self, request: Request) -> Response:
        """Answer one request whose key has been checked."""
        if request.path == "/api/get":
            return self._get(request.query.get("request_id", ""))
        body = request.json() or {}
        who = body.get("env_vars", {})
        if not {"SKYPILOT_USER_ID", "SKYPILOT_USER"} <= who.keys():
            return self.refusal(500, "KeyError: 'SKYPILOT_USER_ID'")
        if request.path == "/status":
            if body.get("include_handle") is not False or body.get("all_users") is not False:
                return self.refusal(422, "this server shows no pickles")
            wanted = body["cluster_names"]
            return self._queued("sky.status", [
                one.json() for one in self.clusters.values() if wanted is None or one.name in wanted
            ])  # fmt: skip
        if request.path == "/cost_report":
            rows = [one for one in self.clusters.values() if one.rate is not None]
            return self._queued(
                "sky.cost_report",
                [{"name": one.name, "duration": 7200, "total_cost": 2 * (one.rate or 0.0)} for one in rows],
            )
        if request.path in AFTER:
            if body.get("purge"):
                return self.refusal(422, "purge forgets what may still bill")
            name, after = body["cluster_name"], AFTER[request.path]
            self.later(lambda: self._take_effect(name, after))
            return self._queued(f"sky{request.path.replace('/', '.')}", None)
        return self.refusal(404, "not found")

    def _queued(self, name: str, value: Any) -> Response:
        ident = f"req-{len(self._results)}"
        self._results[ident] = (name, value)
        return Response(200, None, {"X-Skypilot-Request-ID": ident}, raw=b"null")

    def _get(self, ident: str) -> Response:
        if ident not in self._results:
            return self.refusal(404, "no such request")
        name, value = self._results[ident]
        data = {"request_id": ident, "name": name, "status": "SUCCEEDED", "return_value": json.dumps(value)}
        return Response(200, {**data, "error": None})

    async def _take_effect(self, name: str, after: str) -> None:
        found = self.clusters.get(name)
        if found is None or (after == "STOPPED" and not self.stops):
            return
        if after == "gone":
            del self.clusters[name]
        else:
            found.status = after
