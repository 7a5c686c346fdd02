"""The shipped tasks learn, run on nothing but torch, and give way to tasks of one's own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rgt_train import UsageError, cli, exits, loop, tasks
from rgt_train.config import TASKS, Config, merge_config
from rgt_train.loop import Ema

from tests.process.train.harness import (
    ENV,
    ROOT,
    TIMEOUT,
    Zygote,
    assert_same,
    events,
    final_state,
    losses,
    metrics,
)


def config(task: str, **values: object) -> Config:
    return merge_config([], {"task": task, **{key: str(value) for key, value in values.items()}})


QUICK: dict[str, dict[str, object]] = {
    "char_lm": {
        "steps_per_epoch": 150,
        "epochs": 1,
        "width": 32,
        "layers": 1,
        "context": 32,
        "corpus": 90_000,
    },
    "image_classifier": {"steps_per_epoch": 150, "epochs": 1},
    "diffusion": {"steps_per_epoch": 400, "epochs": 1},
}
LEARNT = {
    "char_lm": lambda last: (
        last["val_loss"] < 1.6
    ),  # a uniform guess: ln 31 = 3.4; single characters alone: 2.7
    "image_classifier": lambda last: (
        last["val_accuracy"] > 0.85 and last["val_macro_recall"] > 0.85
    ),
    "diffusion": lambda last: last["sample_hits"] > 0.9 and last["sample_distance"] < 0.2,
}


@pytest.mark.parametrize("task", TASKS)
def test_it_learns(trainers: Zygote, tmp_path: Path, task: str) -> None:
    argv = ["--task", task, "--out", str(tmp_path / "run"), "--log-every", "50"]
    for key, value in QUICK[task].items():
        argv += ["--set", f"{key}={value}"]
    trainer = trainers.launch_raw(argv)
    assert trainer.wait() == 0, trainer.text()
    validated = [line for line in metrics(tmp_path / "run") if "val_loss" in line]
    assert LEARNT[task](validated[-1]), validated


@pytest.mark.parametrize("task", TASKS)
def test_validation_is_the_same_every_time_and_leaves_no_trace(task: str) -> None:
    made = tasks.make_task(config(task))
    setup = loop.TrainingSetup(config(task), made, 10)
    setup.model.eval()
    before = torch.get_rng_state()
    with torch.no_grad():
        first, second = (list(made.validation(setup.model, setup.device)) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(count for _, count in first) >= 100


@pytest.mark.parametrize("task", TASKS)
def test_killed_and_resumed_with_averages_and_accumulation(
    trainers: Zygote, tmp_path: Path, task: str
) -> None:
    small = {"char_lm": {"width": 8, "context": 8, "corpus": 4000}, "image_classifier": {"width": 4},
             "diffusion": {"width": 8, "points": 1000}}[task]  # fmt: skip
    values = {
        **small,
        "batch": 4,
        "steps_per_epoch": 14,
        "epochs": 2,
        "save_every": 5,
        "accumulate": 3,
        "log_every": 1,
    }
    argv = ["--task", task, *(word for k, v in values.items() for word in ("--set", f"{k}={v}"))]
    plain = trainers.launch_raw([*argv, "--out", str(tmp_path / "plain")])
    assert plain.wait() == 0, plain.text()
    died = trainers.launch_raw(
        [*argv, "--out", str(tmp_path / "killed"), "--set", "pace_ms=5"], brake=24
    )
    died.wait_line(r"^step 18 ")
    died.kill()
    again = trainers.launch_raw([*argv, "--out", str(tmp_path / "killed")])
    assert again.wait() == 0, again.text()
    assert events(tmp_path / "killed", "resume")
    left, right = (final_state(tmp_path / name, 28) for name in ("plain", "killed"))
    assert_same(left[0], right[0])
    assert_same(left[1]["objects"], right[1]["objects"])


def test_stopped_inside_an_accumulation(trainers: Zygote, tmp_path: Path) -> None:
    """SIGTERM between two batches of one step: their gradients and their losses are kept."""
    values = {
        "accumulate": 6,
        "batch": 2,
        "epochs": 1,
        "steps_per_epoch": 12,
        "dropout": 0.2,
        "save_every": 100,
    }
    assert trainers.launch(tmp_path / "plain", values).wait() == 0
    for _ in range(3):
        stopped = trainers.launch(tmp_path / "stopped", {**values, "pace_ms": 20})
        stopped.wait_line(r"^step \d+ ")
        stopped.signal(signal.SIGTERM)
        assert stopped.wait() in (0, 75), stopped.text()
    last = trainers.launch(tmp_path / "stopped", values)
    assert last.wait() == 0, last.text()
    assert losses(tmp_path / "stopped") == losses(tmp_path / "plain")
    assert_same(final_state(tmp_path / "stopped", 12)[0], final_state(tmp_path / "plain", 12)[0])


@pytest.mark.parametrize(
    ("task", "values"),
    [
        ("char_lm", {"layout": "pad", "context": 32, "corpus": 4000, "width": 8}),
        (
            "image_classifier",
            {"imbalance": 0.6, "norm": "group", "width": 4, "label_smoothing": 0.1},
        ),
    ],
)
def test_parts_of_a_batch_add_up_to_the_whole(task: str, values: dict[str, object]) -> None:
    """On several ranks, or in an accumulation: also where rows have more characters, or images more weight."""
    made = tasks.make_task(config(task, dropout=0, **values))
    model = made.model()

    def gradient(indices: range, share: float) -> torch.Tensor:
        model.zero_grad()
        loss = made.loss(model, list(indices), int, torch.device("cpu")) * share
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    whole = gradient(range(8), 1.0)
    torch.testing.assert_close(
        gradient(range(5), 5 / 8) + gradient(range(5, 8), 3 / 8), whole, rtol=1e-4, atol=1e-6
    )
    assert float((gradient(range(5), 1.0) - whole).norm()) > 0.1 * float(whole.norm())


@pytest.mark.parametrize("name", [":Foo", "mytask:", ".mytask:Foo", "my task:Foo"])
def test_a_task_that_has_no_possible_name(name: str) -> None:
    with pytest.raises(
        UsageError, match=f"task {re.escape(name)}: a task of your own is module:Class"
    ):
        tasks.own_fields(name)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
@pytest.mark.parametrize("task", TASKS)
def test_smoke_needs_no_network_no_token_and_writes_nothing(tmp_path: Path, task: str) -> None:
    """In a network namespace without any interface, with an empty home, from an empty directory."""
    env = {k: v for k, v in ENV.items() if not k.endswith("_TOKEN")} | {"HOME": str(tmp_path)}
    flags = ["-n"] if os.geteuid() == 0 else ["-r", "-n"]
    done = subprocess.run(
        ["unshare", *flags, sys.executable, "-m", "rgt_train", "--task", task, "--smoke", "2"],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"smoke: 2 steps ok, loss \d\.\d+, validation \d\.\d+; nothing was written", done.stdout
    )
    assert list(tmp_path.iterdir()) == []


def documented_task() -> str:
    found = re.search(
        r"<!-- task -->\n```python\n(.*?)```", (ROOT / "docs" / "trainer.md").read_text(), re.S
    )
    assert found
    return found.group(1)


def test_a_task_of_ones_own_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mytask.py").write_text(documented_task())
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    command = ["--task", "mytask:Sines", "--set", "hidden=16"]
    run = ["--out", "run", "--epochs", "2", "--set", "save_every=100"]
    for extra, code, said in (
        (["--smoke", "2"], 0, "smoke: 2 steps ok"),
        (run, 0, "done: step 400"),
        (run, 0, "already finished: step 400"),
        (
            ["--smoke", "2", "--set", "hiden=3"],
            2,
            "unknown key 'hiden' for task mytask:Sines; did you mean 'hidden'?",
        ),
    ):
        assert cli.main([*command, *extra]) == code
        told = capsys.readouterr()
        assert said in told.out + told.err
    validated = [line["val_loss"] for line in metrics(tmp_path / "run") if "val_loss" in line]
    assert validated[-1] < 0.15  # the variance of a sine is 0.5
    assert validated[-1] < validated[0]


BLIND = """
import torch
class Blind:
    samples = 8
    def __init__(self, config): pass
    def model(self): return torch.nn.Linear(1, 1)
    def loss(self, model, indices, seed_of, device): return (model(torch.ones(len(indices), 1)) ** 2).mean()
    def validation(self, model, device): return iter(())
"""


def test_a_task_with_nothing_to_validate_is_trained_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blindtask.py").write_text(BLIND)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = [
        "--task",
        "blindtask:Blind",
        "--epochs",
        "2",
        "--steps-per-epoch",
        "2",
        "--set",
        "batch=4",
    ]
    assert cli.main([*words, "--smoke", "2"]) == 1
    assert "smoke: the task's validation() yields no losses" in capsys.readouterr().out
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert said.count("nothing is validated, and there is no best") == 2
    assert "done: step 4" in said
    assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0  # finished, without a best


def test_a_world_size_that_is_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "two")
    assert cli.main(["--out", str(tmp_path / "run")]) == 2
    assert "WORLD_SIZE is 'two', not a number" in capsys.readouterr().err


class TestEma:
    def test_it_is_an_average_that_warms_up(self) -> None:
        model = torch.nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(0.0)
        ema = Ema(model, 0.9)
        wanted = 0.0
        for step in range(1, 40):
            with torch.no_grad():
                model.weight.fill_(float(step))
            ema.update_parameters(model)
            decay = min(0.9, (1 + step) / (10 + step))
            wanted = decay * wanted + (1 - decay) * step
        assert float(ema.module.state_dict()["weight"]) == pytest.approx(wanted, rel=1e-5)

    def test_counters_are_copied_and_the_model_is_left_alone(self) -> None:
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
        ema = Ema(model, 0.5)
        model(torch.randn(4, 2))
        ema.update_parameters(model)
        assert int(ema.module.state_dict()["1.num_batches_tracked"]) == 1
        assert not ema.module.training and model.training
        assert all(not p.requires_grad for p in ema.module.parameters())
        assert all(p.requires_grad for p in model.parameters())

    def test_its_state_comes_back(self) -> None:
        model = torch.nn.Linear(2, 2)
        ema, other = Ema(model, 0.99), Ema(torch.nn.Linear(2, 2), 0.99)
        ema.update_parameters(model)
        other.load_state_dict(ema.state_dict())
        assert_same(other.state_dict(), ema.state_dict())
        with pytest.raises(RuntimeError, match="size mismatch"):
            Ema(torch.nn.Linear(3, 2), 0.99).load_state_dict(ema.state_dict())


def test_dev_mode_uses_few_samples_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used: set[int] = set()
    kind: Any = type(tasks.make_task(config("diffusion", points=100)))
    plain = kind.loss

    def recorded(task: Any, model: Any, indices: list[int], *rest: Any) -> torch.Tensor:
        used.update(indices)
        loss: torch.Tensor = plain(task, model, indices, *rest)
        return loss

    monkeypatch.setattr(kind, "loss", recorded)
    monkeypatch.setenv("DEV_MODE", "true")
    words = [
        "--task",
        "diffusion",
        "--out",
        str(tmp_path / "run"),
        "--set",
        "data_limit=40",
        "--set",
        "sample_steps=2",
    ]
    assert cli.main(words) == exits.DONE
    assert used == set(range(40))
    said = capsys.readouterr().out
    assert "config dev: epochs 4 → 1, steps_per_epoch 500 → 0, batch 128 → 8" in said
    assert "done: step 5 " in said
