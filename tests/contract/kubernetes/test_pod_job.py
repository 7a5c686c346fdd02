"""``rgt run`` where the box is the pod of a Job: the Job is created by the real kubectl, and its pod is the box."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rgt_tui.cli.work import pod_job
from rgt_tui.fleet.config import load_fleet
from rgt_tui.fleet.work import launching, pod_jobs
from rgt_tui.model import ImageDigest
from tests.contract.kubernetes.conftest import pod_spec
from tests.contract.kubernetes.test_pod_box import rgt
from tests.contract.providers.fakes.local_cluster import LocalCluster

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def fleet_file(cluster: LocalCluster, tmp_path: Path) -> Path:
    """A fleet file with a box that is the pod of a Job."""
    path = tmp_path / "fleet.toml"
    path.write_text(
        '[boxes.lm.kubectl]\ncontext = "local"\nnamespace = "ml"\njob = "lm"\n'
        f'image = "ghcr.io/me/lm@{DIGEST}"\nclaims = ["ckpt:{cluster.home}"]\n'
    )
    path.chmod(0o600)
    return path


def pods_of(cluster: LocalCluster, **status: Any) -> None:
    """Let a pod of the namespace run an image by its tag."""
    pod = cluster.objects["pods", "ml", "train-0"]
    pod["spec"]["containers"][0]["image"] = "ghcr.io/me/lm:v1"
    pod["status"]["containerStatuses"] = [{"name": "main", "image": "ghcr.io/me/lm:v1", **status}]


async def test_the_job_is_created_and_its_end_is_the_exit_status(
    cluster: LocalCluster, fleet_file: Path
) -> None:
    words = (
        "run",
        "lm",
        "--wait",
        "--env",
        "LR=3",
        "--retries",
        "2",
        "--",
        'echo "lr $LR" && exit 3',
    )
    status, out, errors = await rgt(fleet_file, *words)
    assert status == 1, out + errors
    assert f"image  ghcr.io/me/lm@{DIGEST}" in out
    assert "ended  Failed: exit 3" in out
    assert (cluster.home / "lm" / "run.log").read_text() == "lr 3\n"
    spec = cluster.objects["jobs", "ml", "lm"]["spec"]
    assert spec["backoffLimit"] == 2
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 210)
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert {"name": "vol-0", "persistentVolumeClaim": {"claimName": "ckpt"}} in pod["volumes"]


async def test_a_running_job_is_the_box_and_is_not_created_twice(
    cluster: LocalCluster, fleet_file: Path
) -> None:
    status, out, errors = await rgt(fleet_file, "run", "lm", "--", "echo started; exec sleep 600")
    assert status == 0, out + errors
    assert "ml/lm-x7k2p runs" in out
    assert f"rgt logs lm {cluster.home}/lm/run.log --follow" in out
    status, out, _ = await rgt(fleet_file, "exec", "lm", "--", "cat", f"{cluster.home}/lm/run.log")
    assert (status, out) == (0, "started\n")
    status, _, errors = await rgt(fleet_file, "run", "lm", "--", "echo other")
    assert status == 2
    assert "the Job lm exists already, and nothing was created" in errors


async def test_results_of_a_job_that_has_ended_are_read_through_a_pod_of_their_own(
    cluster: LocalCluster, fleet_file: Path, tmp_path: Path
) -> None:
    """A claim is read by a pod alone, and a Job that has ended has none that runs."""
    early, _, errors = await rgt(fleet_file, "run", "lm", "--reader")
    assert early == 3, errors
    command = 'echo weights > "$RGT_OUT/best.txt"'
    assert (await rgt(fleet_file, "run", "lm", "--wait", "--", command))[0] == 0
    words = ("pull", "lm", f"{cluster.home}/lm", "--dest", str(tmp_path / "here"))
    status, _, errors = await rgt(fleet_file, *words)
    assert status == 3
    assert "rgt run lm --reader starts a pod that reads its claims" in errors
    status, out, errors = await rgt(fleet_file, "run", "lm", "--reader")
    assert status == 0, errors
    assert "pod    ml/lm-reader runs; it ends by itself after 1h" in out
    assert "next   rgt pull lm\n" in out
    pod = cluster.objects["pods", "ml", "lm-reader"]
    assert "resources" not in pod["spec"]["containers"][0], "it needs no GPU"
    assert pod["spec"]["activeDeadlineSeconds"] == 3600
    assert pod["metadata"]["ownerReferences"][0]["name"] == "lm"
    assert "controller" not in pod["metadata"]["ownerReferences"][0]
    status, _, errors = await rgt(fleet_file, *words)
    assert status == 0, errors
    (best,) = (tmp_path / "here").rglob("best.txt")
    assert best.read_text() == "weights\n"
    # The Job itself names its results, also by its name.
    for number, without in enumerate(((), ("lm",))):
        there = tmp_path / f"there-{number}"
        status, _, errors = await rgt(fleet_file, "pull", "lm", *without, "--dest", str(there))
        assert [path.name for path in there.rglob("best.txt")] == ["best.txt"], errors
        assert "name paths" not in errors
    # Twice is once: the pod that runs is taken.
    assert (await rgt(fleet_file, "run", "lm", "--reader"))[0] == 0


async def test_a_reader_that_does_not_start_is_deleted(
    cluster: LocalCluster, fleet_file: Path
) -> None:
    """Its deadline counts from its start: one that no node takes would wait there for ever."""
    assert (await rgt(fleet_file, "run", "lm", "--wait", "--", "true"))[0] == 0
    cluster.new_pod_phase = "Pending"
    status, _, errors = await rgt(fleet_file, "run", "lm", "--reader", "--probe", "1s")
    assert (status, "did not run within 1s, and was deleted" in errors) == (3, True), errors
    assert ("pods", "ml", "lm-reader") not in cluster.objects
    (spec,) = load_fleet(fleet_file)
    job = pod_jobs.KubernetesJob(spec)
    assert await job.create_reader() == "lm-reader"
    first = cluster.objects["pods", "ml", "lm-reader"]
    # A second one waits for it, as it may be pulling its image.
    arguments = cast("Any", SimpleNamespace(probe=60.0, fleet=None, json=False))
    waiting = asyncio.create_task(pod_job.start_reader(arguments, spec))
    await asyncio.sleep(1.0)
    assert cluster.objects["pods", "ml", "lm-reader"] is first
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ("pods", "ml", "lm-reader") not in cluster.objects


async def test_a_reader_is_refused_while_the_job_runs_and_without_claims(
    cluster: LocalCluster, fleet_file: Path
) -> None:
    assert (await rgt(fleet_file, "run", "lm", "--", "exec sleep 600"))[0] == 0
    status, _, errors = await rgt(fleet_file, "run", "lm", "--reader")
    assert (status, "the Job lm has not ended" in errors) == (2, True)
    fleet_file.write_text(fleet_file.read_text().partition("claims")[0])
    status, _, errors = await rgt(fleet_file, "run", "lm", "--reader")
    assert (status, "has no `claims`" in errors) == (2, True)


async def test_options_without_use_and_json(cluster: LocalCluster, fleet_file: Path) -> None:
    status, _, errors = await rgt(fleet_file, "run", "lm", "--name", "x", "--", "true")
    assert (status, "--name does not apply to a Job" in errors) == (2, True)
    status, out, errors = await rgt(fleet_file, "run", "lm", "--wait", "--json", "--", "true")
    assert status == 0, errors
    body = json.loads(out)
    assert (body["box"], body["exit"], body["end"]) == ("lm", 0, "Complete: exit 0")


async def test_a_tag_is_resolved_by_the_pods_that_run_it_and_otherwise_refused(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = pod_jobs.KubernetesJob(pod_spec(job="lm", image="ghcr.io/me/lm:v1"))
    # The registry is asked only where no pod tells.
    answers = [ImageDigest(image="", reason="ghcr.io: it is not public, or does not exist")]

    async def ask(image: str) -> ImageDigest:
        assert image == "ghcr.io/me/lm:v1"
        return answers.pop()

    monkeypatch.setattr(pod_jobs, "resolve_image", ask)
    with pytest.raises(
        launching.CannotRun,
        match=r"is a tag.*no pod of the namespace runs it, and ghcr.io: it is not",
    ):
        await job.resolve_image()
    answers.append(ImageDigest(image="", by_digest="ghcr.io/me/lm@sha256:1"))
    assert await job.resolve_image() == "ghcr.io/me/lm@sha256:1"
    pods_of(cluster, imageID=f"docker-pullable://ghcr.io/me/lm@{DIGEST}")
    assert await job.resolve_image() == f"ghcr.io/me/lm@{DIGEST}"
    cluster.add_pod("ml", "other")
    other = cluster.objects["pods", "ml", "other"]
    other["spec"] = cluster.objects["pods", "ml", "train-0"]["spec"]
    other["status"] = {
        **other["status"],
        "containerStatuses": [{"name": "main", "imageID": f"ghcr.io/me/lm@{DIGEST[:-1]}0"}],
    }
    with pytest.raises(launching.CannotRun, match="run 2 different images of that name"):
        await job.resolve_image()


def test_a_job_without_gpus_and_claims_requests_none() -> None:
    route = pod_spec(job="lm", image="i", gpus=0).kubectl
    assert route is not None
    job = pod_jobs.job_manifest(route, "i", ["a", "b c"], env={}, workdir="/w", retries=0)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert "resources" not in container
    assert container["command"][-1] == "a 'b c'"
    assert (container["workingDir"], container["env"][0]["value"]) == ("/w", "/tmp/rgt/lm")
