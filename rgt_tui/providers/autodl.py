"""AutoDL's Pro instances (容器实例Pro): https://www.autodl.com/docs/instance_pro_api/.

Every answer has status 200 and an error code in ``code``. The list has no prices: they are in the
snapshot of a running instance, next to its address, which changes with every start, and its
password, which is not kept. An ordinary instance has no API: see docs/profiles.md.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from rgt_tui.model import Lifecycle, MeterKind, ProviderRef, Verb
from rgt_tui.profiles import load_profile, price_words
from rgt_tui.providers.answers import (
    Page,
    Proof,
    number,
    port,
    read_pages,
    signed,
    table,
    text,
    when,
    whole,
)
from rgt_tui.providers.control_plane import Context, NotFound, ProviderError, printable
from rgt_tui.providers.http import AccountHttp, Wrong, open_http
from rgt_tui.providers.rented import START, Call, Machine, Purse, RentedAccount, state_of

VENDOR = "https://api.autodl.com"
CONSOLE = "https://www.autodl.com/console/instance/list"
KEY_ENV = "AUTODL_TOKEN"
PRO = "/api/v1/dev/instance/pro"
PAGE = 50
SNAPSHOT_AGE = 600.0
"""Seconds for which a snapshot is valid, within one run of the instance."""
MEANS = {"AuthorizeFailed": 401, "PermissionDenied": 403}
"""``code`` → the equivalent HTTP status; AutoDL publishes no list of its codes."""
STATES = {
    "creating": (Lifecycle.STARTING, MeterKind.UNKNOWN),
    "starting": (Lifecycle.STARTING, MeterKind.UNKNOWN),
    "running": (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE),
    "shutting_down": (Lifecycle.RUNNING, MeterKind.UNKNOWN),
    "shutdown": (Lifecycle.STOPPED, MeterKind.STORAGE_ONLY),
    "releasing": (Lifecycle.STOPPED, MeterKind.UNKNOWN),
    "released": (Lifecycle.GONE, MeterKind.NONE),
    "failed": (Lifecycle.ERROR, MeterKind.UNKNOWN),
}
"""``status`` → state, and what is charged: by its power state (https://www.autodl.com/docs/price/).
"""
ACTIONS = {
    "running": ("power_off",),
    "shutdown": ("power_on", "release"),
    "failed": ("power_off", "release"),
}
"""``status`` → accepted actions. While it boots, ``power_off`` returns Success without any effect.
"""
RESTING_DISK = "data disk of a stopped instance"
"""Charged at an unpublished small rate; sources disagree whether a disk without expansion is
charged.
"""
REFUSALS: dict[int | str, Proof] = {
    "AuthorizeFailed": Proof.NOTHING,
    "PermissionDenied": Proof.NOTHING,
}
"""The two codes that clearly mean that nothing was done; AutoDL documents neither its codes nor
statuses. https://www.autodl.com/docs/instance_pro_api/ (verified 2026-08)
"""
ANSWERS = dict.fromkeys(Verb, REFUSALS)


def open_account(ref: ProviderRef, context: Context) -> AutodlAccount:
    """Return the account that an instance belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref, context, vendor=VENDOR, console=CONSOLE, key_env=KEY_ENV, scheme="", wrong=wrong
    )
    return AutodlAccount(ref, http, context.clock)


def wrong(data: object) -> Wrong | None:
    """Return the error in a body, regardless of the HTTP status; None = no error."""
    code = table(data).get("code")
    if code is None or code == "Success":
        return None
    word = printable(code, 80)
    said = text(table(data).get("msg"), 200)
    return Wrong(word, f"{word}: {said}" if said else word, MEANS.get(word))


class Snapshot(msgspec.Struct, frozen=True):
    """The used fields of a running instance's snapshot; None = not given."""

    at: float
    started: float | None
    """Start time of the run it belongs to."""
    per_hour: float | None
    """In ¥."""
    host: str | None
    port: int | None
    gpu: str | None
    expanded: float | None
    """Bytes by which the system disk was enlarged."""


class AutodlAccount(RentedAccount):
    """One account at AutoDL."""

    platform: ClassVar[str] = "AutoDL"
    api: ClassVar[str] = "Pro API"
    labels: ClassVar[Mapping[Verb, str]] = {Verb.PARK: "关机", Verb.DESTROY: "释放"}
    words: ClassVar[Mapping[Verb, str]] = {Verb.PARK: "power_off", Verb.DESTROY: "release"}
    currency: ClassVar[str] = "CNY"
    ids: ClassVar[re.Pattern[str]] = re.compile(r"pro-[A-Za-z0-9-]{1,60}")

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        super().__init__(ref, http, clock)
        self._snapshots: dict[str, Snapshot] = {}

    async def fetch(self, instance: str) -> Machine:
        """Find one instance in the complete list, which has more data than single reads."""
        rows = await self._rows()
        found = next((row for row in rows if row.get("uuid") == instance), None)
        if found is None:
            raise NotFound(
                f"AutoDL does not list {instance}", console=self.http.console, status=200
            )
        return await self._machine(found)

    async def fetch_all(self) -> tuple[Machine, ...]:
        """Request all instances, page by page, and the snapshots of running ones."""
        return tuple([await self._machine(row) for row in await self._rows()])

    async def _rows(self) -> tuple[Mapping[str, object], ...]:
        async def read(cursor: str | None) -> Page:
            index = 1 if cursor is None else int(cursor)
            answer = await self.http.ask(
                "POST", f"{PRO}/list", {"page_index": index, "page_size": PAGE}
            )
            data = table(self._data(answer.data))
            rows, last = data.get("list"), number(data.get("max_page")) or 1
            # An empty page followed by others is a truncated list.
            if index >= last:
                following = None
            elif rows:
                following = str(index + 1)
            else:
                following = ""
            return Page(rows, following, answer, number(data.get("result_total")))

        return tuple(map(table, await read_pages(read, "instances", self.odd)))

    def _data(self, answer: object) -> object:
        """Return the data of an answer, which must have the code ``Success``."""
        if table(answer).get("code") != "Success":
            raise self.odd("an answer without a code")
        return table(answer).get("data")

    async def _machine(self, row: Mapping[str, object]) -> Machine:
        """Parse one row of the list, with the snapshot if it is running."""
        found = self.parse(row, None)
        if found.lifecycle is not Lifecycle.RUNNING:
            return found
        return self.parse(row, await self._snapshot(found.id, found.started))

    def parse(self, row: Mapping[str, object], snapshot: Snapshot | None) -> Machine:
        """Parse one row of the list.

        Raises:
            BadAnswer: it has no id; any other invalid field becomes None.
        """
        identifier = self.known_id(row.get("uuid"), "an instance without an id")
        status = row.get("status")
        lifecycle, bills = state_of(STATES, status)
        started = _moment(row.get("started_at"))
        plan = text(row.get("charge_type"), 40)
        by_hour = plan == "payg"
        expanded = snapshot.expanded if snapshot is not None else None
        resting = ((RESTING_DISK, None),)
        running = () if expanded == 0 else (("expansion of the disk, if there is one", None),)
        return Machine(
            id=identifier,
            name=text(row.get("name")) or "",
            status=printable(status or "not said", 40),
            lifecycle=lifecycle,
            bills=bills,
            compute=snapshot.per_hour if snapshot is not None and by_hour else None,
            storage=resting if lifecycle is Lifecycle.STOPPED else running,
            at_rest=resting,
            outlives=(),
            actions=ACTIONS.get(str(status), ()),
            host=snapshot.host if snapshot is not None else None,
            port=snapshot.port if snapshot is not None else None,
            user="root",
            gpu=(snapshot.gpu if snapshot is not None else None)
            or text(row.get("gpu_spec_uuid"), 60),
            gpu_count=whole(row.get("req_gpu_amount")),
            region=text(row.get("region_name"), 60) or text(row.get("region_sign"), 60),
            created=when(row.get("created_at")),
            started=started,
            ends_at=_moment(row.get("expired_at")),
            doubt=None
            if by_hour
            else f"charged as {plan or 'unknown'}, not by the hour: AutoDL reports no price",
        )

    async def _snapshot(self, instance: str, started: float | None) -> Snapshot | None:
        """Return the snapshot of a running instance.

        After a failure, the last one of the same run.
        """
        known = self._snapshots.get(instance)
        if known is not None and known.started != started:
            known = None
        now = self.clock()
        if known is not None and 0 <= now - known.at < SNAPSHOT_AGE:
            return known
        with contextlib.suppress(ProviderError):
            data = table(
                self._data((await self.http.get(f"{PRO}/snapshot?instance_uuid={instance}")).data)
            )
            price = number(data.get("payg_price"))
            known = self._snapshots[instance] = Snapshot(
                at=now,
                started=started,
                # In thousandths of a yuan per hour.
                per_hour=None if price is None else price / 1000.0,
                host=text(data.get("proxy_host"), 200),
                port=port(data.get("ssh_port")),
                gpu=text(data.get("snapshot_gpu_alias_name"), 60),
                expanded=number(data.get("expand_system_disk_size")),
            )
        return known

    def tiers(self, machine: Machine) -> dict[str, str]:
        """Return the two disks; the API does not report whether the file storage is mounted."""
        return {"/": "system", "/root/autodl-tmp": "data"}

    def bills_apart(self, verb: Verb) -> tuple[str, ...]:
        """Return a line about the file storage, which is a separate quota."""
        tier = next((one for one in load_profile("autodl").tiers if one.name == "shared-fs"), None)
        if tier is None:
            return ()
        return (
            f"file storage of the account (/root/autodl-fs): {price_words(tier, running=False)}",
        )

    def call(self, what: str, instance: str) -> Call | None:
        """Return the call for a verb."""
        if what == START:
            return Call("POST", f"{PRO}/power_on", {"instance_uuid": instance, "payload": "gpu"})
        return Call("POST", f"{PRO}/{self.words[Verb(what)]}", {"instance_uuid": instance})

    def judge(self, what: str, data: object) -> str:
        """Require ``Success``, which means that the call was accepted, not that it is done."""
        self._data(data)
        return "Success"

    async def read_purse(self) -> Purse | None:
        """Request the balance, in thousandths of a yuan.

        Vouchers, valid only for some things, are ignored.
        """
        data = table(
            self._data((await self.http.ask("POST", "/api/v1/dev/wallet/balance", {})).data)
        )
        assets = signed(data.get("assets"))
        if assets is None:
            return None
        return Purse(assets / 1000.0)


def _moment(value: object) -> float | None:
    """Return a time given as text, or as an object with a validity flag."""
    if isinstance(value, dict):
        if value.get("Valid") is True:
            return when(value.get("Time"))
        return None
    return when(value)
