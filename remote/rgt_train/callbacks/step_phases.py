"""What a rank of another trainer is at: its callback's hooks tell our heartbeat, for who looks from outside.

One process alone has nobody to wait for, and shows nothing.
"""

from __future__ import annotations

import atexit
from typing import Any, List

import torch

from rgt_train.ranks.heartbeat import BACKWARD, END, FORWARD, START, Heartbeat
from rgt_train.ranks.torch_ranks import let_threads_end


class StepPhases:
    """The phases of this process, over all the times that it trains.

    Attributes:
        beat: Where they stand.
    """

    def __init__(self) -> None:
        self.beat = Heartbeat()
        self._handles: List[Any] = []

    def begin(self, rank: int, world: int) -> None:
        """Note that the training begins, or begins anew."""
        self._forget()
        if world > 1 and not self.beat.shown:
            self.beat.show(rank, world)
            # These trainers leave their process group behind, whose threads abort some processes at their very end.
            atexit.register(let_threads_end)
        self.beat.loads = True
        self.beat.enter(START)

    def watch(self, model: Any) -> None:
        """Let the calls of a model tell forward from backward, where its trainer has no hook between them.

        Calls without gradients are none of a step: a generation, or an evaluation.
        """
        if not self.beat.shown or not hasattr(model, "register_forward_pre_hook"):
            return

        def begins(*_: Any) -> None:
            if torch.is_grad_enabled():
                self.beat.go(FORWARD)

        def ends(*_: Any) -> None:
            if torch.is_grad_enabled():
                self.beat.go(BACKWARD)

        self._handles += [model.register_forward_pre_hook(begins), model.register_forward_hook(ends)]

    def stepped(self, step: int) -> None:
        """Note that so many optimizer steps are done."""
        self.beat.stepped(step)

    def end(self) -> None:
        """Note that the training is over, however it ended."""
        self._forget()
        self.beat.enter(END)

    def _forget(self) -> None:
        while self._handles:
            self._handles.pop().remove()
