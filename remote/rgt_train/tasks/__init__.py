"""Reference tasks: small, with data made at run time, and really learning; and how to add one."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Callable, Iterator, Protocol, Sequence, Tuple, cast

import torch

from rgt_train.config import COMMON, Config, Field
from rgt_train.exits import UsageError

SHIPPED: dict[str, tuple[str, str]] = {
    "char_lm": ("rgt_train.tasks.char_lm", "CharLM"),
    "image_classifier": ("rgt_train.tasks.image_classifier", "ImageClassifier"),
    "diffusion": ("rgt_train.tasks.diffusion", "Diffusion"),
}
_NEEDED = ("model", "loss", "validation")

Scored = Tuple[float, float]
"""Sum of the losses of a validation batch, and their number."""


class Task(Protocol):
    """Data, model and loss of one problem; made with the `Config` of the run as its only argument.

    A class of your own may also have ``FIELDS`` (its config keys), ``unit`` and ``per_sample`` (the
    unit of its throughput and the number of units in a sample), ``ema_decay`` (above 0: averaged
    weights are kept, and used for validation), and ``scores``.

    Attributes:
        samples: Number of training samples; the loop requests them by index.
    """

    samples: int

    def model(self) -> torch.nn.Module:
        """Return a new model; draws its weights from torch's global random state."""

    def loss(
        self,
        model: torch.nn.Module,
        indices: list[int],
        seed_of: Callable[[int], int],
        device: torch.device,
    ) -> torch.Tensor:
        """Return the mean loss of the samples `indices`, a scalar with gradient.

        A batch may be shared by ranks, or be one of several in an accumulation: their means are
        weighted by samples. So divide by the number of samples, or a constant multiple of it, and
        not by a value that differs between them.

        Args:
            model: The model, on `device`.
            indices: The samples.
            seed_of: Sample index → seed of its augmentation in this epoch.
            device: The device for the computation.
        """

    def validation(self, model: torch.nn.Module, device: torch.device) -> Iterator[Scored]:
        """Yield sum and count of the losses of each validation batch; the same in every call for the same weights."""


def unit_of(task: Any) -> str:
    """Return the unit of the task's throughput."""
    return str(getattr(task, "unit", "sample"))


def per_sample_of(task: Any) -> int:
    """Return how many units a sample has."""
    return int(getattr(task, "per_sample", 1))


def ema_decay_of(task: Any) -> float:
    """Return the decay of the averaged weights; 0 for none."""
    return float(getattr(task, "ema_decay", 0.0))


def scores_of(task: Any, model: torch.nn.Module, device: torch.device) -> dict[str, float]:
    """Return further numbers of a validated model; empty if the task has none."""
    scores = getattr(task, "scores", None)
    if scores is not None:
        return dict(scores(model, device))
    return {}


def make_task(config: Config) -> Task:
    """Return the task that `config` names, with its data made.

    Raises:
        UsageError: There is no such class, it is not a task, or it refuses the config.
    """
    name = config.str("task")
    module, attribute = SHIPPED[name] if name in SHIPPED else _split_task_name(name)
    task = cast(Task, _load_attribute(module, attribute, name)(config))
    if not isinstance(getattr(task, "samples", None), int) or task.samples < 1:
        raise UsageError(
            f"task {name}: `samples` must be the number of training samples, an int of at least 1"
        )
    return task


def own_fields(name: str) -> Sequence[Field]:
    """Return the fields that the task ``module:Class`` declares in its ``FIELDS``.

    Raises:
        UsageError: There is no such class, or a field has the name of a common one.
    """
    fields: Sequence[Field] = getattr(_load_attribute(*_split_task_name(name), name), "FIELDS", ())
    taken = {field.name for field in COMMON}
    for field in fields:
        if field.name in taken:
            raise UsageError(f"task {name}: its field {field.name!r} has the name of a common key")
    return fields


def _split_task_name(name: str) -> tuple[str, str]:
    module, _, attribute = name.partition(":")
    if not (attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UsageError(
            f"task {name}: a task of your own is module:Class, such as mytasks.audio:Speech"
        )
    return module, attribute


def _load_attribute(module: str, attribute: str, name: str) -> Any:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # `python -m` adds it, a zipapp does not
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"task {name}: cannot import {module!r}: {error} (looked in {os.getcwd()} and sys.path)"
        ) from error
    found = getattr(loaded, attribute, None)
    if found is None:
        raise UsageError(f"task {name}: {getattr(loaded, '__file__', module)} has no {attribute!r}")
    missing = [method for method in _NEEDED if not callable(getattr(found, method, None))]
    if missing:
        raise UsageError(
            f"task {name}: {attribute} has no method {', '.join(missing)} (see docs/trainer.md)"
        )
    return found
