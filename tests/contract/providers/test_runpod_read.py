"""Reading a pod over a real connection: prices, states, absence, and every kind of bad day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.model import BillingVerb, Lifecycle, Meter, MeterKind, ProviderRef
from rgt_tui.providers import (
    AuthError,
    BadAnswer,
    ProviderError,
    Providers,
    RateLimited,
    StateConflict,
    Unreachable,
    keep_last_good,
    leftover_gaps,
)
from tests.contract.providers.conftest import POD, START, World
from tests.contract.providers.fakes.renting_runpod import RentingRunPod

GET = f"GET /v2/pods/{POD}"
BILLING = "GET /v2/billing"


def edited(**changes: object) -> Callable[[object], object]:
    """Return an edit of a pod's JSON; the value ``...`` removes the field."""

    def change(data: object) -> object:
        assert isinstance(data, dict)
        merged = {**data, **changes}
        return {key: value for key, value in merged.items() if value is not ...}

    return change


async def test_a_running_pod_bills_compute_volume_and_container_disk(world: World) -> None:
    meter = await world.read()
    assert (meter.kind, meter.lifecycle) == (MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING)
    assert meter.compute_per_hour == 1.38
    assert meter.storage_per_hour == pytest.approx((100 + 40) * 0.10 / 730)
    assert meter.per_hour == pytest.approx(1.38 + 14 / 730)
    assert meter.spent == pytest.approx(1.38 + 14 / 730, abs=1e-4)
    assert meter.spent_since == START - 3600
    assert meter.actions == ("stop", "restart", "terminate")
    assert (meter.native_status, meter.at, meter.error) == ("RUNNING", START, None)
    assert "127.0.0.1" in meter.source


async def test_an_unknown_volume_is_no_zero_and_does_not_drop_the_known_disk(world: World) -> None:
    """The container disk is known, the volume's size is not: a lower bound that names what is missing."""
    world.server.inject_faults(
        InjectedFault(
            on=GET,
            change=edited(mounts={"persistent": {"path": "/workspace"}, "network": []}),
            times=-1,
        )
    )
    meter = await world.read()
    assert meter.per_hour == pytest.approx(1.38 + 4 / 730)
    assert meter.storage_per_hour == pytest.approx(4 / 730)
    assert (meter.at_least, meter.unpriced) == (True, ("volume disk",))
    assert (await world.provider.list())[0].meter.at_least is False, "the list says the size"


async def test_a_pod_known_in_full_is_no_lower_bound_and_its_doubt_is_said(world: World) -> None:
    meter = await world.read()
    assert (meter.at_least, meter.unpriced, meter.spent_at_least) == (False, (), False)
    assert meter.doubt is not None
    assert "whether a pod's price includes its disks" in meter.doubt
    world.server.pods[POD].status = "EXITED"
    assert (await world.read()).doubt is None


async def test_a_network_volume_of_unknown_price_beside_known_disks_is_a_lower_bound(
    world: World,
) -> None:
    world.server.add_pod("netpod", "n", networks=(("other", "/net"),))
    meter = await world.provider.read("netpod")
    assert meter.per_hour == pytest.approx(1.38 + 14 / 730)
    assert (meter.at_least, meter.unpriced) == (True, ("network volume other",))
    world.server.pods["netpod"].status = "EXITED"
    meter = await world.provider.read("netpod")
    assert meter.at_least
    assert meter.per_hour == pytest.approx(20 / 730)


async def test_without_the_books_the_price_may_be_a_lower_bound_and_what_was_spent_is_an_estimate(
    world: World,
) -> None:
    world.server.inject_faults(InjectedFault(on=BILLING, status=403, times=-1))
    world.server.inject_faults(InjectedFault(on=GET, change=edited(mounts=None), times=-1))
    meter = await world.read()
    assert (meter.spent_at_least, meter.spent_estimated, meter.at_least) == (False, True, True)
    assert meter.unpriced == ("volume disk", "network volume, if there is one")


async def test_a_pod_that_never_said_its_mounts_is_not_free_once_it_is_gone(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=GET, change=edited(mounts=None)))
    await world.read()
    world.server.pods[POD].status = "TERMINATED"
    meter = await world.read()
    assert (meter.lifecycle, meter.kind, meter.per_hour) == (
        Lifecycle.GONE,
        MeterKind.UNKNOWN,
        None,
    )


async def test_a_stopped_pod_is_not_free_although_its_cost_is_zero(world: World) -> None:
    world.server.pods[POD].status = "EXITED"
    meter = await world.read()
    assert (meter.kind, meter.lifecycle) == (MeterKind.STORAGE_ONLY, Lifecycle.STOPPED)
    assert meter.compute_per_hour == 0.0
    assert meter.per_hour == meter.storage_per_hour == pytest.approx(100 * 0.20 / 730)


async def test_a_stopped_pod_without_any_disk_that_stays_bills_nothing(world: World) -> None:
    world.server.pods[POD].status = "EXITED"
    world.server.pods[POD].persistent = None
    assert (await world.read()).kind is MeterKind.NONE


async def test_a_network_volume_bills_stopped_and_after_the_pod_is_gone(world: World) -> None:
    pod = world.server.add_pod("netpod", "n", persistent=None, networks=(("vol1", "/workspace"),))
    world.server.add_volume("vol1", 2000)
    rate = (1000 * 0.07 + 1000 * 0.05) / 730
    pod.status = "EXITED"
    meter = await world.provider.read("netpod")
    assert meter.kind is MeterKind.STORAGE_ONLY
    assert meter.per_hour == pytest.approx(rate)
    assert world.provider.list_tiers("netpod") == {
        "/": "container-disk",
        "/workspace": "network-volume",
    }
    assert (
        "network volume vol1 at /workspace: $0.1644/h"
        in world.provider.list_kept_charges(BillingVerb.DESTROY, "netpod")[0]
    )
    pod.status = "TERMINATED"
    meter = await world.provider.read("netpod")
    assert (meter.kind, meter.lifecycle) == (MeterKind.STORAGE_ONLY, Lifecycle.GONE)
    assert meter.per_hour == pytest.approx(rate)


async def test_an_unpriced_network_volume_is_unknown_not_free(world: World) -> None:
    pod = world.server.add_pod("netpod", "n", persistent=None, networks=(("other", "/workspace"),))
    pod.status = "EXITED"
    meter = await world.provider.read("netpod")
    assert (meter.kind, meter.per_hour) == (MeterKind.STORAGE_ONLY, None)
    assert "price unknown" in world.provider.list_kept_charges(BillingVerb.PARK, "netpod")[0]


@pytest.mark.odd_exchanges
@pytest.mark.parametrize(
    ("status", "life", "kind"),
    [
        ("PROVISIONING", Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
        ("STARTING", Lifecycle.STARTING, MeterKind.COMPUTE_AND_STORAGE),
        ("ERROR", Lifecycle.ERROR, MeterKind.UNKNOWN),
        ("HIBERNATING", Lifecycle.UNKNOWN, MeterKind.UNKNOWN),
        ("\x1b[31mODD\x1b[0m", Lifecycle.UNKNOWN, MeterKind.UNKNOWN),
    ],
)
async def test_states(world: World, status: str, life: Lifecycle, kind: MeterKind) -> None:
    world.server.pods[POD].status = status
    meter = await world.read()
    assert (meter.lifecycle, meter.kind, meter.error) == (life, kind, None)
    assert meter.native_status is not None
    assert meter.native_status.isprintable()


@pytest.mark.parametrize(
    ("cost", "compute"),
    [
        ("1.5", 1.5),
        (2, 2.0),
        (..., None),
        (None, None),
        ("x", None),
        (-1, None),
        (True, None),
        ("nan", None),
        (0, None),
    ],
)
async def test_the_price_comes_as_number_string_or_not_at_all(
    world: World, cost: object, compute: float | None
) -> None:
    world.server.inject_faults(InjectedFault(on=GET, change=edited(cost=cost)))
    meter = await world.read()
    assert meter.kind is MeterKind.COMPUTE_AND_STORAGE
    assert meter.compute_per_hour == compute
    assert (meter.per_hour is None) == (compute is None)


@pytest.mark.parametrize(
    "change",
    [
        edited(
            mounts=None,
            ssh=None,
            gpu=None,
            runtime=None,
            actions=None,
            disk=None,
            createdAt=None,
            startedAt=None,
        ),
        edited(
            mounts={"persistent": {}, "network": [None, {}, 3]},
            actions=[None, 3, "stop"],
            name=7,
            disk="x",
        ),
        edited(
            ssh={"direct": {"host": 3, "port": "22"}},
            createdAt="yesterday",
            startedAt=5,
            status=None,
        ),
    ],
)
async def test_null_and_odd_sub_objects_never_break_a_reading(
    world: World, change: Callable[[object], object]
) -> None:
    world.server.inject_faults(InjectedFault(on=GET, change=change, times=-1))
    meter = await world.read()
    assert meter.error is None
    assert meter.storage_per_hour is None
    assert world.provider.list_kept_charges(BillingVerb.PARK, POD)


async def test_a_stopped_pod_that_hides_its_mounts_is_unknown(world: World) -> None:
    world.server.pods[POD].status = "EXITED"
    world.server.inject_faults(InjectedFault(on=GET, change=edited(mounts=None)))
    assert (await world.read()).kind is MeterKind.UNKNOWN


async def test_without_the_books_the_spend_is_a_marked_estimate(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=BILLING, status=403))
    meter = await world.read()
    assert meter.spent == pytest.approx(1.38 + 14 / 730)
    assert "estimate: cost × uptime" in meter.source
    assert meter.spent_estimated
    world.clock.now += 100
    await world.read()
    assert sum(what.startswith(BILLING) for what in world.server.requests) == 1, "retried too soon"
    world.clock.now += 300
    assert "estimate" not in (await world.read()).source


@pytest.mark.parametrize("books", [True, False])
async def test_a_clock_here_that_is_a_month_ahead_costs_nothing(world: World, books: bool) -> None:
    """Times of the machine are by the provider's clock, which every answer of it tells (RFC 9110, `Date`)."""
    if not books:
        world.server.inject_faults(InjectedFault(on=BILLING, status=403, times=-1))
    true = await world.read()
    now = world.clock.now
    world.server.clock = lambda: now
    world.clock.now += 30 * 86400
    meter = await world.read()
    assert meter.spent == pytest.approx(true.spent)
    assert meter.clock_skew == pytest.approx(30 * 86400, abs=2)
    assert meter.at == world.clock.now, "ages here are by the clock here"
    world.clock.now = now
    assert (await world.read()).clock_skew is None


async def test_between_two_readings_of_the_books_the_spend_runs_on(world: World) -> None:
    before = (await world.read()).spent
    world.clock.now += 30
    after = (await world.read()).spent
    assert sum(what.startswith(BILLING) for what in world.server.requests) == 1
    assert before is not None
    assert after == pytest.approx(before + 30 / 3600 * (1.38 + 14 / 730), abs=1e-6)


@pytest.mark.parametrize(
    "records", [[], "x", None, [{"podId": POD, "totalAmount": None}], [{"podId": "other"}]]
)
async def test_books_without_a_usable_entry_are_not_zero_spend(
    world: World, records: object
) -> None:
    world.server.inject_faults(InjectedFault(on=BILLING, change=lambda _: {"records": records}))
    assert "estimate" in (await world.read()).source


async def test_gone_needs_a_404_and_a_complete_list_without_it(world: World) -> None:
    await world.read()
    world.server.pods[POD].status = "TERMINATED"
    meter = await world.read()
    assert (meter.lifecycle, meter.kind) == (Lifecycle.GONE, MeterKind.NONE)
    assert meter.native_status == "404 and not in the list"


async def test_a_404_alone_is_not_gone(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=GET, status=404))
    meter = await world.read()
    assert (meter.lifecycle, meter.kind) == (Lifecycle.UNKNOWN, MeterKind.UNKNOWN)
    assert meter.error is not None
    assert "still shows the pod" in meter.error


LIST = "GET /v2/pods"


@pytest.mark.parametrize(
    "fault",
    [
        InjectedFault(on=LIST, cut=12),
        InjectedFault(on=LIST, raw=b'{"pods": ['),
        InjectedFault(on=LIST, raw=b'{"items": []}'),
        InjectedFault(on=LIST, raw=b"[]"),
        InjectedFault(on=LIST, raw=b'{"pods": [{"name": "no id"}]}'),
        InjectedFault(on=LIST, change=lambda data: {**_object(data), "nextToken": "abc"}),
        InjectedFault(on=LIST, headers={"Link": '</v2/pods?page=2>; rel="next"'}),
        InjectedFault(on=LIST, status=500),
        InjectedFault(on=LIST, status=401),
        InjectedFault(on=LIST, status=429),
    ],
)
async def test_a_partial_or_failed_list_is_no_absence(world: World, fault: InjectedFault) -> None:
    await world.read()
    world.server.inject_faults(InjectedFault(on=GET, status=404), fault)
    meter = await world.read()
    assert (meter.lifecycle, meter.kind) == (Lifecycle.UNKNOWN, MeterKind.UNKNOWN)
    assert meter.error is not None
    assert "could not confirm" in meter.error


async def test_a_pod_never_seen_with_this_key_is_gone_but_not_free(world: World) -> None:
    meter = await world.provider.read("typo")
    assert (meter.lifecycle, meter.kind) == (Lifecycle.GONE, MeterKind.UNKNOWN)
    assert "never seen" in meter.source


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (InjectedFault(status=401), "401"),
        (InjectedFault(status=403), "403"),
        (InjectedFault(status=500), "failed with 500"),
        (InjectedFault(status=503), "failed with 503"),
        (InjectedFault(status=418), "418"),
        (InjectedFault(status=302, headers={"Location": "http://192.0.2.1/"}), "302"),
        (InjectedFault(raw=b"<html>"), "not JSON"),
        (InjectedFault(raw=b"[" * 100_000), "not JSON"),
        (InjectedFault(raw=b""), "without an id"),
        (
            InjectedFault(raw=b'{"id": "another", "status": "EXITED", "mounts": {}}'),
            "another pod than",
        ),
        (InjectedFault(cut=20), "did not answer"),
    ],
)
async def test_trouble_is_unknown_and_keeps_the_last_good_meter(
    world: World, fault: InjectedFault, why: str
) -> None:
    good = await world.read()
    world.clock.now += 5
    world.server.inject_faults(fault)
    bad = await world.read()
    assert (bad.kind, bad.lifecycle, bad.per_hour) == (MeterKind.UNKNOWN, Lifecycle.UNKNOWN, None)
    assert bad.error is not None
    assert why in bad.error
    assert world.server.base_url in bad.error, "no way to the console"
    kept = keep_last_good(good, bad)
    assert (kept.kind, kept.per_hour, kept.at, kept.error) == (
        good.kind,
        good.per_hour,
        good.at,
        bad.error,
    )
    assert keep_last_good(Meter(), bad) is bad
    assert keep_last_good(good, good) is good


async def test_no_server_is_unreachable(world: World) -> None:
    await world.server.stop()
    meter = await world.read()
    assert meter.error is not None
    assert "cannot be reached" in meter.error
    with pytest.raises(Unreachable) as caught:
        await world.provider.list()
    assert not caught.value.sent


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Mon, 21 Sep 2026 14:13:29 GMT"}, 9.0),
    ],
)
async def test_a_rate_limit_is_obeyed_without_asking_again(
    world: World, headers: dict[str, str], wait: float | None
) -> None:
    world.server.inject_faults(InjectedFault(on=LIST, status=429, headers=headers))
    with pytest.raises(RateLimited) as caught:
        await world.provider.list()
    assert caught.value.retry_after == wait
    asked = len(world.server.requests)
    assert "no more requests" in str((await world.read()).error)
    assert len(world.server.requests) == asked
    world.clock.now += (wait or 15.0) + 0.1
    assert (await world.read()).error is None


async def test_an_exhausted_policy_is_left_alone_until_it_refills(world: World) -> None:
    world.server.inject_faults(InjectedFault(on=LIST, headers={"RateLimit": '"minute";r=0;t=30'}))
    assert await world.provider.list()
    with pytest.raises(RateLimited):
        await world.provider.list()
    world.clock.now += 31
    assert await world.provider.list()


async def test_the_list_names_every_pod_with_its_meter(world: World) -> None:
    world.server.add_pod("second", "\x1b[2Jname", host="203.0.113.7", port=10341)
    first, second = await world.provider.list()
    assert (first.id, first.meter.kind) == (POD, MeterKind.COMPUTE_AND_STORAGE)
    assert (second.host, second.port, second.user) == ("203.0.113.7", 10341, "root")
    assert second.name.isprintable()


async def polled(world: World, refs: list[ProviderRef]) -> dict[str, Meter]:
    """Poll boxes whose ids differ; return their meters by id."""
    return {ref.instance: meter for ref, meter in (await world.providers.poll_meters(refs)).items()}


async def test_two_accounts_with_one_id_have_two_meters(world: World) -> None:
    """Both servers know the pod, at another price; ids are unique at one account only."""
    other = RentingRunPod(clock=world.clock, sleep=world.clock.sleep)
    await other.start()
    other.add_pod(POD, "someone else's", cost=9.0)
    providers = Providers(
        clock=world.clock, env={"DEMO_KEY": world.server.key, "OTHER_KEY": other.key}
    )
    mine = ProviderRef("runpod", POD, world.server.base_url, "DEMO_KEY")
    theirs = ProviderRef("runpod", POD, other.base_url, "OTHER_KEY")
    stolen = ProviderRef("runpod", POD, other.base_url, "DEMO_KEY")
    try:
        meters = await providers.poll_meters([mine, theirs, stolen])
        assert meters[mine].compute_per_hour == world.server.pods[POD].cost
        assert meters[theirs].compute_per_hour == 9.0
        assert "refused the key" in str(meters[stolen].error)
        other.pods[POD].status = "TERMINATED"
        meters = await providers.poll_meters([mine, theirs])
        assert (meters[mine].lifecycle, meters[theirs].lifecycle) == (
            Lifecycle.RUNNING,
            Lifecycle.GONE,
        )
    finally:
        await providers.close()
        await other.stop()


async def test_a_fleet_is_polled_with_one_call(world: World) -> None:
    refs = [ProviderRef("runpod", POD, world.server.base_url, "DEMO_KEY")]
    for number in range(50):
        world.server.add_pod(f"pod{number}", f"box-{number}")
        refs.append(ProviderRef("runpod", f"pod{number}", world.server.base_url, "DEMO_KEY"))
    meters = await polled(world, refs)
    assert len(meters) == 51
    assert all(meter.lifecycle is Lifecycle.RUNNING for meter in meters.values())
    assert meters["pod7"].spent == pytest.approx(0.0)
    assert world.server.requests == [LIST, "GET /v2/billing/pods"]
    world.clock.now += 3600
    meters = await polled(world, refs)
    assert meters["pod7"].spent == pytest.approx(1.38 + 14 / 730, abs=1e-4)
    assert "estimate" not in meters["pod7"].source
    world.server.pods["pod7"].status = "TERMINATED"
    for _ in range(3):
        meters = await polled(world, refs)
        assert meters["pod7"].lifecycle is Lifecycle.GONE
    assert world.server.requests.count("GET /v2/pods/pod7") == 1, (
        "a box that is gone eats the rate limit"
    )
    world.server.inject_faults(InjectedFault(on=LIST, status=500))
    meters = await polled(world, refs)
    assert all(meter.error for meter in meters.values())


async def test_one_bad_account_does_not_spoil_the_others(world: World) -> None:
    good = ProviderRef("runpod", POD, world.server.base_url, "DEMO_KEY")
    meters = await polled(
        world,
        [
            ProviderRef("nimbus", "x"),
            ProviderRef("runpod", "y", "http://127.0.0.1:1", "DEMO_KEY"),
            ProviderRef("runpod", "z", "http://[", "DEMO_KEY"),
            good,
        ],
    )
    assert meters[POD].error is None
    assert "no adapter" in str(meters["x"].error)
    assert "cannot be reached" in str(meters["y"].error)
    assert "base_url" in str(meters["z"].error)


async def test_an_id_cannot_name_another_resource(world: World) -> None:
    for bad in ("../billing", "a/action", "", "a?x=1", "a%2f", "é"):
        meter = await world.provider.read(bad)
        assert meter.error is not None
        assert "not a RunPod id" in meter.error
    assert world.server.requests == []


async def test_the_key_shows_nowhere(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    texts = [repr(world.provider), repr(await world.read())]
    for fault in (
        InjectedFault(status=401),
        InjectedFault(status=500),
        InjectedFault(cut=5),
        InjectedFault(raw=b"?"),
    ):
        world.server.inject_faults(fault)
        with pytest.raises((AuthError, Unreachable, BadAnswer)) as caught:
            await world.provider.list()
        error: BaseException | None = caught.value
        while error is not None:
            texts += [str(error), repr(error)]
            error = error.__cause__
    await world.server.stop()
    with pytest.raises(ProviderError) as unreachable:
        await world.provider.list()
    texts += [str(unreachable.value), caplog.text]
    assert world.server.key not in "\n".join(texts)


def _object(data: object) -> dict[str, Any]:
    assert isinstance(data, dict)
    return data


async def test_cloudflares_refusal_of_a_program_is_named_and_is_not_the_keys(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await world.read()).error is None, "rgt names itself"
    monkeypatch.setattr("rgt_tui.providers.http.USER_AGENT", "python-httpx/0.28")
    error = (await world.read()).error
    assert error is not None
    assert "Cloudflare, in front of 127.0.0.1" in error
    assert "error code: 1010" in error
    assert "the key is not the cause" in error
    with pytest.raises(BadAnswer):
        await world.provider.list()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b'{"error": "not enough free GPUs on the host machine"}',
            "not enough free GPUs on the host machine",
        ),
        (
            b'{"detail": [{"msg": "Fleet not found", "code": "resource_not_exists"}]}',
            "Fleet not found",
        ),
        (b'{"detail": {"msg": "No access", "code": "forbidden"}}', "No access"),
        (b'{"title": "Bad Request", "detail": ""}', "Bad Request"),
        (b'{"detail": [], "error": {"code": 7}}', "Bad Request"),
    ],
)
async def test_the_words_of_an_error_are_found_in_every_known_shape(
    world: World, body: bytes, words: str
) -> None:
    world.server.inject_faults(InjectedFault(on=GET, status=400, raw=body))
    error = (await world.read()).error
    assert error is not None
    assert f"answered 400 {words} to" in error


async def test_every_page_of_the_list_is_read(world: World) -> None:
    for number in range(7):
        world.server.add_pod(f"more{number}", f"more-{number}")
    world.server.page_size = 3
    found = [one.id for one in await world.provider.list()]
    assert sorted(found) == sorted(world.server.pods)
    assert world.server.requests.count(LIST) == 3


@pytest.mark.parametrize(
    "pagination",
    [
        {"nextCursor": None, "hasNextPage": True},
        {"nextCursor": "", "hasNextPage": True},
        {"nextCursor": 7, "hasNextPage": True},
        {"hasNextPage": "yes"},
        {"nextCursor": "at=0+", "hasNextPage": True},
    ],
)
async def test_a_next_page_that_cannot_be_followed_makes_the_list_unknown(
    world: World, pagination: dict[str, object]
) -> None:
    world.server.inject_faults(
        InjectedFault(on=GET, status=404),
        InjectedFault(
            on=LIST, change=lambda data: {**_object(data), "pagination": pagination}, times=-1
        ),
    )
    with pytest.raises(BadAnswer, match="whose next page cannot be requested"):
        await world.provider.list()
    meter = await world.read()
    assert meter.lifecycle is Lifecycle.UNKNOWN, "a pod on the next page is not gone"


async def test_what_bills_besides_pods(world: World) -> None:
    server = world.server
    server.add_volume("vol2", 50.0)
    server.endpoints = {"busy": (0, 2), "kept": (1, 0), "asleep": (0, 0)}
    server.clusters = {"quad": 4}
    server.page_size = 1
    found = {
        one.id: one
        for one in await world.providers.find_account(world.provider.ref).list_leftovers()
    }
    assert set(found) == {*server.volumes, "busy", "kept", "quad"}
    assert (found["busy"].what, found["busy"].name) == (
        "endpoint",
        "busy: 2 workers now, always on: 0",
    )
    assert found["kept"].name == "kept: 0 workers now, always on: 1"
    assert found["kept"].how == f"DELETE {server.base_url}/v2/serverless/kept"
    assert (found["quad"].what, found["quad"].name) == (
        "cluster",
        "quad: 4 pods, deleted only with it",
    )
    assert found["quad"].per_hour is None, "unknown, not free"


async def test_a_key_that_may_not_list_endpoints_says_so(world: World) -> None:
    world.server.inject_faults(InjectedFault(on="GET /v2/serverless", status=403))
    account = world.providers.find_account(world.provider.ref)
    assert [one for one in await account.list_leftovers() if one.what == "endpoint"] == []
    assert leftover_gaps(account) == ("serverless endpoints (the key may not list them)",)
    world.server.inject_faults(InjectedFault(on="GET /v2/clusters", status=500))
    with pytest.raises(ProviderError):
        await world.providers.find_account(world.provider.ref).list_leftovers()


async def test_a_start_without_a_free_gpu_says_what_is_out_of_reach(world: World) -> None:
    pod = world.server.pods[POD]
    pod.status, pod.machine_full = "EXITED", True
    with pytest.raises(StateConflict, match="not enough free GPUs on the host machine") as caught:
        await world.provider.start()
    assert "its volume disk cannot be reached; it is billed until the pod is terminated" in str(
        caught.value
    )
    assert caught.value.status == 400
    pod.machine_full = False
    assert "answered 200" in await world.provider.start()


async def test_a_page_of_the_books_is_no_total(world: World) -> None:
    world.server.inject_faults(
        InjectedFault(
            on=BILLING, change=lambda data: {**_object(data), "pagination": {"hasNextPage": True}}
        )
    )
    meter = await world.read()
    assert meter.booked is None
    assert meter.spent_estimated
