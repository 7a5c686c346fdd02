"""The documented path, by its commands alone, with a training that knows nothing of rgt, on three real sshd hosts.

The training is a small script as tutorials have it: it prints a loss, saves ``latest.pt`` and ``best.pt`` into
``./outputs``, and resumes from there. README's own commands are run as they are printed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm_rgt
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import ALONE, RealSshd, running_sshd
from tests.pseudo_terminal import PseudoTerminal
from tests.system.tree import ROOT

SCRIPT = ROOT / "tests/fixtures/own_script/train.py"
PATIENCE_S = 120.0
HOSTS = ("lab", "b2", "b3")
FOR_EVER = "100000"
"""Epochs: the training ends when the test says so, not when the machine is fast."""


def wait_until(what: str, is_true: Any) -> Any:
    """Polls a condition; returns its first true value."""
    end = time.monotonic() + PATIENCE_S
    while True:
        value = is_true()
        if value:
            return value
        assert time.monotonic() < end, f"never true: {what}"
        time.sleep(0.1)


@dataclass
class Story:
    """A person with a project directory and a home, and the hosts that they can reach."""

    rgt: Rgt
    project: Path
    hosts: dict[str, RealSshd]
    running: dict[str, ExitStack]
    """A host ends when its entry is closed: the click on the provider's console."""

    def run(self, *words: str, ends: int = 0) -> str:
        """Runs a command in the project directory; returns what it printed on both streams."""
        done = warm_rgt.rgt(
            *words, cwd=self.project, env=self.rgt.environment(), timeout=PATIENCE_S
        )
        said = done.stdout + done.stderr
        assert done.returncode == ends, f"{words} ended with {done.returncode}:\n{said}"
        return said

    def json(self, *words: str, ends: int = 0) -> dict[str, Any]:
        """Runs a command that prints JSON; returns its last object."""
        words = (words[0], "--json", *words[1:])
        done = warm_rgt.rgt(
            *words, cwd=self.project, env=self.rgt.environment(), timeout=PATIENCE_S
        )
        assert done.returncode == ends, (
            f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def type(self, *words: str, answers: dict[str, str], ends: int = 0) -> str:
        """Runs a command at a terminal; types each answer once its question is shown."""
        with PseudoTerminal(
            self.rgt.command(*words), cwd=self.project, env=self.rgt.environment()
        ) as person:
            for question, answer in answers.items():
                person.until(question)
                person.type(answer)
            code = person.ended()
            assert code == ends, f"{words} ended with {code}:\n{person.text}"
            return person.text

    def login(self, name: str) -> str:
        """Returns the ssh command that a rental would hand out."""
        host = self.hosts[name]
        return f"ssh -p {host.port} -i {host.folder}/id root@127.0.0.1"

    def home(self, name: str) -> Path:
        return self.hosts[name].folder / "home"

    def trainings(self, name: str) -> list[int]:
        """Returns the process numbers, seen from this machine, of trainings on one host."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                where = (entry / "cwd").readlink()
            except OSError:
                continue
            if b"train.py" in words[1:3] and where.is_relative_to(self.home(name)):
                found.append(int(entry.name))
        return found


@pytest.fixture
def story(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    if os.geteuid() != 0 or subprocess.run([*ALONE, "true"], capture_output=True).returncode != 0:
        pytest.skip("hosts with processes of their own take root")
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(SCRIPT, project)
    hosts, running = {}, {name: ExitStack() for name in HOSTS}
    with ExitStack() as everything:
        for name in HOSTS:
            everything.enter_context(running[name])
            folder = tmp_path_factory.mktemp(name)
            hosts[name] = running[name].enter_context(running_sshd(folder, ALONE))
            # What the rest of this machine holds could not be lost with the box.
            (folder / "home/.bashrc").write_text(
                f"export RGT_ROOTS={folder}/home TMUX_TMPDIR={folder}\n"
            )
        yield Story(Rgt(tmp_path, project / "rgt.toml"), project, hosts, running)


def meet(story: Story, name: str) -> None:
    """Adds a host as a rental hands it out, and accepts its key after comparing the fingerprint."""
    story.run("add", name, story.login(name))
    key = story.hosts[name].folder / "host_key.pub"
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", key], capture_output=True, text=True
    ).stdout.split()[1]
    refused = story.type("doctor", name, answers={"anything else to refuse: ": "no\n"}, ends=1)
    assert fingerprint in refused
    assert "nobody" not in refused
    # A GPU is missing here, which doctor reports: 1.
    accepted = story.type("doctor", name, answers={"anything else to refuse: ": "yes\n"}, ends=0)
    assert fingerprint in accepted


def start_once(story: Story) -> tuple[str, Path]:
    """The same command again starts nothing; changed code is asked about. Returns the job's name and directory."""
    command = (
        "run",
        "lab",
        "--push",
        ".",
        "--",
        "python",
        "train.py",
        "--epochs",
        FOR_EVER,
        "--pace",
        "0.1",
    )
    first = story.json(*command)
    assert len(story.trainings("lab")) == 1
    pid = story.trainings("lab")[0]
    again = story.json(*command)
    assert again["job"] == first["job"]
    assert story.trainings("lab") == [pid]

    # rgt's own files change, and more of them appear: neither is code.
    (story.project / "pulled/lab").mkdir(parents=True)
    (story.project / "rgt.toml").write_text(
        (story.project / "rgt.toml").read_text() + "\n# a note of mine\n"
    )
    assert story.json(*command)["job"] == first["job"]
    assert story.trainings("lab") == [pid]

    script = story.project / "train.py"
    unchanged = script.read_text()
    script.write_text(unchanged + "# changed\n")
    assert "--again" in story.run(*command, ends=1)
    assert story.trainings("lab") == [pid]
    script.write_text(unchanged)
    workdir = Path(f"/proc/{pid}/cwd").readlink()
    assert not (workdir / "rgt.toml").exists()
    assert not (workdir / "pulled").exists()
    return first["name"], workdir


def die_and_resume(story: Story, workdir: Path, name: str) -> None:
    """Kills the training as the kernel would; its own resuming works by the documented command."""
    latest = workdir / "outputs/latest.pt"
    wait_until("a checkpoint", latest.exists)
    (pid,) = story.trainings("lab")
    os.kill(pid, signal.SIGKILL)
    failed = wait_until("the queue knows the end", lambda: queue_cell(story, name, "failed"))
    assert "SIGKILL" in failed["reason"]
    story.run("queue", "lab", "run", "--job", name)
    log = story.home("lab") / f"jobs/{name}/logs/{name}.log"
    wait_until("it resumes", lambda: "resuming from epoch" in log.read_text())


def queue_cell(story: Story, name: str, state: str) -> dict[str, Any] | None:
    """Returns the cell of this name once it is in this state."""
    queue = story.json("queue", "lab", "status", "--job", name)
    return next(
        (cell for cell in queue["cells"] if cell["name"] == name and cell["state"] == state), None
    )


def end_while_nobody_watches(story: Story, workdir: Path, name: str) -> None:
    """The training ends well while no rgt runs: its exit status is known, and nothing escalates."""
    (workdir / "stop_training").touch()
    wait_until("the training ends", lambda: not story.trainings("lab"))
    wait_until("the queue knows the end", lambda: queue_cell(story, name, "done"))
    state = story.json("status", "lab")
    (run,) = (run for run in state["runs"] if run["name"] == name)
    assert run["state"] == "done", state
    assert "unknown" not in story.run("status", "lab")
    story.run("patrol", "lab")


def bring_home(story: Story, workdir: Path) -> None:
    """Everything that the script wrote arrives, although it never heard of $RGT_OUT."""
    story.run("pull", "lab")
    copies = story.project / "pulled/lab" / str(workdir / "outputs").lstrip("/")
    for name in ("latest.pt", "best.pt", "metrics.csv"):
        assert (copies / name).read_bytes() == (workdir / "outputs" / name).read_bytes(), name
    assert story.json("verify", "pulled/lab")["ok"]


def refuse_secrets(story: Story) -> None:
    """A key on the command line would be kept in a file; one from the environment arrives in the first start."""
    said = story.run(
        "run", "b2", "--env", "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345", "--", "true", ends=2
    )
    assert "--secret HF_TOKEN" in said
    story.rgt.env["HF_TOKEN"] = secret = "hf_zyxwvutsrqponmlkjihgfedcba543210"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    check = f'printf %s "$HF_TOKEN" | sha256sum | grep {digest}'
    story.run("run", "b2", "--name", "with-key", "--secret", "HF_TOKEN", "--wait", "--", check)
    for top in (story.home("b2") / "jobs/with-key", story.project):
        assert [
            path
            for path in top.rglob("*")
            if path.is_file() and secret.encode() in path.read_bytes()
        ] == []


def sweep(story: Story) -> None:
    """One queue over two hosts, of one's own code, without a job.json written by hand."""
    (story.project / "configs").mkdir()
    (story.project / "configs/a.yaml").write_text("lr: 0.05\n")
    (story.project / "configs/b.yaml").write_text("lr: 0.01\n")
    (story.project / "cells.txt").write_text("configs/a.yaml small 1\nconfigs/b.yaml small 2\n")
    command = "python train.py --config {cfg} --epochs {epochs} --out outputs/{name}"
    story.run("queue", "b2,b3", "new", "sweep", "--push", ".", "--", command)
    story.run("queue", "b2,b3", "run", "cells.txt", "--job", "sweep")

    def both_done() -> bool:
        states = [story.json("queue", box, "status", "--job", "sweep") for box in ("b2", "b3")]
        cells = {cell["name"]: cell["state"] for state in states for cell in state["cells"]}
        return cells == {"a": "done", "b": "done"}

    wait_until("both cells are done", both_done)


def forget_a_job(story: Story) -> None:
    """A job that the fleet file does not name any more is gone from every view."""
    fleet = story.project / "rgt.toml"
    assert [run["name"] for run in story.json("status", "b3")["runs"]] == ["b"]
    fleet.write_text(re.sub(r'(?m)^jobs = \["~/jobs/sweep"\]\n', "", fleet.read_text()))
    assert story.json("status", "b3")["runs"] == []


def stop_after_a_save(story: Story) -> None:
    """A run is ended after its next save, which is named; the saved file is whole."""
    command = (
        "python",
        "train.py",
        "--epochs",
        FOR_EVER,
        "--pace",
        "0.1",
        "--out",
        "outputs/stopped",
    )
    started = story.json("run", "b3", "--name", "stopped", "--push", ".", "--", *command)
    (pid,) = story.trainings("b3")
    saved = Path(f"/proc/{pid}/cwd").readlink() / "outputs/stopped/latest.pt"
    said = story.run("stop", "b3", started["name"], "--after-checkpoint", "--yes")
    assert f"{saved.parent}/" in said, said
    assert story.trainings("b3") == []
    assert torch.load(saved)["epoch"] >= 0


def ask_nobody(story: Story) -> None:
    """Without a key no market was asked, which is another answer than *nothing fits*."""
    key = f"{story.hosts['b2'].folder}/id.pub"
    said = story.run(
        "up", "rented", "--gpu", "A100", "--max-price", "2", "--dry-run", "--key", key, ends=3
    )
    assert "nothing that fits" not in said


def end_the_meter(story: Story) -> None:
    """Refused while results are on the host alone; then the name, one's own click, and the word that it is done."""
    shown = story.json("down", "lab", "--destroy", "--dry-run")
    assert shown["reasons"] == []
    said = story.type(
        "down", "lab", "--destroy", answers={"anything else to cancel:": "lab\n"}, ends=4
    )
    assert "rgt down lab --done" in said
    assert "still answers" in story.run("down", "lab", "--done", ends=1)
    story.running["lab"].close()
    story.run("down", "lab", "--done")
    receipt = story.run("receipt", "lab")
    assert "2 checkpoints loaded" in receipt, receipt


def test_a_script_of_ones_own(story: Story) -> None:
    for name in HOSTS:
        meet(story, name)
    name, workdir = start_once(story)
    die_and_resume(story, workdir, name)
    end_while_nobody_watches(story, workdir, name)
    shown = story.json("down", "lab", "--destroy", "--dry-run", ends=1)
    assert any(str(workdir) in item["path"] for item in shown["items"] if not item["ok"]), shown
    bring_home(story, workdir)
    end_the_meter(story)
    refuse_secrets(story)
    sweep(story)
    forget_a_job(story)
    stop_after_a_save(story)
    ask_nobody(story)


DOCUMENTED = {
    "README.md": "## From your script to a stopped meter",
    "docs/quick-start.md": "## On every platform",
}
"""Page → the heading whose first block of commands a newcomer types."""


def documented_commands(page: str) -> list[list[str]]:
    """Returns the commands of a page, as words, without the comment behind each."""
    text = (ROOT / page).read_text(encoding="utf-8")
    block = text.partition(DOCUMENTED[page])[2].partition("```console\n")[2].partition("```")[0]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in block.splitlines()]


@pytest.mark.parametrize("page", DOCUMENTED)
def test_the_documented_commands_run_as_printed(story: Story, page: str) -> None:
    """From `rgt add` to `rgt down`: each ends as the page says, and every byte of the outputs is at home."""
    mine = {
        "user@gpu-host": story.login("lab"),
        "HOST": story.login("lab"),
        "NAME": "lab",
        "pulled/NAME": "pulled/lab",
    }
    verbs = []
    for program, *printed in documented_commands(page):
        assert program == "rgt"
        words = [mine.get(word, word) for word in printed]
        verbs.append(words[0])
        if words[0] == "doctor":
            story.type(*words, answers={"anything else to refuse: ": "yes\n"})
        elif words[0] == "smoke":
            # The person's own python has torch.
            story.run(*(sys.executable if word == "python" else word for word in words))
        elif words[0] == "watch":
            story.run(*words, "--for", "1s")
        elif words[0] == "down":
            story.type(*words, answers={"anything else to cancel:": "lab\n"}, ends=4)
        else:
            if words[0] == "pull":
                wait_until("the training ends", lambda: not story.trainings("lab"))
            story.run(*words)
    assert [verb for verb in verbs if verb != "smoke"] == [
        "add",
        "doctor",
        "run",
        "watch",
        "pull",
        "verify",
        "down",
    ]
    (outputs,) = story.home("lab").glob("rgt-code/project-*/outputs")
    copies = story.project / "pulled/lab" / str(outputs).lstrip("/")
    kept = {path.name: path.read_bytes() for path in outputs.iterdir()}
    assert kept.keys() == {"latest.pt", "best.pt", "metrics.csv"}
    assert {path.name: path.read_bytes() for path in copies.iterdir()} == kept
