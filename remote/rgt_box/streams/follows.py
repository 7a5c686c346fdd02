"""All files that one watch follows: jobs, logs, scalars, checkpoints."""

from __future__ import annotations

import glob
import os
import threading
import time
from functools import partial

from rgt_box import files
from rgt_box.background import error_text
from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.secret_store import SecretMasker
from rgt_box.streams.job_files import CheckpointWatch, JobWatch
from rgt_box.streams.log_follower import LogFollower

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_wire import JsonObject

    from rgt_box.streams.curve_followers import FoundScalars, ScalarFollower
    from rgt_box.streams.trainings import Trainings

HUNG_AFTER = 10.0
"""Seconds that file access may block the thread before the client is notified."""


class Collector:
    """Runs one collecting function in a thread, one round at a time, on request.

    Args:
        collect: Returns (frames, whether more is waiting); called in the thread.
        at: Returns the file or run being read, "" for nothing in particular.
    """

    def __init__(
        self, collect: Callable[[], tuple[list[JsonObject], bool]], at: Callable[[], str] = str
    ) -> None:
        self._collect = collect
        self._at = at
        self._orders: list[Callable[[], None]] = []
        self._wanted = threading.Event()
        self._done = threading.Event()
        self._frames: list[JsonObject] = []
        self._more = False
        self._asked: float | None = None
        self._told = False
        self._failure = ""
        thread = threading.Thread(target=self._run_rounds, daemon=True)
        thread.start()
        assert thread.ident is not None
        self._processor = time.pthread_getcpuclockid(thread.ident)
        self._computed = 0.0
        self._moved = 0.0

    def run_before_next(self, action: Callable[[], None]) -> None:
        """Run `action` in the thread before its next round."""
        self._orders.append(action)

    def take_results(self, wait: float) -> tuple[list[JsonObject], bool]:
        """Start a round, unless one is in progress, and return the finished results.

        Args:
            wait: Seconds to wait for the round; later results come with the next call.

        Returns:
            Frames, and whether more is available or expected soon. Once per hang an event reports
            that the files do not answer.
        """
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
            self._done.clear()
            self._wanted.set()
        # A hanging disk blocks only the other thread; the channel keeps sending samples.
        if not self._done.wait(wait):
            still = now - max(self._asked, self._last_move(now))
            if not self._told and still > HUNG_AFTER:
                self._told = True
                what = self._at() or "the file system"
                text = "%s has not answered for %d s; logs and curves wait" % (what, still)
                return [{"t": "event", "kind": "files-hang", "level": "warn", "text": text}], False
            return [], still < HUNG_AFTER
        self._asked = None
        self._told = False
        frames = self._frames
        self._frames = []
        return frames, self._more

    def _last_move(self, now: float) -> float:
        """Return when the thread last used CPU time: a long computation is not a hang."""
        computed = time.clock_gettime(self._processor)
        if computed != self._computed:
            self._computed = computed
            self._moved = now
        return self._moved

    def _run_rounds(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                # Orders run in this thread, because followers are not made for two.
                while self._orders:
                    self._orders.pop(0)()
                self._frames, self._more = self._collect()
            except Exception as error:  # a bug in one follower must not end the channel
                text = error_text(error)
                self._more = False
                event = {"t": "event", "kind": "follow-failed", "level": "error", "text": text}
                self._frames = [event] if text != self._failure else []  # reported once
                self._failure = text
            self._done.set()


SILENT = 120.0
"""Seconds by which a checkpoint must be newer than the last log line; a shorter gap is normal
between logging and saving.
"""


class FrozenLogs:
    """Reports once per silence that the log is not updated although the run continues."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def check_log(self, name: str, log: str, saved: float) -> list[JsonObject]:
        """Return an event (without ``boot`` and ``seq``) if the log is newly frozen.

        Args:
            name: The run.
            log: Its log.
            saved: When its newest checkpoint was written, by the same clock as the log's mtime.
        """
        try:
            wrote = os.stat(log).st_mtime
        except OSError:
            return []
        # Keyed by the time of the last line: a new silence is reported again.
        if saved - wrote < SILENT or self._told.get(log) == wrote:
            return []
        self._told[log] = wrote
        text = (
            "%s: nothing in its log for %d s before its newest checkpoint; the run continues, its "
            "output is buffered (set PYTHONUNBUFFERED=1 in the job's env)" % (name, saved - wrote)
        )
        return [{"t": "event", "kind": "log-frozen", "level": "warn", "text": text}]


SLOW = 1.0
"""Seconds between two checks of queues, checkpoints and globs; logs and scalars are checked on
every tick.
"""

MOST_LOGS = 256


class FollowedFiles:
    """Owns the followers and polls them in turn.

    Args:
        config: A checked watch configuration.
    """

    def __init__(self, config: JsonObject) -> None:
        self._config = config
        self._log_cursors: dict[str, tuple[int, int]] = dict(config["log_cursors"])
        self._scalar_cursors: dict[str, tuple[int, int]] = dict(config["scalar_cursors"])
        self._wanted = list(config["logs"])
        self._unwanted: set[str] = set()
        self._jobs = [JobWatch(job) for job in config["jobs"]]
        self._logs: dict[str, LogFollower] = {}
        self._masker = SecretMasker()
        self._scalars: dict[str, ScalarFollower] = {}
        self._found: dict[str, FoundScalars] = {}
        self._checkpoints: dict[str, CheckpointWatch] = {}
        self._frozen = FrozenLogs()
        self._trainings: Trainings | None = None
        self._found_logs: set[str] = set()
        self._looked = float("-inf")
        self._failures: dict[str, str] = {}
        self.at = ""
        """The job, file or run that is being polled, or was last."""
        self._first: bool | None = None
        """Whether the end of the first complete check is awaited; None if not requested."""

    def announce_first_check(self) -> None:
        """Send one frame ``looked`` at the end of the first complete check of all followers."""
        if self._first is None:
            self._first = True
            self._looked = float("-inf")

    def follow_path(self, path: str) -> None:
        """Follow one more file or glob."""
        self._unwanted.discard(path)
        if path not in self._wanted:
            self._wanted.append(path)
        self._looked = float("-inf")

    def apply_found(self, report: JsonObject) -> None:
        """Apply the recorder's report of discovered trainings; see `rgt_box.discovery`."""
        if self._trainings is None:
            if not report.get("runs"):
                return
            from rgt_box.streams.trainings import (
                Trainings,
            )  # here: most boxes with jobs do not need it

            self._trainings = Trainings(self._scalar_cursors)
        self._trainings.apply_report(report)
        self._looked = float("-inf")

    def unfollow_path(self, path: str) -> None:
        """Stop following a file, even if a job would follow it."""
        self._wanted = [wanted for wanted in self._wanted if wanted != path]
        # A copy, because entries are removed.
        for name in [name for name in self._logs if name == path or name in expand_glob(path)]:
            self._logs.pop(name).close()
        self._unwanted.add(path)

    def _poll_guarded(
        self, what: str, poll: Callable[[], Any], nothing: Any, frames: list[JsonObject]
    ) -> Any:
        """Poll one follower.

        A failure does not affect the others, and is reported once until it changes.

        Args:
            what: The file or run that it follows.
            poll: Polls it.
            nothing: Result to use if it fails.
            frames: Receives the event about a failure.
        """
        self.at = what
        try:
            found = poll()
        except Exception as error:
            text = error_text(error)
            if self._failures.get(what) != text:
                self._failures[what] = text
                event = {"t": "event", "kind": "follow-failed", "level": "error"}
                frames.append(dict(event, text=f"{what} cannot be followed: {text}"))
            return nothing
        # So that the same failure is reported again if it comes back.
        self._failures.pop(what, None)
        return found

    def poll_frames(self, budget: int) -> tuple[list[JsonObject], bool]:
        """Return new frames, and whether more is waiting already.

        Args:
            budget: Maximum number of log and scalar frames; queues and checkpoints are always
                included.

        Returns:
            Frames; events of runs lack ``boot`` and ``seq``.
        """
        frames: list[JsonObject] = []
        now = time.monotonic()
        look = now - self._looked >= SLOW
        if look:
            self._looked = now
            frames += self._poll_slow_sources()
        # Half for curves, the rest for logs: neither starves the other.
        news = self._poll_curves(budget // 2, look)
        more = bool(news)
        lines: dict[str, JsonObject] = {}
        for path, log in self._logs.items():
            if len(news) + len(lines) >= budget:
                more = True
                break
            frame = self._poll_guarded(path, log.poll_frame, None, frames)
            if frame:
                lines[path] = frame
                more = more or log.has_more(frame)
        # Followers that sent something move to the end, so that a chatty log does not starve the
        # others.
        for path in lines:
            self._logs[path] = self._logs.pop(path)
        if self._first and not news and not lines and self._is_looked_at():
            self._first = False
            frames.append({"t": "looked"})
        # Only lines that leave the box are masked, so a log is never searched for nothing.
        if lines and self._masker.reread_secrets():
            for frame in lines.values():
                frame["lines"] = [self._masker.mask_line(line) for line in frame["lines"]]
                if "partial" in frame:
                    frame["partial"] = self._masker.mask_line(frame["partial"])
        return [*frames, *news, *lines.values()], more or bool(lines and self._first)

    def _poll_curves(self, budget: int, look: bool) -> list[JsonObject]:
        """Return frames of the metrics of named runs; runs that sent something move to the end.

        Args:
            budget: Maximum number of frames: the first read of a sweep may find gigabytes.
            look: Also poll those that have been quiet for a while.
        """
        frames: list[JsonObject] = []
        for source, run in list(self._scalars.items()):
            if len(frames) >= budget:
                break
            if run.is_quiet and not look:
                continue
            frame, events = self._poll_guarded(source, run.poll, (None, []), frames)
            frames += [frame] if frame else []
            frames += [
                dict(event, t="event", text=f"{run.run}: {event['text']}") for event in events
            ]
            if frame:
                self._scalars[source] = self._scalars.pop(source)
        for out, found in list(self._found.items()):
            if len(frames) >= 2 * budget:
                break
            more = self._poll_guarded(out, partial(found.poll, budget, look), [], frames)
            frames += more
            if more:
                self._found[out] = self._found.pop(out)
        return frames

    def _is_looked_at(self) -> bool:
        return (self._trainings is None or self._trainings.is_looked_at) and all(
            found.is_caught_up for found in self._found.values()
        )

    def _poll_slow_sources(self) -> list[JsonObject]:
        frames: list[JsonObject] = []
        told = [self._poll_guarded(job.given, job.poll_frame, None, frames) for job in self._jobs]
        for job in self._jobs:
            self.at = job.given
            for path in job.list_logs():
                self._add_log(path)
            for name, out in job.runs:
                self.at = out
                self._add_run(name, out, job.log_path(name), job)
        for wanted in self._config["runs"]:
            self.at = wanted
            for path in expand_glob(wanted):
                self._add_run(
                    os.path.basename(os.path.normpath(path)), os.path.normpath(path), None, None
                )
        for wanted in self._wanted:
            self.at = wanted
            for path in expand_glob(wanted):
                self._add_log(path)
        told += [
            self._poll_guarded(out, run.poll_frame, None, frames)
            for out, run in self._checkpoints.items()
        ]
        frames += [frame for frame in told if frame]
        if self._trainings is not None:
            frames += self._trainings.poll_frames(
                [*self._checkpoints], partial(self._poll_guarded, frames=frames)
            )
            for log in self._trainings.followed_logs():
                self._add_found_log(log.path, log.shown)
            for name in self._trainings.finished_log_names():
                self._stop_following_run(name)
        for job in self._jobs:
            for name, out in job.runs:
                if name in job.running:
                    self.at = job.log_path(name)
                    frames += self._frozen.check_log(
                        name, job.log_path(name), self._checkpoints[out].newest_time
                    )
        return frames

    def _add_run(self, name: str, out: str, console: str | None, job: JobWatch | None) -> None:
        """Follow a run's scalars and checkpoints: our own metrics, else those found."""
        source = os.path.join(out, "metrics.jsonl")
        if os.path.isfile(source):
            self._found.pop(out, None)
            if source not in self._scalars:
                from rgt_box.streams.curve_followers import (
                    ScalarFollower,  # here: the first frames need no readers
                )

                cursor = self._scalar_cursors.pop(source, None)
                self._scalars[source] = ScalarFollower(name, source, cursor)
        elif (
            source not in self._scalars and out not in self._found and _output_exists(out, console)
        ):
            # Here, because a box whose runs write our format does not need the other readers.
            from rgt_box.streams.curve_followers import FoundScalars

            self._found[out] = FoundScalars(name, out, console, self._scalar_cursors)
        if out not in self._checkpoints:
            if job is None:
                self._checkpoints[out] = CheckpointWatch(name, CheckpointSearch(out))
            else:
                self._checkpoints[out] = job.checkpoints(name, out)

    def _add_log(self, path: str) -> None:
        if path not in self._logs and path not in self._unwanted and len(self._logs) < MOST_LOGS:
            self._logs[path] = LogFollower(
                path, self._log_cursors.pop(path, None), self._config["tail"]
            )

    def _stop_following_run(self, name: str) -> None:
        log = self._logs.get(name)
        if log is None or name not in self._found_logs:
            return
        self._found_logs.discard(name)
        if log.cursor is not None:
            self._log_cursors[name] = log.cursor  # for a client that may still request it
        self._logs.pop(name).close()

    def _add_found_log(self, path: str, shown: str | None) -> None:
        name = shown or path
        old = self._logs.get(name)
        if old is not None and old.path != path:  # another training in the same pane
            self._logs.pop(name).close()
            self._log_cursors[name] = (0, 0)  # no file: earlier lines are another training's
        elif old is not None or name in self._unwanted or len(self._logs) >= MOST_LOGS:
            return
        inode = files.signature(path)
        if inode is not None and any(log.inode == inode[0] for log in self._logs.values()):
            return  # it was renamed by rotation, which its follower handles
        cursor = self._log_cursors.pop(name, None)
        self._logs[name] = LogFollower(path, cursor, self._config["tail"], shown)
        self._found_logs.add(name)


def _output_exists(out: str, console: str | None) -> bool:
    return os.path.isdir(out) or (console is not None and os.path.exists(console))


def expand_glob(pattern: str) -> list[str]:
    """Return the files of a glob; a plain path is returned even if it does not exist."""
    full = os.path.expanduser(pattern)
    if glob.has_magic(full):
        return sorted(glob.glob(full))[:MOST_LOGS]
    return [full]
