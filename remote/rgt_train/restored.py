"""What a resume put back, and what that is worth."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch

from rgt_train import rng, tree
from rgt_train.collected import WHOLE
from rgt_train.fingerprint import changes, guarantee

Tensors = Dict[str, torch.Tensor]


class Restored:
    """What `RunState.restore` did.

    Attributes:
        parts: What was restored, in words.
        changed: Settings that differ from those of the checkpoint, in words; empty if none.
        told: Hyperparameters of the code that differ from those of the checkpoint, a line each.
        rng: The random state of this rank, still to be put back; None where the checkpoint has none for it.
        grads: Gradients of a half-done accumulation, still to be put back.
    """

    def __init__(
        self,
        parts: List[str],
        document: Mapping[str, Any],
        here: Mapping[str, Any],
        settings: Mapping[str, Any],
        grads: Mapping[str, Tensors],
        rank: int,
        inexact: Sequence[str] = (),
        told: Sequence[str] = (),
        doubts: Sequence[str] = (),
    ) -> None:
        self.parts, self.grads, self.told = parts, grads, list(told)
        self._doubts, self._data = list(doubts), document.get("data", {})
        self._inexact = list(inexact)
        self._old, self._new = document["environment"], here
        self._sampled = document.get("compared") != WHOLE
        states = document["rng"]
        alike = self._old.get("ranks", 1) == here["ranks"] and rank < len(states)
        self.rng: Optional[Dict[str, Any]] = states[rank] if alike else None
        self.changed = changes(document["settings"], tree.encode(dict(settings), no_tensor, "settings"))
        if self.rng is not None:
            parts.append(f"random state of {', '.join(self.rng)}")

    @property
    def not_restored(self) -> List[str]:
        """What could not be restored, in words."""
        random = [] if self.rng is not None else ["random state (another number of ranks): seeded anew"]
        return [*random, *(rng.missing(self.rng) if self.rng else []), *self._inexact]

    @property
    def environment(self) -> str:
        """How the surroundings differ from those of the checkpoint, in words; empty if not."""
        return changes(self._old, self._new)

    def guarantee(self) -> str:
        """Say in words whether the run goes on with the bits it would have had without the interruption."""
        doubts = [*self.not_restored, *self._doubts]
        if self._data.get("draws"):
            doubts.append("the stream has no state_dict and draws random numbers while it is read")
        unseeded = self._data.get("ahead") and not self._data.get("seeded")
        return guarantee(
            self._old, self._new, ", ".join(doubts), self.changed, sampled=self._sampled,
            unknown="whether making a sample draws random numbers, as run.seeded is not used" if unseeded else "",
        )  # fmt: skip


def no_tensor(path: str, tensor: torch.Tensor) -> str:
    """Refuse a tensor where plain values alone are expected.

    Raises:
        CannotStore: Always.
    """
    raise tree.CannotStore(f"{path} is a tensor; only plain values are expected there")
