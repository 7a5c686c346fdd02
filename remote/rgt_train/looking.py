"""Coming by during a backward pass: the training thread is then in nobody's way, and can say so.

A snapshot is published once the training thread has seen that nothing changed while it was copied. Without this it
would come by only before the next ``optimizer.step()``, which is most of a step after the copy has ended.
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping

import torch

LOOKS = 16
"""How often in a backward pass, about: often enough for a small part of a step, seldom enough to cost nothing."""


class Looks:
    """Calls back some times during the next backward passes, where a gradient has just been accumulated.

    Args:
        models: Name → module; those of their parameters that get gradients are used, evenly spread.
        call: Called on the thread that runs the backward pass. It must be quick, and harmless when it is called again.
    """

    def __init__(self, models: Mapping[str, torch.nn.Module], call: Callable[[], None]) -> None:
        found: List[Any] = [
            p for model in models.values() for p in model.parameters() if p.requires_grad and p.is_leaf
        ]
        apart = max(1, len(found) // LOOKS)
        self._hooked: List[Any] = [
            parameter.register_post_accumulate_grad_hook(lambda _: call()) for parameter in found[::apart]
        ]

    def close(self) -> None:
        """Come by no more. Not to be called from within a backward pass."""
        for hooked in self._hooked:
            hooked.remove()
        self._hooked.clear()
