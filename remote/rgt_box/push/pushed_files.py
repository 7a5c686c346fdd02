"""Which files of a directory are what ``rgt push`` put there: they can be pushed again, all others cannot."""

from __future__ import annotations

import os

from rgt_box import files
from rgt_box.commands import hashing
from rgt_box.push import push_staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


RECORDS = push_staging.FOLDER
"""Directory of the records, next to the versions."""


def record_path(place: str, version: str) -> str:
    """Return the file that lists what a version holds."""
    return os.path.join(place, RECORDS, version + ".json")


class PushedFiles:
    """The files of one version of pushed code, as its record has them.

    Args:
        folder: Of the version, absolute.
        record: Its record, as `code_versions.publish` writes it.
    """

    def __init__(self, folder: str, record: dict[str, Any]) -> None:
        self.folder = folder
        self._start = os.fsencode(folder).rstrip(b"/") + b"/"
        self._files = {os.fsencode(row[0]): row for row in record["files"]}
        self._links = {os.fsencode(row[0]): os.fsencode(row[1]) for row in record.get("links") or []}

    def is_unchanged(self, path: bytes, seen: os.stat_result) -> bool:
        """Return whether a regular file is one that was pushed, with the same content.

        Args:
            path: Absolute.
            seen: Its status. Only a file of the right size and another mtime is read.
        """
        row = self._files.get(path[len(self._start) :]) if path.startswith(self._start) else None
        if row is None or row[1] != seen.st_size:
            return False
        if seen.st_mtime_ns == row[3]:
            return True
        try:
            return bool(hashing.of_path(os.fsdecode(path)) == row[2])
        except OSError:
            return False

    def is_link(self, path: bytes, target: bytes) -> bool:
        """Return whether a symbolic link is one that was pushed."""
        return path.startswith(self._start) and self._links.get(path[len(self._start) :]) == target


def load(place: str, version: str) -> PushedFiles | None:
    """Return what was pushed as a directory; None if there is no usable record of it.

    Args:
        place: The directory that it is in.
        version: Its name.
    """
    record = files.read_json(record_path(place, version), push_staging.MOST)
    if record is None or record.get("version") != version:
        return None
    rows, links = record.get("files"), record.get("links") or []
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        return None
    if not isinstance(links, list) or not all(_is_pair(link) for link in links):
        return None
    return PushedFiles(os.path.join(place, version), record)


def version_around(path: str) -> PushedFiles | None:
    """Return what was pushed as the directory `path`, or as one around it; None if nothing was."""
    at = os.path.realpath(path)
    while at != os.path.dirname(at):
        found = load(os.path.dirname(at), os.path.basename(at))
        if found is not None:
            return found
        at = os.path.dirname(at)
    return None


def _is_row(row: Any) -> bool:
    kinds = (str, int, str, int)
    return isinstance(row, list) and len(row) >= 4 and all(map(isinstance, row, kinds))


def _is_pair(link: Any) -> bool:
    return isinstance(link, list) and len(link) == 2 and all(isinstance(part, str) for part in link)
