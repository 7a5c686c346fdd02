"""A log that stands still while the run goes on: its lines wait in a buffer of the program that writes them."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SILENT = 120.0
"""Seconds by which a checkpoint must be newer than the last line: who logs and saves in turn is not meant."""


class FrozenLogs:
    """Says once per silence that a log is no sign of life."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def look(self, name: str, log: str, saved: float) -> list[dict[str, Any]]:
        """Return an event (without ``boot`` and ``seq``) when the log is frozen and that was not said yet.

        Args:
            name: The run.
            log: Its log.
            saved: When its newest checkpoint was written; by the same clock as the log's mtime.
        """
        try:
            wrote = os.stat(log).st_mtime
        except OSError:
            return []
        if saved - wrote < SILENT or self._told.get(log) == wrote:
            return []
        self._told[log] = wrote
        text = (
            "%s: nothing in its log for %d s before its newest checkpoint; the run goes on, its output waits in a"
            " buffer (PYTHONUNBUFFERED=1 in the job's env lets it out)" % (name, saved - wrote)
        )
        return [{"t": "event", "kind": "log-frozen", "level": "warn", "text": text}]
