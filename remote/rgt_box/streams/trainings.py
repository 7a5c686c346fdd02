"""Discovered trainings: reported to the client, and followed as long as they write anything.

A training that prints only to a tmux pane is followed by its screen as if that were a log. The pane
is captured every few seconds, so this is not complete: lines that leave tmux's history between two
captures are missed, and a line that a program rewrites is repeated. The lines are written to a file
in memory, so that log followers can read them.
"""

from __future__ import annotations

import os
import time

from rgt_box import files, jsonline
from rgt_box.background import Background
from rgt_box.checkpoint_search import CheckpointSearch
from rgt_box.discovery.found_run import FoundRun, load_run, query_tmux
from rgt_box.discovery.run_sources import SLACK, FileClaims, RunSources, checkpoint_search
from rgt_box.streams.curve_followers import FoundScalars, ScalarFollower
from rgt_box.streams.job_files import CheckpointWatch

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence

    from rgt_wire import JsonObject


PANE_PERIOD, PANE_TIMEOUT, PANE_FIRST = 5.0, 5.0, 0.5
"""Seconds between two captures, for an answer, and to wait for the first one, which a one-off query
needs.
"""
PANE_BYTES = 2 << 20
"""Maximum bytes in the file; then it starts again."""


def count_repeated(before: Sequence[str], now: Sequence[str]) -> int:
    """Return how many of the lines `now` repeat the end of `before`, as many as possible."""
    for count in range(min(len(before), len(now)), 0, -1):
        if list(before[-count:]) == list(now[:count]):
            return count
    return 0


class PaneLog:
    """Follows one tmux pane.

    Args:
        socket: tmux's socket.
        pane: Its id, ``%3``.

    Attributes:
        path: A file that the pane's lines are appended to; "" if the system has no files in memory.
        was_read: tmux has answered once, or failed to.
    """

    def __init__(self, socket: str | None, pane: str) -> None:
        # The first line is the time of the last output: the captured text may be hours old.
        words = ["display-message", "-p", "-t", pane, "#{window_activity}", ";"]
        # Lines of the pane's history that are captured.
        pane_lines = 2000
        words += ["capture-pane", "-p", "-J", "-t", pane, "-S", "-%d" % pane_lines]
        self._asking = Background(
            lambda: (time.monotonic(), query_tmux(socket, words, PANE_TIMEOUT)),
            PANE_PERIOD,
            PANE_TIMEOUT * 2,
        )
        self.was_read = False
        self._seen: list[str] = []
        self._taken = 0.0
        self._size = 0
        try:
            self._fd = os.memfd_create("rgt-pane", os.MFD_CLOEXEC)
            self.path = "/proc/self/fd/%d" % self._fd
        except (OSError, AttributeError):
            self._fd = -1
            self.path = ""

    def append_new_lines(self) -> None:
        """Append the new lines of the pane."""
        value, error = self._asking.poll(0.0 if self.was_read else PANE_FIRST)
        self.was_read = self.was_read or value is not None or error is not None
        if self._fd < 0 or value is None or value[0] == self._taken:
            return
        self._taken = value[0]
        printed, _, screen = value[1].partition("\n")
        # The last line may be a prompt or a progress bar: it is sent once another line follows.
        lines = screen.rstrip().split("\n")[:-1]
        known = count_repeated(self._seen, lines)
        text = "".join(line + "\n" for line in lines[known:]).encode("utf-8", "replace")
        self._seen = lines
        if text:
            if self._size > PANE_BYTES:
                os.ftruncate(self._fd, 0)
                self._size = 0
            self._size += os.pwrite(self._fd, text, self._size)
            if printed.isdigit():
                os.utime(self._fd, (int(printed), int(printed)))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class TrainingLog:
    """A log to follow; `shown` is its name in frames, if that is not its path."""

    def __init__(self, path: str, shown: str | None) -> None:
        self.path = path
        self.shown = shown


LET_GO_AFTER = 30.0
"""Seconds without news after which the files of an ended training are released."""


class FoundTraining:
    """One discovered run and its followers.

    Args:
        run: The run.
        claims: The owners of files.
        cursors: The client's cursors, by source; used ones are removed.
    """

    def __init__(
        self, run: FoundRun, claims: FileClaims, cursors: dict[str, tuple[int, int]]
    ) -> None:
        self.run = run
        self._cursors = cursors
        self.pane: PaneLog | None = None
        self.logs: list[TrainingLog] = []
        self._sources = RunSources(run, claims)
        self._curves: FoundScalars | None = None
        self._own: dict[str, ScalarFollower] = {}
        self._saved: dict[str, CheckpointWatch] = {}
        self._claims = claims
        self._searches: list[CheckpointSearch] = []
        self._found = CheckpointWatch(run.name)
        self._since = self._news = time.monotonic()
        self._reads_all = False
        self.is_over = False
        """It has ended, and everything that it wrote has been sent."""

    def update(self, run: FoundRun) -> None:
        """Apply the current state of the run."""
        if (run.pid, run.ticks) != (self.run.pid, self.run.ticks):
            self.close()
            self.pane = None
            self._since = self._news = time.monotonic()
            self.is_over = False
        self.run = run
        self._choose_logs()
        self._sources.update_run(run, [log.path for log in self.logs[:2]])

    def _choose_logs(self) -> None:
        run = self.run
        before = {log.path: log for log in self.logs}
        self.logs = [TrainingLog(path, _shown_name(run, path)) for path in run.logs]
        if not self.logs and run.ended is not None:
            self.logs = [log for log in before.values() if os.path.exists(log.path)]
        if not self.logs and run.pane and run.ended is None and self.pane is None:
            self.pane = PaneLog(run.socket, run.pane)
        elif run.logs and self.pane is not None:
            self.close()
            self.pane = None
        if self.pane is not None and self.pane.path and not run.logs:
            self.logs = [TrainingLog(self.pane.path, "tmux:%s" % (run.place or run.pane))]
        elif self._sources.own_log not in ("", *(log.path for log in self.logs)):
            self.logs.insert(0, TrainingLog(self._sources.own_log, None))

    def poll_frames(self) -> list[JsonObject]:
        """Return frames for new metrics; none once it is over."""
        if self.is_over:
            return []
        frames = self._read_sources()
        now = time.monotonic()
        if frames or self.run.ended is None:
            self._news = now
        elif now - self._news > LET_GO_AFTER:
            self.is_over = True
            self._curves = None
            self._own = {}
        return frames

    def _read_sources(self) -> list[JsonObject]:
        if self.pane is not None and self.run.ended is None:
            self.pane.append_new_lines()
        first = self._curves is None
        if self._curves is None:
            self._curves = FoundScalars(
                self.run.name,
                "found:" + self.run.name,
                None,
                self._cursors,
                finder=self._sources,
                since=self.run.first_start - 1.0,
            )
        # Maximum frames of curves per poll.
        budget = 200
        frames = self._curves.poll(budget)
        # A training that has run for a while has written its metrics files, if it ever does, so
        # there is no need to wait.
        # Seconds after its start at which a training is assumed to have opened its output files.
        settled = 120.0
        late = first and time.time() - self.run.started > settled
        # Seconds after which console output is read as well, if metrics files have no curve.
        exact_within = 15.0
        if late or time.monotonic() - self._since > exact_within:
            self._choose_consoles(self._curves)
        if late and self._sources.reads_consoles:
            self._curves.rescan_soon()
            frames += self._curves.poll(budget)
        own = self._sources.own
        if not own:
            saved = self._find_checkpoints()
            if saved:
                return [*frames, saved]
            return frames
        frames = []  # our own trainer's files contain everything that is found elsewhere
        for sub, path in own.items():
            if len(frames) >= budget:
                break
            if path not in self._own:
                if sub:
                    name = f"{self.run.name}/{sub}"
                else:
                    name = self.run.name
                self._own[path] = ScalarFollower(name, path, self._cursors.pop(path, None))
                self._saved[path] = CheckpointWatch(name, CheckpointSearch(os.path.dirname(path)))
            frames += self._read_own(path)
        return frames

    def _choose_consoles(self, curves: FoundScalars) -> None:
        """Read console output, too, if metrics files have no curve, no loss or no planned steps."""
        exact = curves.is_read_exactly
        # Bytes of a log that is read in addition to metrics files.
        small_log = 1 << 20
        logs = [files.signature(log.path) for log in self.logs[:2]]
        is_small = bool(logs) and all(log is not None and log[1] < small_log for log in logs)
        # Not given up again: the log's contents are known only as long as it is read.
        self._reads_all = self._reads_all or (exact and is_small and not curves.has_loss)
        known = curves.takes_only_totals or (is_small and not curves.has_total)
        curves.takes_only_totals = exact and known and not self._reads_all
        self._sources.reads_consoles = not exact or self._reads_all or curves.takes_only_totals

    def _find_checkpoints(self) -> JsonObject | None:
        """Return a frame if the training has new checkpoints where it works or writes."""
        roots = self._sources.search_roots()
        since = self.run.first_start - SLACK
        if [search.root for search in self._searches] != roots:
            self._searches = [checkpoint_search(root, since) for root in roots]
            self._found = CheckpointWatch(
                self.run.name,
                *self._searches,
                is_mine=lambda path, at: self._claims.is_mine(self.run, path, at),
            )
        return self._found.poll_frame()

    @property
    def is_looked_at(self) -> bool:
        """Whether everything that it has written so far has been read."""
        return (
            self.is_over
            or self.run.ended is not None
            or (
                (self.pane is None or self.pane.was_read)
                and self._curves is not None
                and self._curves.is_caught_up
            )
        )

    def _read_own(self, path: str) -> list[JsonObject]:
        frames: list[JsonObject] = []
        # Reads per poll of a file of rgt's own format, each of 500 points at most.
        own_batches = 20
        for _ in range(own_batches):
            frame, events = self._own[path].poll()
            frames += [
                dict(event, t="event", text=f"{self.run.name}: {event['text']}") for event in events
            ]
            if frame is None:
                break
            frames.append(frame)
        saved = self._saved[path].poll_frame()
        return frames + ([saved] if saved else [])

    def log_names(self) -> list[str]:
        """Return its logs' names in frames."""
        return [log.shown or log.path for log in self.logs]

    def found_row(self, torn: set[str]) -> JsonObject:
        """Return the run as in the ``found`` frame."""
        run = self.run
        shown = self.log_names()
        notes = list(run.notes)
        if run.silent and run.silent not in notes:
            notes.append(run.silent)
        notes += [
            f"{name} was deleted but is still written to: it is lost when the training ends"
            for name in run.deleted.values()
        ]
        if self._sources.cut:
            notes.append(
                "metrics were searched for in only a part of "
                f"{', '.join(sorted(self._sources.cut))}"
            )
        if torn:
            notes.append(
                "{} may belong to another training in the same directory: not shown".format(
                    ", ".join(sorted(torn)[:3])
                )
            )
        # Maximum sources and notes reported of one run.
        max_named = 20
        return jsonline.drop_empty(
            {
                "name": run.name,
                "pid": run.pid,
                "pids": run.pids,
                "started": run.started,
                "command": run.command,
                "why": run.why,
                "cwd": run.cwd,
                "user": run.user,
                "session": run.session,
                "place": run.place,
                "log": shown[0] if shown else None,
                "logs": shown,
                "sources": self._sources.paths[:max_named],
                "alive": run.ended is None,
                "seen": run.seen if run.ended is not None else None,
                "ended": run.ended,
                "exit_code": run.exit_code,
                "outcome": run.outcome,
                "uses": run.uses,
                "marks": run.marks or None,
                "cache": run.cache,
                "world": run.world,
                "world_before": run.world_before,
                "notes": notes[:max_named],
            }
        )

    def close(self) -> None:
        """Close the pane."""
        if self.pane is not None:
            self.pane.close()


def _shown_name(run: FoundRun, path: str) -> str | None:
    name = run.deleted.get(path)
    if name is None:
        return None
    return name + " (deleted)"


class Trainings:
    """All discovered runs of a box.

    Args:
        cursors: The client's cursors, by source; used ones are removed.
    """

    def __init__(self, cursors: dict[str, tuple[int, int]]) -> None:
        self._cursors = cursors
        self._claims = FileClaims()
        self._all: dict[str, FoundTraining] = {}
        self._boot = ""
        self._sent: list[JsonObject] | None = None
        self._looked = float("-inf")

    def apply_report(self, report: JsonObject) -> None:
        """Apply the recorder's report."""
        self._boot = str(report.get("boot") or "")
        runs = [run for run in map(load_run, report.get("runs") or []) if run is not None]
        names = {run.name for run in runs}
        for gone in [name for name in self._all if name not in names]:
            self._all.pop(gone).close()
        for run in runs:
            if run.name not in self._all:
                self._all[run.name] = FoundTraining(run, self._claims, self._cursors)
            self._all[run.name].update(run)
        self._all = {run.name: self._all[run.name] for run in runs}
        self._looked = float("-inf")

    def followed_logs(self) -> list[TrainingLog]:
        """Return the logs to follow."""
        found: list[TrainingLog] = []
        for training in self._followed_trainings():
            if not training.is_over:
                found += training.logs
        return found

    def finished_log_names(self) -> list[str]:
        """Return the names of logs that get no more lines."""
        over = [training for training in self._all.values() if training.is_over]
        live = {log.shown or log.path for log in self.followed_logs()}
        return [name for training in over for name in training.log_names() if name not in live]

    def _followed_trainings(self) -> list[FoundTraining]:
        """Return the live trainings, and those that ended last."""
        ended = [training for training in self._all.values() if training.run.ended is not None]
        ended.sort(key=lambda training: training.run.ended or 0.0)
        # Number of ended trainings whose curves and logs are still sent; the others are only
        # listed.
        ended_limit = 8
        left = {training.run.name for training in ended[:-ended_limit]}
        return [training for name, training in self._all.items() if name not in left]

    def poll_frames(
        self, taken: list[str], ask: Callable[[str, Callable[[], list[Any]], list[Any]], list[Any]]
    ) -> list[JsonObject]:
        """Return new frames.

        Args:
            taken: Directories that are followed under another name.
            ask: Polls one training by name; returns its third argument if that fails.
        """
        now = time.monotonic()
        # Seconds between two polls of the metrics.
        every = 2.0
        if now - self._looked < every:
            return []
        self._looked = now
        self._claims.replace_runs([training.run for training in self._all.values()], taken)
        frames: list[JsonObject] = []
        for training in self._followed_trainings():
            frames += ask(training.run.name, training.poll_frames, [])
        told = [
            training.found_row(self._claims.torn.get(name, set()))
            for name, training in self._all.items()
        ]
        if told != (self._sent or []):
            self._sent = told
            frames.insert(
                0, {"t": "found", "boot": self._boot, "at": round(time.time(), 3), "runs": told}
            )
        return frames

    @property
    def is_looked_at(self) -> bool:
        """Whether each of them has been read to its end."""
        return self._looked > float("-inf") and all(
            each.is_looked_at for each in self._followed_trainings()
        )

    def close(self) -> None:
        """Close all panes."""
        for training in self._all.values():
            training.close()
