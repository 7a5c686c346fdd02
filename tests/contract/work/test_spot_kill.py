"""Two boxes share a queue, one is taken away in the midst of it: nothing runs twice, and the other one finishes."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from rgt_tui.demo import LocalRunPod
from rgt_tui.model import ProviderRef
from tests.contract.cli.conftest import Rgt
from tests.contract.ssh.conftest import fresh_sshd
from tests.process.box.harness import master_log, until

COMMAND = "mkdir -p {out}; echo {name} >> ran; while [ -e hold-{name} ]; do sleep 0.05; done; echo {task} > {out}/best"


def make(home: Path, durable: Path) -> Path:
    """Make the same job on the system disk of a box; what is kept goes to storage that outlives it."""
    job = home / "jobs/sweep"
    job.mkdir(parents=True)
    for name in "abcd":
        (job / f"{name}.yaml").write_text(f"name: {name}\n")
    (job / "queue.txt").write_text("# none yet\n")
    body = {
        "command": ["sh", "-c", COMMAND],
        "out": "runs/{name}",
        "durable": f"{durable}/{{name}}",
        "ckpt_bytes": 0,
    }
    (job / "job.json").write_text(json.dumps({**body, "detach": "setsid"}))
    return job


def seen(watching: subprocess.Popen[bytes], told: Callable[[dict[str, str]], bool]) -> None:
    """Read what a watching rgt prints until the runs of a box stand as told."""
    assert watching.stdout is not None
    for line in watching.stdout:
        body = json.loads(line)
        runs = {run["name"]: str(run["state"]) for run in body.get("runs", ())}
        if body.get("box") == "a" and told(runs):
            return
    pytest.fail("the watching rgt ended before")


async def test_a_spot_kill(rgt: Rgt, tmp_path: Path) -> None:
    server = LocalRunPod(clock=time.time)
    await server.start()
    try:
        pod = server.add_pod("pod1", "a", created=time.time() - 3600)
        rgt.env["RGT_TEST_KEY"] = server.key
        ref = ProviderRef(
            kind="runpod", instance="pod1", key_env="RGT_TEST_KEY", base_url=server.base_url
        )

        def story() -> None:
            with ExitStack() as hosts:
                tell(rgt, tmp_path, ref, hosts, lambda: setattr(pod, "status", "TERMINATED"))

        await asyncio.to_thread(story)
    finally:
        await server.stop()


def tell(
    rgt: Rgt, tmp_path: Path, ref: ProviderRef, hosts: ExitStack, taken_away: Callable[[], None]
) -> None:
    durable = tmp_path / "durable"
    durable.mkdir()
    folders = {name: tmp_path / f"host-{name}" for name in "ab"}
    for folder in folders.values():
        folder.mkdir()
    spot = ExitStack()
    hosts.callback(spot.close)
    a, b = (
        spot.enter_context(fresh_sshd(folders["a"])),
        hosts.enter_context(fresh_sshd(folders["b"])),
    )
    jobs = {name: make(folder / "home", durable) for name, folder in folders.items()}
    common = {"pattern": "^none$", "jobs": ("~/jobs/sweep",)}
    rgt.describe([
        msgspec.structs.replace(a.spec, name="a", profile="runpod", provider=ref, **common),
        msgspec.structs.replace(b.spec, name="b", **common),
    ])  # fmt: skip
    (jobs["a"] / "hold-c").touch()
    sweep = rgt.folder / "sweep.txt"
    sweep.write_text("".join(f"{name}.yaml x 1\n" for name in "abcd"))
    watching = rgt.start("watch", "a", "--json")
    try:
        shared = rgt.on("queue", "a,b", "run", str(sweep), "--probe", "1s")
        assert shared.returncode == 0, shared.stdout + shared.stderr
        seen(watching, lambda runs: runs.get("a") == "done" and runs.get("c") == "running")
    finally:
        watching.send_signal(signal.SIGTERM)
        watching.communicate(timeout=60)

    until(lambda: master_log(jobs["b"]).endswith("QUEUE DONE\n"))
    # The machine is taken away: every process of it at once, its sshd, and its disk.
    spot.close()
    shutil.rmtree(folders["a"] / "home")
    early = rgt.on("queue", "b", "run", "--hand-over", "a", "--probe", "1s")
    assert early.returncode == 1 and "Unreachable does not mean stopped" in early.stderr, (
        early.stderr
    )
    taken_away()

    lost = rgt.on("queue", "a,b", "reconcile")
    rows = {
        row.split()[1]: row.split()[0]
        for row in lost.stdout.splitlines()
        if not row.startswith(" ")
    }
    assert lost.returncode == 3 and rows == {
        "a": "unknown",
        "b": "ok",
        "c": "unknown",
        "d": "ok",
    }, lost.stdout
    handed = rgt.on("queue", "b", "run", "--hand-over", "a", "--probe", "1s")
    assert handed.returncode == 0, handed.stdout + handed.stderr
    assert "says gone. Not in this account, never seen there" in handed.stdout
    until(lambda: (durable / "c/best").exists())
    until(lambda: rgt.on("queue", "b", "reconcile").returncode == 0)
    again = rgt.on("queue", "a,b", "reconcile")
    rows = {
        row.split()[1]: row.split()[0]
        for row in again.stdout.splitlines()
        if not row.startswith(" ")
    }
    assert rows == {
        "a": "unknown",
        "b": "ok",
        "c": "ok",
        "d": "ok",
    }  # of a nobody can ask any more: its copy stands
    assert (durable / "a/best").read_text() == "x\n"
    assert (jobs["b"] / "ran").read_text().split() == ["b", "d", "c"]
