"""`rgt gpu-health`, `reap`, `grep`, `manifest` and `mirror` against a real sshd, on a box with a driver of ours."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec, RentalTerms
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import RealSshd, fresh_sshd
from tests.process.box.harness import until
from tests.process.box.nvml_driver import HOLD, build_driver, make_devices

TAIL = "Error: \x1b]0;owned\x07loss exploded\x1b[2J"


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    """A box with one GPU, by the start-up file of its shell."""
    folder = tmp_path_factory.mktemp("sshd")
    with fresh_sshd(folder) as running:
        driver, devices = build_driver(tmp_path_factory.mktemp("driver")), make_devices(folder)
        (folder / "home/.bashrc").write_text(
            f"export LD_LIBRARY_PATH={driver} STUB_COUNT=1 RGT_NVIDIA_DEVICES={devices}\n"
        )
        yield running


@pytest.fixture
def box(rgt: Rgt, sshd: RealSshd) -> BoxSpec:
    spec = msgspec.structs.replace(sshd.spec, name="lab", pattern="^no such training$")
    rgt.describe([spec])
    return spec


def test_gpu_health(rgt: Rgt, box: BoxSpec, sshd: RealSshd) -> None:
    done = rgt.on("gpu-health", "lab", "--expect", "2", "--json")
    assert done.returncode == 1, done.stderr
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert (rows["count"]["ok"], rows["count"]["text"]) == (False, "1 of 2 GPUs")
    told = rgt.on("gpu-health", "lab", "--expect", "2").stdout
    assert "trouble  gpu all  count        1 of 2 GPUs\n" in told
    assert "\nok       gpu 0    visible" in f"\n{told}"


def test_gpu_health_holds_the_gpus_against_what_the_fleet_file_says_was_asked_for(
    rgt: Rgt, box: BoxSpec
) -> None:
    rgt.describe([msgspec.structs.replace(box, asked=RentalTerms(gpu="no such card", gpu_count=2))])
    done = rgt.on("gpu-health", "lab", "--json")
    assert done.returncode == 1, done.stderr
    body = json.loads(done.stdout)
    rows = {row["check"]: row for row in body["checks"]}
    assert (rows["count"]["ok"], rows["count"]["text"]) == (False, "1 of 2 GPUs")
    assert rows["model"]["ok"] is False
    assert rows["model"]["text"].endswith("asked for 1 × no such card")
    assert body["box"] == "lab"
    name = rows["visible"]["text"]
    rgt.describe([msgspec.structs.replace(box, asked=RentalTerms(gpu=name, gpu_count=1))])
    rows = {
        row["check"]: row
        for row in json.loads(rgt.on("gpu-health", "lab", "--json").stdout)["checks"]
    }
    assert (rows["model"]["ok"], rows["count"]["ok"]) == (True, True)


def test_reap_ends_one_process_after_the_typed_name(rgt: Rgt, box: BoxSpec, sshd: RealSshd) -> None:
    line = f'setsid {sys.executable} -c "{HOLD.replace("sys.stdin.read()", "import time; time.sleep(600)")}"'
    started = rgt.on(
        "exec", "lab", "--", f"{line} {sshd.folder}/nvidia0 >/dev/null 2>&1 </dev/null &"
    )
    assert started.returncode == 0, started.stderr
    holders: list[dict[str, object]] = []
    while not holders:
        listed = rgt.on("reap", "lab", "--json")
        holders = json.loads(listed.stdout)["holders"]
    assert listed.returncode in (1, 2)
    name = str(holders[0]["kill"])
    assert name in rgt.on("reap", "lab").stdout

    def gone() -> bool:
        return rgt.on("exec", "lab", "--", "kill", "-0", name.partition(":")[0]).returncode != 0

    def refused(*words: str) -> str:
        done = rgt.on("reap", "lab", "--kill", *words, "--unverified")
        assert (done.returncode, gone()) == (1, False)
        return done.stderr

    assert "cannot prompt here" in refused(name)
    assert "not the name of the box" in refused(name, "--confirm", "lib")
    assert "no holder" in refused(f"{name.partition(':')[0]}:1", "--confirm", "lab")
    done = rgt.on("reap", "lab", "--kill", name, "--unverified", "--confirm", "lab")
    assert done.returncode == 0, done.stderr
    until(gone, "that somebody has taken note of its end")


def test_grep_shows_no_more_than_text(rgt: Rgt, box: BoxSpec, sshd: RealSshd) -> None:
    logs = sshd.folder / "box/logs"
    logs.mkdir()
    (logs / "a.log").write_text(f"one\n{TAIL}\nthree\n")
    done = rgt.on("grep", "lab", "Error:.*exploded", str(logs), "--context", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{logs}/a.log-one", f"{logs}/a.log:Error: loss exploded", f"{logs}/a.log-three",
    ]  # fmt: skip
    exact = rgt.on("grep", "lab", "Error", str(logs), "--json")
    assert "\x1b" not in exact.stdout
    assert json.loads(exact.stdout.splitlines()[0])["text"] == TAIL
    assert (
        rgt.on("grep", "lab", "-nothing", str(logs)).returncode == 2
    )  # argparse: it looks like an option
    assert rgt.on("grep", "lab", "nothing like it", str(logs)).returncode == 1
    bare = rgt.on("grep", "lab", "x")
    assert bare.returncode == 2 and "names no logs" in bare.stderr
    rgt.describe([msgspec.structs.replace(box, logs=(f"{logs}/*.log",))])
    assert rgt.on("grep", "lab", "thr").stdout == f"{logs}/a.log:three\n"


def test_a_standard_output_that_nobody_takes_is_no_box_that_was_lost(
    rgt: Rgt, box: BoxSpec, sshd: RealSshd
) -> None:
    (sshd.folder / "box/many.log").write_text("found\n" * 5000)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            rgt.command("grep", "lab", "found", str(sshd.folder / "box/many.log"), "--fleet", str(rgt.fleet)),
            stdout=full, stderr=subprocess.PIPE, env=rgt.environment(), text=True, timeout=120, check=False,
        )  # fmt: skip
    told = done.stderr.strip().splitlines()[-1:]
    assert (done.returncode, told) == (
        1,
        ["rgt: cannot write to standard output: No space left on device"],
    )


def test_manifest_and_mirror(rgt: Rgt, box: BoxSpec, sshd: RealSshd) -> None:
    home, content = sshd.folder / "home", b"weights" * 1000
    (home / "runs/a").mkdir(parents=True)
    (home / "runs/a/best.pt").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    listed = rgt.on("manifest", "lab", "~/runs")
    assert (listed.returncode, listed.stdout) == (0, f"{digest}  a/best.pt\n"), listed.stderr
    copied = rgt.on("mirror", "lab", "~/runs", "~/durable/runs")
    assert copied.returncode == 0 and "1 verified (1 copied, 0 the same), 0 failed" in copied.stdout
    assert (home / "durable/runs/a/best.pt").read_bytes() == content
    (home / "runs/out").symlink_to("/etc")
    refused = rgt.on("mirror", "lab", "~/runs", "~/durable/runs")
    assert (
        refused.returncode == 1 and "failed  out: is a link to a target outside" in refused.stdout
    )
    nowhere = rgt.on("mirror", "lab", "/nowhere", "~/x")
    assert nowhere.returncode == 2 and "/nowhere does not exist" in nowhere.stderr


def test_a_box_without_a_python_says_what_it_lacks(rgt: Rgt, box: BoxSpec, tmp_path: Path) -> None:
    """The shell of such a box is all there is: exec and ssh work, the agent does not."""
    rgt.describe([msgspec.structs.replace(box, python="/nowhere/python")])
    # This machine has Pythons in many places: the look for one is cut short by a shell that finds none.
    (Path(box.identity or "").parent / "home/.bashrc").rename(tmp_path / "bashrc")
    try:
        (Path(box.identity or "").parent / "home/.bashrc").write_text(
            'sh() { printf "\\nRGT-SHELL\\n"; cat > /dev/null; return 7; }\n'
        )
        for command in (["gpu-health", "lab"], ["grep", "lab", "x", "/tmp"], ["reap", "lab"]):
            done = rgt.on(*command)
            assert done.returncode == 1 and "no Python 3.8 or newer on the box" in done.stderr, (
                done.stderr
            )
        assert rgt.on("exec", "lab", "--", "echo it").stdout == "it\n"
    finally:
        (tmp_path / "bashrc").rename(Path(box.identity or "").parent / "home/.bashrc")
