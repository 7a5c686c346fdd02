"""bfloat16 and float16 in the reference tasks: kills change no bit, of the scale of the loss neither."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest
import torch
from rgt_train import UsageError, exits, loop, tasks
from rgt_train.config import TASKS, merge_config
from rgt_train.loop import Precision

from tests.process.train.harness import Zygote, assert_same, events, final_state, losses
from tests.process.train.parallel.forked import commanded

SMALL: dict[str, dict[str, object]] = {
    "char_lm": {"width": 8, "layers": 1, "heads": 2, "context": 8, "corpus": 4000},
    "image_classifier": {"width": 4, "images": 400},
    "diffusion": {"width": 8, "points": 1000},
}
STEPS = 28
CPU = torch.device("cpu")


def words(task: str, out: Path, **values: object) -> list[str]:
    common = {
        "batch": 4,
        "steps_per_epoch": 14,
        "epochs": 2,
        "save_every": 3,
        "accumulate": 2,
        "log_every": 1,
    }
    pairs = {**common, **SMALL[task], **values}
    return [
        "--task",
        task,
        "--out",
        str(out),
        *(word for k, v in pairs.items() for word in ("--set", f"{k}={v}")),
    ]


@pytest.mark.full_matrix
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("task", TASKS)
def test_kills_change_no_bit(trainers: Zygote, tmp_path: Path, task: str, precision: str) -> None:
    whole, killed, full = (tmp_path / name for name in ("whole", "killed", "full"))
    done = trainers.launch_raw(words(task, whole, precision=precision))
    assert done.wait() == 0, done.text()
    for target, number in ((5, signal.SIGKILL), (12, signal.SIGTERM), (19, signal.SIGKILL)):
        trainer = trainers.launch_raw(
            words(task, killed, precision=precision, pace_ms=10), brake=target + 3
        )
        trainer.wait_line(rf"^step {target} ")
        trainer.signal(number)
        assert trainer.wait() in (-signal.SIGKILL, exits.PREEMPTED), trainer.text()
    again = trainers.launch_raw(words(task, killed, precision=precision))
    assert again.wait() == 0, again.text()
    assert len(events(killed, "resume")) == 3
    left, right = (final_state(out, STEPS) for out in (whole, killed))
    assert_same(left[0], right[0])
    assert_same(left[1]["objects"], right[1]["objects"])
    assert losses(whole) == losses(killed)
    assert ("scaler" in left[1]["objects"]) is (precision == "fp16")
    assert {tensor.dtype for tensor in left[0].values() if tensor.is_floating_point()} == {
        torch.float32
    }
    plain = trainers.launch_raw(words(task, full))
    assert plain.wait() == 0
    assert losses(full)[1] != losses(whole)[1], "it is computed with fewer bits"
    assert math.isclose(losses(full)[1], losses(whole)[1], rel_tol=0.03)


@pytest.mark.parametrize("kind", ["none", "ddp", "fsdp"])
def test_another_precision_goes_on(trainers: Zygote, tmp_path: Path, kind: str) -> None:
    """One that needs a scaler, and one that has none: what is new or gone is named."""
    ranks = 1 if kind == "none" else 2
    precisions = ["bf16", "fp32"] if kind == "fsdp" else ["fp16", "bf16", "fp16"]
    for number, precision in enumerate(precisions):
        values = {"parallel": kind, "precision": precision, "epochs": number + 1}
        group = commanded(trainers, ranks, *words("char_lm", tmp_path, **values))
        assert group.wait() == [0] * ranks, group.text()
        told = group.text()
        assert (f"precision {precisions[number - 1]} → {precision}" in told) is (number > 0)
        if kind != "fsdp" and number:
            news = [
                "",
                "scaler of the checkpoint (this run has none)",
                "scaler (not in the checkpoint)",
            ]
            assert f"resume: not restored: {news[number]}" in told
    assert max(losses(tmp_path)) == 14 * len(precisions)


@pytest.mark.parametrize(("kind", "precision"), [("ddp", "fp16"), ("fsdp", "bf16")])
def test_ranks_that_are_killed(trainers: Zygote, tmp_path: Path, kind: str, precision: str) -> None:
    values = {"parallel": kind, "precision": precision}
    ranks = commanded(trainers, 2, *words("char_lm", tmp_path / "whole", **values))
    assert ranks.wait() == [0, 0], ranks.text()
    ranks = commanded(
        trainers, 2, *words("char_lm", tmp_path / "killed", **values, pace_ms=20), brake=24
    )
    ranks.each[0].wait_line(r"^step 12 ")
    ranks.each[1].kill()
    ranks.wait()
    ranks = commanded(trainers, 2, *words("char_lm", tmp_path / "killed", **values))
    assert ranks.wait() == [0, 0], ranks.text()
    assert events(tmp_path / "killed", "resume")[0]["step"] > 0
    assert losses(tmp_path / "whole") == losses(tmp_path / "killed")


def test_what_a_sharded_run_computes_with(trainers: Zygote, tmp_path: Path) -> None:
    values = {"parallel": "fsdp", "precision": "fp16"}
    ranks = commanded(trainers, 2, *words("char_lm", tmp_path, **values))
    assert ranks.wait() == [exits.USAGE] * 2, ranks.text()
    assert "precision is fp16: a sharded model needs bf16" in ranks.text()


def setup_of(precision: str) -> loop.TrainingSetup:
    config = merge_config(
        [], {"task": "diffusion", "precision": precision, "width": "8", "points": "500"}
    )
    return loop.TrainingSetup(config, tasks.make_task(config), 10)


def test_an_overflow_is_no_bad_step_and_a_nan_is() -> None:
    setup = setup_of("fp16")
    before = [p.detach().clone() for p in setup.model.parameters()]
    setup.precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    loss = setup.compute_loss([0, 1], lambda index: index)
    setup.add_gradients(loss)
    norm = setup.grad_norm()
    assert not math.isfinite(norm)
    assert setup.overflowed(loss.item(), norm)
    assert not setup.overflowed(float("nan"), norm), "that is no matter of the scale"
    setup.precision.update_scale()
    assert setup.precision.scaler.get_scale() == 2.0**39
    assert all(torch.equal(a, b) for a, b in zip(before, setup.model.parameters(), strict=True))
    setup.precision.scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    assert not setup.overflowed(loss.item(), math.inf), "a smaller scale would not help"
    assert not setup_of("fp32").overflowed(1.0, math.inf)
    assert not setup_of("bf16").overflowed(1.0, math.inf)


def test_gradients_are_looked_at_in_their_own_size() -> None:
    norms = {}
    for name in ("fp32", "bf16", "fp16"):
        setup = setup_of(name)
        if setup.precision.scaler is not None:
            setup.precision.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        setup.add_gradients(setup.compute_loss([0, 1, 2], lambda index: index))
        norms[name] = setup.grad_norm()
    assert norms["bf16"] == pytest.approx(norms["fp32"], rel=0.05)
    assert norms["fp16"] == pytest.approx(norms["fp32"], rel=0.02)
    assert len(set(norms.values())) == 3


def test_fewer_bits_than_are_known_are_refused() -> None:
    with pytest.raises(UsageError, match="precision"):
        merge_config([], {"task": "diffusion", "precision": "fp8"})
    with pytest.raises(UsageError, match="a sharded model needs bf16"):
        Precision("fp16", CPU, sharded=True)
