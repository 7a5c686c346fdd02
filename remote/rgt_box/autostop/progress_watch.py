"""Live runs without progress: which files they write, and since when nothing on the box advanced.

Only used if the person armed the box with ``no_progress_s``. A run whose files cannot be read never
counts as one without progress.
"""

from __future__ import annotations

import os
import re
import stat
import time
import zlib

from rgt_wire import duration_text

from rgt_box import background, files, procstat
from rgt_box.autostop import idle_clock
from rgt_box.queue import queue_command, queue_file, queue_state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Mapping

    from rgt_wire import JsonObject

    from rgt_box.autostop.idle_clock import ClockReading, IdleVerdict

    Process = tuple[int, int]

_TIME_OF_DAY = re.compile(r"(\d{4}[-/]\d\d[-/]\d\d[T ]?)?\d\d:\d\d:\d\d([.,]\d+)?Z?")
_STEP = re.compile(
    r"\b(?:global_?step|step|iter(?:ation)?)\b[\"']?\s*[:=\[ ]\s*(\d+)", re.IGNORECASE
)


class FileProgress:
    """The state of one file that a run writes.

    Args:
        size: Bytes.
        changed: Modification time in nanoseconds.
        lines: Checksums of its newest lines without their times, or None if any change counts.
        last: Its last line.
    """

    def __init__(
        self, size: int, changed: int, lines: list[int] | None = None, last: str = ""
    ) -> None:
        self.size = size
        self.changed = changed
        self.lines = lines
        self.last = last

    def apply_change(self, path: str, seen: os.stat_result) -> bool:
        """Apply a newer state; return whether the file advanced: a repeated log line does not."""
        # Bytes to read of a log; a log that grew by more than that has advanced.
        most = 65536
        # Lines to remember: those that a loop of retries repeats.
        remembered = 500
        before = self.size
        same = (before, self.changed) == (seen.st_size, seen.st_mtime_ns)
        self.size = seen.st_size
        self.changed = seen.st_mtime_ns
        if same:
            return False
        if self.lines is None:
            return True
        start = 0
        if 0 <= before <= seen.st_size:
            start = before
        start = max(start, seen.st_size - most)
        with open(path, "rb") as file:
            file.seek(start)
            text = file.read(most).decode("utf-8", "replace")
        found = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
        marks = [zlib.crc32(_TIME_OF_DAY.sub("", line).encode()) for line in found]
        known = set(self.lines)
        self.lines = [*self.lines, *(mark for mark in marks if mark not in known)][-remembered:]
        if found:
            self.last = found[-1][:200]
        repeats = 0 <= before <= seen.st_size and start == before
        return not (repeats and marks and known.issuperset(marks))


class ProgressWatch:
    """Finds live runs that have made no progress for long enough.

    Args:
        every: Seconds between two readings, normally.
        limit_s: Seconds without any progress on the box after which a live run counts as idle.
        wait: Seconds to wait for the disks of the runs' files.
        saved: `dump_state` of the recorder's watch, for the process that carries out the stop.
    """

    def __init__(
        self, every: float, limit_s: float, wait: float, saved: Mapping[str, Any] | None = None
    ) -> None:
        self._limit_s = limit_s
        self._wait = wait
        self._clock = idle_clock.IdleClock(every)
        self._files: dict[str, FileProgress] = {}
        self._runs: set[Process] = set()
        self._rows: list[JsonObject] = []
        self._advanced: list[str] = []
        # Seconds after which the files of a hung disk count as unknown.
        hangs_after = 15.0
        self._reader = background.Background(self._read_files, 0.0, max(wait, hangs_after))
        self.evidence: tuple[str, ...] = ()
        """The facts about each run without progress; empty while there is progress."""
        if saved:
            self._clock.idle_since = saved["idle_since"]
            self._runs = {(pid, ticks) for pid, ticks in saved["runs"]}
            self._files = {path: FileProgress(*row) for path, row in saved["files"].items()}

    def dump_state(self) -> JsonObject:
        """Return the state as JSON."""
        return {
            "idle_since": self._clock.idle_since,
            "runs": sorted(self._runs),
            "files": {
                path: [file.size, file.changed, file.lines, file.last]
                for path, file in list(self._files.items())
            },
        }

    def restart_count(self, at: ClockReading, verdict: IdleVerdict) -> None:
        """Start counting again because of work that was seen between two readings."""
        self._clock.feed(at, verdict)

    def judge_reading(
        self,
        at: ClockReading,
        sample: Mapping[str, Any],
        signs: Mapping[str, Any],
        accepted: Collection[Process],
    ) -> IdleVerdict:
        """Return the verdict of a reading; live runs without progress do not count as work."""
        processes = signs.get("processes") or []
        rows = [row for row in processes if row.get("run") or row.get("vram")]
        rows = [row for row in rows if not row.get("notebook")]
        rows += signs.get("runners") or []
        read, error = self._read_rows(rows)
        active = [*signs.get("active", ()), *self._advanced]
        self._advanced = []
        unknown = [*signs.get("unknown", ())]
        if error is not None:
            unknown.append(f"the progress of the runs cannot be read: {error}")
        signs = dict(signs, active=active, unknown=unknown)
        quiet = idle_clock.judge_reading(sample, dict(signs, no_progress=set(read)), accepted)
        self._clock.feed(at, quiet._replace(holders=()))
        idle_s = self._clock.idle_s(at)
        self.evidence = ()
        if not read or idle_s is None or idle_s < self._limit_s:
            return idle_clock.judge_reading(sample, signs, accepted)
        loads = [float(card["util"] or 0) for card in sample.get("gpus") or []]
        busiest = max(loads, default=None)
        self.evidence = tuple(
            _describe_run(row, read[row["pid"], row["ticks"]], idle_s, busiest)
            for row in rows
            if (row["pid"], row["ticks"]) in read
        )
        return quiet

    def _read_rows(
        self, rows: list[JsonObject]
    ) -> tuple[dict[Process, list[FileProgress]], str | None]:
        self._rows = rows
        read, error = self._reader.poll(self._wait)
        if self._reader.is_busy or read is None:
            return {}, error or "no answer yet"
        wanted = {(row["pid"], row["ticks"]) for row in rows}
        return {key: logs for key, logs in read.items() if key in wanted}, error

    def _read_files(self) -> dict[Process, list[FileProgress]]:
        """Return the logs of each run whose output goes to a file; runs in a thread."""
        found: dict[Process, list[FileProgress]] = {}
        for row in list(self._rows):
            key = row["pid"], row["ticks"]
            if key not in self._runs:
                self._runs.add(key)
                self._advanced.append(f"{row['name']}, pid {row['pid']}, is new")
            if "logs" in row:
                written = dict.fromkeys(row["logs"], True)
            else:
                written = _written_files(row["pid"])
            for path, log in written.items():
                if self._check_file(path, log):
                    self._advanced.append(f"{row['name']}, pid {row['pid']}, wrote to {path}")
                # Another open file, such as a lock, may stay the same while a run makes progress.
                if log and path in self._files:
                    found.setdefault(key, []).append(self._files[path])
        return found

    def _check_file(self, path: str, log: bool) -> bool:
        """Return whether a file advanced; a file that is seen for the first time has."""
        try:
            seen = os.stat(path)
            known = self._files.get(path)
            if known is not None:
                return known.apply_change(path, seen)
            known = FileProgress(0, 0, [] if log else None)
            known.apply_change(path, seen)
        except OSError:
            self._files.pop(path, None)
            return False
        self._files[path] = known
        return True


def _written_files(pid: int) -> dict[str, bool]:
    """Return the regular files that a process writes, and whether each is its output or errors."""
    found: dict[str, bool] = {}
    try:
        numbers = os.listdir("/proc/%d/fd" % pid)
    except OSError:
        return found
    for number in numbers[:256]:
        try:
            path = os.readlink("/proc/%d/fd/%s" % (pid, number))
            is_file = path.startswith("/") and stat.S_ISREG(os.stat(path).st_mode)
        except (OSError, ValueError):
            continue
        flags = procstat.read_open_flags(pid, number) or 0
        if is_file and flags & os.O_ACCMODE != os.O_RDONLY:
            found[path] = found.get(path, False) or number in ("1", "2")
    return found


def _describe_run(
    row: Mapping[str, Any], logs: list[FileProgress], idle_s: float, busiest: float | None
) -> str:
    words = f"{row['name']}, pid {row['pid']}, lives without progress for {duration_text(idle_s)}"
    newest = max(logs, key=lambda log: log.changed)
    facts = []
    steps = [int(step) for log in logs for step in _STEP.findall(log.last)]
    if steps:
        facts.append("step %d" % max(steps))
    if busiest is not None:
        facts.append("GPU %.0f%%" % busiest)
    if row.get("cpu_pct") is not None:
        facts.append("CPU %.1f%%" % row["cpu_pct"])
    age = max(0.0, time.time() - newest.changed / 1e9)
    facts.append(f"last write {duration_text(age)} ago")
    return f"{words}: {', '.join(facts)}"


def list_runners(jobs: Collection[str]) -> list[JsonObject]:
    """Return the live runners of queues: name, pid, ticks, text and the logs of running cells."""
    found = []
    for folder in jobs:
        job = queue_file.Job(folder)
        if not queue_state.is_runner_alive(job):
            continue
        holder = files.lock_holder(job.path("runner.lock"))
        if not isinstance(holder.get("pid"), int) or not isinstance(holder.get("ticks"), int):
            holder = {"pid": 0, "ticks": 0}
        cells = queue_state.load_state(job)["cells"]
        logs = [
            str(cell["log"]) for cell in cells if cell.get("state") == "running" and cell.get("log")
        ]
        found.append(
            {
                "pid": holder["pid"],
                "ticks": holder["ticks"],
                "name": f"the runner of {job.folder}",
                "text": queue_command.busy_text(job),
                "logs": logs,
            }
        )
    return found
