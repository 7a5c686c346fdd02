"""Maps tags to the few metrics that every screen shows.

The names come from frameworks that were run or read in source (transformers 5, lightning 2.6,
tensorboard 2.21, wandb 0.31, mlflow 3, ultralytics 8.4, keras 3, mmengine, detectron2, Megatron-LM,
torchtitan, torchtune, verl, kohya). ``Loss/train`` and ``Loss/test`` come from PyTorch's own guide
to SummaryWriter.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache

from rgt_wire.metric_roles import (
    LOSS,
    MEASURES,
    NORM,
    OTHER,
    PLAIN,
    RATE,
    SPEED,
    TIME,
    is_evaluation,
    role_of,
)

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

MOST_FIGURES = 48
"""Maximum per run, measures first; TRL has three for each reward function."""
_BEFORE = re.compile(r"^(?:train/)+")
"""Prefix that experiment trackers add to transformers' names."""

EVALUATION = ("val", "eval", "test", "dev")
"""Prefixes of evaluation metrics."""


def match_rank(tag: str, metric: str) -> int | None:
    """Return how well `tag` matches `metric` (0 is best); None if it does not."""
    name = tag.strip().lower()
    if any(fnmatchcase(name, pattern) for pattern in NEVER):
        return None
    # transformers writes eval_samples_per_second next to the one of training.
    if metric == "throughput" and name.startswith(EVALUATION):
        return None
    for place, pattern in enumerate(NAMES[metric]):
        if name == pattern or ("*" in pattern and fnmatchcase(name, pattern)):
            return place
    return None


def may_be_metric(tag: str) -> bool:
    """Return whether `tag` may be a metric, independent of the other tags."""
    return figure_name(tag) is not None or any(
        match_rank(tag, metric) is not None for metric in METRICS
    )


_ORDER = (MEASURES, (RATE, NORM, SPEED), (OTHER,), (TIME,))
"""Roles of the figures that are shown, by preference; settings and counts are not."""


def figure_order(tag: str) -> int | None:
    """Return how well a tag belongs among a run's figures; 0 is best, None if not at all."""
    role = role_of(tag)
    return next((place for place, roles in enumerate(_ORDER) if role in roles), None)


def figure_name(tag: str) -> str | None:
    """Return the name under which `tag` is shown next to the metrics; None if it is not shown."""
    name = tag.strip()
    if not name or len(name) > 200 or figure_order(name) is None:
        return None
    if any(fnmatchcase(name.lower(), pattern) for pattern in NEVER):
        return None
    return _BEFORE.sub("", name)


class TagNaming:
    """Maps the tags of one file (or directory) to metrics.

    Args:
        tags: All tags; needed to detect per-epoch twins and run summaries.
        directory: Base name of the file's directory (Keras: ``train`` and ``validation``).
    """

    def __init__(self, tags: Iterable[str] = (), directory: str = "") -> None:
        self._tags = frozenset(tag.strip().lower() for tag in tags)
        self._directory = directory
        self._sounds: dict[str, str] | None = None

    def metric_of(self, tag: str) -> str | None:
        """Return the metric of `tag`, or None."""
        name = tag.strip().lower()
        # Keras writes training and validation under the same tags, into two directories.
        if self._directory == "validation" and name == "epoch_loss":
            return "eval_loss"
        if self.is_repeated(tag):
            return None  # transformers writes its mean over the run as train_loss at the end
        for metric in METRICS:
            if match_rank(tag, metric) is not None:
                return metric
        return self._metric_by_role(name)

    def is_repeated(self, tag: str) -> bool:
        """Return whether a tag only repeats another one: a mean over an epoch, or of the whole run."""
        name = tag.strip().lower()
        return self._is_twin(name) or (name == "train_loss" and "train_runtime" in self._tags)

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

    def _metric_by_role(self, name: str) -> str | None:
        """Return the metric of a tag of the user's own that plays its part alone, or most plainly."""
        if self._sounds is None:
            self._sounds = {}
            for metric, role, evaluated in _PARTS:
                chosen = self._plainest(metric, role, evaluated)
                if chosen is not None:
                    self._sounds[chosen] = metric
        return self._sounds.get(name)

    def _plainest(self, metric: str, role: str, evaluated: bool) -> str | None:
        if any(match_rank(tag, metric) is not None for tag in self._tags):
            return None
        found = sorted(
            tag
            for tag in self._tags
            if role_of(tag) == role
            and is_evaluation(tag) == evaluated
            and not self._is_twin(tag)
            and not (tag.endswith("_step") and tag[: -len("_step")] in self._tags)
            and not any(fnmatchcase(tag, pattern) for pattern in NEVER)
        )
        # Norms of weights and parameters have the same role.
        if role == NORM:
            found = [tag for tag in found if "grad" in tag or tag in ("gnorm", "grdn")]
        # Of several losses, only one that is no part of another: "loss_kl" and "loss_disc" are
        # parts.
        if len(found) > 1 and role == LOSS:
            found = [
                tag
                for tag in found
                if not set(_LETTERS.findall(_OBJECTIVE.sub("loss", tag))) - PLAIN
            ]
            found.sort(key=lambda tag: ("total" not in tag, "test" in tag, len(tag), tag))
        if found:
            return found[0]
        return None


_PARTS = (
    ("loss", LOSS, False), ("eval_loss", LOSS, True), ("lr", RATE, False),
    ("grad_norm", NORM, False),
    ("throughput", SPEED, False),
)  # fmt: skip
"""Metric, its role, and whether it is an evaluation: for tags without a known name."""
_LETTERS = re.compile(r"[a-z]+")
_OBJECTIVE = re.compile(r"cross[-_ ]?entropy|\bxent\b|\bnll\b")
"""The loss of a classifier or language model, next to auxiliary ones."""


def choose_tags(tags: Iterable[str], directory: str = "") -> dict[str, str]:
    """Return metric → its best tag; a `figure` is a metric under its own name."""
    # A copy, because the cached result is shared.
    return dict(_choose_tags(tuple(tags), directory))


@lru_cache(maxsize=256)
def _choose_tags(every: tuple[str, ...], directory: str) -> dict[str, str]:
    naming = TagNaming(every, directory)
    found: dict[str, tuple[int, str]] = {}
    figures: dict[str, tuple[int, str]] = {}
    for tag in every:
        metric = naming.metric_of(tag)
        if metric is None:
            name = figure_name(tag)
            if name is not None and name not in NAMES and not naming.is_repeated(tag):
                # Two tags may have one name without their prefix: the better role wins, then the
                # alphabet, so that the choice does not depend on the order in the file.
                order = (figure_order(tag) or 0, tag)
                figures[name] = min(order, figures.get(name, (9, "")))
            continue
        place = match_rank(tag, metric)
        order = (len(NAMES[metric]) if place is None else place, tag)
        if metric not in found or order < found[metric]:
            found[metric] = order
    best = sorted(figures, key=lambda name: (figures[name][0], name))[:MOST_FIGURES]
    return {
        **{metric: order[1] for metric, order in found.items()},
        **{name: figures[name][1] for name in best},
    }
