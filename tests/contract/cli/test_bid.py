"""``rgt bid``: the bid of a spot machine is shown, raised and lowered by the real command, at a local Vast.ai."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from rgt_tui.cli import FAILED, OK, UNCONFIRMED, UNREACHABLE, USAGE
from rgt_tui.cli.renting import bid
from rgt_tui.demo import InjectedFault, LocalInstance
from rgt_tui.gate import BidCase
from rgt_tui.model import Bid, BoxSpec, ProviderRef, RentalTerms
from tests.contract.cli.conftest import Rgt
from tests.contract.providers.fakes.renting_vast import RentingVast
from tests.pseudo_terminal import PseudoTerminal

KEY, ONE = "RGT_TEST_KEY", 31415926
BID = f"PUT /api/v0/instances/bid_price/{ONE}/"


@dataclass
class Bids:
    """A fleet file with one spot box, and the platform that rents it."""

    rgt: Rgt
    server: RentingVast

    @property
    def instance(self) -> LocalInstance:
        return self.server.instances[ONE]

    async def json(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = await asyncio.to_thread(self.rgt.on, "bid", "mill", *words, "--json")
        assert done.stdout, done.stderr
        body = json.loads(done.stdout)
        assert body["exit"] == done.returncode
        return done.returncode, body

    async def change(self, price: str, phrase: str = "mill") -> tuple[int, dict[str, Any]]:
        _, shown = await self.json(price, "--dry-run")
        return await self.json(price, "--confirm", phrase, "--evidence", shown["digest"])

    def sent(self) -> int:
        return self.server.requests.count(BID)


@pytest.fixture
async def bids(rgt: Rgt) -> AsyncIterator[Bids]:
    server = RentingVast(settle_s=0.0)
    await server.start()
    server.add_instance(
        ONE, "mill", created=server.clock() - 3600, is_bid=True, dph_base=0.5, min_bid=0.41
    )
    rgt.env[KEY] = server.key
    ref = ProviderRef("vastai", str(ONE), base_url=server.base_url, key_env=KEY)
    asked = RentalTerms(spot=True, max_per_hour=0.6)
    rgt.describe(
        [BoxSpec(name="mill", host="mill.invalid", profile="vastai", provider=ref, asked=asked)]
    )
    yield Bids(rgt, server)
    await server.stop()


async def test_a_bid_is_raised_at_the_price_that_the_dry_run_showed(bids: Bids) -> None:
    code, shown = await bids.json("0.7", "--dry-run")
    assert (code, bids.sent(), shown["phrase"]) == (OK, 0, "mill")
    assert shown["bid"]["per_hour"] == 0.5
    lines = " | ".join(shown["lines"])
    assert "lowest bid now: $0.41/h" in lines
    # (0.7 + 60 GB * 0.1667 / 720 h) * 24 h
    assert "at most $17.12 a day" in lines or "at most $17.13 a day" in lines, lines
    assert "more than the $0.60/h of the fleet file" in lines
    code, done = await bids.json("0.7", "--confirm", "mill", "--evidence", shown["digest"])
    assert (code, bids.sent(), bids.instance.dph_base) == (OK, 1, 0.7), done
    audit = await asyncio.to_thread(bids.rgt.on, "audit")
    assert "bid_price" in audit.stdout and " bid " in audit.stdout
    assert "rent" not in audit.stdout


async def test_a_machine_that_was_outbid_is_named_as_such_and_comes_back(bids: Bids) -> None:
    bids.instance.min_bid = 0.6
    bids.server.simulate_outbid(bids.instance)
    status = await asyncio.to_thread(bids.rgt.on, "bid", "mill", "0.65", "--dry-run")
    assert (
        "OUTBID: it is stopped, and its disk is charged; lowest bid now: $0.60/h" in status.stdout
    )
    code, done = await bids.change("0.65")
    await bids.server.wait_settled()
    assert (code, bids.instance.actual) == (OK, "running"), done


async def test_a_bid_below_the_least_needs_more_than_the_name(bids: Bids) -> None:
    code, done = await bids.change("0.2")
    assert (code, bids.sent()) == (FAILED, 0)
    assert "not exactly 'mill may be preempted'" in done["reasons"][0]
    code, done = await bids.change("0.2", "mill may be preempted")
    assert (code, bids.instance.actual, bids.instance.dph_base) == (OK, "stopped", 0.2), done


@pytest.mark.parametrize(
    ("price", "change", "words"),
    [
        ("0.5", {}, "its bid is $0.50/h already"),
        ("33", {}, "accepts bids of"),
        ("0.6", {"is_bid": False}, "rented on demand"),
    ],
)
async def test_what_is_no_bid_is_refused_and_nothing_is_sent(
    bids: Bids, price: str, change: dict[str, Any], words: str
) -> None:
    for name, value in change.items():
        setattr(bids.instance, name, value)
    code, body = await bids.json(price, "--dry-run")
    assert (code, bids.sent()) == (FAILED, 0)
    assert words in " ".join(body["reasons"])


async def test_what_has_changed_since_the_dry_run_is_not_confirmed(bids: Bids) -> None:
    _, shown = await bids.json("0.7", "--dry-run")
    bids.instance.min_bid = 0.65
    code, body = await bids.json("0.7", "--confirm", "mill", "--evidence", shown["digest"])
    assert (code, bids.sent()) == (FAILED, 0), body
    code, body = await bids.json("0.8", "--confirm", "mill", "--evidence", shown["digest"])
    assert (code, bids.sent()) == (FAILED, 0), body


async def test_readonly_changes_no_bid(bids: Bids) -> None:
    code, body = await bids.json("0.7", "--dry-run", "--readonly")
    assert (code, bids.sent()) == (FAILED, 0)
    assert "--readonly" in body["reasons"][0]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (InjectedFault(on=BID, status=400), FAILED),
        (InjectedFault(on=BID, status=500), UNCONFIRMED),
        (InjectedFault(on=BID, drop=True), UNCONFIRMED),
        (InjectedFault(on="GET /api/v0/instances", status=500, times=-1), UNREACHABLE),
    ],
)
async def test_an_answer_that_is_lost_is_not_called_done_and_is_sent_once(
    bids: Bids, fault: InjectedFault, status: int
) -> None:
    _, shown = await bids.json("0.7", "--dry-run")
    bids.server.inject_faults(fault)
    code, body = await bids.json("0.7", "--confirm", "mill", "--evidence", shown["digest"])
    assert (code, body["ok"]) == (status, False), body
    assert bids.sent() == (0 if status == UNREACHABLE else 1)


async def test_a_person_types_the_name(bids: Bids) -> None:
    command = bids.rgt.command("bid", "--fleet", str(bids.rgt.fleet), "mill", "0.7")

    def person_types() -> int:
        env = bids.rgt.environment() | {"TERM": "xterm"}
        with PseudoTerminal(command, cwd=bids.rgt.folder, env=env) as person:
            person.until('type "mill" to change the bid')
            person.type("mill\r")
            return person.ended()

    assert await asyncio.to_thread(person_types) == OK
    assert bids.instance.dph_base == 0.7


async def test_a_box_without_a_provider_or_bids_says_so(bids: Bids) -> None:
    bids.rgt.describe([BoxSpec(name="mill", host="mill.invalid")])
    code, body = await bids.json("0.7")
    assert (code, body["box"]) == (USAGE, "mill")
    ref = ProviderRef("lambda", "x", base_url=bids.server.base_url, key_env=KEY)
    bids.rgt.describe([BoxSpec(name="mill", host="mill.invalid", profile="lambda", provider=ref)])
    code, body = await bids.json("0.7")
    assert (code, bids.server.requests) == (FAILED, [])
    assert "no call that changes a bid" in body["reasons"][0]


async def test_a_bid_that_the_platform_does_not_show_is_no_price_of_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = Bid(
        kind="vastai", instance="7", is_bid=True, per_hour=None, least=None, storage_per_hour=None
    )

    class Bidder:
        async def read_bid(self, _: str) -> Bid:
            return unknown

    async def go_on(_: float) -> None:
        """Wait no time between two readings."""

    monkeypatch.setattr(asyncio, "sleep", go_on)
    command = bid._BidCommand(cast("Any", argparse.Namespace(json=False)), "mill", None)
    case = BidCase(box="mill", account="a", bid=unknown, at=0.0, price=0.5, limits=(0.0, 9.0))
    assert await command._confirm_bid(cast("Any", Bidder()), case) == UNCONFIRMED
    assert "does not show it: the platform shows no bid" in capsys.readouterr().err
