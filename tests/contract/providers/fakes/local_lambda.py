"""A local Lambda Cloud: instances that can only be terminated, types with capacity, file systems that outlive them.

Shape and states: https://docs.lambda.ai/api/cloud (OpenAPI 1.10.0, 2026-08)
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any

from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer, MachineChange

CODES = {
    400: "global/invalid-parameters",
    401: "global/invalid-api-key",
    403: "global/account-inactive",
    404: "global/object-does-not-exist",
    409: "global/conflict",
}


@dataclass
class LocalMachine:
    """One instance; its price in cents an hour."""

    id: str
    name: str
    kind: str = "gpu_1x_a10"
    cents: int = 75
    status: str = "active"
    ip: str | None = "198.51.100.9"
    region: str = "us-west-1"
    filesystems: tuple[str, ...] = ()
    mounted_at: str = "/lambda/nfs"

    def json(self) -> dict[str, object]:
        """Return the instance as the API shows it."""
        mounts = [
            {"mount_point": f"{self.mounted_at}/{one}", "file_system_id": f"fs-{one}"}
            for one in self.filesystems
        ]
        can = {"available": self.status in ("active", "unhealthy", "booting")}
        return {
            "id": self.id,
            "name": self.name,
            **({"ip": self.ip} if self.ip and self.status != "booting" else {}),
            "private_ip": "10.19.1.4",
            "status": self.status,
            "ssh_key_names": ["laptop"],
            "file_system_names": list(self.filesystems),
            **({"file_system_mounts": mounts} if mounts else {}),
            "region": {"name": self.region, "description": "California, USA"},
            "instance_type": type_of(self.kind, self.cents),
            "hostname": "198-51-100-9.cloud.lambda.ai",
            "jupyter_token": "secret",
            "jupyter_url": "https://jupyter.invalid/?token=secret",
            "actions": dict.fromkeys(
                ("migrate", "rebuild", "restart", "cold_reboot", "terminate"), can
            ),
            "tags": [],
            "is_reserved": False,
        }


def type_of(kind: str, cents: int) -> dict[str, object]:
    """Return a type of instance as the API shows it, by its name: ``gpu_1x_a10``."""
    count, _, model = kind.removeprefix("gpu_").partition("x_")
    return {
        "name": kind,
        "description": f"{count}x {model.upper()}",
        "gpu_description": f"{model.upper()} (24 GB PCIe)",
        "price_cents_per_hour": cents,
        "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": int(count)},
    }


_INSTANCE = re.compile(r"/api/v1/instances/([^/]+)")


class LocalLambda(LocalServer):
    """A control plane on the loopback that answers like Lambda's; the arguments are those of `LocalServer`.

    An instance whose change failed is ``unhealthy``.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.machines: dict[str, LocalMachine] = {}
        self.types: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Name of a type → cents an hour, and the regions that have one."""
        self.filesystems: dict[str, int] = {}
        """Name → bytes in it."""
        self.keys: dict[str, str] = {"laptop": "ssh-ed25519 BBBB laptop"}
        self.lingers = False
        """Whether a terminated instance stays in the list for a while."""
        self.launched: list[dict[str, Any]] = []
        """The bodies of the launches that were carried out."""

    def add_machine(self, machine: str, name: str, **fields: Any) -> LocalMachine:
        """Add an instance; `fields` are those of `LocalMachine`."""
        self.machines[machine] = made = LocalMachine(machine, name, **fields)
        return made

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as Lambda does."""
        code = CODES.get(status, "provider/unexpected")
        return self._error(status, code, text, headers)

    @staticmethod
    def _error(
        status: int, code: str, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        body = {"error": {"code": code, "message": text, "suggestion": "Check the request."}}
        return LocalResponse(status, body, headers or {})

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        fixed = {
            ("GET", "/api/v1/instances"): self._list,
            ("GET", "/api/v1/instance-types"): self._types,
            ("GET", "/api/v1/file-systems"): self._filesystems,
            ("GET", "/api/v1/ssh-keys"): self._keys,
            ("POST", "/api/v1/ssh-keys"): self._add_key,
            ("GET", "/api/v1/images"): self._images,
            ("POST", "/api/v1/instance-operations/restart"): self._restart,
            ("POST", "/api/v1/instance-operations/terminate"): self._terminate,
            ("POST", "/api/v1/instance-operations/launch"): self._launch,
        }.get((request.method, request.path))
        if fixed is not None:
            return fixed(request)
        match = _INSTANCE.fullmatch(request.path)
        found = self.machines.get(match[1]) if match else None
        if request.method != "GET" or found is None:
            return self.build_refusal(404, "Specified instance does not exist.")
        return LocalResponse(200, {"data": found.json()})

    def _list(self, request: LocalRequest) -> LocalResponse:
        return LocalResponse(200, {"data": [one.json() for one in self.machines.values()]})

    def _types(self, request: LocalRequest) -> LocalResponse:
        data = {
            kind: {
                "instance_type": type_of(kind, cents),
                "regions_with_capacity_available": [
                    {"name": one, "description": one} for one in regions
                ],
            }
            for kind, (cents, regions) in self.types.items()
        }
        return LocalResponse(200, {"data": data})

    def _images(self, request: LocalRequest) -> LocalResponse:
        image = {
            "id": "43336648-096d-4cba-9aa2-f9bb7727639d",
            "created_time": "2026-09-01T00:00:00Z",
            "updated_time": "2026-09-01T00:00:00Z",
            "name": "lambda-stack-24-04",
            "description": "Lambda Stack",
            "family": "lambda-stack-24-04",
            "version": "24.04.1",
            "architecture": "x86_64",
            "region": {"name": "us-west-1", "description": "California, USA"},
        }
        return LocalResponse(200, {"data": [image]})

    def _named(self, request: LocalRequest) -> list[LocalMachine] | LocalResponse:
        """Return the instances that a body names, or the refusal."""
        body = request.parse_json()
        ids = body.get("instance_ids") if isinstance(body, dict) else None
        if not isinstance(ids, list) or not ids:
            return self.build_refusal(400, "instance_ids is required")
        found = [self.machines[one] for one in ids if one in self.machines]
        if len(found) < len(ids) or any(one.status == "terminated" for one in found):
            return self.build_refusal(404, "Specified instance does not exist.")
        return found

    def _restart(self, request: LocalRequest) -> LocalResponse:
        found = self._named(request)
        if isinstance(found, LocalResponse):
            return found
        return LocalResponse(200, {"data": {"restarted_instances": [one.json() for one in found]}})

    def _filesystems(self, request: LocalRequest) -> LocalResponse:
        data = [
            {
                "id": f"fs-{name}",
                "name": name,
                "mount_point": f"/lambda/nfs/{name}",
                "created": "2026-10-01T00:00:00Z",
                "created_by": {"id": "u-1", "email": "a@example.org", "status": "active"},
                "is_in_use": any(name in one.filesystems for one in self.machines.values()),
                "bytes_used": size,
                "region": {"name": "us-west-1", "description": "California, USA"},
            }
            for name, size in self.filesystems.items()
        ]
        return LocalResponse(200, {"data": data})

    def _keys(self, request: LocalRequest) -> LocalResponse:
        rows = [{"id": name, "name": name, "public_key": key} for name, key in self.keys.items()]
        return LocalResponse(200, {"data": rows})

    def _add_key(self, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        if not isinstance(body, dict) or not body.get("name") or not body.get("public_key"):
            return self.build_refusal(400, "name and public_key are required")
        self.keys[body["name"]] = body["public_key"]
        return LocalResponse(200, {"data": {"id": body["name"], **body}})

    def _terminate(self, request: LocalRequest) -> LocalResponse:
        found = self._named(request)
        if isinstance(found, LocalResponse):
            return found
        for one in found:
            self.apply_later(lambda one=one: self._take_effect(one))  # type: ignore[misc]
            one.status = "terminating"
        return LocalResponse(200, {"data": {"terminated_instances": [one.json() for one in found]}})

    async def _take_effect(self, machine: LocalMachine) -> None:
        if machine.id not in self.machines:
            return
        fine = await self.notify_owner(MachineChange(machine.id, machine.name, "terminate"))
        machine.status = "terminated" if fine else "unhealthy"
        if fine and not self.lingers:
            self.machines.pop(machine.id, None)

    def _launch(self, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        if not isinstance(body, dict) or len(body.get("ssh_key_names") or ()) != 1:
            return self.build_refusal(400, "exactly one SSH key is required")
        kind, region = body.get("instance_type_name"), body.get("region_name")
        cents, regions = self.types.get(str(kind), (0, ()))
        if region not in regions:
            code = "instance-operations/launch/insufficient-capacity"
            return self._error(400, code, "Not enough capacity to fulfill launch request.")
        if body["ssh_key_names"][0] not in self.keys:
            return self.build_refusal(404, "Specified SSH key does not exist.")
        self.launched.append(body)
        made = self.add_machine(
            secrets.token_hex(16),
            str(body.get("name") or ""),
            kind=str(kind),
            cents=cents,
            region=str(region),
            status="booting",
            filesystems=tuple(body.get("file_system_names") or ()),
        )

        async def boot() -> None:
            if made.status == "booting":
                made.status = "active"

        self.apply_later(boot)
        return LocalResponse(200, {"data": {"instance_ids": [made.id]}})
