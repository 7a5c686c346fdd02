"""What holds and is not said: muted, covered by a finding, told of another box. It is not over; and two rgt agree."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import alerting
from rgt_tui.health import mutes
from rgt_tui.model import Finding, Lifecycle, LinkState, Meter, MeterKind, ProviderRef, Severity
from tests.contract.alerts.conftest import FULL, KEY, SPEC, World, opened
from tests.unit.triage.builders import NOW, cell, queue, sample

replace = msgspec.structs.replace
INODES = Finding(
    "U7", "No inodes", Severity.FATAL, "inodes of /workspace", "OSError", "log", reading="all used"
)


def told(world: World) -> list[tuple[str, str]]:
    return [(event.what, event.id) for event in world.ear.heard]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    paces = replace(alerting.ALERTING_PACES, save_s=0.0, reread_s=0.02)
    monkeypatch.setattr(alerting, "ALERTING_PACES", paces)


async def test_what_is_muted_is_not_over() -> None:
    async with opened(World(resolved=True, every_s=1.0)) as world:
        world.see(sample=FULL)
        await world.until(lambda: len(world.ear.heard) == 1)
        world.alerting.mute_alert("vast-demo", "inodes:/workspace", None)
        world.see(sample=FULL)
        world.see(sample=FULL, events=(), link=LinkState.REFUSED_KEY)  # something else to tell
        await world.until(lambda: len(world.ear.heard) == 2)
        assert told(world) == [("raised", "inodes:/workspace"), ("raised", "host-key")]
        for _ in range(3):
            world.see(60, sample=sample())
        assert [
            event.text
            for event in world.events
            if "free inodes again" in event.text and not event.muted
        ] == []
        await world.until(lambda: len(world.ear.heard) == 4)
        assert told(world)[2:] == [("resolved", "inodes:/workspace"), ("resolved", "host-key")]


async def test_what_a_finding_covers_is_not_over_also_for_the_next_rgt(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path, resolved=True)) as world:
        world.see(sample=FULL)
        await world.until(lambda: len(world.ear.heard) == 1)
        world.see(sample=FULL, findings=(INODES,))
        await world.until(lambda: len(world.ear.heard) == 2)
        assert told(world)[1] == ("raised", "finding:U7:inodes of /workspace:")
    async with opened(World(path, now=NOW + 60, resolved=True)) as later:
        later.see(link=LinkState.REFUSED_KEY, sample_at=NOW)  # not seen yet; and something to tell
        await later.until(lambda: len(later.ear.heard) == 1)
        later.see(sample=FULL, findings=(INODES,), queues=(queue(cell(state="failed")),))
        await later.until(lambda: ("raised", "failed:lstm-b") in told(later))
        assert ("resolved", "inodes:/workspace") not in told(later)
        for _ in range(3):
            later.see(60, sample=sample())
        await later.until(lambda: ("resolved", "inodes:/workspace") in told(later))


async def test_what_a_finding_has_covered_has_not_begun_when_the_finding_is_gone() -> None:
    async with opened(World()) as world:
        world.see(sample=FULL, findings=(INODES,))
        await world.until(lambda: len(world.ear.heard) == 1)
        assert [alert.id for alert in world.see(sample=FULL).alerts] == ["inodes:/workspace"]
        failed = (queue(cell(state="failed", exit_code=1)),)
        world.see(sample=FULL, queues=failed)
        await world.until(lambda: len(world.ear.heard) == 2)
        assert told(world)[1] == ("raised", "failed:lstm-b"), (
            "and the one before it was passed over"
        )


async def test_a_sink_that_hears_no_findings_is_told_what_a_finding_stands_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "alerts.json"
    only: dict[str, Any] = {"resolved": True, "kinds": ("inodes", "failed")}
    async with opened(World(path, **only)) as world:
        world.see(findings=(INODES,))
        world.see(sample=FULL, findings=(INODES,))
        await world.until(lambda: len(world.ear.heard) == 1)
        world.see(sample=FULL)
    async with opened(World(path, now=NOW + 60, **only)) as later:
        later.see(sample=FULL, findings=(INODES,), queues=(queue(cell(state="failed")),))
        await later.until(lambda: len(later.ear.heard) == 1)
        assert told(world) + told(later) == [
            ("raised", "inodes:/workspace"),
            ("raised", "failed:lstm-b"),
        ]
        for _ in range(3):
            later.see(60, sample=sample())
        await later.until(lambda: len(later.ear.heard) == 3)
        assert ("resolved", "inodes:/workspace") in told(later)


async def test_a_sink_that_hears_findings_is_told_once(tmp_path: Path) -> None:
    async with opened(World(kinds=("inodes", "finding", "failed"))) as world:
        world.see(sample=FULL, findings=(INODES,))
        world.see(sample=FULL, findings=(INODES,), queues=(queue(cell(state="failed")),))
        await world.until(lambda: len(world.ear.heard) == 2)
        assert {id_ for _, id_ in told(world)} == {
            "finding:U7:inodes of /workspace:",
            "failed:lstm-b",
        }


async def test_a_muted_alert_stays_quiet_also_beneath_a_finding() -> None:
    async with opened(World(kinds=("inodes", "failed"))) as world:
        world.see()
        world.alerting.mute_alert("vast-demo", "inodes", 3600)
        world.see(sample=FULL, findings=(INODES,))
        world.see(sample=FULL, findings=(INODES,), queues=(queue(cell(state="failed")),))
        await world.until(lambda: bool(world.ear.heard))
        assert told(world) == [("raised", "failed:lstm-b")]


async def test_a_mute_of_another_rgt_counts_here(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as one, opened(World(path)) as other:
        one.see(sample=FULL)
        other.see()
        await one.until(lambda: len(one.ear.heard) == 1)
        one.alerting.mute_alert("vast-demo", "inodes", None)
        woken = other.woken
        await other.until(lambda: other.woken > woken)
        assert other.alerting.has_pending_boxes(other.now)
        assert [alert.muted for alert in other.see(0.1, sample=FULL).alerts] == [True]
        assert other.ear.heard == []


async def test_a_mute_until_it_is_over_is_not_ended_by_who_has_not_seen_it(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as one, opened(World(path)) as other:
        one.see(sample=FULL)
        await one.until(lambda: len(one.ear.heard) == 1)
        one.alerting.mute_alert("vast-demo", "inodes", None)
        await other.until(lambda: bool(mutes.load_alerts(path).mutes))
        await other.until(lambda: other.woken > 0)
        other.see(60)
        other.see(60, link=LinkState.REFUSED_KEY)  # which writes the file
        await other.until(
            lambda: any(a.id == "host-key" for a in mutes.load_alerts(path).boxes[KEY].alerts)
        )
        assert [mute.what for mute in mutes.load_alerts(path).mutes] == ["inodes"]
        assert one.see(5, sample=FULL).alerts[0].muted


async def test_what_a_provider_says_is_not_over_before_it_was_read_again(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    stopped = Meter(MeterKind.STORAGE_ONLY, Lifecycle.STOPPED, at=NOW, source="RunPod")
    spec = replace(SPEC, profile="autodl")
    told: dict[str, Any] = {
        "spec": spec,
        "link": LinkState.UNREACHABLE,
        "sample_at": NOW - 13.5 * 86400,
    }
    async with opened(World(path, resolved=True)) as world:
        world.see(**told, meter=replace(stopped, lifecycle=Lifecycle.RUNNING))
        world.see(**told, meter=replace(stopped, at=NOW - 13.5 * 86400))
        world.see(500, **told, meter=replace(stopped, error="503", at=NOW - 700))
        assert {alert.id for alert in world.state.alerts} >= {"clock", "stopped", "meter"}
    async with opened(World(path, now=NOW + 600, resolved=True)) as later:
        later.see(**told, meter=Meter())
        later.see(5, **told, meter=Meter())
        assert {alert.id for alert in later.state.alerts} >= {"clock", "stopped", "meter"}
        later.see(5, **told, meter=replace(stopped, lifecycle=Lifecycle.RUNNING, at=later.now))
        assert not {alert.id for alert in later.state.alerts} & {"clock", "stopped", "meter"}


async def test_a_mute_that_came_a_moment_before_a_message_counts(tmp_path: Path) -> None:
    """The other rgt has raised the alert already, and hears of the mute only as it is about to tell."""
    path = tmp_path / "alerts.json"
    async with opened(World(path)) as world:
        mutes.update_alerts(path, lambda old: replace(old, mutes=statefile_mute()), NOW)
        world.see(sample=FULL, link=LinkState.LIVE, clock_skew=500.0)
        for _ in range(3):
            world.see(40, sample=FULL, clock_skew=500.0)
        await world.until(lambda: bool(world.ear.heard))
        assert told(world) == [("raised", "clock-skew")]


def statefile_mute() -> tuple[Any, ...]:
    from rgt_tui.health import put_mute

    return put_mute((), KEY, "inodes:/workspace", None, NOW)


async def test_an_account_is_told_of_once() -> None:
    poor = Meter(
        MeterKind.COMPUTE_AND_STORAGE,
        Lifecycle.RUNNING,
        at=NOW,
        source="RunPod",
        balance=1.0,
        burn_per_hour=1.0,
    )
    refs = [
        ProviderRef("runpod", "a"),
        ProviderRef("runpod", "b"),
        ProviderRef("runpod", "c", key_env="OTHER"),
    ]
    specs = [replace(SPEC, name=ref.instance, provider=ref) for ref in refs]
    world = World(digest_over=9)
    await world.alerting.start_delivery(specs, world.wake)
    try:
        shown = {}
        for _ in range(2):
            for spec in specs:
                shown[spec.name] = [alert.id for alert in world.see(spec=spec, meter=poor).alerts]
        assert shown == {"a": ["balance"], "b": [], "c": ["balance"]}
        await world.until(lambda: len(world.ear.heard) == 2)
        gone = replace(poor, lifecycle=Lifecycle.GONE, kind=MeterKind.NONE)
        for _ in range(8):
            world.see(60, spec=specs[0], meter=gone, link=LinkState.UNREACHABLE, sample_at=NOW - 9)
        assert [alert.id for alert in world.see(spec=specs[1], meter=poor).alerts] == ["balance"]
    finally:
        await world.alerting.close()


async def test_a_disk_that_hangs_stops_no_sink_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    real = mutes.update_alerts

    def hang(*arguments: Any) -> Any:
        answers.wait()
        return real(*arguments)

    monkeypatch.setattr(alerting, "update_alerts", hang)
    monkeypatch.setattr(alerting, "ALERTING_PACES", replace(alerting.ALERTING_PACES, disk_s=0.02))
    path = tmp_path / "alerts.json"
    try:
        async with opened(World(path)) as world:
            world.see(sample=FULL)
            await world.until(lambda: bool(world.ear.heard))
            assert [alert.id for alert in world.alerting.alerts] == ["alerts-file"]
            monkeypatch.setattr(
                alerting, "ALERTING_PACES", replace(alerting.ALERTING_PACES, disk_s=20.0)
            )
            answers.set()
            await world.until(lambda: not world.alerting.alerts)
        assert mutes.load_alerts(path).told
    finally:
        answers.set()


async def test_a_fault_in_keeping_the_file_is_said_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise ValueError("it is poisoned")

    monkeypatch.setattr(alerting, "update_alerts", fail)
    async with opened(World(tmp_path / "alerts.json")) as world:
        world.see(sample=FULL)
        await world.until(lambda: bool(world.ear.heard))
        (alert,) = world.alerting.alerts
        assert "ValueError: it is poisoned; this is a fault of rgt" in alert.text
        monkeypatch.setattr(alerting, "update_alerts", mutes.update_alerts)
        await world.until(lambda: not world.alerting.alerts)
