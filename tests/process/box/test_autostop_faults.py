"""What may go wrong while a box parks itself: killed half-way, blocked, blind, or no room left to write."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from rgt_box.autostop import armed_plan, stop_process

from rgt_tui.demo import InjectedFault, LocalRunPod
from tests.process.box.harness import make_job, until
from tests.process.box.parking_box import (
    POD,
    STOP,
    ParkingBox,
    by_runpod,
    needs_namespaces,
    pod,
    stops_sent,
)


@pytest.fixture
def lab(agent_file: Path, tmp_path: Path) -> Iterator[tuple[ParkingBox, LocalRunPod]]:
    needs_namespaces()
    with pod(agent_file, tmp_path / "lab") as found:
        yield found


def is_off(box: ParkingBox, plane: LocalRunPod) -> bool:
    return plane.pods[POD].status == "EXITED" and not box.on


def kill_the_stop(box: ParkingBox) -> None:
    number = the_stop(box)
    assert number
    os.kill(number, signal.SIGKILL)
    until(lambda: not box.holds("autostop-stop.lock"), "the end of the process")


def the_stop(box: ParkingBox) -> int:
    """Return the pid of the process that carries the stop out; 0 for none."""
    return box.pid_outside(lambda words: "--carry-out" in words)


def events_until(box: ParkingBox, text: str) -> list[str]:
    """Return the events of the story up to the one that says so: what the box does next may have begun."""
    story = box.story()
    last = next(number for number, line in enumerate(story) if text in line["text"])
    return [str(line["event"]) for line in story[: last + 1]]


def test_killed_between_intent_and_answer_it_asks_and_sends_nothing_on_a_guess(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    job = make_job(box.folder / "job", ["true"], ["a"])
    plane.inject_faults(InjectedFault(sends=STOP, hang=True))
    assert box.arm(stop=by_runpod(plane), jobs=[str(job)])["ok"]
    until(lambda: stops_sent(plane), "the call")
    sealed = box.run("queue", "run", "--job", str(job))
    assert (sealed.returncode, b"sealed for a billing action" in sealed.stderr) == (3, True)
    box.kill_recorder()  # first: one that saw the end of the other would ask at once
    kill_the_stop(box)
    before = len(plane.requests)
    assert box.run("record").returncode == 0
    until(lambda: "the stop was not carried out" in " ".join(box.told("withdrawn")), "the question")
    assert plane.requests[before].startswith("GET ")
    assert events_until(box, "the stop was not carried out").count("intent") == 1
    until(lambda: is_off(box, plane), "the stop, once it was idle anew")
    assert stops_sent(plane) == 2


def test_killed_after_it_was_carried_out_the_platform_tells_and_nothing_is_sent(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    plane.inject_faults(InjectedFault(sends=STOP, hang=True))
    assert box.arm(stop=by_runpod(plane))["ok"]
    until(lambda: stops_sent(plane), "the call")
    before = len(plane.requests)
    plane.pods[POD].status = "EXITED"  # its processes live a moment longer
    kill_the_stop(box)
    until(lambda: "off: it is EXITED" in box.told("answered"), "what came of it")
    assert plane.requests[before].startswith("GET ")
    assert events_until(box, "off: it is EXITED").count("intent") == 1


@pytest.mark.parametrize("event", ["sealed", "mirrored"])
def test_killed_before_the_intent_it_is_told_and_begins_anew(
    lab: tuple[ParkingBox, LocalRunPod], event: str
) -> None:
    box, plane = lab
    box.env["RGT_AUTOSTOP_PACE"] = "0.3"  # so that there is a moment to kill it in
    assert box.arm(stop=by_runpod(plane))["ok"]
    until(lambda: box.told(event), event)
    number = the_stop(box)
    if number:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGSTOP)  # what it has told is then all that it has done
    if the_stop(box) and not box.told("intent"):
        kill_the_stop(box)
        until(lambda: box.told("failed"), "the word")
        assert "was killed, or could not be started" in box.told("failed")[0]
        assert stops_sent(plane) == 0
        box.env["RGT_AUTOSTOP_PACE"] = "0.002"  # else it would wait minutes before it tries again
        box.kill_recorder()
        assert box.run("record").returncode == 0
    elif number:  # it was quicker than this test
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGCONT)
    until(lambda: is_off(box, plane), "the stop")


def test_work_that_begins_in_the_last_moment_withdraws_it(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    assert box.arm(stop=by_runpod(plane), idle_s=600.0, warn_s=600.0)[
        "ok"
    ]  # warned of as soon as it is idle
    until(lambda: box.told("warned"), "the warning")
    box.spawn(sys.executable, "-c", "while True: pass")
    until(lambda: box.told("withdrawn") or not box.on)
    assert (box.on, stops_sent(plane)) == (True, 0)
    assert "of a core" in box.told("withdrawn")[0]


def test_the_last_look_is_its_own_and_withdraws_by_itself(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    """No recorder runs here: what is seen, the process that would stop the box has seen."""
    box, plane = lab
    job = make_job(box.folder / "job", ["true"], ["a"])
    (job / "out/a").mkdir(parents=True)
    assert box.arm(stop=by_runpod(plane), jobs=[str(job)], idle_s=600.0)["ok"]
    refused = box.run("remove", "--dry-run")
    assert b"the box is armed to stop itself (idle): disarm it first" in refused.stdout
    box.kill_recorder()

    def withdrawn(**env: str) -> str:
        before = len(box.told("withdrawn"))
        assert box.run("autostop", "--carry-out", "idle", env=env).returncode == 1
        told = box.told("withdrawn")
        assert len(told) == before + 1, box.story()
        return told[-1]

    (job / "out/a/metrics.jsonl").write_text("1\n")
    assert "a result was written" in withdrawn()
    assert "the box was rebooted" in withdrawn(RGT_BOOT_ID="another")
    held = box.run("seal", "--seconds", "60", env={"RGT_ROOTS": str(box.folder)})
    assert held.returncode == 0
    assert "this box has another active seal" in withdrawn()
    nonce = json.loads(held.stdout)["nonce"]
    assert box.run("unseal", nonce).returncode == 0
    box.autostop("--keep", "1h")
    assert "it was put off" in withdrawn()
    box.autostop("--disarm")
    assert box.run("autostop", "--carry-out", "idle").returncode == 1
    assert box.arm(stop=by_runpod(plane), idle_s=600.0)["ok"]
    box.stop_recorder()
    begun = box.folder / "begun"
    work = box.spawn(sys.executable, "-c", f"open({str(begun)!r}, 'w').close()\nwhile True: pass")
    until(begun.exists, "the work")
    assert "of a core" in withdrawn()
    assert stops_sent(plane) == 0
    os.killpg(work.pid, signal.SIGKILL)


NOTEBOOK = "held = b'x' * (280 << 20)\nprint('up', flush=True)\nimport time\ntime.sleep(1000)\n"


def test_a_forgotten_notebook_blocks_it_until_that_very_one_is_accepted(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    (box.folder / "ipykernel_launcher.py").write_text(NOTEBOOK)
    child = box.spawn(
        sys.executable, str(box.folder / "ipykernel_launcher.py"), stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    holder = box.arm(rehearse=True, stop=by_runpod(plane))["status"]["holders"][0]
    assert "ipykernel_launcher" in holder["cmd"]
    wrong = {"pid": holder["pid"], "started": holder["started"] - 60.0}
    assert box.arm(stop=by_runpod(plane), accept_holders=[wrong])["status"]["holders"] != []
    until(
        lambda: any("is idle and uses memory" in why for why in box.autostop("--status")["why"]),
        "the reason",
    )
    until(lambda: box.autostop("--status")["idle_s"] == 0, "the second look")
    right = {key: holder[key] for key in ("pid", "started")}
    assert box.arm(stop=by_runpod(plane), accept_holders=[right])["status"]["holders"] == []
    until(lambda: is_off(box, plane), "the stop")
    child.communicate()


def test_who_types_keeps_it_and_reads_how_to_keep_it_longer(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    master, slave = pty.openpty()
    try:
        box.env["RGT_TERMINALS"] = os.ttyname(slave)
        assert box.arm(stop=by_runpod(plane), warn_s=600.0, idle_s=100.0)["ok"]
        read = b""
        while b"autostop --keep 2h" not in read:
            read += os.read(master, 4096)
        assert b"rgt: Idle for 100 s" in read
        os.write(master, b"ls\n")
        os.read(slave, 100)
        os.utime(
            os.ttyname(slave), (time.time(), time.time())
        )  # the kernel notes it only every 8 seconds
        until(lambda: box.told("withdrawn") or not box.on)
        assert (box.on, stops_sent(plane)) == (True, 0)
        assert "somebody" in box.told("withdrawn")[0]
    finally:
        os.close(master)
        os.close(slave)


def test_a_card_that_cannot_be_read_is_told_and_never_idle(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    (box.folder / "nvidia0").write_text("")
    box.env["RGT_NVIDIA_DEVICES"] = str(box.folder / "nvidia")
    assert box.arm(stop=by_runpod(plane), idle_s=1.0)["ok"]
    until(lambda: box.told("unknown"), "the word")
    assert "there is a GPU, and it cannot be read" in " ".join(box.told("unknown"))
    found = box.autostop("--status")
    assert (found["idle_s"], found["state"], stops_sent(plane)) == (None, "armed", 0)
    assert found["unknown_s"] >= 1.0


def test_results_that_cannot_be_saved_keep_it_running(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    box, plane = lab
    job = make_job(box.folder / "job", ["true"], ["a"])
    (job / "out/a").mkdir(parents=True)
    (job / "out/a/metrics.jsonl").write_text("1\n")
    (box.durable / "rgt-autostop").write_text("a file is in the way")
    assert box.arm(stop=by_runpod(plane), jobs=[str(job)])["ok"]
    until(lambda: box.told("failed"), "the failure")
    assert "results could not be saved" in box.told("failed")[0]
    assert (box.on, stops_sent(plane)) == (True, 0)


def test_a_durable_disk_that_is_no_longer_mounted_keeps_it_running(
    lab: tuple[ParkingBox, LocalRunPod], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy would go to the root's disk, and be erased with it."""
    box, plane = lab
    monkeypatch.setenv(
        "RGT_STATE_DIR", str(box.state)
    )  # not this machine's own, with the runs that are found on it
    assert box.arm(stop=by_runpod(plane), idle_s=3600.0)["ok"]
    box.stop_recorder()
    armed = armed_plan.load_plans(str(box.state))["idle"]
    assert armed["devices"] == {str(box.durable): os.stat(box.durable).st_dev}
    (stop := stop_process.StopAttempt(str(box.state), armed))._save_results()
    stop._armed = armed | {"devices": {str(box.durable): os.stat("/proc").st_dev}}
    with pytest.raises(stop_process.StopFailed, match="is not the one it was armed with"):
        stop._save_results()


def test_an_intent_that_can_be_written_nowhere_is_not_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that is really full, and with no memory to go to."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)], check=True)
    try:
        monkeypatch.setenv("RGT_RAM_DIR", str(full / "ram"))
        armed_plan.store_json(str(full), "x.json", {"a": 1})
        with pytest.raises(OSError, match="No space left"):
            (full / "filler").write_bytes(b"x" * (1 << 20))
        with pytest.raises(armed_plan.PlanNotStored, match="No space left"):
            armed_plan.store_json(str(full), "x.json", {"a": 2})
        monkeypatch.setenv("RGT_RAM_DIR", str(tmp_path))
        armed_plan.store_json(str(full), "x.json", {"a": 3})
        assert [path.read_text() for path in tmp_path.glob("rgt-*/x.json")] == ['{"a":3}\n']
        (full / "filler").unlink()
        armed_plan.store_json(
            str(full), "x.json", {"a": 4}
        )  # what stands in memory would be taken for newer
        assert ((full / "x.json").read_text(), list(tmp_path.glob("rgt-*/x.json"))) == (
            '{"a":4}\n',
            [],
        )
    finally:
        subprocess.run(["umount", str(full)], check=True)


def test_the_warning_reaches_terminals_while_nobody_reads_them() -> None:
    """A terminal whose reader sleeps must not hold the recorder."""
    from rgt_box.autostop import story

    master, slave = pty.openpty()
    os.set_blocking(slave, False)
    try:
        with pytest.raises(BlockingIOError):
            while True:
                os.write(slave, b"x" * 4096)
        os.environ["RGT_TERMINALS"] = os.ttyname(slave)
        done = threading.Thread(target=story.write_to_terminals, args=("soon",))
        done.start()
        done.join(60)
        assert not done.is_alive()
    finally:
        del os.environ["RGT_TERMINALS"]
        os.close(master)
        os.close(slave)
