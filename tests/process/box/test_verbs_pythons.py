"""The verbs under every Python that is at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.process.box.harness import Agent, make_job, pythons

SCRIPT = "mkdir -p {out}; echo 1 > {out}/best; [ {name} != a ] || kill -9 $$"


def last(agent: Agent, *words: str) -> tuple[int, dict[str, Any]]:
    done = agent.run(*words)
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("python", pythons(between=pytest.mark.full))
def test_every_verb_works(agent_file: Path, tmp_path: Path, python: str) -> None:
    agent = Agent(agent_file, tmp_path / "state", python)
    job = make_job(
        tmp_path / "job", ["sh", "-c", SCRIPT], ["a", "b"], durable=str(tmp_path / "fs" / "{name}")
    )
    (job / "b.toml").write_bytes(b"x\r\n")
    assert last(agent, "queue", "check", "--job", str(job), "--json", "--fix")[1]["fixed"] == [
        str(job / "b.toml")
    ]
    assert agent.run("queue", "run", "--job", str(job)).returncode == 1
    status, report = last(agent, "reconcile", "--job", str(job))
    assert (status, report["counts"]) == (1, {"missing": 1, "ok": 1})
    assert last(agent, "mirror", str(tmp_path / "fs"), str(tmp_path / "copy"))[1]["verified"] == 2
    assert (
        last(agent, "manifest", str(tmp_path / "copy"), "--cache", str(tmp_path / "cache"))[1][
            "files"
        ]
        == 2
    )
    assert last(agent, "grep", "START . att", str(job / "master.log"))[1]["matches"] == 2
    agent.env |= {"RGT_ROOTS": str(tmp_path / "job"), "RGT_TERMINALS": ""}
    status, listed = last(agent, "results", "--job", str(job))
    assert (status, listed["problems"]) == (0, [])
    assert {"cell a", "cell b"} <= {group["owner"] for group in listed["groups"]}
    status, held = last(agent, "seal", "--job", str(job))
    assert (status, held["generation"]) == (0, listed["generation"])
    assert last(agent, "unseal", held["nonce"]) == (0, {"opened": True})
    assert agent.run("detach", "--job", str(job), "--print", "slurm").returncode == 0
