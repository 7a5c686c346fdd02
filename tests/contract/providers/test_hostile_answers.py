"""What a control plane answers may be anything: each platform and verb gets it, and it ends in words, never in a crash.

What the platforms document is in `test_every_platform`; here are answers that nobody documents.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from typing import Any

import pytest

from rgt_tui.demo import InjectedFault, LocalServer
from rgt_tui.model import BillingVerb, Lifecycle, MeterKind, ProviderRef, StopPhase
from rgt_tui.providers import KINDS, Provider, ProviderError, Providers
from tests.contract.providers.conftest import POD, World
from tests.contract.providers.platform_outcomes import VERBS, Row
from tests.contract.providers.platform_rows import ROWS
from tests.contract.providers.test_every_platform import Bench, bench, ended

DEEP = json.loads("[" * 400 + "]" * 400)


def deep(data: Any) -> Any:
    """Put something very deep where a text belongs."""
    if isinstance(data, dict):
        ids = ("id", "uuid", "name", "project_name", "fleet_name", "code")
        return {
            key: DEEP if isinstance(value, str) and key not in ids else deep(value)
            for key, value in data.items()
        }
    return [deep(one) for one in data] if isinstance(data, list) else data


HOSTILE: dict[str, dict[str, Any]] = {
    "a web page": {"status": 200, "raw": b"<html><body>Bad Gateway</body></html>"},
    "half an object": {"status": 200, "raw": b'{"pods": [{"id": "x"'},
    "nothing": {"status": 200, "raw": b""},
    "no number": {"status": 200, "raw": b"NaN"},
    "another encoding": {"status": 200, "raw": '{"a":1}'.encode("utf-16")},
    "ten thousand levels": {"status": 200, "raw": b"[" * 10_000 + b"]" * 10_000},
    "hundreds of levels for a text": {"change": deep},
    "half a gzip": {
        "status": 200,
        "raw": gzip.compress(b"{}")[:9],
        "headers": {"Content-Encoding": "gzip"},
    },
    "no gzip": {"status": 200, "raw": b"{}", "headers": {"Content-Encoding": "gzip"}},
    "nine MiB": {"status": 200, "raw": b" " * (9 << 20)},
    "202 without a word": {"status": 202, "raw": b""},
    "204": {"status": 204, "raw": b""},
    "302": {"status": 302, "headers": {"Location": "http://127.0.0.1:9/steal"}},
    "408": {"status": 408},
    "425": {"status": 425},
    "503 for a year": {"status": 503, "headers": {"Retry-After": "31536000"}},
    "429 for a year": {"status": 429, "headers": {"Retry-After": "31536000"}},
    "429 until the year 9999": {
        "status": 429,
        "headers": {"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"},
    },
    "429 until nonsense": {
        "status": 429,
        "headers": {"Retry-After": "Mon, 00 Foo 0000 99:99:99 ZZZ"},
    },
    "a limit of 5000 digits": {"headers": {"RateLimit": f'"m";r=0;t={"9" * 5000}'}},
    "5000 digits are left": {"headers": {"RateLimit": f'"m";r={"9" * 5000};t=5'}},
}
"""What comes → the fault that does it."""
BY_HTTP = [row for row in ROWS if isinstance(row.make(), LocalServer)]


async def asked(made: Bench, verb: str, row: Row) -> None:
    """Ask for what a verb tells; a running machine is never free."""
    provider: Provider = made.provider
    account = made.providers.find_account(provider.ref)
    if verb == "read":
        meters = [await provider.read(row.machine)]
    elif verb in ("list", "balance", "spend"):
        meters = [one.meter for one in await provider.list() if one.id == row.machine]
    else:
        meters = []
    if verb == "leftovers":
        await account.list_leftovers()
    elif verb == "offers":
        assert row.wish is not None
        await made.market().find_offers(row.wish)
    elif verb == "find":
        await made.market().find_by_token("rgt-a1b2c3d4e5f6")
    elif verb == "start":
        assert row.resting is not None
        await made.box(row.resting).start()
    assert MeterKind.NONE not in [meter.kind for meter in meters]


async def comes_of(row: Row, verb: str, fault: dict[str, Any]) -> None:
    async with bench(row) as made:
        if verb in row.before:
            row.before[verb](made.server)
        begun = row.truth(made.server, row.machine)
        if verb in ("park", "destroy"):
            await made.provider.read(row.machine)
        made.inject(on=row.on[verb], **fault)
        if verb in ("park", "destroy"):
            outcome = await ended(made, BillingVerb(verb))
            assert made.sent(verb) == 1
            await made.server.wait_settled()
            done = row.truth(made.server, row.machine) != begun
            assert outcome == "nobody knows" or (outcome == "done, by reading") is done
        else:
            try:
                await asked(made, verb, row)
            except ProviderError as error:
                assert str(error).isprintable()


@pytest.mark.parametrize(
    ("row", "verb"),
    [
        pytest.param(row, verb, id=f"{row.kind}-{verb}")
        for row in BY_HTTP
        for verb in VERBS
        if row.on.get(verb) and verb != "create"
    ],
)
async def test_whatever_is_answered_ends_in_words(row: Row, verb: str) -> None:
    await asyncio.gather(*(comes_of(row, verb, fault) for fault in HOSTILE.values()))


async def test_what_the_head_of_an_answer_says_is_plain_text() -> None:
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 \x1b[31mred\x07\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answers, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    providers = Providers(env={"SOME_KEY": "k"})
    ref = ProviderRef("runpod", POD, f"http://127.0.0.1:{port}", "SOME_KEY")
    meter = await providers.open_control_plane(ref).read(POD)
    await providers.close()
    server.close()
    assert meter.error is not None
    assert meter.error.isprintable()


async def test_an_answer_that_is_packed_twice_over_is_not_unpacked(world: World) -> None:
    raw = gzip.compress(gzip.compress(b" " * (128 << 20)))
    await world.read()
    world.server.inject_faults(
        InjectedFault(status=200, raw=raw, headers={"Content-Encoding": "gzip, gzip"})
    )
    tracemalloc.start()
    try:
        meter = await world.read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert meter.error is not None
    assert peak < 64 << 20


async def test_an_answer_that_is_packed_as_was_asked_for_is_read(world: World) -> None:
    before = await world.read()
    raw = gzip.compress(json.dumps(world.server.pods[POD].to_json(world.clock.now)).encode())
    world.server.inject_faults(
        InjectedFault(status=200, raw=raw, headers={"Content-Encoding": "gzip"})
    )
    assert (await world.read()).per_hour == before.per_hour


@pytest.mark.parametrize("told", [{"status": 429, "headers": {"Retry-After": "3000"}},
                                  {"headers": {"RateLimit": '"m";r=0;t=3000'}}])  # fmt: skip
async def test_a_clock_that_is_set_back_makes_no_pause_longer(
    world: World, told: dict[str, Any]
) -> None:
    """Or nobody could stop a meter for as long as the clock was wrong."""
    world.server.inject_faults(InjectedFault(**told))
    await world.read()
    assert "allows no more requests now" in ((await world.read()).error or "")
    world.clock.now -= 86_400
    assert (await world.read()).error is None


@pytest.mark.parametrize(
    "sent",
    [
        {"status": 429, "headers": {"Retry-After": "259200"}},
        {"status": 429, "headers": {"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}},
        {"headers": {"RateLimit": '"m";r=0;t=259200'}},
    ],
)
async def test_a_pause_of_days_holds_readings_back_for_fifteen_minutes(
    world: World, sent: dict[str, Any]
) -> None:
    """Or the meter of a box would be unknown for days after one answer; before that time nothing is sent."""
    world.server.inject_faults(InjectedFault(**sent))
    await world.read()
    world.clock.now += 899
    requests = len(world.server.requests)
    assert "allows no more requests now" in ((await world.read()).error or "")
    assert len(world.server.requests) == requests
    world.clock.now += 2
    assert (await world.read()).error is None


async def test_a_stopped_pod_that_has_a_price_is_not_called_off(world: World) -> None:
    """RunPod documents a price of 0 for it: https://docs.runpod.io/api-reference-v2/overview."""
    await world.read()

    def priced(data: Any) -> Any:
        return (
            {**data, "cost": 1.38}
            if isinstance(data, dict) and data.get("status") == "EXITED"
            else data
        )

    world.server.inject_faults(InjectedFault(on=f"GET /v2/pods/{POD}", change=priced, times=-1))
    steps = await world.carry_out(BillingVerb.PARK, timeout_s=5.0)
    assert steps[-1].phase is StopPhase.UNCONFIRMED, steps
    assert "not the remaining charges" in steps[-1].text
    meter = await world.read()
    assert (meter.kind, meter.lifecycle) == (MeterKind.COMPUTE_AND_STORAGE, Lifecycle.STOPPED)
    assert (meter.per_hour or 0.0) >= 1.38
    assert meter.doubt == "RunPod reports EXITED but still a price: counted as running"


async def test_a_list_that_names_a_pod_twice_tells_nothing(world: World) -> None:
    def twice(data: Any) -> Any:
        return {**data, "pods": [*data["pods"], {**data["pods"][0], "status": "TERMINATED"}]}

    world.server.inject_faults(InjectedFault(on="GET /v2/pods", change=twice))
    with pytest.raises(ProviderError, match="names a pod twice"):
        await world.provider.list()


ONE_OBJECT = ("autodl", "digitalocean", "lambda", "paperspace-core", "runpod", "vastai")
"""Platforms whose lists are a JSON object over HTTP."""


@pytest.mark.parametrize(
    ("kind", "key"), [("vastai", "next_token"), ("paperspace-core", "nextPage")]
)
async def test_a_next_page_that_no_address_can_name_tells_nothing(kind: str, key: str) -> None:
    row = next(row for row in ROWS if row.kind == kind)
    async with bench(row) as made:
        more = {key: "x" * 100_000, "hasMore": True}
        made.inject(on=row.on["list"], change=lambda data: {**data, **more})
        with pytest.raises(ProviderError, match="nothing was sent"):
            await made.provider.list()


LISTS = [
    (row.kind, verb)
    for row in ROWS
    for verb in ("list", "leftovers")
    if row.kind in ONE_OBJECT and verb in row.on
]


@pytest.mark.parametrize(("kind", "verb"), LISTS)
async def test_a_list_that_names_a_next_page_which_cannot_be_requested_is_unknown(
    kind: str, verb: str
) -> None:
    """A box that is missing in such a list is not gone, and a lost creation not undone."""
    row = next(row for row in ROWS if row.kind == kind)
    more = {"pagination": {"nextCursor": None, "hasNextPage": True}}
    async with bench(row) as made:
        made.inject(on=row.on[verb], change=lambda data: {**data, **more})
        with pytest.raises(ProviderError, match="next page"):
            if verb == "list":
                await made.provider.list()
            else:
                await made.providers.find_account(made.provider.ref).list_leftovers()


async def test_a_volume_whose_id_is_none_tells_nothing(world: World) -> None:
    world.server.add_volume("vol\x1b[2J", 50.0)
    with pytest.raises(ProviderError, match="without an id"):
        await world.providers.find_account(world.provider.ref).list_leftovers()


async def test_a_list_of_instances_without_an_end_is_given_up() -> None:
    row = next(row for row in ROWS if row.kind == "dstack")
    async with bench(row) as made:
        pages = 0

        def full(data: Any) -> Any:
            nonlocal pages
            pages += 1
            return [
                {
                    **data[0],
                    "instance_num": pages % 1000,
                    "id": str(pages),
                    "created": f"2026-01-01T{pages}",
                }
            ] * 1000

        made.inject(on=row.on["list"], change=full, times=-1)
        with pytest.raises(ProviderError, match="a list of instances of more than 100 pages"):
            await made.provider.list()
    assert pages == 100


async def test_an_adapter_that_fails_spoils_no_other_account(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        def open_control_plane(self, instance: str) -> Any:
            raise OverflowError("int too large")

        async def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setitem(KINDS, "broken", lambda ref, context: Failing())
    good, bad = world.provider.ref, ProviderRef("broken", "x")
    meters = await world.providers.poll_meters([bad, good])
    assert meters[good].error is None
    assert meters[bad].error == "rgt: OverflowError: int too large; this is a fault of rgt"


async def test_an_adapter_that_fails_after_the_call_has_gone_out_is_asked_what_came_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.read()
    stop, read = type(world.provider).stop, type(world.provider).read
    failures = iter([True, False, False, False, False, False])

    async def stops(self: Provider, permit: Any) -> str:
        await stop(self, permit)
        raise OverflowError("int too large")

    async def reads(self: Provider, instance: str) -> Any:
        if next(failures, False):
            raise OverflowError("int too large")
        return await read(self, instance)

    monkeypatch.setattr(type(world.provider), "stop", stops)
    monkeypatch.setattr(type(world.provider), "read", reads)
    steps = await world.carry_out(BillingVerb.PARK)
    assert "sent, but not acknowledged (OverflowError: int too large)" in steps[0].text
    assert steps[-1].phase is StopPhase.METER_OFF
