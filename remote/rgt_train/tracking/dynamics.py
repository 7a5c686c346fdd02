"""Numbers about how a model learns: size of the updates against the weights, and dead units.

Both are measured in one of many steps: the weights are copied for the time of that step, and
one pass over the outputs of the ReLU modules counts the units that are zero.
"""

from __future__ import annotations

from statistics import median
from typing import Any, Callable, Iterable, Mapping

import torch

UPDATE_RATIO, DEAD_UNITS = "update_ratio", "dead_units"
"""Names of the numbers in the metrics."""
_RECTIFIERS = (torch.nn.ReLU, torch.nn.ReLU6)
"""Modules whose units are exactly zero, with no gradient, once their inputs stay negative."""


class TrainingDynamics:
    """Measures updates and dead units of models; `remove_hooks` ends it.

    Args:
        models: The models.
        optimizers: Their optimizers; those without hooks (not of torch) are left out.
        every: Optimizer steps between two measurements.
        step_now: Returns the number of optimizer steps done.
    """

    def __init__(
        self,
        models: Iterable[torch.nn.Module],
        optimizers: Iterable[Any],
        every: int,
        step_now: Callable[[], int],
    ) -> None:
        self._every = every
        self._step_now = step_now
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._ratios: list[float] = []
        self._silent: dict[int, torch.Tensor] = {}
        self._silent_step = -1
        self._hooks: list[Any] = []
        for optimizer in optimizers:
            if hasattr(optimizer, "register_step_pre_hook"):
                self._hooks.append(optimizer.register_step_pre_hook(self._copy_weights))
                self._hooks.append(optimizer.register_step_post_hook(self._measure_update))
        for model in models:
            for module in model.modules():
                if isinstance(module, _RECTIFIERS):
                    self._hooks.append(module.register_forward_hook(self._count_silent))

    def take_numbers(self) -> Mapping[str, float]:
        """Return the numbers measured since the last call, by name; nothing if no step was."""
        found: dict[str, float] = {}
        if self._ratios:
            found[UPDATE_RATIO] = median(self._ratios)
            self._ratios = []
        if self._silent:
            dead = sum(int(mask.sum()) for mask in self._silent.values())
            found[DEAD_UNITS] = dead / sum(mask.numel() for mask in self._silent.values())
            self._silent = {}
        return found

    def remove_hooks(self) -> None:
        """Remove the hooks."""
        while self._hooks:
            self._hooks.pop().remove()

    def _is_measured(self) -> bool:
        """Return whether the step that is being made is one to measure."""
        return (self._step_now() + 1) % self._every == 0

    @torch.no_grad()
    def _copy_weights(self, optimizer: Any, arguments: Any, named: Any) -> None:
        if not self._is_measured():
            return
        # Biases and norms begin at 0 or 1, where a ratio says nothing.
        self._before = [
            (_local_part(weight), _local_part(weight).clone())
            for group in optimizer.param_groups
            for weight in group["params"]
            if weight.ndim > 1 and weight.grad is not None
        ]

    @torch.no_grad()
    def _measure_update(self, optimizer: Any, arguments: Any, named: Any) -> None:
        for weight, before in self._before:
            size = _vector_norm(before)
            change = _vector_norm(weight - before)
            if size > 0:
                self._ratios.append(change / size)
        self._before = []

    @torch.no_grad()
    def _count_silent(self, module: torch.nn.Module, given: Any, output: Any) -> None:
        if not module.training or not self._is_measured() or output.ndim < 2:
            return
        if not output.numel():
            return  # a detection head without proposals
        if self._silent_step != self._step_now():
            # The numbers of an earlier step were never logged.
            self._silent = {}
            self._silent_step = self._step_now()
        # A unit is a channel of an image, else a feature: the last dimension.
        unit = output.ndim - 1
        if output.ndim >= 4:
            unit = 1
        others = [dim for dim in range(output.ndim) if dim != unit]
        silent = output.detach().abs().amax(dim=others) == 0
        known = self._silent.get(id(module))
        if known is not None and known.shape == silent.shape:
            silent = silent & known
        self._silent[id(module)] = silent


def _vector_norm(values: torch.Tensor) -> float:
    """Return the norm; half precision is added up in float32, where it neither overflows nor stalls."""
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    return float(torch.linalg.vector_norm(values))


def _local_part(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight, of a sharded one this rank's part."""
    plain = weight.detach()
    if hasattr(plain, "to_local"):
        local: torch.Tensor = plain.to_local()
        return local
    return plain
