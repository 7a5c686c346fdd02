"""RunPod's pod object and its cost: only documented fields, tolerant of invalid values.

Fields and states: https://docs.runpod.io/api-reference-v2/overview (OpenAPI of REST v2). Prices are
those of the profile, each with its source and month.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import partial
from typing import Any
from urllib.parse import quote

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, Leftover, Lifecycle
from rgt_tui.profiles import load_profile, storage_per_hour
from rgt_tui.providers.answers import (
    ListPage,
    Parts,
    as_array,
    as_object,
    parse_count,
    parse_number,
    parse_port,
    parse_text,
    parse_time,
    read_optional,
    read_pages,
)
from rgt_tui.providers.control_plane import BadAnswer, make_printable
from rgt_tui.providers.http import AccountHttp

ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
"""Format of ids in a path: an id from a file must not be able to name another resource."""
LIFECYCLES = {
    "PROVISIONING": Lifecycle.STARTING,
    "STARTING": Lifecycle.STARTING,
    "RUNNING": Lifecycle.RUNNING,
    "EXITED": Lifecycle.STOPPED,
    "ERROR": Lifecycle.ERROR,
    "TERMINATED": Lifecycle.GONE,
}
BILLED_WORKERS = ("running", "idle", "initializing")
"""States of a serverless worker that may be billed: https://docs.runpod.io/serverless/pricing
(2026-08).
"""


class NetworkMount(FrozenStruct):
    """A network volume on a pod."""

    volume: str
    path: str


class Pod(FrozenStruct):
    """The used fields of a pod. None = not given. Sizes in GB, money in $ per hour, Unix times."""

    id: str
    name: str
    status: str
    actions: tuple[str, ...] = ()
    cost: float | None = None
    container_gb: float | None = None
    volume_gb: float | None = None
    """0 = the answer shows that there is none."""
    volume_path: str = "/workspace"
    networks: tuple[NetworkMount, ...] | None = None
    created: float | None = None
    started: float | None = None
    locked: bool = False
    host: str | None = None
    port: int | None = None
    user: str | None = None
    gpu: str | None = None
    gpu_count: int | None = None
    region: str | None = None
    """The data center."""
    cluster: str | None = None
    """Id of the cluster that it belongs to."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The state in rgt's terms; a state unknown to rgt is ``unknown``, never an error."""
        return LIFECYCLES.get(self.status, Lifecycle.UNKNOWN)

    def list_disks(self, *, running: bool) -> Parts:
        """Return the hourly cost of the pod's own disks by the profile, without network volumes.

        A disk that is free in that state is left out; one of unknown size has no price.
        """
        sizes = {
            "volume-disk": self.volume_gb,
            # A stopped pod loses its container disk, so only the volume is billed then.
            "container-disk": self.container_gb if running else 0.0,
        }
        return tuple(
            (
                tier.replace("-", " "),
                None if size is None else price_of(tier, size, running=running),
            )
            for tier, size in sizes.items()
            if size != 0
        )


def parse_pod(raw: object, console: str = "") -> Pod:
    """Parse one pod.

    Raises:
        BadAnswer: it is not an object with an id; any other invalid field becomes None.
    """
    if (
        not isinstance(raw, dict)
        or not isinstance(raw.get("id"), str)
        or not ID.fullmatch(raw["id"])
    ):
        raise BadAnswer(
            translate("a pod without an id in RunPod's answer; check the console"), console=console
        )
    volume_gb, volume_path, networks = _parse_mounts(raw.get("mounts"))
    direct = as_object(as_object(raw.get("ssh")).get("direct"))
    gpu, cluster = as_object(raw.get("gpu")), as_object(raw.get("cluster"))
    accepted = [name for name in as_array(raw.get("actions")) if isinstance(name, str)]
    return Pod(
        id=raw["id"],
        name=make_printable(raw.get("name") or "", 120),
        status=make_printable(raw.get("status") or "not said", 40),
        actions=tuple(make_printable(name, 40) for name in accepted),
        cost=parse_number(raw.get("cost")),
        container_gb=parse_number(raw.get("disk")),
        volume_gb=volume_gb,
        volume_path=volume_path,
        networks=networks,
        created=parse_time(raw.get("createdAt")),
        started=parse_time(raw.get("startedAt")),
        locked=raw.get("locked") is True,
        host=parse_text(direct.get("host"), 200),
        port=parse_port(direct.get("port")),
        user=parse_text(direct.get("username"), 60),
        gpu=parse_text(gpu.get("id"), 80),
        gpu_count=parse_count(gpu.get("count")),
        cluster=parse_text(cluster.get("id"), 80),
        region=parse_text(raw.get("dataCenterId"), 40),
    )


def _parse_mounts(raw: object) -> tuple[float | None, str, tuple[NetworkMount, ...] | None]:
    """Return the volume's size and path, and the network volumes; all unknown without mounts."""
    # Unknown, not empty: with 0 GB a stopped pod would look free.
    if not isinstance(raw, dict):
        return None, "/workspace", None
    volume = raw.get("persistent")
    size: float | None = 0.0
    path = "/workspace"
    if volume is not None:
        size = parse_number(as_object(volume).get("size"))
        path = make_printable(as_object(volume).get("path") or path, 200)
    networks = tuple(
        NetworkMount(
            volume=make_printable(item["volumeId"], 80),
            path=make_printable(item.get("path") or "/workspace", 200),
        )
        for item in as_array(raw.get("network"))
        if isinstance(item, dict) and isinstance(item.get("volumeId"), str)
    )
    return size, path, networks


def price_of(tier: str, size_gb: float, *, running: bool, kind: str | None = None) -> float | None:
    """Return the $ per hour of a storage tier by RunPod's profile; None = no price in it."""
    found = storage_per_hour(load_profile("runpod"), tier, size_gb, running=running, grade=kind)
    if found is None:
        return None
    return found.value


def network_per_hour(size_gb: float, kind: str) -> float | None:
    """Return a network volume's hourly cost; it bills until deleted, with or without a pod."""
    # The profile lists only the grade that costs more under a name.
    grade = None if kind == "STANDARD" else kind
    return price_of("network-volume", size_gb, running=True, kind=grade)


# RunPod's lists, page by page, and what bills besides pods: volumes, serverless workers, clusters.
#
# Lists have pages since 2026-09, as seen in users' programs; the description of 2026-08 has none,
# so a cursor is sent only for a next page (`profiles/api/runpod.toml`).


async def read_list(http: AccountHttp, path: str, key: str, what: str) -> tuple[object, ...]:
    """Return all items of a list.

    Args:
        http: The account's connections and key.
        path: Path of the first page, with query.
        key: Key of the list in the answer.
        what: Name of its items, for messages.

    Raises:
        ProviderError: among others, if the list may be incomplete.
    """

    async def read_page(cursor: str | None) -> ListPage:
        joint = "&" if "?" in path else "?"
        answer = await http.get(
            path if cursor is None else f"{path}{joint}cursor={quote(cursor, safe='')}"
        )
        data = as_object(answer.data)
        pages = as_object(data.get("pagination"))
        following = pages.get("nextCursor")
        if not isinstance(following, str):
            # More pages without a cursor: an incomplete list would hide what bills.
            is_last = following is None and pages.get("hasNextPage") in (None, False)
            following = None if is_last else ""
        return ListPage(data.get(key), following, answer)

    return await read_pages(read_page, what, lambda text: _undocumented_error(http, text))


async def list_leftovers(
    http: AccountHttp, pods: Collection[Pod]
) -> tuple[tuple[Leftover, ...], tuple[str, ...]]:
    """Return what bills besides pods, and the lists this key may not read; see `Account.leftovers`.

    Args:
        http: The account's connections and key.
        pods: The known pods, which name their volumes and clusters.
    """
    volumes = await read_list(http, "/v2/network-volumes", "networkVolumes", "network volumes")
    others, gaps = await read_optional(
        {
            "serverless endpoints": partial(_list_endpoints, http),
            "clusters": partial(_list_clusters, http, pods),
        }
    )
    return (*(_parse_volume(http, item, pods) for item in volumes), *others), gaps


def _parse_volume(http: AccountHttp, raw: object, pods: Collection[Pod]) -> Leftover:
    """Return a network volume, which bills until deleted, whether mounted or not."""
    item = as_object(raw)
    volume, size = _id_of(http, item, "network volume"), parse_number(item.get("size"))
    per_hour = None
    if size is not None:
        per_hour = network_per_hour(size, str(item.get("type")))
    return Leftover(
        what="volume",
        id=volume,
        name=make_printable(item.get("name") or "", 80),
        per_hour=per_hour,
        size_gb=size,
        region=make_printable(item.get("dataCenter") or "", 40) or None,
        used_by=tuple(
            pod.id
            for pod in pods
            if pod.lifecycle is not Lifecycle.GONE
            and any(one.volume == volume for one in pod.networks or ())
        ),
        how=f"DELETE {http.base_url}/v2/network-volumes/{make_printable(volume, 80)}",
    )


async def _list_endpoints(http: AccountHttp) -> tuple[Leftover, ...]:
    """Return the serverless endpoints with current or permanent workers, billed by the second."""
    found = []
    for raw in await read_list(http, "/v2/serverless", "endpoints", "serverless endpoints"):
        endpoint = as_object(raw)
        id_ = _id_of(http, endpoint, "serverless endpoint")
        summary = as_object(
            as_object((await http.get(f"/v2/serverless/{id_}/workers")).data).get("summary")
        )
        counts = [parse_number(summary.get(state)) for state in BILLED_WORKERS]
        known = [count for count in counts if count is not None]
        least = parse_number(as_object(endpoint.get("workers")).get("min"))
        # All three must be known: a missing number is not 0 workers.
        if len(known) == len(counts) and sum(known) == 0 and least == 0:
            continue
        if len(known) == len(counts):
            now = f"{sum(known):g}"
        else:
            now = translate("an unknown number of")
        if least is None:
            kept = "unknown"
        else:
            kept = f"{least:g}"
        found.append(
            Leftover(
                what="endpoint",
                id=id_,
                name=translate(
                    "{name}: {now} workers now, always on: {kept}",
                    name=make_printable(endpoint.get("name") or "", 60),
                    now=now,
                    kept=kept,
                ),
                how=f"DELETE {http.base_url}/v2/serverless/{id_}",
            )
        )
    return tuple(found)


async def _list_clusters(http: AccountHttp, pods: Collection[Pod]) -> tuple[Leftover, ...]:
    """Return the clusters: their pods are billed, and end only with the cluster."""
    found = []
    for raw in await read_list(http, "/v2/clusters", "clusters", "clusters"):
        cluster = as_object(raw)
        id_ = _id_of(http, cluster, "cluster")
        size = parse_number(as_object(cluster.get("compute")).get("podCount"))
        if size is None:
            count = translate("an unknown number of")
        else:
            count = f"{size:g}"
        found.append(
            Leftover(
                what="cluster",
                id=id_,
                name=translate(
                    "{name}: {count} pods, deleted only with it",
                    name=make_printable(cluster.get("name") or "", 60),
                    count=count,
                ),
                region=make_printable(cluster.get("dataCenterId") or "", 40) or None,
                used_by=tuple(pod.id for pod in pods if pod.cluster == id_),
                how=f"DELETE {http.base_url}/v2/clusters/{id_}",
            )
        )
    return tuple(found)


def _id_of(http: AccountHttp, item: dict[str, Any], what: str) -> str:
    id_ = item.get("id")
    if not isinstance(id_, str) or not ID.fullmatch(id_):
        raise _undocumented_error(http, translate("a {what} without an id", what=what))
    return id_


def _undocumented_error(http: AccountHttp, what: str) -> BadAnswer:
    return BadAnswer(
        translate("RunPod sent {what}; it cannot be used", what=what), console=http.console
    )
