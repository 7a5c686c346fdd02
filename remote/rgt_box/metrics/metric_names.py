"""Maps tags to the few metrics that every screen shows.

The names come from frameworks that were run or read in source (transformers 5, lightning 2.6,
tensorboard 2.21, wandb 0.31, mlflow 3, ultralytics 8.4, keras 3, mmengine, detectron2, Megatron-LM,
torchtitan, torchtune, verl, kohya). ``Loss/train`` and ``Loss/test`` come from PyTorch's own guide
to SummaryWriter.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from rgt_box.metrics.reader_base import TOTAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

METRICS = ("loss", "eval_loss", "lr", "grad_norm", "throughput", "epoch", "total_steps")

NAMES = {
    "loss": (
        "loss",
        "train/loss",
        "train_loss",
        "train_loss_step",
        "lm loss",
        "loss_metrics/global_avg_loss",
        "total_loss",
        "loss/current",
        "loss/loss",
        "step_loss",
        "train/gpt_loss",
        "gpt_loss",
        "avr_loss",
        "actor/pg_loss",
        "policy_loss",
        "train/samples/train_loss",
        "batch_loss",
        "epoch_loss",
        "loss/train",
        "loss/training",
        "loss_train",
        "training/loss",
    ),
    "eval_loss": (
        "eval_loss",
        "eval/loss",
        "val_loss",
        "valid_loss",
        "val/loss",
        "validation_metrics/loss",
        "lm loss validation",
        "loss/validation/step_average",
        "valid/loss",
        "validation/loss",
        "loss/val",
        "loss/valid",
        "loss/validation",
        "loss/eval",
        "loss/test",
        "loss_val",
        "loss_valid",
        "loss_test",
    ),
    "lr": (
        "learning_rate",
        "train/learning_rate",
        "lr",
        "learning-rate",
        "lr-*",
        "lr/*",
        "actor/lr",
        "train/samples/lr",
        "train/lr",
        "learning rate",
    ),
    "grad_norm": (
        "grad_norm",
        "train/grad_norm",
        "grad-norm",
        "grad norm",
        "gnorm",
        "actor/grad_norm",
    ),
    "throughput": (
        "tok_s",
        "*tokens_per_second*",
        "throughput*",
        "tps",
        "tok/sec",
        "wps",
        "samples/sec",
        "perf/throughput",
        "*samples_per_second",
    ),
    "epoch": ("epoch", "train/epoch"),
    "total_steps": (TOTAL,),
}
"""Lower-case names by preference; ``*`` matches anything."""

NEVER = ("*loss?scale*", "* vs samples", "system/*")
"""Tags that look like metrics but are not: the loss scaler's factor, and Megatron's copies over
another axis."""

STEP_KEYS = (
    "train/global_step",
    "trainer/global_step",
    "global_step",
    "current_steps",
    "iter",
    "iteration",
    "num_updates",
    "step",
    "_step",
)
"""Keys that hold a row's step, most reliable first."""

FIGURE = re.compile(
    r"(?:^|[/_. -])(?:reward|rewards|rew|return|returns|scores?|kl|ppo_kl|approx_?kl|advantages?|entropy|clip_?frac"
    r"|margins|accuracies|response_length|completion_length|mean_length)(?=$|[/_. -])"
)
"""Measures of reinforcement learning and preference training (TRL, verl, OpenRLHF,
stable-baselines3). They keep their own names. ``return`` is the return of an episode."""
MOST_FIGURES = 48
"""Maximum per run; TRL has three for each reward function."""
_BEFORE = re.compile(r"^(?:train/)+")
"""Prefix that experiment trackers add to transformers' names."""

EVALUATION = ("val", "eval", "test", "dev")
"""Prefixes of evaluation metrics."""


def match_rank(tag: str, metric: str) -> int | None:
    """Return how well `tag` matches `metric` (0 is best); None if it does not."""
    name = tag.strip().lower()
    if any(fnmatchcase(name, pattern) for pattern in NEVER):
        return None
    if metric == "throughput" and name.startswith(EVALUATION):
        return None
    for place, pattern in enumerate(NAMES[metric]):
        if name == pattern or ("*" in pattern and fnmatchcase(name, pattern)):
            return place
    return None


def may_be_metric(tag: str) -> bool:
    """Return whether `tag` may be a metric, independent of the other tags."""
    return (
        "loss" in tag.lower()
        or figure_name(tag) is not None
        or any(match_rank(tag, metric) is not None for metric in METRICS)
    )


def figure_name(tag: str) -> str | None:
    """Return the name under which `tag` is shown next to the metrics; None if it is not shown."""
    name = tag.strip()
    if len(name) <= 200 and FIGURE.search(name.lower()):
        return _BEFORE.sub("", name)
    return None


class TagNaming:
    """Maps the tags of one file (or directory) to metrics.

    Args:
        tags: All tags; needed to detect per-epoch twins and run summaries.
        directory: Base name of the file's directory (Keras: ``train`` and ``validation``).
    """

    def __init__(self, tags: Iterable[str] = (), directory: str = "") -> None:
        self._tags = frozenset(tag.strip().lower() for tag in tags)
        self._directory = directory
        self._sounds: dict[bool, str | None] | None = None

    def metric_of(self, tag: str) -> str | None:
        """Return the metric of `tag`, or None."""
        name = tag.strip().lower()
        if self._directory == "validation" and name == "epoch_loss":
            return "eval_loss"
        if name == "train_loss" and "train_runtime" in self._tags:
            return None  # transformers: the mean over the whole run, written once at its end
        if self._is_twin(name):
            return None
        for metric in METRICS:
            if match_rank(tag, metric) is not None:
                return metric
        return self._metric_of_only_loss(name)

    def _is_twin(self, name: str) -> bool:
        """Return whether `name` is the per-epoch mean of a metric that also exists per step."""
        tags = self._tags
        if name.endswith("_epoch"):
            base = name[: -len("_epoch")]
            return base in tags or base + "_step" in tags
        if name.startswith("epoch_"):
            base = name[len("epoch_") :]
            return base in tags or "batch_" + base in tags
        return False

    def _metric_of_only_loss(self, name: str) -> str | None:
        """Return the metric of a file's only loss-like tag.

        Lightning users choose the name ``x``, and files hold ``x``, ``x_step`` and ``x_epoch``.
        """
        if "loss" not in name:
            return None
        if self._sounds is None:
            self._sounds = {side: self._only_loss(side) for side in (False, True)}
        evaluated = name.startswith(EVALUATION)
        if self._sounds[evaluated] == name:
            if evaluated:
                return "eval_loss"
            return "loss"
        return None

    def _only_loss(self, evaluated: bool) -> str | None:
        """Return the only loss-like tag; None if there are several, or a well-known one exists."""
        metric = "eval_loss" if evaluated else "loss"
        if any(match_rank(tag, metric) is not None for tag in self._tags):
            return None
        found = [
            tag
            for tag in self._tags
            if tag.endswith(("loss", "loss_step", "loss_epoch"))
            and tag.startswith(EVALUATION) == evaluated
            and not self._is_twin(tag)
            and not (tag.endswith("_step") and tag[: -len("_step")] in self._tags)
            and not any(fnmatchcase(tag, pattern) for pattern in NEVER)
        ]
        if len(found) == 1:
            return found[0]
        return None


def choose_tags(tags: Iterable[str], directory: str = "") -> dict[str, str]:
    """Return metric → its best tag; a `figure` is a metric under its own name."""
    every = list(tags)
    naming = TagNaming(every, directory)
    found: dict[str, tuple[int, str]] = {}
    figures = 0
    for tag in every:
        metric = naming.metric_of(tag)
        if metric is None:
            metric = figure_name(tag)
            if (
                metric is None
                or metric in NAMES
                or (metric not in found and figures == MOST_FIGURES)
            ):
                continue
            figures += metric not in found
        if metric in NAMES:
            place = match_rank(tag, metric)
        else:
            place = 0
        order = (len(NAMES[metric]) if place is None else place, tag)
        if metric not in found or order < found[metric]:
            found[metric] = order
    return {metric: order[1] for metric, order in found.items()}
