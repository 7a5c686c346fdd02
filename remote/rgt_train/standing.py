"""Where a run stands between two steps: at a boundary, where its state may be saved, or in the middle of a step."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence

from rgt_train.hooks import Hooks
from rgt_train.state import RunState


class Standing:
    """Knows whether anything has changed since the last step boundary.

    Args:
        state: What is saved.
        window: Batches of a step.
        epoch_over: Says whether all steps of the epoch are done.
        optimizers: What changes the weights.
        before: Called before each change of theirs.
        say: Where a slower way of saving is told.
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
        """Whether nothing was computed since the last step, as far as can be known, and all is in this process."""
        batch_is_step = self._window == 1 or self._state.progress.micro > 0
        return self._state.world == 1 and self._hooks.complete and not self.touched and batch_is_step

    def stepped(self) -> None:
        """Take in that a step is over."""
        self._hooks.touched = False
        self.look()

    def look(self, random: Optional[Dict[str, Any]] = None) -> None:
        """Keep the small parts of the state as they are, if the last step of the epoch is done.

        Args:
            random: Random state that is still to be put back, if there is any.
        """
        if self._epoch_over():
            self._state.hold(random)

    def next_epoch(self) -> None:
        """Take in that what comes after the last step of the epoch is over, too."""
        self._state.held = None

    def spoilt(self) -> str:
        """Return why the state is no longer that of the last step, in words; empty if it is."""
        if self.touched:
            return "an optimizer has changed weights without a run.step"
        changed = self._state.held.changed() if self._state.held else ""
        return changed and f"{changed} changed after the last step of the epoch; a relaunch does that again"

    def close(self) -> None:
        """Leave the optimizers alone."""
        self._hooks.close()

    def _captured(self) -> None:
        self._state.hooked = False
        self._say("optimizer.step() is captured into a CUDA graph: from now on saves copy at once")
