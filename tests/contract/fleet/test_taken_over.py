"""A running fleet takes over other boxes: those that stay are not disturbed, those that leave end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo import LocalRunPod
from rgt_tui.fleet import Fleet
from rgt_tui.model import BoxSpec, FleetState, LinkState, ProviderRef
from rgt_tui.profiles import ProfileError
from tests.contract.fleet.test_sessions import gone, running
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.conftest import real_sshd as real_sshd

replace = msgspec.structs.replace


@pytest.fixture
def spec(real_sshd: RealSshd) -> BoxSpec:
    return replace(real_sshd.spec, interval=0.2)


def names(fleet: Fleet) -> list[str]:
    return [box.spec.name for box in fleet.state.boxes]


async def test_boxes_come_and_go_and_the_others_go_on(spec: BoxSpec, tmp_path: Path) -> None:
    async with running(spec, folder=tmp_path) as run:
        fleet, first = run.fleet, replace(spec, name="a-new-one")
        before = await run.more()
        assert before.hello is not None
        await fleet.set_boxes([first, spec])
        fleet.publish_now()
        assert names(fleet) == ["a-new-one", spec.name], "as the file has them"
        new = await run.more(name="a-new-one")
        assert new.hello is not None
        stayed = await run.more()
        assert (stayed.counters.connects, stayed.counters.gaps, stayed.hello) == (
            1,
            0,
            before.hello,
        )
        dearer = replace(first, per_hour=2.0)
        await fleet.set_boxes([dearer])
        await gone(before.hello.pid)
        fleet.publish_now()
        assert names(fleet) == ["a-new-one"]
        again = await run.until(
            lambda box: box.link is LinkState.LIVE and box.spec == dearer, "a-new-one"
        )
        assert again.spec.per_hour == 2.0
        with pytest.raises(ProfileError):
            await fleet.set_boxes([replace(dearer, profile="nimbus")])
        assert (await run.more(name="a-new-one")).spec == dearer
        texts = [event.text for event in fleet.state.events if event.box == ""]
        assert texts == [
            "the fleet file has changed: new: a-new-one",
            f"the fleet file has changed: described in another way: a-new-one; gone: {spec.name}",
        ]


async def test_the_account_of_a_new_box_is_asked_at_once(tmp_path: Path) -> None:
    server = LocalRunPod(settle_s=0.0)
    await server.start()
    server.add_pod("pod1", "train-a", created=1_790_000_000.0)
    server.add_pod("pod2", "unseen", created=1_790_000_000.0)
    lab = BoxSpec(name="lab", host="lab.invalid")
    ref = ProviderRef("runpod", "pod1", base_url=server.base_url, key_env="SOME_KEY")
    fleet = Fleet(
        [lab],
        audit=tmp_path / "audit",
        env={"SOME_KEY": server.key},
        meter_seconds=3600.0,
        whole=True,
    )
    seen = asyncio.Event()

    def look(state: FleetState) -> None:
        box = state.find_box("pod")
        if box is not None and box.meter.per_hour is not None and state.accounts:
            seen.set()

    fleet.subscribe(look)
    await fleet.start()
    try:
        await fleet.wait_for_accounts()
        await fleet.set_boxes(
            [lab, BoxSpec(name="pod", host="pod.invalid", profile="runpod", provider=ref)]
        )
        async with asyncio.timeout(60):
            await seen.wait()
        (bill,) = fleet.state.accounts
        assert [thing.id for thing in bill.things if thing.what == "machine"] == ["pod2"]
    finally:
        await fleet.stop()
        await server.stop()


async def test_what_is_under_way_on_a_box_that_leaves_is_waited_for(
    spec: BoxSpec, tmp_path: Path
) -> None:
    async with running(spec, folder=tmp_path) as run:
        await run.more()
        fleet, other = run.fleet, replace(spec, name="other")
        with fleet._keep_while_busy(spec.name):
            taking = asyncio.create_task(fleet.set_boxes([other]))
            await run.until(lambda box: box.spec.name == spec.name)
            await run.more()
            await run.until(lambda _: "other" in names(fleet))
            assert not taking.done()
        await taking
        fleet.publish_now()
        assert names(fleet) == ["other"]
