"""A local AutoDL: Pro instances in yuan, with status 200 for errors and prices in snapshots only.

Shape and states: https://www.autodl.com/docs/instance_pro_api/ and
https://www.autodl.com/docs/common_api/ (2026-08)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rgt_tui.demo.local_server import (
    LocalRequest,
    LocalResponse,
    LocalServer,
    MachineChange,
)

PRO = "/api/v1/dev/instance/pro"
# The vendor documents no complete list of codes.
CODES = {401: "AuthorizeFailed", 403: "PermissionDenied"}
# Go's zero time: the API writes it instead of null.
NEVER = {"Time": "0001-01-01T00:00:00Z", "Valid": False}


@dataclass
class LocalContainer:
    """One Pro instance; its price in thousandths of a yuan an hour, times in epoch seconds."""

    uuid: str
    name: str
    created: float
    # As in the API; a client that takes it for yuan is off by a factor of 1,000.
    milli_yuan: int = 1980
    status: str = "running"
    gpu: str = "RTX 4090"
    host: str = "connect.westx.example.com"
    port: int = 40123
    expanded: int = 0
    started: float | None = None

    def to_json(self) -> dict[str, object]:
        """Return the instance as the list shows it: without a price."""
        if self.started is None:
            started = NEVER
        else:
            started = {"Time": format_iso(self.started), "Valid": True}
        return {
            "uuid": self.uuid,
            "name": self.name,
            "status": self.status,
            "sub_status": "",
            "region_sign": "west-X",
            "region_name": "西北X区",
            "charge_type": "payg",
            "start_mode": "gpu",
            "req_gpu_amount": 1,
            "gpu_spec_uuid": "gpu-fake-4090",
            "created_at": format_iso(self.created),
            "started_at": started,
            "stopped_at": NEVER,
            "expired_at": NEVER,
            "timed_shutdown_at": NEVER,
        }

    def build_snapshot(self) -> dict[str, object]:
        """Return the snapshot of a running instance."""
        return {
            "region_sign": "west-X",
            "payg_price": self.milli_yuan,
            "origin_pay_price": self.milli_yuan + 100,
            "snapshot_gpu_alias_name": self.gpu,
            "ssh_command": f"ssh -p {self.port} root@{self.host}",
            "proxy_host": self.host,
            "ssh_port": self.port,
            # Present as in the real answer, so that tests can prove that it reaches no log and no
            # screen.
            "root_password": "secret",
            "jupyter_token": "secret",
            "system_init_disk_size": 32212254720,
            "expand_system_disk_size": self.expanded,
            "usage_info": {"cpu_usage_percent": 12.5},
        }


def format_iso(at: float) -> str:
    """Return epoch seconds as the API writes times."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


class LocalAutodl(LocalServer):
    """A control plane on the loopback that answers like AutoDL's; see `LocalServer`.

    An instance whose change failed is ``failed``.
    """

    # AutoDL's header has the bare token, without "Bearer".
    scheme = ""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.containers: dict[str, LocalContainer] = {}
        self.assets = 50_450
        """Thousandths of a yuan."""
        self.moves = True
        """Whether SSH answers on another port after every start."""

    def add_container(
        self, uuid: str, name: str, *, created: float | None = None, **fields: Any
    ) -> LocalContainer:
        """Add an instance with the fields of `LocalContainer`; without `created` it begins now."""
        made = LocalContainer(uuid, name, self.clock() if created is None else created, **fields)
        if made.started is None and made.status == "running":
            made.started = made.created
        self.containers[uuid] = made
        return made

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as AutoDL does: with status 200 for its own errors."""
        # Limits and redirects come from the proxy in front of the API.
        if status >= 429 or 300 <= status < 400:
            shown = status
        else:
            shown = 200
        return self._build_answer(CODES.get(status, "BadRequest"), text, shown, headers)

    @staticmethod
    def _build_answer(
        code: str, text: str, status: int = 200, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        body = {"code": code, "msg": text, "data": None, "request_id": "req-local"}
        return LocalResponse(status, body, headers or {})

    @staticmethod
    def _build_success(data: object) -> LocalResponse:
        return LocalResponse(
            200, {"code": "Success", "msg": "", "data": data, "request_id": "req-local"}
        )

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        if (request.method, request.path) == ("POST", f"{PRO}/list"):
            return self._list_instances(request)
        if (request.method, request.path) == ("POST", "/api/v1/dev/wallet/balance"):
            return self._build_success(
                {"assets": self.assets, "accumulate": 123000, "voucher_balance": 0}
            )
        if (request.method, request.path) == ("GET", f"{PRO}/snapshot"):
            found = self.containers.get(request.query.get("instance_uuid", ""))
            # Only a running instance has a snapshot, hence a price.
            if found is None or found.status != "running":
                return self._build_answer("BadRequest", "实例未运行")
            return self._build_success(found.build_snapshot())
        verb = request.path.removeprefix(f"{PRO}/")
        if request.method == "POST" and verb in ("power_on", "power_off", "release"):
            return self._apply_action(verb, request)
        return self._build_answer("BadRequest", "not found")

    def _list_instances(self, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        if isinstance(body, dict):
            page = body.get("page_index", 1)
        else:
            page = 1
        rows = [one.to_json() for one in self.containers.values()]
        page_limit = 50
        data = {
            "page_index": page,
            "page_size": page_limit,
            "max_page": max(1, -(-len(rows) // page_limit)),
            "result_total": len(rows),
            "list": rows[(page - 1) * page_limit : page * page_limit],
        }
        return self._build_success(data)

    def _apply_action(self, verb: str, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        found = self.containers.get(
            str(body.get("instance_uuid")) if isinstance(body, dict) else ""
        )
        if found is None:
            return self._build_answer("BadRequest", "实例不存在")
        if verb == "power_off" and found.status in ("creating", "starting"):
            # Seen live by https://github.com/Minato-Aqukin/AutoDL-cli (2026-08): it continues to
            # boot.
            return self._build_success(None)
        fits = {
            "power_off": ("running",),
            "power_on": ("shutdown",),
            # As documented: a running instance must be shut down first.
            "release": ("shutdown", "failed"),
        }
        if found.status not in fits[verb]:
            return self._build_answer("BadRequest", "实例状态不允许该操作")
        found.status = {
            "power_off": "shutting_down",
            "power_on": "starting",
            "release": "releasing",
        }[verb]
        self.apply_later(lambda: self._take_effect(found, verb))
        return self._build_success(None)

    async def _take_effect(self, found: LocalContainer, verb: str) -> None:
        action = {"power_off": "stop", "power_on": "start", "release": "terminate"}[verb]
        if not await self.notify_owner(MachineChange(found.uuid, found.name, action)):
            found.status = "failed"
        elif verb == "release":
            self.containers.pop(found.uuid, None)
        elif verb == "power_off":
            found.status = "shutdown"
        else:
            found.status, found.started = "running", self.clock()
            # Seen live by AutoDL-cli (2026-08): the port changes at each power cycle.
            found.port += self.moves
