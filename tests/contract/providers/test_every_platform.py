"""Every platform with everything that can go wrong: nothing is called off that is on, nothing is sent twice.

The rows stand in `platform_rows`; what comes of what stands there as well, and as a table in docs/profiles.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault, LocalServer
from rgt_tui.model import (
    BillingVerb,
    Lifecycle,
    Meter,
    MeterKind,
    ProviderRef,
    RentPermit,
    StopPhase,
    steady_time,
)
from rgt_tui.providers import (
    KINDS,
    AnswerProof,
    AuthError,
    Market,
    PermitRefused,
    Provider,
    ProviderError,
    Providers,
    RateLimited,
    carry_out,
    creation_proof,
)
from rgt_tui.providers.console import ConsoleBox, SelfStoppingBox
from tests.contract.providers.conftest import Clock, permit_for
from tests.contract.providers.fakes.local_commands import CommandFault, LocalCommands
from tests.contract.providers.platform_outcomes import (
    MISSING,
    VERBS,
    Edit,
    Row,
    edited,
    expected,
    faults_of,
    table,
)
from tests.contract.providers.platform_rows import ROWS
from tests.contract.providers.rows_by_hand import InTheBox, Seen

KEY_ENV = "SOME_KEY"
TOKEN = "rgt-a1b2c3d4e5f6"
WAIT = 7
"""Seconds of a Retry-After."""


World = LocalServer | LocalCommands | Seen
"""What stands for a platform: a server, its commands, or what is seen of a box that no call tells of."""


@dataclass
class Bench:
    """A platform's fake, and the adapter that talks to it."""

    row: Row
    server: World
    clock: Clock
    providers: Providers
    faults: list[InjectedFault] = field(default_factory=list)
    edits: int = 0
    """How many answers an edit has made another answer."""

    def box(self, instance: str) -> Provider:
        found = self.providers.open_control_plane(self.ref(instance))
        if isinstance(found, ConsoleBox) and isinstance(self.server, Seen | InTheBox):
            found.sight = self.server.sight
        if isinstance(found, SelfStoppingBox) and isinstance(self.server, InTheBox):
            found.command, found.run = str(self.server.shutdown), self.server.run
        return found

    def ref(self, instance: str) -> ProviderRef:
        if isinstance(self.server, LocalServer):
            return ProviderRef(self.row.kind, instance, self.server.base_url, KEY_ENV)
        return ProviderRef(self.row.kind, instance)

    @property
    def provider(self) -> Provider:
        return self.box(self.row.machine)

    def sent(self, verb: str) -> int:
        """How many of the calls of a verb reached the platform."""
        on = self.row.on[verb]
        return (
            sum(what.startswith(on) for what in self.server.requests)
            if on
            else len(self.server.requests)
        )

    def market(self) -> Market:
        found = self.providers.find_account(self.provider.ref).open_market()
        assert found is not None
        return found

    async def break_(self, verb: str, fault: str) -> None:
        """Let the verb's next call go wrong."""
        on, server = self.row.on[verb], self.server
        if fault == "":
            return
        if fault == "not reachable":
            await self.reopen(60.0)
            if isinstance(server, LocalCommands):
                server.command(on.partition(" ")[0]).unlink()
            else:
                await server.stop()
        elif fault == "done by hand":
            assert isinstance(server, Seen | InTheBox)
            server.click()
        else:
            if fault == "no end":
                await self.reopen(0.3)
            self.inject(**{"on": on, **self._fault(verb, fault)})

    def inject(self, **fault: Any) -> None:
        """Let what begins with `on` go wrong; an edit is of what `Row.machines_in` takes."""
        if isinstance(self.server, LocalServer):
            self.faults.append(InjectedFault(**fault))
            self.server.inject_faults(self.faults[-1])
        else:
            assert isinstance(self.server, LocalCommands)
            self.server.inject(CommandFault(**fault))

    def edit(self, change: Edit, *on: str) -> None:
        """Edit all answers to what begins so."""
        whole = self.row.within(change)

        def counted(data: object) -> object:
            after = whole(data)
            self.edits += after != data
            return after

        for one in on:
            self.inject(on=one, change=counted, times=-1)

    def met(self) -> bool:
        """Tell whether what was to go wrong has gone wrong."""
        if not isinstance(self.server, LocalServer):
            return self.server.met > 0
        edits = [one for one in self.faults if one.change is not None]
        others = [one for one in self.faults if one.change is None]
        return all(one.times != 1 for one in others) and (not edits or self.edits > 0)

    async def reopen(self, timeout_s: float) -> None:
        """Forget the connections, and what was learned."""
        await self.providers.close()
        self.providers = opened(self.server, self.clock, timeout_s)

    def _fault(self, verb: str, fault: str) -> dict[str, Any]:
        name, done, _ = fault.partition(", done")
        for key in ((verb, fault), fault, (verb, name), name):
            found = self.row.breaks.get(key)
            if found is not None:
                break
        else:
            known = (
                http_faults(self.row) if isinstance(self.server, LocalServer) else COMMAND_FAULTS
            )
            found = known[fault] if fault in known else known[name]
        change = found.get("change")
        if change is not None:

            def counted(data: object) -> object:
                after = change(data)
                self.edits += after != data
                return after

            found = {**found, "change": counted}
        return {**found, "act": True} if done else dict(found)


def http_faults(row: Row) -> dict[str, dict[str, Any]]:
    return {
        "an error at 200": {"status": 200, "raw": row.error},
        "2xx, nothing done": {"status": 200, "raw": row.yes},
        "2xx of no known shape": {"status": 200, "raw": b'["?"]'},
        "401": {"status": 401},
        "429": {"status": 429},
        "429 that says when": {"status": 429, "headers": {"Retry-After": str(WAIT)}},
        "500": {"status": 500},
        "a redirect": {"status": 302, "headers": {"Location": "/elsewhere"}},
        "no answer": {"drop": True},
        "cut short": {"cut": 5},
    }


COMMAND_FAULTS: dict[str, dict[str, Any]] = {
    "2xx, nothing done": {"status": 0},
    "2xx of no known shape": {"out": "?\n"},
    "500": {"status": 1, "err": "something went wrong"},
    "no answer": {"killed": True},
    "no end": {"hang": True},
    "cut short": {"change": lambda out: out[:5]},
}
"""Of a command; 401 and 429 are each platform's own words."""


def opened(server: World, clock: Clock, timeout_s: float) -> Providers:
    env = {KEY_ENV: server.key} if isinstance(server, LocalServer) else server.env
    return Providers(clock=clock, env=env, home=Path("/nonexistent"), timeout_s=timeout_s)


@contextlib.asynccontextmanager
async def bench(row: Row) -> AsyncIterator[Bench]:
    clock = Clock()
    server = row.make(clock=clock, settle_s=0.0)
    await server.start()
    made = Bench(row, server, clock, opened(server, clock, 60.0))
    try:
        yield made
    finally:
        await made.providers.close()
        await server.stop()


async def listed(bench: Bench) -> dict[str, Meter] | None:
    """Return the meters of a list; None = it could not be had."""
    try:
        return {item.id: item.meter for item in await bench.provider.list()}
    except ProviderError as error:
        assert str(error)
        return None


def judged(bench: Bench, meter: Meter, usual: Meter | None) -> str:
    """Say what a meter tells of the machine that runs."""
    assert meter.kind is not MeterKind.NONE, "it runs, and is said to cost nothing"
    if meter.error is not None:
        assert meter.kind is MeterKind.UNKNOWN
        return "not known"
    assert meter.per_hour is None or meter.per_hour > 0
    if meter.lifecycle is Lifecycle.UNKNOWN:
        assert meter.kind is MeterKind.UNKNOWN
        return "not known"
    if usual is None or meter.per_hour == usual.per_hour:
        return "told" if usual is None or meter.unpriced == usual.unpriced else "not free"
    assert meter.per_hour is None or meter.at_least, "a part of the price is lost without a word"
    return "not free"


def values(keys: Iterable[str], value: object) -> dict[str, object]:
    """Return the same value for some keys, as `edited` takes them."""
    return {key.replace(".", "__"): value for key in keys}


async def reading(bench: Bench, verb: str, fault: str) -> str:
    """List, or read, the machine that runs."""
    row, one = bench.row, bench.row.machine
    usual = (await bench.provider.read(one)) if verb == "read" else (await listed(bench) or {})[one]
    assert usual.kind is MeterKind.COMPUTE_AND_STORAGE
    assert usual.per_hour or not row.price or row.why_not(verb, "no price"), usual
    bench.clock.now += 1000  # What was learned by the way is old by now.
    both = (row.on["list"], row.on["read"])
    shown, priced = ((one,) if one else both for one in (row.shown_on, row.price_on))
    if fault in ("no price", "the price as text"):
        bench.edit(
            edited(row.machines_in, **values(row.price, MISSING if fault == "no price" else str)),
            *priced,
        )
    elif fault == "a state of no known name":
        bench.edit(edited(row.machines_in, **values((row.state,), "quantum")), *shown)
    elif fault == "null sub-objects":
        bench.edit(edited(row.machines_in, **values(row.subobjects, row.null)), *shown)
    elif fault == "no second page":
        assert row.two_pages is not None
        row.two_pages(bench.server)
        found = await listed(bench)
        assert found is not None
        assert len(found) > 2, "the second page is read"
        bench.inject(on=row.on["list"], act=True)
        bench.inject(on=row.on["list"], cut=9)
    elif fault.startswith("404"):
        bench.inject(on=row.on["read"], status=404)
        if fault == "404, and no list":
            bench.inject(on=row.on["list"], status=500)
    else:
        await bench.break_(verb, fault)
    if verb == "read":
        return judged(bench, await bench.provider.read(one), usual)
    found = await listed(bench)
    if found is None:
        if fault == "429 that says when":
            asked = len(bench.server.requests)
            assert await listed(bench) is None
            assert len(bench.server.requests) == asked, "it was told to wait"
            bench.clock.now += WAIT + 1
            assert await listed(bench) is not None
        return "not known"
    return judged(bench, found[one], usual)


async def beside(bench: Bench, verb: str, fault: str) -> str:
    """Ask for what a list brings along: the balance, and the books."""
    await bench.break_(verb, fault)
    found = await listed(bench)
    assert found is not None, "what is asked for beside it must not harm the list"
    meter = found[bench.row.machine]
    assert meter.kind is MeterKind.COMPUTE_AND_STORAGE
    told = meter.balance if verb == "balance" else meter.booked
    assert bench.sent(verb) == 1
    return "not known" if told is None else "told"


async def leftovers(bench: Bench, verb: str, fault: str) -> str:
    await bench.break_(verb, fault)
    try:
        found = await bench.providers.find_account(bench.provider.ref).list_leftovers()
    except ProviderError:
        return "not known"
    assert found
    assert all(one.id and one.how for one in found)
    assert all(one.per_hour is None or one.per_hour > 0 for one in found)
    return "told"


async def offers(bench: Bench, verb: str, fault: str) -> str:
    row, wish = bench.row, bench.row.wish
    assert wish is not None
    if fault == "no price":
        bench.edit(edited(row.offers_in, **values(row.offer_price, MISSING)), row.on[verb])
    elif fault == "nothing to be had":
        wish = msgspec.structs.replace(wish, max_per_hour=0.0001, currency=row_currency(row))
    else:
        await bench.break_(verb, fault)
    try:
        found = await bench.market().find_offers(wish)
    except ProviderError:
        return "not known"
    if not found:
        return "none"
    assert all(offer.per_hour is None or offer.per_hour > 0 for offer in found)
    return "told" if found[0].compute_per_hour is not None else "not free"


def row_currency(row: Row) -> str:
    return "USD" if row.wish is None else row.wish.currency


async def find(bench: Bench, verb: str, fault: str) -> str:
    await bench.break_(verb, fault)
    try:
        return "none" if not await bench.market().find_by_token(TOKEN) else "found"
    except ProviderError:
        return "not known"


async def start(bench: Bench, verb: str, fault: str) -> str:
    """Start the parked machine."""
    row = bench.row
    assert row.resting is not None
    await bench.break_(verb, fault)
    try:
        await bench.box(row.resting).start()
        outcome = "requested"
    except (AuthError, RateLimited):
        outcome = "nothing done"
    except ProviderError as error:
        outcome = "nobody knows" if error.sent else "nothing done"
    assert bench.sent(verb) == (fault != "not reachable")
    await bench.server.wait_settled()
    assert outcome != "nothing done" or row.truth(bench.server, row.resting) == "resting"
    return outcome


PHRASES = {
    StopPhase.METER_OFF: "done, by reading",
    StopPhase.UNCONFIRMED: "nobody knows",
    StopPhase.FAILED: "nothing done",
}


async def acting(bench: Bench, verb: str, fault: str) -> str:
    """Park or destroy, to the end."""
    row = bench.row
    target = row.machine
    if verb in row.before:
        row.before[verb](bench.server)
    begun = row.truth(bench.server, target)
    await bench.provider.read(target)
    times = int(fault != "not reachable")
    if fault == "twice":
        # Somebody else has done it in the meantime.
        await ended(bench, BillingVerb(verb))
        await bench.server.wait_settled()
        times = 2
    else:
        await bench.break_(verb, fault)
    outcome = await ended(bench, BillingVerb(verb))
    await bench.server.wait_settled()
    if not row.on[verb]:
        times = 0
    if fault != "no end":  # Which may be ended before it has begun.
        assert bench.sent(verb) == times, bench.server.requests
    truth = row.truth(bench.server, target)
    if outcome == "done, by reading":
        assert truth == ("resting" if verb == "park" else "gone")
    if outcome == "nothing done":
        assert truth == begun
    return outcome


async def ended(bench: Bench, verb: BillingVerb) -> str:
    provider = bench.provider
    ref = provider.ref
    permit = permit_for(ref, verb)
    steps = [
        step
        async for step in carry_out(
            provider,
            permit,
            clock=bench.clock,
            sleep=bench.clock.advance,
            timeout_s=4.0,
            poll_s=1.0,
        )
    ]
    with pytest.raises(PermitRefused):
        await (provider.stop(permit) if verb is BillingVerb.PARK else provider.destroy(permit))
    outcome = PHRASES[steps[-1].phase]
    if outcome == "nothing done":
        assert steps[-1].text.startswith("nothing was done"), steps[-1].text
    if outcome == "nobody knows":
        assert provider.console_url in steps[-1].text
        if "probably stopped, not confirmed" in steps[-1].text:
            return "probably off, not confirmed"
    return outcome


async def create(bench: Bench, verb: str, fault: str) -> str:
    row, market = bench.row, bench.market()
    assert row.wish is not None
    offer = (await market.find_offers(row.wish))[0]
    ref = bench.provider.ref
    permit = RentPermit(
        box="new",
        kind=ref.kind,
        account=ref.account,
        offer=offer.id,
        per_hour=offer.per_hour,
        currency=offer.currency,
        spot=offer.spot,
        token=f"rgt-{secrets.token_hex(6)}",
        expires=steady_time() + 60,
    )
    assert await market.find_by_token(permit.token) == ()
    said = market.describe_creation(offer, row.wish, permit.token)
    assert permit.token in said
    before = bench.sent(verb)
    await bench.break_(verb, fault)
    market = bench.market()
    outcome, proves = "made", AnswerProof.ASK
    try:
        made = await market.create_instance(offer, row.wish, permit.token, permit)
        assert made.id
        assert made.meter.kind is not MeterKind.NONE
    except ProviderError as error:
        proves = creation_proof(row.kind, error)
        outcome = "nothing made" if proves is AnswerProof.NOTHING else "nobody knows"
    with pytest.raises(PermitRefused):
        await market.create_instance(offer, row.wish, permit.token, permit)
    assert bench.sent(verb) == before + (fault != "not reachable")
    await bench.server.wait_settled()
    if fault == "not reachable":
        return outcome
    bench.clock.now += 60
    found = await market.find_by_token(permit.token)
    assert len(found) <= 1
    if outcome == "nothing made":
        assert found == ()
    return "found by its token" if found and outcome == "nobody knows" else outcome


SCENES: dict[str, Callable[[Bench, str, str], Awaitable[str]]] = {
    "list": reading,
    "read": reading,
    "leftovers": leftovers,
    "balance": beside,
    "spend": beside,
    "offers": offers,
    "find": find,
    "start": start,
    "park": acting,
    "destroy": acting,
    "create": create,
}


NOT_INJECTED = ("", "not reachable", "twice", "nothing to be had", "no end")
"""What goes wrong without a fault of the fake."""


@pytest.mark.parametrize(
    ("row", "verb"),
    [
        pytest.param(row, verb, id=f"{row.kind}-{verb}")
        for row in ROWS
        for verb in VERBS
        if verb in row.on
    ],
)
async def test_what_comes_of_what_goes_wrong(row: Row, verb: str) -> None:
    async def one(fault: str) -> str:
        async with bench(row) as made:
            came = await SCENES[verb](made, verb, fault)
            assert fault in NOT_INJECTED or made.met(), f"nothing went wrong in {fault!r}"
            return came

    wanted = expected(row, verb)
    seen = await asyncio.gather(*map(one, wanted))
    assert dict(zip(wanted, seen, strict=True)) == wanted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
async def test_a_verb_that_a_platform_has_not_sends_nothing_and_says_so(row: Row) -> None:
    async with bench(row) as made:
        account = made.providers.find_account(made.provider.ref)
        for verb in VERBS:
            if verb in row.on:
                continue
            asked = len(made.server.requests)
            if verb in ("park", "destroy"):
                assert await ended(made, BillingVerb(verb)) == "nothing done"
            elif verb == "start":
                with pytest.raises(ProviderError) as caught:
                    await made.provider.start()
                assert not caught.value.sent
            elif verb == "leftovers":
                with pytest.raises(ProviderError) as caught:
                    await account.list_leftovers()
                assert not caught.value.sent
            elif verb in ("offers", "create", "find"):
                assert account.open_market() is None
            elif verb == "list":
                with pytest.raises(ProviderError) as caught:
                    await made.provider.list()
                assert not caught.value.sent
            elif verb == "read":
                meter = await made.provider.read(row.machine)
                assert (meter.kind, meter.per_hour) == (MeterKind.UNKNOWN, None)
            if verb not in ("balance", "spend"):
                assert made.server.requests[asked:] == []
            elif "list" in row.on:
                meter = next(
                    one.meter for one in await made.provider.list() if one.id == row.machine
                )
                assert (meter.balance if verb == "balance" else meter.booked) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_what_cannot_go_wrong_says_why(row: Row) -> None:
    """So that nothing is left out of a row by forgetting it."""
    silent = [
        key
        for key in faults_of(())
        if (row.why_not(*key) is None) is not (key[1] in expected(row, key[0]))
    ]
    assert silent == []
    for verb in VERBS:
        assert (verb in row.on) is not (verb in row.lacks), verb
    assert [key for key in row.differs if key[0] not in row.on or row.why_not(*key)] == []


@pytest.mark.parametrize("row", [row for row in ROWS if "read" in row.on], ids=lambda row: row.kind)
async def test_a_machine_that_was_never_there_is_not_called_free(row: Row) -> None:
    async with bench(row) as made:
        never = row.machine[:-1] + ("7" if row.machine[-1] != "7" else "8")
        meter = await made.box(never).read(never)
        assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.GONE)
        assert "never seen" in meter.source


def test_the_table_in_the_docs_is_that_of_the_suite() -> None:
    text = (Path(__file__).parents[3] / "docs" / "profiles.md").read_text()
    assert "\n".join(table(ROWS)) in text, (
        "write it with: python -m tests.contract.providers.platform_rows"
    )


def test_every_platform_has_a_row() -> None:
    assert sorted(row.kind for row in ROWS) == sorted(KINDS)
