"""RunPod's spot pods through its GraphQL API, as dstack rents them: REST v2 has none.

*Unverified*: rgt has not tried it against the real service. RunPod means to end this API early in 2027, and the call
perhaps earlier (https://github.com/runpod/runpodctl/issues/267, 2026-04). Fields: https://graphql-spec.runpod.io/
(``gpuTypes``, ``lowestPrice``, ``podRentInterruptable``); prices and bids are USD an hour of one GPU (2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rgt_tui.model import Wish
from rgt_tui.providers.answers import array, number, table, text
from rgt_tui.providers.control_plane import BadAnswer, ProviderError, printable
from rgt_tui.providers.http import AccountHttp

PATH = "/graphql"
NOTES = (
    "unverified: rented through RunPod's older GraphQL API, which rgt has not tried against the real service and which "
    "RunPod means to end early in 2027",
    "it can be taken away at any time, with SIGTERM and about 5 s at best; the price is the least bid now",
)
RENT = "mutation Rent($input: PodRentInterruptableInput!) { podRentInterruptable(input: $input) { id } }"


async def spot_catalogue(http: AccountHttp, wish: Wish, clouds: tuple[str, ...]) -> dict[str, list[object]]:
    """Return cloud → what can be had there as spot, in the form of REST v2's catalogue, with bids as prices.

    Raises:
        ProviderError: among others for a region: these prices are those of any.
    """
    if wish.region is not None:
        raise ProviderError(
            "RunPod tells no spot prices by region: ask without a region, or without spot", sent=False
        )
    wanted = " ".join(
        f"{cloud}: lowestPrice(input: {{gpuCount: {wish.gpu_count}, secureCloud: {str(cloud == 'SECURE').lower()}}}) "
        "{ minimumBidPrice stockStatus }"
        for cloud in clouds
    )
    query = f"query {{ gpuTypes {{ id displayName memoryInGb {wanted} }} }}"
    rows = (await _ask(http, {"query": query})).get("gpuTypes")
    if not isinstance(rows, list):
        raise BadAnswer("RunPod's answer has no 'gpuTypes'; nothing follows from it", console=http.console)
    return {cloud: [_entry(table(row), cloud, wish.gpu_count) for row in rows] for cloud in clouds}


def _entry(row: Mapping[str, Any], cloud: str, count: int) -> object:
    price, key = table(row.get(cloud)), cloud.lower()
    bid, stock = number(price.get("minimumBidPrice")), text(price.get("stockStatus"), 20)
    return {
        "id": row.get("id"),
        "name": row.get("displayName"),
        "memory": row.get("memoryInGb"),
        "price": {key: bid},
        key: True,
        "maxCount": {key: count if bid else 0},
        # A bid is told for what can be had now, although the stock may not be.
        "availability": (stock or "unknown").upper() if bid else "NONE",
    }


def spot_request(created: Mapping[str, Any], bid: float) -> dict[str, object]:
    """Return the request for a spot pod that is otherwise like one of REST v2's ``POST /v2/pods``."""
    gpu, mount = created["gpu"], created["mounts"]["persistent"]
    wanted = {
        "name": created["name"],
        "imageName": created["image"],
        "gpuTypeId": gpu["id"],
        "gpuCount": gpu["count"],
        "bidPerGpu": bid,
        "cloudType": created["cloud"],
        "containerDiskInGb": created["disk"],
        "volumeInGb": mount["size"],
        "volumeMountPath": mount["path"],
        "ports": ",".join(created["ports"]),
        "env": [{"key": key, "value": value} for key, value in created["env"].items()],
        "dockerArgs": "",
        "startSsh": True,
        "supportPublicIp": True,
    }
    return {"query": RENT, "variables": {"input": wanted}}


async def rent_spot(http: AccountHttp, request: Mapping[str, object]) -> str:
    """Send the request, once; return the pod's id.

    Raises:
        ProviderError: it may have been made all the same: GraphQL answers errors with status 200.
    """
    made = text(table((await _ask(http, request)).get("podRentInterruptable")).get("id"), 80)
    if made is None:
        raise BadAnswer("RunPod did not say which spot pod it made", console=http.console, status=200)
    return made


async def _ask(http: AccountHttp, request: Mapping[str, object]) -> dict[str, Any]:
    """Return the ``data`` of an answer.

    Raises:
        ProviderError: it holds errors.
    """
    answer = table((await http.send("POST", PATH, request)).data)
    if errors := array(answer.get("errors")):
        why = printable(table(errors[0]).get("message") or "an error without words", 200)
        raise BadAnswer(f"RunPod's GraphQL API answered: {why}", console=http.console, status=200)
    return table(answer.get("data"))
