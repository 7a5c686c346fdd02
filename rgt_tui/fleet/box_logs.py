"""Read parts of a log on a box that are not buffered here: older lines, a search, exact bytes.

A box may answer anything: its data is limited in size, and an invalid answer raises a `BoxError`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import asyncssh
import msgspec
from rgt_wire import line_text

from rgt_tui.fleet.connector import Backoff
from rgt_tui.fleet.errands import connected_agent
from rgt_tui.fleet.kept_lines import FilePlace, KeptLines
from rgt_tui.fleet.work.agent_answers import Row, query_agent, row_count
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, FrozenStruct, clean_text
from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    BoxTransport,
    CatFailed,
    CommandFailed,
    ConfigError,
    DeployedAgent,
    DeployFailed,
    FileBegins,
    FileProgress,
    HostKeyRefused,
    NoCommands,
    NoPython,
    Unreachable,
    extract_record,
    run_command,
    stream_cat,
)

PIECE_BYTES = 512 << 10
"""Bytes of older lines read at a time."""
LARGEST_PIECE = 8 << 20
"""A longer line is skipped."""
AROUND_BYTES = 128 << 10
"""Bytes read before and after a position to show it."""
SECONDS = 30.0
MOST_HITS = 1000
HIT_CHARACTERS = 300
_NOTHING = hashlib.sha256(b"").hexdigest()
FOREVER = (CatFailed, AuthFailed, HostKeyRefused, ConfigError)
"""Errors that a retry cannot fix."""
INCAPABLE = (NoPython, NoCommands, DeployFailed)
"""Errors that a retry cannot fix on a box that never worked. Later their cause may be a full disk,
or a lack of memory for another process."""
NOTES = {
    "rotated": "{path} was rotated; continuing with the current file",
    "truncated": "{path} was truncated or rewritten; continuing from its first byte",
    "removed": "{path} was removed; continuing with the new file",
    "replaced": "{path} was replaced, and the old file cannot be found: its text after byte "
    "{offset:,} is missing here",
}


class NothingOlder(Exception):
    """No older lines can be added; the message says why."""


class LogPiece(FrozenStruct, kw_only=True):
    """Some complete lines of a log."""

    lines: tuple[str, ...]
    place: FilePlace
    """Position of the first line."""
    end: int
    """Byte offset after the last line."""
    size: int
    """Size of the file now."""


class BoxHit(FrozenStruct, kw_only=True):
    """A matching line on the box."""

    text: str
    place: FilePlace


class BoxSearch(FrozenStruct, kw_only=True):
    """Progress of a search on the box."""

    hits: tuple[BoxHit, ...] = ()
    """New matches of this answer. The search begins at the log's end, so the newest come first."""
    matches: int = 0
    """Total number of matches."""
    read: int = 0
    """Bytes searched."""
    ended: bool = False
    incomplete: str = ""
    """Why part of the log was not searched; empty = no problem so far."""


class Surroundings(NamedTuple):
    """The lines around a position of a log."""

    kept: KeptLines
    number: int
    """Number of the line at the position."""
    size: int
    """Size of the file now."""


Agent = tuple[BoxTransport, DeployedAgent]


class BoxLog:
    """One log on its box.

    Args:
        agent: Returns the connection to the box and its agent; raises `BoxError` while not
            connected.
        path: Of the log.
    """

    def __init__(self, agent: Callable[[], Agent], path: str) -> None:
        self.path = path
        self._agent = agent

    async def load_older(self, kept: KeptLines) -> int:
        """Add the lines before those buffered.

        Returns:
            The number before which lines have changed.

        Raises:
            NothingOlder: the log begins here, or a limit is reached.
            BoxError: the box does not send them.
        """
        if kept.oldest_position is None:
            raise NothingOlder(translate("it is not known where on the box these lines are"))
        number, place = known = kept.oldest_position
        if place.offset == 0:
            raise NothingOlder(translate("this is the beginning of the log"))
        length = PIECE_BYTES
        while True:
            start = max(0, place.offset - length)
            piece = await self.read_piece(place.inode, start, place.offset)
            if piece.lines or start == 0 or length >= LARGEST_PIECE:
                break
            # A line longer than the piece: further back, until its beginning is found.
            length *= 4
        if kept.oldest_position != known:  # the log was truncated meanwhile
            return kept.first_number
        if not piece.lines:
            raise NothingOlder(translate("the line before these is too long to be shown"))
        if not kept.replace_before(number, piece.lines, piece.place):
            raise NothingOlder(
                translate("no more lines are kept here; a search on the box reads all of them")
            )
        return number

    async def load_newer(self, kept: KeptLines) -> int:
        """Add the lines after those buffered; return their number.

        Raises:
            BoxError: the box does not send them.
        """
        if kept.inode is None:
            return 0
        piece = await self.read_piece(kept.inode, kept.reached, kept.reached + PIECE_BYTES)
        kept.record_position(piece.place)
        kept.append_lines(piece.lines)
        kept.reached = max(kept.reached, piece.end)
        return len(piece.lines)

    async def read_around(self, place: FilePlace) -> Surroundings:
        """Return the lines around a position of the log.

        Raises:
            BoxError: the box does not send them.
        """
        before = await self.read_piece(
            place.inode, max(0, place.offset - AROUND_BYTES), place.offset
        )
        after = await self.read_piece(place.inode, place.offset, place.offset + AROUND_BYTES)
        kept = KeptLines(self.path)
        kept.record_position(before.place if before.lines else place)
        kept.append_lines(before.lines)
        number = kept.end
        kept.append_lines(after.lines)
        kept.inode, kept.reached = place.inode, max(after.end, place.offset)
        return Surroundings(kept, number, after.size)

    async def read_piece(self, inode: int, start: int, stop: int) -> LogPiece:
        """Read the complete lines between two bytes of the log, also of a rotated one.

        Args:
            inode: Of the file with the bytes.
            start: Where to begin; a line that began before it is left out.
            stop: Where to end; a line that ends after it is left out.

        Raises:
            BoxError: the box, or that file, can no longer be read.
        """
        begin = max(0, start - 1)  # the byte before shows whether a line begins here
        words = (
            "--path",
            _escape_glob(self.path),
            "--cursor",
            _unverified_cursor(inode, begin),
            "--until",
            str(stop),
        )
        data = bytearray()
        size = stop
        try:
            async with asyncio.timeout(SECONDS):
                async for item in stream_cat(*self._agent(), *words, silence=SECONDS):
                    if isinstance(item, FileBegins):
                        # The agent continues with the newer file if the old one is gone, which is
                        # not the requested one.
                        if item.inode != inode or item.start != begin:
                            raise CatFailed(
                                translate(
                                    "that part of the log is no longer on the box: it was cut or "
                                    "replaced"
                                )
                            )
                        size = item.size
                        continue
                    data += item
                    if len(data) > stop - begin:
                        raise CatFailed(
                            translate("the box sent more of the log than was asked for")
                        )
        except TimeoutError:
            raise CommandFailed(
                translate(
                    "the box did not send that part of the log within {seconds:g} s",
                    seconds=SECONDS,
                )
            ) from None
        except EOFError as error:
            raise Unreachable(str(error)) from error
        first = 0
        if start > 0:
            # Without any line feed there is no beginning of a line in it.
            first = data.find(b"\n") + 1 or len(data)
        # The rest is part of a line that ends beyond this piece.
        end = max(first, data.rfind(b"\n") + 1)
        lines = lines_of(bytes(data[first:end]))
        return LogPiece(
            lines=lines, place=FilePlace(inode, begin + first), end=begin + end, size=size
        )

    async def find_line(self, line: int) -> FilePlace:
        """Return the position of a line of the log, counted from 1.

        Raises:
            BoxError: it is unknown.
        """
        for row in await self._read_rows("--line", str(line), "--until", "0"):
            if row.t == "file" and row.start >= 0:
                return FilePlace(row.inode, row.start)
        raise CommandFailed("rgt-box cat: it did not report where the line begins")

    async def count_older(self, kept: KeptLines) -> None:
        """Count the lines before those buffered.

        Raises:
            BoxError: the box does not count them.
        """
        if kept.oldest_position is not None:
            number, place = kept.oldest_position
            kept.counted = await self.count_before(place), number

    async def count_before(self, place: FilePlace) -> int:
        """Return how many lines of the log precede a position.

        Raises:
            BoxError: it is unknown, for instance because counting takes too long.
        """
        cursor = _unverified_cursor(place.inode, place.offset)
        rows = await self._read_rows("--cursor", cursor, "--count", "--until", str(place.offset))
        if rows[0].inode != place.inode or rows[-1].lines < 0:
            raise CommandFailed("rgt-box cat: that part of the log is no longer on the box")
        return rows[-1].lines

    async def _read_rows(self, *words: str) -> list[_LogRow]:
        connection, deployed = self._agent()
        count_seconds = 20.0
        done = await run_command(
            connection,
            deployed.build_command("cat", "--path", _escape_glob(self.path), *words),
            seconds=count_seconds,
            most_bytes=64 << 10,
            name="rgt-box cat",
        )
        rows = []
        for raw in done.out.splitlines():
            try:
                rows.append(msgspec.json.decode(extract_record(raw), type=_LogRow))
            except (msgspec.DecodeError, RecursionError):
                continue
        if not rows or rows[-1].t == "error":
            raise CommandFailed(f"rgt-box cat: {done.words or 'no answer'}")
        return rows

    async def search_log(
        self, wanted: str, *, fixed: bool, fold: bool, each: Callable[[BoxSearch], None]
    ) -> BoxSearch:
        """Search the complete log on the box, its end first; at most about 1 MB is sent.

        Args:
            wanted: A text, or a Python regular expression.
            fixed: It is a text.
            fold: Ignore case.
            each: Called with each match and with the progress.

        Returns:
            The final result.

        Raises:
            BoxError: the box cannot be queried, or refuses the expression.
        """
        words = ["grep", "--count", "--nice", "--progress", "0.5", "--max", str(MOST_HITS)]
        # KiB of matching lines sent; further ones are only counted.
        most_sent_kib = 768
        words += [
            "--cut",
            str(HIT_CHARACTERS),
            "--most-kib",
            str(most_sent_kib),
            "--limit-mib",
            str(1 << 30),
        ]
        search_seconds = 900.0
        words += [
            "--timeout",
            f"{search_seconds:g}",
            *["--fixed"] * fixed,
            *["--ignore-case"] * fold,
        ]
        words += ["--", wanted, self.path]
        sent = 0
        last = BoxSearch()

        def apply_row(row: Row) -> None:
            nonlocal sent, last
            if row.get("end") is True:
                why = row.get("stopped") or next(
                    (
                        str(one.get("error"))
                        for one in row.get("problems") or ()
                        if isinstance(one, dict)
                    ),
                    "",
                )
                last = BoxSearch(
                    matches=row_count(row, "matches"),
                    read=row_count(row, "read"),
                    ended=True,
                    incomplete=str(why)[:200],
                )
                return
            if row.get("progress") is True:
                each(BoxSearch(matches=row_count(row, "matches"), read=row_count(row, "read")))
                return
            hit = _parse_hit(row)
            # The box could send more than it was asked for.
            if hit is not None and sent < MOST_HITS:
                sent += 1
                each(BoxSearch(hits=(hit,)))

        answer = await query_agent(
            *self._agent(), words, seconds=search_seconds + SECONDS, each=apply_row
        )
        if not last.ended:
            raise CommandFailed(f"rgt-box grep: {answer.words or f'exit {answer.status}'}")
        return last


def lines_of(data: bytes) -> tuple[str, ...]:
    """Return the lines of a log as the agent shows them.

    A progress bar has its last state, and long lines are truncated.
    """
    return tuple(clean_text(line_text(raw)) for raw in data.split(b"\n")[:-1])


def _escape_glob(path: str) -> str:
    """Escape a path so that the agent does not treat it as a glob."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)


def _unverified_cursor(inode: int, offset: int) -> str:
    """Return a cursor with the hash of no bytes, so that nothing before it is verified."""
    return f"{inode}:{offset}:0:{_NOTHING}"


class _LogRow(FrozenStruct):
    t: str
    inode: int = 0
    start: int = 0
    lines: int = -1


def _parse_hit(row: dict[str, Any]) -> BoxHit | None:
    text, offset, inode = row.get("text"), row.get("offset"), row.get("inode")
    if (
        not isinstance(text, str)
        or not isinstance(offset, int)
        or not isinstance(inode, int)
        or offset < 0
    ):
        return None
    return BoxHit(text=clean_text(text[: HIT_CHARACTERS + 20]), place=FilePlace(inode, offset))


# Reads a file on a box byte by byte across lost connections: no gap, no repeat.


class ExactLogRequest(FrozenStruct):
    """Which file to read, and how."""

    path: str
    """Path on the box; ``~`` and globs are expanded there."""
    follow: bool = False
    lines: int | None = None
    """Begin with this many last lines; None = with the first byte."""
    patience: float = 60.0
    """Seconds without a connection before giving up; when following, only until the box was first
    reached."""
    accept_new_host_keys: bool = False


class ExactLog:
    """Reads one file.

    Args:
        spec: The box.
        request: The file and options.
        say: Called with messages for the reader: lost connections, rotation.
    """

    def __init__(self, spec: BoxSpec, request: ExactLogRequest, say: Callable[[str], None]) -> None:
        self._spec, self._request, self._say = spec, request, say
        self._place = FileProgress()
        self._path = request.path
        self._until: int | None = None
        self._known = False
        """Set when the file was found."""
        self._reached = False
        """Set when the box was reached: from then on a follower retries without a limit."""

    @property
    def path(self) -> str:
        """The path as expanded by the agent; before the first byte, as requested."""
        return self._path

    @property
    def offset(self) -> int:
        """Offset in its file of the piece yielded last."""
        return self._place.offset

    async def stream_pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they arrive.

        A piece counts as received when the next one is requested.

        Raises:
            CatFailed: the file cannot be read.
            BoxError: the box cannot be reached, permanently or for longer than the patience.
        """
        backoff = Backoff()
        heard = time.monotonic()
        # Seconds without data after which the reader is notified that the followed file does not
        # exist yet.
        absent_seconds = 3.0
        while True:
            try:
                async with connected_agent(
                    self._spec, accept_new_host_keys=self._request.accept_new_host_keys
                ) as (
                    connection,
                    deployed,
                ):
                    self._reached = True
                    absent = asyncio.get_running_loop().call_later(
                        absent_seconds, self._report_absence
                    )
                    try:
                        async for item in stream_cat(
                            connection,
                            deployed,
                            *self._cat_arguments(),
                            silence=self._allowed_silence(),
                        ):
                            absent.cancel()
                            if isinstance(item, FileBegins):
                                self._begin_file(item)
                            else:
                                yield item
                                self._place.add_piece(item)
                            heard = time.monotonic()
                            backoff.reset()
                    finally:
                        absent.cancel()
                return
            except FOREVER:
                raise
            except (BoxError, asyncssh.Error, OSError, EOFError, TimeoutError) as error:
                if isinstance(error, INCAPABLE) and not self._reached:
                    raise
                words = str(error) or type(error).__name__
                stays = self._request.follow and self._reached
                if not stays and time.monotonic() - heard > self._request.patience:
                    raise error if isinstance(error, BoxError) else Unreachable(words) from error
                wait = backoff.next_wait_s()
                self._say(
                    translate(
                        "{words}; trying again in {wait:.0f} s, from byte {offset:,}",
                        words=words,
                        wait=wait,
                        offset=self._place.offset,
                    )
                )
                await asyncio.sleep(wait)

    def _report_absence(self) -> None:
        if self._request.follow and not self._known:
            self._say(
                translate(
                    "cannot read {path} yet; waiting for it (Ctrl-C to stop)", path=self._path
                )
            )

    def _allowed_silence(self) -> float | None:
        """Return how many seconds of silence are allowed; None when following."""
        if self._request.follow:
            return None
        # Seconds without data on an open connection after which a disk probably hangs.
        silent_seconds = 30.0
        return max(silent_seconds, self._request.patience)

    def _cat_arguments(self) -> list[str]:
        words = ["--path", self._path]
        cursor = self._place.resume_cursor()
        if cursor is not None:
            words += ["--cursor", cursor]
        elif self._request.lines is not None:
            words += ["--lines", str(self._request.lines)]
        if self._until is not None:
            words += ["--until", str(self._until)]
        if self._request.follow:
            return [*words, "--follow"]
        return words

    def _begin_file(self, file: FileBegins) -> None:
        if file.why in NOTES:
            note = translate(NOTES[file.why], path=file.path, offset=self._place.offset)
            if not self._request.follow:
                raise CatFailed(note)
            self._say(note)
        if not self._known:
            self._known = True
            self._path = file.path
            if self._request.follow:
                self._until = None
            else:
                self._until = file.size
        self._place.begin_file(file)
