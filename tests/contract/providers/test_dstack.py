"""dstack instances whose numbers are used again, which the real server does and no recording can wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rgt_tui.model import Lifecycle, MeterKind, ProviderRef
from rgt_tui.providers import Provider, Providers
from tests.contract.providers.conftest import Clock
from tests.contract.providers.fakes.local_dstack import LocalDstack, LocalInstance

BOX = "main/lab/0"
LATER = LocalInstance(
    "main", "lab", 0, uuid="00000000-0000-4000-8000-00000000000f", created="2026-11-21T08:00:00Z"
)


@pytest.fixture
async def server() -> AsyncIterator[LocalDstack]:
    """A server with one instance."""
    server = LocalDstack(clock=Clock(), settle_s=0.0)
    server.add(LocalInstance("main", "lab", 0))
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def box(server: LocalDstack) -> AsyncIterator[Provider]:
    """The control plane of that instance, which has read it."""
    providers = Providers(
        clock=Clock(), env={"K": server.key}, home=Path("/nonexistent"), timeout_s=60.0
    )
    provider = providers.open_control_plane(ProviderRef("dstack", BOX, server.base_url, "K"))
    assert (await provider.read(BOX)).lifecycle is Lifecycle.RUNNING
    yield provider
    await providers.close()


async def test_an_instance_that_got_the_number_of_another_is_not_taken_for_it(
    server: LocalDstack, box: Provider
) -> None:
    server.instances[BOX].status = "terminated"
    server.instances["later"] = LATER
    meter = await box.read(BOX)
    assert (meter.lifecycle, meter.kind) == (Lifecycle.GONE, MeterKind.NONE)
    assert [one.meter.kind for one in await box.list()] == [MeterKind.COMPUTE_AND_STORAGE]
    del server.instances[BOX]
    meter = await box.read(BOX)
    assert (meter.lifecycle, meter.kind) == (Lifecycle.UNKNOWN, MeterKind.UNKNOWN)
    assert "another instance under the name main/lab/0" in (meter.error or "")


async def test_two_instances_under_one_name_are_neither_of_them(
    server: LocalDstack, box: Provider
) -> None:
    server.instances["later"] = LATER
    fresh = Providers(
        clock=Clock(), env={"K": server.key}, home=Path("/nonexistent"), timeout_s=60.0
    )
    meter = await fresh.open_control_plane(box.ref).read(BOX)
    assert (meter.lifecycle, meter.kind) == (Lifecycle.UNKNOWN, MeterKind.UNKNOWN)
    assert "two instances under the name main/lab/0" in (meter.error or "")
    await fresh.close()
