"""The format of a recording and its reader: JSON lines, a header first, then the received frames.

See docs/replay.md. The frames are those of docs/protocol.md, byte for byte, so that a reader of the
connection can read a recording. It also has events without a frame: lost connections, and the
provider's answers.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec

from rgt_tui import __version__
from rgt_tui.files import open_regular
from rgt_tui.fleet import shift_state
from rgt_tui.model import BoxSpec, BoxState, FrozenStruct, LinkState, Meter

FORMAT = 1
# Four times the largest frame, because base64 and the wrapper make it longer.
LONGEST = 4 << 20
"""A longer line is invalid."""

_replace = msgspec.structs.replace
GZIP = b"\x1f\x8b"
BATCH = 64
# Times of a broken clock or a hostile file would make the replay wait for years.
LONGEST_SECONDS = 10 * 366 * 86400.0
"""A time further from the recording's start is invalid."""


class RecordingError(Exception):
    """The file is not a playable recording; the message says why."""


class DamagedLine(ValueError):
    """One line is invalid; the others are usable."""


class RecordingHeader(FrozenStruct):
    """The first line."""

    recording: int
    """The format's version."""
    rgt: str
    started: float
    """Client clock, epoch seconds, as for every `at` below."""
    boxes: tuple[BoxSpec, ...]


class StateChange(FrozenStruct, omit_defaults=True):
    """A change in a box's state without a frame."""

    link: LinkState | None = None
    reason: str = ""
    since: float = 0.0
    retry_at: float | None = None
    meter: Meter | None = None
    limited: tuple[str, ...] | None = None
    interval: float | msgspec.UnsetType | None = msgspec.UNSET
    """As `BoxState.interval`."""
    moved: float = 0.0
    """By how many seconds the client's clock was set just before, positive = forward; `at` is in
    the new time."""


class RecordingEntry(FrozenStruct, omit_defaults=True):
    """Any further line: of one box at one time, with one of the three."""

    box: str
    at: float
    # Raw: kept as bytes, so that a newer agent's unknown fields survive a recording.
    line: msgspec.Raw = msgspec.Raw(b"")
    """A frame as received."""
    raw: str | None = None
    """A line that was not JSON, base64."""
    set: StateChange | None = None


_header = msgspec.json.Decoder(RecordingHeader)
_entry = msgspec.json.Decoder(RecordingEntry)
_any = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


def header_line(specs: Sequence[BoxSpec], started: float) -> bytes:
    """Return the first line: the boxes, without secrets and local paths."""
    return (
        _encode(
            RecordingHeader(
                FORMAT, __version__, started, tuple(spec.without_secrets() for spec in specs)
            )
        )
        + b"\n"
    )


def frame_line(box: str, at: float, line: bytes) -> bytes:
    """Return the recording's line for a received line."""
    prefix = b'{"box":' + _encode(box) + b',"at":' + _encode(at)
    try:
        # Only to see whether it is JSON: the bytes are stored as they came.
        _any.decode(line)
    except (ValueError, RecursionError):
        return prefix + b',"raw":"' + base64.b64encode(line) + b'"}\n'
    return prefix + b',"line":' + line.strip() + b"}\n"


def change_line(old: BoxState | None, new: BoxState, at: float) -> bytes | None:
    """Return the line for changes of a box without a frame; None = no such change.

    Args:
        old: The state before; None = the first.
        new: The state after.
        at: Client clock.
    """
    before = old or BoxState(spec=new.spec)
    # LIVE follows from the first frame, so it needs no line of its own.
    link = new.link is not LinkState.LIVE and (new.link, new.reason, new.retry_at) != (
        before.link,
        before.reason,
        before.retry_at,
    )
    new_link = None
    reason = ""
    since = 0.0
    retry_at = None
    if link:
        new_link = new.link
        reason = new.reason
        since = new.since
        retry_at = new.retry_at
    meter = None
    if new.meter != before.meter:
        meter = new.meter
    limited = None
    if new.limited != before.limited:
        limited = new.limited
    interval: float | msgspec.UnsetType | None = msgspec.UNSET
    if new.interval != before.interval:
        interval = new.interval
    found = StateChange(
        link=new_link,
        reason=reason,
        since=since,
        retry_at=retry_at,
        meter=meter,
        limited=limited,
        interval=interval,
    )
    if found == StateChange():
        return None
    if link and before.link is not new.link:
        # The moment of the change, which may be earlier than its publication.
        when = new.since
    else:
        when = at
    return _encode(RecordingEntry(box=new.spec.name, at=when, set=found)) + b"\n"


def clock_set(box: str, at: float, moved: float) -> bytes:
    """Return the line for a change of the client's clock.

    Args:
        box: Its name; each box has such a line.
        at: Client clock, the new time.
        moved: By how many seconds, positive = forward.
    """
    return _encode(RecordingEntry(box=box, at=at, set=StateChange(moved=moved))) + b"\n"


def read_header(line: bytes, name: str) -> RecordingHeader:
    """Decode the header.

    Args:
        line: The first line of the file called `name`.
        name: For the message.

    Raises:
        RecordingError: it is not a header, or of a newer format.
    """
    try:
        # First the version alone: a newer header need not decode as ours.
        version = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).get("recording")
        if version is None:
            number = None
        else:
            number = msgspec.json.decode(version, type=int)
    except (ValueError, RecursionError):
        number = None
    if number is None:
        raise RecordingError(f"{name} is not an rgt recording: its first line is not a header")
    if number > FORMAT:
        raise RecordingError(
            f"{name} was recorded by a newer rgt (format {number}, this one knows {FORMAT}); "
            "update rgt"
        )
    try:
        found = _header.decode(line)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{name}: the header on line 1 cannot be used: {error}") from error
    if not math.isfinite(found.started) or not found.boxes:
        raise RecordingError(f"{name}: the header on line 1 names no boxes, or no time")
    return found


def read_entry(line: bytes) -> RecordingEntry:
    """Decode an entry.

    Raises:
        DamagedLine: it is not a valid entry.
    """
    try:
        entry = _entry.decode(line)
    except (ValueError, RecursionError) as error:
        raise DamagedLine(str(error)[:200]) from error
    if not math.isfinite(entry.at) or (
        entry.set is not None and not math.isfinite(entry.set.moved)
    ):
        raise DamagedLine("its time is not a number")
    return entry


def wire_of(entry: RecordingEntry) -> bytes | None:
    """Return the received line in an entry, byte for byte; None = it has none.

    Raises:
        DamagedLine: it cannot be decoded.
    """
    if entry.raw is not None:
        try:
            return base64.b64decode(entry.raw, validate=True)
        except (binascii.Error, ValueError) as error:
            raise DamagedLine(f"raw: {error}") from error
    return bytes(entry.line) or None


def apply_change(state: BoxState, what: StateChange) -> BoxState:
    """Return a box's state after a change without a frame."""
    state = shift_state(state, what.moved)
    if what.link is not None:
        state = _replace(
            state, link=what.link, reason=what.reason, since=what.since, retry_at=what.retry_at
        )
    if what.meter is not None:
        state = _replace(state, meter=what.meter)
    if what.limited is not None:
        state = _replace(state, limited=what.limited)
    if what.interval is not msgspec.UNSET:
        state = _replace(state, interval=what.interval)
    return state


# Reads a recording line by line, and reports the damaged lines.


class SkippedLine(FrozenStruct):
    """A line that could not be used."""

    line: int
    """Its number; the header is line 1."""
    why: str
    torn: bool = False
    """It is the last one, and was not completed."""

    def __str__(self) -> str:
        return f"line {self.line} was left out: {self.why}"


class LinePlace(NamedTuple):
    """A place between two lines."""

    offset: int
    """In bytes, uncompressed."""
    line: int
    """Number of the last line before it."""
    set_by: float = 0.0
    """By how many seconds the recording's clock has been set up to there."""
    set_at: float | None = None
    """The new time of the last clock change."""


class TimedEntry(NamedTuple):
    """An entry in the order of time."""

    entry: RecordingEntry
    moved: float
    """By how many seconds the clock was set just before. Every box has an entry for it, at the same
    time; only the first one counts."""


Item = TimedEntry | SkippedLine
_UNREADABLE = (OSError, EOFError, zlib.error)


class RecordingReader:
    """Reads a recording from its first entry to its last. Blocks: call it in a thread.

    Args:
        path: The file.
        start: Where to begin, a `next_place`; None = at the first entry.

    Raises:
        RecordingError: it cannot be read, or is not a recording.
    """

    def __init__(self, path: Path, start: LinePlace | None = None) -> None:
        self.path = path
        try:
            self._file = _open_file(path)
            first = self._file.readline(LONGEST)
            if start is not None:
                # In a gzip file Python reads again from the start, so this is slow but correct.
                self._file.seek(start.offset)
        except _UNREADABLE as error:
            raise RecordingError(
                f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from error
        self.header: RecordingHeader = read_header(first, str(path))
        self._names = frozenset(spec.name for spec in self.header.boxes)
        _, self._number, self._set_by, self._set_at = start or LinePlace(0, 1)
        self._end = self.header.started
        self._over = False

    @property
    def next_place(self) -> LinePlace:
        """The place up to which it has been read."""
        return LinePlace(self._file.tell(), self._number, self._set_by, self._set_at)

    @property
    def position(self) -> float:
        """The latest time read, in seconds since the beginning, without clock changes."""
        return self._end - self._set_by - self.header.started

    def read(self, count: int = BATCH) -> list[Item]:
        """Return the next items, at most `count`; [] at the end."""
        found: list[Item] = []
        while len(found) < count and not self._over:
            found += self._next_items()
        return found

    def _next_items(self) -> Iterator[Item]:
        self._number += 1
        try:
            line = self._file.readline(LONGEST)
        except _UNREADABLE as error:
            self._over = True
            yield SkippedLine(self._number, f"the file ends in its middle ({error})", torn=True)
            return
        if not line:
            self._over = True
            return
        # The rest is skipped, because it could look like an entry.
        if not line.endswith(b"\n") and len(line) >= LONGEST:
            try:
                self._skip_rest()
            except _UNREADABLE:
                self._over = True
            yield SkippedLine(self._number, f"it is longer than {LONGEST:,} bytes")
            return
        try:
            entry = read_entry(line)
            if entry.box not in self._names:
                raise DamagedLine("it is of a box that the header does not name")
            if abs(entry.at - self.header.started) > LONGEST_SECONDS:
                raise DamagedLine("its time is years away from the header's")
            # Decoded here already, so that damage is reported with its line number.
            wire_of(entry)
            yield self._timed(entry)
        except DamagedLine as error:
            torn = not line.endswith(b"\n")
            reason = "the file ends in its middle"
            if not torn:
                reason = str(error)
            yield SkippedLine(self._number, reason, torn)

    def _timed(self, entry: RecordingEntry) -> TimedEntry:
        moved = 0.0
        # Every box has the same line for a clock change; it must count once.
        if entry.set is not None and entry.set.moved and entry.at != self._set_at:
            moved, self._set_at, self._end = entry.set.moved, entry.at, entry.at
            self._set_by += moved
        self._end = max(self._end, entry.at)
        return TimedEntry(entry, moved)

    def _skip_rest(self) -> None:
        while True:
            line = self._file.readline(LONGEST)
            if not line or line.endswith(b"\n"):
                return

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _open_file(path: Path) -> IO[bytes]:
    with open_regular(path) as file:
        zipped = file.read(2) == GZIP
    if zipped:
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return open_regular(path)
