"""Record received lines: an observer of the fleet that writes a file for replay."""

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

# At most this much is lost to a kill -9; each flush costs a gzip block.
FLUSH_SECONDS = 0.5
MOST_WAITING = 64 << 20
"""Maximum bytes waiting for the disk; beyond, the disk is too slow and recording fails."""
MOST_AT_ONCE = 32 << 10
"""Maximum bytes of lines written together; on a full disk such a write is lost entirely, including
the header."""
CLOSE_SECONDS = 10.0
"""Limit for writing the remaining data and closing the file."""


REPLAYABLE = "What it holds can be replayed"


class RecordFailed(Exception):
    """The file cannot be written; the message includes its path and what to do."""


class LineFile:
    """Appends complete lines to a new file, gzipped if its name ends in ``.gz``.

    Args:
        path: The file; it must not exist.
        on_begun: Called once, after the first lines are written.

    Raises:
        RecordFailed: it exists, or cannot be created.
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
        # zlib's number for a gzip member with the largest window.
        gzip_window = 31
        self._gzip = zlib.compressobj(6, wbits=gzip_window) if path.suffix == ".gz" else None
        # O_EXCL, because a recording cannot be made again.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except FileExistsError:
            raise RecordFailed(
                f"{path} already exists; a recording never replaces a file"
            ) from None
        except OSError as error:
            raise RecordFailed(f"{path} cannot be created: {error.strerror}") from error

    def append_lines(self, lines: bytes) -> None:
        """Append lines; afterwards either all of them are in the file, or none.

        Raises:
            RecordFailed: they could not be written.
        """
        begins = not self.written
        if self._gzip is None:
            self._write_bytes(lines)
        else:
            # A sync flush ends at a byte, so that the file can be unpacked up to here at any time.
            self._write_bytes(self._gzip.compress(lines) + self._gzip.flush(zlib.Z_SYNC_FLUSH))
        if begins:
            self._on_begun(self.path)

    def _write_bytes(self, data: bytes) -> None:
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
                # Otherwise its last line is truncated, which a replay reports.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, end)
            if not self.written:
                with contextlib.suppress(
                    OSError
                ):  # an empty file would only block the next attempt
                    self.path.unlink()
            raise self._build_failure(error) from error

    def _build_failure(self, error: OSError) -> RecordFailed:
        if error.errno == errno.ENOSPC:
            why = "the disk is full"
        else:
            why = error.strerror or str(error)
        if not self.written:
            return RecordFailed(f"{self.path}: {why}; nothing was written")
        return RecordFailed(f"{self.path} ends here: {why}. {REPLAYABLE}")

    def close(self) -> None:
        """Complete the file; it is on disk when this returns.

        Raises:
            RecordFailed: the end could not be written; a replay works without it.
        """
        try:
            try:
                if (
                    self._gzip is not None and not self._broken
                ):  # the gzip end requires a complete stream
                    self._write_bytes(self._gzip.flush())
                os.fsync(self._fd)
            finally:
                os.close(self._fd)
        except OSError as error:
            raise self._build_failure(error) from error


class FleetRecorder:
    """A `Tap` (`FleetRecorder.record_line`) and an `Observer`. A separate thread writes the file.

    Args:
        file: The output.
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
        """Set when writing has failed; `failure` then has the reason."""
        self.failure: RecordFailed | None = None
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        """Bytes in `_lines`."""
        self._known: dict[str, BoxState] = {}
        self._clock = clock
        self._times = connector.read_clocks(clock())
        self._last = started
        self._queue_line(recording_lines.header_line(specs, started))
        self._thread = threading.Thread(target=self._run_writer, name="rgt-record", daemon=True)
        self._thread.start()

    def record_line(self, box: str, at: float, line: bytes) -> None:
        """Receive a raw line from a box."""
        self.frames[box] = self.frames.get(box, 0) + 1
        if abs(at - self._last) > connector.CONNECT_PACES.jump_s:
            self._look_at_clock()
        self._last = at
        self._queue_line(recording_lines.frame_line(box, at, line))

    def published(self, state: FleetState, changed: tuple[tuple[BoxState, BoxState], ...]) -> None:
        """Receive a state, to record changes without a frame."""
        self._look_at_clock()
        for _, new in changed:
            line = recording_lines.change_line(self._known.get(new.spec.name), new, state.at)
            self._known[new.spec.name] = new
            if line is not None:
                self._queue_line(line)

    def _look_at_clock(self) -> None:
        """Record a clock change for every box, before any data with the new time."""
        before, self._times = self._times, connector.read_clocks(self._clock())
        jump = connector.clock_jump(before, self._times)
        if jump is not None and jump.moved:
            for box in self.frames:
                self._queue_line(recording_lines.clock_set(box, self._times.wall, jump.moved))

    def receive_events(self, events: tuple[FleetEvent, ...]) -> None:
        """Do nothing: a replay computes the events again."""

    async def close(self) -> None:
        """Write the remaining data and close the file.

        A disk that hangs is abandoned, and `failure` reports that.
        """
        self._lines.put(None)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        if self._thread.is_alive():
            self._set_failure(f"the disk has not answered for {CLOSE_SECONDS:.0f} s")

    def _queue_line(self, line: bytes) -> None:
        if self.failure is not None:
            return
        with self._lock:
            self._waiting += len(line)
            waiting = self._waiting
        if waiting > MOST_WAITING:
            self._set_failure(f"the disk does not keep up, {waiting >> 20} MiB wait to be written")
            self._lines.put(None)  # the data queued so far ends with a complete line
        else:
            self._lines.put(line)

    def _set_failure(self, why: str) -> None:
        self.failure = self.failure or RecordFailed(
            f"{self._file.path} ends here: {why}. {REPLAYABLE}"
        )
        self.failed.set()

    def _run_writer(self) -> None:
        first: Exception | None = None
        for work in (self._take_all, self._file.close):
            try:
                work()
            except Exception as error:
                first = first or error
        if first is None:
            return
        ours = (
            f"{self._file.path} ends here: {type(first).__name__}: {first}; this is a fault of "
            f"rgt. {REPLAYABLE}"
        )
        self.failure = self.failure or (
            first if isinstance(first, RecordFailed) else RecordFailed(ours)
        )
        # The loop is closed: the caller of `close` has read `failure`.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.failed.set)

    def _take_all(self) -> None:
        while self._write_batch():
            pass

    def _write_batch(self) -> bool:
        """Wait for lines and write them; return False at the end."""
        lines: list[bytes] = []
        size = 0
        line = self._lines.get()
        while line is not None:
            lines.append(line)
            size += len(line)
            if size >= MOST_AT_ONCE:
                break
            try:
                timeout = 0.0
                if len(lines) == 1:
                    timeout = FLUSH_SECONDS
                line = self._lines.get(timeout=timeout)
            except queue.Empty:
                break
        if lines:
            data = b"".join(lines)
            self._file.append_lines(data)
            with self._lock:
                self._waiting -= len(data)
        return line is not None
