"""Saves a state held by one process: copied to shared memory, written by another process.

`Saver` decides when, a `Persister` does it: `AsyncSaver` for a state that one process holds (a
single process, or the replicas of DDP), another one for a state that is sharded over the ranks.
Both publish through `rgt_train.checkpoint.publish.Draft`, so that a checkpoint looks and fails the
same with every persister::

    draft = Draft.create(store, step, "step")       # the writer; others learn path by Ranks.share
    ...                                             # every rank writes and fsyncs its files there
    draft.seal(files, about)                        # the writer, when all are done: manifest, fsync
    draft.publish()                                 # rename, fsync, move the pointer
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Protocol, Sequence

from rgt_train.checkpoint.publish import DIED, SaveJob, SaveResult, perform_job
from rgt_train.checkpoint.safetensors import (
    SAMPLED,
    STATE_FILE,
    WHOLE,
    ArenaLayout,
    Collected,
    LoadedCheckpoint,
    SharedArena,
    StatePart,
)
from rgt_train.checkpoint.snapshot import (
    BackwardHooks,
    ContentWitness,
    CopyPair,
    SnapshotCopy,
    TornSnapshot,
)
from rgt_train.checkpoint.state import RestoredState, RunState
from rgt_train.checkpoint.store import Checkpoint, CheckpointStore
from rgt_train.checkpoint.writer import WriterClient

BACKGROUND = "RGT_TRAIN_BACKGROUND"
"""If set to 0, the training waits for each save: for tests and debugging."""
STEP = "step"
BEST = "best"


@dataclass(frozen=True)
class SaveRequest:
    """A requested save.

    Attributes:
        kind: `STEP` (kept by the retention policy) or `BEST` (replaces ``OUT/best``).
        step: Optimizer steps done.
        about: Facts for the manifest.
        give_up: Whether older checkpoints may be deleted if there is no room.
    """

    kind: str
    step: int
    about: Mapping[str, Any] = field(default_factory=dict)
    give_up: bool = False


@dataclass(frozen=True)
class SaveOutcome:
    """The result of a save.

    Attributes:
        request: The requested save.
        checkpoint: The published checkpoint; None if nothing was published.
        error: Why not. An `OSError` comes from the disk and is retried; anything else is a bug.
        stall_s: Seconds the training thread was paused for it, `waited_s` included.
        waited_s: The part of them that an ``optimizer.step()`` waited for the end of the copy.
        durable_s: Seconds from the request until the last fsync.
        notes: Readable lines (an older checkpoint deleted for it, a slower method used, …).
    """

    request: SaveRequest
    checkpoint: "Checkpoint | None" = None
    error: BaseException | None = None
    stall_s: float = 0.0
    waited_s: float = 0.0
    durable_s: float = 0.0
    notes: "tuple[str, ...]" = ()


class Persister(Protocol):
    """Writes the state of a run in the background, at most one save at a time."""

    @property
    def busy(self) -> bool:
        """Whether a save is in flight; then `begin_save` may not be called."""

    def prepare(self, state: "RunState") -> None:
        """Prepare memory and helper processes for such saves without pausing the training."""

    def begin_save(self, request: SaveRequest, state: "RunState") -> None:
        """Take the present state and start to write it.

        Collective; returns long before it is durable.

        Raises:
            UsageError: The state holds something that cannot be stored.
        """

    def write_again(self, *, give_up: bool) -> None:
        """Write the snapshot of the last `begin_save`, whose save failed, again.

        Only before the next one.
        """

    def before_change(self) -> None:
        """Wait until parameters and optimizer state may change.

        Called before every ``optimizer.step()``.
        """

    def poll_outcome(self) -> SaveOutcome | None:
        """Return the result of the save in flight, once; None while it runs.

        The same on every rank.
        """

    def wait(self) -> SaveOutcome | None:
        """Wait for the end of the save in flight and return its result; None without one."""

    def restore_checkpoint(self, directory: str, state: "RunState") -> "RestoredState":
        """Put a verified checkpoint back into the objects of the run, all but the random state."""

    def close(self) -> None:
        """Abandon the save in flight and release memory and processes."""

    def needs(self) -> "tuple[int, int]":
        """Return the bytes and the inodes of one checkpoint, as known so far."""


@dataclass
class _SaveInFlight:
    """A save in flight."""

    request: SaveRequest
    job: SaveJob
    text: bytes
    submitted: threading.Event
    stall_s: float = 0.0
    waited_s: float = 0.0
    copy: SnapshotCopy | None = None
    failed: BaseException | None = None
    judged: bool = False
    """Whether the training thread has decided if the copy is of one moment; nothing is published
    before.
    """
    spoilt: BaseException | None = None
    """Why the copy is not of one moment."""
    handed: bool = False
    """Whether the writer has the job."""
    done: SaveResult | None = None
    """Filled in by this process if there is no writer."""


class AsyncSaver:
    """Copies the state into an arena and lets the writer process put it onto the disk.

    Args:
        store: The target.
        keep: Descriptors the writer holds while it lives (the lock of the run).
        started: Called with the process id of each writer.
        background: Whether to use a writer process and overlapped copies; otherwise `begin_save`
            does everything.
    """

    def __init__(
        self,
        store: CheckpointStore,
        keep: Sequence[int] = (),
        started: Callable[[int], None] = lambda pid: None,
        *,
        background: bool = True,
    ) -> None:
        self._store = store
        # The arena is passed to the writer as a descriptor, which needs memfd_create(2).
        self._background = background and hasattr(os, "memfd_create")
        self._client = WriterClient(store, keep, started)
        self._arena: SharedArena | None = None
        self._flight: _SaveInFlight | None = None
        self._last: _SaveInFlight | None = None
        self._looks: BackwardHooks | None = None
        self._at_once: set[str] = set()
        self._notes: list[str] = []
        self._needs = (0, 0)
        self._deaths = 0
        self._saves = 0
        self._talking = threading.Lock()
        """The copying thread hands over and the training thread judges; both talk to the same
        writer, in either order.
        """

    @property
    def busy(self) -> bool:
        """Whether a save is in flight."""
        return self._flight is not None

    def needs(self) -> tuple[int, int]:
        """Return the bytes and the inodes of one checkpoint, as known so far."""
        return self._needs

    def prepare(self, state: RunState) -> None:
        """Allocate and touch the memory, and start the writer, without pausing the training."""
        collected = state.collect_state([], draft=True)
        arena = self._arena_for(collected)
        # The first write to a page costs a fault; without this the first save would pay for all of
        # them.
        arena.touch_pages()
        self._start_writer()

    def begin_save(self, request: SaveRequest, state: RunState) -> None:
        """Take the present state and start to write it.

        Raises:
            UsageError: It holds something that cannot be stored.
            OSError: There is no memory for it.
        """
        # Two arenas would double the memory that a run needs.
        assert self._flight is None, "one save at a time"
        self._remove_hooks()
        begun = time.monotonic()
        self._saves += 1
        self._last = (
            None  # from here on `write_again` must not write the snapshot that failed before
        )
        self._start_writer()
        collected = state.collect_state()
        arena = self._arena_for(collected)
        now, later = self._split_pairs(collected.parts, arena)
        # With the number of the save, so that each one samples other places.
        witness = ContentWitness([pair.source for pair in later], self._saves)
        if witness.whole:
            collected.document["compared"] = WHOLE
        else:
            collected.document["compared"] = SAMPLED
        text = collected.document_bytes()
        regions = [(region.file, region.offset, region.size) for region in arena.layout.regions]
        job = SaveJob(
            request.kind, request.step, request.about, regions, STATE_FILE, begun, request.give_up
        )
        self._needs = job.required_space(len(text))
        if self._background:
            with suppress(OSError):  # reported when the snapshot is handed over
                # by this thread: a child is signalled at the end of the thread that started it
                self._client.start()
        flight = self._flight = _SaveInFlight(request, job, text, threading.Event())
        try:
            flight.copy = SnapshotCopy(
                now, later, lambda error: self._submit_snapshot(flight, error),
                lambda error: self._send_verdict(flight, error),
                arena.wait_touched, witness,
            )  # fmt: skip
        except BaseException:
            # Or the run could neither save again nor report this error.
            self._flight = None
            raise
        if not self._background:
            flight.copy.wait()
            self._write_here(flight)
        elif flight.copy.overlaps_backward:
            self._looks = BackwardHooks(state.models, flight.copy.judge_if_ready)
        flight.stall_s = time.monotonic() - begun

    def write_again(self, *, give_up: bool) -> None:
        """Write the snapshot of the last `begin_save` again."""
        assert self._flight is None and self._last is not None, (
            "the last save failed and nothing was begun since"
        )
        last = self._last
        self._start_writer()
        job = replace(last.job, begun=time.monotonic(), give_up=give_up)
        flight = self._flight = _SaveInFlight(
            last.request, job, last.text, threading.Event(), judged=True
        )
        self._submit_snapshot(flight, None)
        if not self._background:
            self._write_here(flight)

    def before_change(self) -> None:
        """Wait until parameters and optimizer state may change."""
        flight = self._flight
        if flight is not None and flight.copy is not None and not flight.copy.is_judged:
            waited = flight.copy.before_change()
            flight.stall_s += waited
            flight.waited_s += waited
        self._remove_hooks()

    def poll_outcome(self) -> SaveOutcome | None:
        """Return the result of the save in flight, once; None while it runs."""
        flight = self._flight
        if flight is None:
            return None
        if flight.copy is not None:
            flight.copy.judge_if_ready()
        return self._take_outcome(block=False)

    def wait(self) -> SaveOutcome | None:
        """Wait for the end of the save in flight; None without one."""
        flight = self._flight
        if flight is None:
            return None
        if flight.copy is not None:
            flight.copy.wait()
        return self._take_outcome(block=True)

    def restore_checkpoint(self, directory: str, state: RunState) -> RestoredState:
        """Restore the objects of the run from a checkpoint, verifying every byte's checksum.

        Raises:
            CheckpointDamaged: A byte is not the one written.
            UsageError: It belongs to something else.
        """
        loaded = LoadedCheckpoint(directory)
        try:
            return state.restore(loaded)
        finally:
            loaded.close()

    def close(self) -> None:
        """Finish the save in flight, and release memory and processes."""
        if self._flight is not None:
            self.wait()
        self._remove_hooks()
        self._client.close()
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def _remove_hooks(self) -> None:
        if self._looks is not None:
            self._looks.close()
            self._looks = None

    def _arena_for(self, collected: Collected) -> SharedArena:
        specs = tuple(part.spec for part in collected.parts)
        if self._arena is not None and self._arena.layout.specs == specs:
            return self._arena
        if self._arena is not None:
            self._arena.close()
            self._arena = None
        # The writer has the old arena mapped, which would keep its memory.
        self._client.forget_memory()
        # Only pinned memory can be the target of a copy that does not block.
        pinned = any(part.tensor.is_cuda for part in collected.parts)
        self._arena = SharedArena(ArenaLayout(specs), pinned=pinned)
        return self._arena

    def _split_pairs(
        self, parts: Sequence[StatePart], arena: SharedArena
    ) -> tuple[list[CopyPair], list[CopyPair]]:
        """Return the pairs to copy at once, and those to copy during forward and backward."""
        now: list[CopyPair] = []
        later: list[CopyPair] = []
        slots = arena.layout.slots
        for part in parts:
            key = part.spec.key
            pair = CopyPair(key, part.tensor, arena.tensor_at(slots[part.spec.file, key]))
            # A group that was torn once is never copied in the background again.
            overlapped = self._background and part.steady and _copy_group(key) not in self._at_once
            (later if overlapped else now).append(pair)
        return now, later

    def _submit_snapshot(self, flight: _SaveInFlight, error: BaseException | None) -> None:
        """Hand the snapshot to the writer.

        Called by the copying thread, or by `begin_save` without one.
        """
        try:
            if error is not None:
                flight.failed = error
            elif self._background:
                assert self._arena is not None, "copied into it"
                with self._talking:
                    self._client.submit_job(
                        flight.job, flight.text, self._arena.fd, self._arena.size
                    )
                    flight.handed = True
                    # The training thread was faster: the verdict waits for the job that it is
                    # about.
                    if flight.judged:
                        self._client.send_verdict(good=flight.spoilt is None)
        except Exception as problem:
            flight.failed = problem
        finally:
            # Also after a failure, because `wait` would otherwise never return.
            flight.submitted.set()

    def _send_verdict(self, flight: _SaveInFlight, error: BaseException | None) -> None:
        """Let the writer publish or discard the snapshot. Called by the training thread."""
        with self._talking:
            flight.judged = True
            flight.spoilt = error
            if flight.handed:
                self._client.send_verdict(good=error is None)

    def _write_here(self, flight: _SaveInFlight) -> None:
        """Write the snapshot if there is no writer."""
        if flight.failed is not None or flight.spoilt is not None:
            return
        assert self._arena is not None, "copied into it"
        try:
            flight.done = perform_job(
                self._store, flight.job, self._arena.whole_memory(), flight.text
            )
        except Exception as problem:
            flight.failed = problem

    def _take_outcome(self, *, block: bool) -> SaveOutcome | None:
        flight = self._flight
        if flight is None or not (block or (flight.submitted.is_set() and flight.judged)):
            return None
        # The error of a copy is only known once the copying thread has handed over.
        flight.submitted.wait()
        if flight.failed is not None:
            self._flight = None
            self._last = flight
            return self._failure_outcome(flight, flight.failed)
        done = flight.done
        if done is None and flight.handed:
            done = self._client.poll_result(block=block)
            if done is None:
                return None
        self._flight = None
        self._last = flight
        if flight.spoilt is not None:
            return self._failure_outcome(flight, flight.spoilt)
        assert done is not None, "written by the writer, or here"
        self._count_deaths(done)
        if done.path is not None and flight.request.kind == STEP:
            # the next writer needs it if this one dies
            self._store.anchor = os.path.basename(done.path)
        notes = (*self._notes, *done.notes)
        self._notes.clear()
        times = flight.stall_s, flight.waited_s, done.durable_s
        return SaveOutcome(flight.request, done.checkpoint(), done.to_exception(), *times, notes)

    def _failure_outcome(self, flight: _SaveInFlight, error: BaseException) -> SaveOutcome:
        # No failure of the disk: the state changed while it was read, so the next copy is made at
        # once.
        if isinstance(error, TornSnapshot):
            self._at_once.update(_copy_group(name) for name in error.names)
            self._notes.append(
                f"{error}: that save is dropped, and from now on it is copied on the training "
                "thread. What comes after run.step in the body of the loop is left out by a "
                "resume: make such a change before it"
            )
        notes = tuple(self._notes)
        self._notes.clear()
        return SaveOutcome(flight.request, None, error, flight.stall_s, flight.waited_s, 0.0, notes)

    def _start_writer(self) -> None:
        if self._background:
            try:
                self._client.start()
            except OSError as error:
                self._without_writer(error)

    def _count_deaths(self, done: SaveResult) -> None:
        """Work without a writer after repeated deaths (no memory, forbidden by a container, …)."""
        died = done.error is not None and done.error[0] == DIED
        if died:
            self._deaths = self._deaths + 1
        else:
            self._deaths = 0
        most_deaths = 2
        # Equality, not >=: the note is printed once.
        if self._deaths == most_deaths:
            self._without_writer(f"it died {self._deaths} times in a row")

    def _without_writer(self, why: object) -> None:
        self._background = False
        self._notes.append(
            f"no writer process ({why}): from now on the training waits for each save"
        )


def _copy_group(key: str) -> str:
    """Return the group that is copied in one way: an EMA, an optimizer, the weights of a model."""
    if "/" in key:
        return key.split("/", 1)[0]
    return "weights"
