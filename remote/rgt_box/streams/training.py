"""One training that was found: its logs, its curves, and what is told of it."""

from __future__ import annotations

import os
import time

from rgt_box import jsonline
from rgt_box.discovery.found_run import Run
from rgt_box.discovery.run_sources import Claims, RunSources
from rgt_box.streams.found import FoundScalars
from rgt_box.streams.job_files import CheckpointWatch
from rgt_box.streams.pane import PaneLog
from rgt_box.streams.scalars import ScalarFollower

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, Optional

    class Log(NamedTuple):
        """A log to be followed."""

        path: str
        shown: "Optional[str]"
        """What frames call it, where that is not its path."""
else:
    from collections import namedtuple

    Log = namedtuple("Log", "path shown")

EXACT_WITHIN = 15.0
"""Seconds after which what is printed is read, too, where files of metrics hold no curve."""
SETTLED = 120.0
"""Seconds after its start at which a training is taken to have opened what it writes to."""
BATCHES = 20
"""Reads per look of a file of rgt's own format, each of 500 points at most."""
BUDGET = 200
"""Frames of curves per look."""
QUIET = 30.0
"""Seconds without news after which the files of a training that has ended are let go."""
MAX_NAMED = 20
"""Sources and notes told of one run."""


class Training:
    """One found run and what is followed of it.

    Args:
        run: The run.
        claims: Who owns which file.
        cursors: The client's, by source; what is ours is taken out.
    """

    def __init__(self, run: Run, claims: Claims, cursors: dict[str, tuple[int, int]]) -> None:
        self.run = run
        self._cursors = cursors
        self.pane: PaneLog | None = None
        self.logs: list[Log] = []
        self._sources = RunSources(run, claims)
        self._curves: FoundScalars | None = None
        self._own: dict[str, ScalarFollower] = {}
        self._saved: dict[str, CheckpointWatch] = {}
        self._since = self._news = time.monotonic()
        self.is_over = False
        """It has ended, and all that it wrote has been sent."""

    def update(self, run: Run) -> None:
        """Take over what is known of the run now."""
        if (run.pid, run.ticks) != (self.run.pid, self.run.ticks):
            self.close()
            self.pane = None
            self._since = self._news = time.monotonic()
            self.is_over = False
        self.run = run
        self._choose_logs()
        self._sources.update(run, [log.path for log in self.logs[:2]])

    def _choose_logs(self) -> None:
        run = self.run
        before = {log.path: log for log in self.logs}
        self.logs = [Log(path, _shown(run, path)) for path in run.logs]
        if not self.logs and run.ended is not None:
            self.logs = [log for log in before.values() if os.path.exists(log.path)]
        if not self.logs and run.pane and run.ended is None and self.pane is None:
            self.pane = PaneLog(run.socket, run.pane)
        elif run.logs and self.pane is not None:
            self.close()
            self.pane = None
        if self.pane is not None and self.pane.path and not run.logs:
            self.logs = [Log(self.pane.path, "tmux:%s" % (run.place or run.pane))]

    def poll(self) -> list[dict[str, Any]]:
        """Return frames for what is new in its metrics; nothing more once it is over."""
        if self.is_over:
            return []
        frames = self._read()
        now = time.monotonic()
        if frames or self.run.ended is None:
            self._news = now
        elif now - self._news > QUIET:
            self.is_over, self._curves, self._own = True, None, {}
        return frames

    def _read(self) -> list[dict[str, Any]]:
        if self.pane is not None and self.run.ended is None:
            self.pane.poll()
        first = self._curves is None
        if self._curves is None:
            self._curves = FoundScalars(
                self.run.name,
                "found:" + self.run.name,
                None,
                self._cursors,
                finder=self._sources,
                since=self.run.since - 1.0,
            )
        frames = self._curves.poll(BUDGET)
        # What has run for long has written its files of metrics, if it ever does: nothing need be waited for.
        late = first and time.time() - self.run.started > SETTLED
        if late or time.monotonic() - self._since > EXACT_WITHIN:
            self._sources.reads_consoles = not self._curves.is_read_exactly
        if late and self._sources.reads_consoles:
            self._curves.rescan()
            frames += self._curves.poll(BUDGET)
        own = self._sources.own
        if not own:
            return frames
        frames = []  # what our own trainer writes says all that is found beside it
        for sub, path in own.items():
            if len(frames) >= BUDGET:
                break
            if path not in self._own:
                name = "%s/%s" % (self.run.name, sub) if sub else self.run.name
                self._own[path] = ScalarFollower(name, path, self._cursors.pop(path, None))
                self._saved[path] = CheckpointWatch(name, os.path.dirname(path))
            frames += self._read_own(path)
        return frames

    @property
    def is_looked_at(self) -> bool:
        """All that it has written by now has been read."""
        return (
            self.is_over
            or self.run.ended is not None
            or (
                (self.pane is None or self.pane.was_read)
                and self._curves is not None
                and self._curves.is_caught_up
            )
        )

    def _read_own(self, path: str) -> list[dict[str, Any]]:
        frames: list[dict[str, Any]] = []
        for _ in range(BATCHES):
            frame, events = self._own[path].poll()
            frames += [
                dict(event, t="event", text="%s: %s" % (self.run.name, event["text"])) for event in events
            ]
            if frame is None:
                break
            frames.append(frame)
        saved = self._saved[path].poll()
        return frames + ([saved] if saved else [])

    def names(self) -> list[str]:
        """Return what frames call its logs."""
        return [log.shown or log.path for log in self.logs]

    def describe(self, torn: set[str]) -> dict[str, Any]:
        """Return the run as the ``found`` frame tells it."""
        run = self.run
        shown = self.names()
        notes = list(run.notes)
        if run.silent and run.silent not in notes:
            notes.append(run.silent)
        notes += [
            "%s was deleted while it is written to: it is gone when the training ends" % name
            for name in run.deleted.values()
        ]
        if self._sources.cut:
            notes.append("only a part was searched for metrics of %s" % ", ".join(sorted(self._sources.cut)))
        if torn:
            notes.append(
                "%s may be another training's that runs in the same directory: not shown"
                % ", ".join(sorted(torn)[:3])
            )
        return jsonline.compact(
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
                "sources": self._sources.paths[:MAX_NAMED],
                "alive": run.ended is None,
                "seen": run.seen if run.ended is not None else None,
                "ended": run.ended,
                "exit_code": run.exit_code,
                "outcome": run.outcome,
                "notes": notes[:MAX_NAMED],
            }
        )

    def close(self) -> None:
        """Let go of the pane."""
        if self.pane is not None:
            self.pane.close()


def _shown(run: Run, path: str) -> str | None:
    name = run.deleted.get(path)
    return None if name is None else name + " (deleted)"
