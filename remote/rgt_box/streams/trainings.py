"""The trainings that were found: told to the client, with their logs and curves followed."""

from __future__ import annotations

import os
import time

from rgt_box import jsonline
from rgt_box.found.claims import Claims
from rgt_box.found.run import Run, load
from rgt_box.found.sources import RunSources
from rgt_box.streams.found import FoundScalars
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
EVERY = 2.0
"""Seconds between two looks at the metrics."""
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
        self._since = time.monotonic()

    def update(self, run: Run) -> None:
        """Take over what is known of the run now."""
        if (run.pid, run.ticks) != (self.run.pid, self.run.ticks):
            self.close()
            self.pane = None
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
        """Return frames for what is new in its metrics."""
        if self.pane is not None and self.run.ended is None:
            self.pane.poll()
        if self._curves is None:
            self._curves = FoundScalars(
                self.run.name,
                "found:" + self.run.name,
                None,
                self._cursors,
                finder=self._sources,
                since=self.run.since - 1.0,
            )
        frames = self._curves.poll()
        if time.monotonic() - self._since > EXACT_WITHIN:
            self._sources.reads_consoles = not self._curves.is_read_exactly
        own = self._sources.own
        if not own:
            return frames
        frames = []  # what our own trainer writes says all that is found beside it
        for sub, path in own.items():
            if path not in self._own:
                name = "%s/%s" % (self.run.name, sub) if sub else self.run.name
                self._own[path] = ScalarFollower(name, path, self._cursors.pop(path, None))
            frame, events = self._own[path].poll()
            frames += [frame] if frame else []
            frames += [
                dict(event, t="event", text="%s: %s" % (self.run.name, event["text"])) for event in events
            ]
        return frames

    def describe(self, torn: set[str]) -> dict[str, Any]:
        """Return the run as the ``found`` frame tells it."""
        run = self.run
        shown = [log.shown or log.path for log in self.logs]
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
                "notes": notes[:MAX_NAMED],
            }
        )

    def close(self) -> None:
        """Let go of the pane."""
        if self.pane is not None:
            self.pane.close()


class Trainings:
    """All found runs of a box.

    Args:
        cursors: The client's, by source; what is ours is taken out.
    """

    def __init__(self, cursors: dict[str, tuple[int, int]]) -> None:
        self._cursors = cursors
        self._claims = Claims()
        self._all: dict[str, Training] = {}
        self._boot = ""
        self._sent: list[dict[str, Any]] | None = None
        self._looked = float("-inf")

    def take(self, report: dict[str, Any]) -> None:
        """Take over what the recorder says."""
        self._boot = str(report.get("boot") or "")
        runs = [run for run in map(load, report.get("runs") or []) if run is not None]
        names = {run.name for run in runs}
        for gone in [name for name in self._all if name not in names]:
            self._all.pop(gone).close()
        for run in runs:
            if run.name not in self._all:
                self._all[run.name] = Training(run, self._claims, self._cursors)
            self._all[run.name].update(run)
        self._all = {run.name: self._all[run.name] for run in runs}
        self._looked = float("-inf")

    def logs(self) -> list[Log]:
        """Return the logs to be followed."""
        return [log for training in self._all.values() for log in training.logs]

    def poll(self, taken: list[str]) -> list[dict[str, Any]]:
        """Return frames that are news.

        Args:
            taken: Directories that are followed under another name.
        """
        now = time.monotonic()
        if now - self._looked < EVERY:
            return []
        self._looked = now
        self._claims.update([training.run for training in self._all.values()], taken)
        frames: list[dict[str, Any]] = []
        for training in self._all.values():
            frames += training.poll()
        told = [training.describe(self._claims.torn.get(name, set())) for name, training in self._all.items()]
        if told != (self._sent or []):
            self._sent = told
            frames.insert(0, {"t": "found", "boot": self._boot, "at": round(time.time(), 3), "runs": told})
        return frames

    def close(self) -> None:
        """Let go of what is open."""
        for training in self._all.values():
            training.close()


def _shown(run: Run, path: str) -> str | None:
    name = run.deleted.get(path)
    return None if name is None else name + " (deleted)"
