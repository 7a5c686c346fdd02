"""Runs of other people's trainers: what they leave is found and sent as curves, and goes on after a reconnect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, Channel, make_job


class Curves:
    """What a client that keeps its cursors has of a run."""

    def __init__(self, agent: Agent, **config: Any) -> None:
        self._agent, self._config = agent, config
        self.points: dict[str, list[tuple[int, Any]]] = {}
        self.resumes: list[int] = []
        self.runs: set[str] = set()
        self._cursors: dict[str, Any] = {}

    def until(self, condition: Callable[[], bool]) -> None:
        """Connect with the cursors, read until `condition`, and cut."""
        channel: Channel = self._agent.watch(
            interval=0.05, scalar_cursors=self._cursors, **self._config
        )
        channel.expect(lambda frame: self._take(frame) and condition(), "the points")
        channel.kill()

    def _take(self, frame: Any) -> bool:
        if not isinstance(frame, protocol.Scalars):
            return False
        metric = frame.source.rpartition("#")[2]
        have = self.points.setdefault(metric, [])
        known = self._cursors.get(frame.source)
        assert frame.start <= (known["offset"] if known else 0)
        del have[frame.start :]
        for point in frame.points:
            ((_, value),) = point.values.items()
            have.append((point.step, value))
        self.resumes += [step for step, _ in frame.resumes]
        self.runs.add(frame.run)
        self._cursors[frame.source] = {"inode": frame.inode, "offset": frame.end}
        return True

    def steps(self, metric: str = "loss") -> list[int]:
        return [step for step, _ in self.points.get(metric, [])]


def test_totals_of_a_bar_and_of_a_trainer_state_come_as_points_of_their_own(
    agent: Agent, tmp_path: Path
) -> None:
    def bar(step: int) -> str:
        return f"steps: {step}%|█| {step}/300 [00:00<00:06, 49.04it/s, loss=0.5]\r"

    job = make_job(tmp_path / "job", ["true"], ["a"])
    log = job / "logs" / "a.log"
    log.parent.mkdir()
    log.write_text("".join(map(bar, range(1, 100))))
    curves = Curves(agent, jobs=[str(job)])
    curves.until(lambda: curves.steps() == list(range(1, 100)) and "total_steps" in curves.points)
    assert curves.points["total_steps"] == [(1, 300.0)]
    with log.open("a") as file:
        file.write("".join(map(bar, [*range(100, 301), 1, 2])))
    curves.until(lambda: curves.steps()[-1:] == [302] and len(curves.points["total_steps"]) == 2)
    assert curves.points["total_steps"] == [(1, 300.0), (301, 0.0)]

    state = tmp_path / "tuned" / "trainer_state.json"
    state.parent.mkdir()
    row = {"epoch": 0.1, "loss": 2.5, "step": 5}
    state.write_text(
        json.dumps({"global_step": 5, "log_history": [row], "max_steps": 50}, indent=2)
    )
    tuned = Curves(agent, runs=[str(tmp_path / "t*")])
    tuned.until(lambda: tuned.points.get("total_steps") == [(5, 50.0)] and tuned.steps() == [5])


def rows(first: int, last: int) -> str:
    return "".join(f"{step // 10},{step},{step / 8},0.001\n" for step in range(first, last))


def test_a_run_directory_is_found_and_goes_on_after_a_cut(agent: Agent, tmp_path: Path) -> None:
    csv = tmp_path / "mine" / "lightning_logs" / "version_0" / "metrics.csv"
    csv.parent.mkdir(parents=True)
    csv.write_text("epoch,step,train_loss,lr\n" + rows(0, 700))
    curves = Curves(agent, runs=[str(tmp_path / "m*")])
    curves.until(lambda: curves.steps() == curves.steps("lr") == list(range(700)))
    with csv.open("a") as file:
        file.write(rows(700, 900))
    curves.until(lambda: curves.steps() == curves.steps("lr") == list(range(900)))
    assert curves.points["loss"][-1] == (899, 899 / 8)
    assert (curves.runs, curves.resumes) == ({"mine"}, [])


def test_a_run_that_starts_again_begins_a_segment_also_while_nobody_watches(
    agent: Agent, tmp_path: Path
) -> None:
    def line(step: int, loss: float) -> str:
        return f"iter {step}: loss {loss:.4f}, time 80.00ms, mfu 12.00%\n"

    job = make_job(tmp_path / "job", ["true"], ["a"])
    log = job / "logs" / "a.log"
    log.parent.mkdir()
    log.write_text("".join(line(step, 2.0) for step in range(100)))
    curves = Curves(agent, jobs=[str(job)])
    curves.until(lambda: curves.steps() == list(range(100)))

    def again() -> None:
        with log.open("a") as file:
            file.write("".join(line(step, 1.5) for step in range(50, 70)))

    channel = agent.watch(interval=0.05, jobs=[str(job)])
    channel.expect(lambda frame: isinstance(frame, protocol.Scalars) and frame.end == 100)
    again()
    frame = channel.expect(lambda frame: isinstance(frame, protocol.Scalars) and frame.resumes)
    assert (frame.run, frame.start, frame.resumes[0][0]) == ("a", 50, 50)
    channel.kill()
    curves.until(lambda: curves.steps() == list(range(70)))
    assert [value for _, value in curves.points["loss"]] == [2.0] * 50 + [1.5] * 20


def test_our_own_metrics_are_not_shown_twice(agent: Agent, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 1, "time": 1.0, "loss": 2.0}\n')
    (run / "metrics.csv").write_text("epoch,step,train_loss,lr\n" + rows(0, 20))
    channel = agent.watch(interval=0.05, runs=[str(run)])
    frame = channel.expect(lambda frame: isinstance(frame, protocol.Scalars))
    assert frame.source == str(run / "metrics.jsonl")
    assert not any(isinstance(frame, protocol.Scalars) for frame in channel.sync())
    channel.kill()
