"""RunPod's books against rgt's own count, over the loopback: what they disagree about is in the box's meter."""

from __future__ import annotations

import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.fleet import BoxSession, ConnectLimit, FleetMeters
from rgt_tui.model import BoxSpec, ProviderRef
from rgt_tui.profiles import list_caveats, load_profile
from rgt_tui.ssh import AgentBundle
from tests.contract.providers.conftest import POD, START, World


def doubled(data: object) -> object:
    """The books charge twice what the prices say."""
    assert isinstance(data, dict)
    return {
        "records": [
            {**record, "totalAmount": 2 * record["totalAmount"]} for record in data["records"]
        ],
    }


@pytest.mark.parametrize("wrong", [False, True])
async def test_books_that_charge_more_than_the_price_are_told(world: World, wrong: bool) -> None:
    if wrong:
        world.server.inject_faults(InjectedFault(on="GET /v2/billing", change=doubled, times=-1))
    ref = ProviderRef("runpod", POD, base_url=world.server.base_url, key_env="DEMO_KEY")
    spec = BoxSpec(name="lab", host="h", profile="runpod", provider=ref)
    bundle = AgentBundle(data=b"", digest="", filename="")
    session = BoxSession(
        spec, load_profile("runpod"), bundle, ConnectLimit(), world.clock, lambda _: None
    )
    meters = FleetMeters(
        {"lab": session},
        seconds=60,
        clock=world.clock,
        say=print,
        env={"DEMO_KEY": world.server.key},
    )
    try:
        for _ in range(41):
            await meters.read_all()
            world.clock.now += 61
    finally:
        await meters.close()
    meter = session.state.meter
    assert meter.error is None
    assert meter.booked is not None
    if not wrong:
        assert meter.books_differ is None
        return
    own = (1.38 + 14 / 730) * 40 * 61 / 3600
    assert meter.books_differ == pytest.approx(own, rel=0.05)
    assert meter.books_differ_since == START
    assert any(
        "the provider's books say $0.9" in text and "more" in text for text in list_caveats(meter)
    )
