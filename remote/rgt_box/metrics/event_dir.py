"""All event files of one directory as one series group: a resumed run writes a new file beside the old one."""

from __future__ import annotations

import os

from rgt_box.metrics.base import Reader
from rgt_box.metrics.tensorboard import EventFile, order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_box.metrics.base import Batch, Cursor

MARK = "tfevents"
MAX_FILES = 100
"""Files of one directory that are read, the newest."""


class EventDirectory(Reader):
    """The event files of one directory, oldest first. The cursor is ``{"files": {name: cursor}}``."""

    source = "tensorboard"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._readers: dict[str, EventFile] = {}

    def _read(self, batch: Batch, limit: int) -> None:
        names = sorted((name for name in os.listdir(self.path) if MARK in name), key=order)
        if len(names) > MAX_FILES:
            batch.problem(0, "%d event files: the %d newest are read" % (len(names), MAX_FILES))
            del names[:-MAX_FILES]
        cursors: dict[str, Cursor] = dict((batch.cursor or {}).get("files", {}))
        if set(cursors) - set(names) or not self._files(names, cursors, batch, limit):
            # A file is gone or another one: what it gave cannot be told from the rest.
            batch.forget()
            batch.reset, cursors = True, {}
            self._files(names, cursors, batch, limit)
        batch.cursor = {"files": cursors}

    def _files(self, names: list[str], cursors: dict[str, Cursor], batch: Batch, limit: int) -> bool:
        """Read on in each file; False when one has to be read anew."""
        for name in names:
            reader = self._readers.get(name)
            if reader is None:
                reader = self._readers[name] = EventFile(os.path.join(self.path, name))
            part = reader.read(cursors.get(name), limit - len(batch.points))
            if part.reset:
                return False
            shift = len(batch.points)
            batch.points += part.points
            batch.starts += [start._replace(before=start.before + shift) for start in part.starts]
            batch.take_problems(part)
            if part.cursor is not None:
                cursors[name] = part.cursor
            if part.more or len(batch.points) >= limit:
                batch.more = True
                return True
        return True
