"""The trainer's side of the mirror: copies checkpoints in the background, fetches at a start."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from rgt_wire import size_text

from rgt_train.checkpoint import manifest, writer
from rgt_train.checkpoint.store import Checkpoint, CheckpointStore, describe_checkpoint
from rgt_train.checkpoint.writer import HelperProcess
from rgt_train.exits import UsageError
from rgt_train.tracking.report import RunReport

ALIVE_S = 5.0
"""Seconds between two signs of life while a checkpoint is fetched from the mirror."""


@dataclass(frozen=True)
class _CopyTask:
    path: str
    name: str
    step: int
    more: Mapping[str, Any] = field(default_factory=dict)


class CheckpointMirror:
    """Keeps a second copy of the newest checkpoint and of ``best``.

    One copy runs at a time; a new checkpoint replaces the waiting one. A failure is reported, never
    stops the training, and is retried.

    Args:
        url: A path or an fsspec URL.
        store: The checkpoints to mirror.
        report: Receives messages.
        started: Called with the process id of the helper.
        on_wait: Called every few seconds of a long wait for the mirror.

    Attributes:
        logs: Names of the logs that `fetch_newer` has put into the run directory.
    """

    def __init__(
        self,
        url: str,
        store: CheckpointStore,
        report: RunReport,
        started: Callable[[int], None],
        on_wait: Callable[[], object] = lambda: None,
    ) -> None:
        self._url = url
        self._store = store
        self._report = report
        self._started = started
        self.on_wait = on_wait
        self.logs: list[str] = []
        self._helper: HelperProcess | None = None
        self._waiting: dict[str, _CopyTask] = {}
        self._current: tuple[str, _CopyTask] | None = None
        self._retry_at = 0.0
        self._failing = False
        self._launch = os.urandom(8).hex()
        """Name of this launch: one launch at a time holds the mirror."""
        self._held = False

    def fetch_newer(self, local: int | None) -> str | None:
        """Fetch the newest good checkpoint of the mirror if it is newer than step `local`.

        Return its path.

        ``best`` is fetched too if it is missing or damaged here.

        Raises:
            UsageError: The mirror cannot be used at all (a wrong URL, a missing library), belongs
                to another run, or does not answer while nothing is here: a fresh start might ignore
                its checkpoints.
        """
        answer = self._request_answer(
            {"do": "download", "attempt": self._store.attempt, "local": local}
        )
        if "error" not in answer:
            for line in answer["says"]:
                self._report.print_line(line)
            self.logs = list(answer["logs"])
            if self.logs:
                self._report.print_line(
                    f"fetched {' and '.join(self.logs)} from the mirror {self._url}"
                )
            path: str | None = answer["path"]
            return path
        if answer.get("usage"):
            raise UsageError(str(answer["error"]))
        if local is None:
            raise UsageError(
                f"{self._store.out} has no checkpoint, and the mirror {self._url} does not answer: "
                f"{answer['error']}. Mend it, or launch without it to start from step 0"
            )
        self._report.print_line(
            f"mirror {self._url} does not answer: {answer['error']}; going on with what is here"
        )
        return None

    def delete_from(self, first: int) -> None:
        """Delete the checkpoints that a rollback gives up, from step `first` on, for good.

        Raises:
            UsageError: It could not be deleted.
        """
        answer = self._request_answer({"do": "forget", "first": first})
        if "error" in answer:
            raise UsageError(
                f"the mirror {self._url} still has checkpoints that a rollback gives up: "
                f"{answer['error']}"
            )

    def queue_copy(self, saved: Checkpoint) -> None:
        """Queue the copy of a checkpoint that is on the disk."""
        if saved.path == self._store.best:
            kind = "best"
        else:
            kind = "step"
        attempt = int(saved.manifest.get("attempt", self._store.attempt))
        if kind == "step":
            name = os.path.basename(saved.path)
        else:
            name = f"best-{saved.step:08d}-a{attempt}"
        # One place per kind: a slow mirror skips checkpoints instead of queueing them.
        self._waiting[kind] = _CopyTask(saved.path, name, saved.step)
        self.poll_copy()

    def queue_files(
        self, step: int, name: str, files: Mapping[str, str], note: bytes, keep: Sequence[int]
    ) -> None:
        """Queue the copy of another trainer's checkpoint.

        Args:
            step: The step of the checkpoint.
            name: Its name in the mirror.
            files: Name in the manifest → path.
            note: Its manifest.
            keep: Steps that stay there besides the ones that the policy keeps.
        """
        more = {"files": dict(files), "manifest": note.decode(), "keep": list(keep)}
        waiting = self._waiting.get("step")
        if waiting is not None and waiting.step in keep:  # the best one is still waiting
            self._waiting["best"] = waiting
        self._waiting["step"] = _CopyTask("", name, step, more)
        self.poll_copy()

    def queue_all(self, loaded: Checkpoint | None) -> None:
        """Queue checkpoints that a dead attempt may not have copied: its last one, and ``best``."""
        if loaded is not None and loaded.path != self._store.best:
            self.queue_copy(loaded)
        best = self._store.best
        if os.path.isdir(best):
            try:
                self.queue_copy(describe_checkpoint(best, manifest.read_manifest(best)))
            except manifest.CheckpointDamaged as error:  # the training goes on without it
                self._report.print_line(f"not mirrored: {best} is damaged: {error}")

    def queue_logs(self, step: int) -> None:
        """Copy the logs again, with the last line of this launch, unless the mirror fails."""
        if not self._failing:
            self._waiting["logs"] = _CopyTask("", "the end of the logs", step)
            self.poll_copy()

    def poll_copy(self) -> None:
        """Read the result of the copy in flight, and begin the next one."""
        if self._current is not None:
            self._receive_answer()
        if self._current is None and self._waiting and time.monotonic() >= self._retry_at:
            # A step relies on the best one it references, and the logs come last.
            kind = next(kind for kind in ("best", "step", "logs") if kind in self._waiting)
            self._begin_copy(kind, self._waiting.pop(kind))

    def finish_copies(self, seconds: float, wait: Callable[[float], bool]) -> bool:
        """Wait up to `seconds` until all copies are there.

        Report the missing ones, return if none are.

        Args:
            seconds: How long.
            wait: Sleeps for the given seconds; True ends the waiting.
        """
        deadline = time.monotonic() + seconds
        told = False
        poll_s = 0.02
        while self._current or self._waiting:
            self.poll_copy()
            if self._failing and not told:
                told = True
                self._report_wait(max(0.0, deadline - time.monotonic()))
            if time.monotonic() >= deadline or ((self._current or self._waiting) and wait(poll_s)):
                break
        left = self._list_pending()
        for errand in left:
            self._report.print_line(f"not mirrored: {errand.name} is on the local disk only")
        return not left

    def _list_pending(self) -> list[_CopyTask]:
        if self._current:
            return [self._current[1], *self._waiting.values()]
        return list(self._waiting.values())

    def _report_wait(self, seconds: float) -> None:
        left = self._list_pending()
        names = ", ".join(errand.name for errand in left)
        step = max((errand.step for errand in left), default=0)
        self._report.print_line(
            f"waiting for the mirror, up to {seconds:.0f} s: {names} is on the local disk only"
        )
        self._report.append_event(
            "mirror-wait", step, url=self._url, left=names, limit_s=round(seconds, 1)
        )

    def close(self) -> None:
        """End the helper."""
        if self._helper is not None:
            self._helper.close(kill=True)
            self._helper = None

    def _send_request(self, fields: dict[str, Any]) -> HelperProcess:
        if self._helper is None or self._helper.exit_code() is not None:
            self._helper = HelperProcess(
                # A directory needs no library, so the helper starts without site-packages.
                "rgt_train.checkpoint.mirror_worker",
                bare="://" not in self._url,
            )
            self._started(self._helper.pid)
        who = {"out": self._store.out, "launch": self._launch, "held": self._held}
        writer.send_message(self._helper.sock, {"url": self._url, **who, **fields})
        return self._helper

    def _request_answer(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer; only while no copy is in flight."""
        try:
            helper = self._send_request(fields)
            while (message := helper.reader.read_message(block=False)) is None:
                if not select.select([helper.sock], [], [], ALIVE_S)[0]:
                    self.on_wait()
        except OSError as error:
            self.close()
            return {"error": f"the mirror process died: {error}"}
        self._held = bool(message[0]["held"])
        return message[0]

    def _begin_copy(self, kind: str, errand: _CopyTask) -> None:
        try:
            policy = self._store.policy
            paths = {"path": errand.path, "name": errand.name}
            do = "copy"
            if kind == "logs":
                do = "logs"
            self._send_request(
                {"do": do, **paths, "last": policy.last, "hours": policy.hours, **errand.more}
            )
            self._current = (kind, errand)
        except OSError as error:
            self._retry_later(kind, errand, f"{type(error).__name__}: {error}")

    def _receive_answer(self) -> None:
        assert self._helper is not None and self._current is not None, "a copy is in flight"
        try:
            message = self._helper.reader.read_message(block=False)
        except writer.ConnectionClosed:
            self.close()
            answer: dict[str, Any] = {"error": "the mirror process died"}
        else:
            if message is None:
                return
            answer = message[0]
            self._held = bool(answer["held"])
        (kind, errand), self._current = self._current, None
        if "error" in answer:
            self._retry_later(kind, errand, str(answer["error"]))
        # Gone: the retention deleted the checkpoint here before its turn came, which is no failure.
        elif "gone" not in answer:
            self._failing = False
            for line in answer["says"]:
                self._report.print_line(line)
            size = int(answer["bytes"])
            seconds = float(answer["seconds"])
            self._report.print_line(
                f"mirrored {errand.name} → {self._url}  {size_text(size)}  read back  "
                f"{seconds:.1f} s"
            )
            self._report.append_event(
                "mirrored", errand.step, name=errand.name, url=self._url, bytes=size
            )

    def _retry_later(self, kind: str, errand: _CopyTask, why: str) -> None:
        # Unless a newer one waits already: that replaces it.
        self._waiting.setdefault(kind, errand)
        # Seconds between attempts while the mirror accepts nothing.
        retry_s = 30.0
        self._retry_at = time.monotonic() + retry_s
        if not self._failing:
            self._report.print_line(
                f"mirror failed at {errand.name}: {why}; trying again every {retry_s:.0f} s"
            )
            self._report.append_event("mirror-failed", errand.step, url=self._url, error=why)
        self._failing = True
