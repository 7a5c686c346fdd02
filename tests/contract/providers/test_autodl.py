"""AutoDL's own ways: everything at status 200, yuan, prices in a snapshot, a stop that does nothing while it boots."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.demo import InjectedFault, LocalAutodl
from rgt_tui.model import BillingVerb, Lifecycle, MeterKind, ProviderRef, StopPhase, StopProgress
from rgt_tui.providers import AccountContext, AuthError, BadAnswer, ProviderError, carry_out
from rgt_tui.providers.autodl import open_account
from tests.contract.providers.conftest import START, Clock, permit_for

ONE = "pro-0fake123"
SNAPSHOT = "GET /api/v1/dev/instance/pro/snapshot"


class Place:
    """A local AutoDL, and the account there."""

    def __init__(self, server: LocalAutodl, clock: Clock) -> None:
        self.server, self.clock = server, clock
        context = AccountContext(clock, {"K": server.key}, Path("/nonexistent"), 60.0)
        self.account = open_account(ProviderRef("autodl", ONE, server.base_url, "K"), context)
        self.box = self.account.open_control_plane(ONE)

    async def carry_out(self, verb: BillingVerb) -> list[StopProgress]:
        ref = self.box.ref
        permit = permit_for(ref, verb)
        steps = carry_out(
            self.box, permit, clock=self.clock, sleep=self.clock.advance, timeout_s=6.0, poll_s=1.0
        )
        return [step async for step in steps]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    clock = Clock()
    server = LocalAutodl(clock=clock, settle_s=0.0)
    await server.start()
    server.add_container(ONE, "train-a", created=START - 3600)
    found = Place(server, clock)
    yield found
    await found.account.close()
    await server.stop()


async def test_it_costs_yuan_and_the_account_has_yuan(place: Place) -> None:
    (item,) = await place.box.list()
    meter = item.meter
    assert (meter.kind, meter.per_hour, meter.currency) == (
        MeterKind.COMPUTE_AND_STORAGE,
        1.98,
        "CNY",
    )
    assert (meter.balance, meter.burn_per_hour) == (50.45, 1.98)
    assert meter.spent == pytest.approx(1.98)
    assert (item.gpu, item.gpu_count, item.region, item.user) == ("RTX 4090", 1, "西北X区", "root")
    assert (meter.ssh_host, meter.ssh_port) == ("connect.westx.example.com", 40123)
    assert "secret" not in repr(
        (item, place.account.find_last_reading(ONE), place.account._snapshots)
    )


@pytest.mark.parametrize(
    ("status", "lifecycle", "kind", "actions"),
    [
        ("creating", Lifecycle.STARTING, MeterKind.UNKNOWN, ()),
        ("starting", Lifecycle.STARTING, MeterKind.UNKNOWN, ()),
        ("running", Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE, ("power_off",)),
        ("shutting_down", Lifecycle.RUNNING, MeterKind.UNKNOWN, ()),
        ("shutdown", Lifecycle.STOPPED, MeterKind.STORAGE_ONLY, ("power_on", "release")),
        ("releasing", Lifecycle.STOPPED, MeterKind.UNKNOWN, ()),
        ("released", Lifecycle.GONE, MeterKind.NONE, ()),
        ("failed", Lifecycle.ERROR, MeterKind.UNKNOWN, ("power_off", "release")),
        ("升级中", Lifecycle.UNKNOWN, MeterKind.UNKNOWN, ()),
    ],
)
async def test_what_a_state_is_and_costs(
    place: Place, status: str, lifecycle: Lifecycle, kind: MeterKind, actions: tuple[str, ...]
) -> None:
    place.server.containers[ONE].status = status
    meter = await place.box.read(ONE)
    assert (meter.lifecycle, meter.kind, meter.actions) == (lifecycle, kind, actions)
    assert kind is MeterKind.NONE or meter.per_hour != 0.0


async def test_a_stop_while_it_boots_is_taken_and_does_nothing(place: Place) -> None:
    place.server.containers[ONE].status = "starting"
    steps = await place.carry_out(BillingVerb.PARK)
    assert [step.phase for step in steps] == [StopPhase.REQUESTED, StopPhase.UNCONFIRMED]
    assert "Success" in steps[0].text
    assert "last shown: starting" in steps[-1].text


async def test_what_runs_cannot_be_released(place: Place) -> None:
    assert place.box.native_action(BillingVerb.DESTROY) not in (await place.box.read(ONE)).actions
    steps = await place.carry_out(BillingVerb.DESTROY)
    assert steps[-1].phase is StopPhase.UNCONFIRMED
    assert place.server.containers[ONE].status == "running"
    await place.carry_out(BillingVerb.PARK)
    steps = await place.carry_out(BillingVerb.DESTROY)
    assert steps[-1].phase is StopPhase.METER_OFF
    assert place.server.containers == {}


async def test_a_stop_names_what_bills_on(place: Place) -> None:
    await place.box.read(ONE)
    lines = "\n".join(place.box.list_kept_charges(BillingVerb.PARK, ONE))
    assert "data disk of a stopped instance, price unknown" in lines
    assert "¥0.01 per GB and day" in lines
    assert "¥0.01 per GB and day" in "\n".join(
        place.box.list_kept_charges(BillingVerb.DESTROY, ONE)
    )


async def test_the_address_is_that_of_the_newest_start(place: Place) -> None:
    before = (await place.box.read(ONE)).ssh_port
    await place.carry_out(BillingVerb.PARK)
    assert (await place.box.read(ONE)).ssh_port is None
    await place.box.start()
    await place.server.wait_settled()
    place.clock.now += 1
    assert (await place.box.read(ONE)).ssh_port == (before or 0) + 1


async def test_a_snapshot_is_asked_for_once_in_a_while_and_its_price_outlives_a_failure(
    place: Place,
) -> None:
    await place.box.read(ONE)
    await place.box.read(ONE)
    assert place.server.requests.count(SNAPSHOT) == 1
    place.clock.now += 601
    place.server.inject_faults(InjectedFault(on=SNAPSHOT, status=500))
    assert (await place.box.read(ONE)).per_hour == 1.98
    assert place.server.requests.count(SNAPSHOT) == 2
    place.server.containers[ONE].milli_yuan = 2500
    assert (await place.box.read(ONE)).per_hour == 2.5


async def test_without_a_snapshot_the_price_is_not_known(place: Place) -> None:
    place.server.inject_faults(InjectedFault(on=SNAPSHOT, status=500, times=-1))
    meter = await place.box.read(ONE)
    assert (meter.kind, meter.per_hour, meter.compute_per_hour) == (
        MeterKind.COMPUTE_AND_STORAGE,
        None,
        None,
    )


async def test_an_instance_by_the_month_has_no_price_an_hour(place: Place) -> None:
    def monthly(data: Any) -> Any:
        rows = [{**row, "charge_type": "monthly"} for row in data["data"]["list"]]
        return {**data, "data": {**data["data"], "list": rows}}

    place.server.inject_faults(
        InjectedFault(on="POST /api/v1/dev/instance/pro/list", change=monthly)
    )
    meter = await place.box.read(ONE)
    assert meter.per_hour is None
    assert "charged as monthly" in (meter.doubt or "")


async def test_an_enlarged_disk_makes_the_price_a_lower_bound(place: Place) -> None:
    place.server.containers[ONE].expanded = 50 << 30
    meter = await place.box.read(ONE)
    assert (meter.per_hour, meter.at_least) == (1.98, True)


async def test_a_token_that_has_run_out_is_told_at_status_200(place: Place) -> None:
    place.server.key = "another"
    with pytest.raises(AuthError) as caught:
        await place.box.list()
    assert (caught.value.status, caught.value.code) == (200, "AuthorizeFailed")


async def test_a_page_without_anything_is_no_end_of_a_list(place: Place) -> None:
    def empty(data: Any) -> Any:
        return {**data, "data": {**data["data"], "list": [], "max_page": 3}}

    place.server.inject_faults(
        InjectedFault(on="POST /api/v1/dev/instance/pro/list", change=empty, times=-1)
    )
    with pytest.raises(BadAnswer, match="next page cannot be requested"):
        await place.box.list()


async def test_a_list_that_is_shorter_than_it_says_is_no_list(place: Place) -> None:
    def shorter(data: Any) -> Any:
        return {**data, "data": {**data["data"], "result_total": 2}}

    place.server.inject_faults(
        InjectedFault(on="POST /api/v1/dev/instance/pro/list", change=shorter)
    )
    with pytest.raises(BadAnswer, match="instances of 2"):
        await place.box.list()


async def test_an_answer_without_a_code_is_none(place: Place) -> None:
    place.server.inject_faults(
        InjectedFault(
            on="POST /api/v1/dev/instance/pro/list", status=200, raw=b'{"data": {"list": []}}'
        )
    )
    with pytest.raises(ProviderError, match="without a code"):
        await place.box.list()
    assert place.account.open_market() is None


@pytest.mark.parametrize("instance", ["abcd1234ef", "pro-", "pro-../x", "PRO-1"])
async def test_what_is_no_pro_instance_sends_nothing(place: Place, instance: str) -> None:
    meter = await place.account.open_control_plane(instance).read(instance)
    assert "not an id of AutoDL" in (meter.error or "")
    assert place.server.requests == []
