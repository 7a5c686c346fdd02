"""Makes one checkpoint: the commit protocol, and the files of a state held in memory.

New directory → files, each fsynced → manifest with their checksums, fsynced → fsync of the directory → rename →
fsync of the parent → pointer → only then anything older goes. Killed anywhere, what was published before is untouched.

Standard library only: the writer process never imports torch.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from rgt_train.checkpoint import manifest
from rgt_train.checkpoint.diskio import (
    Unreadable,
    fsync_dir,
    remove,
    replace_file,
    write_file,
    write_region,
)
from rgt_train.checkpoint.store import POINTER, Checkpoint, Store, describe, read_space, reserve


class Draft:
    """A checkpoint that is being made.

    Attributes:
        path: The temporary directory; whoever writes a file there fsyncs it.

    Args:
        store: Where it will be published.
        kind: ``step`` or ``best``.
        step: Optimizer steps done.
        path: The directory of `create`.
    """

    def __init__(self, store: Store, kind: str, step: int, path: str) -> None:
        self._store, self._kind, self._step, self.path = store, kind, step, path
        self._facts: Optional[Mapping[str, Any]] = None

    @classmethod
    def create(
        cls, store: Store, kind: str, step: int, need_bytes: int, need_inodes: int
    ) -> "Draft":
        """Look whether there is room, and make the temporary directory.

        Raises:
            OSError: There is no room, or no directory can be made; nothing is left behind.
        """
        path = store.temporary(kind, step)
        if not (store.rooted and os.path.isdir(store.root)):
            os.makedirs(store.root, exist_ok=True)
            fsync_dir(
                store.out
            )  # also where it is there: whoever made it may have been killed before this
            store.rooted = True
        store.sweep()
        # Looked at before the directory takes an inode of its own.
        short = read_space(store.root).short_of(need_bytes, need_inodes)
        os.mkdir(path)
        if short:
            try:
                reserve(path, need_bytes)
            except OSError:
                remove(path)
                raise
        return cls(store, kind, step, path)

    def seal(self, files: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]) -> None:
        """Write the manifest and make the directory durable.

        Args:
            files: Name → what `rgt_train.checkpoint.manifest.facts` says of it.
            about: Further facts for the manifest.

        Raises:
            OSError: The draft can only be dropped.
        """
        data = manifest.encode(self._step, files, about)
        write_file(os.path.join(self.path, manifest.NAME), data)
        fsync_dir(self.path)
        try:
            self._facts = manifest.read(self.path, pauses=())
        except Unreadable as refused:
            raise refused.error from refused
        except (
            manifest.Damaged
        ) as damage:  # written a moment ago: the disk's failure, and told as one
            number = getattr(damage.__cause__, "errno", None) or errno.EIO
            place = os.path.join(self.path, manifest.NAME)
            raise OSError(number, os.strerror(number), place) from damage

    def publish(self) -> Checkpoint:
        """Give it its name, durably, and move the pointer to it.

        Raises:
            OSError: It was not published; what was there before is in its place.
        """
        assert self._facts is not None, "sealed before published"
        store = self._store
        if self._kind == "best":
            self._swap_best()
            return describe(store.best, self._facts)
        target = store.new_path(self._step)
        os.rename(self.path, target)
        try:
            fsync_dir(store.root)
        except OSError:
            os.rename(target, self.path)
            raise
        self._point_at(target)
        return describe(target, self._facts)

    def drop(self) -> None:
        """Forget it."""
        remove(self.path)

    def _swap_best(self) -> None:
        """``best`` has one name for ever: the old one steps aside for the instant between two renames."""
        store = self._store
        aside = store.aside(store.best)
        try:
            if os.path.isdir(store.best):
                remove(aside)
                os.rename(store.best, aside)
            os.rename(self.path, store.best)
            for parent in (store.root, store.out):
                fsync_dir(parent)
        except OSError:
            if not os.path.isdir(store.best) and os.path.isdir(aside):
                os.rename(aside, store.best)
            raise
        remove(aside)

    def _point_at(self, target: str) -> None:
        """Move ``latest``. It serves people and scripts, a launch does not need it: better none than a wrong one."""
        pointer = os.path.join(self._store.root, POINTER)
        try:
            replace_file(pointer, (os.path.basename(target) + "\n").encode())
        except OSError:
            remove(pointer)


FULL = (errno.ENOSPC, errno.EDQUOT)
_OVERHEAD = 64 * 1024


DIED = "WriterDied"
"""Name of the failure of a save during which the writer process ended; the next save starts another one."""
MISHAPS = (DIED, "MemoryError")


class Mishap(RuntimeError):
    """A failure that is neither the disk's nor a mistake in the code or the state: the next try may succeed."""


@dataclass(frozen=True)
class Job:
    """One checkpoint to make.

    Attributes:
        kind: ``step`` or ``best``.
        step: Optimizer steps done.
        about: Facts for the manifest.
        regions: (file name, offset in the memory, length) of each file that is copied from the memory.
        inline: Name of the file whose content comes with the job, last of all.
        begun: When the save was asked for, seconds of the monotonic clock (which processes of one machine share).
        give_up: Whether older checkpoints may be given up where there is no room; what is worthless always goes.
    """

    kind: str
    step: int
    about: Mapping[str, Any]
    regions: List[Tuple[str, int, int]] = field(default_factory=list)
    inline: str = "state.json"
    begun: float = 0.0
    give_up: bool = False

    def as_plain(self) -> Dict[str, Any]:
        """Return it as JSON takes it."""
        return asdict(self)

    def needs(self, inline_bytes: int) -> Tuple[int, int]:
        """Return the bytes and inodes it takes: files, manifest, directory, pointer."""
        return sum(size for _, _, size in self.regions) + inline_bytes + _OVERHEAD, len(
            self.regions
        ) + 4


@dataclass(frozen=True)
class Done:
    """How a job ended.

    Attributes:
        path: Where it was published; None where it failed.
        size: Its bytes.
        facts: Its manifest.
        error: (class, errno, text, file name) of the failure.
        notes: Lines for a person.
        durable_s: Seconds from `Job.begun` until the last fsync.
    """

    path: Optional[str] = None
    size: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: Optional[Tuple[str, Optional[int], str, Optional[str]]] = None
    notes: Tuple[str, ...] = ()
    durable_s: float = 0.0

    def checkpoint(self) -> Optional[Checkpoint]:
        """Return what was published."""
        if self.path is None:
            return None
        return Checkpoint(self.path, int(self.facts["step"]), self.size, self.facts)

    def failure(self) -> Optional[BaseException]:
        """Return the failure as an exception."""
        if self.error is None:
            return None
        kind, number, text, name = self.error
        if number is None:
            return (Mishap if kind in MISHAPS else RuntimeError)(f"{kind}: {text}")
        if name:
            return OSError(number, text, name)
        return OSError(number, text)


class Spoilt(RuntimeError):
    """What was copied turned out not to be the state of one moment: nothing is published."""


def perform(
    store: Store,
    job: Job,
    memory: memoryview,
    inline: bytes,
    good: Callable[[], bool] = lambda: True,
) -> Done:
    """Make, publish, then prune. Where the disk is full, what is worth less goes first.

    Args:
        store: Where to.
        job: What.
        memory: What `Job.regions` refer to.
        inline: Content of the file `Job.inline`.
        good: Says, when all is written, whether it may be published; it may wait for that.
    """
    notes: List[str] = []
    while True:
        try:
            made = _make(store, job, memory, inline, good)
            durable = time.monotonic() - job.begun
            if job.kind == "step":
                store.published(made.path, *job.needs(len(inline)))
            return Done(made.path, made.size, made.manifest, None, tuple(notes), durable)
        except OSError as error:
            note = room_made(store, job.step, job.give_up) if error.errno in FULL else None
            if note is None:
                text = (type(error).__name__, error.errno, str(error.strerror), _name_of(error))
                return Done(error=text, notes=tuple(notes))
            notes.append(note)
        except Exception as error:
            return Done(error=(type(error).__name__, None, str(error), None), notes=tuple(notes))


def room_made(store: Store, step: int, give_up: bool) -> Optional[str]:
    """Let something go that is worth less than the checkpoint of `step`; return what to say, None where nothing may.

    Args:
        store: Where it is.
        step: The checkpoint that has no room.
        give_up: Whether older checkpoints may go for this one alone.
    """
    given_up = store.make_room(valuable=False)
    note = store.narrow() if given_up is None else None
    if given_up is None and note is None and give_up:
        given_up = store.make_room(valuable=True)
    return note or (None if given_up is None else f"no room for step {step}: gave up {given_up}")


def _make(
    store: Store, job: Job, memory: memoryview, inline: bytes, good: Callable[[], bool]
) -> Checkpoint:
    draft = Draft.create(store, job.kind, job.step, *job.needs(len(inline)))
    try:
        hashing = _Hashing(job, memory, inline)
        hashing.start()
        try:
            for name, offset, size in job.regions:
                write_region(os.path.join(draft.path, name), memory[offset:], size)
            write_file(os.path.join(draft.path, job.inline), inline)
        finally:
            hashing.join()
        draft.seal(hashing.result(), job.about)
        if not good():
            raise Spoilt("not the state of one moment")
        made = draft.publish()
    except BaseException:
        draft.drop()
        raise
    if job.kind == "best":
        body = (json.dumps(job.about["best"]) + "\n").encode()
        replace_file(os.path.join(store.out, "best.json"), body)
    return made


class _Hashing(threading.Thread):
    """Works out the facts of the files while they are being written.

    ``best`` is what leaves the machine, so it alone gets the SHA-256 that copies are compared by: for each step it
    would be the dearest part of a save.
    """

    def __init__(self, job: Job, memory: memoryview, inline: bytes) -> None:
        super().__init__(name="rgt-hash", daemon=True)
        self._views = {name: memory[offset : offset + size] for name, offset, size in job.regions}
        self._views[job.inline] = memoryview(inline)
        self._sha256 = job.kind == "best"
        self._facts: Dict[str, Dict[str, Any]] = {}
        self._error: Optional[BaseException] = None

    def run(self) -> None:
        """Work; an error is kept for `result`."""
        try:
            for name, view in self._views.items():
                self._facts[name] = manifest.facts(view, sha256=self._sha256)
        except BaseException as error:
            self._error = error

    def result(self) -> Dict[str, Dict[str, Any]]:
        """Return the facts of each file, after `join`.

        Raises:
            BaseException: What kept it from being done.
        """
        if self._error is not None:
            raise self._error
        return self._facts


def _name_of(error: OSError) -> Optional[str]:
    if error.filename is None:
        return None
    return os.fsdecode(error.filename)
