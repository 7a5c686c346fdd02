"""The story of a box that stops itself: a line for each thing that happened, on the disk for sure, else in memory.

What it tells goes on to the recorder's history and to the person's sink; a copy goes to where it survives a stop.
"""

from __future__ import annotations

import os
import time

from rgt_box import files, jsonline, ownership, place
from rgt_box.recorder import state_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE, COPY = "autostop.jsonl", "rgt-autostop.jsonl"
MOST = 1 << 20
"""Bytes after which the older half of the story is forgotten."""
READ = 4 << 20
EVENTS = (
    "armed", "kept", "warned", "withdrawn", "sealed", "mirrored", "intent", "asked", "answered", "refused", "failed",
    "unknown", "disarmed", "stopped-lease", "terminated",
)  # fmt: skip


def tell(folder: str, event: str, text: str, **more: Any) -> bool:
    """Add a line; False when it could be written nowhere."""
    line = jsonline.line(
        dict(
            {"at": round(time.time(), 3), "boot": place.boot_id(), "event": event, "text": text[:2000]},
            **more,
        )
    )
    memory = state_files.ram(folder)
    for where in [folder] if memory is None else [folder, memory]:
        if _append(where, line):
            return True
    memory = state_files.ram(folder, make=True)
    return memory is not None and _append(memory, line)


def _append(where: str, line: bytes) -> bool:
    path = os.path.join(where, FILE)
    try:
        ownership.take(where)
        fd = files.open_appending(path)
        try:
            size = os.fstat(fd).st_size
            try:
                files.write_all(fd, line)
            except OSError:
                os.ftruncate(fd, size)  # half a line would spoil the next one
                raise
            os.fsync(fd)
        finally:
            os.close(fd)
        if size > MOST:
            _shorten(path)
    except OSError:
        return False
    return True


def _shorten(path: str) -> None:
    data = files.read(path, READ) or b""
    files.replace(path, data[data.find(b"\n", len(data) // 2) + 1 :], sync=True)


def read(folder: str) -> list[dict[str, Any]]:
    """Return every line, the oldest first."""
    found: list[dict[str, Any]] = []
    for where in state_files.places(folder):
        data = files.read(os.path.join(where, FILE), READ) or b""
        found += [line for line in map(jsonline.loads_dict, data.splitlines()) if line is not None]
    return found


def last(folder: str) -> dict[str, Any] | None:
    """Return the newest line, without its boot."""
    lines = read(folder)
    return {key: lines[-1].get(key) for key in ("at", "event", "text")} if lines else None


def copy(folder: str, durable: list[str]) -> list[str]:
    """Put the story into directories that survive a stop; returns where that failed, and why."""
    data = b"".join(map(jsonline.line, read(folder)))
    failed = []
    for where in durable:
        try:
            path = os.path.join(where, COPY)
            files.replace(path, data, sync=True)
            fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            failed.append("%s: %s" % (where, error.strerror))
    return failed


class Tail:
    """What is added to the story from now on, by whomever."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, int]] = {}
        self._last: dict[str, bytes] = {}
        """The last line of each file: two may have one time."""
        self._told = 0.0
        self.news()

    def news(self) -> list[dict[str, Any]]:
        """Return the new lines."""
        found: list[dict[str, Any]] = []
        for where in state_files.places(self._folder):
            path = os.path.join(where, FILE)
            mark = files.signature(path)
            if mark is None:
                continue
            inode, size = mark[0], mark[1]
            before = self._seen.get(path)
            if before == (inode, size):
                continue
            data = files.read(path, READ) or b""
            whole = data[: data.rfind(b"\n") + 1]
            last = self._last.get(path)
            if before is not None and before[0] == inode:
                start = before[1]
            else:  # the older half was forgotten, and the file is another one
                at = whole.rfind(last) if last is not None else -1
                start = at + len(last) if last is not None and at >= 0 else 0
            self._seen[path] = (inode, len(whole))
            if whole:
                self._last[path] = whole[whole.rfind(b"\n", 0, -1) + 1 :]
            lines = [
                line for line in map(jsonline.loads_dict, whole[start:].splitlines()) if line is not None
            ]
            if start == 0 and before is not None:
                lines = [line for line in lines if float(line.get("at") or 0.0) > self._told]
            found += lines
        self._told = max([self._told] + [float(line.get("at") or 0.0) for line in found])
        return found
