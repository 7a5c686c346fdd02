"""A pod as a box, through the real ``kubectl exec``: commands, their streams, and what can be wrong."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    ConfigError,
    NoCommands,
    Unreachable,
    connect_box,
    feed_command,
    open_bulk,
    run_command,
)
from tests.contract.kubernetes.conftest import pod_spec
from tests.contract.providers.fakes.local_cluster import LocalCluster


async def test_a_command_has_its_input_output_errors_and_status(cluster: LocalCluster) -> None:
    connection = await connect_box(pod_spec())
    done = await run_command(
        connection, 'cat; printf "no line end" >&2; exit 3', data=b"a\0\xffb\n"
    )
    assert (done.status, done.out, done.words) == (3, b"a\0\xffb\n", "no line end")
    done = await run_command(connection, "printf '%s' \"$RGT_HERE\"")
    assert (done.status, done.out) == (0, b"pod")
    assert not connection.is_closed()
    connection.abort()


async def test_names_that_are_no_text_arrive_unchanged(cluster: LocalCluster) -> None:
    connection = await connect_box(pod_spec())
    done = await run_command(connection, "printf '%s' 'é €'")
    assert done.out == "é €".encode()
    connection.abort()


async def test_bulk_data_goes_both_ways_at_the_readers_pace(cluster: LocalCluster) -> None:
    connection = await connect_box(pod_spec())
    piece = bytes(range(256)) * 1024

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(32):
            yield piece

    done = await feed_command(connection, "sha256sum", pieces(), name="feeding")
    assert done.out.split()[0].decode() == hashlib.sha256(piece * 32).hexdigest()
    received = hashlib.sha256()
    pauses = [0.05]

    def on_data(data: bytes) -> None:
        received.update(data)
        if pauses:
            asyncio.get_running_loop().call_soon(pause, pauses.pop())

    def pause(seconds: float) -> None:
        channel.pause()
        asyncio.get_running_loop().call_later(seconds, channel.resume)

    channel = await open_bulk(connection, "head -c 8388608 /dev/zero; cat", on_data)
    channel.close_input()
    await channel.wait()
    assert received.hexdigest() == hashlib.sha256(bytes(8 << 20)).hexdigest()
    assert channel.status == 0
    connection.abort()


async def test_a_stream_that_is_cut_is_no_end_of_the_command(cluster: LocalCluster) -> None:
    connection = await connect_box(pod_spec())
    begun = asyncio.Event()
    channel = await open_bulk(connection, "echo begun; exec sleep 600", lambda _: begun.set())
    await begun.wait()
    cluster.cut_streams()
    with pytest.raises(
        Unreachable, match=r"kubectl: ml/train-0: the stream was cut \(error: error reading"
    ):
        await channel.wait()
    assert connection.is_closed(), "the next connection looks the pod up again"


async def test_a_command_that_kills_its_own_shell_has_the_status_that_kubectl_reports(
    cluster: LocalCluster,
) -> None:
    connection = await connect_box(pod_spec())
    done = await run_command(connection, "kill -KILL $PPID")
    assert done.status == 137
    connection.abort()


async def test_a_signal_reaches_the_command(cluster: LocalCluster) -> None:
    connection = await connect_box(pod_spec())
    begun = asyncio.Event()
    line = "trap 'exit 5' INT; echo ready; while :; do sleep 0.1; done"
    channel = await open_bulk(connection, line, lambda _: begun.set())
    await begun.wait()
    channel._channel.send_signal("INT")  # only rgt exec sends signals, in a terminal of its own
    await channel.wait()
    assert channel.status == 5
    connection.abort()


REFUSED = [
    (
        {"context": "other"},
        ConfigError,
        r"boxes.lm.kubectl.context: kubeconfig has no context other",
    ),
    (
        {"pod": "train-9"},
        Unreachable,
        r"pod train-9 does not exist in namespace ml.*boxes.lm.kubectl.pod",
    ),
    ({"container": "sidecar"}, ConfigError, r"boxes.lm.kubectl.container: .*sidecar; it has main"),
    (
        {"job": "lm"},
        Unreachable,
        r"no pod has job-name=lm in namespace ml; rgt run lm -- COMMAND creates",
    ),
    ({"selector": "app=lm"}, Unreachable, r"no pod has app=lm"),
]


@pytest.mark.parametrize(("keys", "kind", "words"), REFUSED)
async def test_an_error_names_the_box_the_key_and_the_next_step(
    cluster: LocalCluster, keys: dict[str, str], kind: type[BoxError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        await connect_box(pod_spec(**keys))


STATES: list[tuple[dict[str, Any], str]] = [
    (
        {"phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."}]},
        r"is Pending \(Unschedulable: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu",
    ),
    (
        {"phase": "Pending", "containerStatuses": [
            {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling"}}}]},
        r"is Pending \(main: ImagePullBackOff: Back-off pulling\)",
    ),
    (
        {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
        r"is Evicted: The node was low on resource: ephemeral-storage",
    ),
    (
        {"phase": "Succeeded", "containerStatuses": [
            {"name": "main", "state": {"terminated": {"reason": "Completed"}}}]},
        r"is Succeeded \(main: Completed\).*kubectl describe pod train-0 -n ml --context local",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("status", "words"), STATES)
async def test_a_pod_that_does_not_run_is_said_with_its_state(
    cluster: LocalCluster, status: dict[str, Any], words: str
) -> None:
    cluster.objects["pods", "ml", "train-0"]["status"] = status
    with pytest.raises(Unreachable, match=words):
        await connect_box(pod_spec())


async def test_two_running_pods_of_a_selector_are_not_chosen_between(cluster: LocalCluster) -> None:
    cluster.add_pod("ml", "lm-a", owner=("Job", "lm"))
    cluster.add_pod("ml", "lm-b", owner=("Job", "lm"))
    with pytest.raises(ConfigError, match=r"2 running pods have job-name=lm \(lm-a, lm-b\)"):
        await connect_box(pod_spec(job="lm"))
    cluster.objects["pods", "ml", "lm-a"]["metadata"]["deletionTimestamp"] = "2026-11-30T01:00:00Z"
    connection = await connect_box(pod_spec(job="lm"))
    assert connection.get_extra_info("rgt_label") == "ml/lm-b", "the other one is being deleted"


async def test_a_role_without_exec_and_a_container_without_a_shell_are_said(
    cluster: LocalCluster,
) -> None:
    connection = await connect_box(pod_spec())
    cluster.may_exec = False
    with pytest.raises(AuthFailed, match=r"let you create pods/exec in namespace ml.*auth can-i"):
        await run_command(connection, "true")
    cluster.may_exec = True
    cluster.start_error = 'exec: "sh": executable file not found in $PATH: unknown'
    with pytest.raises(NoCommands, match=r"the container has no sh.*boxes.lm.kubectl.container"):
        await run_command(connection, "true")


async def test_a_role_that_may_exec_but_not_read_pods_is_enough_for_a_named_pod(
    cluster: LocalCluster,
) -> None:
    cluster.rights = {"ml": ()}
    with pytest.raises(AuthFailed, match="let you list pods in namespace ml"):
        await connect_box(pod_spec(selector="app=lm"))
    connection = await connect_box(pod_spec())
    assert connection.get_extra_info("rgt_label") == "ml/train-0"


async def test_without_kubectl_it_says_what_to_install(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"boxes.lm.kubectl: there is no kubectl in PATH"):
        await connect_box(pod_spec())
