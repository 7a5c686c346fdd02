"""Detect changes since the last step: the state may be saved only at a step boundary."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from rgt_train.checkpoint.state import RunState


class Hooks:
    """Hooks on the optimizers of a run.

    A CUDA graph captured around an ``optimizer.step()`` changes parameters at each replay without
    calling anything in Python and without torch counting it. So a captured step is detected, and
    optimizers that may be captured (``capturable``) are treated that way from the start.

    Args:
        optimizers: The optimizers.
        before: Called before each change.
        captured: Called once, when a step of one of them is captured into a CUDA graph.

    Attributes:
        silent: Optimizers that may change parameters without calling the hooks, with the reason.
        touched: Whether one of them has begun to change parameters since this was set to False.
    """

    def __init__(
        self,
        optimizers: Sequence[Any],
        before: Callable[[], None],
        captured: Callable[[], None] = lambda: None,
    ) -> None:
        self.silent: List[str] = []
        self.touched = False
        self._before, self._captured = before, captured
        self._handles: List[Any] = []
        self._known = False
        for optimizer in optimizers:
            name = type(optimizer).__name__
            register = getattr(optimizer, "register_step_pre_hook", None)
            if register is None:
                self.silent.append(f"{name} has no register_step_pre_hook")
                continue
            self._handles.append(register(self._call))
            if any(group.get("capturable") for group in getattr(optimizer, "param_groups", [])):
                self.silent.append(f"{name} is capturable, and a replayed CUDA graph calls no hook")

    @property
    def complete(self) -> bool:
        """Whether every change of parameters calls a hook."""
        return bool(self._handles) and not self.silent

    def close(self) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _call(self, *_: Any) -> None:
        self.touched = True
        if _capturing():
            if not self._known:
                self._known = True
                self._captured()
            return  # nothing is changed now, and a graph cannot wait for a copy
        self._before()


def _capturing() -> bool:
    return bool(
        torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        and torch.cuda.is_current_stream_capturing()
    )


class StepBoundary:
    """Knows whether anything has changed since the last step boundary.

    Args:
        state: The state to save.
        window: Batches of a step.
        epoch_over: Returns whether all steps of the epoch are done.
        optimizers: The objects that change the weights.
        before: Called before each of their changes.
        say: Receives the message about a slower way of saving.
    """

    def __init__(
        self,
        state: RunState,
        window: int,
        epoch_over: Callable[[], bool],
        optimizers: Sequence[Any],
        before: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._state, self._window, self._epoch_over, self._say = state, window, epoch_over, say
        self._hooks = Hooks(optimizers, before, self._captured)
        state.hooked = self._hooks.complete
        for silent in self._hooks.silent:
            say(f"{silent}: saves copy on the training thread")

    @property
    def touched(self) -> bool:
        """Whether an optimizer has begun to change weights since the last step boundary."""
        return self._hooks.touched

    @property
    def whole(self) -> bool:
        """Whether, as far as known, nothing ran since the last step and one process has it all."""
        batch_is_step = self._window == 1 or self._state.progress.micro > 0
        return (
            self._state.world == 1 and self._hooks.complete and not self.touched and batch_is_step
        )

    def stepped(self) -> None:
        """Note that a step is over."""
        self._hooks.touched = False
        self.look()

    def look(self, random: Optional[Dict[str, Any]] = None) -> None:
        """Keep a copy of the small parts of the state if the last step of the epoch is done.

        Args:
            random: Random state that is still to be put back, if there is any.
        """
        if self._epoch_over():
            self._state.keep_epoch_end(random)

    def next_epoch(self) -> None:
        """Note that the work after the last step of the epoch is over, too."""
        self._state.epoch_end = None

    def spoilt(self) -> str:
        """Return why the state is no longer that of the last step; empty if it is unchanged."""
        if self.touched:
            return "an optimizer has changed weights without a run.step"
        changed = self._state.epoch_end.changed() if self._state.epoch_end else ""
        return (
            changed
            and f"{changed} changed after the last step of the epoch; a relaunch does that again"
        )

    def close(self) -> None:
        """Remove the hooks from the optimizers."""
        self._hooks.close()

    def _captured(self) -> None:
        self._state.hooked = False
        self._say("optimizer.step() is captured into a CUDA graph: from now on saves copy at once")
