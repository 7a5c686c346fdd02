"""A local control plane that answers like DigitalOcean's API v2 for GPU droplets, pagination and traps included.

Shapes: https://docs.digitalocean.com/reference/api/ (OpenAPI of 2026-08).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from rgt_tui.demo import (
    LocalRequest,
    LocalResponse,
    LocalServer,
    MachineChange,
    format_iso,
)

NVIDIA = "nvidia_h100"
LIMIT_WORDS = "creating this/these droplet(s) will exceed your droplet limit"
SIZE_WORDS = "Size is not available in this region."
POWER = {"power_off": ("off", "stop"), "shutdown": ("off", "stop"), "power_on": ("active", "start")}
"""Type of an action → the status that it leads to, and what it is in the words of `MachineChange`."""
_NAME = re.compile(r"[a-zA-Z0-9]?[a-z0-9A-Z.\-]*[a-z0-9A-Z]")
_DROPLET = re.compile(r"/v2/droplets/([0-9]+)(/actions|/destroy_with_associated_resources)?")


@dataclass
class LocalSize:
    """One size of droplet; $ an hour of the whole of it, GB of disk, TB of traffic."""

    slug: str
    price: float
    model: str | None = NVIDIA
    count: int = 1
    vram: int = 80
    disk: int = 720
    transfer: float = 15.0
    regions: tuple[str, ...] = ("nyc2", "tor1")
    available: bool = True

    def gpu(self) -> dict[str, object]:
        """Return its GPU as the API shows it; nothing for a size without."""
        if self.model is None:
            return {}
        return {
            "gpu_info": {
                "count": self.count,
                "model": self.model,
                "vram": {"amount": self.vram, "unit": "gib"},
            }
        }

    def json(self) -> dict[str, object]:
        """Return the size as the API shows it."""
        return {
            "slug": self.slug,
            "memory": 245760,
            "vcpus": 20,
            "disk": self.disk,
            "transfer": self.transfer,
            "price_monthly": round(self.price * 744, 2),
            "price_hourly": self.price,
            "regions": list(self.regions),
            "available": self.available,
            "description": "GPU" if self.model else "Basic",
            **self.gpu(),
        }


@dataclass
class LocalDroplet:
    """One droplet."""

    id: int
    name: str
    created: float
    size: LocalSize
    region: str = "nyc2"
    status: str = "active"
    locked: bool = False
    host: str | None = "198.51.100.60"
    features: tuple[str, ...] = ()
    hanging: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    """Of ``volumes``, ``snapshots``, ``volume_snapshots`` and ``reserved_ips``, each ``{id, name, cost}``."""

    def json(self) -> dict[str, object]:
        """Return the droplet as the API shows it."""
        v4 = [
            {
                "ip_address": "10.0.0.5",
                "netmask": "255.255.240.0",
                "gateway": None,
                "type": "private",
            }
        ]
        if self.host is not None and self.status != "new":
            public = {"netmask": "255.255.255.0", "gateway": "198.51.100.1", "type": "public"}
            v4.append({"ip_address": self.host, **public})
        return {
            "id": self.id,
            "name": self.name,
            "memory": 245760,
            "vcpus": 20,
            "disk": self.size.disk,
            "locked": self.locked,
            "status": self.status,
            "created_at": format_iso(self.created),
            "features": list(self.features),
            "backup_ids": [],
            "snapshot_ids": [int(str(one["id"])) for one in self.hanging.get("snapshots", ())],
            "volume_ids": [one["id"] for one in self.hanging.get("volumes", ())],
            "next_backup_window": None,
            "kernel": None,
            "image": IMAGE,
            "vpc_uuid": "c8a5c9f2-1b1f-4b54-8c1f-1b2d1a9f0f6e",
            "size": self.size.json(),
            "size_slug": self.size.slug,
            "networks": {"v4": v4, "v6": []},
            "region": region_of(self.region, (self.size.slug,)),
            "tags": [],
            **self.size.gpu(),
        }


def region_of(slug: str, sizes: tuple[str, ...] = ()) -> dict[str, object]:
    """Return a region as the API shows it."""
    features = ["backups", "ipv6", "metadata"]
    return {
        "slug": slug,
        "name": slug.upper(),
        "available": True,
        "features": features,
        "sizes": list(sizes),
    }


CREATED = "2026-09-01T00:00:00Z"
IMAGE = {
    "id": 63663980,
    "name": "AI/ML Ready",
    "distribution": "Ubuntu",
    "type": "base",
    "slug": "gpu-h100x1-base",
    "public": True,
    "regions": ["nyc2", "tor1"],
    "created_at": CREATED,
    "min_disk_size": 0,
    "size_gigabytes": 0,
}
USUAL: Mapping[str, Mapping[str, object]] = {
    "volumes": {
        "description": "",
        "created_at": CREATED,
        "droplet_ids": [],
        "region": region_of("nyc2"),
        "tags": [],
        "filesystem_type": "ext4",
        "filesystem_label": "",
    },
    "snapshots": {
        "created_at": CREATED,
        "regions": ["nyc2"],
        "min_disk_size": 720,
        "resource_id": "510000001",
        "resource_type": "droplet",
        "tags": [],
    },
    "reserved_ips": {"region": region_of("nyc2"), "droplet": None, "locked": False},
    "kubernetes_clusters": {"version": "1.33.1-do.3"},
}
"""Fields of what is listed, where a test does not set them (`profiles/api/digitalocean.toml`)."""


class LocalDigitalOcean(LocalServer):
    """A control plane on the loopback that answers like DigitalOcean's; the arguments are those of `LocalServer`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.droplets: dict[int, LocalDroplet] = {}
        self.sizes: list[LocalSize] = []
        self.lists: dict[str, list[dict[str, object]]] = {name: [] for name in USUAL}
        """What ``/v2/volumes``, ``/v2/snapshots``, ``/v2/reserved_ips`` and ``/v2/kubernetes/clusters`` show."""
        self.keys: dict[str, str] = {}
        """Fingerprint → public key."""
        self.owed = "81.20"
        self.limit = 25
        """How many droplets the account may have."""
        self.per_page = 200
        """The most of a page; smaller than the API's in a test of pages."""
        self._next = 510_000_001

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error as DigitalOcean does."""
        names = {429: "too_many_requests", 500: "server_error", 422: "unprocessable_entity"}
        name = names.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")
        return LocalResponse(status, {"id": name, "message": text}, headers or {})

    def add_droplet(self, name: str, size: LocalSize, **fields: Any) -> LocalDroplet:
        """Add a droplet; `fields` are those of `LocalDroplet`."""
        fields.setdefault("created", self.clock())
        droplet = LocalDroplet(id=self._next, name=name, size=size, **fields)
        self._next += 1
        self.droplets[droplet.id] = droplet
        return droplet

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked."""
        what = f"{request.method} {request.path}"
        if what == "GET /v2/droplets":
            return self._page(request, "droplets", self._listed(request))
        if what == "GET /v2/sizes":
            return self._page(request, "sizes", [size.json() for size in self.sizes])
        listed = request.path.removeprefix("/v2/").replace(
            "kubernetes/clusters", "kubernetes_clusters"
        )
        if request.method == "GET" and listed in USUAL:
            return self._page(
                request, listed, [{**USUAL[listed], **one} for one in self.lists.get(listed, [])]
            )
        if what == "GET /v2/customers/my/balance":
            sums = {
                "month_to_date_balance": self.owed,
                "account_balance": "0.00",
                "month_to_date_usage": "81.20",
            }
            return LocalResponse(200, {**sums, "generated_at": format_iso(self.clock())})
        if what == "POST /v2/droplets":
            return self._create(request)
        if request.path.startswith("/v2/account/keys"):
            return self._keys(request)
        return self._droplet(request)

    def _listed(self, request: LocalRequest) -> list[dict[str, object]]:
        """Return droplets; those with a GPU are left out unless they are asked for."""
        gpus, name = request.query.get("type") == "gpus", request.query.get("name")
        return [
            one.json()
            for one in self.droplets.values()
            if (one.size.model is not None) is gpus
            and (name is None or one.name.lower() == name.lower())
        ]

    def _page(
        self, request: LocalRequest, key: str, items: list[dict[str, object]]
    ) -> LocalResponse:
        size = min(int(request.query.get("per_page", "20")), self.per_page)
        page = int(request.query.get("page", "1"))
        links: dict[str, object] = {}
        if page * size < len(items):
            links = {
                "pages": {"next": f"{self.base_url}{request.path}?page={page + 1}&per_page={size}"}
            }
        part = items[(page - 1) * size : page * size]
        return LocalResponse(200, {key: part, "links": links, "meta": {"total": len(items)}})

    def _droplet(self, request: LocalRequest) -> LocalResponse:
        match = _DROPLET.fullmatch(request.path)
        droplet = self.droplets.get(int(match[1])) if match else None
        if match is None or droplet is None:
            return self.build_refusal(404, "The resource you were accessing could not be found.")
        if request.method == "GET" and match[2] == "/destroy_with_associated_resources":
            empty: dict[str, list[dict[str, object]]] = {
                "reserved_ips": [],
                "snapshots": [],
                "volumes": [],
                "volume_snapshots": [],
            }
            return LocalResponse(200, {**empty, **droplet.hanging})
        if request.method == "GET" and not match[2]:
            return LocalResponse(200, {"droplet": droplet.json()})
        if request.method == "DELETE" and not match[2]:
            self.apply_later(lambda: self._gone(droplet))
            return LocalResponse(204)
        if request.method == "POST" and match[2] == "/actions":
            return self._act(droplet, request.parse_json())
        return self.build_refusal(405, "method not allowed")

    async def _gone(self, droplet: LocalDroplet) -> None:
        if await self.notify_owner(MachineChange(str(droplet.id), droplet.name, "terminate")):
            self.droplets.pop(droplet.id, None)

    def _act(self, droplet: LocalDroplet, body: Any) -> LocalResponse:
        """Power a droplet on or off; off it bills as before."""
        kind = str(body.get("type")) if isinstance(body, dict) else ""
        if kind not in POWER:
            return self.build_refusal(422, "type is not included in the list")

        async def done() -> None:
            status, action = POWER[kind]
            if await self.notify_owner(MachineChange(str(droplet.id), droplet.name, action)):
                droplet.status = status

        self.apply_later(done)
        action = {"id": 1, "status": "in-progress", "type": kind, "resource_id": droplet.id}
        begun = {
            "started_at": format_iso(self.clock()),
            "completed_at": None,
            "resource_type": "droplet",
        }
        where = {"region": region_of(droplet.region), "region_slug": droplet.region}
        return LocalResponse(201, {"action": {**action, **begun, **where}})

    def _create(self, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        if not isinstance(body, dict) or not _NAME.fullmatch(str(body.get("name", ""))):
            return self.build_refusal(422, "Only valid hostname characters are allowed.")
        size = next((one for one in self.sizes if one.slug == body.get("size")), None)
        wanted = body.get("region")
        place = next((one for one in size.regions if wanted in (None, one)), None) if size else None
        if size is None or not size.available or place is None:
            return self.build_refusal(422, SIZE_WORDS)
        if len(self.droplets) >= self.limit:
            return self.build_refusal(422, LIMIT_WORDS)
        if any(key not in self.keys for key in body.get("ssh_keys", ())):
            return self.build_refusal(
                422, "ssh_keys are invalid key identifiers for Droplet creation."
            )
        if not body.get("image"):
            return self.build_refusal(422, "You must specify an image.")
        droplet = self.add_droplet(body["name"], size, region=place, status="new")

        async def begun() -> None:
            if await self.notify_owner(MachineChange(str(droplet.id), droplet.name, "create")):
                droplet.status = "active"

        self.apply_later(begun)
        action = {"id": 7515, "rel": "create", "href": f"{self.base_url}/v2/actions/7515"}
        return LocalResponse(202, {"droplet": droplet.json(), "links": {"actions": [action]}})

    def _keys(self, request: LocalRequest) -> LocalResponse:
        """Show or take a public key; a fingerprint is the MD5 of its blob."""
        body = request.parse_json()
        shown = [
            {"id": index, "fingerprint": mark, "public_key": key, "name": f"key-{index}"}
            for index, (mark, key) in enumerate(self.keys.items(), start=1)
        ]
        if request.method == "GET" and request.path.rstrip("/") == "/v2/account/keys":
            return self._page(request, "ssh_keys", [*shown])
        if request.method == "POST":
            try:
                blob = base64.b64decode(str(body["public_key"]).split()[1], validate=True)
            except (KeyError, TypeError, IndexError, binascii.Error):
                return self.build_refusal(
                    422, "Key invalid, key should be of the format `type key [comment]`"
                )
            digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
            mark = ":".join(digest[at : at + 2] for at in range(0, 32, 2))
            if mark in self.keys:
                return self.build_refusal(422, "SSH Key is already in use on your account")
            self.keys[mark] = body["public_key"]
            made = {"id": len(self.keys), "name": str(body.get("name"))}
            return LocalResponse(
                201, {"ssh_key": {**made, "fingerprint": mark, "public_key": body["public_key"]}}
            )
        wanted = unquote(request.path.removeprefix("/v2/account/keys/"))
        found = next((one for one in shown if wanted in (one["fingerprint"], str(one["id"]))), None)
        if found is None:
            return self.build_refusal(404, "The resource you were accessing could not be found.")
        return LocalResponse(200, {"ssh_key": found})
