"""The trainer's side of the mirror: what is on the disk goes there too, in the background; at a start it comes back."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from rgt_train import manifest, space, wire
from rgt_train.durable import fsync_dir
from rgt_train.exits import UsageError
from rgt_train.helper import Helper
from rgt_train.manifest import Damaged
from rgt_train.mirror.opening import open_place
from rgt_train.mirror.place import Place, bests, fetch, steps
from rgt_train.report import Report
from rgt_train.retention import Item
from rgt_train.store import Checkpoint, Store, describe

RETRY_S = 30.0
"""Seconds between attempts while the mirror does not take anything."""
POLL_S = 0.02


@dataclass(frozen=True)
class _Errand:
    path: str
    name: str
    step: int


class Mirror:
    """Keeps a second copy of the newest checkpoint and of ``best``.

    One copy at a time; what comes meanwhile replaces what waits. A failure is told, never stops the training, and is
    tried again.

    Args:
        url: A path or an fsspec URL.
        store: What is mirrored.
        report: Where it is told.
        started: Called with the process id of the helper.
    """

    def __init__(self, url: str, store: Store, report: Report, started: Callable[[int], None]) -> None:
        self._url, self._store, self._report, self._started = url, store, report, started
        self._helper: Optional[Helper] = None
        self._waiting: Dict[str, _Errand] = {}
        self._current: Optional[Tuple[str, _Errand]] = None
        self._retry_at = 0.0
        self._failing = False

    def fetch_newer(self, local: Optional[int]) -> Optional[str]:
        """Bring the newest good checkpoint of the mirror here if it is newer than step `local`; return its path.

        ``best`` comes too where there is none here, or a damaged one.

        Raises:
            UsageError: The mirror cannot be used at all (a mistake in the URL, a missing library), or it does not
                answer and there is nothing here: starting anew might leave behind what it has.
        """
        try:
            place = open_place(self._url)
            names = place.names()
            if bests(names) and not self._best_is_whole():
                self._store.set_best_aside()
                self._bring(place, bests(names), self._store.best)
            newer = [item for item in steps(names) if local is None or item.step > local]
            return self._bring(place, newer, None)
        except OSError as error:
            if local is None:
                raise UsageError(
                    f"{self._store.out} has no checkpoint, and the mirror {self._url} does not answer: {error}. "
                    "Mend it, or launch without it to start from step 0"
                ) from error
            self._report.say(f"mirror {self._url} does not answer: {error}; going on with what is here")
            return None

    def forget(self, first: int) -> None:
        """Delete what a rollback gives up, from step `first` on: it must not come back from here.

        Raises:
            UsageError: It could not be deleted.
        """
        try:
            place = open_place(self._url)
            for item in steps(place.names()):
                if item.step >= first:
                    place.drop(item.name)
        except OSError as error:
            raise UsageError(
                f"the mirror {self._url} still has checkpoints that a rollback gives up: {error}"
            ) from error

    def offer(self, saved: Checkpoint) -> None:
        """Copy a checkpoint that is on the disk now, when its turn comes."""
        kind = "best" if saved.path == self._store.best else "step"
        attempt = int(saved.manifest.get("attempt", self._store.attempt))
        name = os.path.basename(saved.path) if kind == "step" else f"best-{saved.step:08d}-a{attempt}"
        self._waiting[kind] = _Errand(saved.path, name, saved.step)
        self.poll()

    def offer_all(self, loaded: Optional[Checkpoint]) -> None:
        """Copy what a dead incarnation may not have got to: the checkpoint it left, and ``best``."""
        if loaded is not None and loaded.path != self._store.best:
            self.offer(loaded)
        if os.path.isdir(self._store.best):
            self.offer(describe(self._store.best, manifest.read(self._store.best)))

    def poll(self) -> None:
        """Hear how the copy in flight went, and begin the next one."""
        if self._current is not None:
            self._hear()
        if self._current is None and self._waiting and time.monotonic() >= self._retry_at:
            kind = "best" if "best" in self._waiting else "step"  # a step may count on the best it knows of
            self._begin(kind, self._waiting.pop(kind))

    def finish(self, seconds: float, wait: Callable[[float], bool]) -> bool:
        """Wait up to `seconds` until everything is there; say what is not. Returns whether it is.

        Args:
            seconds: How long.
            wait: Sleeps for so many seconds; True ends the waiting.
        """
        deadline = time.monotonic() + seconds
        while self._current or self._waiting:
            self.poll()
            if time.monotonic() >= deadline or ((self._current or self._waiting) and wait(POLL_S)):
                break
        left = [*([self._current[1]] if self._current else []), *self._waiting.values()]
        for errand in left:
            self._report.say(f"not mirrored: {errand.name} is on the local disk only")
        return not left

    def close(self) -> None:
        """End the helper."""
        if self._helper is not None:
            self._helper.close(kill=True)
            self._helper = None

    def _begin(self, kind: str, errand: _Errand) -> None:
        try:
            if self._helper is None or self._helper.ended() is not None:
                bare = "://" not in self._url
                self._helper = Helper("rgt_train.mirror.worker", bare=bare)
                self._started(self._helper.pid)
            policy = self._store.policy
            request = {
                "url": self._url, "path": errand.path, "name": errand.name, "step": errand.step,
                "last": policy.last, "hours": policy.hours,
            }  # fmt: skip
            wire.send(self._helper.sock, request)
            self._current = (kind, errand)
        except OSError as error:
            self._failed(kind, errand, f"{type(error).__name__}: {error}")

    def _hear(self) -> None:
        assert self._helper is not None and self._current is not None, "a copy is in flight"
        try:
            message = self._helper.reader.read(block=False)
        except wire.Closed:
            self.close()
            answer: Dict[str, Any] = {"error": "the mirror process died"}
        else:
            if message is None:
                return
            answer = message[0]
        (kind, errand), self._current = self._current, None
        if "error" in answer:
            self._failed(kind, errand, str(answer["error"]))
        elif "gone" not in answer:
            self._failing = False
            size, seconds = int(answer["bytes"]), float(answer["seconds"])
            self._report.say(
                f"mirrored {errand.name} → {self._url}  {space.human(size)}  read back  {seconds:.1f} s"
            )
            self._report.event("mirrored", errand.step, name=errand.name, url=self._url, bytes=size)

    def _failed(self, kind: str, errand: _Errand, why: str) -> None:
        self._waiting.setdefault(kind, errand)
        self._retry_at = time.monotonic() + RETRY_S
        if not self._failing:
            self._report.say(f"mirror failed at {errand.name}: {why}; trying again every {RETRY_S:.0f} s")
            self._report.event("mirror-failed", errand.step, url=self._url, error=why)
        self._failing = True

    def _best_is_whole(self) -> bool:
        try:
            manifest.verify(self._store.best)
        except (Damaged, UsageError):
            return False
        return True

    def _bring(self, place: Place, items: List[Item], target: Optional[str]) -> Optional[str]:
        """Fetch the newest of `items` that is whole; return where it is now."""
        for item in reversed(items):
            temporary = self._store.temporary("step", item.step)
            try:
                if not os.path.isdir(self._store.root):
                    os.mkdir(self._store.root)
                fetch(place, item.name, temporary)
            except (Damaged, UsageError) as error:
                self._report.say(f"{place.url}/{item.name} is damaged, not used: {error}")
                continue
            path = target or self._store.path_of(item)
            os.rename(temporary, path)
            for parent in (self._store.root, self._store.out):
                fsync_dir(parent)
            size = sum(facts["size"] for facts in manifest.read(path)["files"].values())
            self._report.say(f"fetched {item.name} from the mirror {place.url}  {space.human(size)}")
            return path
        return None
