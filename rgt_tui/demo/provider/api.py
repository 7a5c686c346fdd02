"""The local provider's resources and their rules: what each call does, and when its effect begins to show."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from rgt_tui.demo.provider.pods import LocalPod
from rgt_tui.demo.provider.wire import Request, Response, problem

VERBS = ("stop", "start", "restart", "terminate")

_POD = re.compile(r"/v2/pods/([^/]+)(/action)?")


@dataclass(frozen=True)
class Change:
    """An action takes effect on a pod."""

    pod: str
    name: str
    action: str
    """stop, start, restart or terminate."""


@dataclass(frozen=True)
class NetworkVolume:
    """A network volume; `size` in GB."""

    id: str
    size: float
    kind: str = "STANDARD"


class Api:
    """Pods, volumes and books."""

    def __init__(
        self,
        *,
        settle_s: float,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        on_change: Callable[[Change], Awaitable[None] | None] | None,
    ) -> None:
        self.pods: dict[str, LocalPod] = {}
        self.volumes: dict[str, NetworkVolume] = {}
        self.balance: float | None = None
        """What the account has left; None = there is no API that tells it."""
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep
        self._on_change = on_change
        self._changes: set[asyncio.Task[None]] = set()

    def add(self, pod_id: str, name: str, created: float | None, fields: dict[str, Any]) -> LocalPod:
        """Add a pod; see `LocalProvider.add_pod`."""
        if pod_id in self.pods:
            raise ValueError(f"there is a pod {pod_id} already")
        pod = LocalPod(pod_id, name, self._clock() if created is None else created, **fields)
        self.pods[pod_id] = pod
        return pod

    def handle(self, request: Request) -> Response:
        """Answer one request whose key has been checked."""
        now = self._clock()
        fixed = {
            "/v2/pods": self._list,
            "/v2/billing/pods": self._billing,
            "/v2/network-volumes": self._volumes,
        }.get(request.path)
        if fixed is not None:
            return fixed(request, now) if request.method == "GET" else problem(405, "only GET is taken here")
        if request.path == "/graphql" and self.balance is not None:
            return self._myself(request, now)
        match = _POD.fullmatch(request.path)
        pod = self.pods.get(match[1]) if match else None
        if match is None or pod is None or pod.status == "TERMINATED":
            return problem(404, "not found")
        if match[2]:
            return (
                self._action(pod, request) if request.method == "POST" else problem(405, "only POST is taken")
            )
        if request.method == "GET":
            return Response(200, pod.json(now))
        if request.method == "DELETE":
            refused = self._begin(pod, "terminate")
            return refused or Response(204)
        return problem(405, "only GET and DELETE are taken here")

    def _list(self, request: Request, now: float) -> Response:
        return Response(200, {"pods": [p.json(now) for p in self.pods.values() if p.status != "TERMINATED"]})

    def _billing(self, request: Request, now: float) -> Response:
        wanted = request.query.get("podId")
        records = [pod.billing(now) for pod in self.pods.values() if wanted in (None, pod.id)]
        totals = {"totalAmount": round(sum(float(str(r["totalAmount"])) for r in records), 6)}
        metadata = {
            "query": request.query,
            "recordCount": len(records),
            "totals": totals,
            "uniquePodCount": len(records),
        }
        return Response(200, {"records": records, "metadata": metadata})

    def _myself(self, request: Request, now: float) -> Response:
        """Answer as GraphQL does: what is wrong with a query comes with status 200."""
        if request.method != "POST" or b"clientBalance" not in request.body:
            return Response(200, {"errors": [{"message": "the query is not understood"}]})
        costs = [pod.json(now)["cost"] for pod in self.pods.values()]
        burn = sum(cost for cost in costs if isinstance(cost, float))
        return Response(200, {"data": {"myself": {"clientBalance": self.balance, "currentSpendPerHr": burn}}})

    def _volumes(self, request: Request, now: float) -> Response:
        items = [
            {"id": v.id, "name": v.id, "size": v.size, "dataCenter": "LOCAL-1", "type": v.kind}
            for v in self.volumes.values()
        ]
        return Response(200, {"networkVolumes": items})

    def _action(self, pod: LocalPod, request: Request) -> Response:
        try:
            body = json.loads(request.body or b"{}")
        except (ValueError, RecursionError):
            return problem(422, "the body is not JSON")
        action = body.get("action") if isinstance(body, dict) else None
        if action not in VERBS:
            return problem(422, f"action must be one of {', '.join(VERBS)}")
        refused = self._begin(pod, action)
        if refused is not None:
            return refused
        return Response(204) if action == "terminate" else Response(200, pod.json(self._clock()))

    def _begin(self, pod: LocalPod, action: str) -> Response | None:
        """Accept an action, or return why not. Its effect comes later: this is *requested*, not *done*."""
        if action not in pod.actions:
            why = "the pod is locked" if pod.locked else f"pod is {pod.status}"
            return problem(409, f"action '{action}' is not available while {why}")
        if pod.changing is not None and action != "terminate":
            return problem(409, f"action '{action}' is not available while '{pod.changing}' is under way")
        pod.changing = action
        task = asyncio.ensure_future(self._take_effect(pod, action))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return None

    async def _take_effect(self, pod: LocalPod, action: str) -> None:
        await self._sleep(self._settle_s)
        if pod.changing != action or pod.status == "TERMINATED":
            return  # A terminate came after it.
        status = {"stop": "EXITED", "terminate": "TERMINATED"}.get(action, "RUNNING")
        try:
            if self._on_change is not None:
                result = self._on_change(Change(pod=pod.id, name=pod.name, action=action))
                if inspect.isawaitable(result):
                    await result
        except Exception:  # Whatever the owner's code raised, the pod must not claim a state it has not.
            status = "ERROR"
        now = self._clock()
        pod.book(now)
        pod.status = status
        if pod.changing == action:
            pod.changing = None
        pod.started = now if status == "RUNNING" else None

    async def settle(self) -> None:
        """Wait for the changes that are under way."""
        await asyncio.gather(*self._changes)

    async def close(self) -> None:
        """Drop the changes that are under way."""
        for task in self._changes:
            task.cancel()
        await asyncio.gather(*self._changes, return_exceptions=True)
