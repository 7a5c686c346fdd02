"""Whatever ends a run, launching it again gives the run that was never interrupted, bit for bit."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rgt_train import exits

from tests.process.train.harness import (
    ENV,
    TIMEOUT,
    TINY,
    Zygote,
    assert_same,
    events,
    final_state,
    losses,
    steps_kept,
)

LAST = 80
SLOW = {"pace_ms": 20}
"""For launches that are to be interrupted; how far they come before it at most is said by their brake."""
IMAGES = {
    "task": "image_classifier",
    "images": 200,
    "size": 8,
    "width": 4,
    "steps_per_epoch": 20,
    "save_every": 3,
}


@pytest.fixture(scope="module")
def reference(trainers: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    trainer = trainers.launch(out)
    assert trainer.wait() == 0, trainer.text()
    return out


def assert_equal_runs(out: Path, reference: Path, last: int = LAST) -> None:
    assert losses(out) == losses(reference)
    for left, right in zip(final_state(out, last), final_state(reference, last), strict=True):
        # The last checkpoint may have been saved before the validation here, after it there: its result is in the
        # files compared below.
        left.pop("progress", None)
        right.pop("progress", None)
        assert_same(left, right)
    assert json.loads((out / "result.json").read_text()) == json.loads(
        (reference / "result.json").read_text()
    )
    assert json.loads((out / "best.json").read_text()) == json.loads(
        (reference / "best.json").read_text()
    )


def test_a_launch_that_was_cut_off_is_not_taken_for_the_next(
    trainers: Zygote, tmp_path: Path
) -> None:
    """A test that comes to its time limit between the request and the answer must not fail all that follow."""
    trainers._started.put((1, 0))
    assert trainers.launch(tmp_path / "run", {"epochs": 1, "steps_per_epoch": 2}).wait() == 0


def test_two_uninterrupted_runs_are_equal(
    trainers: Zygote, reference: Path, tmp_path: Path
) -> None:
    assert trainers.launch(tmp_path / "run").wait() == 0
    assert_equal_runs(tmp_path / "run", reference)


def test_sigkilled_several_times(trainers: Zygote, reference: Path, tmp_path: Path) -> None:
    out, draw = tmp_path / "run", random.Random(5)
    for _ in range(5):
        count, done = draw.randint(8, 14), max(steps_kept(out), default=0)
        trainer = trainers.launch(out, SLOW, brake=done + count + 1)
        trainer.wait_line(r"^step ", count=count)
        assert trainer.kill() == -signal.SIGKILL
    assert trainers.launch(out).wait() == 0
    assert_equal_runs(out, reference)
    resumes = events(out, "resume")
    assert len(resumes) == 5
    assert {event["reason"] for event in resumes} == {"killed"}
    assert events(out, "start")[0]["total_steps"] == LAST
    assert len(events(out, "start")) == 1
    assert events(out, "done")[-1]["step"] == LAST


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_saves_and_exits_75(
    trainers: Zygote, reference: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    trainer = trainers.launch(out, SLOW, brake=70)
    trainer.wait_line(r"^step 10 ")
    trainer.signal(number)
    assert trainer.wait() == exits.PREEMPTED
    stopped = events(out, "stop")[0]
    assert stopped["reason"] == number.name
    assert steps_kept(out)[-1] == stopped["step"]
    assert max(losses(out)) == stopped["step"]
    again = trainers.launch(out)
    assert again.wait() == 0
    resumed = events(out, "resume")[0]
    assert (resumed["step"], resumed["reason"], resumed["lost_steps"]) == (
        stopped["step"],
        number.name,
        0,
    )
    assert "the same bits as far as given" in again.text()
    assert_equal_runs(out, reference)


def test_killed_before_the_first_checkpoint(
    trainers: Zygote, reference: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    trainer = trainers.launch(out, {"save_every": 1000, **SLOW}, brake=30)
    trainer.wait_line(r"^step 5 ")
    trainer.kill()
    again = trainers.launch(out)
    assert again.wait() == 0
    assert "from the beginning" in again.text()
    assert events(out, "resume")[0]["step"] == 0
    assert losses(out) == losses(reference)


def test_a_signal_in_the_validation(trainers: Zygote, tmp_path: Path) -> None:
    values = {"epochs": 1, "steps_per_epoch": 10}
    plain, out = tmp_path / "plain", tmp_path / "run"
    assert trainers.launch(plain, values).wait() == 0
    trainer = trainers.launch(out, values)
    trainer.wait_line(r"^step 10 ")
    trainer.signal(signal.SIGTERM)
    if trainer.wait() == exits.PREEMPTED:  # else it was faster than the signal, which is fine too
        assert trainers.launch(out, values).wait() == 0
    assert_equal_runs(out, plain, 10)


def test_a_finished_run_is_left_alone(trainers: Zygote, reference: Path) -> None:
    before = {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()}
    trainer = trainers.launch(reference)
    assert trainer.wait() == 0
    assert "already finished: step 80" in trainer.text()
    assert before == {path: path.read_bytes() for path in reference.rglob("*") if path.is_file()}


def test_more_epochs_go_on_from_the_end(trainers: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert trainers.launch(out, {"epochs": 1}).wait() == 0
    again = trainers.launch(out, {"epochs": 2})
    assert again.wait() == 0
    assert "settings changed: epochs 1 → 2" in again.text()
    assert max(losses(out)) == LAST


def test_images_with_batch_norm_and_augmentation(trainers: Zygote, tmp_path: Path) -> None:
    plain, out = tmp_path / "plain", tmp_path / "run"
    tiny = {
        key: value for key, value in TINY.items() if key in ("epochs", "batch", "warmup")
    } | IMAGES
    argv = [part for key, value in tiny.items() for part in ("--set", f"{key}={value}")]
    assert trainers.launch_raw(["--out", str(plain), *argv]).wait() == 0
    trainer = trainers.launch_raw(["--out", str(out), *argv, "--set", "pace_ms=20"], brake=35)
    trainer.wait_line(r"^step 11 ")
    trainer.kill()
    assert trainers.launch_raw(["--out", str(out), *argv]).wait() == 0
    assert_equal_runs(out, plain, 40)


def test_a_loss_that_stays_nan_stops_the_run(trainers: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trainer = trainers.launch(out, {"lr": 1e30, "clip": 0, "warmup": 0, "max_bad_steps": 3})
    assert trainer.wait() == exits.FAILED
    assert "stopping: 3 steps in a row were not finite, the last is step " in trainer.text()
    assert [event["row"] for event in events(out, "nonfinite")][-3:] == [1, 2, 3]
    assert all(step == sorted(losses(out))[i] for i, step in enumerate(losses(out)))


def test_a_signal_before_the_first_step(trainers: Zygote, reference: Path, tmp_path: Path) -> None:
    trainer = trainers.launch(tmp_path / "run", SLOW, brake=70)
    trainer.wait_line("^char_lm on ")  # handlers are installed before torch is even imported
    trainer.signal(signal.SIGTERM)
    assert trainer.wait() == exits.PREEMPTED
    assert trainers.launch(tmp_path / "run").wait() == 0
    assert_equal_runs(tmp_path / "run", reference)


def test_the_real_command(tmp_path: Path) -> None:
    argv = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]
    command = [
        sys.executable,
        "-m",
        "rgt_train",
        "--out",
        str(tmp_path / "run"),
        "--epochs",
        "1",
        *argv,
    ]
    env = {**ENV, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("char_lm on c")
    assert done.stdout.splitlines()[-1].startswith("done: step 40 ")
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "rgt_train.loop" in imported
    assert "torch._dynamo" not in imported, (
        "the compiler is half of the start, and nothing is compiled"
    )
