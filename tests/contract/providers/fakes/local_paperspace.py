"""A local control plane that answers like Paperspace's API v1: cursors, events, and actions that take their time.

Every exchange is compared with ``profiles/api/paperspace-core.toml``, where the sources are.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from typing import Any

from rgt_tui.demo import (
    LocalRequest,
    LocalResponse,
    LocalServer,
    MachineChange,
    format_iso,
)

CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    412: "PRECONDITION_FAILED",
    429: "TOO_MANY_REQUESTS",
    500: "INTERNAL_SERVER_ERROR",
}
NAMES = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
"""Region as a request may name it → as a machine shows it."""
SIZES = (50, 100, 250, 500, 1000, 2000)
"""GB of a disk."""
NEEDED = ("name", "machineType", "templateId", "region", "diskSize")
_MACHINE = re.compile(r"/machines/([^/]+)(?:/(start|stop|restart))?")


@dataclass
class LocalMachine:
    """One machine; rates as the API tells them, without a unit."""

    id: str
    name: str
    created: float
    type: str = "A4000"
    gpus: int = 1
    usage_rate: float = 0.76
    storage_rate: float = 0.0069
    state: str = "ready"
    region: str = "East Coast (NY2)"
    ip: str | None = "198.51.100.44"
    ip_type: str = "dynamic"
    changing: str | None = None

    def json(self) -> dict[str, object]:
        """Return the machine as the API shows it."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "os": "Ubuntu 22.04",
            "machineType": self.type,
            "agentType": "LinuxHeadless",
            "cpus": 8,
            "ram": 48318382080,
            "storageTotal": 53687091200,
            "storageUsed": 21474836480,
            "accelerators": [
                {"name": f"Quadro RTX {self.type}", "memory": 16106127360, "count": self.gpus}
            ],
            "region": self.region,
            "privateIp": "10.0.0.5",
            "networkId": "nfake01",
            "publicIp": None if self.state == "off" and self.ip_type == "dynamic" else self.ip,
            "publicIpType": self.ip_type,
            "autoShutdownEnabled": False,
            "autoShutdownTimeout": None,
            "autoShutdownForce": None,
            "autoSnapshotEnabled": False,
            "autoSnapshotFrequency": None,
            "autoSnapshotSaveCount": None,
            "updatesPending": False,
            "restorePointEnabled": False,
            "restorePointFrequency": None,
            "restorePointSnapshotId": None,
            "usageRate": self.usage_rate,
            "storageRate": self.storage_rate,
            "dtCreated": format_iso(self.created),
            "dtModified": format_iso(self.created),
            "dtDeleted": None,
            "reservation": None,
        }


@dataclass
class LocalTemplate:
    """An operating system and the machine types that it runs on."""

    id: str
    name: str
    types: tuple[str, ...]
    agent: str = "LinuxHeadless"
    size: int | None = 50

    def json(self) -> dict[str, object]:
        """Return the template as the API shows it."""
        labels = [{"machineTypeLabel": label, "isAvailable": True} for label in self.types]
        return {
            "id": self.id,
            "name": self.name,
            "agentType": self.agent,
            "operatingSystemLabel": "Ubuntu 22.04",
            "defaultSizeGb": self.size,
            "dtCreated": "2024-11-01T00:00:00.000Z",
            "availableMachineTypes": labels,
        }


@dataclass
class _Events:
    """What happened to the machines."""

    all: list[dict[str, object]] = field(default_factory=list)

    def begin(self, name: str, machine: str, now: float) -> dict[str, object]:
        """Add an event that has just begun."""
        event: dict[str, object] = {
            "id": f"ev{len(self.all):06d}",
            "name": name,
            "state": "new",
            "machineId": machine,
            "dtCreated": format_iso(now),
            "dtStarted": None,
            "dtFinished": None,
            "error": None,
        }
        self.all.append(event)
        return event


class LocalPaperspace(LocalServer):
    """A control plane on the loopback that answers like Paperspace's; the arguments are those of `LocalServer`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.machines: dict[str, LocalMachine] = {}
        self.templates: list[LocalTemplate] = []
        self.capacity: set[tuple[str, str]] = set()
        """``(machine type, region)`` of what can be had."""
        self.lists: dict[str, list[dict[str, object]]] = {
            "public-ips": [],
            "snapshots": [],
            "shared-drives": [],
        }
        self.scripts: dict[str, dict[str, object]] = {}
        self.limit = 120
        """The most of a page."""
        self._events = _Events()

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as Paperspace does."""
        code = CODES.get(status, "INTERNAL_SERVER_ERROR")
        return LocalResponse(status, {"code": code, "message": text}, headers or {})

    def add_machine(self, machine: str, name: str, **fields: Any) -> LocalMachine:
        """Add a machine; `fields` are those of `LocalMachine`. One that runs was started when it was made."""
        fields.setdefault("created", self.clock())
        made = LocalMachine(machine, name, **fields)
        self.machines[machine] = made
        if made.state != "off":
            self._done(self._events.begin("start", machine, made.created), made.created)
        return made

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        path = request.path.removeprefix("/v1")
        fixed: dict[str, list[dict[str, object]]] = {
            "/machines": [one.json() for one in self.machines.values()],
            "/os-templates": [one.json() for one in self.templates],
            **{f"/{name}": items for name, items in self.lists.items()},
        }
        if request.method == "GET" and path in fixed:
            return self._page(request, fixed[path])
        if request.method == "GET" and path == "/machine-events":
            of = [
                one
                for one in reversed(self._events.all)
                if one["machineId"] == request.query.get("machineId")
            ]
            return self._page(request, of)
        if request.method == "GET" and path == "/machine-availability":
            region = request.query.get("region", "")
            wanted = (request.query.get("machineType", ""), NAMES.get(region, region))
            return LocalResponse(200, {"available": wanted in self.capacity})
        if request.method == "POST" and path == "/startup-scripts":
            return self._script(request)
        if request.method == "POST" and path == "/machines":
            return self._create(request)
        return self._machine(request, path)

    def _page(self, request: LocalRequest, items: list[dict[str, object]]) -> LocalResponse:
        size = min(int(request.query.get("limit", "10")), self.limit)
        begin = int(request.query.get("after", "0"))
        more = begin + size < len(items)
        part = items[begin : begin + size]
        return LocalResponse(
            200, {"items": part, "hasMore": more, "nextPage": str(begin + size) if more else None}
        )

    def _machine(self, request: LocalRequest, path: str) -> LocalResponse:
        match = _MACHINE.fullmatch(path)
        machine = self.machines.get(match[1]) if match else None
        if match is None or machine is None:
            return self.build_refusal(404, "Machine not found.")
        if request.method == "GET" and not match[2]:
            return LocalResponse(200, machine.json())
        if request.method == "DELETE" and not match[2]:
            return self._begin(machine, "deactivate", machine.state)
        if request.method != "PATCH" or not match[2]:
            return self.build_refusal(404, "Not found")
        if match[2] == "stop" and machine.state in ("off", "stopping"):
            return self.build_refusal(409, f"This machine is currently {machine.state}.")
        if match[2] == "start" and machine.state != "off":
            return self.build_refusal(409, f"This machine is currently {machine.state}.")
        return self._begin(
            machine, match[2], {"stop": "stopping", "start": "starting"}.get(match[2], "restarting")
        )

    def _begin(self, machine: LocalMachine, name: str, state: str) -> LocalResponse:
        event = self._events.begin(name, machine.id, self.clock())
        machine.state, machine.changing = state, name
        said = dict(event)
        self.apply_later(lambda: self._take_effect(machine, name, event))
        return LocalResponse(200, {"event": said, "data": machine.json()})

    async def _take_effect(
        self, machine: LocalMachine, name: str, event: dict[str, object]
    ) -> None:
        if machine.changing != name:
            return  # A deletion came after it.
        action = "terminate" if name == "deactivate" else name
        if not await self.notify_owner(MachineChange(machine.id, machine.name, action)):
            event.update(state="error", error="the machine did not do it")
            return
        if name == "deactivate":
            self.machines.pop(machine.id, None)
        machine.state = {"stop": "off"}.get(name, "ready")
        machine.changing = None
        self._done(event, self.clock())

    @staticmethod
    def _done(event: dict[str, object], now: float) -> None:
        event.update(state="done", dtStarted=format_iso(now), dtFinished=format_iso(now))

    def _script(self, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        if not isinstance(body, dict) or not body.get("name") or not body.get("script"):
            return self.build_refusal(400, "name and script are required")
        found = f"sc{secrets.token_hex(4)}"
        self.scripts[found] = body
        made = {
            "id": found,
            "name": body["name"],
            "description": None,
            "isEnabled": True,
            "isRunOnce": body.get("isRunOnce", False),
            "assignedMachineIds": [],
            "dtCreated": format_iso(self.clock()),
            "dtDeleted": None,
        }
        return LocalResponse(200, made)

    def _create(self, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        if not isinstance(body, dict) or any(not body.get(key) for key in NEEDED):
            return self.build_refusal(400, f"{', '.join(NEEDED)} are required")
        if body["diskSize"] not in SIZES:
            return self.build_refusal(400, f"diskSize is not one of {SIZES}")
        template = next((one for one in self.templates if one.id == body["templateId"]), None)
        if template is None or body["machineType"] not in template.types:
            return self.build_refusal(400, "The template is not available on this machine type.")
        if body.get("startupScriptId") is not None and body["startupScriptId"] not in self.scripts:
            return self.build_refusal(404, "Startup script not found.")
        machine = LocalMachine(
            f"ps{secrets.token_hex(4)}",
            body["name"],
            self.clock(),
            type=body["machineType"],
            state="provisioning",
            region=NAMES.get(str(body["region"]), str(body["region"])),
            ip_type=body.get("publicIpType", "none"),
        )
        self.machines[machine.id] = machine
        event = self._events.begin("create", machine.id, machine.created)
        machine.changing = "create"
        said = dict(event)
        if (machine.type, machine.region) in self.capacity:
            self.apply_later(lambda: self._take_effect(machine, "create", event))
        else:
            # Without capacity it comes to be all the same, off: https://github.com/skypilot-org/skypilot/issues/3197
            machine.state, machine.changing = "off", None
            event.update(state="error", error="no capacity")
        return LocalResponse(200, {"event": said, "data": machine.json()})
