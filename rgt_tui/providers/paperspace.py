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

import msgspec

from rgt_tui.model import Leftover, Lifecycle, MeterKind, Offer, ProviderRef, Verb, Wish, how_many
from rgt_tui.model.gpu_names import same_gpu
from rgt_tui.providers.answers import (
    Page,
    Parts,
    Proof,
    array,
    number,
    read_pages,
    said,
    table,
    text,
    when,
    whole,
)
from rgt_tui.providers.control_plane import BadAnswer, Context, ProviderError, printable
from rgt_tui.providers.http import AccountHttp, Wrong, open_http
from rgt_tui.providers.rented import START, Call, Machine, RentedAccount, state_of
from rgt_tui.providers.rented_market import RentedMarket, check_wish, in_order, unknown_gpu

VENDOR = "https://api.paperspace.com/v1"
CONSOLE = "https://console.paperspace.com"
KEY_ENV = "PAPERSPACE_API_KEY"
KEY_FILE = ".paperspace/credentials.toml"
"""Written by ``pspace login``: https://github.com/Paperspace/cli (verified 2026-02)."""
LIMIT = 120
"""Maximum items per page."""
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
REFUSALS: dict[int | str, Proof] = {
    "BAD_REQUEST": Proof.NOTHING,
    "UNAUTHORIZED": Proof.NOTHING,
    "FORBIDDEN": Proof.NOTHING,
    "TOO_MANY_REQUESTS": Proof.NOTHING,
    "NOT_FOUND": Proof.ASK,
    "CONFLICT": Proof.ASK,
    "PRECONDITION_FAILED": Proof.ASK,
    401: Proof.NOTHING,
    403: Proof.NOTHING,
    429: Proof.NOTHING,
}
"""Its error codes: https://api.paperspace.com/v1/openapi.json (verified 2026-02)."""
ANSWERS = dict.fromkeys(Verb, REFUSALS)
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


def open_account(ref: ProviderRef, context: Context) -> PaperspaceAccount:
    """Return the account that a machine belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=CONSOLE,
        key_env=KEY_ENV,
        vendor_files=((KEY_FILE, key_of_pspace),),
        wrong=wrong,
    )
    return PaperspaceAccount(ref, http, context.clock)


def key_of_pspace(path: Path) -> str:
    """Return the key of pspace's current team; empty if there is none.

    ``[keys]`` has a key per team, and ``team`` in config.toml next to it names the current one:
    https://github.com/Paperspace/cli (config.ts and credentials.ts, verified 2026-02).
    """
    keys = {
        team: key for team, key in table(_toml(path).get("keys")).items() if isinstance(key, str)
    }
    team = _toml(path.with_name("config.toml")).get("team")
    if isinstance(team, str):
        return keys.get(team, "").strip()
    if len(keys) == 1:
        return next(iter(keys.values())).strip()
    return ""


def _toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def wrong(data: object) -> Wrong | None:
    """Return the error of a body like ``{"code": "NOT_FOUND", "message": …}``."""
    if not isinstance(data, dict) or not isinstance(data.get("code"), str) or "message" not in data:
        return None
    code = printable(data["code"], 80)
    return Wrong(code, text(data["message"], 200) or code, MEANS.get(code))


class Beside(msgspec.Struct, frozen=True):
    """Data read in addition to the machines; None = it could not be read."""

    at: float
    snapshots: Mapping[str, int] | None
    """Machine → number of its snapshots."""


class PaperspaceAccount(RentedAccount):
    """One team at Paperspace."""

    platform: ClassVar[str] = "Paperspace"
    api: ClassVar[str] = "API v1"
    labels: ClassVar[Mapping[Verb, str]] = {Verb.PARK: "Shut down", Verb.DESTROY: "Deactivate"}
    words: ClassVar[Mapping[Verb, str]] = {Verb.PARK: "stop", Verb.DESTROY: "delete"}
    not_listed: ClassVar[tuple[str, ...]] = (
        "Gradient's notebooks, deployments and storage",
        "custom templates",
    )

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        """Create an account; see `RentedAccount`."""
        super().__init__(ref, http, clock)
        self._beside: Beside | None = None
        self._started: dict[str, tuple[float, float | None]] = {}
        """Machine → when its start time was read, and that time."""
        self._market = PaperspaceMarket(self, self.pages)

    async def fetch(self, instance: str) -> Machine:
        """Request one machine."""
        raw = (await self.http.get(f"/machines/{instance}")).data
        await self._learn_snapshots()
        await self._learn_start(table(raw))
        return self.parse(raw)

    async def fetch_all(self) -> tuple[Machine, ...]:
        """Request all machines."""
        raw = await self.pages("/machines")
        await self._learn_snapshots()
        for one in map(table, raw):
            await self._learn_start(one)
        return tuple(map(self.parse, raw))

    async def pages(self, path: str, **query: str) -> tuple[object, ...]:
        """Request all pages of a list; each has a cursor to the next.

        Raises:
            ProviderError: among others, if the list may be incomplete.
        """

        async def read(cursor: str | None) -> Page:
            after = {} if cursor is None else {"after": cursor}
            answer = await self.http.get(
                f"{path}?{urlencode({**query, 'limit': str(LIMIT), **after})}"
            )
            data = table(answer.data)
            more, following = data.get("hasMore"), data.get("nextPage")
            if not isinstance(more, bool):
                raise self.odd(f"a list of {path[1:]} without 'hasMore'")
            if not more:
                return Page(data.get("items"), None, answer)
            return Page(data.get("items"), following if isinstance(following, str) else "", answer)

        return await read_pages(read, path[1:], self.odd)

    async def _learn_snapshots(self) -> None:
        """Learn which machines have snapshots, rarely; a failure leaves it unknown."""
        now = self.clock()
        if self._beside is not None and 0 <= now - self._beside.at < BESIDE_AGE:
            return
        self._beside = Beside(now, None)
        with contextlib.suppress(ProviderError):
            counts: dict[str, int] = {}
            for raw in await self.pages("/snapshots"):
                machine = str(table(raw).get("machineId"))
                counts[machine] = counts.get(machine, 0) + 1
            self._beside = Beside(now, counts)

    async def _learn_start(self, machine: Mapping[str, object]) -> None:
        """Learn a running machine's start time from the events; a failure leaves it unknown."""
        instance, now = text(machine.get("id"), 80) or "", self.clock()
        if machine.get("state") == "off" or not self.ids.fullmatch(instance):
            self._started.pop(instance, None)
            return
        if instance in self._started and 0 <= now - self._started[instance][0] < BESIDE_AGE:
            return
        self._started[instance] = (now, None)
        query = urlencode(
            {"machineId": instance, "orderBy": "dtCreated", "order": "desc", "limit": "50"}
        )
        with contextlib.suppress(ProviderError):
            events = array(
                table((await self.http.get(f"/machine-events?{query}")).data).get("items")
            )
            done = (
                when(event.get("dtFinished"))
                for event in map(table, events)
                if event.get("state") == "done" and event.get("name") in ("start", "create")
            )
            self._started[instance] = (now, next((at for at in done if at is not None), None))

    def parse(self, raw: object) -> Machine:
        """Parse a machine.

        Raises:
            BadAnswer: it is not an object with an id; any other invalid field becomes None.
        """
        machine = table(raw)
        instance = self.known_id(text(machine.get("id"), 80), "a machine without an id")
        status = text(machine.get("state"), 40) or "not said"
        life, bills = state_of(STATES, status)
        if when(machine.get("dtDeleted"), UTC) is not None:
            status, life, bills = "deleted", Lifecycle.GONE, MeterKind.NONE
        gpus = [table(one) for one in array(machine.get("accelerators"))]
        kept = self._kept(instance, machine)
        address = text(machine.get("publicIp"), 60)
        return Machine(
            id=instance,
            name=text(machine.get("name"), 120) or "",
            status=status,
            lifecycle=life,
            bills=bills,
            compute=number(machine.get("usageRate")),
            storage=((DISK, None), *kept),
            at_rest=((DISK, None), *kept),
            outlives=kept,
            actions=_actions(status),
            host=address,
            port=None if address is None else 22,
            user="paperspace",
            gpu=text(gpus[0].get("name"), 60) if gpus else None,
            gpu_count=whole(gpus[0].get("count")) if gpus else None,
            region=text(machine.get("region"), 40),
            created=when(machine.get("dtCreated")),
            started=self._started.get(instance, (0.0, None))[1],
            spot=False,
            doubt=RATE_UNIT,
        )

    def _kept(self, instance: str, machine: Mapping[str, object]) -> Parts:
        """Return what bills whether the machine is on or off, and after its deletion."""
        kept: list[tuple[str, float | None]] = []
        if machine.get("publicIpType") == "static":
            kept.append(
                (
                    f"static address {text(machine.get('publicIp'), 60) or ''}".strip(),
                    STATIC_IP_PER_HOUR,
                )
            )
        elif machine.get("publicIpType") not in ("dynamic", "none"):
            kept.append(("static address, if it has one (the API did not say)", None))
        counts = self._beside.snapshots if self._beside is not None else None
        if counts is None:
            kept.append((SNAPSHOTS, None))
        elif count := counts.get(instance):
            kept.append((how_many(count, "snapshot"), None))
        return tuple(kept)

    def call(self, what: str, instance: str) -> Call | None:
        """Return the call."""
        path = f"/machines/{instance}"
        if what == Verb.DESTROY:
            return Call("DELETE", path)
        return Call("PATCH", f"{path}/{'start' if what == START else 'stop'}", {})

    def judge(self, what: str, data: object) -> str:
        """Return the state of an answer's event; an event that has already failed is an error."""
        event = table(table(data).get("event"))
        state = text(event.get("state"), 40)
        if state in ("error", "cancelled") or event.get("error"):
            why = text(event.get("error"), 200) or "without saying why"
            raise BadAnswer(
                f"Paperspace's event is {state}: {why}", console=self.http.console, status=200
            )
        if state:
            return f"event {state}"
        return ""

    async def leftovers(self) -> tuple[Leftover, ...]:
        """List claimed addresses, snapshots and shared drives; the last two have no price."""
        base = self.http.base_url
        found = [
            self._leftover("address", raw, "ip", f"DELETE {base}/public-ips/", STATIC_IP_PER_HOUR)
            for raw in await self.pages("/public-ips")
        ]
        found += [
            self._leftover("snapshot", raw, "id", f"DELETE {base}/snapshots/")
            for raw in await self.pages("/snapshots")
        ]
        found += [
            self._leftover("shared drive", raw, "id", f"DELETE {base}/shared-drives/")
            for raw in await self.pages("/shared-drives")
            if when(table(raw).get("dtDeleted"), UTC) is None
        ]
        return tuple(found)

    def _leftover(
        self, what: str, raw: object, key: str, how: str, price: float | None = None
    ) -> Leftover:
        item = table(raw)
        found, machine = text(item.get(key), 80), text(item.get("assignedMachineId"), 80)
        if found is None:
            raise self.odd(f"a {what} without an id")
        return Leftover(
            what=what,
            id=found,
            name=text(item.get("name"), 80) or "",
            per_hour=price,
            region=text(item.get("region"), 40),
            used_by=() if machine is None else (machine,),
            how=f"{how}{found}",
        )


def _actions(status: str) -> tuple[str, ...]:
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


class Pages(Protocol):
    """Requests all pages of a list."""

    def __call__(self, path: str, **query: str) -> Awaitable[tuple[object, ...]]:
        """Return the complete list, or raise a `ProviderError`."""
        ...


class Template(msgspec.Struct, frozen=True):
    """The used fields of an operating system template."""

    id: str
    name: str
    size_gb: int
    types: tuple[str, ...]
    """Machine types that it supports."""


class PaperspaceMarket(RentedMarket):
    """Rents machines; see `Market`."""

    def __init__(self, account: RentedAccount, pages: Pages) -> None:
        """Create the market of an account.

        Args:
            account: The account that pays.
            pages: Requests all pages of a list.
        """
        super().__init__(account)
        self._pages = pages

    async def offers(self, wish: Wish) -> tuple[Offer, ...]:
        """Return the machine types that have capacity now, without a price; see `Market.offers`."""
        check_wish("Paperspace", wish, currency="USD", spot="Paperspace rents nothing as spot")
        wanted = (wish.region or "").lower()
        regions = [name for code, name in REGIONS.items() if wanted in ("", code, name.lower())]
        if not regions:
            raise ProviderError(
                f"Paperspace has no region {printable(wanted, 60)!r}; it has: {', '.join(REGIONS)}",
                sent=False,
            )
        templates = [
            found
            for raw in await self._pages("/os-templates")
            if (found := _template(raw)) is not None
        ]
        types = dict.fromkeys(label for template in templates for label in template.types)
        if not any(_is_wished(wish.gpu, label) for label in types):
            raise unknown_gpu("Paperspace", wish, types, self.account.http.console)
        offers: list[Offer] = []
        for label in types:
            template = _best(templates, label, wish)
            if (
                not _is_wished(wish.gpu, label)
                or _count(label) != wish.gpu_count
                or template is None
            ):
                continue
            for region in regions:
                if await self._has(label, region):
                    offers.append(self._offer(wish, label, template, region))
        return in_order(offers, wish)

    async def _has(self, label: str, region: str) -> bool:
        query = urlencode({"machineType": label, "region": region})
        available = said(
            table((await self.account.http.get(f"/machine-availability?{query}")).data).get(
                "available"
            )
        )
        if available is None:
            raise BadAnswer(
                f"Paperspace does not report whether there is a {printable(label, 40)} in {region}",
                console=self.account.http.console,
            )
        return available

    def _offer(self, wish: Wish, label: str, template: Template, region: str) -> Offer:
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
            stock="has capacity",
            notes=(*NOTES, f"template {template.name}"),
        )

    def creation(self, offer: Offer, wish: Wish, token: str) -> Call:
        """Return the one creation call.

        It names the script, registered before, that installs the key.
        """
        found = _OFFER.fullmatch(offer.id)
        if found is None:
            raise BadAnswer(
                f"{printable(offer.id, 80)!r} is not an offer from Paperspace", sent=False
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
        return Call("POST", "/machines", body)

    def made(self, data: object) -> str | None:
        """Return the id of the machine."""
        return text(table(table(data).get("data")).get("id"), 80)

    def describe_creation(self, offer: Offer, wish: Wish, token: str) -> str:
        """Return the exact call, and the one before it."""
        call = self.told(self.creation(offer, wish, token))
        return f"{call} (before it, POST /startup-scripts with the key; its id goes in as startupScriptId)"

    async def prepare(self, wish: Wish, token: str) -> Mapping[str, object]:
        """Register the script that installs the key at the first boot; return its id."""
        if not wish.public_key:
            raise ProviderError(
                "a machine needs a public key: without one, only a password works", sent=False
            )
        body = {"name": token, "script": script(wish.public_key), "isRunOnce": True}
        made = text(
            table((await self.account.http.send("POST", "/startup-scripts", body)).data).get("id"),
            80,
        )
        if made is None:
            raise BadAnswer(
                "Paperspace did not return the startup script's id",
                console=self.account.http.console,
            )
        return {"startupScriptId": made}


def script(public_key: str) -> str:
    """Return a script that installs a key for Paperspace's default user."""
    home = "/home/paperspace/.ssh"
    return (
        f"#!/bin/sh\nmkdir -p {home} && printf '%s\\n' {shlex.quote(public_key)} >> {home}/authorized_keys"
        f" && chown -R paperspace:paperspace {home} && chmod 700 {home} && chmod 600 {home}/authorized_keys\n"
    )


def _template(raw: object) -> Template | None:
    """Parse a template for machines without a desktop; None for any other."""
    item = table(raw)
    found = text(item.get("id"), 40)
    if found is None or "linux" not in f"{item.get('agentType')}".lower():
        return None
    labels = (
        text(one.get("machineTypeLabel"), 40)
        for one in map(table, array(item.get("availableMachineTypes")))
        if one.get("isAvailable") is True
    )
    return Template(
        id=found,
        name=text(item.get("name"), 80) or found,
        size_gb=whole(item.get("defaultSizeGb")) or DISK_SIZES_GB[0],
        types=tuple(label for label in labels if label is not None),
    )


def _best(templates: list[Template], label: str, wish: Wish) -> Template | None:
    """Return the template requested by id, else Paperspace's ML template, else any that fits."""
    fitting = [one for one in templates if label in one.types and wish.image in (None, one.id)]
    return next(
        (one for one in fitting if TEMPLATE.lower() in one.name.lower()),
        fitting[0] if fitting else None,
    )


def _count(label: str) -> int:
    """Return the number of GPUs of a type: ``A100-80Gx8`` has eight."""
    found = _TYPE.fullmatch(label)
    if found is not None and found[2]:
        return int(found[2])
    return 1


def _is_wished(gpu: str, label: str) -> bool:
    found = _TYPE.fullmatch(label)
    return same_gpu(gpu, found[1] if found is not None else label)
