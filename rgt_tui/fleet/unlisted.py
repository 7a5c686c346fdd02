"""Billed items outside the fleet file: machines, volumes, addresses, snapshots of its accounts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from rgt_tui.fleet.box_session import BoxSession
from rgt_tui.model import (
    MACHINE,
    AccountBill,
    FrozenStruct,
    Leftover,
    Lifecycle,
    MeterKind,
    ProviderRef,
    UnlistedItem,
)
from rgt_tui.profiles import is_cluster
from rgt_tui.providers import (
    OVER,
    UNTOLD,
    AccountListing,
    Instance,
    ProviderError,
    Providers,
    UnknownProvider,
    leftover_gaps,
)

replace = msgspec.structs.replace


class AccountLeftovers(FrozenStruct, kw_only=True):
    """An account's items other than machines, as last listed."""

    things: tuple[Leftover, ...] = ()
    at: float | None = None
    """Client clock of the last complete list; None = no list yet."""
    error: str | None = None
    gaps: tuple[str, ...] = ()
    """Kinds of items that may be billed but cannot be listed."""


def place_of(ref: ProviderRef) -> tuple[str, str]:
    """Return the namespace of a machine's id.

    Two keys of one vendor may belong to one account, or to two with separate ids.
    """
    return ref.kind, ref.base_url.rstrip("/") if ref.base_url else ref.via or "vendor"


def build_bills(
    listed: Iterable[AccountListing],
    rest: Mapping[tuple[str, str], AccountLeftovers],
    named: Iterable[ProviderRef],
) -> tuple[AccountBill, ...]:
    """Return the billed items that belong to no box, one entry per account. Pure function.

    Args:
        listed: Each account's machines, in the order of the fleet file.
        rest: Kind and account → its items other than machines.
        named: The machines of the fleet file.
    """
    listed, named = tuple(listed), tuple(named)
    known = {(*place_of(ref), ref.instance) for ref in named}
    # A machine may be listed by two platforms, one built on the other: a box that names either
    # covers both.
    rented = {ref.instance for ref in named if ref.kind not in OVER}
    mine = [
        (account.ref.kind in OVER, one)
        for account in listed
        for one in account.machines
        if (*place_of(account.ref), one.id) in known
    ]
    below = {one.below for over, one in mine if over and one.below}
    # Compare host and port: a platform may have many machines at one address.
    places = {
        over: {(one.host, one.port) for of, one in mine if of is over and one.host}
        for over in (True, False)
    }

    def named_elsewhere(kind: str, one: Instance) -> bool:
        if one.host and one.port and (one.host, one.port) in places[kind not in OVER]:
            return True
        return one.below in rented or one.id in below

    told: set[tuple[str, str, str, str]] = set()
    found = []
    for account in listed:
        ref, place = account.ref, place_of(account.ref)
        beside = rest.get((ref.kind, ref.account), AccountLeftovers())
        things = [
            *(
                _build_machine(ref.kind, one)
                for one in account.machines
                if not is_cluster(ref.kind)
                and (*place, one.id) not in known
                and not named_elsewhere(ref.kind, one)
                and one.meter.lifecycle is not Lifecycle.GONE
            ),
            *(
                _build_leftover(ref.kind, one)
                for one in beside.things
                # An item attached to a box is reported with that box: its price, and its fate
                # afterwards.
                if not any((*place, user) in known for user in one.used_by)
            ),
        ]
        # An account that is listed with two keys is reported once.
        fresh = [thing for thing in things if (*place, thing.what, thing.id) not in told]
        told.update((*place, thing.what, thing.id) for thing in fresh)
        found.append(
            AccountBill(
                kind=ref.kind,
                account=ref.account,
                base_url=ref.base_url,
                key_env=ref.key_env,
                things=tuple(fresh),
                machines_at=account.at,
                machines_error=account.error,
                leftovers_at=beside.at,
                leftovers_error=beside.error,
                gaps=beside.gaps,
            )
        )
    return tuple(found)


def _build_machine(kind: str, one: Instance) -> UnlistedItem:
    meter = one.meter
    return UnlistedItem(
        kind=kind,
        what=MACHINE,
        id=one.id,
        name=one.name,
        per_hour=meter.per_hour,
        at_least=meter.at_least,
        currency=meter.currency,
        status=meter.native_status or meter.lifecycle.value,
        bills=meter.kind is not MeterKind.NONE,
        spot=meter.spot,
        gpu=one.gpu,
        gpu_count=one.gpu_count,
        region=one.region,
        host=one.host,
        port=one.port,
        user=one.user,
    )


def _build_leftover(kind: str, one: Leftover) -> UnlistedItem:
    return UnlistedItem(
        kind=kind,
        what=one.what,
        id=one.id,
        name=one.name,
        per_hour=one.per_hour,
        currency=one.currency,
        size_gb=one.size_gb,
        region=one.region,
        used_by=one.used_by,
        how=one.how,
    )


async def leftovers_of(
    providers: Providers, ref: ProviderRef, before: AccountLeftovers, now: float
) -> AccountLeftovers:
    """Query an account's items other than machines.

    After an error, return the previous list with the error.
    """
    try:
        account = providers.find_account(ref)
        things = await account.list_leftovers()
    except (ProviderError, UnknownProvider) as error:
        return replace(before, error=str(error))
    return AccountLeftovers(things=things, at=now, gaps=leftover_gaps(account))


async def ask_accounts(
    refs: Sequence[ProviderRef],
    named: Sequence[ProviderRef],
    *,
    env: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.time,
) -> tuple[AccountBill, ...]:
    """Query accounts once for billed items that belong to no box.

    Args:
        refs: Any machine of each account; without an instance for an account that has no machine in
            the fleet file.
        named: The machines of the fleet file.
        env: Variables with the keys; None = the process's environment.
        clock: Epoch seconds.
    """
    providers = Providers(clock=clock, env=env)

    async def query_account(ref: ProviderRef) -> tuple[AccountListing, AccountLeftovers]:
        listed = await providers.list_account(ref)
        return listed, await leftovers_of(providers, ref, AccountLeftovers(), clock())

    try:
        both = await asyncio.gather(*(query_account(ref) for ref in refs))
    finally:
        await providers.close()
    rest = {(listed.ref.kind, listed.ref.account): beside for listed, beside in both}
    return build_bills([listed for listed, _ in both], rest, named)


class AccountWatch:
    """Watches the billed items of a fleet's accounts that belong to no box.

    Args:
        sessions: All boxes of the fleet file; the first one of each account shows its items.
        providers: Lists the machines; its poller must call `publish_bills`.
        clock: Epoch seconds.
        told: Called with all accounts after every listing.
    """

    def __init__(
        self,
        sessions: Mapping[str, BoxSession],
        providers: Providers,
        *,
        clock: Callable[[], float],
        told: Callable[[tuple[AccountBill, ...]], None],
    ) -> None:
        self._providers = providers
        self._clock = clock
        self._told = told
        self._boxes: dict[tuple[str, str], list[BoxSession]] = {}
        self._named: list[ProviderRef] = []
        self._others = asyncio.Event()
        """Set when the set of accounts has changed."""
        self.watch_boxes(sessions)
        self._rest: dict[tuple[str, str], AccountLeftovers] = {}
        self._polled = asyncio.Event()
        self.asked = asyncio.Event()
        """Set when every account's items have been queried once."""

    def watch_boxes(self, sessions: Mapping[str, BoxSession]) -> None:
        """Watch the accounts of these boxes from now on."""
        before, self._boxes, self._named = set(self._boxes), {}, []
        for session in sessions.values():
            ref = session.state.spec.provider
            if ref is not None and ref.kind not in UNTOLD:
                self._named.append(ref)
                self._boxes.setdefault((ref.kind, ref.account), []).append(session)
        if set(self._boxes) - before:
            self._others.set()

    async def run(self) -> None:
        """Query until cancelled."""
        # Seconds between two queries of an account's items other than machines: they change rarely,
        # and every call counts.
        leftovers_seconds = 600.0
        # The same while the last query of one of them has failed.
        retry_seconds = 120.0
        while True:
            self._others.clear()
            if self._boxes:
                # Some accounts know which items are attached to which machine only after the
                # machines were listed.
                await self._polled.wait()
                await self.query_leftovers()
            self.asked.set()
            failed = any(rest.error is not None for rest in self._rest.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_seconds if failed else leftovers_seconds):
                    await self._others.wait()

    async def query_leftovers(self) -> None:
        """Query every account's items other than machines once, concurrently."""

        async def query_account(key: tuple[str, str], ref: ProviderRef) -> None:
            before = self._rest.get(key, AccountLeftovers())
            self._rest[key] = await leftovers_of(self._providers, ref, before, self._clock())
            self.publish_bills()

        refs = {(ref.kind, ref.account): ref for ref in reversed(self._named)}
        await asyncio.gather(*(query_account(key, ref) for key, ref in refs.items()))

    def publish_bills(self) -> None:
        """Publish the accounts' billed items, after a listing."""
        self._polled.set()
        known = self._providers.listed
        accounts = [
            known.get(key) or AccountListing(ref=_provider_ref(boxes[0]))
            for key, boxes in self._boxes.items()
        ]
        found = build_bills(accounts, self._rest, self._named)
        for bill in found:
            first, *others = self._boxes[bill.kind, bill.account]
            first.set_account(bill)
            for session in others:
                session.set_account(replace(bill, things=()))
        self._told(found)


def _provider_ref(session: BoxSession) -> ProviderRef:
    ref = session.state.spec.provider
    assert ref is not None
    return ref
