"""A cluster on the loopback that the real kubectl uses, and a box that is a pod of it."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.model import BoxSpec, KubectlRoute, ProviderRef
from tests.contract.providers.fakes.local_cluster import LocalCluster, running_cluster


@functools.cache
def require_kubectl() -> None:
    """Fail with the reason if there is no kubectl that speaks the stream protocol of the cluster."""
    assert shutil.which("kubectl"), "missing: kubectl; run make parts"
    found = subprocess.run(
        ["kubectl", "version", "--client", "-o", "json"], capture_output=True, check=True
    ).stdout
    version = json.loads(found)["clientVersion"]
    minor = int(version["minor"].partition("+")[0])
    assert minor >= 30, f"kubectl 1.30 or newer is needed, this is {version['gitVersion']}"


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalCluster]:
    """The cluster with the pod ``ml/train-0``, in the kubeconfig of this process."""
    require_kubectl()
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
