"""Training with fewer bits: autocast to bfloat16 or float16, and the scale that float16's small gradients need.

The weights stay in 32 bits, and so do their gradients. Sums over ranks are made in 32 bits, too.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Optional

import torch

from rgt_train.exits import UsageError

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LEAST_SCALE = 1.0
"""A scale at which an infinite gradient is no matter of the scale any more."""


class Precision:
    """How the losses of a run are computed.

    Args:
        name: ``fp32``, ``bf16`` or ``fp16``.
        device: Where.
        sharded: Whether the model is held in parts by several ranks.

    Attributes:
        dtype: What autocast computes in; None for 32 bits.
        scaler: Multiplies the losses of float16; part of the state of a run. None for the others.

    Raises:
        UsageError: float16 with a sharded model, whose ranks would each have a scale of their own.
    """

    def __init__(self, name: str, device: torch.device, *, sharded: bool) -> None:
        if name == "fp16" and sharded:
            raise UsageError("precision is fp16: a sharded model needs bf16, which has no scale to keep")
        self.dtype: Optional[torch.dtype] = _DTYPES.get(name)
        self._device = device.type
        self.scaler: Any = torch.amp.GradScaler(device.type) if name == "fp16" else None

    def autocast(self) -> "AbstractContextManager[Any]":
        """Compute with these bits inside the block; outside of it, for a backward pass, they are remembered."""
        return nullcontext() if self.dtype is None else torch.autocast(self._device, dtype=self.dtype)

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Return what the backward pass begins with."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizer: Any) -> None:
        """Bring the gradients back to their own size, once a step, before they are looked at."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def overflowed(self, norm: float) -> bool:
        """Say whether gradients of this `norm` are infinite for the scale alone: normal now and then, no bad step."""
        return self.scaler is not None and not math.isfinite(norm) and self.scaler.get_scale() > _LEAST_SCALE

    def step(self, optimizer: Any, lr: float) -> None:
        """Take the step, unless a gradient is infinite."""
        if self.scaler is None:
            optimizer.step(lr)
        else:
            self.scaler.step(optimizer, lr)

    def update(self) -> None:
        """Move the scale; once a step, whether it was taken or not."""
        if self.scaler is not None:
            self.scaler.update()
