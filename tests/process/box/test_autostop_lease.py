"""A lease: a hard end that the box keeps itself, and that loses nothing of what runs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.demo import LocalRunPod
from tests.process.box.harness import make_job, until
from tests.process.box.parking_box import (
    POD,
    ParkingBox,
    by_runpod,
    needs_namespaces,
    pod,
    stops_sent,
)

SAVES = """
import os, signal, sys, time
def save(*_):
    time.sleep(0.2)
    open(os.path.join(sys.argv[1], "checkpoint.pt"), "w").write("saved")
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
os.makedirs(sys.argv[1], exist_ok=True)
open(os.path.join(sys.argv[1], "begun"), "w").close()
while True: time.sleep(0.01)
"""
TRAIN = "import sys\nopen(sys.argv[0] + '.begun', 'w').close()\nwhile True: pass\n"


@pytest.fixture
def lab(agent_file: Path, tmp_path: Path) -> Iterator[tuple[ParkingBox, LocalRunPod]]:
    needs_namespaces()
    with pod(agent_file, tmp_path / "lab") as found:
        yield found


def is_off(box: ParkingBox, plane: LocalRunPod) -> bool:
    return plane.pods[POD].status == "EXITED" and not box.on


def test_cells_save_by_sigterm_and_the_box_is_parked_while_it_works(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    box.env["RGT_AUTOSTOP_PACE"] = (
        "0.2"  # half a minute for the cell to save, on a machine that is busy
    )
    (box.folder / "saves.py").write_text(SAVES)
    command = [sys.executable, str(box.folder / "saves.py"), "{out}"]
    job = make_job(box.folder / "job", command, ["a", "b"], on_sigterm="saves")
    runner = box.spawn(*agent_words(box, "queue", "run", "--job", str(job)))
    until(lambda: (job / "out/a/begun").exists(), "the cell")
    armed = box.arm(mode="lease", stop=by_runpod(plane), jobs=[str(job)], lease_s=2.0)
    assert (armed["reasons"], armed["status"]["saving"], armed["status"]["unsaving"]) == (
        [],
        ["a"],
        [],
    )
    until(lambda: is_off(box, plane), "the stop")
    runner.wait()
    assert (job / "out/a/checkpoint.pt").read_text() == "saved"
    copied = box.durable / "rgt-autostop" / str(job / "out/a/checkpoint.pt").lstrip("/")
    assert copied.read_text() == "saved"
    cells = {
        cell["name"]: cell["state"]
        for cell in json.loads((job / "state.json").read_text())["cells"]
    }
    assert cells == {"a": "interrupted", "b": "waiting"}
    events = [line["event"] for line in box.story()]
    assert [event for event in events if event in ("warned", "stopped-lease", "terminated", "intent")] == [
        "warned", "stopped-lease", "terminated", "intent",
    ]  # fmt: skip


def test_runs_are_ended_only_if_the_box_can_be_stopped(lab: tuple[ParkingBox, LocalRunPod]) -> None:
    """Once armed, the key loses its right to stop: the training goes on, and the box calls, until it may again."""
    box, plane = lab
    box.env["RGT_AUTOSTOP_PACE"] = "0.2"
    (box.folder / "saves.py").write_text(SAVES)
    command = [sys.executable, str(box.folder / "saves.py"), "{out}"]
    job = make_job(box.folder / "job", command, ["a"], on_sigterm="saves")
    with box.recorder_held():
        assert box.arm(mode="lease", stop=by_runpod(plane), jobs=[str(job)], lease_s=1.0)["ok"]
        plane.machine_keys_read_only = True
        box.env["RGT_AUTOSTOP_PACE"] = "0.002"
        runner = box.spawn(*agent_words(box, "queue", "run", "--job", str(job)))
        until(lambda: (job / "out/a/begun").exists(), "the cell")
    box.kill_recorder()
    assert box.run("record").returncode == 0
    until(lambda: len(box.told("failed")) > 1, "a second failure")
    assert "no run was stopped, because this box cannot be stopped" in box.told("failed")[0]
    assert "may read this instance, but not stop it (403" in box.told("failed")[0]
    assert (box.told("stopped-lease"), stops_sent(plane), runner.poll()) == ([], 0, None)
    assert not (job / "out/a/checkpoint.pt").exists()
    plane.machine_keys_read_only = False
    until(lambda: is_off(box, plane), "the stop")
    runner.wait()


def agent_words(box: ParkingBox, *words: str) -> list[str]:
    return [box.python, "-I", "-S", str(box.path), *words]


def test_a_run_that_is_not_known_to_save_must_be_accepted(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    (box.folder / "train.py").write_text(TRAIN)
    box.spawn(sys.executable, str(box.folder / "train.py"))
    refused = until(
        lambda: [
            found
            for found in [box.arm(mode="lease", stop=by_runpod(plane), rehearse=True)]
            if found["status"]["unsaving"]
        ]
    )[0]
    name = refused["status"]["unsaving"][0]
    assert refused["ok"] is False
    assert refused["reasons"] == [f"not known to save on SIGTERM, and not accepted: {name}"]
    assert box.arm(mode="lease", stop=by_runpod(plane), accept_unsaving=[name], lease_s=1.0)["ok"]
    until(lambda: is_off(box, plane), "the stop")


def test_one_that_began_after_the_arming_is_told_and_holds_the_box_until_it_ends(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    (box.folder / "train.py").write_text(TRAIN)
    with box.recorder_held():
        assert box.arm(mode="lease", stop=by_runpod(plane), lease_s=3.0)["ok"]
        box.spawn(sys.executable, str(box.folder / "train.py"))
        until((box.folder / "train.py.begun").exists, "the run")
    until(lambda: box.told("failed"), "the word")
    assert (
        "the lease is over, but not parked: not known to save on SIGTERM" in box.told("failed")[0]
    )
    assert (box.on, stops_sent(plane)) == (True, 0)
    until(lambda: box.autostop("--status")["lease"]["state"] == "failed", "its state")
    until(lambda: len(box.autostop("--status")["lease"]["unsaving"]) == 1, "the run in its way")
    assert len(box.told("failed")) == 1
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(box.folder / "train.py") in (
                entry / "cmdline"
            ).read_text().split("\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue
    until(lambda: is_off(box, plane), "the stop")


def test_a_lease_keeps_its_end_across_recorders_and_can_be_kept_longer(
    lab: tuple[ParkingBox, LocalRunPod],
) -> None:
    box, plane = lab
    assert box.arm(mode="lease", stop=by_runpod(plane), lease_s=600.0, warn_s=1.0)["ok"]
    until(lambda: box.autostop("--status")["lease"]["stops_in_s"], "the end in sight")
    box.kill_recorder()
    assert box.run("record").returncode == 0
    left = until(lambda: box.autostop("--status")["lease"]["stops_in_s"], "the end in sight")
    assert 0 < left < 600
    kept = box.autostop("--keep", "2h")["lease"]
    assert kept["kept_until"] is not None
    until(lambda: box.autostop("--status")["lease"]["stops_in_s"] > 7000, "its new end")
    assert box.autostop("--disarm", "--mode", "lease")["lease"] is None
