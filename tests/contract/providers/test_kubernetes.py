"""A Kubernetes Job as the machine of a box, through the real kubectl against an API server on the loopback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.demo import InjectedFault
from rgt_tui.model import (
    BillingVerb,
    Lifecycle,
    MeterKind,
    Permit,
    ProviderRef,
    StopPhase,
    StopProgress,
)
from rgt_tui.providers import (
    AuthError,
    PermitRefused,
    Provider,
    ProviderError,
    Providers,
    carry_out,
)
from rgt_tui.providers.command_line import CommandLine
from tests.contract.providers.conftest import permit_for
from tests.contract.providers.fakes.local_kubernetes import LocalKubernetes
from tests.contract.providers.rows_by_command import NAMESPACE, kubernetes
from tests.process.box.harness import PATIENCE

JOB = "ml/job/train-a"
CAPTURED: dict[str, Any] = json.loads(
    Path("tests/fixtures/kubernetes/kubectl.json").read_text(encoding="utf-8")
)
"""What kubectl prints, after its documentation and public captures."""


@pytest.fixture
async def server() -> AsyncIterator[LocalKubernetes]:
    """An API server whose controller acts at once."""
    assert shutil.which("kubectl"), "missing: kubectl; run make parts"
    server = LocalKubernetes(settle_s=0.0)
    await server.start()
    yield server
    await server.stop()


def control(
    server: LocalKubernetes, folder: Path, instance: str = JOB, via: str | None = "local"
) -> Provider:
    """Return the control plane of an object, as a fleet file with that instance has it."""
    return kube_providers(server, folder).open_control_plane(
        ProviderRef(kind="kubernetes", instance=instance, via=via)
    )


def kube_providers(server: LocalKubernetes, folder: Path) -> Providers:
    """Return control planes that find the server by a kubeconfig."""
    env = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(server.kubeconfig(folder)),
        "HOME": str(folder),
        "KUBECACHEDIR": str(folder),
    }
    return Providers(env=env)


def permit(provider: Provider, verb: BillingVerb) -> Permit:
    """Return what the gate would give out."""
    ref = provider.ref
    return permit_for(ref, verb)


async def carried_out(
    provider: Provider, verb: BillingVerb, timeout_s: float = 60.0
) -> list[StopProgress]:
    """Carry an action out to its end."""
    steps = carry_out(
        provider,
        permit(provider, verb),
        clock=time.time,
        sleep=asyncio.sleep,
        timeout_s=timeout_s,
        poll_s=0.05,
    )
    return [step async for step in steps]


def written(server: LocalKubernetes) -> list[str]:
    """Return the requests that change something."""
    return [line for line in server.requests if not line.startswith("GET ")]


async def test_a_job_is_listed_with_its_gpus_and_called_by_the_uid_of_its_pod(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    uid = server.add_job("ml", "train-a", gpus=2)
    server.add_pod("ml", "bare")
    server.add_pod("ml", "served-1", owner=("ReplicaSet", "served"))
    provider = control(server, tmp_path)
    listed = {item.id: item for item in await provider.list()}
    assert set(listed) == {JOB, "ml/pod/bare"}, (
        "what an owner would make anew is no machine of its own"
    )
    assert listed[JOB].gpu_count == 2
    meter = await provider.read(JOB)
    assert (meter.kind, meter.lifecycle) == (MeterKind.COMPUTE_AND_STORAGE, Lifecycle.RUNNING)
    assert meter.names == (uid,)
    assert meter.per_hour is None and "node" in (meter.doubt or "")


async def test_rights_in_one_namespace_are_enough(server: LocalKubernetes, tmp_path: Path) -> None:
    server.add_job("ml", "train-a")
    server.add_job("prod", "of-others")
    server.rights = {"ml": ("get", "list", "patch", "delete")}
    provider = control(server, tmp_path)
    assert [item.id for item in await provider.list()] == [JOB]
    assert (await provider.read(JOB)).lifecycle is Lifecycle.RUNNING
    steps = await carried_out(provider, BillingVerb.DESTROY)
    assert steps[-1].phase is StopPhase.METER_OFF
    assert ("jobs", "prod", "of-others") in server.objects


async def test_boxes_are_looked_for_in_the_namespace_of_each(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    server.add_job("lab", "train-b")
    server.rights = {"ml": ("get", "list"), "lab": ("get", "list")}
    refs = [control(server, tmp_path, one).ref for one in (JOB, "lab/job/train-b")]
    providers = kube_providers(server, tmp_path)
    meters = await providers.poll_meters(refs)
    assert [meters[ref].lifecycle for ref in refs] == [Lifecycle.RUNNING, Lifecycle.RUNNING]
    assert not [line for line in server.requests if line == "GET /apis/batch/v1/jobs"]


async def test_without_the_right_to_list_a_box_is_read_by_name(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    server.add_pod("ml", "bare")
    server.rights = {"ml": ("get", "patch")}
    refs = [control(server, tmp_path, one).ref for one in (JOB, "ml/pod/bare")]
    meters = await kube_providers(server, tmp_path).poll_meters(refs)
    job, pod = (meters[ref] for ref in refs)
    assert (job.lifecycle, job.kind, job.error) == (
        Lifecycle.RUNNING,
        MeterKind.COMPUTE_AND_STORAGE,
        None,
    )
    assert "1 pods by the Job (its pods may not be listed)" in (job.native_status or "")
    assert not job.others
    server.objects["jobs", "ml", "train-a"]["status"]["active"] = 3
    several = await control(server, tmp_path).read(JOB)
    assert several.others == {"unlisted": "2 pods besides the box, which may not be listed"}
    server.objects["jobs", "ml", "train-a"]["status"]["active"] = 1
    assert (pod.lifecycle, pod.error) == (Lifecycle.RUNNING, None)
    steps = await carried_out(control(server, tmp_path), BillingVerb.PARK)
    assert steps[-1].phase is StopPhase.METER_OFF
    # A server that does not count the pods that are being deleted.
    del server.objects["jobs", "ml", "train-a"]["status"]["terminating"]
    meter = await control(server, tmp_path).read(JOB)
    assert (meter.lifecycle, meter.kind) == (Lifecycle.UNKNOWN, MeterKind.UNKNOWN)
    assert "unknown whether its pods have ended" in (meter.native_status or "")


async def test_a_deleted_job_whose_pods_may_not_be_listed_is_not_called_gone(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    server.rights = {"ml": ("get", "delete")}
    provider = control(server, tmp_path)
    await provider.read(JOB)
    steps = await carried_out(provider, BillingVerb.DESTROY, timeout_s=1.0)
    assert steps[-1].phase is StopPhase.UNCONFIRMED
    meter = await provider.read(JOB)
    assert meter.lifecycle is Lifecycle.UNKNOWN and "cannot list" in (meter.error or "")


@pytest.mark.parametrize("verb", [BillingVerb.PARK, BillingVerb.DESTROY])
async def test_without_the_right_nothing_is_changed_and_the_reason_is_shown(
    server: LocalKubernetes, tmp_path: Path, verb: BillingVerb
) -> None:
    server.add_job("ml", "train-a")
    server.rights = {"ml": ("get", "list")}
    provider = control(server, tmp_path)
    await provider.read(JOB)
    (step,) = await carried_out(provider, verb)
    assert step.phase is StopPhase.FAILED
    word = "delete" if verb is BillingVerb.DESTROY else "patch"
    assert "nothing was done" in step.text and f'cannot {word} resource "jobs"' in step.text
    assert (await provider.read(JOB)).lifecycle is Lifecycle.RUNNING


async def test_deleting_a_job_takes_its_pods_along_and_says_that_the_node_bills_on(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    provider = control(server, tmp_path)
    assert "--cascade=background" in provider.describe_call(BillingVerb.DESTROY, JOB)
    await provider.read(JOB)
    steps = await carried_out(provider, BillingVerb.DESTROY)
    assert [step.phase for step in steps] == [
        StopPhase.REQUESTED,
        StopPhase.CONFIRMED,
        StopPhase.METER_OFF,
    ]
    assert "node is billed" in steps[-1].text and "compute off" not in steps[-1].text
    assert server.policies == ["Background"]
    assert not server.objects, "no pod is left that holds the GPU"


async def test_suspending_ends_the_pods_and_starting_brings_one_back(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    provider = control(server, tmp_path)
    steps = await carried_out(provider, BillingVerb.PARK)
    assert steps[-1].phase is StopPhase.METER_OFF
    assert (await provider.read(JOB)).lifecycle is Lifecycle.STOPPED
    await provider.start()
    await server.wait_settled()
    assert (await provider.read(JOB)).lifecycle is Lifecycle.RUNNING
    assert written(server) == ["PATCH /apis/batch/v1/namespaces/ml/jobs/train-a"] * 2


async def test_a_suspended_job_whose_pods_go_on_is_not_stopped(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    server.objects["jobs", "ml", "train-a"]["spec"]["suspend"] = True
    meter = await control(server, tmp_path).read(JOB)
    assert meter.lifecycle is Lifecycle.RUNNING


async def test_a_pod_that_something_owns_is_not_deleted(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    provider = control(server, tmp_path, "ml/pod/train-a-x7k2p")
    with pytest.raises(PermitRefused, match="Job train-a, which would recreate it"):
        await provider.destroy(permit(provider, BillingVerb.DESTROY))
    assert written(server) == []
    bare = control(server, tmp_path, "ml/pod/bare")
    server.add_pod("ml", "bare")
    await bare.read("ml/pod/bare")
    with pytest.raises(PermitRefused, match="cannot be suspended"):
        await bare.stop(permit(bare, BillingVerb.PARK))
    assert (await carried_out(bare, BillingVerb.DESTROY))[-1].phase is StopPhase.METER_OFF


async def test_pods_that_a_deleted_job_left_behind_still_hold_their_gpus(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    provider = control(server, tmp_path)
    await provider.read(JOB)
    del server.objects["jobs", "ml", "train-a"]
    meter = await provider.read(JOB)
    assert (meter.lifecycle, meter.kind) == (Lifecycle.RUNNING, MeterKind.COMPUTE_AND_STORAGE)
    assert "deleted, 1 pods left" in (meter.native_status or "")
    server.inject_faults(InjectedFault(on="GET /api/v1/namespaces/ml/pods", status=500, times=-1))
    assert (await provider.read(JOB)).error, "whether pods are left could not be asked"


async def test_the_stand_in_of_the_contract_suite_says_what_kubectl_says(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    """Words, status and shape; `rows_by_command` is what the suite believes of kubectl."""
    uid = server.add_job(NAMESPACE, "train-a")
    server.add_claim(NAMESPACE, "data", "200Gi")
    made = kubernetes()
    env = {
        **os.environ,
        "KUBECONFIG": str(server.kubeconfig(tmp_path)),
        "KUBECACHEDIR": str(tmp_path),
    }
    real, stand_in = (
        CommandLine(None, env, timeout_s=PATIENCE),
        CommandLine(None, made.env, timeout_s=PATIENCE),
    )
    place = f"--namespace={NAMESPACE}"
    for words in (
        ("get", "jobs", place, "--output=json"),
        ("get", "pods", place, "--selector=job-name=train-a", "--output=json"),
        ("get", "job", "train-a", place, "--output=json"),
        ("get", "job", "train-7", place, "--output=json"),
        ("patch", "job", "train-a", place, "--type=merge", '--patch={"spec":{"suspend":true}}'),
        ("delete", "job", "train-a", place, "--cascade=background", "--wait=false"),
        ("delete", "job", "train-a", place, "--cascade=background", "--wait=false"),
    ):
        theirs, ours = await real.run("kubectl", *words), await stand_in.run("kubectl", *words)
        assert (ours.status, ours.err) == (theirs.status, theirs.err), words
        if "--output=json" in words and not theirs.status:
            shapes = [json.loads(one.out) for one in (theirs, ours)]
            items = [found.get("items", [found]) for found in shapes]
            assert items[0] and set(items[0][0]) == set(items[1][0])
            assert (set(items[0][0]["spec"]), "items" in shapes[0]) == (
                set(items[1][0]["spec"]),
                "items" in shapes[1],
            )
        elif not theirs.status:
            assert ours.out.split() == theirs.out.split()[: len(ours.out.split())]
    assert uid
    server.add_job(NAMESPACE, "train-a")
    for status, reason in ((403, "Forbidden"), (500, "InternalError"), (429, "TooManyRequests")):
        body = json.dumps(
            {
                "kind": "Status",
                "status": "Failure",
                "reason": reason,
                "code": status,
                "message": "no",
            }
        )
        server.inject_faults(
            InjectedFault(on="GET /apis/batch/v1/jobs", status=status, raw=body.encode())
        )
        said = await real.run("kubectl", "get", "jobs", "--all-namespaces")
        assert (said.status, f"Error from server ({reason}): " in said.err) == (1, True), said
    await made.stop()


async def test_an_answer_that_is_lost_after_the_deletion_is_settled_by_reading(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_job("ml", "train-a")
    provider = control(server, tmp_path)
    await provider.read(JOB)
    server.inject_faults(InjectedFault(on="DELETE ", act=True, cut=3))
    steps = await carried_out(provider, BillingVerb.DESTROY)
    assert [step.phase for step in steps] == [
        StopPhase.REQUESTED,
        StopPhase.CONFIRMED,
        StopPhase.METER_OFF,
    ]
    assert "not acknowledged" in steps[0].text
    assert len(written(server)) == 1


async def test_what_was_never_seen_is_not_said_to_be_off(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    meter = await control(server, tmp_path).read(JOB)
    assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.GONE)
    wrong = await control(server, tmp_path, via="no-such-context").read(JOB)
    assert wrong.error is not None and wrong.lifecycle is Lifecycle.UNKNOWN


async def test_a_long_list_is_read_to_its_end(server: LocalKubernetes, tmp_path: Path) -> None:
    for number in range(520):
        server.add_pod("ml", f"p{number:03}")
    assert len(await control(server, tmp_path).list()) == 520


async def test_claims_of_volumes_outlive_the_machines(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    server.add_claim("ml", "data", "200Gi")
    account = Providers(env={}).find_account(ProviderRef(kind="kubernetes", instance=JOB))
    assert account.open_market() is None
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig(tmp_path))}
    leftovers = (
        await Providers(env=env)
        .find_account(ProviderRef("kubernetes", JOB, via="local"))
        .list_leftovers()
    )
    assert [(one.what, one.id, one.per_hour) for one in leftovers] == [("volume", "ml/data", None)]
    assert leftovers[0].size_gb == pytest.approx(214.7, abs=0.1)


async def test_an_instance_that_could_be_an_option_is_refused(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    for odd in ("train-a", "ml/job/--all", "ml/job/a b", "ml/secret/x", "../job/x"):
        provider = control(server, tmp_path, odd)
        with pytest.raises(PermitRefused, match="neither namespace"):
            await provider.destroy(permit(provider, BillingVerb.DESTROY))
    assert server.requests == []


READS = {
    "ml/job/train-1": (Lifecycle.RUNNING, "Running", 1, 2),
    "ml/job/train-2": (Lifecycle.STARTING, "Pending", 1, 2),
    "ml/job/train-3": (Lifecycle.GONE, "Complete", 0, None),
    "ml/job/train-4": (Lifecycle.GONE, "Failed", 0, None),
    "ml/job/train-5": (Lifecycle.STOPPED, "suspended", 0, None),
    "ml/job/train-6": (Lifecycle.RUNNING, "suspended, 1 pods left", 1, 2),
    "ml/pod/bare": (Lifecycle.RUNNING, "Running", 1, 2),
    "ml/pod/evicted": (Lifecycle.GONE, "Failed", 1, None),
}
"""Object → what it is, in which words, how many pods of it are named, and how many GPUs the list says."""


async def test_captured_objects_are_read_for_what_they_are(
    server: LocalKubernetes, tmp_path: Path
) -> None:
    for capture in CAPTURED["objects"]:
        for thing in capture["objects"]:
            server.put(thing)
    provider = control(server, tmp_path)
    listed = {item.id: item.gpu_count for item in await provider.list()}
    for ident, (life, words, pods, gpus) in READS.items():
        meter = await provider.read(ident)
        assert (meter.error, meter.lifecycle, meter.native_status) == (None, life, words), ident
        assert len(meter.names) == pods, ident
        assert listed.pop(ident, None) == gpus, ident
        assert (meter.created is not None) == (pods > 0), ident
    assert listed == {}, "a pod of a ReplicaSet is no machine, nor is what has ended"
    account = kube_providers(server, tmp_path).find_account(provider.ref)
    assert [
        (one.id, one.size_gb and round(one.size_gb)) for one in await account.list_leftovers()
    ] == [
        ("ml/data", 215),
        ("ml/waits", None),
    ]


@pytest.mark.parametrize(
    "capture", CAPTURED["refusals"], ids=lambda one: one["source"].partition(",")[0]
)
async def test_captured_refusals_prove_what_they_say(
    tmp_path: Path, capture: dict[str, str]
) -> None:
    (tmp_path / "stderr").write_text(capture["stderr"] + "\n")
    (tmp_path / "kubectl").write_text('#!/bin/sh\ncat "${0%/*}/stderr" >&2\nexit 1\n')
    (tmp_path / "kubectl").chmod(0o755)
    provider = Providers(env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}).open_control_plane(
        ProviderRef(kind="kubernetes", instance=JOB)
    )
    with pytest.raises(ProviderError) as caught:
        await provider.list()
    found = "AuthError" if isinstance(caught.value, AuthError) else type(caught.value).__name__
    assert (found, caught.value.code) == (capture["error"], capture["code"])
    assert capture["stderr"].splitlines()[-1][:60] in str(caught.value)
    steps = carry_out(
        provider,
        permit(provider, BillingVerb.DESTROY),
        clock=time.time,
        sleep=asyncio.sleep,
        timeout_s=0.1,
        poll_s=0.05,
    )
    first, *_ = [step async for step in steps]
    assert first.phase is StopPhase[capture["after_delete"]]
