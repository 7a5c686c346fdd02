"""A box that parks itself by its own key: real recorder, real processes, a platform that really ends them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box.autostop import armed_plan

from rgt_tui.demo import InjectedFault, LocalRunPod
from tests.process.box.harness import make_job, until
from tests.process.box.parking_box import (
    INSTANCE,
    KEY,
    POD,
    STOP,
    ParkingBox,
    by_runpod,
    needs_namespaces,
    pod,
    stops_sent,
    vast,
)

BUSY = "while True: pass"
ACTION = f"POST /v2/pods/{POD}/action"


@pytest.fixture
def lab(agent_file: Path, tmp_path: Path) -> Iterator[tuple[ParkingBox, LocalRunPod]]:
    needs_namespaces()
    with pod(agent_file, tmp_path / "lab") as found:
        yield found


def first_round(box: ParkingBox, plane: LocalRunPod) -> list[str]:
    """Return the events up to the first failure; the next round may have begun, as the box is idle on."""
    made = stops_sent(plane)
    assert made <= len(box.told("intent")), "a call without an intent"
    events = [str(line["event"]) for line in box.story()]
    return events[: events.index("failed") + 1]


def is_off(box: ParkingBox, plane: LocalRunPod) -> bool:
    return plane.pods[POD].status == "EXITED" and not box.on


def test_an_idle_box_parks_itself_and_its_story_stays_on_the_volume(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    job = make_job(box.folder / "job", ["true"], ["a"])
    (job / "out/a").mkdir(parents=True)
    (job / "out/a/metrics.jsonl").write_text("1\n")
    armed = box.arm(stop=by_runpod(plane), jobs=[str(job)])
    assert (armed["ok"], armed["reasons"], armed["status"]["armed"]) == (True, [], True)
    assert armed["status"]["key"]["proved"] is True
    until(lambda: is_off(box, plane), "the stop")
    assert stops_sent(plane) == 1
    # On a busy machine a look may take longer than the limit of one second: then it is withdrawn, and begins anew.
    events = [line["event"] for line in box.story()]
    assert events.count("intent") == 1 and "armed" in events
    steps = [event for event in events if event in ("warned", "sealed", "mirrored", "intent")]
    assert steps[0] == "warned" and steps[-3:] == ["sealed", "mirrored", "intent"]
    kept = [
        json.loads(line)["event"]
        for line in (box.durable / "rgt-autostop.jsonl").read_bytes().splitlines()
    ]
    assert kept[-1] == "intent"
    copied = box.durable / "rgt-autostop" / str(job / "out/a/metrics.jsonl").lstrip("/")
    assert copied.read_text() == "1\n"
    # The key stands nowhere that outlives the process, and no call but this one was made.
    assert not [
        path
        for path in box.folder.rglob("*")
        if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert {request.split()[0] for request in plane.requests if request != ACTION} == {"GET"}


def test_one_at_vast(agent_file: Path, tmp_path: Path) -> None:
    needs_namespaces()
    with vast(agent_file, tmp_path / "lab") as (box, plane):
        stop = {"kind": "vastai", "url": plane.base_url}
        assert box.arm(stop=stop, instance=str(INSTANCE))["reasons"] == []
        until(lambda: plane.instances[INSTANCE].actual == "exited" and not box.on, "the stop")


def test_a_rehearsal_changes_nothing(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    box, plane = lab
    found = box.arm(rehearse=True, stop=by_runpod(plane))
    assert (found["ok"], found["status"]["armed"]) == (True, False)
    assert box.autostop("--status")["armed"] is False
    assert not (box.state / "autostop.json").exists()
    assert box.story() == []


def test_what_cannot_be_armed_is_refused_with_the_reason(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    wrong: dict[str, Any] = {"boot": "another", "instance": "other", "durable": ["/nowhere/at/all"]}
    reasons = box.arm(**{"stop": by_runpod(plane)} | wrong)["reasons"]
    assert "rebooted since your review" in reasons[0]
    assert f"reports that it is {POD}, not other" in reasons[1]
    assert "cannot be written to" in reasons[2]
    stop = {"kind": "vastai", "url": "https://console.vast.ai"}
    reasons = box.arm(stop=stop, durable=[])["reasons"]
    assert "CONTAINER_API_KEY and CONTAINER_ID are not in its environment" in reasons[0]
    assert "no directory that survives" in reasons[1]
    assert box.autostop("--status")["armed"] is False
    for line in (b"", b"[]\n", b'{"mode": "idle"}\n', b'{"mode": "idle", "action": "destroy"}\n'):
        done = box.run("autostop", "--arm", stdin=line)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"autostop: ")


def test_a_key_that_reads_nothing_is_not_armed(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    box, plane = lab
    plane.machine_keys.clear()
    found = box.arm(stop=by_runpod(plane))
    assert found["reasons"] == [
        "not armed: the box's key cannot be used: answered 401: invalid or missing API key"
    ]
    plane.machine_keys[KEY] = "anotherpod"
    assert "answered 403" in box.arm(stop=by_runpod(plane))["reasons"][0]


def test_work_keeps_it_running_and_its_end_does_not(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    box, plane = lab
    work = box.spawn(sys.executable, "-c", BUSY)
    assert box.arm(stop=by_runpod(plane), idle_s=3.0)["ok"]
    until(lambda: any("of a core" in why for why in box.autostop("--status")["why"]), "the reason")
    looked = box.autostop("--status")["limit_s"] * 2 + time.monotonic()
    until(lambda: time.monotonic() > looked)
    assert (stops_sent(plane), box.on) == (0, True)
    os.killpg(work.pid, signal.SIGKILL)
    work.wait()
    kill_inside(box, BUSY)
    until(lambda: is_off(box, plane), "the stop")


def ring_of(box: ParkingBox) -> bytes:
    """Return what the recorder has written, as bytes."""
    return b"".join(path.read_bytes() for path in (box.state / "ring").iterdir())


def kill_inside(box: ParkingBox, words: str) -> None:
    """End what runs on the box with these words."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and words in (entry / "cmdline").read_text().split("\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue


def test_keep_puts_it_off_and_withdraws_a_warning(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    box, plane = lab
    assert box.arm(stop=by_runpod(plane), idle_s=600.0, warn_s=600.0)[
        "ok"
    ]  # warned of as soon as it is idle
    until(lambda: box.told("warned"), "the warning")
    found = box.autostop("--keep", "1h")
    assert found["kept_until"] > time.time() + 3500
    until(lambda: box.told("withdrawn") or not box.on)
    assert (box.on, stops_sent(plane)) == (True, 0)
    assert box.autostop("--disarm")["armed"] is False
    assert box.run("autostop", "--keep", "1h").returncode == 2


def test_a_reboot_disarms_loudly(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    """What a volume has carried over to the next life of the box stops nothing."""
    box, plane = lab
    assert box.arm(stop=by_runpod(plane), idle_s=600.0)["ok"]
    box.power_off()
    box.boot_up()
    found = box.autostop("--status")
    assert (found["armed"], found["state"]) == (False, "disarmed")
    assert "rebooted" in found["why"][0]
    channel = box.watch()
    event = channel.expect(lambda frame: getattr(frame, "kind", "") == "autostop-disarmed")
    assert "idle: the box was rebooted, or its container restarted" in event.text
    assert "autostop" not in (box.state / "autostop.json").read_text()
    assert stops_sent(plane) == 0


def test_a_recorder_that_was_killed_is_told_and_the_next_one_goes_on(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    with box.recorder_held():
        assert box.arm(stop=by_runpod(plane), idle_s=3.0)["ok"]
        box.autostop("--keep", "1h")  # so that it does not stop before the next recorder is at work
    until(lambda: box.autostop("--status")["idle_s"], "idleness")
    box.kill_recorder()
    found = box.autostop("--status")
    assert (found["armed"], found["state"]) == (True, "none")
    assert "no recorder runs" in found["why"][0]
    assert box.run("record").returncode == 0
    assert box.autostop("--status")["state"] == "armed"
    armed = armed_plan.load_plans(str(box.state))["idle"]
    armed_plan.save_plans(str(box.state), {"idle": armed | {"kept_until_boot": 0.0}})
    until(lambda: is_off(box, plane), "the stop")


def test_the_recorders_own_end_does_not_end_an_armed_box(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    assert box.run("record", "--idle-hours", "0.0001").returncode == 0
    assert box.arm(stop=by_runpod(plane), idle_s=2.0)["ok"]
    until(lambda: is_off(box, plane), "the stop")


def test_a_revoked_key_is_told_and_tried_three_times(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    box, plane = lab
    with box.recorder_held():
        assert box.arm(stop=by_runpod(plane), idle_s=1.0)["ok"]
        plane.machine_keys.clear()
    until(lambda: box.told("failed"), "the failure")
    events = first_round(box, plane)
    assert events.count("intent") == events.count("refused") == 3 <= stops_sent(plane)
    assert all("nothing was done: answered 401" in text for text in box.told("refused"))
    assert box.told("failed")[0] == "tried 3 times, and this box is still running: stop it by hand"
    until(lambda: b"autostop-failed" in ring_of(box), "the event")
    assert KEY not in json.dumps(box.story())


def test_a_platform_that_says_yes_and_does_nothing_is_asked_and_told(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    plane.inject_faults(
        InjectedFault(sends=STOP, status=200, raw=b'{"id": "x", "status": "RUNNING"}', times=3)
    )
    assert box.arm(stop=by_runpod(plane), idle_s=1.0)["ok"]
    until(lambda: box.told("failed"), "the failure")
    assert first_round(box, plane).count("intent") == 3 <= stops_sent(plane)
    assert [
        text
        for text in box.told("refused")
        if "was requested, but the box is still running: it is RUNNING" in text
    ]


def test_an_answer_that_is_lost_is_asked_for(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    """The call was carried out, and nobody heard the answer: no second call."""
    box, plane = lab
    plane.inject_faults(InjectedFault(sends=STOP, drop=True, act=True))
    assert box.arm(stop=by_runpod(plane), idle_s=1.0)["ok"]
    until(lambda: is_off(box, plane), "the stop")
    assert stops_sent(plane) == 1


def test_what_came_of_it_is_not_known_and_nothing_is_sent_again(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    with box.recorder_held():
        assert box.arm(stop=by_runpod(plane), idle_s=1.0)["ok"]
        plane.inject_faults(
            InjectedFault(sends=STOP, status=500),
            InjectedFault(on=f"GET /v2/pods/{POD}", status=503, times=-1),
        )
    until(lambda: box.told("failed"), "the failure")
    assert first_round(box, plane).count("intent") == 1 <= stops_sent(plane)
    assert "the outcome of the stop is unknown; it is not sent again" in box.told("failed")[0]
