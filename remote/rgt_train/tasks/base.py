"""What the reference loop asks of a task."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Protocol, Tuple

import torch

Scored = Tuple[float, float]
"""Sum of the losses of a validation batch, and how many they are."""


class Task(Protocol):
    """Data, model and loss of one problem; made with the `Config` of the run as its only argument.

    A class of your own may also have ``FIELDS`` (its config keys), ``unit`` and ``per_sample`` (what its throughput
    counts and how many a sample has), ``ema_decay`` (above 0: averaged weights are kept, and used for validation), and
    ``scores``.

    Attributes:
        samples: Training samples; the loop asks for them by index.
    """

    samples: int

    def model(self) -> torch.nn.Module:
        """Return a new model; draws its weights from torch's global random state."""

    def loss(
        self, model: torch.nn.Module, indices: List[int], seed_of: Callable[[int], int], device: torch.device
    ) -> torch.Tensor:
        """Return the mean loss of the samples `indices`, a scalar with gradient.

        A batch may be shared by ranks, or be one of several in an accumulation: their means are weighed by samples. So
        divide by the number of samples, or by it times a constant, and not by what differs between them.

        Args:
            model: The model, on `device`.
            indices: Which samples.
            seed_of: Sample index → seed of its augmentation in this epoch.
            device: Where to compute.
        """

    def validation(self, model: torch.nn.Module, device: torch.device) -> Iterator[Scored]:
        """Yield sum and count of the losses of each validation batch; the same in every call for the same weights."""


def unit_of(task: Any) -> str:
    """Return what the task's throughput counts."""
    return str(getattr(task, "unit", "sample"))


def per_sample_of(task: Any) -> int:
    """Return how many units a sample has."""
    return int(getattr(task, "per_sample", 1))


def ema_decay_of(task: Any) -> float:
    """Return the decay of the averaged weights; 0 where the task wants none."""
    return float(getattr(task, "ema_decay", 0.0))


def scores_of(task: Any, model: torch.nn.Module, device: torch.device) -> Dict[str, float]:
    """Return further numbers of a validated model; empty where the task has none."""
    scores = getattr(task, "scores", None)
    return dict(scores(model, device)) if scores is not None else {}
