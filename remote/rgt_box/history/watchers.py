"""Who watches: one small file per live watch process, from which the recorder makes its own configuration.

Each file has one writer, so that two clients never race; a file whose process is gone is removed by the reader.
"""

from __future__ import annotations

import os
import re

from rgt_box import files, procstat
from rgt_box.history import home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = re.compile(r"watch-(\d+)\.json$")
LISTS = ("mounts", "jobs")
LATEST = ("pattern", "gpu_trace", "find")
MIN_INTERVAL, MAX_INTERVAL = 0.05, 3600.0


class Watchers:
    """The live watchers of a state directory, re-read when the directory changed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._signature: list[tuple[int, int, int] | None] = []
        self._entries: list[dict[str, Any]] = []

    def live(self) -> list[dict[str, Any]]:
        """Return the entries of live watchers, the one that started last at the end."""
        places = home.places(self._folder)
        signature = [files.signature(place) for place in places]
        if signature != self._signature or None in signature:
            self._entries = [entry for entry in map(self._load, self._paths(places)) if entry is not None]
            self._entries.sort(key=lambda entry: (int(entry["ticks"]), int(entry["pid"])))
            self._signature = signature
        alive = [entry for entry in self._entries if procstat.is_alive(entry["pid"], entry["ticks"])]
        if len(alive) != len(self._entries):
            for entry in self._entries:
                if entry not in alive:
                    home.unlink(self._folder, entry_name(entry["pid"]))
            self._entries = alive
        return alive

    @staticmethod
    def _paths(places: list[str]) -> list[str]:
        found = []
        for place in places:
            try:
                found += [os.path.join(place, name) for name in os.listdir(place) if _NAME.match(name)]
            except OSError:
                continue
        return found

    @staticmethod
    def _load(path: str) -> dict[str, Any] | None:
        entry = files.read_json(path)
        if entry is None or not isinstance(entry.get("pid"), int) or not isinstance(entry.get("ticks"), int):
            return None
        return entry


def entry_name(pid: int) -> str:
    """Return the name of a watcher's file."""
    return "watch-%d.json" % pid


def register(folder: str, config: dict[str, Any], after: dict[str, Any] | None) -> None:
    """Write this process's file.

    Args:
        folder: The state directory.
        config: ``interval``, ``mounts``, ``jobs``, ``pattern``, ``find``, ``gpu_trace`` as this watcher asks for.
        after: The client's last ``{"boot", "seq"}``: numbers up to it must not be used again.
    """
    pid = os.getpid()
    keys = ("interval",) + LISTS + LATEST
    entry = {"pid": pid, "ticks": procstat.start_ticks(pid), "after": after}
    entry["config"] = {key: config.get(key) for key in keys}
    home.write_json(folder, entry_name(pid), entry)


def unregister(folder: str) -> None:
    """Remove this process's file."""
    home.unlink(folder, entry_name(os.getpid()))


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
