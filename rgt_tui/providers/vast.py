"""vast.ai's REST API (https://docs.vast.ai/api-reference/introduction, verified 2026-11).

Errors can have status 200 (``success: false``), and a machine that no longer exists is ``null``.
Storage is charged in every state but ``offline``, compute while ``running`` or ``frozen``, and
perhaps while loading.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, urlencode

from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, Leftover, Lifecycle, MeterKind, ProviderRef
from rgt_tui.providers.answers import (
    AnswerProof,
    ListPage,
    Parts,
    as_array,
    as_object,
    moment_of,
    parse_bool,
    parse_count,
    parse_number,
    parse_port,
    parse_signed,
    parse_text,
    read_optional,
    read_pages,
    read_single_page,
)
from rgt_tui.providers.control_plane import (
    AccountContext,
    BadAnswer,
    NotFound,
    ProviderError,
    RequestPause,
    make_printable,
)
from rgt_tui.providers.http import AccountHttp, BodyError, open_http
from rgt_tui.providers.rented import (
    START,
    AccountBalance,
    MachineCall,
    RentedAccount,
    RentedMachine,
)
from rgt_tui.providers.vast_market import VastBids, VastMarket

VENDOR = "https://console.vast.ai"
CONSOLE = "https://cloud.vast.ai/instances/"
KEY_ENV = "VAST_API_KEY"
OTHER_NAMES = ("VASTAI_API_KEY",)
"""Variables of other tools with the same key."""
KEY_FILES = (".config/vastai/vast_api_key", ".vast_api_key")
"""Written by the vendor's own tool, the newer path first:
https://docs.vast.ai/api-reference/introduction.
"""
MEANS = {"no_such_instance": 404, "no_such_ask": 404, "auth_error": 401}
"""Error code → the equivalent HTTP status: vast.ai returns 404 for an unknown key."""
STATES = {
    None: (Lifecycle.STARTING, MeterKind.STORAGE_ONLY),
    "created": (Lifecycle.STARTING, MeterKind.STORAGE_ONLY),
    "loading": (Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
    "rebooting": (Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
    "running": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "frozen": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "stopped": (Lifecycle.STOPPED, MeterKind.STORAGE_ONLY),
    "exited": (Lifecycle.STOPPED, MeterKind.STORAGE_ONLY),
    "unknown": (Lifecycle.ERROR, MeterKind.UNKNOWN),
    "offline": (Lifecycle.ERROR, MeterKind.UNKNOWN),
    "destroyed": (Lifecycle.GONE, MeterKind.NONE),
}
"""``actual_status`` → state, and what is charged:
https://docs.vast.ai/api-reference/instances/show-instances.
"""
LOADING = (
    "vast.ai's pages and its users disagree on whether compute is charged while an instance "
    "loads: it is counted"
)
"""https://docs.vast.ai (show instances, billing reference, 2026-08)."""
DEARER = "vast.ai may charge more for the disk of a stopped instance than its API says"
"""https://docs.vast.ai (billing reference, 2026-08)."""
REFUSALS: dict[int | str, AnswerProof] = {
    "no_such_instance": AnswerProof.ASK,
    "auth_error": AnswerProof.NOTHING,
    401: AnswerProof.NOTHING,
    403: AnswerProof.NOTHING,
    404: AnswerProof.ASK,
    429: AnswerProof.NOTHING,
}
"""Errors as ``{success: false, error, msg}``: https://docs.vast.ai/api-reference/introduction
(verified 2026-08). An error code at status 200 that is missing here proves nothing.
"""
ANSWERS = dict.fromkeys(BillingVerb, REFUSALS)


def open_account(ref: ProviderRef, context: AccountContext) -> VastAccount:
    """Return the account that an instance belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=CONSOLE,
        key_env=KEY_ENV,
        vendor_files=tuple((path, key_in) for path in KEY_FILES),
        also=OTHER_NAMES,
        wrong=find_body_error,
    )
    return VastAccount(ref, http, context.clock)


def key_in(path: Path) -> str:
    """Return the key in the vendor tool's file; empty without one."""
    try:
        return path.read_text(encoding="utf-8")[:4096].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def find_body_error(data: object) -> BodyError | None:
    """Return the error of a body; a creation may still have made an instance (``new_contract``)."""
    if not isinstance(data, dict) or (data.get("success") is not False and not data.get("error")):
        return None
    code = parse_text(data.get("error"), 80) or ""
    made = parse_count(data.get("new_contract"))
    words = parse_text(data.get("msg"), 200) or code or "success: false"
    # `new_contract` may come with an error: that machine exists, and is billed.
    field = ""
    if made is not None:
        field = str(made)
    return BodyError(code, words, MEANS.get(code), field)


class VastAccount(RentedAccount):
    """One account at vast.ai."""

    platform: ClassVar[str] = "vast.ai"
    labels: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "Stop",
        BillingVerb.DESTROY: "Destroy",
    }
    words: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "stop",
        BillingVerb.DESTROY: "destroy",
    }
    ids: ClassVar[re.Pattern[str]] = re.compile(r"[0-9]{1,18}")
    not_listed: ClassVar[tuple[str, ...]] = ("deposits for reserved instances",)
    gaps: ClassVar[Mapping[str, float]] = {
        "list": 1.0,
        "get": 2.0,
        START: 1.0,
        BillingVerb.PARK: 1.0,
        BillingVerb.DESTROY: 3.0,
        "charges": 1.0,
        "volumes": 5.5,
        "endpoints": 5.5,
        "offers": 6.0,
        "create": 4.5,
        "bid": 1.0,
    }

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        super().__init__(ref, http, clock)
        self._market = VastMarket(self, self.fetch_pages)
        self.bidder = VastBids(self)
        self._volumes: dict[str, float | None] = {}
        self._volumes_of: dict[str, list[object]] = {}
        """Instance → its volumes, from the last answer that had them."""
        self._volumes_pause = RequestPause()

    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Request one instance."""
        await self.pace.wait_turn("get")
        data = (await self.http.get(f"/api/v0/instances/{instance}/?owner=me")).data
        if not isinstance(data, dict) or "instances" not in data:
            raise self.undocumented_error(translate("an answer without 'instances'"))
        # vast.ai answers 200 for an instance that does not exist.
        if data["instances"] is None:
            raise NotFound(
                translate("vast.ai has no instance {instance}", instance=instance),
                console=self.http.console,
                status=200,
            )
        box = as_object(data["instances"])
        if not isinstance(box.get("volume_info"), list) and instance not in self._volumes_of:
            # The answer for one instance may lack its volumes; the list has them.
            with contextlib.suppress(ProviderError):
                await self.fetch_all()
        return self.parse_machine(data["instances"])

    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Request all instances, page by page; a missing page is an error."""
        return await self.fetch_pages({})

    async def fetch_pages(self, filters: Mapping[str, object]) -> tuple[RentedMachine, ...]:
        """Request all pages of the instances that match the given filters."""
        # Maximum instances per page.
        page = 25
        query: dict[str, object] = {"limit": page}
        if filters:
            query["select_filters"] = json.dumps(filters)
        # The total is documented to count the matches. If it counted the whole account, every
        # filtered list would look incomplete, and a new machine would not be found: so it is only
        # checked without filters.
        found = await self._fetch_pages(
            "list", "/api/v1/instances/", query, "instances", total=not filters
        )
        return tuple(map(self.parse_machine, found))

    async def _fetch_pages(
        self, kind: str, path: str, query: Mapping[str, object], key: str, *, total: bool = False
    ) -> tuple[object, ...]:
        """Return all pages of a list.

        Args:
            kind: Key of `gaps`.
            path: Path of the list.
            query: Query without the cursor.
            key: Key of the items in the answer.
            total: Whether ``total_instances`` counts this list.

        Raises:
            ProviderError: among others, if the list may be incomplete.
        """

        async def read_page(cursor: str | None) -> ListPage:
            if cursor is None:
                after = {}
            else:
                after = {"after_token": cursor}
            await self.pace.wait_turn(kind)
            answer = await self.http.get(f"{path}?{urlencode({**query, **after}, quote_via=quote)}")
            data = as_object(answer.data)
            following = data.get("next_token")
            if following is not None:
                following = str(following) or None
            if total:
                count = parse_number(data.get("total_instances"))
            else:
                count = None
            return ListPage(data.get(key), following, answer, count)

        return await read_pages(read_page, key, self.undocumented_error)

    def parse_machine(self, raw: object) -> RentedMachine:
        """Parse one instance.

        Raises:
            BadAnswer: it is not an object with an id; any other invalid field becomes None.
        """
        box = as_object(raw)
        identifier = parse_count(box.get("id"))
        if identifier is None:
            raise self.undocumented_error(translate("an instance without an id"))
        lifecycle, bills = _parse_state(box)
        disk = _disk_per_hour(box)
        rest: Parts = (("container disk", disk),)
        named = box.get("volume_info")
        if isinstance(named, list):
            # Kept, because the answer for one instance may lack them.
            self._volumes_of[str(identifier)] = named
        volumes = self._list_attached(self._volumes_of.get(str(identifier)))
        kept: Parts = volumes or ()
        unsure: Parts
        if volumes is None:
            unsure = (("a volume, if one is attached", None),)
        else:
            unsure = ()
        total, base = parse_number(box.get("dph_total")), parse_number(box.get("dph_base"))
        if base is None and total is not None and bills is MeterKind.COMPUTE_AND_STORAGE:
            # `dph_total` includes the disk, which is counted apart.
            base = max(0.0, total - (disk or 0.0))
        host, ssh_port = _find_ssh_endpoint(box)
        stopped = lifecycle is Lifecycle.STOPPED
        spot = parse_bool(box.get("is_bid"))
        # It was not stopped by a person, so it returns as soon as the bid is the highest again.
        outbid = spot is True and stopped and box.get("intended_status") == "running"
        if outbid:
            status = f"outbid: {_format_status(box)}"
        else:
            status = _format_status(box)
        doubt = None
        if stopped:
            actions = ("start", "destroy")
            doubt = DEARER
        else:
            actions = ("stop", "destroy")
            if box.get("actual_status") == "loading":
                doubt = LOADING
        return RentedMachine(
            id=str(identifier),
            name=parse_text(box.get("label")) or "",
            status=status,
            lifecycle=lifecycle,
            bills=bills,
            compute=base,
            storage=(*rest, *kept, *unsure),
            at_rest=(*rest, *kept, *unsure),
            outlives=volumes,
            actions=actions,
            host=host,
            port=ssh_port,
            user="root",
            gpu=parse_text(box.get("gpu_name"), 60),
            gpu_count=parse_count(box.get("num_gpus")),
            region=parse_text(box.get("geolocation"), 60),
            created=moment_of(box.get("start_date")),
            spot=spot,
            least_bid=parse_number(box.get("min_bid")),
            outbid=outbid,
            ends_at=moment_of(box.get("end_date")),
            out_per_gb=_out_per_gb(box),
            doubt=doubt,
        )

    def _list_attached(self, raw: object) -> Parts | None:
        """Return the attached volumes, with prices from their own list; None = not reported."""
        if not isinstance(raw, list):
            return None
        names = [_volume_part_name(parse_count(as_object(one).get("id"))) for one in raw]
        return tuple((name, self._volumes.get(name)) for name in names)

    async def learn_parts(self, machines: tuple[RentedMachine, ...]) -> None:
        """Learn the prices of the volumes, rarely."""
        if not self._volumes_pause.seconds_left(self.clock()) and any(
            one.outlives for one in machines
        ):
            # Seconds for which the prices of the volumes are valid.
            volumes_age = 600.0
            self._volumes_pause.begin(self.clock(), volumes_age)
            with contextlib.suppress(ProviderError):
                self._volumes = {
                    _volume_part_name(one.id): one.per_hour for one in await self._listed_volumes()
                }
                self.update_prices(self._volumes)

    def list_tiers(self, machine: RentedMachine) -> dict[str, str]:
        """Return the mount of the container's disk; the API does not report mounts of volumes."""
        return {"/": "container-disk"}

    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call for a verb."""
        path = f"/api/v0/instances/{instance}/"
        if what == BillingVerb.DESTROY:
            return MachineCall("DELETE", path, {})
        return MachineCall(
            "PUT", path, {"state": "stopped" if what == BillingVerb.PARK else "running"}
        )

    def judge_answer(self, what: str, data: object) -> str:
        """Require ``success: true``."""
        # Status 200 says nothing here: errors have it, too.
        if as_object(data).get("success") is not True:
            raise BadAnswer(
                translate(
                    "vast.ai did not confirm the request ({what}); read the state", what=what
                ),
                console=self.http.console,
                status=200,
            )
        return "success"

    async def read_purse(self) -> AccountBalance | None:
        """Request the balance: ``credit`` is prepaid, a negative ``balance`` is owed.

        The documentation shows the one, the OpenAPI file the other:
        https://docs.vast.ai/api-reference/accounts/show-user (2026-08).
        """
        user = as_object((await self.http.get("/api/v0/users/current/")).data)
        credit, balance = parse_signed(user.get("credit")), parse_signed(user.get("balance"))
        if credit is None:
            if balance is None:
                return None
            return AccountBalance(balance)
        # Only a debt is subtracted: a positive balance would count the credit twice.
        return AccountBalance(credit + min(0.0, balance or 0.0))

    async def read_books(self, machines: tuple[RentedMachine, ...]) -> Mapping[str, float]:
        """Return the sum of each instance's charges since the oldest one was created."""
        begun = [one.created for one in machines if one.created is not None]
        days = {"gte": int(min(begun, default=self.clock())), "lte": int(self.clock())}
        filters = {"day": days, "type": {"in": ["instance"]}}
        # Maximum contracts per page of charges:
        # https://docs.vast.ai/api-reference/billing/show-charges (2026-08).
        charges_page = 500
        query = {"limit": charges_page, "select_filters": json.dumps(filters)}
        rows = await self._fetch_pages("charges", "/api/v0/charges/", query, "results")
        sums: dict[str, float] = {}
        known = {one.id for one in machines}
        for charge in map(as_object, rows):
            instance = str(charge.get("source")).removeprefix("instance-")
            cost = parse_signed(charge.get("amount"))
            if instance in known:
                # A sum without this charge would be too low, and look complete.
                if cost is None:
                    raise self.undocumented_error(translate("a charge without an amount"))
                sums[instance] = sums.get(instance, 0.0) + cost
        return sums

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List the volumes, including network volumes: each is charged until deleted.

        https://docs.vast.ai/api-reference/volumes/list-volumes; the types: the vendor's client
        (vastai 1.9.1, 2026-11).
        """
        volumes = await self._listed_volumes()
        endpoints, gaps = await read_optional({"endpoints": self._list_endpoints})
        self.leftover_gaps = (*self.not_listed, *gaps)
        return (*volumes, *endpoints)

    async def _listed_volumes(self) -> list[Leftover]:
        await self.pace.wait_turn("volumes")
        answer = await self.http.get("/api/v0/volumes/?owner=me&type=all_volume")
        rows = read_single_page(
            answer, as_object(answer.data).get("volumes"), "volumes", self.undocumented_error
        )
        return [self._parse_leftover(raw) for raw in rows]

    async def _list_endpoints(self) -> list[Leftover]:
        """List the serverless endpoints. Their workers are rented as long as the endpoint exists.

        https://docs.vast.ai/api-reference/serverless/show-endpoints (2026-08); an account without
        any gets a 400.
        """
        await self.pace.wait_turn("endpoints")
        try:
            answer = await self.http.get("/api/v0/endptjobs/")
        except BadAnswer as error:
            # So vast.ai answers an account that has no endpoint.
            if error.status == 400 and error.code == "invalid_args":
                return []
            raise
        rows = read_single_page(
            answer, as_object(answer.data).get("results"), "endpoints", self.undocumented_error
        )
        found = []
        for item in map(as_object, rows):
            identifier = parse_count(item.get("id"))
            if identifier is None:
                raise self.undocumented_error(translate("an endpoint without an id"))
            name, state = (
                parse_text(item.get("endpoint_name"), 60) or "",
                parse_text(item.get("endpoint_state"), 20),
            )
            label = name
            if state:
                label = f"{name} ({state})"
            endpoint = Leftover(
                what="endpoint",
                id=str(identifier),
                name=label,
                how=f"vastai delete endpoint {identifier}",
            )
            found.append(endpoint)
        return found

    def _parse_leftover(self, raw: object) -> Leftover:
        item = as_object(raw)
        identifier = parse_count(item.get("id"))
        if identifier is None:
            raise self.undocumented_error(translate("a volume without an id"))
        used = (
            parse_count(as_object(one).get("id")) or parse_count(one)
            for one in as_array(item.get("instances"))
        )
        return Leftover(
            what="volume",
            id=str(identifier),
            name=parse_text(item.get("label"), 80) or "",
            per_hour=parse_number(item.get("storage_total_cost")),
            size_gb=parse_number(item.get("disk_space")),
            region=parse_text(item.get("geolocation"), 60),
            used_by=tuple(str(one) for one in used if one is not None),
            how=f"vastai delete volume {identifier}",
        )


def _parse_state(box: Mapping[str, object]) -> tuple[Lifecycle, MeterKind]:
    """Return an instance's state, and what is charged.

    A container that has exited while the contract runs is not stopped: what is charged then is
    undocumented.
    """
    actual = box.get("actual_status")
    known_status = None
    if isinstance(actual, str):
        known_status = actual
    lifecycle, bills = STATES.get(known_status, (Lifecycle.UNKNOWN, MeterKind.UNKNOWN))
    if actual is not None and not isinstance(actual, str):
        return Lifecycle.UNKNOWN, MeterKind.UNKNOWN
    resting = box.get("intended_status") == "stopped" or box.get("cur_state") in (
        "stopped",
        "unloaded",
    )
    # It ended although it is intended to run, so it is not at rest.
    if lifecycle is Lifecycle.STOPPED and not resting:
        return Lifecycle.ERROR, MeterKind.UNKNOWN
    return lifecycle, bills


def _format_status(box: Mapping[str, object]) -> str:
    """Return the status, and the intended one if it differs."""
    actual = box.get("actual_status")
    if actual is None:
        said = "created"
    else:
        said = make_printable(actual, 40)
    intended = parse_text(box.get("intended_status"), 40)
    if intended is None or intended == said:
        return said
    return f"{said} (intended: {intended})"


def _disk_per_hour(box: Mapping[str, object]) -> float | None:
    """Return the hourly cost of the container's disk; ``storage_cost`` is per GB and month."""
    told = parse_number(box.get("storage_total_cost"))
    if told is not None:
        return told
    size, price = parse_number(box.get("disk_space")), parse_number(box.get("storage_cost"))
    if size is None or price is None:
        return None
    # Hours per month of storage prices, as in the vendor's specification (2026-08).
    month_h = 720.0
    return size * price / month_h


def _out_per_gb(box: Mapping[str, object]) -> float | None:
    """Return the price per outgoing GB from the host's price per TB, assuming 1,000 GB.

    The vendor's own client uses this field before it copies out of an instance:
    https://github.com/vast-ai/vast-python (verified 2026-11).
    """
    told = parse_number(box.get("internet_up_cost_per_tb"))
    if told is None:
        return None
    # Per TB of 1,000 GB.
    return told / 1000.0


def _volume_part_name(volume: object) -> str:
    """Return the name of a volume among the billed parts."""
    return f"volume {'?' if volume is None else volume}"


def _find_ssh_endpoint(box: Mapping[str, object]) -> tuple[str | None, int | None]:
    """Return host and port for SSH: direct, otherwise the proxy (next port with Jupyter)."""
    mapped = as_array(as_object(box.get("ports")).get("22/tcp"))
    if mapped:
        direct = parse_port(as_object(mapped[0]).get("HostPort"))
    else:
        direct = None
    address = parse_text(box.get("public_ipaddr"), 200)
    # The direct port first: the proxy is slower.
    if direct is not None and address is not None:
        return address, direct
    host, proxy = parse_text(box.get("ssh_host"), 200), parse_port(box.get("ssh_port"))
    if "jupyter" in str(box.get("image_runtype")) and proxy:
        # With Jupyter the proxy has SSH on the next port, as in vast.ai's own tool.
        proxy = parse_port((proxy or 0) + 1)
    if host is None or proxy is None:
        return (None, None)
    return (host, proxy)
