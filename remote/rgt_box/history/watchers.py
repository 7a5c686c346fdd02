"""Who watches: one small file per live watch process, from which the recorder makes its own configuration.

Each file has one writer, so that two clients never race; a file whose process is gone is removed by the reader.
"""

from __future__ import annotations

import os
import re

from rgt_box import files, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = re.compile(r"watch-(\d+)\.json$")
LISTS = ("mounts", "jobs")
LATEST = ("pattern", "gpu_trace")
MIN_INTERVAL, MAX_INTERVAL = 0.05, 3600.0


class Watchers:
    """The live watchers of a state directory, re-read when the directory changed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._signature: tuple[int, int, int] | None = None
        self._entries: list[dict[str, Any]] = []

    def live(self) -> list[dict[str, Any]]:
        """Return the entries of live watchers, the one that started last at the end."""
        signature = files.signature(self._folder)
        if signature != self._signature or signature is None:
            self._entries = [entry for entry in map(self._load, self._names()) if entry is not None]
            self._entries.sort(key=lambda entry: (int(entry["ticks"]), int(entry["pid"])))
            self._signature = signature
        alive = [entry for entry in self._entries if procstat.is_alive(entry["pid"], entry["ticks"])]
        if len(alive) != len(self._entries):
            for entry in self._entries:
                if entry not in alive:
                    files.unlink(entry_path(self._folder, entry["pid"]))
            self._entries = alive
        return alive

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if _NAME.match(name)]
        except OSError:
            return []

    def _load(self, name: str) -> dict[str, Any] | None:
        entry = files.read_json(os.path.join(self._folder, name))
        if entry is None or not isinstance(entry.get("pid"), int) or not isinstance(entry.get("ticks"), int):
            return None
        return entry


def entry_path(folder: str, pid: int) -> str:
    """Return the path of a watcher's file."""
    return os.path.join(folder, "watch-%d.json" % pid)


def register(folder: str, config: dict[str, Any], after: dict[str, Any] | None) -> None:
    """Write this process's file.

    Args:
        folder: The state directory.
        config: ``interval``, ``mounts``, ``jobs``, ``pattern``, ``gpu_trace`` as this watcher asks for them.
        after: The client's last ``{"boot", "seq"}``: numbers up to it must not be used again.

    Raises:
        OSError: when it cannot be written.
    """
    pid = os.getpid()
    keys = ("interval",) + LISTS + LATEST
    entry = {"pid": pid, "ticks": procstat.start_ticks(pid), "after": after}
    entry["config"] = {key: config.get(key) for key in keys}
    files.write_json(entry_path(folder, pid), entry)


def unregister(folder: str) -> None:
    """Remove this process's file."""
    files.unlink(entry_path(folder, os.getpid()))


def merge(entries: list[dict[str, Any]], last: dict[str, Any]) -> dict[str, Any]:
    """Return the recorder's configuration: the fastest interval, all mounts and jobs, the newest pattern and trace.

    Args:
        entries: Live watchers.
        last: The configuration before; it stays in force while nobody watches.
    """
    configs = [entry["config"] for entry in entries if isinstance(entry.get("config"), dict)]
    if not configs:
        return last
    merged: dict[str, Any] = {}
    intervals = [float(config["interval"]) for config in configs if config.get("interval")]
    merged["interval"] = clamp(min(intervals)) if intervals else 1.0
    for key in LISTS:
        merged[key] = list(dict.fromkeys(str(item) for config in configs for item in config.get(key) or []))
    for key in LATEST:
        values = [config.get(key) for config in configs if config.get(key)]
        merged[key] = values[-1] if values else None
    return merged


def clamp(interval: float) -> float:
    """Return an interval within what the agent can do."""
    return min(MAX_INTERVAL, max(MIN_INTERVAL, interval))
