"""Averaged weights: what is validated, sampled and exported, while the raw ones go on training."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator

import torch


class Ema:
    """An exponential moving average of the weights and buffers of a model.

    The average warms up: after n updates its decay is at most (1 + n) / (10 + n), so that a short run is not judged by
    its initial weights.

    Args:
        model: The model that is trained.
        decay: Share of the average that stays in an update.
    """

    def __init__(self, model: torch.nn.Module, decay: float) -> None:
        self._model, self._decay, self._updates = model, decay, 0
        self.average: Dict[str, torch.Tensor] = {
            name: tensor.detach().clone() for name, tensor in model.state_dict().items()
        }

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after an optimizer step."""
        self._updates += 1
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        for name, tensor in self._model.state_dict().items():
            average = self.average[name]
            if average.is_floating_point():
                average.lerp_(tensor, 1 - decay)
            else:
                average.copy_(tensor)  # counters, such as batch norm's

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averaged weights for the time of a block."""
        raw = {name: tensor.detach().clone() for name, tensor in self._model.state_dict().items()}
        self._model.load_state_dict(self.average)
        try:
            yield
        finally:
            self._model.load_state_dict(raw)

    def state_dict(self) -> Dict[str, Any]:
        """Return the average and the number of updates."""
        return {"updates": self._updates, "average": dict(self.average)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            KeyError: It belongs to a model with other weights.
        """
        if set(state_dict["average"]) != set(self.average):
            raise KeyError("the averaged weights have other names than the model's")
        for name, tensor in state_dict["average"].items():
            self.average[name].copy_(tensor)
        self._updates = int(state_dict["updates"])
