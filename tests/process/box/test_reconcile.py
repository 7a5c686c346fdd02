"""The roster of the queue against durable storage that was really written, damaged and lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.process.box.harness import Agent, make_job

SCRIPT = """mkdir -p {out}/best; echo {name} > {out}/best/model; echo '{"a": 1}' > {out}/metrics.jsonl
[ {name} != bad ] || exit 3"""


@pytest.fixture
def job(agent: Agent, tmp_path: Path) -> Path:
    """A queue of which `a` and `b` are done, `bad` failed, and `late` was appended afterwards."""
    job = make_job(
        tmp_path / "job",
        ["sh", "-c", SCRIPT],
        ["a", "b", "bad"],
        durable=str(tmp_path / "fs" / "{name}"),
    )
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    (job / "late.toml").touch()
    with (job / "queue.txt").open("a") as file:
        file.write("late.toml lm\n")
    return job


def reconcile(agent: Agent, *words: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    done = agent.run("reconcile", *words)
    report = json.loads(done.stdout)
    return done.returncode, report, {cell["name"]: cell for cell in report["cells"]}


def statuses(cells: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: cell["status"] for name, cell in cells.items()}


def drop_unfinished(job: Path) -> None:
    (job / "queue.txt").write_text("a.toml lm\nb.toml lm\n")


def test_ok_missing_and_never_ran(agent: Agent, job: Path, tmp_path: Path) -> None:
    status, report, cells = reconcile(agent, "--job", str(job))
    assert status == 1
    assert statuses(cells) == {"a": "ok", "b": "ok", "bad": "missing", "late": "never-ran"}
    assert cells["bad"]["reason"] == "no copy; the queue state is failed: exit 3"
    assert (cells["a"]["files"], cells["a"]["verified"], cells["a"]["line"]) == (3, 2, 1)
    assert report["counts"] == {"ok": 2, "missing": 1, "never-ran": 1}
    shutil.rmtree(tmp_path / "fs" / "b")
    assert statuses(reconcile(agent, "--job", str(job))[2])["b"] == "missing"
    drop_unfinished(job)
    (tmp_path / "fs" / "b").mkdir()
    assert reconcile(agent, "--job", str(job))[2]["b"]["reason"] == "the durable directory is empty"


def test_all_there(agent: Agent, job: Path, tmp_path: Path) -> None:
    drop_unfinished(job)
    (tmp_path / "fs" / "a.tmp-99").mkdir()
    status, report, _ = reconcile(agent, "--job", str(job))
    assert (status, report["ok"], report["problems"]) == (0, True, [])
    assert report["extra"] == [str(tmp_path / "fs" / "a.tmp-99")]
    # The same elsewhere: pulled to another place, without the job's state.
    shutil.copytree(tmp_path / "fs", tmp_path / "pulled")
    shutil.rmtree(tmp_path / "fs")
    (job / "state.json").unlink()
    for where in (str(tmp_path / "pulled"), str(tmp_path / "pulled" / "{name}")):
        assert reconcile(agent, "--job", str(job), "--durable", where)[0] == 0


def test_a_copy_that_a_crash_left_under_another_name_is_found(
    agent: Agent, job: Path, tmp_path: Path
) -> None:
    drop_unfinished(job)
    left = tmp_path / "fs" / "a.old-99-0123abcd"
    (tmp_path / "fs" / "a").rename(left)
    status, report, cells = reconcile(agent, "--job", str(job))
    assert (status, cells["a"]["status"], cells["a"]["durable"]) == (0, "ok", str(left))
    assert report["extra"] == []


@pytest.mark.parametrize(
    ("harm", "status"),
    [
        (lambda copy: (copy / "best" / "model").write_text("b"), "damaged"),
        (lambda copy: (copy / "best" / "model").write_text("x\n"), "damaged"),
        (lambda copy: (copy / "best" / "model").unlink(), "damaged"),
        (lambda copy: (copy / "best" / "model").write_text(""), "zero-byte"),
        (lambda copy: os.truncate(copy / ".rgt-manifest.jsonl", 40), "damaged"),
    ],
)
def test_harm_is_seen(agent: Agent, job: Path, tmp_path: Path, harm: Any, status: str) -> None:
    harm(tmp_path / "fs" / "b")
    code, _, cells = reconcile(agent, "--job", str(job))
    assert (code, cells["b"]["status"], cells["a"]["status"]) == (1, status, "ok")
    if status == "zero-byte":
        assert cells["b"]["paths"] == [{"path": "best/model"}]


def test_without_a_manifest_the_trainers_own_counts_and_else_nothing_is_proved(
    agent: Agent, job: Path, tmp_path: Path
) -> None:
    drop_unfinished(job)
    best = tmp_path / "fs" / "b" / "best"
    (tmp_path / "fs" / "b" / ".rgt-manifest.jsonl").unlink()
    code, _, cells = reconcile(agent, "--job", str(job))
    assert (code, cells["b"]["status"]) == (2, "unproven")
    digest = hashlib.sha256((best / "model").read_bytes()).hexdigest()
    checksums = {"size": 2, "crc32": ["00000000"], "chunk": 16777216}
    (best / "manifest.json").write_text(json.dumps({"files": {"model": checksums}}))
    assert reconcile(agent, "--job", str(job))[2]["b"]["status"] == "unproven", (
        "a step has no digest to compare"
    )
    (best / "manifest.json").write_text(
        json.dumps({"files": {"model": {"size": 2, "sha256": digest}}})
    )
    assert reconcile(agent, "--job", str(job))[0] == 0
    (best / "model").write_text("c\n")
    assert reconcile(agent, "--job", str(job))[2]["b"]["status"] == "damaged"


def test_duplicates_within_a_queue_and_between_two(agent: Agent, job: Path, tmp_path: Path) -> None:
    (job / "queue.txt").write_text("a.toml lm\nsub/a.yaml lm\n")
    other = make_job(
        tmp_path / "other", ["true"], ["a", "z"], durable=str(tmp_path / "fs" / "{name}")
    )
    code, report, _ = reconcile(agent, "--job", str(job), "--job", str(other))
    assert code == 1
    assert [cell["status"] for cell in report["cells"]] == [
        "duplicate",
        "duplicate",
        "duplicate",
        "missing",
    ]
    assert report["cells"][1]["reason"] == "lines 1 and 2 have the same name"
    assert f"line 1 of {other}" in report["cells"][0]["reason"]


def test_storage_that_is_not_there_is_not_called_missing(
    agent: Agent, job: Path, tmp_path: Path
) -> None:
    drop_unfinished(job)
    (tmp_path / "fs").rename(tmp_path / "unmounted")
    code, report, cells = reconcile(agent, "--job", str(job))
    assert (code, set(statuses(cells).values())) == (2, {"unreadable"})
    assert "is its storage mounted?" in report["problems"][0]


def test_a_copy_of_an_earlier_run_is_not_the_result(agent: Agent, job: Path) -> None:
    state = json.loads((job / "state.json").read_bytes())
    state["cells"][0].update(state="interrupted", durable="pending")
    (job / "state.json").write_text(json.dumps(state))
    assert reconcile(agent, "--job", str(job))[2]["a"]["status"] == "not-done"


def test_what_cannot_be_told_exits_2(agent: Agent, tmp_path: Path) -> None:
    assert reconcile(agent, "--job", str(tmp_path / "nowhere"))[0] == 2
    job = make_job(tmp_path / "job", ["true"], ["a"])
    code, report, _ = reconcile(agent, "--job", str(job))
    assert (code, "names no durable directory" in report["problems"][0]) == (2, True)
    assert agent.run("reconcile").returncode == 2
