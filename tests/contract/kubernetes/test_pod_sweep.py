"""``rgt queue run`` where the box is a Job: one pod for each cell, and which of them is the box."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet.work import launching, pod_jobs, queue_split
from rgt_tui.ssh import AgentBundle
from tests.contract.kubernetes import test_pod_job
from tests.contract.kubernetes.conftest import pod_spec
from tests.contract.kubernetes.test_pod_box import rgt
from tests.contract.kubernetes.test_pod_down import delete_box
from tests.contract.providers.fakes.local_cluster import LocalCluster

pytestmark = pytest.mark.serial  # the pods see the processes of this machine

fleet_file = test_pod_job.fleet_file
CELLS = ("a", "b", "c")


@pytest.fixture
def job_file(cluster: LocalCluster, tmp_path: Path) -> Path:
    """A job file with three cells that wait for `let_end`, with their configs in the working directory."""
    for cell in CELLS:
        (cluster.home / f"{cell}.yaml").write_text("")
        os.mkfifo(tmp_path / f"go-{cell}")
    # Without child processes, so that two readings of the box are alike.
    line = f"mkdir -p {{out}}; echo {{cfg}} {{epochs}}; read go <{tmp_path}/go-{{name}}; echo 1 > {{out}}/r"
    path = tmp_path / "ablation.toml"
    path.write_text(
        f'run = "{line}"\ncells = ["a.yaml run 3", "b.yaml", "c.yaml"]\nresults = ["r"]\n'
    )
    return path


@pytest.fixture
def let_end(job_file: Path) -> Iterator[Callable[..., None]]:
    """Let cells end that run, or will run."""
    with contextlib.ExitStack() as held:

        def write_line(*cells: str) -> None:
            for cell in cells:
                # Both directions: no reader is needed yet, and the line stays until there is one.
                pipe = held.enter_context((job_file.parent / f"go-{cell}").open("r+b", buffering=0))
                pipe.write(b"\n")

        yield write_line


async def cell_states(fleet: Path) -> dict[str, str]:
    """Return the states of the cells as ``rgt queue lm status`` shows them."""
    _, out, _ = await rgt(fleet, "queue", "lm", "status", "--json")
    return {cell["name"]: cell["state"] for cell in json.loads(out or "{}").get("cells", ())}


async def wait_for_cells(fleet: Path, condition: Callable[[dict[str, str]], bool]) -> None:
    """Wait for states of the cells."""
    for _ in range(60):
        if condition(await cell_states(fleet)):
            return
    raise AssertionError(await rgt(fleet, "queue", "lm", "status"))


async def wait_for_line(path: Path) -> None:
    """Wait until a file has a whole line."""
    async with asyncio.timeout(60):
        while not path.is_file() or not path.read_text().endswith("\n"):  # noqa: ASYNC110  (a cell tells nobody)
            await asyncio.sleep(0.05)


async def test_each_cell_is_a_pod_and_its_state_is_shown_from_start_to_end(
    cluster: LocalCluster, fleet_file: Path, job_file: Path, let_end: Callable[..., None]
) -> None:
    words = ("queue", "lm", "run", "--job", str(job_file), "--parallel", "2")
    status, out, errors = await rgt(fleet_file, *words)
    assert status == 0, out + errors
    folder = f"{cluster.home}/jobs/ablation"
    assert "3 cells, 2 at a time" in out
    assert "pod    ml/lm-0-a7k2p (index 0 of Job lm" in out
    assert f'"{folder}"' in fleet_file.read_text(), "the panes watch its queue"
    job = cluster.objects["jobs", "ml", "lm"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 2)
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert {"name": "vol-0", "persistentVolumeClaim": {"claimName": "ckpt"}} in job["template"][
        "spec"
    ]["volumes"]
    await wait_for_cells(
        fleet_file, lambda cells: cells == {"a": "running", "b": "running", "c": "waiting"}
    )
    status, _, errors = await rgt(fleet_file, *words)
    assert (status, "the Job lm exists already" in errors) == (2, True)
    let_end("a")
    await wait_for_cells(
        fleet_file, lambda cells: cells == {"a": "done", "b": "running", "c": "running"}
    )
    status, out, errors = await rgt(fleet_file, "exec", "lm", "--", "echo", "there")
    assert (status, out) == (0, "there\n"), "the box is the next pod"
    status, out, errors = await rgt(fleet_file, "queue", "lm", "reconcile")
    assert re.search(r" b: .*the queue state is running", out), out + errors
    let_end("b", "c")
    await wait_for_cells(fleet_file, lambda cells: set(cells.values()) == {"done"})
    for _ in range(60):
        status, out, errors = await rgt(fleet_file, "queue", "lm", "status")
        if "is Complete" in errors:
            break
    assert "no pod runs, the Job lm is Complete: 3 of 3 cells done" in errors
    assert "done        a (run, 3 epochs)" in out
    assert "all cells are done" in out
    for folder in ("runs", "durable/runs"):
        assert (cluster.home / folder / "ablation" / "a" / "r").read_text() == "1\n"
    assert (cluster.home / "jobs" / "ablation" / "logs" / "a.log").read_text() == "a.yaml 3\n"


async def test_down_lists_the_other_pods_with_what_they_hold_and_deletes_all(
    cluster: LocalCluster, fleet_file: Path, job_file: Path
) -> None:
    words = ("queue", "lm", "run", "--job", str(job_file), "--parallel", "2")
    status, out, errors = await rgt(fleet_file, *words)
    assert status == 0, out + errors
    await wait_for_cells(fleet_file, lambda cells: list(cells.values()).count("running") == 2)
    # Each cell has written what it writes before it waits: nothing changes between two readings.
    for cell in ("a", "b"):
        await wait_for_line(cluster.home / "jobs" / "ablation" / "logs" / f"{cell}.log")
    _, out, _ = await rgt(fleet_file, "down", "lm", "--destroy", "--dry-run", "--json")
    items = {item["key"]: item for item in json.loads(out)["items"]}
    assert items["identity"]["ok"], items["identity"]
    pod = items["pods:lm-1-a7k2p"]
    assert not pod["ok"] and pod["forfeitable"]
    assert "cell b, Running, 1 GPU, on gpu-node-2; its files outside of ckpt" in pod["text"]
    assert "pods:lm-0-a7k2p" not in items, "it is the box, whose own items say what it holds"
    box = "lm-0-a7k2p is the box: cell a, Running, 1 GPU, on gpu-node-1"
    assert (items["pods"]["ok"], items["pods"]["text"]) == (True, box)
    assert not items["queue:a"]["ok"] and not items["queue:b"]["ok"]
    await delete_box(fleet_file)
    assert not {key for key in cluster.objects if "lm" in key[2]}, "with its ConfigMap"


async def test_a_dry_run_prints_what_kubectl_takes_and_creates_nothing(
    cluster: LocalCluster, fleet_file: Path, job_file: Path
) -> None:
    words = ("queue", "lm", "run", "--job", str(job_file), "--dry-run")
    status, out, errors = await rgt(fleet_file, *words, "--names", "c", "a")
    assert status == 0, out + errors
    assert "dry run: nothing was created" in errors
    assert not [key for key in cluster.objects if "lm" in key[2]]
    kubectl = ("kubectl", "create", "--dry-run=client", "--validate=false", "-f", "-", "-o", "json")
    # In a thread: the cluster runs in this one.
    done = await asyncio.to_thread(
        subprocess.run, kubectl, input=out.encode(), capture_output=True, check=True
    )
    decoder = json.JSONDecoder()
    job, end = decoder.raw_decode(done.stdout.decode())
    files, _ = decoder.raw_decode(done.stdout.decode()[end:].lstrip())
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (2, 1)
    assert json.loads(job["metadata"]["annotations"]["rgt/cells"]) == {
        "a": "a.yaml run 3", "c": "c.yaml run",
    }  # fmt: skip
    assert json.loads(files["data"]["sweep.json"])["lines"] == ["a.yaml run 3", "c.yaml run"]


async def test_a_failed_cell_is_shown_with_the_end_of_its_log(
    cluster: LocalCluster, fleet_file: Path, job_file: Path
) -> None:
    (cluster.home / "b.yaml").unlink()
    await rgt(fleet_file, "queue", "lm", "run", "--job", str(job_file), "--names", "b")
    await wait_for_cells(fleet_file, lambda cells: cells == {"b": "failed"})
    _, out, errors = await rgt(fleet_file, "queue", "lm", "status")
    assert "is Failed: 0 of 1 cell done" in errors
    assert "failed      b (run, 20 epochs): Error: " in out
    assert "b.yaml does not exist" in out


async def test_the_reason_of_a_failed_cell_is_what_its_program_printed(
    cluster: LocalCluster, fleet_file: Path, job_file: Path
) -> None:
    """Its log is on the claim, which nobody can read once no pod runs."""
    text = job_file.read_text()
    command = "run = \"sh -c 'echo {cfg}: CUDA out of memory >&2; exit 1'\""
    job_file.write_text(re.sub("(?m)^run = .*$", command, text))
    await rgt(fleet_file, "queue", "lm", "run", "--job", str(job_file), "--names", "b")
    await wait_for_cells(fleet_file, lambda cells: cells == {"b": "failed"})
    _, out, _ = await rgt(fleet_file, "queue", "lm", "status")
    assert "CUDA out of memory" in out


@pytest.mark.parametrize(
    ("added", "options", "words"),
    [
        ("", ["--names", "x"], "no cell is called x"),
        ('secrets = ["TOKEN"]', [], "secret of the job file does not apply to a Job: use a Secret"),
        ('push = "."', [], "push of the job file does not apply to a Job"),
        ('smoke = "true"', [], "smoke of the job file does not apply to a Job"),
        ('[resources]\ngpu = "A100"', [], "asks for 1 × A100, but 1 × GPU of the cluster's choice"),
        ('[resources]\ngpu = "A100:2"', [], "smaller than the job asks for"),
    ],
)
async def test_what_a_job_cannot_do_is_refused_before_anything_is_created(
    cluster: LocalCluster,
    fleet_file: Path,
    job_file: Path,
    added: str,
    options: list[str],
    words: str,
) -> None:
    job_file.write_text(job_file.read_text() + added + "\n")
    status, out, errors = await rgt(
        fleet_file, "queue", "lm", "run", "--job", str(job_file), *options
    )
    assert status in (1, 2) and words in errors, out + errors
    assert not [key for key in cluster.objects if "lm" in key[2]]


async def test_force_and_no_smoke_start_it_anyway(
    cluster: LocalCluster, fleet_file: Path, job_file: Path, let_end: Callable[..., None]
) -> None:
    text = job_file.read_text() + 'smoke = "true"\n[resources]\ngpu = "A100:2"\n'
    job_file.write_text(text)
    let_end("a", "b", "c")
    status, out, errors = await rgt(
        fleet_file, "queue", "lm", "run", "--job", str(job_file), "--force", "--no-smoke"
    )
    assert status == 0, out + errors


async def test_a_queue_by_hand_and_a_refused_file_name_the_way(
    cluster: LocalCluster, fleet_file: Path, job_file: Path
) -> None:
    for action in (["new", "s", "--", "x {cfg}"], ["add", "a.yaml"], ["run"]):
        status, _, errors = await rgt(fleet_file, "queue", "lm", *action)
        assert (status, "queue lm run --job job.toml" in errors) == (2, True), errors
    cluster.rights = {"ml": ("get", "list", "create jobs")}
    status, _, errors = await rgt(fleet_file, "queue", "lm", "run", "--job", str(job_file))
    assert status != 0 and "does not let you create configmaps" in errors
    assert ("jobs", "ml", "lm") not in cluster.objects, "its pods would wait for their files"


def manifests(lines: str, **route: Any) -> pod_jobs.SweepManifests:
    """Return the manifests of a sweep."""
    keys: dict[str, Any] = {"job": "lm", "image": "i", "claims": ("ckpt:/c",), **route}
    spec = msgspec.structs.replace(pod_spec(**keys), durable="/checkpoints")
    lines_read = queue_split.parse_lines(lines, "cells")
    return pod_jobs.sweep_manifests(
        spec, "i", ["x {cfg}"], lines_read, AgentBundle(b"", "", ""), name="s", env={},
        workdir="/w", retries=1, keep=(), at_once=9,
    )  # fmt: skip


def test_the_manifest_of_a_sweep() -> None:
    made = manifests("a.yaml run\nb.yaml run", gpus=2, grace_s=99, container="train")
    spec = made.job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimitPerIndex"]) == (2, 2, 20)
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 99)
    (container,) = pod["containers"]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert (container["name"], container["workingDir"]) == ("train", "/w")
    rule = spec["podFailurePolicy"]["rules"][0]["onExitCodes"]
    assert rule["containerName"] == "train"
    assert made.folder == "/c/jobs/s"
    asked = json.loads(made.files["data"]["sweep.json"])
    assert (asked["retries"], asked["data"], asked["workdir"]) == (1, "/c", "/w")
    assert asked["durable"] is None, "results on a claim need no copy there"
    other = manifests("a.yaml run", claims=("data:/c", "ckpt:/checkpoints"))
    assert json.loads(other.files["data"]["sweep.json"])["durable"] == "/checkpoints"
    with pytest.raises(launching.CannotRun, match=r"claims: a sweep needs a claim"):
        manifests("a.yaml run", claims=())
    with pytest.raises(launching.CannotRun, match=r"job: l.m names a Job of several pods"):
        manifests("a.yaml run", job="l.m")
