"""What reinforcement learning and preferences are judged by reaches the client under its own name.

The files are what TRL 1.16 itself has written: the console, and ``trainer_state.json``.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box.metrics import MOST_FIGURES, SourceFinder, choose_tags, figure_name
from rgt_box.streams.curve_followers import FoundScalars
from rgt_wire.metric_roles import SETTING, role_of

from rgt_tui.fleet import fold_points
from rgt_tui.model import RunState, Scalars
from tests.unit.metrics.makers import FIXTURES

TRL = FIXTURES / "trl"
GRPO = {
    "loss", "lr", "grad_norm", "reward", "reward_std", "kl", "entropy", "rewards/even/mean", "rewards/even/std",
    "rewards/short/mean", "rewards/short/std", "frac_reward_zero_std", "completions/mean_length",
}  # fmt: skip
DPO = {
    "loss", "lr", "grad_norm", "val_loss", "entropy", "eval_entropy", "rewards/chosen", "rewards/rejected",
    "rewards/accuracies", "rewards/margins", "eval_rewards/chosen", "eval_rewards/rejected",
    "eval_rewards/accuracies", "eval_rewards/margins",
}  # fmt: skip


def shown(folder: Path) -> RunState:
    """Return the run as a client has it that is sent what stands below `folder`."""
    run, finder = (
        RunState(name="r"),
        SourceFinder(str(folder), clock=lambda: 0.0),
    )  # a walk that is held up goes on
    for frame in FoundScalars("r", str(folder), None, {}, finder).poll():
        run = fold_points(run, msgspec.convert(frame, Scalars), 0.0, 0.0)
    return run


def values(run: RunState, name: str) -> list[tuple[float, float]]:
    steps, found = run.series[name].backing_columns()[:2]
    return list(zip(steps[: len(run.series[name])], found, strict=False))


@pytest.mark.parametrize(("kind", "names"), [("grpo", GRPO), ("dpo", DPO)])
def test_the_state_file_of_trl_brings_its_curves(
    kind: str, names: set[str], tmp_path: Path
) -> None:
    shutil.copytree(TRL / kind / "checkpoint-6", tmp_path / "checkpoint-6")
    run = shown(tmp_path)
    assert names <= set(run.series)
    assert not any(role_of(name) == SETTING for name in run.series)
    assert [step for step, _ in values(run, "entropy")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("kind", "names"), [("grpo", GRPO), ("dpo", DPO)])
def test_the_console_of_trl_brings_them_too(kind: str, names: set[str], tmp_path: Path) -> None:
    shutil.copy(TRL / kind / "console.log", tmp_path)
    assert names <= set(shown(tmp_path).series)


def test_their_values_are_those_that_were_written() -> None:
    grpo, dpo = shown(TRL / "grpo"), shown(TRL / "dpo")
    assert dict(values(grpo, "rewards/short/mean"))[1] == pytest.approx(0.04447, rel=1e-3)
    assert dict(values(grpo, "kl"))[1] == pytest.approx(0.0002224, rel=1e-3)
    assert dict(values(dpo, "rewards/margins"))[2] == pytest.approx(0.03234, rel=1e-3)
    assert [step for step, _ in values(dpo, "eval_rewards/margins")] == [3, 6]


def test_ppo_prints_no_loss_of_that_name(tmp_path: Path) -> None:
    """The keys are those of TRL's documentation of its PPO."""
    rows = [
        f"{{'eps': 5, 'objective/kl': 0.{n}, 'objective/rlhf_reward': 1.{n}, 'policy/approxkl_avg': 0.01, "
        f"'loss/policy_avg': 0.2, 'lr': 1e-05, 'episode': {n}, 'epoch': {n / 10}}}\n"
        for n in range(1, 9)
    ]
    (tmp_path / "ppo.log").write_text("".join(rows))
    run = shown(tmp_path)
    assert {"lr", "objective/kl", "objective/rlhf_reward", "policy/approxkl_avg"} <= set(run.series)
    assert len(run.series["objective/kl"]) == 8


@pytest.mark.parametrize(
    ("tag", "name"),
    [
        ("train/rewards/chosen", "rewards/chosen"), ("rewards/f/mean", "rewards/f/mean"), ("train/kl", "kl"),
        ("critic/rewards/mean", "critic/rewards/mean"), ("actor/ppo_kl", "actor/ppo_kl"), ("Reward", "Reward"),
        ("rollout/ep_rew_mean", "rollout/ep_rew_mean"), ("train/approx_kl", "approx_kl"), ("reward_std", "reward_std"),
        ("train/mIoU", "mIoU"), ("step_time", "step_time"), ("loss_scale", None), ("gpu_mem", None), ("seed", None),
        ("lm loss vs samples", None), ("x" * 300 + "/kl", None),
    ],
)  # fmt: skip
def test_which_tags_they_are(tag: str, name: str | None) -> None:
    assert figure_name(tag) == name


def test_they_are_limited_and_take_no_metric_s_place() -> None:
    tags = ["train/loss", "lr", *(f"rewards/f{at}/mean" for at in range(300))]
    found: dict[str, Any] = choose_tags(tags)
    assert len(found) == 2 + MOST_FIGURES
    assert (found["loss"], found["lr"]) == ("train/loss", "lr")
    assert choose_tags(["kl", "train/kl"]) == {"kl": "kl"}
