"""The fleet's alerts as a whole: books, mutes, the file, and sinks that fail; with the real engine at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import ALERTING_PACES, Fleet, FleetAlerting
from rgt_tui.fleet.config.loading import parse_fleet
from rgt_tui.health import delivery, load_alerts, parse_alerts
from rgt_tui.model import (
    BillingVerb,
    BoxSpec,
    Finding,
    FleetState,
    Lifecycle,
    LinkState,
    Meter,
    MeterKind,
    Severity,
    StopPhase,
    StopProgress,
)
from tests.contract.alerts.conftest import FULL, KEY, SPEC, Receiver, World, opened
from tests.free_ports import free_port
from tests.unit.triage.builders import DATA, NOW, ROOT, cell, queue, sample

replace = msgspec.structs.replace
STOPPED = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, at=NOW, source="Vast.ai")


async def test_a_box_gets_its_alerts_and_the_fleet_its_words() -> None:
    async with opened(World()) as world:
        assert world.see().alerts_kept
        assert world.see(sample=FULL).alerts[0].id == "inodes:/workspace"
        world.see(60, sample=sample())
        world.see(60, sample=sample())
        assert world.state.alerts == ()
    assert [(event.level, event.text) for event in world.events] == [
        ("error", "/workspace 97% of its inodes used (4,000 of 4,096)"),
        ("info", "/workspace has free inodes again, after 1m00"),
    ]


async def test_what_the_fleet_tells_anyway_is_not_told_twice() -> None:
    async with opened(World()) as world:
        world.see(queues=(queue(cell(state="failed", exit_code=1)),))
        assert [alert.id for alert in world.state.alerts] == ["failed:lstm-b"]
        assert world.events == []


async def test_a_box_is_not_judged_again_within_a_second_unless_it_matters() -> None:
    async with opened(World()) as world:
        world.see()
        assert world.see(0.5, sample=FULL).alerts == ()
        assert world.alerting.has_pending_boxes(world.now)
        assert world.see(0.6, sample=FULL).alerts != ()
        assert not world.alerting.has_pending_boxes(world.now)
        failed = (queue(cell(state="failed", exit_code=1)),)
        assert len(world.see(0.1, sample=FULL, queues=failed).alerts) == 2


async def test_a_box_that_does_not_change_is_judged_now_and_then() -> None:
    async with opened(World()) as world:
        world.see()
        assert (
            world.alerting.boxes_to_judge(world.now + ALERTING_PACES.judge_s - 0.1) == frozenset()
        )
        assert world.alerting.boxes_to_judge(world.now + ALERTING_PACES.judge_s + 1.0) == {
            "vast-demo"
        }
        assert (
            world.alerting.boxes_to_judge(world.now + ALERTING_PACES.judge_s + 1.5) == frozenset()
        ), "looks once a second"


async def test_a_sink_is_told_once_and_a_restart_does_not_tell_again(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see(sample=FULL)
        await world.until(lambda: bool(world.ear.heard))
        since = world.state.alerts[0].since
    (event,) = world.ear.heard
    assert (event.title, event.level) == ("vast-demo: inodes", "error")
    async with opened(World(path, now=NOW + 3600)) as later:
        later.see(link=LinkState.CONNECTING, sample_at=NOW)
        assert [alert.since for alert in later.state.alerts] == [since]
        later.see(sample=FULL, queues=(queue(cell(state="failed", exit_code=1)),))
        await later.until(lambda: bool(later.ear.heard))
        assert [event.id for event in later.ear.heard] == ["failed:lstm-b"]
        assert later.state.alerts[-1].since == since
        assert later.events == []


async def test_a_mute_is_quiet_everywhere_and_outlives_rgt(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see()
        world.alerting.mute_alert("vast-demo", "inodes", 3600)
        assert world.woken
        assert world.alerting.boxes_to_judge(world.now) == {"vast-demo"}
        assert [alert.muted for alert in world.see(sample=FULL).alerts] == [True]
    assert world.ear.heard == []
    assert [(event.text, event.level, event.muted) for event in world.events] == [
        ("/workspace 97% of its inodes used (4,000 of 4,096) (muted)", "error", True)
    ], "for the journal alone"
    async with opened(World(path, now=NOW + 1800)) as later:
        assert later.alerting.take_events() == [], "what an earlier rgt has muted is no news"
        assert [alert.muted for alert in later.see(sample=FULL).alerts] == [True]
        later.alerting.mute_alert("vast-demo", "inodes", 0)
        assert [event.text for event in later.alerting.take_events()] == ["no longer muted: inodes"]
        assert [alert.muted for alert in later.see(0.1, sample=FULL).alerts] == [False]
        await later.until(lambda: bool(later.ear.heard))
    async with opened(World(path, now=NOW + 7200)) as third:
        assert third.see(sample=FULL).alerts[0].muted is False


async def test_a_mute_expires_by_itself() -> None:
    async with opened(World()) as world:
        world.see(sample=FULL)
        world.alerting.mute_alert("vast-demo", "inodes:/workspace", 60)
        (muted,) = world.alerting.take_events()
        assert (muted.at, muted.box, muted.about) == (
            world.now,
            "vast-demo",
            "mute:inodes:/workspace",
        )
        until = muted.at + 60
        assert muted.text.startswith("muted until ") and muted.text.endswith(": inodes:/workspace")
        assert world.see(10, sample=FULL).alerts[0].muted
        assert not world.see(60, sample=FULL).alerts[0].muted
        (over,) = world.alerting.take_events()
        assert (over.at, over.text) == (
            until,
            "no longer muted: inodes:/workspace, its time has passed",
        )


async def test_a_mute_until_it_is_over_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see(sample=FULL)
        world.alerting.mute_alert("vast-demo", "inodes:/workspace", None)
        assert world.see(3600, sample=FULL).alerts[0].muted
        for _ in range(3):
            world.see(60, sample=sample())
        assert not world.see(60, sample=FULL).alerts[0].muted
    assert load_alerts(path).mutes == ()


async def test_done_but_billing_speaks_again_after_a_day() -> None:
    done: dict[str, Any] = {
        "queues": (queue(cell(state="done"), done=True, runner_alive=False),),
        "runs": (),
        "sample": sample(procs=()),
    }
    async with opened(World()) as world:
        world.see(**done)
        world.alerting.mute_alert("vast-demo", "done-billing", None)
        assert world.see(3600, **done).alerts[0].muted
        assert not world.see(86400, **done).alerts[0].muted


async def test_a_stop_from_here_is_no_surprise_also_for_the_next_rgt(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"

    async def steps() -> AsyncIterator[StopProgress]:
        yield StopProgress(StopPhase.REQUESTED, NOW, "requested")

    async with opened(World(path)) as world:
        world.see()
        assert [
            step.phase
            async for step in world.alerting.watch_action("vast-demo", BillingVerb.PARK, steps())
        ]
    async with opened(World(path)) as later:
        later.see(link=LinkState.UNREACHABLE, meter=STOPPED)
        assert not later.state.alerts
        later.see(link=LinkState.UNREACHABLE, meter=replace(STOPPED, lifecycle=Lifecycle.GONE))
        assert [alert.id for alert in later.state.alerts] == ["gone"]


async def test_a_stop_while_rgt_was_off_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see()
    async with opened(World(path, now=NOW + 86400)) as later:
        later.see(link=LinkState.UNREACHABLE, meter=STOPPED)
        assert [alert.id for alert in later.state.alerts] == ["stopped"]


async def test_a_sink_that_fails_is_an_alert_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_RETRY_S", 0.01)
    async with opened(World()) as world:
        world.ear.broken = True
        world.see(sample=FULL)
        await world.until(lambda: bool(world.alerting.alerts))
        alert = world.alerting.alerts[0]
        assert (alert.id, alert.text) == ("sink:ear", "sink ear: ear answered 500")
        world.ear.broken = False
        await world.until(lambda: not world.alerting.alerts)
        assert [event.text for event in world.alerting.take_events()] == [
            "sink ear: ear answered 500",
            "sink ear works again",
        ]
        assert world.alerting.take_events() == []
        assert [event.id for event in world.ear.heard] == ["inodes:/workspace"]


async def test_a_file_that_cannot_be_kept_costs_nothing_but_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with opened(World(tmp_path / "file" / "alerts.json")) as world:
        assert [alert.id for alert in world.alerting.alerts] == ["alerts-file"]
        world.see(sample=FULL)
        await world.until(lambda: bool(world.ear.heard))
        world.alerting.mute_alert("vast-demo", "inodes", 60)
        assert world.see(sample=FULL).alerts[0].muted
        assert len(world.ear.heard) == 1


async def test_two_fleets_with_a_box_of_one_name_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see(sample=FULL)
        await world.until(lambda: bool(world.ear.heard))
    other = World(path)
    await other.alerting.start_delivery([replace(SPEC, host="10.0.0.9")], other.wake)
    other.see(sample=FULL)
    await other.until(lambda: bool(other.ear.heard))
    await other.alerting.close()
    assert set(load_alerts(path).boxes) == {KEY, "vast-demo@10.0.0.9"}


async def test_the_real_engine_says_that_a_box_does_not_answer(
    tmp_path: Path, receiver: Receiver
) -> None:
    spec = BoxSpec(
        name="lost", host="127.0.0.1", port=free_port(), user="nobody", ssh_config="none"
    )
    settings = parse_alerts(
        {"unreachable": {"hold_s": 0}}, [{"kind": "webhook", "url_env": "HOOK"}]
    )
    path = tmp_path / "alerts.json"
    alerting = FleetAlerting(
        settings, path=path, env={"HOOK": f"{receiver.url}/x"}, gather_s=(0.0, 0.0)
    )
    fleet = Fleet([spec], audit=tmp_path / "audit.jsonl", alerting=alerting)
    seen: asyncio.Queue[FleetState] = asyncio.Queue()
    fleet.subscribe(seen.put_nowait)
    await fleet.start()
    try:
        async with asyncio.timeout(90):
            while True:
                state = await seen.get()
                lost = state.boxes[0]
                if lost.alerts:
                    break
            assert [alert.id for alert in lost.alerts] == ["unreachable"]
            assert lost.alerts_kept
            await asyncio.to_thread(receiver.came.wait, 60)
            fleet.mute_alert("lost", "unreachable", None)
            while not (await seen.get()).boxes[0].alerts[0].muted:
                pass
        assert any(event.text.startswith("unreachable for ") for event in fleet.state.events)
    finally:
        await fleet.stop()
    assert receiver.requests[0].json["id"] == "unreachable"
    assert load_alerts(path).mutes[0].what == "unreachable"


async def test_two_sinks_of_the_fleet_file_that_have_no_name_are_both_told(
    tmp_path: Path, receiver: Receiver
) -> None:
    text = (
        f'[boxes.lost]\nhost = "127.0.0.1"\nport = {free_port()}\nuser = "nobody"\nssh_config = "none"\n'
        "[alerts.unreachable]\nhold_s = 0\n"
        '[[sinks]]\nkind = "webhook"\nurl_env = "HOOK"\n[[sinks]]\nkind = "ntfy"\nurl_env = "TOPIC"\n'
    )
    config = parse_fleet(tmp_path / "rgt.toml", text)
    env = {"HOOK": f"{receiver.url}/hook", "TOPIC": f"{receiver.url}/root/topic"}
    path = tmp_path / "alerts.json"
    fleet = Fleet(
        config.boxes,
        audit=tmp_path / "audit.jsonl",
        alerting=FleetAlerting(config.alerts, path=path, env=env, gather_s=(0.0, 0.0)),
    )
    await fleet.start()
    try:
        async with asyncio.timeout(60):
            # A request that has come is not yet an answer that has been noted.
            while set(load_alerts(path).told) < {"webhook", "ntfy"}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    finally:
        await fleet.stop()
    assert {request.path for request in receiver.requests} == {"/hook", "/root/"}
    assert set(load_alerts(path).told) == {"webhook", "ntfy"}


FINDING = Finding("U7", "No inodes", Severity.FATAL, "inodes of /workspace", "OSError", "log")


async def test_the_end_of_a_finding_pages_nobody_with_what_it_covered(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        world.see(sample=FULL, findings=(FINDING,))
        await world.until(lambda: bool(world.ear.heard))
        assert [event.id for event in world.ear.heard] == ["finding:U7:inodes of /workspace:"]
        # Still full, but the finding ends, say with its run: the reading is shown, and has not begun now.
        assert [alert.id for alert in world.see(sample=FULL).alerts] == ["inodes:/workspace"]
        for _ in range(20):
            world.see(5, sample=FULL)
        await asyncio.sleep(0.05)
        assert len(world.ear.heard) == 1
    async with opened(World(path, now=world.now + 60)) as later:
        for _ in range(5):
            later.see(sample=FULL)
        await asyncio.sleep(0.05)
        assert later.ear.heard == [], "nor does the next rgt"
        later.see(60, sample=sample())
        later.see(60, sample=sample())
        assert later.events == [], "the end of what was never told is not told either"
        later.see(60, sample=FULL)
        await later.until(lambda: bool(later.ear.heard))
        assert [event.id for event in later.ear.heard] == ["inodes:/workspace"], (
            "a new beginning is one"
        )


async def test_what_a_finding_covered_is_told_when_it_becomes_worse() -> None:
    warm = sample(ROOT, replace(DATA, inodes_used=3600))
    async with opened(World()) as world:
        world.see(sample=warm, findings=(FINDING,))
        await world.until(lambda: bool(world.ear.heard))
        world.see(sample=warm)
        world.see(60, sample=FULL)
        await world.until(lambda: len(world.ear.heard) > 1)
        assert (world.ear.heard[-1].id, world.ear.heard[-1].level) == ("inodes:/workspace", "error")


@pytest.mark.parametrize("covered", [True, False])
async def test_a_freed_disk_is_no_trouble_from_the_next_reading_on(covered: bool) -> None:
    async with opened(World(resolved=True)) as world:
        world.see(sample=FULL, findings=(FINDING,) if covered else ())
        await world.until(lambda: bool(world.ear.heard))
        freed = world.see(sample=sample())
        assert freed.alerts == (), "a disk with room is not in trouble, whatever it was 2 s ago"
        if not covered:
            assert world.see(5, sample=FULL).alerts != (), (
                "and in trouble again, without being told again"
            )
        for _ in range(20):
            world.see(5, sample=sample())
        await asyncio.sleep(0.05)
    raised = [event.id for event in world.ear.heard if event.what == "raised"]
    assert raised == ["finding:U7:inodes of /workspace:" if covered else "inodes:/workspace"], (
        "told once"
    )


async def test_the_end_of_a_bill_for_nothing_does_not_sound_like_a_bill() -> None:
    bills = Meter(
        MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING, per_hour=0.42, at=NOW, source="Vast.ai"
    )
    done = (queue(cell(state="done", exit_code=0, ended=NOW - 60), done=True, runner_alive=False),)
    async with opened(World()) as world:
        idle = sample(procs=())
        world.see(sample=idle, queues=done, meter=bills)
        assert [alert.id for alert in world.state.alerts] == ["done-billing"]
        world.see(sample=idle, queues=done, meter=replace(STOPPED, at=world.now + 3))
        world.see(sample=idle, queues=done, meter=replace(STOPPED, at=world.now + 3))
    ended = [event.text for event in world.events if "billed while" in event.text]
    assert ended == ["no longer billed while idle, after 1m04"]
