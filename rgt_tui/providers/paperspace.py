"""Paperspace's machines (Core) by its API v1: https://api.paperspace.com/v1/openapi.json, as of Paperspace/cli 2026-02.

A stop ends the charge for compute alone: the disk, a static address and snapshots bill on. The API names rates and not
their units, has no price list and no balance, and answers each action with an event that may fail afterwards.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Callable, Mapping
from datetime import UTC
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlencode

import msgspec

from rgt_tui.model import Leftover, Lifecycle, MeterKind, ProviderRef, Verb, how_many
from rgt_tui.providers.answers import Page, Parts, Proof, array, number, read_pages, table, text, when, whole
from rgt_tui.providers.control_plane import BadAnswer, Context, ProviderError, printable
from rgt_tui.providers.http import AccountHttp, Wrong, open_http
from rgt_tui.providers.markets.paperspace_market import PaperspaceMarket
from rgt_tui.providers.rented import START, Call, Machine, RentedAccount, state_of

VENDOR = "https://api.paperspace.com/v1"
CONSOLE = "https://console.paperspace.com"
KEY_ENV = "PAPERSPACE_API_KEY"
KEY_FILE = ".paperspace/credentials.toml"
"""What ``pspace login`` writes: https://github.com/Paperspace/cli (verified 2026-02)."""
LIMIT = 120
"""Things of a page at most."""
BESIDE_AGE = 600.0
"""Seconds for which it is good which snapshots there are, and when a machine was started."""
STATIC_IP_PER_HOUR = 0.0045
"""USD of a claimed address, at most $3.00 a month.

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
"""``state`` → what it is and what it bills. Which states before *ready* bill is not documented: none is called free."""
RATE_UNIT = "Paperspace's API does not say for which time its usageRate is: it is taken as $ an hour"
DISK = "disk (the API does not say for which time its storageRate is)"
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
"""Code of an error body → what other platforms would have answered with."""
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
"""Codes of its errors: https://api.paperspace.com/v1/openapi.json (verified 2026-02)."""
ANSWERS = dict.fromkeys(Verb, REFUSALS)


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
    """Read the key of pspace's current team; empty where there is none.

    ``[keys]`` has a key for each team, and ``team`` in the config.toml beside it names the current one:
    https://github.com/Paperspace/cli (config.ts and credentials.ts, verified 2026-02).
    """
    keys = {team: key for team, key in table(_toml(path).get("keys")).items() if isinstance(key, str)}
    team = _toml(path.with_name("config.toml")).get("team")
    if isinstance(team, str):
        return keys.get(team, "").strip()
    return next(iter(keys.values())).strip() if len(keys) == 1 else ""


def _toml(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def wrong(data: object) -> Wrong | None:
    """Tell an error body, ``{"code": "NOT_FOUND", "message": …}``, from what was asked for."""
    if not isinstance(data, dict) or not isinstance(data.get("code"), str) or "message" not in data:
        return None
    code = printable(data["code"], 80)
    return Wrong(code, text(data["message"], 200) or code, MEANS.get(code))


class Beside(msgspec.Struct, frozen=True):
    """What was read besides the machines; None = it could not be read."""

    at: float
    snapshots: Mapping[str, int] | None
    """Machine → how many there are of it."""


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
        """Wrap an account; see `RentedAccount`."""
        super().__init__(ref, http, clock)
        self._beside: Beside | None = None
        self._started: dict[str, tuple[float, float | None]] = {}
        """Machine → when it was asked for, and when the machine was started last."""
        self._market = PaperspaceMarket(self, self.pages)

    async def fetch(self, instance: str) -> Machine:
        """Ask for one machine."""
        raw = (await self.http.get(f"/machines/{instance}")).data
        await self._learn_snapshots()
        await self._learn_start(table(raw))
        return self.parse(raw)

    async def fetch_all(self) -> tuple[Machine, ...]:
        """Ask for all machines."""
        raw = await self.pages("/machines")
        await self._learn_snapshots()
        for one in map(table, raw):
            await self._learn_start(one)
        return tuple(map(self.parse, raw))

    async def pages(self, path: str, **query: str) -> tuple[object, ...]:
        """Ask for all pages of a list; each names the next by a cursor.

        Raises:
            ProviderError: among others when it is not certain that this is all of it.
        """

        async def read(cursor: str | None) -> Page:
            after = {} if cursor is None else {"after": cursor}
            answer = await self.http.get(f"{path}?{urlencode({**query, 'limit': str(LIMIT), **after})}")
            data = table(answer.data)
            more, following = data.get("hasMore"), data.get("nextPage")
            if not isinstance(more, bool):
                raise self.odd(f"a list of {path[1:]} without 'hasMore'")
            if not more:
                return Page(data.get("items"), None, answer)
            return Page(data.get("items"), following if isinstance(following, str) else "", answer)

        return await read_pages(read, path[1:], self.odd)

    async def _learn_snapshots(self) -> None:
        """Learn which machines have snapshots, seldom; a failure leaves it unknown."""
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
        """Learn from the events when a machine that is on was started; a failure leaves it unknown."""
        instance, now = text(machine.get("id"), 80) or "", self.clock()
        if machine.get("state") == "off" or not self.ids.fullmatch(instance):
            self._started.pop(instance, None)
            return
        if instance in self._started and 0 <= now - self._started[instance][0] < BESIDE_AGE:
            return
        self._started[instance] = (now, None)
        query = urlencode({"machineId": instance, "orderBy": "dtCreated", "order": "desc", "limit": "50"})
        with contextlib.suppress(ProviderError):
            events = array(table((await self.http.get(f"/machine-events?{query}")).data).get("items"))
            done = (
                when(event.get("dtFinished"))
                for event in map(table, events)
                if event.get("state") == "done" and event.get("name") in ("start", "create")
            )
            self._started[instance] = (now, next((at for at in done if at is not None), None))

    def parse(self, raw: object) -> Machine:
        """Read a machine.

        Raises:
            BadAnswer: it is not an object with an id; anything else that is odd becomes None.
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
        """Return what bills whether or not the machine is on, or is there at all."""
        kept: list[tuple[str, float | None]] = []
        if machine.get("publicIpType") == "static":
            kept.append(
                (f"static address {text(machine.get('publicIp'), 60) or ''}".strip(), STATIC_IP_PER_HOUR)
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
        """Return what the event of an answer says; one that has failed at once is an error."""
        event = table(table(data).get("event"))
        state = text(event.get("state"), 40)
        if state in ("error", "cancelled") or event.get("error"):
            why = text(event.get("error"), 200) or "without saying why"
            raise BadAnswer(f"Paperspace's event is {state}: {why}", console=self.http.console, status=200)
        return f"event {state}" if state else ""

    async def leftovers(self) -> tuple[Leftover, ...]:
        """List claimed addresses, snapshots and shared drives. Of the last two the API tells no price."""
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

    def _leftover(self, what: str, raw: object, key: str, how: str, price: float | None = None) -> Leftover:
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
    """Return what can be asked of a machine in a state; whether it is done then says the event."""
    if status in ("off", "deleted"):
        return ("start", "delete") if status == "off" else ()
    return ("delete",) if status == "stopping" else ("stop", "delete")
