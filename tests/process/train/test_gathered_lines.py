"""Lines of fast steps are written together: none but the last few before a kill may be missing."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from rgt_train.tracking import gathering

from tests.process.train.harness import Zygote, events

LOOP = """
import json, os, signal, subprocess, sys, time
import torch
from rgt_train import Options, Run
def logged():
    return [json.loads(line)["step"] for line in open("run/metrics.jsonl") if "loss" in line]
model = torch.nn.Linear(1, 1)
options = Options(save_every=SAVE, log_every=1, background=False, pace_s=PACE)
run = Run("run", model=model, samples=200, epochs=1, options=options)
with run:
    for _ in run.epochs():
        for _ in run.batches():
            run.step(1.0)
            if run.step_now == LAST and "again" not in sys.argv:
                END
"""
KILL = "os.kill(os.getpid(), 9)"


def launch_loop(
    trainers: Zygote, folder: Path, end: str, last: int = 107, save: int = 50, pace: float = 0.0
) -> int:
    """Train, and do `end` after step `last`; return the exit code."""
    text = LOOP.replace("LAST", str(last)).replace("SAVE", str(save)).replace("PACE", str(pace))
    (folder / "train.py").write_text(text.replace("END", end))
    return trainers.launch_script(folder / "train.py").wait()


def steps_of(folder: Path) -> list[int]:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [entry["step"] for entry in map(json.loads, lines) if "event" not in entry]


@pytest.mark.parametrize(
    "end",
    [
        "break",
        "sys.exit(3)",
        "raise ValueError('x')",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.kill(os.getpid(), signal.SIGINT)",
        "run.finish(); break",
        "time.sleep(0.5); " + KILL,
        "run._watchdog._tell(1.0, 1.0, ''); " + KILL,
        "os.fork() or os._exit(0); " + KILL,
    ],
)
def test_every_end_but_a_sudden_one_writes_all_lines(
    trainers: Zygote, tmp_path: Path, end: str
) -> None:
    launch_loop(trainers, tmp_path, end)
    steps = steps_of(tmp_path)
    # a signal ends the run at the next step
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) in (107, 108)


@pytest.mark.parametrize(
    "end", [KILL, "os._exit(1)", "os.kill(os.getpid(), signal.SIGHUP)", "os.abort()"]
)
def test_a_kill_loses_few_lines_and_the_receipt_says_how_many_steps_that_may_be(
    trainers: Zygote, tmp_path: Path, end: str
) -> None:
    launch_loop(trainers, tmp_path, end)
    noted = steps_of(tmp_path)[-1]
    assert 92 <= noted <= 107
    again = trainers.launch_script(tmp_path / "train.py", "again")
    line = again.wait_line(r"resume: at step 100 of 200 .*work lost: ")
    assert again.wait() == 0
    found = re.search(r"work lost: (\d+) to (\d+) steps \(16 were noted at a time\)$", line)
    assert found, line
    assert int(found[1]) == noted - 100 == events(tmp_path / "run", "resume")[0]["lost_steps"]
    assert int(found[1]) <= 7 <= int(found[2]) == noted - 100 + 15


def test_a_checkpoint_is_never_ahead_of_the_metrics(trainers: Zygote, tmp_path: Path) -> None:
    """Every save begins with another number of waiting lines."""
    watch = (
        "pass\n            names = os.listdir('run/checkpoints') if run.step_now > 9 else []"
        "\n            saved = [int(name.split('-')[1]) for name in names if name[:5] == 'step-']"
        "\n            assert bool(saved) == (run.step_now > 9)"
        "\n            assert not saved or max(saved) <= max(logged())"
        "\n            if run.step_now % 9 == 0: assert logged()[-1] == run.step_now, run.step_now"
    )
    assert launch_loop(trainers, tmp_path, watch, save=9) == 0
    assert len(steps_of(tmp_path)) == 200


def test_the_lines_of_slow_steps_are_written_at_once(trainers: Zygote, tmp_path: Path) -> None:
    end = f"assert logged()[-1] == 60; {KILL}"
    assert launch_loop(trainers, tmp_path, end, last=60, pace=0.012) == -signal.SIGKILL
    assert "gathering" not in (tmp_path / "run" / "ledger.jsonl").read_text()
    again = trainers.launch_script(tmp_path / "train.py", "again")
    again.wait_line(r"resume: at step 50 of 200 .*work lost: 10 steps$")
    assert again.wait() == 0


def test_lines_that_are_written_at_once_again_are_all_counted(
    trainers: Zygote, tmp_path: Path
) -> None:
    """The range of lost steps ends with the gathering."""
    slower = (
        "pass\n            if run.step_now > 60: time.sleep(0.06)"
        "\n            if run.step_now == 107 and 'again' not in sys.argv: " + KILL
    )
    assert launch_loop(trainers, tmp_path, slower, last=60) == -signal.SIGKILL
    assert steps_of(tmp_path)[-1] == 107
    ledger = map(json.loads, (tmp_path / "run" / "ledger.jsonl").read_text().splitlines())
    assert [line["lines"] for line in ledger if line["event"] == "gathering"] == [16, 1]
    again = trainers.launch_script(tmp_path / "train.py", "again")
    again.wait_line(r"resume: at step 100 of 200 .*work lost: 7 steps$")
    again.kill()


def test_what_is_recorded_is_never_less_than_what_waits_and_seldom_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: now))
    recorded: list[int] = []
    written: list[gathering.Point] = []

    def record(lines: int) -> bool:
        recorded.append(lines)
        return True

    # a thread that never wakes: the clock stands still
    gatherer = gathering.LineGatherer(
        written.extend, lambda line: None, lambda: None, record, wait_s=9.0
    )
    waited = added = 0

    def add_points(count: int, pace: float) -> None:
        nonlocal now, waited, added
        for _ in range(count):
            now += pace
            added += 1
            gatherer.add_point((added, 0.0, now, dict), "")
            waiting = added - len(written)
            waited = max(waited, waiting)
            assert waiting == 0 or recorded[-1] > waiting

    add_points(200, 0.001)
    for _ in range(9):  # a pause, such as a validation, ends nothing
        add_points(1, 5.0)
        add_points(60, 0.001)
    assert recorded == [16]
    add_points(60, 0.06)
    assert recorded == [16, 1]
    for _ in range(30):
        add_points(100, 0.001)
        add_points(100, 0.06)
    assert recorded == [16, 1] * 4 + [16]
    assert waited == 15
    gatherer.close_thread()
    assert len(written) == added


def test_a_child_does_not_repeat_lines(trainers: Zygote, tmp_path: Path) -> None:
    """Neither those of the file nor those of the console."""
    fork = (
        "child = os.fork()"
        "\n                if child == 0: sys.stdout.flush()"
        "\n                if child == 0: run._files.report.flush_lines(); os._exit(0)"
        "\n                os.waitpid(child, 0)\n                print('after the child')"
    )
    text = (
        LOOP.replace("LAST", "107").replace("SAVE", "50").replace("PACE", "0").replace("END", fork)
    )
    (tmp_path / "train.py").write_text(text)
    job = trainers.launch_script(tmp_path / "train.py")
    assert job.wait() == 0
    assert steps_of(tmp_path) == list(range(1, 201))
    shown = [line for line in job.text().splitlines() if line.startswith(("step ", "after"))]
    numbers = [int(line.split()[1]) for line in shown if line.startswith("step ")]
    assert numbers == list(range(1, 201))
    # the loop's own lines keep their place
    assert shown.index("after the child") == 107
