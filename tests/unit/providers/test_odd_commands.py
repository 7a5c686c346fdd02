"""What kubectl and squeue print may be anything: it is read, or refused, and ends no reading of other boxes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.model import ProviderRef
from rgt_tui.providers import AccountContext, BadAnswer
from rgt_tui.providers.command_line import CommandResult
from rgt_tui.providers.kubernetes import KubernetesAccount, open_account
from rgt_tui.providers.slurm import parse_line

CONTEXT = AccountContext(lambda: 1_790_000_000.0, {}, Path("/nonexistent"), 1.0)
META: dict[str, Any] = {"name": "train", "namespace": "ml", "uid": "u"}


class Kubectl:
    """Prints one pod, and no Job."""

    def __init__(self, pod: dict[str, Any]) -> None:
        self.pod = pod

    async def run(self, *words: str) -> CommandResult:
        items = [self.pod] if "pods" in words else []
        return CommandResult(0, msgspec.json.encode({"items": items}).decode(), "")

    def written(self, words: Any) -> str:
        return " ".join(words)


def account(pod: dict[str, Any]) -> KubernetesAccount:
    found = open_account(ProviderRef("kubernetes", "ml/pod/train"), CONTEXT)
    found._line = Kubectl(pod)  # type: ignore[assignment]
    return found


def pod(**changes: Any) -> dict[str, Any]:
    return {"metadata": META, "spec": {"containers": []}, "status": {"phase": "Running"}} | changes


@pytest.mark.parametrize("count", ["9" * 5000, "-1", "1.5", "٣", 10**9, 8])
async def test_a_number_of_gpus_is_a_small_one_or_none(count: object) -> None:
    limits = {"nvidia.com/gpu": count}
    (found,) = await account(pod(spec={"containers": [{"resources": {"limits": limits}}]})).list()
    assert found.gpu_count == (8 if count == 8 else None)


@pytest.mark.parametrize(
    "time",
    ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59"],
)
async def test_a_time_at_which_no_machine_was_made_is_none(time: str) -> None:
    odd = pod(
        metadata={**META, "creationTimestamp": time}, status={"phase": "Running", "startTime": time}
    )
    (found,) = await account(odd).list()
    assert (found.meter.created, found.meter.started) == (None, None)


@pytest.mark.parametrize("name", ["\x1b[2J", "a/b", "", "UPPER"])
async def test_a_name_that_no_cluster_gives_tells_nothing(name: str) -> None:
    with pytest.raises(BadAnswer):
        await account(pod(metadata={**META, "name": name})).list()


def row(**changes: str) -> str:
    cells = {"id": "4711", "number": "4711", "state": "RUNNING", "start": "1790000000", "end": "1790003600",
             "nodes": "1", "gres": "gpu:2", "partition": "p", "name": "train"} | changes  # fmt: skip
    return "\t".join(cells.values())


def test_a_line_of_squeue_is_read() -> None:
    job = parse_line(row())
    assert (job.id, job.start, job.end, job.gpus) == ("4711", 1_790_000_000.0, 1_790_003_600.0, 2)


@pytest.mark.parametrize("nodes", ["9" * 5000, "٣", "-1", "1.5"])
def test_a_number_of_nodes_that_is_none_says_nothing(nodes: str) -> None:
    assert parse_line(row(nodes=nodes)).gpus is None


@pytest.mark.parametrize("time", ["999999999999", "0", "-5", "N/A", "1e9"])
def test_a_time_at_which_no_job_runs_is_none(time: str) -> None:
    job = parse_line(row(start=time, end=time))
    assert (job.start, job.end) == (None, None)


@pytest.mark.parametrize("ident", ["4711_[\x1b[2J]", "\x1b4711", "", "0"])
def test_an_id_that_is_none_is_a_bad_answer(ident: str) -> None:
    with pytest.raises(BadAnswer):
        parse_line(row(id=ident))
