"""A local vast.ai that rents machines out: the demo's, with asks, bids and serverless endpoints."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rgt_tui.demo import LocalInstance, LocalRequest, LocalResponse, LocalVast

OFFER: Mapping[str, object] = {
    "machine_id": 4242,
    "host_id": 77,
    "verification": "verified",
    "geolocation": "Norway, NO",
    "cpu_cores_effective": 16.0,
    "cpu_ghz": 2.8,
    "cpu_ram": 257_000,
    "cuda_max_good": 12.8,
    "driver_version": "570.86.15",
    "pcie_bw": 24.0,
    "inet_up": 900.0,
    "inet_down": 900.0,
    "inet_up_cost": 0.002,
    "inet_down_cost": 0.001,
    "dlperf": 100.0,
    "dlperf_per_dphtotal": 250.0,
    "score": 300.0,
    "reliability": 0.997,
    "duration": 864000.0,
    "direct_port_count": 20,
    "rentable": True,
    "rented": False,
    "external": False,
}
ENDPOINT: Mapping[str, object] = {
    "endpoint_state": "active",
    "min_load": 0.0,
    "target_util": 0.9,
    "cold_mult": 2.5,
    "cold_workers": 5,
    "max_workers": 20,
    "api_key": "secret",
    "user_id": 1001,
    "created_at": "2026-10-01T12:00:00Z",
}


@dataclass(frozen=True)
class LocalAsk:
    """An offer of a host. Money in $ per hour."""

    id: int
    gpu: str = "RTX 4090"
    gpus: int = 1
    memory_gb: float = 24.0
    dph_base: float = 0.40
    min_bid: float = 0.15
    storage_cost: float = 0.15
    disk: float = 500.0

    def to_json(self, disk: float) -> dict[str, object]:
        """Return the offer as the API shows it, priced with so much disk."""
        return {
            **OFFER,
            "id": self.id,
            "ask_contract_id": self.id,
            "gpu_name": self.gpu,
            "num_gpus": self.gpus,
            # MB in the API.
            "gpu_ram": int(self.memory_gb * 1024),
            "dph_base": self.dph_base,
            "dph_total": round(self.dph_base + disk * self.storage_cost / (30 * 24.0), 6),
            "min_bid": self.min_bid,
            "storage_cost": self.storage_cost,
            "disk_space": self.disk,
        }


# The vendor ignores none: an unknown one is an error.
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda value, wanted: value in wanted,
    "notin": lambda value, wanted: value not in wanted,
}
"""Of a filter: https://docs.vast.ai/api-reference/search/search-offers (2026-08)."""


def _passes_filter(value: object, filters: dict[str, Any]) -> bool:
    """Return whether a value passes a filter such as ``{"gte": 24576}``.

    Raises TypeError or KeyError for an invalid filter.
    """

    def convert_wanted(wanted: Any) -> Any:
        # The vendor's own client sends some numbers as text.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and isinstance(wanted, str):
            return float(wanted)
        return wanted

    return all(OPERATORS[name](value, convert_wanted(wanted)) for name, wanted in filters.items())


def _find_filtered_value(row: dict[str, object], key: str) -> object:
    """Return what a filter compares: ``verified`` is one, and no field of an offer."""
    if key == "verified":
        return row["verification"] == "verified"
    return row.get(key)


_BID = re.compile(r"/api/v0/instances/bid_price/(\d+)")
_ASK = re.compile(r"/api/v0/asks/(\d+)")


class RentingVast(LocalVast):
    """A `LocalVast` with a market and endpoints."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.asks: dict[int, LocalAsk] = {}
        self.endpoints: dict[int, str] = {}
        """Id of a serverless endpoint → its name."""
        self.created: list[dict[str, Any]] = []
        """The bodies of the creations that were carried out."""

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        path = request.path.rstrip("/")
        if (request.method, path) == ("GET", "/api/v0/instances"):
            return self._deprecated(request)
        if (request.method, path) == ("POST", "/api/v0/bundles"):
            return self._search_offers(request)
        if match := _ASK.fullmatch(path):
            return self._rent_ask(int(match[1]), request)
        match = _BID.fullmatch(path)
        if match is None or request.method != "PUT":
            return super().handle_request(request)
        found = self.instances.get(int(match[1]))
        if found is None:
            return self.build_missing(int(match[1]))
        return self._accept_bid(found, request.parse_json())

    def _accept_bid(self, found: LocalInstance, body: Any) -> LocalResponse:
        """Accept a bid: one below the minimum pauses the instance, one above it resumes it."""
        if isinstance(body, dict):
            price = body.get("price")
        else:
            price = None
        if (
            isinstance(price, bool)
            or not isinstance(price, int | float)
            # The bounds of the vendor's specification for a bid.
            or not 0.001 <= price <= 32
        ):
            words = {
                "success": False,
                "error": "invalid_args",
                "msg": "Please set a bid price >= 0.001.",
            }
            return LocalResponse(400, words)
        if not found.is_bid:
            words = {"success": False, "error": "invalid_args", "msg": "Instance is not a bid."}
            return LocalResponse(400, words)
        found.charge_time(self.clock())
        found.dph_base = float(price)
        low = price < found.min_bid
        # Outbid by oneself: the instance pauses at once, and its disk bills.
        if low and found.is_on:
            self.simulate_outbid(found)
        elif not low and found.actual == "stopped" and found.intended == "running":
            self.apply_later(lambda: self.take_effect(found, "start"))
        return LocalResponse(200, {"success": True})

    def simulate_outbid(self, found: LocalInstance) -> None:
        """Simulate another user's higher bid: the instance pauses, and is still meant to run."""
        found.charge_time(self.clock())
        found.actual = "stopped"

    def _deprecated(self, request: LocalRequest) -> LocalResponse:
        # The vendor's own answer since 2026-08, at status 200: clients that did not check `success`
        # saw no boxes.
        words = {"success": False, "error": "deprecated_endpoint", "msg": "use /api/v1/instances/"}
        return LocalResponse(200, words)

    def list_endpoints(self, request: LocalRequest) -> LocalResponse:
        if not self.endpoints:
            return super().list_endpoints(request)
        rows = [
            {**ENDPOINT, "id": key, "endpoint_name": name} for key, name in self.endpoints.items()
        ]
        return LocalResponse(200, {"success": True, "results": rows})

    def _search_offers(self, request: LocalRequest) -> LocalResponse:
        body = request.parse_json()
        if not isinstance(body, dict):
            return self.build_refusal(400, "invalid_args")
        # The vendor's default of 8 GB: without it, totals are too low for a training's disk.
        disk = float(body.get("allocated_storage", 8))
        rows = [ask.to_json(disk) for ask in self.asks.values()]
        filters = {key: ops for key, ops in body.items() if isinstance(ops, dict)}
        try:
            found = [
                row
                for row in rows
                if all(
                    _passes_filter(_find_filtered_value(row, key), ops)
                    for key, ops in filters.items()
                )
            ]
        except (KeyError, TypeError, ValueError):
            return self.build_refusal(400, "invalid_args")
        # By default the vendor sorts by a score of its own; the price will do here.
        found.sort(key=lambda row: float(str(row["dph_total"])))
        return LocalResponse(200, {"offers": found[: int(body.get("limit", 64))]})

    def _rent_ask(self, ask: int, request: LocalRequest) -> LocalResponse:
        """Rent an ask; a ``price`` makes it a bid.

        A bid that is too low leaves a stopped instance, and an error.
        """
        body, offer = request.parse_json(), self.asks.get(ask)
        if request.method != "PUT" or not isinstance(body, dict) or "image" not in body:
            return self.build_refusal(400, "invalid_args")
        if offer is None:
            return LocalResponse(
                410,
                {"success": False, "error": "no_such_ask", "msg": f"Ask {ask} is not available."},
            )
        # Its absence makes a contract on demand, at the full price, without a word.
        price = body.get("price")
        if price is not None and not 0.001 <= price <= 128:
            return self.build_refusal(400, "invalid_price")
        self.created.append(body)
        # The trap of the real API: an error, and a machine whose disk bills.
        low = price is not None and price < offer.min_bid
        made = self.add_instance(
            max(self.instances, default=5000) + 1,
            str(body.get("label") or ""),
            dph_base=offer.dph_base if price is None else price,
            disk=float(body.get("disk", 8)),
            storage_cost=offer.storage_cost,
            gpu=offer.gpu,
            gpus=offer.gpus,
            is_bid=price is not None,
            actual="stopped" if low else None,
            intended="stopped" if low else "running",
        )
        if low:
            words = {
                "success": False,
                "error": "invalid_price",
                "msg": "The bid is too low.",
                "new_contract": made.id,
            }
            return LocalResponse(400, words)
        # An ask can be rented once.
        del self.asks[ask]
        self.apply_later(lambda: self.take_effect(made, "start"))
        return LocalResponse(200, {"success": True, "new_contract": made.id})
