"""Each box of the demo is billed by its own platform's rules, in its own currency and words, and really stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo.embedded import (
    DISK_GB,
    MAKERS,
    NETWORK_GB,
    VAST_STORAGE,
    ControlPlanes,
    describe_box,
)
from rgt_tui.demo.plan import BOXES
from rgt_tui.fleet.config import dump_fleet, read_fleet
from rgt_tui.model import BillingVerb, Meter, MeterKind, StopPhase
from rgt_tui.profiles import (
    action_for,
    fleet_rate,
    list_kept_charges,
    list_manual_steps,
    load_profile,
)
from rgt_tui.providers import Provider, Providers, carry_out
from tests.contract.providers.conftest import Clock, permit_for

SPECS = tuple(describe_box(box, Path("/demo"), 2200, "http://127.0.0.1:1") for box in BOXES)
RUNPOD, VAST, AUTODL = "runpod-demo", "vast-demo", "autodl-demo"


class World:
    """The demo's control planes without their boxes, and what was done to those."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []
        self.planes = ControlPlanes(BOXES, self._changed)
        self.clock = Clock()

    async def _changed(self, box: str, action: str) -> None:
        self.changes.append((box, action))

    async def start(self) -> None:
        await self.planes.start({box.name: 2200 + place for place, box in enumerate(BOXES)})
        for box in BOXES:
            self.planes.find_server(box.name).settle_s = 0.0
        self.providers = Providers(env=self.planes.env)

    def box(self, name: str) -> Provider:
        (spec,) = (spec for spec in SPECS if spec.name == name)
        assert spec.provider is not None
        url = self.planes.find_server(name).base_url
        return self.providers.open_control_plane(
            msgspec.structs.replace(spec.provider, base_url=url)
        )

    async def meters(self) -> dict[str, Meter]:
        return {box.name: (await self.box(box.name).list())[0].meter for box in BOXES}

    async def carry_out(self, name: str, verb: BillingVerb) -> StopPhase:
        provider = self.box(name)
        ref = provider.ref
        permit = permit_for(ref, verb)
        steps = carry_out(provider, permit, clock=self.clock, sleep=self.clock.advance, poll_s=1.0)
        return [step.phase async for step in steps][-1]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    await found.start()
    yield found
    await found.providers.close()
    await found.planes.stop()


def test_each_box_has_a_control_plane_of_its_own_platform() -> None:
    kinds = {spec.name: spec.provider.kind if spec.provider else None for spec in SPECS}
    assert kinds == {AUTODL: "autodl", RUNPOD: "runpod", VAST: "vastai"}
    assert all(spec.provider is not None and spec.provider.kind == spec.profile for spec in SPECS)
    assert all(spec.per_hour is None for spec in SPECS), "the platform says what it costs"
    assert {box.profile for box in BOXES} <= set(MAKERS)


def test_a_box_calls_itself_what_its_platform_calls_it() -> None:
    said = {box.name: (box.instance, set(box.environment.values())) for box in BOXES}
    assert said[RUNPOD] == ("runpod-demo", {"runpod-demo"})
    assert said[VAST] == ("31415926", {"31415926"})
    assert said[AUTODL][1] == set(), "it says nothing: the address is compared"


async def test_each_costs_what_its_platform_says_in_its_own_currency(world: World) -> None:
    meters = await world.meters()
    assert {meter.error for meter in meters.values()} == {None}
    assert {meter.kind for meter in meters.values()} == {MeterKind.COMPUTE_AND_STORAGE}
    assert {name: meter.currency for name, meter in meters.items()} == {
        AUTODL: "CNY",
        RUNPOD: "USD",
        VAST: "USD",
    }
    assert meters[AUTODL].per_hour == 1.98
    assert meters[RUNPOD].per_hour == pytest.approx(
        0.69 + (2 * DISK_GB * 0.10 + NETWORK_GB * 0.07) / 730
    )
    vast = 0.42 + (DISK_GB + NETWORK_GB) * VAST_STORAGE / 720
    assert meters[VAST].per_hour == pytest.approx(vast, abs=1e-5)
    assert not [name for name, meter in meters.items() if meter.at_least]
    rates = {each.currency: each.value for each in fleet_rate(meters.values())}
    assert set(rates) == {"CNY", "USD"}
    assert rates["CNY"] == 1.98


async def test_each_speaks_its_own_words(world: World) -> None:
    labels = {
        box.name: tuple(world.box(box.name).native_label(verb) for verb in BillingVerb)
        for box in BOXES
    }
    assert labels == {
        AUTODL: ("关机", "释放"),
        RUNPOD: ("Stop", "Terminate"),
        VAST: ("Stop", "Destroy"),
    }
    for name, where in ((AUTODL, 2200), (RUNPOD, 2201), (VAST, 2202)):
        meter = (await world.meters())[name]
        assert (meter.ssh_host, meter.ssh_port) == ("127.0.0.1", where)


async def test_a_stop_and_an_end_really_reach_the_box(world: World) -> None:
    for box in BOXES:
        await world.box(box.name).read(box.instance)
        assert await world.carry_out(box.name, BillingVerb.PARK) is StopPhase.METER_OFF
        assert world.changes[-1] == (box.name, "stop")
        await world.box(box.name).start()
        await world.planes.find_server(box.name).wait_settled()
        assert world.changes[-1] == (box.name, "start")
        await world.carry_out(box.name, BillingVerb.PARK)
        assert await world.carry_out(box.name, BillingVerb.DESTROY) is StopPhase.METER_OFF
        assert world.changes[-1] == (box.name, "terminate")


def test_a_fleet_file_of_the_demo_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(dump_fleet(SPECS))
    read = {box.name: box for box in read_fleet(path).boxes}
    for spec in SPECS:
        again = read[spec.name]
        assert (again.per_hour, again.currency, again.provider) == (
            spec.per_hour,
            spec.currency,
            spec.provider,
        )


@pytest.mark.parametrize(
    ("platform", "verb", "words"),
    [
        ("autodl", BillingVerb.PARK, ("console: 关机", "/usr/bin/shutdown", "15 days")),
        ("autodl", BillingVerb.DESTROY, ("释放",)),
        (
            "vastai",
            BillingVerb.PARK,
            ("console: Stop", "vastai stop instance", "charged until you destroy"),
        ),
        ("vastai", BillingVerb.DESTROY, ("console: Destroy", "vastai destroy instance")),
    ],
)
def test_the_platform_s_own_way_by_hand_is_told(
    platform: str, verb: BillingVerb, words: tuple[str, ...]
) -> None:
    told = "\n".join(
        text for _, text in list_manual_steps(action_for(load_profile(platform), verb))
    )
    assert all(word in told for word in words), told
    assert list_manual_steps(None) == ()


def test_no_other_platform_speaks_runpod_s_rules() -> None:
    for platform in ("autodl", "vastai"):
        for verb in BillingVerb:
            told = "\n".join(list_kept_charges(load_profile(platform), verb))
            assert told
            assert "twice" not in told
            assert "terminated" not in told
            assert "$" not in told, "its prices are not published, or not in dollars"
    assert "¥0.01 per GB and day" in "\n".join(
        list_kept_charges(load_profile("autodl"), BillingVerb.PARK)
    )
    assert list_kept_charges(None, BillingVerb.PARK) == ("unknown: the platform has no profile",)
