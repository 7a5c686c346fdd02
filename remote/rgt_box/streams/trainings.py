"""The trainings that were found: told to the client, and followed as long as they say something."""

from __future__ import annotations

import time

from rgt_box.discovery.found_run import load
from rgt_box.discovery.run_sources import Claims
from rgt_box.streams.training import Training

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from rgt_box.streams.training import Log

EVERY = 2.0
"""Seconds between two looks at the metrics."""
ENDED = 8
"""Of the trainings that have ended, how many still get their curves and logs sent; of the others only is told."""


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
        return [log for training in self._followed() for log in training.logs if not training.is_over]

    def finished(self) -> list[str]:
        """Return what frames call the logs to which nothing comes any more."""
        over = [training for training in self._all.values() if training.is_over]
        live = {log.shown or log.path for log in self.logs()}
        return [name for training in over for name in training.names() if name not in live]

    def _followed(self) -> list[Training]:
        """Return the live trainings, and those that ended last."""
        ended = [training for training in self._all.values() if training.run.ended is not None]
        ended.sort(key=lambda training: training.run.ended or 0.0)
        left = {training.run.name for training in ended[:-ENDED]}
        return [training for name, training in self._all.items() if name not in left]

    def poll(
        self, taken: list[str], ask: Callable[[str, Callable[[], list[Any]], list[Any]], list[Any]]
    ) -> list[dict[str, Any]]:
        """Return frames that are news.

        Args:
            taken: Directories that are followed under another name.
            ask: Asks one by its name, and answers with its third argument where that fails.
        """
        now = time.monotonic()
        if now - self._looked < EVERY:
            return []
        self._looked = now
        self._claims.update([training.run for training in self._all.values()], taken)
        frames: list[dict[str, Any]] = []
        for training in self._followed():
            frames += ask(training.run.name, training.poll, [])
        told = [training.describe(self._claims.torn.get(name, set())) for name, training in self._all.items()]
        if told != (self._sent or []):
            self._sent = told
            frames.insert(0, {"t": "found", "boot": self._boot, "at": round(time.time(), 3), "runs": told})
        return frames

    @property
    def is_looked_at(self) -> bool:
        """Each of them has been read as far as it goes."""
        return self._looked > float("-inf") and all(each.is_looked_at for each in self._followed())

    def close(self) -> None:
        """Let go of what is open."""
        for training in self._all.values():
            training.close()
