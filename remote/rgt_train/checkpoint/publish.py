"""Makes one checkpoint: the commit protocol, and the files of a state held in memory.

New directory → files, each fsynced → manifest with their checksums, fsynced → fsync of the
directory → rename → fsync of the parent → pointer → only then older ones are deleted. If it is
killed anywhere, earlier checkpoints stay intact.

Standard library only: the writer process never imports torch.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Mapping

from rgt_train.checkpoint import manifest
from rgt_train.checkpoint.diskio import (
    Unreadable,
    fsync_dir,
    remove_path,
    replace_file,
    write_file,
    write_region,
)
from rgt_train.checkpoint.store import (
    POINTER,
    Checkpoint,
    CheckpointStore,
    describe_checkpoint,
    read_space,
    reserve_space,
)


class CheckpointDraft:
    """A checkpoint that is being made.

    Attributes:
        path: The temporary directory; the writer of a file there also fsyncs it.

    Args:
        store: The store in which it is published.
        kind: ``step`` or ``best``.
        step: Optimizer steps done.
        path: The directory of `create`.
    """

    def __init__(self, store: CheckpointStore, kind: str, step: int, path: str) -> None:
        self._store = store
        self._kind = kind
        self._step = step
        self.path = path
        self._facts: Mapping[str, Any] | None = None

    @classmethod
    def create(
        cls, store: CheckpointStore, kind: str, step: int, need_bytes: int, need_inodes: int
    ) -> "CheckpointDraft":
        """Check whether there is room, and make the temporary directory.

        Raises:
            OSError: There is no room, or no directory can be made; nothing is left on the disk.
        """
        path = store.temporary(kind, step)
        if not (store.rooted and os.path.isdir(store.root)):
            os.makedirs(store.root, exist_ok=True)
            # also if it exists: its creator may have been killed before the fsync
            fsync_dir(store.out)
            store.rooted = True
        store.remove_failed_saves()
        # Checked before the directory uses an inode itself.
        short = read_space(store.root).missing_resource(need_bytes, need_inodes)
        os.mkdir(path)
        # The counters can be wrong (quotas, network file systems), so ask the kernel before giving
        # up.
        if short:
            try:
                reserve_space(path, need_bytes)
            except OSError:
                remove_path(path)
                raise
        return cls(store, kind, step, path)

    def seal(self, files: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]) -> None:
        """Write the manifest and make the directory durable.

        Args:
            files: Name → facts from `rgt_train.checkpoint.manifest.file_facts`.
            about: Further facts for the manifest.

        Raises:
            OSError: The draft can only be dropped.
        """
        data = manifest.build_manifest(self._step, files, about)
        # Last, after all files that it names: a directory without it is no checkpoint.
        write_file(os.path.join(self.path, manifest.NAME), data)
        fsync_dir(self.path)
        try:
            # Read back: a disk may accept a write and return something else.
            self._facts = manifest.read_manifest(self.path, pauses=())
        except Unreadable as refused:
            raise refused.error from refused
        # written a moment ago: a disk failure, and reported as one
        except manifest.CheckpointDamaged as damage:
            number = getattr(damage.__cause__, "errno", None) or errno.EIO
            place = os.path.join(self.path, manifest.NAME)
            raise OSError(number, os.strerror(number), place) from damage

    def publish(self) -> Checkpoint:
        """Rename it durably, and move the pointer to it.

        Raises:
            OSError: It was not published; the earlier checkpoints are unchanged.
        """
        assert self._facts is not None, "sealed before published"
        store = self._store
        if self._kind == "best":
            self._swap_best()
            return describe_checkpoint(store.best, self._facts)
        target = store.new_path(self._step)
        os.rename(self.path, target)
        try:
            fsync_dir(store.root)
        except OSError:
            # Not durable, so not published: the name must not exist after an error.
            os.rename(target, self.path)
            raise
        self._point_at(target)
        return describe_checkpoint(target, self._facts)

    def delete_draft(self) -> None:
        """Delete it."""
        remove_path(self.path)

    def _swap_best(self) -> None:
        """Replace ``best``: rename the old one away, then the new one into its place."""
        store = self._store
        aside = store.aside_path(store.best)
        try:
            if os.path.isdir(store.best):
                remove_path(aside)
                os.rename(store.best, aside)
            os.rename(self.path, store.best)
            for parent in (store.root, store.out):
                fsync_dir(parent)
        except OSError:
            if not os.path.isdir(store.best) and os.path.isdir(aside):
                # Put back: a run must not lose its best because the new one cannot be published.
                os.rename(aside, store.best)
            raise
        remove_path(aside)

    def _point_at(self, target: str) -> None:
        """Move ``latest``, which only people and scripts use.

        Remove it rather than leave it wrong.
        """
        pointer = os.path.join(self._store.root, POINTER)
        try:
            replace_file(pointer, (os.path.basename(target) + "\n").encode())
        except OSError:
            remove_path(pointer)


FULL = (errno.ENOSPC, errno.EDQUOT)
_OVERHEAD = 64 * 1024


DIED = "WriterDied"
"""Name of the failure of a save during which the writer process ended; the next save starts a new
writer.
"""
MISHAPS = (DIED, "MemoryError")


class TransientFailure(RuntimeError):
    """A failure of neither the disk nor a bug in code or state: the next try may succeed."""


@dataclass(frozen=True)
class SaveJob:
    """One checkpoint to make.

    Attributes:
        kind: ``step`` or ``best``.
        step: Optimizer steps done.
        about: Facts for the manifest.
        regions: (file name, offset in the memory, length) of each file copied from the memory.
        inline: Name of the file whose content comes with the job, written last.
        begun: Time of the request, seconds of the monotonic clock (shared by processes of a
            machine).
        give_up: Whether older checkpoints may be deleted if there is no room; worthless files are
            deleted in any case.
    """

    kind: str
    step: int
    about: Mapping[str, Any]
    regions: list[tuple[str, int, int]] = field(default_factory=list)
    inline: str = "state.json"
    begun: float = 0.0
    give_up: bool = False

    def as_plain(self) -> dict[str, Any]:
        """Return it as JSON-compatible values."""
        return asdict(self)

    def required_space(self, inline_bytes: int) -> tuple[int, int]:
        """Return the bytes and inodes it needs: files, manifest, directory, pointer."""
        return sum(size for _, _, size in self.regions) + inline_bytes + _OVERHEAD, len(
            self.regions
        ) + 4


@dataclass(frozen=True)
class SaveResult:
    """The result of a job.

    Attributes:
        path: The published directory; None if it failed.
        size: Its bytes.
        facts: Its manifest.
        error: (class, errno, text, file name) of the failure.
        notes: Readable lines.
        durable_s: Seconds from `SaveJob.begun` until the last fsync.
    """

    path: str | None = None
    size: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: tuple[str, int | None, str, str | None] | None = None
    notes: tuple[str, ...] = ()
    durable_s: float = 0.0

    def checkpoint(self) -> Checkpoint | None:
        """Return the published checkpoint."""
        if self.path is None:
            return None
        return Checkpoint(self.path, int(self.facts["step"]), self.size, self.facts)

    def to_exception(self) -> BaseException | None:
        """Return the failure as an exception."""
        if self.error is None:
            return None
        kind, number, text, name = self.error
        if number is None:
            return (TransientFailure if kind in MISHAPS else RuntimeError)(f"{kind}: {text}")
        if name:
            return OSError(number, text, name)
        return OSError(number, text)


class SnapshotSpoilt(RuntimeError):
    """The copy turned out not to be the state of one moment: nothing is published."""


def perform_job(
    store: CheckpointStore,
    job: SaveJob,
    memory: memoryview,
    inline: bytes,
    good: Callable[[], bool] = lambda: True,
) -> SaveResult:
    """Make, publish, then prune. If the disk is full, less valuable files are deleted first.

    Args:
        store: The target.
        job: The checkpoint to make.
        memory: Contains the `SaveJob.regions`.
        inline: Content of the file `SaveJob.inline`.
        good: Returns, when all is written, whether it may be published; it may wait for that.
    """
    notes: list[str] = []
    while True:
        try:
            made = _make_checkpoint(store, job, memory, inline, good)
            durable = time.monotonic() - job.begun
            if job.kind == "step":
                store.published(made.path, *job.required_space(len(inline)))
            return SaveResult(made.path, made.size, made.manifest, None, tuple(notes), durable)
        except OSError as error:
            if error.errno in FULL:
                note = free_room(store, job.step, job.give_up)
            else:
                note = None
            if note is None:
                text = (
                    type(error).__name__,
                    error.errno,
                    str(error.strerror),
                    _file_name_of(error),
                )
                return SaveResult(error=text, notes=tuple(notes))
            notes.append(note)
        except Exception as error:
            return SaveResult(
                error=(type(error).__name__, None, str(error), None), notes=tuple(notes)
            )


def free_room(store: CheckpointStore, step: int, give_up: bool) -> str | None:
    """Delete something less valuable than the checkpoint of `step`; return the message, or None.

    Args:
        store: The checkpoints.
        step: The checkpoint that has no room.
        give_up: Whether older checkpoints may be deleted for this one alone.
    """
    # In this order: first worthless files, then those that the policy keeps beyond the newest.
    given_up = store.make_room(valuable=False)
    if given_up is None:
        note = store.keep_only_newest()
    else:
        note = None
    if given_up is None and note is None and give_up:
        given_up = store.make_room(valuable=True)
    return note or (None if given_up is None else f"no room for step {step}: gave up {given_up}")


def _make_checkpoint(
    store: CheckpointStore,
    job: SaveJob,
    memory: memoryview,
    inline: bytes,
    good: Callable[[], bool],
) -> Checkpoint:
    draft = CheckpointDraft.create(store, job.kind, job.step, *job.required_space(len(inline)))
    try:
        hashing = _HashingThread(job, memory, inline)
        # In parallel to the write; the memory cannot change until the job is done.
        hashing.start()
        try:
            for name, offset, size in job.regions:
                write_region(os.path.join(draft.path, name), memory[offset:], size)
            write_file(os.path.join(draft.path, job.inline), inline)
        finally:
            hashing.join()
        draft.seal(hashing.result(), job.about)
        # Last: the verdict may come only in the next backward pass, while this thread writes.
        if not good():
            raise SnapshotSpoilt("not the state of one moment")
        made = draft.publish()
    except BaseException:
        draft.delete_draft()
        raise
    if job.kind == "best":
        body = (json.dumps(job.about["best"]) + "\n").encode()
        # After the rename of ``best``: a crash in between leaves the older figure, never a false
        # one.
        replace_file(os.path.join(store.out, "best.json"), body)
    return made


class _HashingThread(threading.Thread):
    """Computes the facts of the files while they are being written.

    Only ``best`` leaves the machine, so it alone gets the SHA-256 for comparing copies: for each
    step it would be the most expensive part of a save.
    """

    def __init__(self, job: SaveJob, memory: memoryview, inline: bytes) -> None:
        super().__init__(name="rgt-hash", daemon=True)
        self._views = {name: memory[offset : offset + size] for name, offset, size in job.regions}
        self._views[job.inline] = memoryview(inline)
        self._sha256 = job.kind == "best"
        self._facts: dict[str, dict[str, Any]] = {}
        self._error: BaseException | None = None

    def run(self) -> None:
        """Compute the facts; keep an error for `result`."""
        try:
            for name, view in self._views.items():
                self._facts[name] = manifest.file_facts(view, sha256=self._sha256)
        except BaseException as error:
            self._error = error

    def result(self) -> dict[str, dict[str, Any]]:
        """Return the facts of each file, after `join`.

        Raises:
            BaseException: The error that stopped the computation.
        """
        if self._error is not None:
            raise self._error
        return self._facts


def _file_name_of(error: OSError) -> str | None:
    if error.filename is None:
        return None
    return os.fsdecode(error.filename)
