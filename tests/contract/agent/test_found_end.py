"""What is followed of a found training ends some time after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rgt_box.discovery.found_run import FoundRun
from rgt_box.streams import trainings, watch
from rgt_box.streams.follows import FollowedFiles


def report(folder: Path, **fields: Any) -> dict[str, Any]:
    run = FoundRun("exp/train", 1, 999999, 5, 1000.0)
    run.cwd, run.logs = str(folder), [str(folder / "run.log")]
    run.files = [str(folder / "history.jsonl")]
    return {"boot": "b", "runs": [dict(run.as_dict(), **fields)]}


def kinds(follows: FollowedFiles) -> list[str]:
    follows._looked = float("-inf")
    if follows._trainings is not None:
        follows._trainings._looked = float("-inf")
    return [frame["t"] for frame in follows.poll_frames(100)[0]]


def test_an_ended_training_is_let_go_and_its_restart_is_followed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, history = tmp_path / "run.log", tmp_path / "history.jsonl"
    log.write_text("one\n")
    history.write_text('{"step": 1, "loss": 2.0}\n')
    follows = FollowedFiles(watch.parse_config(json.dumps({"find": True}).encode()))
    follows.apply_found(report(tmp_path))
    assert sorted(kinds(follows)) == ["found", "log", "scalar"]
    monkeypatch.setattr(trainings, "LET_GO_AFTER", 0.0)
    follows.apply_found(report(tmp_path, ended=2000.0, seen=1995.0))
    for _ in range(3):
        kinds(follows)
    assert not follows._logs
    log.write_text("one\ntwo\n")
    assert kinds(follows) == []
    follows.apply_found(report(tmp_path, pid=999998, started=3000.0, lives=[[1000.0, 2000.0]]))
    frames = follows.poll_frames(100)[0]
    (lines,) = [frame["lines"] for frame in frames if frame["t"] == "log"]
    assert lines == ["two"]
