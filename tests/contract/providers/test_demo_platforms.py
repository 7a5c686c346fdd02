"""Each box of the demo is billed by its own platform's rules, in its own currency, or by its fleet file."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo import LocalRunPod
from rgt_tui.demo.embedded import KEY_ENV, NETWORK_GB, POD_DISK_GB, described, rent
from rgt_tui.demo.plan import BOXES
from rgt_tui.fleet.config.editing import dump_fleet
from rgt_tui.fleet.config.loading import read_fleet
from rgt_tui.fleet.meters import is_priced, metered
from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.evidence import Verb
from rgt_tui.model.money import MeterKind
from rgt_tui.model.protocol import Sample
from rgt_tui.profiles import load_profile
from rgt_tui.profiles.keeps_billing import by_hand, keeps_billing
from rgt_tui.profiles.prices import fleet_rate
from rgt_tui.providers import Providers

SPECS = tuple(described(box, Path("/demo"), 2200, "http://127.0.0.1:1") for box in BOXES)


def test_a_control_plane_is_of_the_box_s_own_platform_or_there_is_none() -> None:
    kinds = {spec.name: spec.provider.kind if spec.provider else None for spec in SPECS}
    assert kinds == {"autodl-demo": None, "runpod-demo": "runpod", "vast-demo": None}
    assert all(spec.provider is None or spec.provider.kind == spec.profile for spec in SPECS)


def test_the_others_have_a_price_in_their_own_currency() -> None:
    prices = {spec.name: (spec.per_hour, spec.currency) for spec in SPECS if is_priced(spec)}
    assert prices == {"autodl-demo": (1.98, "CNY"), "vast-demo": (0.42, "USD")}


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


async def test_the_local_provider_knows_its_own_platform_s_box_alone() -> None:
    server = LocalRunPod(settle_s=0.0)
    await server.start()
    providers = Providers(clock=time.time, env={KEY_ENV: server.key})
    try:
        rent(server, BOXES, {box.name: 2200 + place for place, box in enumerate(BOXES)})
        assert list(server.pods) == ["runpod-demo"]
        spec = next(spec for spec in SPECS if spec.provider is not None)
        assert spec.provider is not None
        ref = msgspec.structs.replace(spec.provider, base_url=server.base_url)
        meter = await providers.open(ref).read(ref.instance)
    finally:
        await providers.close()
        await server.stop()
    assert (meter.currency, meter.kind, meter.error) == ("USD", MeterKind.COMPUTE_AND_STORAGE, None)
    assert meter.per_hour == pytest.approx(0.69 + (2 * POD_DISK_GB * 0.10 + NETWORK_GB * 0.07) / 730)


def test_the_demo_s_sum_has_two_currencies_that_are_not_added() -> None:
    now = 1_790_000_000.0
    sample = Sample(boot="b", seq=1, at=now)
    states = [BoxState(spec=spec, link=Link.LIVE, sample=sample, sample_at=now) for spec in SPECS]
    meters = [metered(state, now) for state in states if is_priced(state.spec)]
    assert {each.currency: each.value for each in fleet_rate(meters)} == {"CNY": 1.98, "USD": 0.42}


@pytest.mark.parametrize(
    ("platform", "verb", "words"),
    [
        ("autodl", Verb.PARK, ("console: 关机", "/usr/bin/shutdown", "15 days")),
        ("autodl", Verb.DESTROY, ("释放",)),
        ("vastai", Verb.PARK, ("console: Stop", "vastai stop instance", "bills for ever")),
        ("vastai", Verb.DESTROY, ("console: Destroy", "vastai destroy instance")),
    ],
)
def test_who_has_no_control_plane_is_told_the_platform_s_own_way(
    platform: str, verb: Verb, words: tuple[str, ...]
) -> None:
    told = "\n".join(by_hand(load_profile(platform), verb))
    assert all(word in told for word in words), told
    assert by_hand(None, verb) == ()


def test_no_other_platform_speaks_runpod_s_rules() -> None:
    for platform in ("autodl", "vastai"):
        for verb in Verb:
            told = "\n".join(keeps_billing(load_profile(platform), verb))
            assert told
            assert "twice" not in told
            assert "terminated" not in told
            assert "$" not in told, "its prices are not published, or not in dollars"
    assert "¥0.01 per GB and day" in "\n".join(keeps_billing(load_profile("autodl"), Verb.PARK))
    assert keeps_billing(None, Verb.PARK) == ("unknown: the platform has no profile",)
