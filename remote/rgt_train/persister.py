"""The seam between a run and the way its state gets onto the disk.

`Saver` decides when, a `Persister` does it: `rgt_train.arena_persister` for a state that one process holds (a single
process, or the replicas of DDP), another one for a state that is sharded over the ranks. Both publish through
`rgt_train.commit.Draft`, so that a checkpoint looks and fails the same whoever wrote it::

    draft = Draft.create(store, step, "step")       # the writer; the others learn draft.path by Ranks.share
    ...                                             # every rank writes and fsyncs its files in draft.path
    draft.seal(files, about)                        # the writer, when all are done: manifest, fsync
    draft.publish()                                 # rename, fsync, move the pointer
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Mapping, Optional, Protocol

if TYPE_CHECKING:
    from rgt_train.state import Restored, RunState
    from rgt_train.store import Checkpoint

STEP = "step"
BEST = "best"


@dataclass(frozen=True)
class Request:
    """What is to be saved.

    Attributes:
        kind: `STEP` (kept by the retention policy) or `BEST` (replaces ``OUT/best``).
        step: Optimizer steps done.
        about: Facts for the manifest.
        give_up: Whether older checkpoints may be given up where there is no room.
    """

    kind: str
    step: int
    about: Mapping[str, Any] = field(default_factory=dict)
    give_up: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a save ended.

    Attributes:
        request: What was asked for.
        checkpoint: What was published; None where nothing was.
        error: Why not. An `OSError` is the disk's fault and will be retried; anything else is a mistake.
        stall_s: Seconds the training thread stood still for it, `waited_s` included.
        waited_s: Those of them that an ``optimizer.step()`` waited for the end of the copy.
        durable_s: Seconds from the request until the last fsync.
        notes: Lines for a person (an older checkpoint given up for it, a slower way taken, …).
    """

    request: Request
    checkpoint: "Optional[Checkpoint]" = None
    error: Optional[BaseException] = None
    stall_s: float = 0.0
    waited_s: float = 0.0
    durable_s: float = 0.0
    notes: "tuple[str, ...]" = ()


class Persister(Protocol):
    """Writes the state of a run in the background, at most one save at a time."""

    @property
    def busy(self) -> bool:
        """Whether a save is in flight; then `begin` may not be called."""

    def prepare(self, state: "RunState") -> None:
        """Get ready for saves of this size (memory, helper processes) without keeping the training waiting."""

    def begin(self, request: Request, state: "RunState") -> None:
        """Take the state as it is now and start to write it. Collective; returns long before it is durable.

        Raises:
            UsageError: The state holds something that cannot be stored.
        """

    def again(self, *, give_up: bool) -> None:
        """Write the snapshot of the last `begin` once more: its save failed, and nothing was begun since."""

    def before_change(self) -> None:
        """Wait until parameters and optimizer state may change. Called before every ``optimizer.step()``."""

    def poll(self) -> Optional[Outcome]:
        """Return how the save in flight ended, once; None while it goes on. The same on every rank."""

    def wait(self) -> Optional[Outcome]:
        """Like `poll`, but waits for the end of the save in flight; None where there is none."""

    def load(self, directory: str, state: "RunState") -> "Restored":
        """Put a verified checkpoint back into the objects of the run, all but the random state."""

    def close(self) -> None:
        """Give up what is in flight and let go of memory and processes."""

    def needs(self) -> "tuple[int, int]":
        """Return the bytes and the inodes of one checkpoint, as far as known."""
