"""Which processes belong to a queue's running cell: the cell is the leader of a session of its own."""

from __future__ import annotations

import os

from rgt_box import files, procstat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LiveCells:
    """The running cells of some job directories; a queue's state is read again only when its file changed."""

    def __init__(self, jobs: list[str]) -> None:
        self._folders = [os.path.abspath(os.path.expanduser(job)) for job in jobs]
        self._known: dict[str, tuple[Any, dict[str, Any]]] = {}

    def read(self) -> dict[int, str]:
        """Return the pid of each cell that is alive → its name."""
        found = {}
        for path in self._paths():
            signature = files.signature(path)
            if path not in self._known or self._known[path][0] != signature:
                self._known[path] = (signature, files.read_json(path) or {})
            state = self._known[path][1]
            pid, name = state.get("cell_pid"), running(state)
            if isinstance(pid, int) and name and procstat.is_alive(pid, state.get("cell_ticks")):
                found[pid] = name
        return found

    def _paths(self) -> list[str]:
        """Return the state files: that of each queue, and those of its lanes."""
        found = []
        for folder in self._folders:
            found.append(os.path.join(folder, "state.json"))
            try:
                names = os.listdir(os.path.join(folder, "lanes"))
            except OSError:
                continue
            found += [os.path.join(folder, "lanes", name) for name in sorted(names) if name.endswith(".json")]
        return found


def running(state: dict[str, Any]) -> str | None:
    """Return the name of the cell that a ``state.json`` calls running."""
    cells = state.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("state") == "running":
            return str(cell.get("name"))
    return None


def session_of(pid: int) -> int | None:
    """Return the session of a process (field 6 of ``/proc/PID/stat``, see proc(5)); None when it is gone."""
    text = procstat.read_bytes("/proc/%d/stat" % pid, 4096) or b""
    try:
        return int(text[text.rindex(b")") + 2 :].split()[3])
    except (ValueError, IndexError):
        return None
