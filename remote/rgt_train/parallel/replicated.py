"""Saving a state that every rank holds whole (`DistributedDataParallel`): one rank writes it, all take part.

The ranks compare their replicas, the random states of all come to the writer, and the writer saves like a process that
is alone: copied beside the training, written by another process. At a load every rank reads and verifies the whole
checkpoint by itself; the ranks agree that it is good on all of them before any of them takes it over.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

from rgt_train import averages, exits
from rgt_train.loaded import Loaded
from rgt_train.parallel import in_step
from rgt_train.parallel.agreeing import agreed
from rgt_train.parallel.crew import everywhere
from rgt_train.persister import Outcome, Persister, Request
from rgt_train.ranks import Ranks
from rgt_train.state import Restored, RunState


class Checks:
    """When the desync guard looks.

    Args:
        ranks: The ranks that are compared.
        every: Saves between two looks; 0 never looks.
        say: Where a difference is told.
    """

    def __init__(self, ranks: Ranks, every: int, say: Callable[[str], None]) -> None:
        self._ranks, self._every, self._say = ranks, every, say
        self._saves = 0

    def before_save(self, step: int, state: RunState) -> None:
        """Compare the ranks where it is due. Collective.

        Raises:
            Stop: They are not in step (exit code 1, on every rank); nothing is saved.
        """
        self._saves += 1
        if not self._every or (self._saves - 1) % self._every:
            return
        optimizers = {name: state.others[name] for name in state.optimizers}
        averaging = {name: state.others[name] for name in averages.parts(state.others)}
        found = in_step.differences(self._ranks, state.progress.step, state.models, optimizers, averaging)
        if found:
            self._say(f"the ranks are out of step at step {step}, not saved: {'; '.join(found)}")
            raise everywhere(exits.Stop(exits.FAILED, f"out of step: {found[0]}"))


class Replicated:
    """Saves the replica of the writer; see `rgt_train.persister.Persister`.

    Args:
        inner: What puts it onto the disk; None on the ranks that do not write.
        ranks: All ranks.
        checks: The desync guard.
    """

    def __init__(self, inner: Optional[Persister], ranks: Ranks, checks: Checks) -> None:
        self._inner, self._ranks, self._checks = inner, ranks, checks

    @property
    def busy(self) -> bool:
        """Whether a save is in flight, as far as this rank knows."""
        return self._inner is not None and self._inner.busy

    def prepare(self, state: RunState) -> None:
        """Get ready for saves of this size."""
        if self._inner is not None:
            self._inner.prepare(state)

    def begin(self, request: Request, state: RunState) -> None:
        """Compare the ranks, collect their random states, and start to write. Collective.

        Raises:
            Stop: The ranks are out of step.
        """
        self._checks.before_save(request.step, state)
        state.random = self._ranks.gather(state.random_here())
        if self._inner is not None:
            self._inner.begin(request, state)

    def again(self, *, give_up: bool) -> None:
        """Write the snapshot of the last `begin` once more."""
        if self._inner is not None:
            self._inner.again(give_up=give_up)

    def before_change(self) -> None:
        """Wait until parameters and optimizer state may change."""
        if self._inner is not None:
            self._inner.before_change()

    def poll(self) -> Optional[Outcome]:
        """Return how the save in flight ended, once; only the writer gets to know."""
        return self._inner.poll() if self._inner is not None else None

    def wait(self) -> Optional[Outcome]:
        """Like `poll`, but waits."""
        return self._inner.wait() if self._inner is not None else None

    def load(self, directory: str, state: RunState) -> Restored:
        """Put a checkpoint back that every rank has verified. Collective.

        Raises:
            Damaged: A rank found a byte that is not what was written; no rank has changed anything.
            UsageError: It belongs to something else.
        """
        opened: List[Loaded] = []
        try:
            agreed(self._ranks, lambda: opened.append(Loaded(directory)))
            return agreed(self._ranks, lambda: state.restore(opened[0]))
        finally:
            for loaded in opened:
                loaded.close()

    def close(self) -> None:
        """Give up what is in flight."""
        if self._inner is not None:
            self._inner.close()

    def needs(self) -> Tuple[int, int]:
        """Return the bytes and the inodes of one checkpoint, as far as known."""
        return self._inner.needs() if self._inner is not None else (0, 0)
