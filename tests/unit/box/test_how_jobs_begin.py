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


def test_a_log_without_steps_shows_that_the_training_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(str(make_job(tmp_path / "q", ["true"], ["a"])))
    beginning = JobBeginning(job, fresh=True)
    Path(job.log_path("a")).parent.mkdir(parents=True, exist_ok=True)
    Path(job.log_path("a")).write_text(
        "".join(f"train_loss {3 - n / 10:.3f} accuracy 0.{n}5\n" for n in range(1, 9))
    )
    cell = {"name": "a", "state": "running", "attempts": 1, "log": job.log_path("a")}
    frame = {"cells": [cell], "runner_alive": True, "done": False}
    monkeypatch.setattr(queue_state, "queue_frame", lambda *_: frame)
    found = beginning.watch_start(0.0)
    assert (found["verdict"], found["step"]) == ("alive", None)
    assert beginning._poll_start(None)["sure"] is True
