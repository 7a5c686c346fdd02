"""Record what comes over the wire: the fleet's tap and observer that writes a file which can be replayed."""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

from rgt_tui.fleet import recording
from rgt_tui.model.box import BoxSpec, BoxState
from rgt_tui.model.fleet import FleetEvent, FleetState

FLUSH_SECONDS = 0.5
GZIP_WINDOW = 31
"""zlib's number for a gzip member with the largest window."""


class RecordFailed(Exception):
    """The file cannot be written; the message names it and says what to do."""


class LineFile:
    """Appends whole lines to a new file, gzipped where its name ends in ``.gz``.

    Args:
        path: The file; it must not exist.

    Raises:
        RecordFailed: it exists, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        if path.suffix in (".zst", ".xz", ".bz2"):
            raise RecordFailed(
                f"{path}: only .gz is compressed; name it …{path.suffix and '.gz'}, or without"
            )
        self.path = path
        self.written = 0
        self._gzip = zlib.compressobj(6, wbits=GZIP_WINDOW) if path.suffix == ".gz" else None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except FileExistsError:
            raise RecordFailed(f"{path} exists already; a recording never replaces a file") from None
        except OSError as error:
            raise RecordFailed(f"{path} cannot be made: {error.strerror}") from error

    def append(self, lines: bytes) -> None:
        """Append lines; either all of them are in the file afterwards, or none.

        Raises:
            RecordFailed: they are not.
        """
        if self._gzip is None:
            self._write(lines)
        else:
            self._write(self._gzip.compress(lines) + self._gzip.flush(zlib.Z_SYNC_FLUSH))

    def _write(self, data: bytes) -> None:
        end = os.fstat(self._fd).st_size
        try:
            done = 0
            while done < len(data):
                done += os.write(self._fd, data[done:])
            self.written += len(data)
        except OSError as error:
            os.ftruncate(self._fd, end)
            why = "the disk is full" if error.errno == errno.ENOSPC else str(error.strerror)
            raise RecordFailed(f"{self.path} ends here: {why}. What it holds can be replayed") from error

    def close(self) -> None:
        """End the file.

        Raises:
            RecordFailed: its end could not be written; a replay does without.
        """
        try:
            if self._gzip is not None:
                self._write(self._gzip.flush())
        finally:
            os.close(self._fd)


class Recorder:
    """A `Tap` (`Recorder.tap`) and an `Observer`. A thread of its own writes.

    Args:
        file: Where to.
        specs: The boxes.
        started: Client clock.
    """

    def __init__(self, file: LineFile, specs: Sequence[BoxSpec], started: float) -> None:
        self.frames: dict[str, int] = {spec.name: 0 for spec in specs}
        self.failed = asyncio.Event()
        """Set when nothing can be written any more; `failure` then says why."""
        self.failure: RecordFailed | None = None
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._known: dict[str, BoxState] = {}
        self._lines.put(recording.header(specs, started))
        self._thread = threading.Thread(target=self._run, name="rgt-record", daemon=True)
        self._thread.start()

    def tap(self, box: str, at: float, line: bytes) -> None:
        """Take in a line of the wire."""
        self.frames[box] = self.frames.get(box, 0) + 1
        self._put(recording.frame(box, at, line))

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Take in what no frame says."""
        for _, new in changed:
            line = recording.change(self._known.get(new.spec.name), new, state.at)
            self._known[new.spec.name] = new
            if line is not None:
                self._put(line)

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Nothing: a replay finds out again what happened."""

    async def close(self) -> None:
        """Write what is left and end the file."""
        self._lines.put(None)
        await asyncio.to_thread(self._thread.join)

    def _put(self, line: bytes) -> None:
        if self.failure is None:
            self._lines.put(line)

    def _run(self) -> None:
        try:
            try:
                while self._take():
                    pass
            finally:
                self._file.close()
        except RecordFailed as error:
            self.failure = self.failure or error
            self._loop.call_soon_threadsafe(self.failed.set)

    def _take(self) -> bool:
        """Write what has come; wait for it first. Returns False at the end."""
        lines: list[bytes] = []
        line = self._lines.get()
        while line is not None:
            lines.append(line)
            try:
                line = self._lines.get(timeout=FLUSH_SECONDS if len(lines) == 1 else 0)
            except queue.Empty:
                break
        if lines:
            self._file.append(b"".join(lines))
        return line is not None
