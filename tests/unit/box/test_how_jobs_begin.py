"""How a job begins: its state is read before it is looked whether its runner lives, and one may end between the two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rgt_box.queue import queue_state
from rgt_box.queue.launch import JobBeginning
from rgt_box.queue.queue_file import Job

from tests.process.box.harness import make_job

OVER: dict[str, Any] = {"cells": [], "runner_alive": False, "done": True}
NEITHER = {**OVER, "done": False}


@pytest.mark.parametrize(
    ("frames", "verdict", "looks"),
    [([NEITHER, OVER], "done", 2), ([NEITHER, NEITHER], "not-started", 2), ([OVER], "done", 1)],
)
def test_a_runner_that_has_just_ended_is_looked_at_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    frames: list[dict[str, Any]],
    verdict: str,
    looks: int,
) -> None:
    told = iter(frames)
    seen: list[dict[str, Any]] = []

    def frame(*_: object) -> dict[str, Any]:
        seen.append(next(told))
        return seen[-1]

    beginning = JobBeginning(Job(str(make_job(tmp_path / "q", ["true"], ["a"]))), fresh=True)
    monkeypatch.setattr(queue_state, "queue_frame", frame)
    assert beginning.watch_start(60.0)["verdict"] == verdict
    assert len(seen) == looks
