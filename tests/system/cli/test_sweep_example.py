"""examples/sweep, as it is printed: two boxes, six cells, one is taken away, and everything comes home.

Every command of the page is run in its order on real SSH servers; only a prompt is answered by a script's words.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.demo import LocalRunPod
from rgt_tui.model import ProviderRef
from tests import warm_rgt
from tests.contract.cli.conftest import Rgt
from tests.contract.cli.conftest import rgt as rgt
from tests.contract.ssh.conftest import ALONE, RealSshd, running_sshd
from tests.process.box.harness import master_log, until
from tests.system.cli.test_whole_chain import ROOM, can_be_alone
from tests.system.tree import ROOT

EXAMPLE = ROOT / "examples/sweep"
PATIENCE_S = 240.0
VOLUME = "/workspace"


def printed_commands() -> list[str]:
    """Return the commands of the page, in their order."""
    blocks = re.findall(r"```console\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@dataclass
class SweepStory:
    """A person in a copy of the example, with two machines and their provider."""

    rgt: Rgt
    project: Path
    volume: Path
    """The network volume, as this machine sees it; both machines mount it at `VOLUME`."""
    hosts: dict[str, RealSshd]
    running: dict[str, ExitStack]

    def run_line(self, line: str, *more: str, ends: tuple[int, ...] = (0,)) -> str:
        """Run a line of the page, with further words; return what it printed on both streams."""
        words = [*shlex.split(line)[1:], *more]
        done = warm_rgt.rgt(
            *words, cwd=self.project, env=self.rgt.environment(), timeout=PATIENCE_S
        )
        said = done.stdout + done.stderr
        assert done.returncode in ends, f"{words} ended with {done.returncode}:\n{said}"
        return said

    def copies(self) -> set[str]:
        """Return the cells whose copy on the volume is complete, by their best checkpoint."""
        paths = self.volume.glob("durable/**/best.pt")
        return {path.parent.name for path in paths}

    def job(self, box: str) -> Path:
        return self.hosts[box].folder / "home/jobs/seeds"


def start_host(story: SweepStory, folder: Path, box: str) -> None:
    """Start a machine that knows its id, as a pod does, with processes of its own and the volume."""
    folder.mkdir()
    (folder / "data").symlink_to(story.volume)
    shutil.copy("/etc/passwd", folder / "passwd")
    room = ROOM.replace('mkdir "$new" "$1/data"', 'mkdir "$new"')
    first = ["env", f"RUNPOD_POD_ID={box}-pod", *ALONE, "sh", "-c", room, "sh", str(folder), VOLUME]
    running = story.running[box] = ExitStack()
    story.hosts[box] = running.enter_context(running_sshd(folder, first))
    roots = f"{folder}/home:{VOLUME}"
    (folder / "home/.bashrc").write_text(f"export TMUX_TMPDIR={folder} RGT_ROOTS={roots}\n")


@pytest.mark.full
async def test_the_page_of_the_sweep_example(rgt: Rgt, tmp_path: Path) -> None:
    if not can_be_alone():
        pytest.skip("a machine with processes of its own takes root")
    server = LocalRunPod(clock=time.time, settle_s=0.0)
    await server.start()
    project, volume = tmp_path / "sweep", tmp_path / "volume"
    shutil.copytree(EXAMPLE, project)
    (volume / "durable").mkdir(parents=True)
    rgt.env |= {
        "RUNPOD_TEST_KEY": server.key,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    story = SweepStory(rgt, project, volume, {}, {})
    try:
        for box in ("spot", "lab"):
            server.add_pod(f"{box}-pod", box, created=time.time() + 86_400.0)
            start_host(story, tmp_path / box, box)
        rgt.describe(
            [
                msgspec.structs.replace(
                    story.hosts[box].spec,
                    name=box,
                    profile="runpod",
                    durable=f"{VOLUME}/durable",
                    pattern="^no such training$",
                    provider=ProviderRef(
                        "runpod", f"{box}-pod", server.base_url, "RUNPOD_TEST_KEY"
                    ),
                )
                for box in ("spot", "lab")
            ]
        )
        rgt.env["RGT_FLEET"] = str(rgt.fleet)
        await asyncio.to_thread(tell_the_story, story, server)
    finally:
        for stack in story.running.values():
            stack.close()
        await server.stop()


def tell_the_story(story: SweepStory, server: LocalRunPod) -> None:
    lines = iter(printed_commands())

    def next_line(begins: str) -> str:
        line = next(lines)
        assert line.startswith(f"rgt {begins}"), f"the page goes on with {line}"
        return line

    assert "passed" in story.run_line(next_line("smoke"))
    story.run_line(next_line("queue spot,lab new"))
    shared = story.run_line(next_line("queue spot,lab run"))
    assert "split evenly" in shared
    assert "spot" in story.run_line(next_line("status"))

    watching = story.rgt.start(*shlex.split(next_line("watch"))[1:], "--json")
    try:
        lose_spot_machine(story, watching)
    finally:
        watching.send_signal(signal.SIGTERM)
        watching.communicate(timeout=PATIENCE_S)
    first = story.copies()
    line = next_line("queue spot,lab reconcile")
    hand_over = next_line("queue lab run --hand-over spot")
    early = story.run_line(hand_over, ends=(1, 3))
    assert "Unreachable does not mean stopped" in early
    server.pods["spot-pod"].status = "TERMINATED"
    assert "unknown" in story.run_line(line, ends=(1, 3))
    assert "says gone" in story.run_line(hand_over)

    until(lambda: "QUEUE DONE" in master_log(story.job("lab")), patience=PATIENCE_S)
    assert story.copies() == {f"seed-{number}" for number in range(6)}
    line = next_line("queue lab reconcile")
    until(lambda: "ok" in story.run_line(line, ends=(0, 1)))
    assert first - cells_of(story.job("lab")), "a finished cell of the lost box did not run again"
    curves = story.run_line(next_line("curves lab"))
    assert "IQM" in curves
    assert "ends there" not in curves

    story.run_line(next_line("pull lab --dest"))
    story.run_line(next_line(f"pull lab {VOLUME}/durable {VOLUME}/runs"))
    home = story.project / "results"
    assert {path.parent.name for path in home.rglob("best.pt")} == story.copies()
    story.run_line(next_line("verify"))

    review = json.loads(story.run_line(next_line("down lab --destroy --dry-run"), "--json"))
    assert review["reasons"] == []
    assert "(2026-" in review["checked"]
    consent = ("--confirm", review["phrase"], "--evidence", review["digest"], "--json")
    done: dict[str, Any] = json.loads(
        story.run_line(next_line("down lab --destroy"), *consent).splitlines()[-1]
    )
    assert done["steps"][-1]["phase"] == "meter-off"
    assert "lab" in story.run_line(next_line("audit"))
    assert next(lines, None) is None
    assert server.pods["lab-pod"].status == "TERMINATED"


def lose_spot_machine(story: SweepStory, watching: subprocess.Popen[bytes]) -> None:
    """Take the machine away once a cell is done: its processes and its disk; the volume stays."""
    assert watching.stdout is not None
    for line in watching.stdout:
        body = json.loads(line)
        states = {run["state"] for run in body.get("runs", ())}
        if body.get("box") == "spot" and {"done", "running"} <= states and story.copies():
            break
    else:
        pytest.fail("the watching rgt ended before")
    story.running["spot"].close()
    shutil.rmtree(story.hosts["spot"].folder / "home")


def cells_of(job: Path) -> set[str]:
    """Return the cells in a job's queue; those that were handed over are comments."""
    lines = (job / "queue.txt").read_text().splitlines()
    return {Path(line.split()[0]).stem for line in lines if line and not line.startswith("#")}
