"""What a loop forgets is told in words, and what a run cannot be made of in one line; a tensor is a number, too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import Options, Run, UsageError

from tests.process.train.harness import steps_kept

STEPS = 4


def made(out: Path, **given: Any) -> Run:
    """Return a run of two epochs of four steps."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    facts: dict[str, Any] = {
        "model": model,
        "optimizer": optimizer,
        "samples": STEPS,
        "epochs": 2,
        **given,
    }
    return Run(out, **facts)


def test_a_loop_without_a_step_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"epoch 1 is over, but run\.step was not called"),
        made(tmp_path) as run,
    ):
        for _epoch in run.epochs():
            list(run.batches())
    assert not (tmp_path / "result.json").exists()


def test_batches_from_elsewhere_fail(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"did not come from run\.batches\(\)"),
        made(tmp_path) as run,
    ):
        for _epoch in run.epochs():
            for _batch in range(STEPS):
                run.step(1.0)


def test_an_epoch_that_is_too_short_fails_and_says_how_long_it_was(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"after 2 of 4 steps.*steps_per_epoch=2.*run\.finish"),
        made(tmp_path) as run,
    ):
        for _epoch in run.epochs():
            for number, _batch in enumerate(run.batches()):
                if number < 2:
                    run.step(1.0)


def test_a_step_too_many_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"step 3 of an epoch of 2.*of 2 batches"),
        made(tmp_path, accumulate=2) as run,
    ):
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(1.0)
    assert run.step_now == 2


def test_epochs_that_nobody_counts_fail(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"outside `for epoch in run\.epochs\(\):`"),
        made(tmp_path) as run,
    ):
        for _epoch in range(2):
            if run.step_now == 0:
                for _batch in run.batches():
                    run.step(1.0)


def test_steps_outside_the_epochs_fail_before_one_is_trained_on(tmp_path: Path) -> None:
    """A whole run may be one such epoch: at its end the words would come days too late."""
    model = torch.nn.Linear(2, 1)
    run = Run(
        tmp_path, model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), max_steps=3
    )
    with pytest.raises(UsageError, match=r"into `for epoch in run\.epochs\(\):`"), run:
        for _step in run.steps():
            run.step(1.0)
    assert run.step_now == 0


def test_a_resume_at_the_end_of_an_epoch_forgets_nothing(tmp_path: Path) -> None:
    """Nothing is left of that epoch, and what stands behind it is done again."""
    for last in (True, False):
        with made(tmp_path, options=Options(save_every=1)) as run:
            for _epoch in run.epochs():
                for _batch in run.batches():
                    run.step(1.0)
                if last:
                    break
        assert run.finished != last
    assert run.step_now == 2 * STEPS


def test_a_tensor_is_a_number(tmp_path: Path) -> None:
    with made(tmp_path) as run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                loss = (torch.ones(1, requires_grad=True) * 2).sum()
                assert run.healthy(loss, torch.tensor(1.0))
                run.step(loss, grad_norm=torch.tensor(0.5))
            assert run.validated(torch.tensor(2.0 - run.progress.epoch))
    assert json.loads((tmp_path / "result.json").read_text()) == {
        "step": 8,
        "loss": 2.0,
        "best": 1.0,
    }
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {point["grad_norm"] for point in points if "grad_norm" in point} == {0.5}


def test_a_step_outside_the_run_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `with run:` nothing would be saved at the end, and nothing said."""
    run = made(tmp_path)
    with pytest.raises(SystemExit, match="outside `with run:`") as ended:
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(1.0)
    assert (ended.value.code, run.step_now) == (1, 0)
    assert len(capsys.readouterr().err.splitlines()) == 1
    run.close()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"sampler": "batches", "batch_size": 4}, r"batch_sampler=run\.batches\(\)\), not sampler="),
        ({"sampler": "batches"}, r"batch_sampler=run\.batches\(\)\), not sampler="),
        ({"batch_sampler": "batches", "drop_last": True}, r"steps_per_epoch=len\(data\) // batch_size"),
        ({"batch_sampler": "batches", "shuffle": True}, "takes no batch_size, shuffle, sampler or drop_last"),
        ({"shuffle": True, "seeded": True}, r"has no seed: load run\.seeded"),
    ],
)  # fmt: skip
def test_a_loader_that_is_given_the_batches_in_another_way_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, Any],
    told: str,
    workers: int,
) -> None:
    run = made(tmp_path)
    data: Any = torch.utils.data.TensorDataset(torch.randn(STEPS, 2))
    with pytest.raises(SystemExit, match=told) as ended, run:
        for _epoch in run.epochs():
            words: dict[str, Any] = {
                key: run.batches() if value == "batches" else value for key, value in given.items()
            }
            data = run.seeded(data) if words.pop("seeded", False) else data
            for _batch in torch.utils.data.DataLoader(data, num_workers=workers, **words):
                run.step(1.0)
    assert (ended.value.code, run.step_now) == (1, 0)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_second_run_in_one_process_is_no_other_trainer(tmp_path: Path) -> None:
    run = made(tmp_path)
    with pytest.raises(UsageError, match=r"this process has a Run of .* already.*close\(\)"):
        made(tmp_path / ".." / tmp_path.name)
    run.close()
    made(tmp_path).close()


def test_a_default_device_without_values_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    with torch.device("meta"), pytest.raises(UsageError, match="set_default_device"):
        Run(tmp_path, model=model, max_steps=1)


@pytest.mark.parametrize("kind", ["lazy", "meta"])
def test_weights_without_values_are_refused_before_anything_is_trained(
    tmp_path: Path, kind: str
) -> None:
    model = torch.nn.LazyLinear(1) if kind == "lazy" else torch.nn.Linear(1, 1, device="meta")
    with pytest.raises(
        UsageError, match=r"weight of model (has no shape yet|is on the meta device)"
    ):
        Run(tmp_path, model=model, samples=4, epochs=1)


def test_a_default_device_does_not_move_what_the_run_makes(tmp_path: Path) -> None:
    run = made(tmp_path)
    with torch.device("meta"), run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(1.0)
    assert run.finished


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (torch.ones(3), r"loss is a tensor of the shape \(3,\)"),
        ("high", "loss is 'high', not a number"),
    ],
)
def test_what_is_no_number_is_refused_before_the_step_counts(
    tmp_path: Path, loss: Any, told: str
) -> None:
    with pytest.raises(UsageError, match=told), made(tmp_path) as run:
        run.step(loss)
    assert run.step_now == 0


class ZeroRedundancyOptimizer(torch.optim.SGD):
    """By its name what torch has for several ranks."""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"samples": 0}, "samples is 0: "),
        ({"samples": 2.5}, "samples is 2.5: "),
        ({"epochs": 0}, "epochs is 0: "),
        ({"batch_size": -1}, "batch_size is -1: "),
        ({"accumulate": 0}, "accumulate is 0: "),
        ({"steps_per_epoch": 9}, "steps_per_epoch is 9, but 4 samples give 1 to 4"),
        ({"stream": iter([])}, "a stream without a length needs steps_per_epoch"),
        ({"model": [torch.nn.Linear(1, 1)]}, "model is a list, not a torch.nn.Module"),
        ({"optimizer": []}, "optimizer is a list: give several by name"),
        ({"scheduler": {"warm": ()}}, "scheduler warm is a tuple: "),
        ({"scaler": 3}, "scaler is a int, which has no state_dict"),
        ({"extra": [1]}, "extra is a list: give a dictionary"),
        ({"options": Options(save_every=-3)}, r"Options\(save_every=-3\): it must be a number, at least 0"),
        ({"options": Options(keep=0)}, r"Options\(keep=0\): it must be a number, at least 1"),
        ({"options": Options(hold_limit_s=float("nan"))}, r"Options\(hold_limit_s=nan\)"),
        (
            {"optimizer": ZeroRedundancyOptimizer([torch.zeros(1, requires_grad=True)], lr=1.0)},
            "optimizer is a ZeroRedundancyOptimizer, whose state is in parts",
        ),
    ],
)  # fmt: skip
def test_what_no_run_can_be_made_of_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: dict[str, Any], told: str
) -> None:
    with pytest.raises(SystemExit, match=told) as ended:
        made(tmp_path / "run", **given)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("out", ["file", "file/below", "dangling"])
def test_what_no_run_directory_can_be_is_named(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("a person's")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at all")
    told = f"cannot use {tmp_path / out} as run directory: something that is not a directory is in the way"
    with pytest.raises(UsageError, match=re.escape(told)), made(tmp_path / out) as run:
        list(run.epochs())
    assert (tmp_path / "file").read_text() == "a person's"


def test_a_run_that_is_left_early_says_how_it_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with made(tmp_path) as run:
        for _epoch in run.epochs():
            for _batch in run.batches():
                run.step(1.0)
                break
            break
    assert (
        "left early at step 1 of 8: the same command trains on. Where this is meant as the end, call run.finish()"
        in (capsys.readouterr().out)
    )
    assert steps_kept(tmp_path) == [1]
