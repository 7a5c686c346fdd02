"""`rgt stop` on a real sshd, with scripts that know nothing of rgt: one saves on SIGTERM, one does not handle it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt
from tests.process.box.harness import until

TRAIN = """
import json, os, signal, struct, sys, time

def save(step):
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    os.makedirs("outputs", exist_ok=True)
    with open("outputs/part", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(4))
    os.replace("outputs/part", "outputs/model-%d.safetensors" % step)

step = 0
def stop(*_):
    save(step)
    sys.exit(0 if "quiet" in sys.argv else 143)

if "handles" in sys.argv:
    signal.signal(signal.SIGTERM, stop)
open("ready.part", "w").close()
os.replace("ready.part", "ready")
while True:
    step += 1
    print("step %d loss %.3f" % (step, 1 / step), flush=True)
    if "saves" in sys.argv and step % 20 == 0:
        save(step)
    time.sleep(0.05)
"""


@pytest.fixture
def code(home: Path) -> Iterator[Path]:
    """A directory of a name that no other test on this machine has, with somebody's training script."""
    folder = home / f"exp{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    yield folder
    for pid in running(folder):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def running(code: Path) -> list[int]:
    """The processes that work in the code's directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                os.readlink(path / "cwd") == str(code)
                and b"train.py" in (path / "cmdline").read_bytes()
            ):
                found.append(int(path.name))
    return found


def run(rgt: Rgt, code: Path, name: str, *words: str) -> None:
    line = [
        "--in",
        str(code),
        "--name",
        name,
        "--probe",
        "20",
        "--",
        sys.executable,
        "train.py",
        *words,
    ]
    done = rgt.on("run", "lab", *line)
    assert done.returncode == 0, done.stdout + done.stderr
    until((code / "ready").exists, "the script's handler")


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["phase"]: row for row in found}


def test_a_run_saves_and_ends_and_it_is_said_where(
    rgt: Rgt, box: BoxSpec, home: Path, code: Path
) -> None:
    run(rgt, code, "ends", "handles")
    asked = rgt.on("stop", "lab", "ends")
    assert asked.returncode == 1 and "in a script: --yes" in asked.stderr
    assert running(code)
    done = rgt.on("stop", "lab", "ends", "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = rows(done)
    assert told["found"]["handles_sigterm"] is True
    assert (told["ended"]["state"], told["ended"]["saved"]) == ("interrupted", True)
    assert told["ended"]["reason"].startswith("the queue was stopped by rgt stop; the cell ended: ")
    assert not list(home.rglob("stop_request.json"))
    assert Path(told["ended"]["newest"]["path"]).parent == code / "outputs"
    assert not running(code)
    again = rgt.on("stop", "lab", "ends", "--yes")
    assert again.returncode == 2 and "no run of the name ends is alive" in again.stderr


def test_a_script_without_a_handler_is_ended_after_its_next_save(
    rgt: Rgt, box: BoxSpec, code: Path
) -> None:
    run(rgt, code, "plain", "saves")
    done = rgt.on("stop", "lab", "plain", "--yes", "--after-checkpoint", "--wait", "60s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it does not handle SIGTERM" in done.stdout
    assert "outputs/model-" in done.stdout.splitlines()[-1]
    assert not running(code)


def test_without_another_save_nothing_is_sent(rgt: Rgt, box: BoxSpec, code: Path) -> None:
    run(rgt, code, "waits")
    done = rgt.on("stop", "lab", "waits", "--yes", "--after-checkpoint", "--wait", "1s")
    assert done.returncode == 1 and "nothing was sent" in done.stderr
    assert running(code)
    assert rgt.on("stop", "lab", "waits", "--yes").returncode == 0


def test_a_training_that_nobody_named_is_ended_by_its_name(
    rgt: Rgt, box: BoxSpec, code: Path
) -> None:
    rgt.describe([msgspec.structs.replace(box, pattern=None)])
    line = f"cd {code}; setsid nohup {sys.executable} train.py handles quiet > out.log 2>&1 < /dev/null &"
    assert rgt.on("exec", "lab", "--", line).returncode == 0
    until((code / "ready").exists, "the script's handler")

    def name() -> str | None:
        told = json.loads(rgt.on("status", "lab", "--json").stdout)
        return next(
            (one["name"] for one in told["runs"] if one.get("log") == str(code / "out.log")), None
        )

    done = rgt.on("stop", "lab", until(name, "the training is found"), "--yes", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = rows(done)
    assert (told["ended"]["ended"], told["ended"]["saved"], "job" in told["found"]) == (
        True,
        True,
        False,
    )
    assert not running(code)


def test_a_name_that_nothing_has_names_what_runs(rgt: Rgt, box: BoxSpec, code: Path) -> None:
    run(rgt, code, "other")
    done = rgt.on("stop", "lab", "othe", "--yes")
    assert done.returncode == 2 and "other" in done.stderr
    assert running(code)
    assert rgt.on("stop", "lab", "other", "--yes").returncode == 0
