"""Files among a person's code that rgt wrote itself: the fleet file, pulled results, recordings, exports.

They change while a training runs. Pushed as code, they would make another version, and so another job, of the same
command.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from rgt_tui.files import (
    FLEET_FILE,
    config_directory,
    open_regular,
    real_place,
    state_directory,
    written_notes,
)
from rgt_tui.transfer.copying import PARTS
from rgt_tui.transfer.ledger import has_copy_below
from rgt_tui.transfer.verified_record import RECORDS

MARKS = frozenset({*RECORDS, PARTS})
"""One of these lies in every directory that holds pulled results and was verified, or not pulled to the end."""


class OwnFiles:
    """Tells which files and directories of a tree are rgt's own.

    Args:
        fleet: The fleet file in use, whatever its name.
        pulled_too: Pulled results may be pushed: a person moves them as data.
        env: Where rgt keeps its state.
    """

    def __init__(
        self, fleet: Path | None = None, *, pulled_too: bool = False, env: Mapping[str, str] = os.environ
    ) -> None:
        self._pulled_too = pulled_too
        self._fleets = set() if fleet is None else {real_place(fleet), os.path.realpath(fleet)}
        names = {FLEET_FILE, *(Path(path).name for path in self._fleets)}
        self._unfinished = re.compile(rf"\.(?:{'|'.join(map(re.escape, sorted(names)))})\.\d+\.tmp")
        """A fleet file on its way to its place."""
        self._folders = {os.path.realpath(state_directory(env)), os.path.realpath(config_directory(env))}
        self._notes, self._env = written_notes(env), env

    def why(self, path: str, entry: os.DirEntry[str]) -> str | None:
        """Return why an entry of a directory is not pushed; None = it is not rgt's.

        Args:
            path: Absolute, without links on the way.
            entry: As the directory lists it.
        """
        if path in self._fleets or entry.name == FLEET_FILE:
            return "the fleet file of rgt"
        if entry.name in MARKS or self._unfinished.fullmatch(entry.name) or path in self._folders:
            return "rgt wrote it"
        note = self._notes.get(path)
        if note is None:
            return None
        if entry.is_dir(follow_symlinks=False):
            is_pulled = not note and not self._pulled_too and has_copy_below(path, self._env)
            return "rgt pulled it" if is_pulled else None
        return "rgt wrote it" if _is_as_written(path, note) else None

    def why_folder(self, names: Collection[str]) -> str | None:
        """Return why a directory with these entries is not pushed; None = it is not rgt's."""
        return "rgt pulled it" if not self._pulled_too and MARKS.intersection(names) else None


def _is_as_written(path: str, note: list[object]) -> bool:
    """Tell whether a file holds what rgt wrote, or, where rgt appends to it, begins with that; see `note_written`.

    Anything else is the person's: a file of theirs must never be left out for its name.
    """
    match note:
        case [int(length), str(digest), bool(grows)]:
            pass
        case _:
            return False
    try:
        with open_regular(Path(path), follow=False) as file:
            begins = file.read(length)
            more = file.read(1)
    except OSError:
        return False
    return hashlib.sha256(begins).hexdigest() == digest and (grows or not more)
