"""transformers' ``trainer_state.json`` (run, 5.23): rewritten whole at every save, with the complete history.

The rows of ``log_history`` are decoded one by one, so that only the text of a long history is held in memory. The
cursor keeps how many were read and a checksum of their text: a history that goes on gives only its new rows, one
that took another course (a resume from an older checkpoint) is read anew.
"""

from __future__ import annotations

import json
import os
import zlib

from rgt_box.metrics import rows
from rgt_box.metrics.base import MAX_TAGS, Reader, open_regular
from rgt_box.metrics.numbers import flatten, whole
from rgt_box.metrics.rows import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_box.metrics.base import Batch

LAYOUT = Layout(("step",))
MAX_BYTES = 32 << 20
KEY = '"log_history"'
_decode = json.JSONDecoder(parse_int=whole).raw_decode
BLANKS = " \t\r\n"


class TrainerState(Reader):
    """One ``trainer_state.json``. Of several checkpoints' the one written last has everything."""

    source = "hf_trainer"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._version: list[int] = []
        self._place: tuple[list[int], int, int, int] = ([], 0, 0, 0)
        """Version, rows, checksum and place in the text where the last read ended: saves decoding them again."""

    def _read(self, batch: Batch, limit: int) -> None:
        fd = open_regular(self.path)
        try:
            found = os.fstat(fd)
            state = dict(batch.cursor or {})
            version = [found.st_ino, found.st_size, found.st_mtime_ns]
            if state.get("version") == version and state.get("done"):
                return
            if found.st_size > MAX_BYTES:
                batch.problem(0, "larger than %d MiB" % (MAX_BYTES >> 20))
                return
            with os.fdopen(os.dup(fd), "rb") as file:
                text = file.read(found.st_size).decode("utf-8", "replace")
        finally:
            os.close(fd)
        start = opening(text)
        if start is None or not text.rstrip(BLANKS).endswith("}"):
            return  # it is being written
        self._version = version
        self._history(text, start, state, batch, limit)

    def _history(self, text: str, at: int, state: dict[str, Any], batch: Batch, limit: int) -> None:
        """Read the rows from ``text[at:]`` on that `state` does not have yet."""
        first, count, known, crc = at, 0, state.get("rows", 0), 0
        if known and self._place[:3] == (state["version"], known, state["crc"]):
            _, count, crc, at = self._place
        while True:
            at = skip(text, at)
            ended = text[at : at + 1] == "]"
            if (count == known and known and crc != state.get("crc")) or (ended and count < known):
                batch.reset, known, state = True, 0, {}  # another course: all rows anew
                at, count, crc = first, 0, 0
                continue
            batch.more = not ended and count >= known and len(batch.points) >= limit
            if ended or batch.more:
                break
            try:
                row, after = _decode(text, at)
            except (ValueError, RecursionError) as error:
                if at < len(text):
                    batch.problem(at, "log_history: %s" % error)
                if count < known:
                    return
                break
            if count >= known and isinstance(row, dict):
                self._row(flatten(row, MAX_TAGS), at, batch)
            crc = zlib.crc32(text[at:after].encode("utf-8", "replace"), crc)
            count, at = count + 1, after
        batch.cursor = {"rows": count, "crc": crc, "done": not batch.more, "version": self._version}
        self._place = self._version, count, crc, at

    @staticmethod
    def _row(row: dict[str, Any], offset: int, batch: Batch) -> None:
        where = rows.place(row, LAYOUT, {})
        if where is not None:
            rows.add(row, where, LAYOUT, batch, offset)


def opening(text: str) -> int | None:
    """Return the place behind the bracket that opens the history; None when it is not there."""
    at = text.find(KEY)
    if at < 0:
        return None
    at = text.find("[", at, at + len(KEY) + 100)
    return None if at < 0 else at + 1


def skip(text: str, at: int) -> int:
    """Return the place of the next row or of the end of the list."""
    while at < len(text) and text[at] in BLANKS + ",":
        at += 1
    return at
