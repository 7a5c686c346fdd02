"""``rgt down`` on a pod and on a Job: deleted through the gate by the real kubectl; what survives is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.kubernetes import test_pod_box, test_pod_job
from tests.contract.kubernetes.test_pod_box import rgt
from tests.contract.providers.fakes.local_cluster import LocalCluster

pytestmark = pytest.mark.serial  # the pods see the processes of this machine

pod_file, job_file = test_pod_box.fleet_file, test_pod_job.fleet_file


async def delete_box(fleet: Path) -> str:
    """Give up what a dry run says can be given up, confirm another dry run's digest, and return the output."""
    words: tuple[str, ...] = ("down", "lm", "--destroy")
    _, out, _ = await rgt(fleet, *words, "--dry-run", "--json")
    items = json.loads(out)["items"]
    given = [item["key"] for item in items if item["forfeitable"] and not item["ok"]]
    assert "provider" in given, "a person has to know that the node bills on"
    words += tuple(word for key in given for word in ("--forfeit", key))
    status, out, errors = await rgt(fleet, *words, "--dry-run", "--json")
    assert status == 0, out + errors
    review = json.loads(out)
    confirm = ("--confirm", review["phrase"], "--evidence", review["digest"])
    status, out, errors = await rgt(fleet, *words, *confirm)
    assert status == 0, out + errors
    return out


async def test_a_pod_is_deleted_and_its_claim_stays(cluster: LocalCluster, pod_file: Path) -> None:
    cluster.add_claim("ml", "ckpt", "100Gi")
    text = await delete_box(pod_file)
    assert ("pods", "ml", "train-0") not in cluster.objects
    assert ("persistentvolumeclaims", "ml", "ckpt") in cluster.objects
    assert "kubectl, context local: not found" in text
    assert "volumes that were claimed (PersistentVolumeClaim), until they are deleted" in text


async def test_a_job_is_deleted_with_its_pods(cluster: LocalCluster, job_file: Path) -> None:
    status, out, errors = await rgt(job_file, "run", "lm", "--", "exec sleep 600")
    assert status == 0, out + errors
    text = await delete_box(job_file)
    assert cluster.policies == ["Background"]
    assert not {key for key in cluster.objects if "lm" in key[2]}
    assert "the Job is deleted" in text or "not found" in text
