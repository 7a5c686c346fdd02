"""What every optimizer does before it changes anything: it lets the copy of the step before come to its end."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import torch


class Hooks:
    """Hooks of the optimizers of a run.

    A CUDA graph that was captured around an ``optimizer.step()`` changes parameters at each replay, without calling
    anything in Python and without torch counting it. So a step that is being captured is noticed, and what may be
    captured (``capturable``) is taken for it from the beginning.

    Args:
        optimizers: The optimizers.
        before: What is called before each change.
        captured: Called once, when a step of one of them is captured into a CUDA graph.

    Attributes:
        silent: Those that may change parameters without a word, each with its reason.
        touched: Whether one of them has begun to change parameters since this was last set to False.
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
        """Whether nothing changes parameters without a word."""
        return bool(self._handles) and not self.silent

    def close(self) -> None:
        """Remove them."""
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
