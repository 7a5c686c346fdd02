"""A cluster on the loopback that the real kubectl uses, and a box that is a pod of it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.model import BoxSpec, KubectlRoute, ProviderRef
from tests.contract.providers.fakes.local_cluster import LocalCluster, running_cluster


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalCluster]:
    """The cluster with the pod ``ml/train-0``, in the kubeconfig of this process."""
    assert shutil.which("kubectl"), "missing: kubectl; run make parts"
    home = tmp_path / "pod"
    home.mkdir()
    async with running_cluster(home) as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig(tmp_path)))
        monkeypatch.setenv("KUBECACHEDIR", str(tmp_path))
        yield running


def pod_spec(**keys: Any) -> BoxSpec:
    """Return the box of the pod; `keys` are those of its route."""
    if not {"pod", "selector", "job"} & set(keys):
        keys["pod"] = "train-0"
    route = KubectlRoute(**{"context": "local", "namespace": "ml", **keys})
    return BoxSpec(
        name="lm", host=route.place_text, profile="kubernetes", kubectl=route,
        provider=ProviderRef(kind="kubernetes", instance=route.instance_id or "", via="local"),
    )  # fmt: skip
