"""RunPod's market: the catalogue's offers for a wish, and the one call that rents a pod.

Catalogue: https://docs.runpod.io/api-reference-v2/catalog/list-gpu-types; creation:
https://docs.runpod.io/api-reference-v2/pods/create-a-pod (OpenAPI of REST v2, verified 2026-08). A
creation names one type of GPU without any fallback; version 2 has no spot pods, which `rent_spot`
rents.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    FrozenStruct,
    Lifecycle,
    Meter,
    Offer,
    ProviderRef,
    RentalRequest,
    RentPermit,
    steady_time,
)
from rgt_tui.model.gpu_names import read_gpu_name, same_gpu
from rgt_tui.providers.answers import (
    as_array,
    as_object,
    parse_number,
    parse_text,
    read_single_page,
)
from rgt_tui.providers.control_plane import (
    BadAnswer,
    Instance,
    PermitRefused,
    ProviderError,
    make_printable,
    use_rent_permit,
)
from rgt_tui.providers.http import AccountHttp
from rgt_tui.providers.rented_market import check_wish, in_order, unknown_gpu
from rgt_tui.providers.runpod_pod import price_of

IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
"""RunPod's own image with sshd: https://docs.runpod.io/api-reference-v2/pods/create-a-pod (verified
2026-08).
"""
IMAGE_CUDA = "12.8"
"""Minimum CUDA version of the host's driver for `IMAGE`; else a pod may run and bill without being
usable.
"""
CONTAINER_GB = 40
"""Container disk of a new pod: system, caches, packages. A stop erases it; the requested disk is
the volume.
"""
SMALLEST_VOLUME_GB = 10
VOLUME_PATH = "/workspace"
CLOUDS = ("SECURE", "COMMUNITY")
NOTES = (
    "the volume disk costs twice as much while the pod is stopped, and is deleted when the "
    "pod is terminated",
    "RunPod requires credit for at least an hour before it rents a pod",
)
COMMUNITY_NOTE = (
    "limited: third parties' hardware, which may have no public address, and the API cannot "
    "ask for one; over RunPod's "
    "SSH proxy alone rgt can neither copy files nor put its agent on the pod"
)
"""https://docs.runpod.io/api-reference-v2/pods/create-a-pod: ``ssh.direct`` needs a public port;
https://docs.runpod.io/pods/configuration/use-ssh: the proxy has neither SCP nor SFTP (2026-08).
"""

_OFFER = re.compile(r"(?:SPOT-)?(SECURE|COMMUNITY)/([A-Za-z0-9_.-]+)/([0-9]{1,3})x(.+)")
_ANYWHERE = "any"
SPOT_PATH = "/graphql"
SPOT_NOTES = (
    "unverified: rented through RunPod's older GraphQL API, which rgt has not tried against "
    "the real service and "
    "which RunPod plans to end early in 2027",
    "it can be preempted at any time, with SIGTERM and about 5 s at best; the price is the "
    "lowest bid now",
)
RENT_SPOT = (
    "mutation Rent($input: PodRentInterruptableInput!) { podRentInterruptable(input: "
    "$input) { id } }"
)


class GpuType(FrozenStruct, kw_only=True):
    """The used fields of a catalogue entry, for one of the clouds."""

    id: str
    name: str
    memory_gb: float | None
    price: float | None
    """$ per hour for one GPU; None = not given."""
    most: float
    """Maximum GPUs per pod; not the stock."""
    stock: str
    places: tuple[tuple[str, str], ...]
    """Data center → stock there."""

    def is_wished(self, wish: RentalRequest) -> bool:
        """Return whether it is the requested model."""
        names = (self.id, self.name)
        if any(read_gpu_name(name).is_slice for name in names):
            return False
        return any(same_gpu(wish.gpu, name, self.memory_gb) for name in names)


class RunPodMarket:
    """Rents pods for one account."""

    def __init__(
        self,
        http: AccountHttp,
        ref: ProviderRef,
        *,
        read: Callable[[object], Instance],
        pods: Callable[[], Awaitable[tuple[Instance, ...]]],
    ) -> None:
        """Create the market of an account.

        Args:
            http: Its connections and key.
            ref: Any pod of it.
            read: Parses the JSON of a pod.
            pods: Lists all pods of the account.
        """
        self._http = http
        self._ref = ref
        self._read = read
        self._pods = pods

    async def find_offers(self, wish: RentalRequest) -> tuple[Offer, ...]:
        """Return what the catalogue has in stock for a wish; see `Market.offers`."""
        check_wish("RunPod", wish, currency="USD")
        if wish.spot:
            spot = await spot_catalogue(self._http, wish, CLOUDS)
            catalogues = {cloud: _gpu_types(rows, cloud) for cloud, rows in spot.items()}
        else:
            catalogues = {cloud: await self._fetch_catalogue(wish, cloud) for cloud in CLOUDS}
        types = [gpu for gpus in catalogues.values() for gpu in gpus]
        if not any(gpu.is_wished(wish) for gpu in types):
            raise unknown_gpu("RunPod", wish, (gpu.id for gpu in types), self._http.console)
        return in_order(
            (
                offer
                for cloud, gpus in catalogues.items()
                for gpu in gpus
                if gpu.is_wished(wish)
                and (offer := _build_offer(wish, gpu, cloud, self._ref.kind)) is not None
            ),
            wish,
        )

    async def _fetch_catalogue(self, wish: RentalRequest, cloud: str) -> tuple[GpuType, ...]:
        query = {
            "include": "AVAILABILITY",
            "product": "POD",
            "count": wish.gpu_count,
            "cloud": cloud,
        }
        if wish.image is None:
            query["minCudaVersion"] = IMAGE_CUDA
        answer = await self._http.get(f"/v2/catalog/gpus?{urlencode(query)}")

        def undocumented_error(what: str) -> BadAnswer:
            return BadAnswer(
                translate("RunPod sent {what}; it cannot be used", what=what),
                console=self._http.console,
            )

        return _gpu_types(
            read_single_page(
                answer, as_object(answer.data).get("gpus"), "GPUs", undocumented_error
            ),
            cloud,
        )

    def describe_creation(self, offer: Offer, wish: RentalRequest, token: str) -> str:
        """Return the exact call, including the public key, which is no secret."""
        path, body = _build_request(offer, wish, token)
        return make_printable(
            f"POST {self._http.base_url}{path} {msgspec.json.encode(body).decode()}", 20_000
        )

    async def create_instance(
        self, offer: Offer, wish: RentalRequest, token: str, permit: RentPermit
    ) -> Instance:
        """Send the one call; see `Market.create`.

        Even after an error, the pod may have been made.
        """
        try:
            path, body = _build_request(offer, wish, token)
        except ProviderError as error:
            raise PermitRefused(str(error)) from None
        use_rent_permit(permit, offer, token, self._ref, steady_time())
        if not offer.spot:
            return self._read((await self._http.send("POST", path, body)).data)
        made = await rent_spot(self._http, body)
        try:
            return self._read((await self._http.get(f"/v2/pods/{made}")).data)
        except ProviderError as error:
            doubt = translate("it was created, but could not be read: {error}", error=error)
            return Instance(
                id=made, name=token, meter=Meter(lifecycle=Lifecycle.STARTING, doubt=doubt)
            )

    async def find_by_token(self, token: str) -> tuple[Instance, ...]:
        """Return the pods whose name has the token; names need not be unique."""
        return tuple(pod for pod in await self._pods() if token in pod.name)


def _gpu_types(rows: Iterable[object], cloud: str) -> tuple[GpuType, ...]:
    return tuple(gpu for raw in rows if (gpu := _gpu_type(raw, cloud.lower())) is not None)


def _gpu_type(raw: object, cloud: str) -> GpuType | None:
    """Parse one entry; None if it cannot be rented. `cloud` is in lower case, as in its keys."""
    if (
        not isinstance(raw, dict)
        or not isinstance(raw.get("id"), str)
        or raw["id"] != make_printable(raw["id"], 80)
    ):
        return None
    prices, counts = as_object(raw.get("price")), as_object(raw.get("maxCount"))
    most = 0.0
    if raw.get(cloud) is True:
        most = parse_number(counts.get(cloud)) or 0.0
    places = [
        (place["id"], make_printable(place.get("availability") or "NONE", 20))
        for place in as_array(raw.get("dataCenters"))
        if isinstance(place, dict) and isinstance(place.get("id"), str)
    ]
    return GpuType(
        id=raw["id"],
        name=make_printable(raw.get("name") or "", 80),
        memory_gb=parse_number(raw.get("memory")) or None,
        # A price of 0 is not believed.
        price=parse_number(prices.get(cloud)) or None,
        most=most,
        stock=make_printable(raw.get("availability") or "NONE", 20),
        places=tuple(places),
    )


def _build_offer(wish: RentalRequest, gpu: GpuType, cloud: str, kind: str) -> Offer | None:
    """Return the offer of one type in one cloud; None = not in stock there now."""
    if wish.region is None:
        stock = gpu.stock
    else:
        stock = dict(gpu.places).get(wish.region, "NONE")
    if stock == "NONE" or gpu.most < wish.gpu_count:
        return None
    volume = max(SMALLEST_VOLUME_GB, wish.disk_gb)
    disks = [
        price_of("volume-disk", volume, running=True),
        price_of("container-disk", CONTAINER_GB, running=True),
    ]
    known = [price for price in disks if price is not None]
    storage = None
    if len(known) == len(disks):
        storage = sum(known)
    notes = SPOT_NOTES + NOTES if wish.spot else NOTES
    compute_per_hour = None
    if gpu.price is not None:
        compute_per_hour = gpu.price * wish.gpu_count
    notes_of_offer = notes
    if cloud == "COMMUNITY":
        notes_of_offer = (COMMUNITY_NOTE, *notes)
    return Offer(
        kind=kind,
        spot=wish.spot,
        id=f"{'SPOT-' if wish.spot else ''}{cloud}/{wish.region or _ANYWHERE}/{wish.gpu_count}x{gpu.id}",
        gpu=gpu.id,
        gpu_count=wish.gpu_count,
        gpu_memory_gb=gpu.memory_gb,
        compute_per_hour=compute_per_hour,
        storage_per_hour=storage,
        in_per_gb=0.0,
        out_per_gb=0.0,
        disk_gb=volume,
        region=wish.region,
        stock=f"{cloud.lower()} cloud, {stock.lower()}",
        notes=notes_of_offer,
    )


def _build_request(offer: Offer, wish: RentalRequest, token: str) -> tuple[str, dict[str, object]]:
    """Return path and body of the creation call.

    Raises:
        ProviderError: the offer is not from this market.
    """
    body = _build_body(offer, wish, token)
    if not offer.spot:
        return "/v2/pods", body
    if offer.compute_per_hour is None:
        raise ProviderError(translate("a spot offer without a price cannot be bid for"), sent=False)
    return SPOT_PATH, spot_request(body, offer.compute_per_hour / offer.gpu_count)


def _build_body(offer: Offer, wish: RentalRequest, token: str) -> dict[str, object]:
    """Return the body of the creation call. Every field is explicit, as some defaults cost money.

    Raises:
        ProviderError: the offer is not from this market.
    """
    found = _OFFER.fullmatch(offer.id)
    if found is None:
        raise ProviderError(
            translate("{id!r} is not an offer from RunPod", id=make_printable(offer.id, 80)),
            sent=False,
        )
    cloud, place, count, gpu = found.groups()
    wanted: dict[str, object] = {"id": gpu, "count": int(count)}
    if wish.image is None:
        wanted["minCudaVersion"] = IMAGE_CUDA
    return {
        "name": token,
        "image": wish.image or IMAGE,
        "cloud": cloud,
        "dataCenterIds": [] if place == _ANYWHERE else [place],
        "gpu": wanted,
        "disk": CONTAINER_GB,
        "mounts": {
            "persistent": {"size": max(SMALLEST_VOLUME_GB, offer.disk_gb or 0), "path": VOLUME_PATH}
        },
        "ports": ["22/tcp"],
        # Sets up sshd; a key given here replaces those of the account.
        "startSsh": True,
        "startJupyter": False,
        "globalNetworking": False,
        "env": {"PUBLIC_KEY": wish.public_key} if wish.public_key else {},
    }


# RunPod's spot pods through its GraphQL API, as dstack rents them: REST v2 has none.
#
# *Unverified*: never tried against the real service. RunPod plans to end this API early in 2027,
# and the call perhaps earlier (https://github.com/runpod/runpodctl/issues/267, 2026-04). Fields:
# https://graphql-spec.runpod.io/ (``gpuTypes``, ``lowestPrice``, ``podRentInterruptable``); prices
# and bids are USD per hour of one GPU (2026-11).


async def spot_catalogue(
    http: AccountHttp, wish: RentalRequest, clouds: tuple[str, ...]
) -> dict[str, list[object]]:
    """Return cloud → spot entries in the form of REST v2's catalogue, with bids as prices.

    Raises:
        ProviderError: among others for a wish with a region: spot prices are not per region.
    """
    if wish.region is not None:
        raise ProviderError(
            translate("RunPod has no spot prices by region: leave out the region or --spot"),
            sent=False,
        )
    wanted = " ".join(
        f"{cloud}: lowestPrice(input: {{gpuCount: {wish.gpu_count}, secureCloud: "
        f"{str(cloud == 'SECURE').lower()}}}) {{ minimumBidPrice stockStatus }}"
        for cloud in clouds
    )
    query = f"query {{ gpuTypes {{ id displayName memoryInGb {wanted} }} }}"
    rows = (await _query_graphql(http, {"query": query})).get("gpuTypes")
    if not isinstance(rows, list):
        raise BadAnswer(
            translate("RunPod's answer has no 'gpuTypes'; it cannot be used"), console=http.console
        )
    return {
        cloud: [_build_entry(as_object(row), cloud, wish.gpu_count) for row in rows]
        for cloud in clouds
    }


def _build_entry(row: Mapping[str, Any], cloud: str, count: int) -> object:
    price, key = as_object(row.get(cloud)), cloud.lower()
    bid, stock = (
        parse_number(price.get("minimumBidPrice")),
        parse_text(price.get("stockStatus"), 20),
    )
    return {
        "id": row.get("id"),
        "name": row.get("displayName"),
        "memory": row.get("memoryInGb"),
        "price": {key: bid},
        key: True,
        "maxCount": {key: count if bid else 0},
        # A bid implies availability, even if the stock is not given.
        "availability": (stock or "unknown").upper() if bid else "NONE",
    }


def spot_request(created: Mapping[str, Any], bid: float) -> dict[str, object]:
    """Return the request for a spot pod that otherwise equals REST v2's ``POST /v2/pods``."""
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
    return {"query": RENT_SPOT, "variables": {"input": wanted}}


async def rent_spot(http: AccountHttp, request: Mapping[str, object]) -> str:
    """Send the request, once; return the pod's id.

    Raises:
        ProviderError: the pod may still have been made: GraphQL answers errors with status 200.
    """
    made = parse_text(
        as_object((await _query_graphql(http, request)).get("podRentInterruptable")).get("id"), 80
    )
    if made is None:
        raise BadAnswer(
            translate("RunPod did not return the spot pod it created"),
            console=http.console,
            status=200,
        )
    return made


async def _query_graphql(http: AccountHttp, request: Mapping[str, object]) -> dict[str, Any]:
    """Return the ``data`` of an answer.

    Raises:
        ProviderError: it has errors.
    """
    answer = as_object((await http.send("POST", SPOT_PATH, request)).data)
    if errors := as_array(answer.get("errors")):
        why = make_printable(
            as_object(errors[0]).get("message") or translate("an error without words"), 200
        )
        raise BadAnswer(
            translate("RunPod's GraphQL API answered: {why}", why=why),
            console=http.console,
            status=200,
        )
    return as_object(answer.get("data"))
