"""Averaged weights: what is validated, sampled and exported, while the raw ones go on training."""

from __future__ import annotations

import copy
from typing import Any, Dict

import torch


class Ema:
    """An exponential moving average of the weights and buffers of a model, as a model of its own.

    The average warms up: after n updates its decay is at most (1 + n) / (10 + n), so that a short run is not judged by
    its initial weights. It is never swapped into the model that trains: a save may be reading that one.

    Args:
        model: The model that is trained.
        decay: Share of the average that stays in an update.

    Attributes:
        module: The model with the averaged weights, in evaluation mode.
        counted: Whether all its changes are counted by torch, so that a save may copy it while the training goes on.
    """

    counted = True

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self._model, self._decay, self._updates = model, decay, 0
        self.module = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after an optimizer step."""
        self._updates += 1
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        averages = self.module.state_dict()
        for name, tensor in self._model.state_dict().items():
            average = averages[name]
            if average.is_floating_point():
                average.lerp_(tensor, 1 - decay)
            else:
                average.copy_(tensor)  # counters, such as batch norm's

    def state_dict(self) -> Dict[str, Any]:
        """Return the average and the number of updates."""
        return {"updates": self._updates, "average": self.module.state_dict()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            RuntimeError: It belongs to a model with other weights.
        """
        self.module.load_state_dict(state_dict["average"])
        self._updates = int(state_dict["updates"])
