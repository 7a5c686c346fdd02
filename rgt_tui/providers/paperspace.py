"""Paperspace's machines (Core), API v1: https://api.paperspace.com/v1/openapi.json (2026-02).

As of Paperspace/cli. A stop ends only the charge for compute: disk, static address and snapshots
keep billing. The API gives rates without units, has no price list and no balance, and answers each
action with an event that may fail later.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC
from pathlib import Path
from typing import ClassVar, Protocol
from urllib.parse import urlencode

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
    how_many,
)
from rgt_tui.model.gpu_names import same_gpu
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
    read_pages,
)
from rgt_tui.providers.control_plane import AccountContext, BadAnswer, ProviderError, make_printable
from rgt_tui.providers.http import AccountHttp, BodyError, open_http
from rgt_tui.providers.rented import START, MachineCall, RentedAccount, RentedMachine, state_of
from rgt_tui.providers.rented_market import RentedMarket, check_wish, in_order, unknown_gpu

VENDOR = "https://api.paperspace.com/v1"
CONSOLE = "https://console.paperspace.com"
KEY_ENV = "PAPERSPACE_API_KEY"
KEY_FILE = ".paperspace/credentials.toml"
"""Written by ``pspace login``: https://github.com/Paperspace/cli (verified 2026-02)."""
BESIDE_AGE = 600.0
"""Seconds for which the snapshots and a machine's start time are valid."""
STATIC_IP_PER_HOUR = 0.0045
"""USD for a claimed address, at most $3.00 a month.
https://docs.digitalocean.com/products/paperspace/pricing/ (verified 2026-06).
"""
ON, REST = MeterKind.COMPUTE_AND_STORAGE, MeterKind.STORAGE_ONLY
STATES = {
    "off": (Lifecycle.STOPPED, REST),
    "starting": (Lifecycle.STARTING, ON),
    # Counted until it is off: the event of the stop may still fail.
    "stopping": (Lifecycle.RUNNING, ON),
    "restarting": (Lifecycle.STARTING, ON),
    "serviceready": (Lifecycle.RUNNING, ON),
    "ready": (Lifecycle.RUNNING, ON),
    "upgrading": (Lifecycle.UNKNOWN, MeterKind.UNKNOWN),
    "provisioning": (Lifecycle.STARTING, MeterKind.UNKNOWN),
}
"""``state`` → state, and what it bills. Which states before *ready* bill is undocumented: none
counts as free.
"""
RATE_UNIT = "Paperspace's API does not document the period of usageRate: assumed $ per hour"
DISK = "disk (the API does not document the period of storageRate)"
SNAPSHOTS = "snapshots, if there are any (the list could not be read)"
MEANS = {
    "BAD_REQUEST": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "PRECONDITION_FAILED": 409,
    "TOO_MANY_REQUESTS": 429,
}
"""Code of an error body → the equivalent HTTP status."""
REFUSALS: dict[int | str, AnswerProof] = {
    "BAD_REQUEST": AnswerProof.NOTHING,
    "UNAUTHORIZED": AnswerProof.NOTHING,
    "FORBIDDEN": AnswerProof.NOTHING,
    "TOO_MANY_REQUESTS": AnswerProof.NOTHING,
    "NOT_FOUND": AnswerProof.ASK,
    "CONFLICT": AnswerProof.ASK,
    "PRECONDITION_FAILED": AnswerProof.ASK,
    401: AnswerProof.NOTHING,
    403: AnswerProof.NOTHING,
    429: AnswerProof.NOTHING,
}
"""Its error codes: https://api.paperspace.com/v1/openapi.json (verified 2026-02)."""
ANSWERS = dict.fromkeys(BillingVerb, REFUSALS)
REGIONS = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
"""Short name → full name; the API accepts both, and returns the full one (``profiles/api``,
2026-03).
"""
TEMPLATE = "ML-in-a-Box"
"""Name of Paperspace's own template with drivers and frameworks."""
DISK_SIZES_GB = (50, 100, 250, 500, 1000, 2000)
"""The API refuses other disk sizes: ``profiles/api`` (2026-03)."""
NOTES = (
    "Paperspace reports the price only once the machine exists: check it then",
    "without capacity it may be created but stay off: its disk is charged then",
    "when stopped, its disk and snapshots are still charged",
)
_TYPE = re.compile(r"(.+?)(?:x([0-9]{1,2}))?")
_OFFER = re.compile(r"([A-Za-z0-9+_-]{1,40})@([A-Za-z0-9]{1,40})@([A-Za-z0-9 ()_-]{1,60})")


def open_account(ref: ProviderRef, context: AccountContext) -> PaperspaceAccount:
    """Return the account that a machine belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=CONSOLE,
        key_env=KEY_ENV,
        vendor_files=((KEY_FILE, key_of_pspace),),
        wrong=find_body_error,
    )
    return PaperspaceAccount(ref, http, context.clock)


def key_of_pspace(path: Path) -> str:
    """Return the key of pspace's current team; empty without one.

    ``[keys]`` has a key per team, and ``team`` in config.toml next to it names the current one:
    https://github.com/Paperspace/cli (config.ts and credentials.ts, verified 2026-02).
    """
    keys = {
        team: key
        for team, key in as_object(_read_toml(path).get("keys")).items()
        if isinstance(key, str)
    }
    team = _read_toml(path.with_name("config.toml")).get("team")
    if isinstance(team, str):
        return keys.get(team, "").strip()
    # Several teams and none selected: which key is meant would be a guess.
    if len(keys) == 1:
        return next(iter(keys.values())).strip()
    return ""


def _read_toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def find_body_error(data: object) -> BodyError | None:
    """Return the error of a body like ``{"code": "NOT_FOUND", "message": …}``."""
    if not isinstance(data, dict) or not isinstance(data.get("code"), str) or "message" not in data:
        return None
    code = make_printable(data["code"], 80)
    return BodyError(code, parse_text(data["message"], 200) or code, MEANS.get(code))


class AdditionalData(FrozenStruct):
    """Data read in addition to the machines; None = it could not be read."""

    at: float
    snapshots: Mapping[str, int] | None
    """Machine → number of its snapshots."""


class PaperspaceAccount(RentedAccount):
    """One team at Paperspace."""

    platform: ClassVar[str] = "Paperspace"
    api: ClassVar[str] = "API v1"
    labels: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "Shut down",
        BillingVerb.DESTROY: "Deactivate",
    }
    words: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "stop",
        BillingVerb.DESTROY: "delete",
    }
    not_listed: ClassVar[tuple[str, ...]] = (
        "Gradient's notebooks, deployments and storage",
        "custom templates",
    )

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        """Create an account; see `RentedAccount`."""
        super().__init__(ref, http, clock)
        self._beside: AdditionalData | None = None
        self._started: dict[str, tuple[float, float | None]] = {}
        """Machine → when its start time was read, and that time."""
        self._market = PaperspaceMarket(self, self.fetch_pages)

    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Request one machine."""
        raw = (await self.http.get(f"/machines/{instance}")).data
        await self._learn_snapshots()
        await self._learn_start(as_object(raw))
        return self.parse_machine(raw)

    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Request all machines."""
        raw = await self.fetch_pages("/machines")
        await self._learn_snapshots()
        for one in map(as_object, raw):
            await self._learn_start(one)
        return tuple(map(self.parse_machine, raw))

    async def fetch_pages(self, path: str, **query: str) -> tuple[object, ...]:
        """Request all pages of a list; each has a cursor to the next.

        Raises:
            ProviderError: among others, if the list may be incomplete.
        """

        async def read_page(cursor: str | None) -> ListPage:
            if cursor is None:
                after = {}
            else:
                after = {"after": cursor}
            # Maximum items per page.
            limit = 120
            answer = await self.http.get(
                f"{path}?{urlencode({**query, 'limit': str(limit), **after})}"
            )
            data = as_object(answer.data)
            more, following = data.get("hasMore"), data.get("nextPage")
            if not isinstance(more, bool):
                raise self.undocumented_error(
                    translate("a list of {path} without 'hasMore'", path=path[1:])
                )
            # Only `hasMore` says that a list ends; a missing `nextPage` would be a guess.
            if not more:
                return ListPage(data.get("items"), None, answer)
            # "" makes the list incomplete: more is announced, and there is no way to it.
            next_page = ""
            if isinstance(following, str):
                next_page = following
            return ListPage(
                data.get("items"),
                next_page,
                answer,
            )

        return await read_pages(read_page, path[1:], self.undocumented_error)

    async def _learn_snapshots(self) -> None:
        """Learn which machines have snapshots, rarely; a failure leaves it unknown."""
        now = self.clock()
        if self._beside is not None and 0 <= now - self._beside.at < BESIDE_AGE:
            return
        self._beside = AdditionalData(now, None)
        with contextlib.suppress(ProviderError):
            counts: dict[str, int] = {}
            for raw in await self.fetch_pages("/snapshots"):
                machine = str(as_object(raw).get("machineId"))
                counts[machine] = counts.get(machine, 0) + 1
            self._beside = AdditionalData(now, counts)

    async def _learn_start(self, machine: Mapping[str, object]) -> None:
        """Learn a running machine's start time from the events; a failure leaves it unknown."""
        instance, now = parse_text(machine.get("id"), 80) or "", self.clock()
        # The id goes into a query, so it must have the form of an id.
        if machine.get("state") == "off" or not self.ids.fullmatch(instance):
            self._started.pop(instance, None)
            return
        if instance in self._started and 0 <= now - self._started[instance][0] < BESIDE_AGE:
            return
        self._started[instance] = (now, None)
        # The machine itself has no start time; its newest finished start or creation is it.
        query = urlencode(
            {"machineId": instance, "orderBy": "dtCreated", "order": "desc", "limit": "50"}
        )
        with contextlib.suppress(ProviderError):
            events = as_array(
                as_object((await self.http.get(f"/machine-events?{query}")).data).get("items")
            )
            done = (
                parse_time(event.get("dtFinished"))
                for event in map(as_object, events)
                if event.get("state") == "done" and event.get("name") in ("start", "create")
            )
            self._started[instance] = (now, next((at for at in done if at is not None), None))

    def parse_machine(self, raw: object) -> RentedMachine:
        """Parse a machine.

        Raises:
            BadAnswer: it is not an object with an id; any other invalid field becomes None.
        """
        machine = as_object(raw)
        instance = self.require_id(
            parse_text(machine.get("id"), 80), translate("a machine without an id")
        )
        status = parse_text(machine.get("state"), 40) or "not said"
        life, bills = state_of(STATES, status)
        # A deleted machine may still be answered, with its last state.
        if parse_time(machine.get("dtDeleted"), UTC) is not None:
            status, life, bills = "deleted", Lifecycle.GONE, MeterKind.NONE
        gpus = [as_object(one) for one in as_array(machine.get("accelerators"))]
        kept = self._list_kept_parts(instance, machine)
        address = parse_text(machine.get("publicIp"), 60)
        port = None
        if address is not None:
            port = 22
        gpu = None
        gpu_count = None
        if gpus:
            gpu = parse_text(gpus[0].get("name"), 60)
            gpu_count = parse_count(gpus[0].get("count"))
        return RentedMachine(
            id=instance,
            name=parse_text(machine.get("name"), 120) or "",
            status=status,
            lifecycle=life,
            bills=bills,
            compute=parse_number(machine.get("usageRate")),
            # No rate for the disk, although there is a storageRate: its period is undocumented.
            storage=((DISK, None), *kept),
            at_rest=((DISK, None), *kept),
            outlives=kept,
            actions=_list_actions(status),
            host=address,
            port=port,
            user="paperspace",
            gpu=gpu,
            gpu_count=gpu_count,
            region=parse_text(machine.get("region"), 40),
            created=parse_time(machine.get("dtCreated")),
            started=self._started.get(instance, (0.0, None))[1],
            spot=False,
            doubt=RATE_UNIT,
        )

    def _list_kept_parts(self, instance: str, machine: Mapping[str, object]) -> Parts:
        """Return what bills whether the machine is on or off, and after its deletion."""
        kept: list[tuple[str, float | None]] = []
        if machine.get("publicIpType") == "static":
            kept.append(
                (
                    f"static address {parse_text(machine.get('publicIp'), 60) or ''}".strip(),
                    STATIC_IP_PER_HOUR,
                )
            )
        elif machine.get("publicIpType") not in ("dynamic", "none"):
            kept.append(("static address, if it has one (the API did not say)", None))
        if self._beside is not None:
            counts = self._beside.snapshots
        else:
            counts = None
        if counts is None:
            kept.append((SNAPSHOTS, None))
        elif count := counts.get(instance):
            kept.append((how_many(count, "snapshot"), None))
        return tuple(kept)

    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call."""
        path = f"/machines/{instance}"
        if what == BillingVerb.DESTROY:
            return MachineCall("DELETE", path)
        return MachineCall("PATCH", f"{path}/{'start' if what == START else 'stop'}", {})

    def judge_answer(self, what: str, data: object) -> str:
        """Return the state of an answer's event; an event that has already failed is an error."""
        event = as_object(as_object(data).get("event"))
        state = parse_text(event.get("state"), 40)
        # Status 200 only means that the event exists; its own state says whether it was refused.
        if state in ("error", "cancelled") or event.get("error"):
            why = parse_text(event.get("error"), 200) or translate("without saying why")
            raise BadAnswer(
                translate("Paperspace's event is {state}: {why}", state=state, why=why),
                console=self.http.console,
                status=200,
            )
        if state:
            return f"event {state}"
        return ""

    async def list_leftovers(self) -> tuple[Leftover, ...]:
        """List claimed addresses, snapshots and shared drives; the last two have no price."""
        base = self.http.base_url
        found = [
            self._parse_leftover(
                "address", raw, "ip", f"DELETE {base}/public-ips/", STATIC_IP_PER_HOUR
            )
            for raw in await self.fetch_pages("/public-ips")
        ]
        found += [
            self._parse_leftover("snapshot", raw, "id", f"DELETE {base}/snapshots/")
            for raw in await self.fetch_pages("/snapshots")
        ]
        found += [
            self._parse_leftover("shared drive", raw, "id", f"DELETE {base}/shared-drives/")
            for raw in await self.fetch_pages("/shared-drives")
            if parse_time(as_object(raw).get("dtDeleted"), UTC) is None
        ]
        return tuple(found)

    def _parse_leftover(
        self, what: str, raw: object, key: str, how: str, price: float | None = None
    ) -> Leftover:
        item = as_object(raw)
        found, machine = (
            parse_text(item.get(key), 80),
            parse_text(item.get("assignedMachineId"), 80),
        )
        if found is None:
            raise self.undocumented_error(translate("a {what} without an id", what=what))
        used_by: tuple[str, ...] = ()
        if machine is not None:
            used_by = (machine,)
        return Leftover(
            what=what,
            id=found,
            name=parse_text(item.get("name"), 80) or "",
            per_hour=price,
            region=parse_text(item.get("region"), 40),
            used_by=used_by,
            how=f"{how}{found}",
        )


def _list_actions(status: str) -> tuple[str, ...]:
    """Return the actions possible in a state; the event shows whether one succeeds."""
    if status in ("off", "deleted"):
        if status == "off":
            return ("start", "delete")
        return ()
    if status == "stopping":
        return ("delete",)
    return ("stop", "delete")


# Finds and rents Paperspace's machines, whose price is known only once they exist.
#
# https://docs.digitalocean.com/reference/paperspace/api-reference/machine-types/ (availability,
# verified 2026-08); templates, startup scripts and the creation:
# https://api.paperspace.com/v1/openapi.json (Paperspace/cli, 2026-02). There is no field for a key:
# a startup script, registered before, installs it. Without capacity, a machine may be created and
# stay off.


class PageFetcher(Protocol):
    """Requests all pages of a list."""

    def __call__(self, path: str, **query: str) -> Awaitable[tuple[object, ...]]:
        """Return the complete list, or raise a `ProviderError`."""
        ...


class OsTemplate(FrozenStruct):
    """The used fields of an operating system template."""

    id: str
    name: str
    size_gb: int
    types: tuple[str, ...]
    """Machine types that it supports."""


class PaperspaceMarket(RentedMarket):
    """Rents machines; see `Market`."""

    def __init__(self, account: RentedAccount, pages: PageFetcher) -> None:
        """Create the market of an account.

        Args:
            account: The account that pays.
            pages: Requests all pages of a list.
        """
        super().__init__(account)
        self._pages = pages

    async def find_offers(self, wish: RentalRequest) -> tuple[Offer, ...]:
        """Return the machine types that have capacity now, without a price; see `Market.offers`."""
        check_wish(
            "Paperspace", wish, currency="USD", spot=translate("Paperspace rents nothing as spot")
        )
        wanted = (wish.region or "").lower()
        regions = [name for code, name in REGIONS.items() if wanted in ("", code, name.lower())]
        if not regions:
            raise ProviderError(
                translate(
                    "Paperspace has no region {wanted!r}; it has: {regions}",
                    wanted=make_printable(wanted, 60),
                    regions=", ".join(REGIONS),
                ),
                sent=False,
            )
        templates = [
            found
            for raw in await self._pages("/os-templates")
            if (found := _parse_template(raw)) is not None
        ]
        types = dict.fromkeys(label for template in templates for label in template.types)
        if not any(_is_wished(wish.gpu, label) for label in types):
            raise unknown_gpu("Paperspace", wish, types, self.account.http.console)
        offers: list[Offer] = []
        for label in types:
            template = _choose_template(templates, label, wish)
            if (
                not _is_wished(wish.gpu, label)
                or _count_gpus(label) != wish.gpu_count
                or template is None
            ):
                continue
            for region in regions:
                if await self._has_capacity(label, region):
                    offers.append(self._build_offer(wish, label, template, region))
        return in_order(offers, wish)

    async def _has_capacity(self, label: str, region: str) -> bool:
        query = urlencode({"machineType": label, "region": region})
        available = parse_bool(
            as_object((await self.account.http.get(f"/machine-availability?{query}")).data).get(
                "available"
            )
        )
        # Unknown is not "no capacity", which would hide the offer.
        if available is None:
            raise BadAnswer(
                translate(
                    "Paperspace does not report whether there is a {label} in {region}",
                    label=make_printable(label, 40),
                    region=region,
                ),
                console=self.account.http.console,
            )
        return available

    def _build_offer(
        self, wish: RentalRequest, label: str, template: OsTemplate, region: str
    ) -> Offer:
        least_gb = max(wish.disk_gb, template.size_gb)
        return Offer(
            kind=self.account.ref.kind,
            id=f"{label}@{template.id}@{region}",
            gpu=label,
            gpu_count=wish.gpu_count,
            compute_per_hour=None,
            storage_per_hour=None,
            disk_gb=next((size for size in DISK_SIZES_GB if size >= least_gb), least_gb),
            region=region,
            stock=translate("has capacity"),
            notes=(*NOTES, f"template {template.name}"),
        )

    def build_creation_call(self, offer: Offer, wish: RentalRequest, token: str) -> MachineCall:
        """Return the one creation call.

        It names the script, registered before, that installs the key.
        """
        found = _OFFER.fullmatch(offer.id)
        if found is None:
            raise BadAnswer(
                translate(
                    "{id!r} is not an offer from Paperspace", id=make_printable(offer.id, 80)
                ),
                sent=False,
            )
        label, template, region = found.groups()
        body = {
            "name": token,
            "machineType": label,
            "templateId": template,
            "region": region,
            "diskSize": offer.disk_gb or wish.disk_gb,
            "publicIpType": "dynamic",
            "startOnCreate": True,
            "autoShutdownEnabled": False,
            "autoSnapshotEnabled": False,
            "restorePointEnabled": False,
            "takeInitialSnapshot": False,
            "enableNvlink": False,
            "emailPassword": True,
        }
        return MachineCall("POST", "/machines", body)

    def find_created_id(self, data: object) -> str | None:
        """Return the id of the machine."""
        return parse_text(as_object(as_object(data).get("data")).get("id"), 80)

    def describe_creation(self, offer: Offer, wish: RentalRequest, token: str) -> str:
        """Return the exact call, and the one before it."""
        call = self.format_call(self.build_creation_call(offer, wish, token))
        return translate(
            "{call} (before it, POST /startup-scripts with the key; its id goes in as "
            "startupScriptId)",
            call=call,
        )

    async def prepare_creation(self, wish: RentalRequest, token: str) -> Mapping[str, object]:
        """Register the script that installs the key at the first boot; return its id."""
        if not wish.public_key:
            raise ProviderError(
                translate("a machine needs a public key: without one, only a password works"),
                sent=False,
            )
        body = {"name": token, "script": build_key_script(wish.public_key), "isRunOnce": True}
        made = parse_text(
            as_object((await self.account.http.send("POST", "/startup-scripts", body)).data).get(
                "id"
            ),
            80,
        )
        if made is None:
            raise BadAnswer(
                translate("Paperspace did not return the startup script's id"),
                console=self.account.http.console,
            )
        return {"startupScriptId": made}


def build_key_script(public_key: str) -> str:
    """Return a script that installs a key for Paperspace's default user."""
    home = "/home/paperspace/.ssh"
    return (
        f"#!/bin/sh\nmkdir -p {home}"
        f" && printf '%s\\n' {shlex.quote(public_key)} >> {home}/authorized_keys"
        # sshd refuses keys in files that others own or may write.
        f" && chown -R paperspace:paperspace {home} && chmod 700 {home} && chmod 600 {home}/authorized_keys\n"
    )


def _parse_template(raw: object) -> OsTemplate | None:
    """Parse a template for machines without a desktop; None for any other."""
    item = as_object(raw)
    found = parse_text(item.get("id"), 40)
    if found is None or "linux" not in f"{item.get('agentType')}".lower():
        return None
    labels = (
        parse_text(one.get("machineTypeLabel"), 40)
        for one in map(as_object, as_array(item.get("availableMachineTypes")))
        if one.get("isAvailable") is True
    )
    return OsTemplate(
        id=found,
        name=parse_text(item.get("name"), 80) or found,
        size_gb=parse_count(item.get("defaultSizeGb")) or DISK_SIZES_GB[0],
        types=tuple(label for label in labels if label is not None),
    )


def _choose_template(
    templates: list[OsTemplate], label: str, wish: RentalRequest
) -> OsTemplate | None:
    """Return the template requested by id, else Paperspace's ML template, else any that fits."""
    fitting = [one for one in templates if label in one.types and wish.image in (None, one.id)]
    first = None
    if fitting:
        first = fitting[0]
    return next((one for one in fitting if TEMPLATE.lower() in one.name.lower()), first)


def _count_gpus(label: str) -> int:
    """Return the number of GPUs of a type: ``A100-80Gx8`` has eight."""
    found = _TYPE.fullmatch(label)
    if found is not None and found[2]:
        return int(found[2])
    return 1


def _is_wished(gpu: str, label: str) -> bool:
    found = _TYPE.fullmatch(label)
    wanted_gpu = label
    if found is not None:
        wanted_gpu = found[1]
    return same_gpu(gpu, wanted_gpu)
