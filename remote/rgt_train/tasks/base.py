"""What the reference loop asks of a task."""

from __future__ import annotations

from typing import Callable, Iterator, List, Protocol

import torch


class Task(Protocol):
    """Data, model and loss of one problem.

    Attributes:
        samples: Training samples; the loop asks for them by index.
        unit: What its throughput counts, ``tok`` or ``img``.
        per_sample: How many of them a sample has.
    """

    samples: int
    unit: str
    per_sample: int

    def model(self) -> torch.nn.Module:
        """Return a new model; draws its weights from torch's global random state."""

    def loss(
        self, model: torch.nn.Module, indices: List[int], seed_of: Callable[[int], int], device: torch.device
    ) -> torch.Tensor:
        """Return the mean loss of the samples `indices`, a scalar with gradient.

        Args:
            model: The model, on `device`.
            indices: Which samples.
            seed_of: Sample index → seed of its augmentation in this epoch.
            device: Where to compute.
        """

    def validation(self, model: torch.nn.Module, device: torch.device) -> Iterator[float]:
        """Yield the loss of each validation batch; all batches have the same size."""
