"""DigitalOcean's GPU droplets, API v2 (https://docs.digitalocean.com/reference/api/, 2026-08).

A droplet that is off bills like a running one: there is no park, and only a destroy ends its meter.
Resources attached to a droplet (volumes, snapshots, reserved addresses) outlive it; the API reports
their monthly cost. The call that destroys a droplet *with* all of them is never sent.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, quote, urlsplit

from rgt_tui.language import translate
from rgt_tui.model import (
    BillingVerb,
    FrozenStruct,
    Leftover,
    Lifecycle,
    MeterKind,
    Offer,
    ProviderRef,
    RentalRequest,
)
from rgt_tui.model.gpu_names import same_gpu
from rgt_tui.profiles import HOURS
from rgt_tui.providers.answers import (
    AnswerProof,
    ListPage,
    Parts,
    as_array,
    as_object,
    parse_bool,
    parse_count,
    parse_number,
    parse_text,
    parse_time,
    read_optional,
    read_pages,
)
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    Instance,
    NotFound,
    ProviderError,
    make_printable,
)
from rgt_tui.providers.http import AccountHttp, BodyError, open_http
from rgt_tui.providers.rented import (
    START,
    AccountBalance,
    MachineCall,
    RentedAccount,
    RentedMachine,
    state_of,
)
from rgt_tui.providers.rented_market import RentedMarket, check_wish, in_order, unknown_gpu

VENDOR = "https://api.digitalocean.com"
CONSOLE = "https://cloud.digitalocean.com/droplets"
KEY_ENV = "DIGITALOCEAN_ACCESS_TOKEN"
"""doctl's own variable: https://docs.digitalocean.com/reference/doctl/ (verified 2026-11)."""
KEY_FILES = (".config/doctl/config.yaml", "Library/Application Support/doctl/config.yaml")
HANGING_AGE = 600.0
"""Seconds for which a droplet's list of attached resources is valid in a list; for one droplet,
`FRESH`.
"""
FRESH = 60.0
STATES = {
    "new": (Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
    "active": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "off": (Lifecycle.STOPPED, MeterKind.COMPUTE_AND_STORAGE),
    "archive": (Lifecycle.UNKNOWN, MeterKind.UNKNOWN),
}
"""``status`` → state, and what it bills: from creation to destroy, even while it is off."""
OFF_BILLS = (
    "DigitalOcean bills a droplet in full while it is off, so a stop saves nothing: "
    "destroy it instead"
)
"""https://docs.digitalocean.com/reference/api/ (verified 2026-08)."""
HANGING = (
    ("volumes", "volume", True),
    ("snapshots", "snapshot", True),
    ("volume_snapshots", "volume snapshot", True),
    ("reserved_ips", "reserved address", False),
)
"""Key of the answer, name, and whether it bills while the droplet exists. A reserved address is
free while assigned, but not once it is unassigned:
https://docs.digitalocean.com/products/networking/reserved-ips/how-to/modify/ (verified 2025-06).
"""
REFUSALS: dict[int | str, AnswerProof] = {
    401: AnswerProof.NOTHING,
    404: AnswerProof.ASK,
    429: AnswerProof.NOTHING,
}
"""For a deletion: https://docs.digitalocean.com/reference/api/ (OpenAPI, verified 2026-08)."""
ANSWERS = dict.fromkeys(BillingVerb, REFUSALS)
Pages = Callable[[str, str], Awaitable[tuple[object, ...]]]
IMAGES = {"nvidia": ("gpu-h100x1-base", "gpu-h100x8-base"), "amd": ("gpu-amd-base", "gpu-amd-base")}
"""Vendor → DigitalOcean's own images with drivers, for one GPU and for several.
https://github.com/dstackai/dstack (its DigitalOcean backend, verified 2026-08).
"""
NOTES = (
    "powered off, it is billed in full: only destroying it ends the charges",
    "a scratch disk is not kept while it is off",
)


def open_account(ref: ProviderRef, context: AccountContext) -> DigitalOceanAccount:
    """Return the account that a droplet belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=CONSOLE,
        key_env=KEY_ENV,
        vendor_files=tuple((path, key_of_doctl) for path in KEY_FILES),
        wrong=find_body_error,
    )
    return DigitalOceanAccount(ref, http, context.clock)


def key_of_doctl(path: Path) -> str:
    """Return the token of doctl's current context; empty without one.

    ``access-token`` belongs to the context ``default``; other contexts are in ``auth-contexts``,
    and ``context`` is the current one:
    https://docs.digitalocean.com/reference/doctl/reference/auth/ (verified 2025-10).
    """
    try:
        lines = path.read_text(encoding="utf-8")[:65536].splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    values: dict[str, str] = {}
    section = ""
    for line in lines:
        name, _, value = line.strip().partition(":")
        if not line[:1].isspace():
            section = name
        if not line[:1].isspace():
            key = name
        else:
            key = f"{section}/{name}"
        # doctl writes two levels of plain YAML only, so no YAML parser is needed.
        values.setdefault(key, value.strip().strip("'\""))
    context = values.get("context") or "default"
    if context == "default":
        return values.get("access-token", "")
    return values.get(f"auth-contexts/{context}", "")


def find_body_error(data: object) -> BodyError | None:
    """Return the error of a body like ``{"id": "not_found", "message": …}``.

    The id becomes the code.
    """
    # A droplet's id is a number; an error's is a word such as "not_found".
    if not isinstance(data, dict) or not isinstance(data.get("id"), str) or "message" not in data:
        return None
    return BodyError(make_printable(data["id"], 80), parse_text(data["message"], 200) or "")


class AttachedResources(FrozenStruct):
    """Resources attached to a droplet, read at `at`: those that bill now, and after a destroy."""

    at: float
    now: Parts
    afterwards: Parts


class DigitalOceanAccount(RentedAccount):
    """One account, or team, at DigitalOcean."""

    platform: ClassVar[str] = "DigitalOcean"
    api: ClassVar[str] = "API v2"
    labels: ClassVar[Mapping[BillingVerb, str]] = {BillingVerb.DESTROY: "Destroy"}
    words: ClassVar[Mapping[BillingVerb, str]] = {BillingVerb.DESTROY: "destroy"}
    lacks: ClassVar[Mapping[str, str]] = {BillingVerb.PARK: OFF_BILLS}
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[1-9][0-9]{0,17}")
    not_listed: ClassVar[tuple[str, ...]] = (
        "load balancers",
        "databases",
        "Spaces",
        "container registries",
    )

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        """Create an account; see `RentedAccount`."""
        super().__init__(ref, http, clock)
        self._hanging: dict[str, AttachedResources] = {}
        self._asked: dict[str, float] = {}
        self._market = DigitalOceanMarket(self, self.fetch_pages, self.parse_machine)

    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Request one droplet, and its attached resources."""
        raw = as_object((await self.http.get(f"/v2/droplets/{instance}")).data).get("droplet")
        await self._learn_hanging(instance, FRESH)
        return self.parse_machine(raw)

    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Request all GPU droplets, which the plain list omits.

        Others only if one of them is a box.
        """
        # `type=gpus` leaves out droplets without a GPU, which a fleet file may name too.
        others = any(one.gpu is None for one in self._seen.values())
        raw = list(await self.fetch_pages("/v2/droplets?type=gpus", "droplets"))
        if others:
            raw += await self.fetch_pages("/v2/droplets?type=droplets", "droplets")
        ids = [str(one.get("id")) for one in map(as_object, raw)]
        # Maximum number of droplets per list whose resources are queried, to stay within the rate
        # limit.
        asked_at_once = 20
        # The longest unasked first, so that each gets its turn in an account with hundreds.
        for instance in sorted(ids, key=lambda one: self._asked.get(one, 0.0))[:asked_at_once]:
            await self._learn_hanging(instance, HANGING_AGE)
        return tuple(self.parse_machine(one) for one in raw)

    async def fetch_pages(self, path: str, key: str) -> tuple[object, ...]:
        """Request all pages of a list.

        Raises:
            ProviderError: among others, if the number of items differs from the announced one.
        """

        async def read_page(cursor: str | None) -> ListPage:
            if cursor is None:
                number_of = 1
            else:
                number_of = int(cursor)
            joint = "&" if "?" in path else "?"
            per_page = 200
            answer = await self.http.get(f"{path}{joint}per_page={per_page}&page={number_of}")
            data = as_object(answer.data)
            items, total = data.get(key), as_object(data.get("meta")).get("total")
            address = as_object(as_object(data.get("links")).get("pages")).get("next")
            if address:
                following = _next_page(address, after=number_of)
            else:
                following = None
            # An empty page between others may be truncated.
            if following is not None and not items:
                following = ""
            total_count = None
            if type(total) is int:
                total_count = total
            return ListPage(items, following, answer, total_count)

        return await read_pages(read_page, key, self.undocumented_error)

    async def _learn_hanging(self, instance: str, age: float) -> None:
        """Read a droplet's attached resources unless done recently.

        A failure keeps the last answer.
        """
        now = self.clock()
        if 0 <= now - self._asked.get(instance, -HANGING_AGE) < age or not self.ids.fullmatch(
            instance
        ):
            return
        # Before the request: one that fails must not be repeated with every list.
        self._asked[instance] = now
        # Without it the meter says that volumes are unknown, which is better than no meter.
        with contextlib.suppress(ProviderError):
            path = f"/v2/droplets/{instance}/destroy_with_associated_resources"
            parts = [
                (part, bills) for part, bills in _iterate_attached((await self.http.get(path)).data)
            ]
            self._hanging[instance] = AttachedResources(
                now, tuple(part for part, bills in parts if bills), tuple(part for part, _ in parts)
            )

    def parse_machine(self, raw: object) -> RentedMachine:
        """Parse a droplet.

        Raises:
            BadAnswer: it is not an object with an id; any other invalid field becomes None.
        """
        droplet = as_object(raw)
        number_of = droplet.get("id")
        # `type`, not isinstance: True is an int as well.
        if type(number_of) is not int or not 0 < number_of < 10**18:
            raise self.undocumented_error(translate("a droplet without an id"))
        instance, size = str(number_of), as_object(droplet.get("size"))
        status = parse_text(droplet.get("status"), 40) or "not said"
        life, bills = state_of(STATES, status)
        gpu = as_object(droplet.get("gpu_info")) or as_object(size.get("gpu_info"))
        locked = parse_bool(droplet.get("locked")) is True
        hanging = self._hanging.get(instance)
        address = next(
            (
                found
                for one in map(as_object, as_array(as_object(droplet.get("networks")).get("v4")))
                if one.get("type") == "public" and (found := parse_text(one.get("ip_address"), 60))
            ),
            None,
        )
        outlives = None
        if hanging is not None:
            outlives = hanging.afterwards
        # A locked droplet refuses every action until the running one ends.
        actions: tuple[str, ...] = ()
        if not locked:
            actions = ("destroy",)
        port = None
        if address is not None:
            port = 22
        return RentedMachine(
            id=instance,
            name=parse_text(droplet.get("name"), 255) or "",
            status=f"{status}{' (bills in full)' if status == 'off' else ''}{' (locked)' if locked else ''}",
            lifecycle=life,
            bills=bills,
            compute=parse_number(size.get("price_hourly")),
            storage=(
                *_list_backups(droplet),
                *(_list_unpriced(droplet) if hanging is None else hanging.now),
            ),
            outlives=outlives,
            actions=actions,
            host=address,
            port=port,
            user="root",
            gpu=parse_text(gpu.get("model"), 60),
            gpu_count=parse_count(gpu.get("count")),
            region=parse_text(as_object(droplet.get("region")).get("slug"), 40),
            created=parse_time(droplet.get("created_at")),
            # From the creation to the end, whatever its state in between.
            billed_since=parse_time(droplet.get("created_at")),
            spot=False,
        )

    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call; there is none for a park."""
        if what == START:
            return MachineCall("POST", f"/v2/droplets/{instance}/actions", {"type": "power_on"})
        if what == BillingVerb.DESTROY:
            return MachineCall("DELETE", f"/v2/droplets/{instance}")
        return None

    async def read_purse(self) -> AccountBalance | None:
        """Request the balance, which is the amount owed. Only a credit is a positive balance.

        https://docs.digitalocean.com/reference/api/ (billing, verified 2026-08): amounts are
        strings, and usage adds to them.
        """
        data = as_object((await self.http.get("/v2/customers/my/balance")).data)
        owed = _parse_amount(data.get("month_to_date_balance"))
        # Negative = credit; a positive amount is owed at the end of the month, and no balance.
        if owed is not None and owed < 0:
            return AccountBalance(-owed)
        return None

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List volumes, snapshots, reserved addresses and clusters, also of unknown droplets.

        A token has scopes: https://docs.digitalocean.com/reference/api/scopes/ (verified 2026-11).
        """
        lists = (
            ("/v2/volumes", "volumes"),
            ("/v2/snapshots", "snapshots"),
            ("/v2/reserved_ips", "reserved_ips"),
        )
        found = [
            (path, as_object(raw))
            for path, key in lists
            for raw in await self.fetch_pages(path, key)
        ]
        # A token may lack the scope for clusters only; the rest is still worth listing.
        clusters, gaps = await read_optional({"Kubernetes clusters": self._list_clusters})
        self.leftover_gaps = (*self.not_listed, *gaps)
        return (*(self._parse_leftover(path, raw) for path, raw in found), *clusters)

    async def _list_clusters(self) -> list[Leftover]:
        """List the Kubernetes clusters. The API has no price of the control plane.

        Nodes are droplets.
        """
        found = []
        for raw in map(
            as_object, await self.fetch_pages("/v2/kubernetes/clusters", "kubernetes_clusters")
        ):
            identifier = parse_text(raw.get("id"), 80)
            if identifier is None:
                raise self.undocumented_error(translate("a cluster without an id"))
            pools = [as_object(pool) for pool in as_array(raw.get("node_pools"))]
            nodes = [
                as_object(node).get("droplet_id")
                for pool in pools
                for node in as_array(pool.get("nodes"))
            ]
            cluster = Leftover(
                what="cluster",
                id=identifier,
                name=parse_text(raw.get("name"), 80) or "",
                region=parse_text(raw.get("region"), 40),
                used_by=tuple(str(node) for node in nodes if node),
                how=f"DELETE {self.http.base_url}/v2/kubernetes/clusters/{identifier}",
            )
            found.append(cluster)
        return found

    def _parse_leftover(self, path: str, raw: dict[str, object]) -> Leftover:
        what, key = {
            "/v2/volumes": ("volume", "id"),
            "/v2/snapshots": ("snapshot", "id"),
            "/v2/reserved_ips": ("address", "ip"),
        }[path]
        found = parse_text(raw.get(key), 80)
        if found is None:
            raise self.undocumented_error(translate("a {what} without an id", what=what))
        size = parse_number(raw.get("size_gigabytes"))
        droplet = as_object(raw.get("droplet")).get("id")
        # Free while assigned; unassigned it is charged, at a price that the API does not report.
        free = what == "address" and type(droplet) is int
        per_hour = None
        if free:
            per_hour = 0.0
        return Leftover(
            what=what,
            id=found,
            name=parse_text(raw.get("name"), 80) or "",
            per_hour=per_hour,
            size_gb=size,
            region=parse_text(as_object(raw.get("region")).get("slug"), 40),
            used_by=tuple(
                str(one) for one in (*as_array(raw.get("droplet_ids")), droplet) if type(one) is int
            ),
            how=f"DELETE {self.http.base_url}{path}/{found}",
        )


def _next_page(address: object, *, after: int) -> str:
    """Return the number of the next page; empty = none.

    The URL is not followed, as it is untrusted.
    """
    try:
        page = int(parse_qs(urlsplit(str(address)).query).get("page", ["0"])[-1])
    except ValueError:
        return ""
    # Any other number could make the pages go round in circles.
    if page == after + 1:
        return str(page)
    return ""


def _iterate_attached(data: object) -> Iterator[tuple[tuple[str, float | None], bool]]:
    """Yield the attached resources, and whether they bill already.

    Some may be hidden from the key.
    """
    found = as_object(data)
    for key, what, bills in HANGING:
        # The older name of reserved addresses.
        default = None
        if key == "reserved_ips":
            default = found.get("floating_ips")
        items = found.get(key, default)
        if not isinstance(items, list):
            yield (f"{what}s, if there are any (the key may not see them)", None), bills
            continue
        for item in map(as_object, items):
            cost = parse_number(item.get("cost"))
            name = (
                parse_text(item.get("name"), 80)
                or parse_text(item.get("id"), 80)
                or "without a name"
            )
            yield (f"{what} {name}", None if cost is None else cost / HOURS["GB-month"]), bills


def _list_unpriced(droplet: Mapping[str, object]) -> Parts:
    """Return the resources that the droplet itself lists, without prices."""
    # A missing list is unknown, not empty.
    known = all(isinstance(droplet.get(key), list) for key in ("volume_ids", "snapshot_ids"))
    if known and not droplet["volume_ids"] and not droplet["snapshot_ids"]:
        return ()
    return (("volumes and snapshots", None),)


def _list_backups(droplet: Mapping[str, object]) -> Parts:
    """Return the backups, which cost extra at a price that the API does not report."""
    if "backups" in as_array(droplet.get("features")):
        return (("backups", None),)
    return ()


def _parse_amount(value: object) -> float | None:
    """Return a sum of money given as a string, which may be negative; None if it is invalid."""
    try:
        if isinstance(value, str):
            found = float(value)
        else:
            found = math.nan
    except ValueError:
        return None
    if math.isfinite(found):
        return found
    return None


# Finds and rents GPU droplets: DigitalOcean's sizes, and the one creation call.
#
# https://docs.digitalocean.com/reference/api/ (sizes, droplets, SSH keys; OpenAPI of 2026-08). A
# creation returns 202, which only means accepted. 422 means that the size is unavailable, or that
# the account has reached its droplet limit: only its message differs, and nothing was made in
# either case.


class DigitalOceanMarket(RentedMarket):
    """Rents droplets; see `Market`."""

    def __init__(
        self, account: RentedAccount, pages: Pages, parse: Callable[[object], RentedMachine]
    ) -> None:
        """Create the market of an account.

        Args:
            account: The account that pays.
            pages: Requests all pages of a list: its path, and the key of its items.
            parse: Parses a droplet.
        """
        super().__init__(account)
        self._pages, self._parse = pages, parse

    async def find_offers(self, wish: RentalRequest) -> tuple[Offer, ...]:
        """Return the available sizes with that GPU; see `Market.offers`."""
        check_wish(
            "DigitalOcean",
            wish,
            currency="USD",
            spot=translate("DigitalOcean rents no droplet as spot"),
        )
        sizes = [as_object(raw) for raw in await self._pages("/v2/sizes", "sizes")]
        with_gpu = [size for size in sizes if _read_gpu_model(size)]
        if not any(_is_wished(wish, size) for size in with_gpu):
            raise unknown_gpu(
                "DigitalOcean", wish, map(_read_gpu_model, with_gpu), self.account.http.console
            )
        found = (self._build_offer(wish, size) for size in with_gpu if _is_wished(wish, size))
        return in_order((offer for offer in found if offer is not None), wish)

    def _build_offer(self, wish: RentalRequest, size: Mapping[str, object]) -> Offer | None:
        gpu = as_object(size.get("gpu_info"))
        slug, disk = parse_text(size.get("slug"), 80), parse_count(size.get("disk"))
        regions = [name for one in as_array(size.get("regions")) if (name := parse_text(one, 40))]
        if wish.region is None:
            places = regions
        else:
            places = [one for one in regions if one == wish.region]
        if (
            size.get("available") is not True
            or slug is None
            or not places
            or parse_count(gpu.get("count")) != wish.gpu_count
            # A droplet's disk comes with its size, and cannot be chosen.
            or (disk is not None and disk < wish.disk_gb)
        ):
            return None
        transfer = parse_number(size.get("transfer"))
        if transfer is None:
            included = "some"
        else:
            included = f"{transfer:g} TB"
        # USD, above the included traffic: https://docs.digitalocean.com (verified 2026-08).
        out_per_gb = 0.01
        return Offer(
            kind=self.account.ref.kind,
            id=f"{slug}/{wish.region or ANYWHERE}",
            gpu=_read_gpu_model(size),
            gpu_count=wish.gpu_count,
            gpu_memory_gb=_read_gpu_memory(size),
            # The price of the whole droplet with its disks; 0 is not believed.
            compute_per_hour=parse_number(size.get("price_hourly")) or None,
            storage_per_hour=0.0,
            in_per_gb=None,
            out_per_gb=out_per_gb,
            disk_gb=disk,
            region=wish.region,
            stock=translate("available in {places}", places=", ".join(places)),
            notes=(
                *NOTES,
                f"{included} of outgoing traffic is in the price, more is charged",
            ),
        )

    def build_creation_call(self, offer: Offer, wish: RentalRequest, token: str) -> MachineCall:
        """Return the one creation call; the key that it names is registered before."""
        slug, _, place = offer.id.partition("/")
        if not slug or not place:
            raise BadAnswer(
                translate("{id!r} is not an offer from DigitalOcean", id=offer.id), sent=False
            )
        one, several = IMAGES["amd" if offer.gpu.lower().startswith("amd") else "nvidia"]
        body: dict[str, object] = {
            "name": token,
            "size": slug,
            "image": wish.image or (one if offer.gpu_count == 1 else several),
            # Keys of the account, by MD5 fingerprint or id; a key itself is not accepted here.
            "ssh_keys": [md5_fingerprint(wish.public_key)] if wish.public_key else [],
            "backups": False,
            "ipv6": False,
            "monitoring": False,
            "tags": [],
            "volumes": [],
            "public_networking": True,
        }
        request = body
        if place != ANYWHERE:
            request = {**body, "region": place}
        return MachineCall("POST", "/v2/droplets", request)

    def find_created_id(self, data: object) -> str | None:
        """Return the id of the droplet."""
        found = as_object(as_object(data).get("droplet")).get("id")
        if type(found) is int and found > 0:
            return str(found)
        return None

    def describe_creation(self, offer: Offer, wish: RentalRequest, token: str) -> str:
        """Return the exact call, and the one that may be needed before it."""
        return translate(
            "{call} (before it, POST /v2/account/keys if the key is new)",
            call=self.format_call(self.build_creation_call(offer, wish, token)),
        )

    async def prepare_creation(self, wish: RentalRequest, token: str) -> Mapping[str, object]:
        """Register the public key if it is new. A droplet accepts only registered keys."""
        if not wish.public_key:
            raise ProviderError(
                translate(
                    "a droplet needs a public key: without one, DigitalOcean creates a "
                    "password, which "
                    "rgt cannot use"
                ),
                sent=False,
            )
        http = self.account.http
        try:
            await http.get(f"/v2/account/keys/{md5_fingerprint(wish.public_key)}")
        except NotFound:
            await http.send(
                "POST", "/v2/account/keys", {"name": token, "public_key": wish.public_key}
            )
        return {}

    async def find_by_token(self, token: str) -> tuple[Instance, ...]:
        """Find droplets by name, which DigitalOcean compares as a whole, ignoring case."""
        found = await self._pages(
            f"/v2/droplets?type=gpus&name={quote(token, safe='')}", "droplets"
        )
        return tuple(
            self.account.build_instance(one) for one in map(self._parse, found) if token in one.name
        )


def _read_gpu_model(size: Mapping[str, object]) -> str:
    return parse_text(as_object(size.get("gpu_info")).get("model"), 60) or ""


def _read_gpu_memory(size: Mapping[str, object]) -> float | None:
    vram = as_object(as_object(size.get("gpu_info")).get("vram"))
    if vram.get("unit") in ("gib", "gb"):
        return parse_number(vram.get("amount")) or None
    return None


def _is_wished(wish: RentalRequest, size: Mapping[str, object]) -> bool:
    return same_gpu(wish.gpu, _read_gpu_model(size), _read_gpu_memory(size))


ANYWHERE = "any"
"""Used instead of a region in an offer's id: any region."""


def md5_fingerprint(public_key: str) -> str:
    """Return the MD5 fingerprint of a public key, DigitalOcean's id for keys.

    Raises:
        BadAnswer: it is not a public key; nothing was sent.
    """
    try:
        blob = base64.b64decode(public_key.split()[1], validate=True)
    except (IndexError, binascii.Error):
        raise BadAnswer(
            translate("the public key is not one line as in authorized_keys"), sent=False
        ) from None
    # The API's format of fingerprints; no security depends on it.
    return ":".join(f"{byte:02x}" for byte in hashlib.md5(blob, usedforsecurity=False).digest())
