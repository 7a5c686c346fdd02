"""The state of a step taken apart: tensors with their places, and everything else as one JSON document."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Set, Tuple

import torch

from rgt_train import tree
from rgt_train.layout import Spec, spec_of

MODEL_FILE = "model.safetensors"
"""Weights and buffers of the models."""
TRAINER_FILE = "trainer.safetensors"
"""Tensors of everything else: moments, EMA, gradients of a half-done accumulation."""
STATE_FILE = "state.json"
"""All that is not a tensor, and which tensor belongs where."""
WHOLE, SAMPLED = "whole", "sampled"
"""How the tensors of a checkpoint were compared with those of its step, under ``compared`` in the document: in full (or
copied while nothing else went on), or by samples."""


@dataclass(frozen=True)
class Part:
    """One tensor of the state.

    Attributes:
        spec: Its file, name, dtype and shape.
        tensor: The live tensor.
        steady: Whether it changes only inside ``optimizer.step()``, as far as known.
    """

    spec: Spec
    tensor: torch.Tensor
    steady: bool


@dataclass
class Collected:
    """A state as it is being collected.

    Attributes:
        parts: Its tensors.
        document: Everything else.
    """

    parts: List[Part] = field(default_factory=list)
    document: Dict[str, Any] = field(default_factory=dict)
    _names: Set[Tuple[str, str]] = field(default_factory=set)

    def put(self, file: str, key: str, tensor: torch.Tensor, steady: bool) -> str:
        """Take in a tensor; return its name.

        Raises:
            CannotStore: It is not a plain dense tensor, or there is one of its name already.
        """
        why = _unfit(tensor)
        if why:
            raise tree.CannotStore(f"{key} {why}")
        if (file, key) in self._names:
            raise tree.CannotStore(f"two tensors would both be kept as {key} in {file}: rename one of them")
        self._names.add((file, key))
        self.parts.append(Part(spec_of(file, key, tensor), tensor, steady))
        return key

    def size(self) -> int:
        """Return the bytes of all tensors."""
        return sum(part.tensor.numel() * part.tensor.element_size() for part in self.parts)

    def text(self) -> bytes:
        """Return the document as the content of `STATE_FILE`."""
        return json.dumps(self.document, separators=(",", ":")).encode()


def _unfit(tensor: torch.Tensor) -> str:
    """Return why a tensor cannot be kept; empty if it can."""
    if torch.nn.parameter.is_lazy(tensor):
        return "has no shape yet: run one batch through the model before the Run is made"
    if tensor.is_meta:
        return "is on the meta device, without values: materialise it, or make it a non-persistent buffer"
    if tensor.layout is not torch.strided:
        return f"is a {tensor.layout} tensor, which cannot be stored by a single process"
    if tensor.is_quantized or type(tensor).__name__ == "DTensor" or hasattr(tensor, "__tensor_flatten__"):
        return f"is a {type(tensor).__name__} tensor, which cannot be stored by a single process"
    return ""
