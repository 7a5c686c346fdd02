"""What an account has left: over GraphQL, seldom, and never needed for anything else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rgt_tui.model import Meter, ProviderRef, Secret
from rgt_tui.providers.http import AccountHttp
from rgt_tui.providers.runpod import RunPodAccount, RunPodBox
from tests.contract.providers.conftest import POD, START, Clock, World
from tests.contract.providers.fakes.renting_runpod import RentingRunPod

ASK = "POST /graphql"


class Wealth:
    """A local provider that knows a balance, and the adapter that asks it."""

    def __init__(self, server: RentingRunPod, clock: Clock) -> None:
        self.server = server
        self.clock = clock
        key = Secret(server.key)
        http = AccountHttp(
            server.base_url, lambda: key, console="console", clock=clock, timeout_s=10.0
        )
        self.account = RunPodAccount(
            ProviderRef("runpod", POD, server.base_url), http, clock, tells_balance=True
        )

    async def meter(self) -> Meter:
        return (await RunPodBox(self.account, POD, clock=self.clock).list())[0].meter

    @property
    def asked(self) -> int:
        return self.server.requests.count(ASK)


@pytest.fixture
async def wealth() -> AsyncIterator[Wealth]:
    clock = Clock()
    server = RentingRunPod(clock=clock, sleep=clock.sleep, settle_s=2.0)
    await server.start()
    server.add_pod(POD, "train-a", created=START - 3600)
    found = Wealth(server, clock)
    yield found
    await found.account.http.close()
    await server.stop()


@pytest.mark.parametrize("left", [41.5, 0.0, -3.0])
async def test_the_balance_comes_with_the_meter(wealth: Wealth, left: float) -> None:
    wealth.server.set_balance(left)
    meter = await wealth.meter()
    assert (meter.balance, meter.burn_per_hour) == (left, 1.38)
    wealth.server.set_balance(1.0)
    wealth.clock.now += 299
    assert (await wealth.meter()).balance == left
    wealth.clock.now += 2
    assert (await wealth.meter()).balance == 1.0
    assert wealth.asked == 2


async def test_an_api_that_is_gone_is_seldom_asked_and_nothing_else_suffers(wealth: Wealth) -> None:
    for _ in range(5):
        meter = await wealth.meter()
        assert (meter.balance, meter.burn_per_hour, meter.error) == (None, None, None)
        wealth.clock.now += 60
    assert wealth.asked == 1
    wealth.clock.now += 3600
    await wealth.meter()
    assert wealth.asked == 2


async def test_an_old_balance_is_not_shown_for_ever(wealth: Wealth) -> None:
    wealth.server.set_balance(41.5)
    await wealth.meter()
    wealth.server.set_balance(None)
    wealth.clock.now += 301
    assert (await wealth.meter()).balance is None


async def test_only_runpod_itself_is_asked(world: World) -> None:
    await world.provider.list()
    assert ASK not in world.server.requests
