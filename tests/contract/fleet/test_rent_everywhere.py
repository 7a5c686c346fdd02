"""Renting at every platform that rents: a lost answer, another price, what is read back, and what bills unseen."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import InjectedFault, LocalServer
from rgt_tui.fleet import ask_accounts
from rgt_tui.fleet.renting import (
    Candidate,
    CreationOutcome,
    CreationResult,
    MachineRental,
    differences,
    new_token,
    open_creations,
    search_offers,
)
from rgt_tui.fleet.renting.rental import market_of, renting_accounts
from rgt_tui.gate import AuditLog, Journal
from rgt_tui.model import ProviderRef, RentalRequest
from rgt_tui.providers import OVER, Providers
from tests.contract.providers.conftest import Clock
from tests.contract.providers.platform_outcomes import Row, edited
from tests.contract.providers.platform_rows import ROWS
from tests.contract.providers.rows_by_command import BY_COMMAND

KEY, BOX = "SOME_KEY", "train-a"
MARKETS = [row for row in ROWS if row.wish is not None]
LISTED = [
    row for row in ROWS if "list" in row.on and row.kind not in OVER and row not in BY_COMMAND
]
"""Platforms with an account that is listed; what runs over another platform is listed there."""
every_market = pytest.mark.parametrize("row", MARKETS, ids=lambda row: row.kind)


@dataclass
class Place:
    """A platform's market, and one rgt that rents there."""

    row: Row
    server: LocalServer
    providers: Providers
    rental: MachineRental
    journal: Journal
    said: list[str] = field(default_factory=list)

    @property
    def ref(self) -> ProviderRef:
        return ProviderRef(self.row.kind, "", self.server.base_url, KEY)

    @property
    def wish(self) -> RentalRequest:
        assert self.row.wish is not None
        return self.row.wish

    async def candidate(self) -> Candidate:
        found = await search_offers(self.providers, [self.ref], self.wish)
        assert found.troubles == ()
        return found.candidates[0]

    async def take(self, candidate: Candidate) -> tuple[CreationResult, str]:
        token = new_token(BOX)
        review = await self.rental.review_rental(candidate, self.wish, BOX, token)
        assert (review.refusals, review.phrase in (BOX, f"{BOX} at any price")) == ((), True)
        with self.rental.lock_account(candidate.ref, BOX) as creation:
            taken = await self.rental.create_machine(
                creation,
                candidate,
                self.wish,
                BOX,
                token,
                typed=review.phrase,
                say=self.said.append,
            )
        return taken, token

    def sent(self) -> int:
        return sum(what.startswith(self.row.on["create"]) for what in self.server.requests)


@contextlib.asynccontextmanager
async def place(row: Row, folder: Path) -> AsyncIterator[Place]:
    clock = Clock()
    server = row.make(clock=clock, settle_s=0.0)
    await server.start()
    providers = Providers(clock=clock, env={KEY: server.key}, timeout_s=60.0)
    journal = Journal(folder / "journal", clock=clock)

    async def sleep(seconds: float) -> None:
        clock.now += seconds

    rental = MachineRental(
        providers, journal, AuditLog(folder / "audit.jsonl"), clock=clock, sleep=sleep
    )
    try:
        yield Place(row, server, providers, rental, journal)
    finally:
        await providers.close()
        await server.stop()


@every_market
async def test_what_was_rented_is_read_back_as_it_was_agreed(row: Row, tmp_path: Path) -> None:
    async with place(row, tmp_path) as here:
        candidate = await here.candidate()
        taken, token = await here.take(candidate)
        assert (taken.outcome, here.sent()) == (CreationOutcome.RENTED, 1), taken
        await here.server.wait_settled()
        (machine,) = await market_of(here.providers, here.ref).find_by_token(token)
        assert taken.machine is not None and machine.id == taken.machine.id
        assert differences(candidate.offer, here.wish, machine) == ()
        (open_,) = open_creations(here.journal)
        assert open_.last.machine == machine.id


@every_market
@pytest.mark.parametrize(
    "fault", [{"drop": True}, {"status": 500}, {"status": 200, "raw": b'["?"]'}], ids=str
)
async def test_a_lost_answer_is_found_and_never_sent_again(
    row: Row, fault: dict[str, Any], tmp_path: Path
) -> None:
    async with place(row, tmp_path) as here:
        candidate = await here.candidate()
        here.server.inject_faults(InjectedFault(on=row.on["create"], act=True, **fault))
        taken, token = await here.take(candidate)
        assert (taken.outcome, here.sent()) == (CreationOutcome.RENTED, 1), taken
        assert taken.machine is not None and token in here.said[0]


@every_market
async def test_a_lost_answer_to_what_was_not_done_stays_open(row: Row, tmp_path: Path) -> None:
    async with place(row, tmp_path) as here:
        candidate = await here.candidate()
        here.server.inject_faults(InjectedFault(on=row.on["create"], drop=True))
        taken, _ = await here.take(candidate)
        assert (taken.outcome, here.sent(), len(open_creations(here.journal))) == (
            CreationOutcome.UNKNOWN,
            1,
            1,
        ), taken


@pytest.mark.parametrize(
    "row", [row for row in MARKETS if row.offer_price], ids=lambda row: row.kind
)
async def test_an_offer_that_became_dearer_is_not_taken(row: Row, tmp_path: Path) -> None:
    async with place(row, tmp_path) as here:
        candidate = await here.candidate()

        def dearer(value: Any) -> Any:
            return (
                {key: one * 2 for key, one in value.items()}
                if isinstance(value, dict)
                else value * 2
            )

        prices = {key.replace(".", "__"): dearer for key in row.offer_price}
        here.server.inject_faults(
            InjectedFault(on=row.on["offers"], change=edited(row.offers_in, **prices), times=-1)
        )
        token = new_token(BOX)
        with here.rental.lock_account(candidate.ref, BOX) as creation:
            taken = await here.rental.create_machine(
                creation, candidate, here.wish, BOX, token, typed=BOX
            )
        assert (taken.outcome, here.sent()) == (CreationOutcome.REFUSED, 0)
        assert any("its price has changed" in reason for reason in taken.reasons), taken.reasons


@pytest.mark.parametrize("row", LISTED, ids=lambda row: row.kind)
async def test_machines_that_no_box_names_are_listed_with_their_price(
    row: Row, tmp_path: Path
) -> None:
    async with place(row, tmp_path) as here:
        env = {KEY: here.server.key}
        (bill,) = await ask_accounts([here.ref], [], env=env, clock=Clock())
        assert bill.machines_error is None
        machines = [thing for thing in bill.things if thing.what == "machine"]
        assert {thing.id for thing in machines} >= {
            row.machine,
            *([row.resting] if row.resting else []),
        }
        (running,) = [thing for thing in machines if thing.id == row.machine]
        assert running.bills and (running.per_hour is None or running.per_hour > 0)
        # Named by a box, it is that box's own matter.
        named = [ProviderRef(row.kind, row.machine, here.server.base_url, KEY)]
        (bill,) = await ask_accounts([here.ref], named, env=env, clock=Clock())
        assert row.machine not in {thing.id for thing in bill.things if thing.what == "machine"}


async def test_spot_that_is_billed_as_on_demand_is_told(tmp_path: Path) -> None:
    (row,) = [row for row in MARKETS if row.kind == "vastai"]
    assert row.wish is not None
    wish = msgspec.structs.replace(row.wish, spot=True)
    async with place(dataclasses.replace(row, wish=wish), tmp_path) as here:
        candidate = await here.candidate()
        assert candidate.offer.spot
        taken, token = await here.take(candidate)
        assert taken.outcome is CreationOutcome.RENTED
        await here.server.wait_settled()
        market = market_of(here.providers, here.ref)
        (machine,) = await market.find_by_token(token)
        assert (machine.meter.spot, differences(candidate.offer, wish, machine)) == (True, ())
        here.server.inject_faults(
            InjectedFault(on=row.on["find"], change=edited(row.machines_in, is_bid=False))
        )
        (machine,) = await market.find_by_token(token)
        assert "it is billed as on-demand, agreed: spot" in differences(
            candidate.offer, wish, machine
        )


def test_accounts_are_those_that_were_named_else_those_of_the_fleet_that_rent_else_all() -> None:
    providers = Providers(env={})
    pod, job = ProviderRef("runpod", "p1", key_env="MINE"), ProviderRef("slurm", "7")
    assert renting_accounts(
        providers, (), [job, pod, ProviderRef("runpod", "p2", key_env="MINE")]
    ) == [pod]
    assert renting_accounts(providers, ("vastai",), [pod]) == [ProviderRef("vastai", "")]
    assert renting_accounts(providers, ("runpod", "vastai"), [pod]) == [
        pod,
        ProviderRef("vastai", ""),
    ]
    assert {ref.kind for ref in renting_accounts(providers, (), [job])} >= {
        "runpod",
        "vastai",
        "lambda",
    }
