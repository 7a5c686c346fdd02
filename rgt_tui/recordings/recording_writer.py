"""Records what comes over the wire: an observer of the fleet that writes a file which can be replayed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from rgt_tui.fleet import connector
from rgt_tui.model import BoxSpec, BoxState, FleetEvent, FleetState
from rgt_tui.recordings import recording_lines

FLUSH_SECONDS = 0.5
MOST_WAITING = 64 << 20
"""Bytes that wait for the disk; one that lets more of them wait does not keep up."""
MOST_AT_ONCE = 32 << 10
"""Bytes of lines that are written together: what a full disk does not take is lost as a whole, the header with it."""
CLOSE_SECONDS = 10.0
"""For what waits to be written and the file to be ended."""
GZIP_WINDOW = 31
"""zlib's number for a gzip member with the largest window."""


REPLAYABLE = "What it holds can be replayed"


class RecordFailed(Exception):
    """The file cannot be written; the message names it and says what to do."""


class LineFile:
    """Appends whole lines to a new file, gzipped where its name ends in ``.gz``.

    Args:
        path: The file; it must not exist.
        on_begun: Called once, when the first lines are in it.

    Raises:
        RecordFailed: it exists, or cannot be made.
    """

    def __init__(self, path: Path, on_begun: Callable[[Path], None] = lambda path: None) -> None:
        if path.suffix in (".zst", ".xz", ".bz2"):
            raise RecordFailed(
                f"{path}: only .gz is compressed; name it …{path.suffix and '.gz'}, or without"
            )
        self.path = path
        self.written = 0
        self._on_begun = on_begun
        self._broken = False
        self._gzip = zlib.compressobj(6, wbits=GZIP_WINDOW) if path.suffix == ".gz" else None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except FileExistsError:
            raise RecordFailed(
                f"{path} already exists; a recording never replaces a file"
            ) from None
        except OSError as error:
            raise RecordFailed(f"{path} cannot be created: {error.strerror}") from error

    def append(self, lines: bytes) -> None:
        """Append lines; either all of them are in the file afterwards, or none.

        Raises:
            RecordFailed: they are not.
        """
        begins = not self.written
        if self._gzip is None:
            self._write(lines)
        else:
            self._write(self._gzip.compress(lines) + self._gzip.flush(zlib.Z_SYNC_FLUSH))
        if begins:
            self._on_begun(self.path)

    def _write(self, data: bytes) -> None:
        end = -1
        try:
            end = os.fstat(self._fd).st_size
            done = 0
            while done < len(data):
                done += os.write(self._fd, data[done:])
            self.written += len(data)
        except OSError as error:
            self._broken = True
            if end >= 0:
                with contextlib.suppress(
                    OSError
                ):  # then its last line is torn, which a replay names
                    os.ftruncate(self._fd, end)
            if not self.written:
                with contextlib.suppress(
                    OSError
                ):  # an empty file would only stand in the way of the next try
                    self.path.unlink()
            raise self._ends(error) from error

    def _ends(self, error: OSError) -> RecordFailed:
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        if not self.written:
            return RecordFailed(f"{self.path}: {why}; nothing was written")
        return RecordFailed(f"{self.path} ends here: {why}. {REPLAYABLE}")

    def close(self) -> None:
        """End the file; it is on the disk when this returns.

        Raises:
            RecordFailed: its end could not be written; a replay does without.
        """
        try:
            try:
                if (
                    self._gzip is not None and not self._broken
                ):  # the end belongs to what was written, all of it
                    self._write(self._gzip.flush())
                os.fsync(self._fd)
            finally:
                os.close(self._fd)
        except OSError as error:
            raise self._ends(error) from error


class Recorder:
    """A `Tap` (`Recorder.tap`) and an `Observer`. A thread of its own writes.

    Args:
        file: Where to.
        specs: The boxes.
        started: Client clock.
        clock: The client clock.
    """

    def __init__(
        self,
        file: LineFile,
        specs: Sequence[BoxSpec],
        started: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.frames: dict[str, int] = {spec.name: 0 for spec in specs}
        self.failed = asyncio.Event()
        """Set when nothing can be written any more; `failure` then says why."""
        self.failure: RecordFailed | None = None
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        """Bytes of `_lines`."""
        self._known: dict[str, BoxState] = {}
        self._clock = clock
        self._times = connector.read(clock())
        self._last = started
        self._put(recording_lines.header(specs, started))
        self._thread = threading.Thread(target=self._run, name="rgt-record", daemon=True)
        self._thread.start()

    def tap(self, box: str, at: float, line: bytes) -> None:
        """Receive a line of the wire."""
        self.frames[box] = self.frames.get(box, 0) + 1
        if abs(at - self._last) > connector.JUMP_SECONDS:
            self._look_at_clock()
        self._last = at
        self._put(recording_lines.frame(box, at, line))

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Receive a state, for what no frame says."""
        self._look_at_clock()
        for _, new in changed:
            line = recording_lines.change(self._known.get(new.spec.name), new, state.at)
            self._known[new.spec.name] = new
            if line is not None:
                self._put(line)

    def _look_at_clock(self) -> None:
        """Say of every box that the clock was set, before anything that came by the new time."""
        before, self._times = self._times, connector.read(self._clock())
        jump = connector.jump(before, self._times)
        if jump is not None and jump.moved:
            for box in self.frames:
                self._put(recording_lines.clock_set(box, self._times.wall, jump.moved))

    def happened(self, events: tuple[FleetEvent, ...]) -> None:
        """Nothing: a replay finds out again what happened."""

    async def close(self) -> None:
        """Write what is left and end the file. A disk that does not answer is left to itself, and `failure` says so."""
        self._lines.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        if self._thread.is_alive():
            self._fail(f"the disk has not answered for {CLOSE_SECONDS:.0f} s")

    def _put(self, line: bytes) -> None:
        if self.failure is not None:
            return
        with self._lock:
            self._waiting += len(line)
            waiting = self._waiting
        if waiting > MOST_WAITING:
            self._fail(f"the disk does not keep up, {waiting >> 20} MiB wait to be written")
            self._lines.put(None)  # what waits is whole up to here
        else:
            self._lines.put(line)

    def _fail(self, why: str) -> None:
        self.failure = self.failure or RecordFailed(
            f"{self._file.path} ends here: {why}. {REPLAYABLE}"
        )
        self.failed.set()

    def _run(self) -> None:
        first: Exception | None = None
        for work in (self._take_all, self._file.close):
            try:
                work()
            except Exception as error:
                first = first or error
        if first is None:
            return
        ours = f"{self._file.path} ends here: {type(first).__name__}: {first}; this is a fault of rgt. {REPLAYABLE}"
        self.failure = self.failure or (
            first if isinstance(first, RecordFailed) else RecordFailed(ours)
        )
        with contextlib.suppress(
            RuntimeError
        ):  # the loop has gone: who closed it has looked at `failure`
            self._loop.call_soon_threadsafe(self.failed.set)

    def _take_all(self) -> None:
        while self._take():
            pass

    def _take(self) -> bool:
        """Write what has come; wait for it first. Returns False at the end."""
        lines: list[bytes] = []
        size = 0
        line = self._lines.get()
        while line is not None:
            lines.append(line)
            size += len(line)
            if size >= MOST_AT_ONCE:
                break
            try:
                line = self._lines.get(timeout=FLUSH_SECONDS if len(lines) == 1 else 0)
            except queue.Empty:
                break
        if lines:
            data = b"".join(lines)
            self._file.append(data)
            with self._lock:
                self._waiting -= len(data)
        return line is not None
