"""RunPod's lists, page by page, and what they hold that bills besides pods: volumes, serverless workers, clusters.

Lists have pages since 2026-09, by what users' programs read; the description of 2026-08 has none, so only a request for
a next page names a cursor (`profiles/api/runpod.toml`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any
from urllib.parse import quote

from rgt_tui.model import Leftover, Lifecycle
from rgt_tui.providers.answers import number, table
from rgt_tui.providers.control_plane import BadAnswer, printable
from rgt_tui.providers.http import AccountHttp
from rgt_tui.providers.paging import Page, read_optional, read_pages
from rgt_tui.providers.runpod_pod import ID, Pod, network_per_hour

BILLED_WORKERS = ("running", "idle", "initializing")
"""States of a serverless worker that may be billed: https://docs.runpod.io/serverless/pricing (2026-08)."""


async def read_list(http: AccountHttp, path: str, key: str, what: str) -> tuple[object, ...]:
    """Return everything that a list has.

    Args:
        http: The account's connections and key.
        path: Of the first page, with its query.
        key: Under which the answer has the list.
        what: Name of its things, for messages.

    Raises:
        ProviderError: among others when it is not certain that this is the complete list.
    """

    async def read(cursor: str | None) -> Page:
        joint = "&" if "?" in path else "?"
        answer = await http.get(path if cursor is None else f"{path}{joint}cursor={quote(cursor, safe='')}")
        data = table(answer.data)
        pages = table(data.get("pagination"))
        following = pages.get("nextCursor")
        if not isinstance(following, str):
            is_last = following is None and pages.get("hasNextPage") in (None, False)
            following = None if is_last else ""
        return Page(data.get(key), following, answer)

    return await read_pages(read, what, lambda text: _odd(http, text))


async def list_leftovers(
    http: AccountHttp, pods: Collection[Pod]
) -> tuple[tuple[Leftover, ...], tuple[str, ...]]:
    """Return what bills besides pods, and which lists this key may not read; see `Account.leftovers`.

    Args:
        http: The account's connections and key.
        pods: The pods that were seen, which say what hangs on them.
    """
    volumes = await read_list(http, "/v2/network-volumes", "networkVolumes", "network volumes")
    others, gaps = await read_optional(
        {"serverless endpoints": partial(_endpoints, http), "clusters": partial(_clusters, http, pods)}
    )
    return (*(_volume(http, item, pods) for item in volumes), *others), gaps


def _volume(http: AccountHttp, raw: object, pods: Collection[Pod]) -> Leftover:
    """Return a network volume: it is billed until it is deleted, whether a pod mounts it or not."""
    item = table(raw)
    volume, size = _id_of(http, item, "a network volume"), number(item.get("size"))
    return Leftover(
        what="volume",
        id=volume,
        name=printable(item.get("name") or "", 80),
        per_hour=None if size is None else network_per_hour(size, str(item.get("type"))),
        size_gb=size,
        region=printable(item.get("dataCenter") or "", 40) or None,
        used_by=tuple(
            pod.id
            for pod in pods
            if pod.lifecycle is not Lifecycle.GONE and any(one.volume == volume for one in pod.networks or ())
        ),
        how=f"DELETE {http.base_url}/v2/network-volumes/{printable(volume, 80)}",
    )


async def _endpoints(http: AccountHttp) -> tuple[Leftover, ...]:
    """Return the serverless endpoints that have workers now, or always keep some: each is billed by the second."""
    found = []
    for raw in await read_list(http, "/v2/serverless", "endpoints", "serverless endpoints"):
        endpoint = table(raw)
        id_ = _id_of(http, endpoint, "a serverless endpoint")
        summary = table(table((await http.get(f"/v2/serverless/{id_}/workers")).data).get("summary"))
        counts = [number(summary.get(state)) for state in BILLED_WORKERS]
        known = [count for count in counts if count is not None]
        least = number(table(endpoint.get("workers")).get("min"))
        if len(known) == len(counts) and sum(known) == 0 and least == 0:
            continue
        now = f"{sum(known):g}" if len(known) == len(counts) else "an unknown number of"
        kept = "unknown" if least is None else f"{least:g}"
        found.append(
            Leftover(
                what="endpoint",
                id=id_,
                name=f"{printable(endpoint.get('name') or '', 60)}: {now} workers now, always on: {kept}",
                how=f"DELETE {http.base_url}/v2/serverless/{id_}",
            )
        )
    return tuple(found)


async def _clusters(http: AccountHttp, pods: Collection[Pod]) -> tuple[Leftover, ...]:
    """Return the clusters: their pods are billed, and end only with the cluster."""
    found = []
    for raw in await read_list(http, "/v2/clusters", "clusters", "clusters"):
        cluster = table(raw)
        id_ = _id_of(http, cluster, "a cluster")
        size = number(table(cluster.get("compute")).get("podCount"))
        count = "an unknown number of" if size is None else f"{size:g}"
        found.append(
            Leftover(
                what="cluster",
                id=id_,
                name=f"{printable(cluster.get('name') or '', 60)}: {count} pods, which end only with it",
                region=printable(cluster.get("dataCenterId") or "", 40) or None,
                used_by=tuple(pod.id for pod in pods if pod.cluster == id_),
                how=f"DELETE {http.base_url}/v2/clusters/{id_}",
            )
        )
    return tuple(found)


def _id_of(http: AccountHttp, item: dict[str, Any], what: str) -> str:
    id_ = item.get("id")
    if not isinstance(id_, str) or not ID.fullmatch(id_):
        raise _odd(http, f"{what} without an id")
    return id_


def _odd(http: AccountHttp, what: str) -> BadAnswer:
    return BadAnswer(f"RunPod sent {what}; nothing follows from it", console=http.console)
