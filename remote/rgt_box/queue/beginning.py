"""How a newly launched queue begins: whether it is alive, its first line, whether it has logged a step."""

from __future__ import annotations

import os
import time

from rgt_box import files
from rgt_box.metrics import formats
from rgt_box.metrics.jsonl import RunMetrics
from rgt_box.queue import queue_state
from rgt_box.queue.queue_file import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

ALIVE, QUEUED, DONE, DIED, TROUBLE, STILL = "alive", "queued", "done", "died", "trouble", "not-started"
"""What `Beginning.watch` finds. Trouble: it lives, and its log ends in a traceback. Not started: no cell has had its
turn, and nobody is at work."""
WELL = (ALIVE, QUEUED, DONE)
LOOK_S, RARE_S = 0.1, 2.0
TAIL_LINES, TAIL_BYTES, LINE_CHARS = 60, 64 << 10, 1000
TRACEBACK = b"Traceback (most recent call last)"
POINTS = 2000


class Beginning:
    """Watches a job from its state at the time this was made.

    Args:
        job: The job.
        fresh: What happened before does not count; else the running cell, or the one that ran last, is looked at whole.
    """

    def __init__(self, job: Job, fresh: bool) -> None:
        self._job, self._fresh = job, fresh
        self._attempts: dict[str, int] = {}
        self._logs: dict[str, int] = {}
        self._sources: dict[str, list[list[Any]]] = {}
        """Cell → reader and cursor of each file that may tell its step, the best first."""
        for line in job.lines()[0] if fresh else ():
            self._logs[line.name] = files.size(job.log(line.name))
            self._sources[line.name] = self._readers(line.name, fresh)
        if fresh:
            cells = queue_state.by_name(queue_state.load_state(job))
            self._attempts = {name: int(cell.get("attempts") or 0) for name, cell in cells.items()}
        self._step: dict[str, float] = {}

    def _readers(self, name: str, fresh: bool) -> list[list[Any]]:
        path, log = os.path.join(self._job.out(name) or "", "metrics.jsonl"), self._job.log(name)
        found: list[list[Any]] = [[RunMetrics(path), None], [formats.open_reader("console", log), None]]
        for one, file in zip(found, (path, log)):  # noqa: B905 (3.10 has strict=)
            seen = files.signature(file) if fresh else None
            if seen is not None:
                one[1] = {"inode": seen[0], "offset": seen[1]}
        return found

    def watch(self, seconds: float, slurm: Callable[[], Any] | None = None) -> dict[str, Any]:
        """Look until it is known how it begins, or the time is up.

        Args:
            seconds: How long at most.
            slurm: Asks Slurm for (number, state) of the submission; None = Slurm has no part in it.

        Returns:
            ``verdict``, and what there is of ``cell``, ``state``, ``reason``, ``exit_code``, ``pid``, ``first``,
            ``step``, ``traceback``, ``tail``, ``log``, ``seconds``, ``slurm``.
        """
        began, asked_at, known, stood = time.monotonic(), float("-inf"), None, False
        while True:
            now = time.monotonic()
            if slurm is not None and now - asked_at >= RARE_S:
                asked_at, known = now, slurm()
            found = self._look(known)
            found["seconds"] = round(now - began, 1)
            # The state was read before it was looked whether the runner lives: it may have ended between the two.
            again = found["verdict"] == STILL and not stood
            stood = found["verdict"] == STILL
            if (found.pop("sure") and not again) or now - began >= seconds:
                return found
            time.sleep(LOOK_S)

    def _look(self, slurm: Any) -> dict[str, Any]:
        frame = queue_state.queue_frame(self._job, self._job.folder)
        cell = self._newest(frame["cells"])
        found: dict[str, Any] = {"slurm": list(slurm) if slurm else None, "pid": frame.get("runner_pid")}
        if cell is None:
            if slurm:
                return dict(found, verdict=QUEUED, sure=False)
            if frame.get("runner_alive"):
                return dict(found, verdict=ALIVE, sure=False)
            verdict = DONE if frame.get("done") else STILL
            reasons = [one["reason"] for one in frame["cells"] if one.get("reason")]
            return dict(
                found, verdict=verdict, reason=reasons[0] if reasons else frame.get("error"), sure=True
            )
        found.update(self._of(cell))
        state = cell.get("state")
        if state == "running":
            stuck = found["traceback"]
            return dict(
                found, verdict=TROUBLE if stuck else ALIVE, sure=found["step"] is not None and not stuck
            )
        if state == "done":
            return dict(found, verdict=DONE if queue_state.is_over(frame["cells"]) else ALIVE, sure=True)
        # Between two attempts of a cell the runner is alive, and tries again.
        again = bool(frame.get("runner_alive")) and int(cell.get("attempts") or 0) <= int(
            self._job.settings["retries"]
        )
        return dict(found, verdict=DIED, sure=not again)

    def _newest(self, cells: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the cell to tell of: one that failed since the launch, one that runs, one that failed, the last."""
        begun = [
            cell
            for cell in cells
            if int(cell.get("attempts") or 0) > self._attempts.get(str(cell["name"]), 0)
        ]
        failed = [cell for cell in begun if cell.get("state") == "failed"]
        at_work = [cell for cell in begun if cell.get("state") == "running"]
        told = (failed or at_work if self._fresh else at_work or failed) or begun
        return max(told, key=lambda cell: float(cell.get("started") or 0.0), default=None)

    def _of(self, cell: dict[str, Any]) -> dict[str, Any]:
        name, log = str(cell["name"]), str(cell["log"])
        tail, first = self._text(name, log)
        step = self._newest_step(name)
        lines = tail.decode("utf-8", "replace").splitlines()
        return {
            "cell": name, "state": cell.get("state"), "reason": cell.get("reason"), "log": log,
            "exit_code": cell.get("exit_code"), "attempts": cell.get("attempts"), "first": first, "step": step,
            "out": cell.get("out"), "traceback": TRACEBACK in tail and not _goes_on(tail),
            "tail": [line[:LINE_CHARS] for line in lines[-TAIL_LINES:]],
        }  # fmt: skip

    def _text(self, name: str, log: str) -> tuple[bytes, str | None]:
        """Return the end of what was logged meanwhile, and its first line."""
        since = self._logs.get(name, 0)
        try:
            with open(files.open_regular(log), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                since = since if since <= size else 0
                file.seek(since)
                head = file.read(4096)
                file.seek(max(since, size - TAIL_BYTES))
                tail = file.read(TAIL_BYTES)
        except OSError:
            return b"", None
        rows = [row for row in head.replace(b"\r", b"\n").split(b"\n") if row.strip()]
        return tail, rows[0].decode("utf-8", "replace")[:LINE_CHARS] if rows else None

    def _newest_step(self, name: str) -> float | None:
        """Return the newest step that was logged meanwhile: by the run's metrics, else by what it prints."""
        for source in self._sources.setdefault(name, self._readers(name, False)):
            batch = source[0].read(source[1], POINTS)
            source[1] = batch.cursor
            steps = [point.x for point in batch.points if point.x_kind in ("step", "epoch")]
            if steps:
                self._step[name] = steps[-1]
                break
        return self._step.get(name)


def _goes_on(tail: bytes) -> bool:
    """Tell whether what was printed last is not the traceback: a handled one is followed by other lines."""
    behind = tail[tail.rindex(TRACEBACK) + len(TRACEBACK) :].splitlines()
    # The frames are indented, the error itself is the one line that is not; a program that goes on prints more.
    return sum(bool(line.strip()) and not line.startswith((b" ", b"\t")) for line in behind) > MESSAGE_LINES


MESSAGE_LINES = 8
"""An error may have several lines, and be followed by another one's."""


def await_end(job: Job, seconds: float, slurm: Callable[[], Any] | None = None) -> dict[str, Any]:
    """Return the ``queue`` frame once no runner works on the job any more, or the time is up.

    Args:
        job: The job.
        seconds: How long at most.
        slurm: As for `Beginning.watch`; what waits in Slurm's queue is ``queued``, and no end.
    """
    until, asked_at, known = time.monotonic() + seconds, float("-inf"), None
    while True:
        frame = queue_state.queue_frame(job, job.folder)
        now = time.monotonic()
        if slurm is not None and now - asked_at >= RARE_S:
            asked_at, known = now, slurm()
        frame["queued"] = known is not None
        if not (frame.get("runner_alive") or known) or now >= until:
            return frame
        time.sleep(LOOK_S)
