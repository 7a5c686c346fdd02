"""A SkyPilot API server on the loopback: it queues requests, and returns the result of each by its id.

It answers as server 0.14.1 does in the recordings of `tests.contract.services`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer

AFTER = {"/stop": "STOPPED", "/down": "gone", "/start": "UP"}
CANNOT_STOP = ("Lambda", "RunPod")


@dataclass
class LocalCluster:
    """One cluster."""

    name: str
    status: str = "UP"
    cloud: str = "AWS"
    rate: float | None = 0.75
    updated: int = 1795075200
    """When the cloud has last confirmed the status."""

    def json(self) -> dict[str, Any]:
        """Return it as ``/status`` shows it with ``include_handle`` off."""
        return {
            "name": self.name,
            "launched_at": 1795075200,
            "status": self.status,
            "autostop": -1,
            "to_down": False,
            "cluster_hash": "c0ffee",
            "cluster_ever_up": True,
            "status_updated_at": self.updated,
            "user_hash": "0a1b2c3d",
            "user_name": "alice",
            "workspace": "default",
            "nodes": 1,
            "cloud": self.cloud,
            "region": "us-west-1",
            "cpus": "30.0",
            "memory": "200.0",
            "accelerators": "{'A10': 1}",
            "resources_str": "1x(gpus=A10:1, gpu_1x_a10, ...)",
            "is_managed": False,
            "labels": {},
            "last_use": "",
            "handle": "gAROLg==",
            "storage_mounts_metadata": "gAROLg==",
        }


class LocalSkyPilot(LocalServer):
    """Clusters by their names. It refuses a request without the two words that say who asks."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.clusters: dict[str, LocalCluster] = {}
        self.cloud_answers = True
        """Whether a status can be refreshed; otherwise the server returns the last one, as if it were fresh."""
        self._results: dict[str, dict[str, Any]] = {}

    def add(self, *clusters: LocalCluster) -> None:
        """Add clusters."""
        self.clusters.update((one.name, one) for one in clusters)

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        if request.path == "/api/get":
            return self._get(request.query.get("request_id", ""))
        body = request.parse_json() or {}
        who = body.get("env_vars", {})
        if not {"SKYPILOT_USER_ID", "SKYPILOT_USER"} <= who.keys():
            return self.build_refusal(500, "KeyError: 'SKYPILOT_USER_ID'")
        if request.path == "/status":
            if body.get("include_handle") is not False or body.get("all_users") is not False:
                return self.build_refusal(422, "this server shows no pickles")
            wanted = body["cluster_names"]
            if body["refresh"] == "FORCE" and self.cloud_answers:
                for one in self.clusters.values():
                    one.updated = int(self.clock())
            return self._queued("sky.status", [
                one.json() for one in self.clusters.values() if wanted is None or one.name in wanted
            ])  # fmt: skip
        if request.path == "/cost_report":
            rows = [one for one in self.clusters.values() if one.rate is not None]
            return self._queued(
                "sky.cost_report",
                [
                    {
                        "name": one.name,
                        "status": one.status,
                        "duration": 7200,
                        "total_cost": 2 * (one.rate or 0.0),
                    }
                    for one in rows
                ],
            )
        if request.path in AFTER:
            if body.get("purge"):
                return self.build_refusal(422, "purge forgets what may still bill")
            return self._act(request.path, body["cluster_name"])
        return self.build_refusal(404, "Not Found")

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as the server's framework does."""
        return LocalResponse(status, {"detail": text}, headers or {})

    def _act(self, path: str, name: str) -> LocalResponse:
        verb, found = path.removeprefix("/"), self.clusters.get(name)
        if found is None:
            return self._queued(
                f"sky.{verb}", None, ("ClusterDoesNotExist", f"Cluster {name!r} does not exist.")
            )
        if verb == "stop" and found.cloud in CANNOT_STOP:
            words = (
                f"\x1b[33mStopping cluster {name!r}... skipped.\x1b[0m\n  Stopping is currently not supported for "
                f"{found.cloud.lower()}.\n  To terminate the cluster instead, run: \x1b[1msky down {name}"
            )
            return self._queued("sky.stop", None, ("NotSupportedError", words))
        self.apply_later(lambda: self._take_effect(name, AFTER[path]))
        return self._queued(f"sky.{verb}", None)

    def _queued(self, name: str, value: Any, error: tuple[str, str] | None = None) -> LocalResponse:
        ident = f"req-{len(self._results)}"
        failed = error and {"object": "…", "type": error[0], "message": error[1]}
        self._results[ident] = {
            "request_id": ident,
            "name": name,
            "entrypoint": "…",
            "request_body": "…",
            "status": "FAILED" if error else "SUCCEEDED",
            "created_at": self.clock(),
            "return_value": json.dumps(value),
            # Also where there is none: JSON in a text.
            "error": json.dumps(failed),
        }
        return LocalResponse(200, None, {"X-Skypilot-Request-ID": ident}, raw=b"null")

    def _get(self, ident: str) -> LocalResponse:
        found = self._results.get(ident)
        if found is None:
            return self.build_refusal(404, f"Request {ident!r} not found")
        if found["status"] == "FAILED":
            return LocalResponse(500, {"detail": found})
        return LocalResponse(200, found)

    async def _take_effect(self, name: str, after: str) -> None:
        if name not in self.clusters:
            return
        if after == "gone":
            del self.clusters[name]
        else:
            self.clusters[name].status = after
