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

from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, FrozenStruct, Lifecycle, MeterKind, ProviderRef
from rgt_tui.profiles import describe_tier_prices, load_profile
from rgt_tui.providers.answers import (
    AnswerProof,
    ListPage,
    as_object,
    parse_count,
    parse_number,
    parse_port,
    parse_signed,
    parse_text,
    parse_time,
    read_pages,
)
from rgt_tui.providers.control_plane import AccountContext, NotFound, ProviderError, make_printable
from rgt_tui.providers.http import AccountHttp, BodyError, open_http
from rgt_tui.providers.rented import (
    START,
    AccountBalance,
    MachineCall,
    RentedAccount,
    RentedMachine,
    state_of,
)

VENDOR = "https://api.autodl.com"
CONSOLE = "https://www.autodl.com/console/instance/list"
KEY_ENV = "AUTODL_TOKEN"
PRO = "/api/v1/dev/instance/pro"
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
REFUSALS: dict[int | str, AnswerProof] = {
    "AuthorizeFailed": AnswerProof.NOTHING,
    "PermissionDenied": AnswerProof.NOTHING,
}
"""The two codes that clearly mean that nothing was done; AutoDL documents neither its codes nor
statuses. https://www.autodl.com/docs/instance_pro_api/ (verified 2026-08)
"""
ANSWERS = dict.fromkeys(BillingVerb, REFUSALS)


def open_account(ref: ProviderRef, context: AccountContext) -> AutodlAccount:
    """Return the account that an instance belongs to; see `rgt_tui.providers.control_plane.Open`."""
    http = open_http(
        ref,
        context,
        vendor=VENDOR,
        console=CONSOLE,
        key_env=KEY_ENV,
        # The token alone: AutoDL's examples have no "Bearer" in front of it.
        scheme="",
        wrong=find_body_error,
    )
    return AutodlAccount(ref, http, context.clock)


def find_body_error(data: object) -> BodyError | None:
    """Return the error in a body, regardless of the HTTP status; None = no error."""
    code = as_object(data).get("code")
    if code is None or code == "Success":
        return None
    word = make_printable(code, 80)
    said = parse_text(as_object(data).get("msg"), 200)
    text = word
    if said:
        text = f"{word}: {said}"
    return BodyError(word, text, MEANS.get(word))


class InstanceSnapshot(FrozenStruct):
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
    labels: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "关机",
        BillingVerb.DESTROY: "释放",
    }
    words: ClassVar[Mapping[BillingVerb, str]] = {
        BillingVerb.PARK: "power_off",
        BillingVerb.DESTROY: "release",
    }
    currency: ClassVar[str] = "CNY"
    ids: ClassVar[re.Pattern[str]] = re.compile(r"pro-[A-Za-z0-9-]{1,60}")

    def __init__(self, ref: ProviderRef, http: AccountHttp, clock: Callable[[], float]) -> None:
        super().__init__(ref, http, clock)
        self._snapshots: dict[str, InstanceSnapshot] = {}

    async def fetch_machine(self, instance: str) -> RentedMachine:
        """Find one instance in the complete list, which has more data than single reads."""
        rows = await self._list_rows()
        found = next((row for row in rows if row.get("uuid") == instance), None)
        if found is None:
            raise NotFound(
                translate("AutoDL does not list {instance}", instance=instance),
                console=self.http.console,
                status=200,
            )
        return await self._parse_with_snapshot(found)

    async def fetch_all(self) -> tuple[RentedMachine, ...]:
        """Request all instances, page by page, and the snapshots of running ones."""
        return tuple([await self._parse_with_snapshot(row) for row in await self._list_rows()])

    async def _list_rows(self) -> tuple[Mapping[str, object], ...]:
        async def read_page(cursor: str | None) -> ListPage:
            index = 1 if cursor is None else int(cursor)
            page = 50
            # A POST that only reads: unlike a verb, it may be repeated after an error.
            answer = await self.http.send_query(
                "POST", f"{PRO}/list", {"page_index": index, "page_size": page}
            )
            data = as_object(self._require_success(answer.data))
            rows, last = data.get("list"), parse_number(data.get("max_page")) or 1
            # An empty page followed by others is a truncated list.
            if index >= last:
                following = None
            elif rows:
                following = str(index + 1)
            else:
                following = ""
            return ListPage(rows, following, answer, parse_number(data.get("result_total")))

        return tuple(
            map(as_object, await read_pages(read_page, "instances", self.undocumented_error))
        )

    def _require_success(self, answer: object) -> object:
        """Return the data of an answer, which must have the code ``Success``."""
        if as_object(answer).get("code") != "Success":
            raise self.undocumented_error(translate("an answer without a code"))
        return as_object(answer).get("data")

    async def _parse_with_snapshot(self, row: Mapping[str, object]) -> RentedMachine:
        """Parse one row of the list, with the snapshot if it is running."""
        found = self.parse_machine(row, None)
        if found.lifecycle is not Lifecycle.RUNNING:
            return found
        return self.parse_machine(row, await self._fetch_snapshot(found.id, found.started))

    def parse_machine(
        self, row: Mapping[str, object], snapshot: InstanceSnapshot | None
    ) -> RentedMachine:
        """Parse one row of the list.

        Raises:
            BadAnswer: it has no id; any other invalid field becomes None.
        """
        identifier = self.require_id(row.get("uuid"), translate("an instance without an id"))
        status = row.get("status")
        lifecycle, bills = state_of(STATES, status)
        started = _parse_moment(row.get("started_at"))
        plan = parse_text(row.get("charge_type"), 40)
        by_hour = plan == "payg"
        price = expanded = host = port = gpu = None
        if snapshot is not None:
            expanded, host = snapshot.expanded, snapshot.host
            port, gpu = snapshot.port, snapshot.gpu
            if by_hour:
                price = snapshot.per_hour
        doubt = None
        if not by_hour:
            doubt = translate(
                "charged as {value}, not by the hour: AutoDL reports no price",
                value=plan or "unknown",
            )
        # None, not 0: a price that nothing publishes must not make the sum look complete.
        resting = ((RESTING_DISK, None),)
        running = () if expanded == 0 else (("expansion of the disk, if there is one", None),)
        storage = running
        if lifecycle is Lifecycle.STOPPED:
            storage = resting
        return RentedMachine(
            id=identifier,
            name=parse_text(row.get("name")) or "",
            status=make_printable(status or "not said", 40),
            lifecycle=lifecycle,
            bills=bills,
            compute=price,
            storage=storage,
            at_rest=resting,
            outlives=(),
            actions=ACTIONS.get(str(status), ()),
            host=host,
            port=port,
            user="root",
            gpu=gpu or parse_text(row.get("gpu_spec_uuid"), 60),
            gpu_count=parse_count(row.get("req_gpu_amount")),
            region=parse_text(row.get("region_name"), 60) or parse_text(row.get("region_sign"), 60),
            created=parse_time(row.get("created_at")),
            started=started,
            ends_at=_parse_moment(row.get("expired_at")),
            doubt=doubt,
        )

    async def _fetch_snapshot(
        self, instance: str, started: float | None
    ) -> InstanceSnapshot | None:
        """Return the snapshot of a running instance.

        After a failure, the last one of the same run.
        """
        known = self._snapshots.get(instance)
        # The address changes with every start: that of the run before is no longer this instance's.
        if known is not None and known.started != started:
            known = None
        now = self.clock()
        # Seconds for which a snapshot is valid, within one run of the instance.
        # Price and address hold for a whole run: each snapshot that is kept saves a request.
        snapshot_age = 600.0
        if known is not None and 0 <= now - known.at < snapshot_age:
            return known
        # Without a snapshot the price and the address are missing, and the state is still right.
        with contextlib.suppress(ProviderError):
            data = as_object(
                self._require_success(
                    (await self.http.get(f"{PRO}/snapshot?instance_uuid={instance}")).data
                )
            )
            price = parse_number(data.get("payg_price"))
            # In thousandths of a yuan per hour.
            per_hour = None
            if price is not None:
                per_hour = price / 1000.0
            known = self._snapshots[instance] = InstanceSnapshot(
                at=now,
                started=started,
                per_hour=per_hour,
                host=parse_text(data.get("proxy_host"), 200),
                port=parse_port(data.get("ssh_port")),
                gpu=parse_text(data.get("snapshot_gpu_alias_name"), 60),
                expanded=parse_number(data.get("expand_system_disk_size")),
            )
        return known

    def list_tiers(self, machine: RentedMachine) -> dict[str, str]:
        """Return the two disks; the API does not report whether the file storage is mounted."""
        return {"/": "system", "/root/autodl-tmp": "data"}

    def bills_apart(self, verb: BillingVerb) -> tuple[str, ...]:
        """Return a line about the file storage, which is a separate quota."""
        tier = next((one for one in load_profile("autodl").tiers if one.name == "shared-fs"), None)
        if tier is None:
            return ()
        return (
            (
                "file storage of the account (/root/autodl-fs): "
                f"{describe_tier_prices(tier, running=False)}"
            ),
        )

    def build_call(self, what: str, instance: str) -> MachineCall | None:
        """Return the call for a verb."""
        if what == START:
            # The Pro API has no start without a card: it answers that the mode is not supported.
            return MachineCall(
                "POST", f"{PRO}/power_on", {"instance_uuid": instance, "payload": "gpu"}
            )
        return MachineCall(
            "POST", f"{PRO}/{self.words[BillingVerb(what)]}", {"instance_uuid": instance}
        )

    def judge_answer(self, what: str, data: object) -> str:
        """Require ``Success``, which means that the call was accepted, not that it is done."""
        self._require_success(data)
        return "Success"

    async def read_purse(self) -> AccountBalance | None:
        """Request the balance, in thousandths of a yuan.

        Vouchers, valid only for some things, are ignored.
        """
        data = as_object(
            self._require_success(
                (await self.http.send_query("POST", "/api/v1/dev/wallet/balance", {})).data
            )
        )
        assets = parse_signed(data.get("assets"))
        if assets is None:
            return None
        return AccountBalance(assets / 1000.0)


def _parse_moment(value: object) -> float | None:
    """Return a time given as text, or as an object with a validity flag."""
    if isinstance(value, dict):
        if value.get("Valid") is True:
            return parse_time(value.get("Time"))
        return None
    return parse_time(value)
