"""Parses the answers of the agent's ``send`` as they arrive: headers, raw bytes, ends.

Untrusted input.

Only requested data is accepted, in the order of the requests, and not a byte more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.transfer.ledger import FileStamp

LONGEST_LINE = 64 << 10
MOST_GREETING = 1 << 20
"""Maximum bytes that a login shell may print before the agent's first record."""
_BEGINS = b'{"'


class StreamError(Exception):
    """The input is not what the agent sends."""


class AnswerHead(FrozenStruct, gc=False):
    """`n` bytes of a file follow."""

    id: int
    n: int
    stamp: FileStamp


class AnswerTail(FrozenStruct, gc=False):
    """The end of an answer."""

    id: int
    stamp: FileStamp
    sha256: str | None = None


class HashingNotice(FrozenStruct):
    """The box is hashing."""

    id: int
    busy: int


class FileUnreadable(FrozenStruct):
    """The box cannot read the file."""

    id: int
    error: str
    stamp: FileStamp | None = None
    """Stamp of the file that has replaced it, if it can be requested instead."""


class _AnswerRow(FrozenStruct, gc=False):
    id: int
    n: int | None = None
    stamp: FileStamp | None = None
    sha256: str | None = None
    busy: int | None = None
    error: str | None = None


_decode = msgspec.json.Decoder(_AnswerRow).decode
Piece = AnswerHead | AnswerTail | HashingNotice | FileUnreadable | bytes | memoryview


class PieceDecoder:
    """Splits the input of one stream into pieces.

    Attributes:
        expected: Id of each request, and the maximum bytes of its answer; None = no data.
    """

    def __init__(self) -> None:
        self.expected: deque[tuple[int, int | None]] = deque()
        self._line = bytearray()
        self._left = 0
        self._headed = self._spoken = False
        self._greeting_left = MOST_GREETING

    @property
    def bytes_left(self) -> int:
        """Bytes of file data still to come in the current answer."""
        return self._left

    def feed_data(self, data: bytes | bytearray, count: int | None = None) -> Iterator[Piece]:
        """Yield the pieces that `data` completes; file data as it arrives.

        Args:
            data: The input. Pieces of a `bytearray` are views of it, without a copy.
            count: How many bytes of it are valid; None = all.

        Raises:
            StreamError: it does not answer a request.
        """
        at, end = 0, len(data) if count is None else count
        source = memoryview(data) if isinstance(data, bytearray) else data
        while at < end:
            if self._left:
                whole = source is data and not at and self._left >= end
                # The usual case: the buffer is passed on without a slice.
                if whole:
                    piece = source
                else:
                    piece = source[at : min(end, at + self._left)]
                at += len(piece)
                self._left -= len(piece)
                yield piece
                continue
            stop = data.find(b"\n", at, end)
            line = bytes(source[at : end if stop < 0 else stop])
            # Kept until its end arrives; only here are bytes copied twice.
            if self._line or stop < 0:
                self._line += line
                line = bytes(self._line)
            # Before the test for an end, so that a line without one cannot grow without a limit.
            if len(line) > LONGEST_LINE:
                raise StreamError("a line without an end")
            if stop < 0:
                return
            at = stop + 1
            self._line.clear()
            found = self._parse_record(line)
            if found is not None:
                yield found

    def _parse_record(self, line: bytes) -> Piece | None:
        if not self._spoken:
            self._greeting_left -= len(line) + 1
            if self._greeting_left < 0:
                raise StreamError(
                    "the login shell on the box prints endlessly, and the agent never gets to speak"
                )
            # A login shell may print a greeting, even in the line of the first record.
            begins = line.find(_BEGINS)
            if begins < 0:
                return None
            line = line[begins:]
        try:
            answer = _decode(line)
        except (ValueError, RecursionError) as error:
            # Still the greeting: it has a brace and a quote, too.
            if not self._spoken:
                return None
            raise StreamError(f"something that is not a record: {error}") from error
        self._spoken = True
        return self._check_answer(answer)

    def _check_answer(self, answer: _AnswerRow) -> Piece:
        if not self.expected or answer.id != self.expected[0][0]:
            raise StreamError(f"an answer to a request that was not made ({answer.id})")
        number, most = self.expected[0]
        # After its head a file can only end: an error then is not what the agent sends.
        if answer.error is not None and not self._headed:
            self.expected.popleft()
            return FileUnreadable(number, clean_text(answer.error)[:500], answer.stamp)
        if answer.busy is not None and most is None:
            return HashingNotice(number, answer.busy)
        if answer.stamp is None:
            raise StreamError("an answer without a stamp")
        if answer.n is not None:
            if most is None or self._headed or not 0 <= answer.n <= most:
                raise StreamError(
                    f"{answer.n} bytes announced where {most or 0} at most were asked for"
                )
            self._headed, self._left = True, answer.n
            return AnswerHead(number, answer.n, answer.stamp)
        # With data there must have been a head, without data there must not.
        if self._headed is (most is None):
            raise StreamError("an end without a beginning")
        self.expected.popleft()
        self._headed = False
        return AnswerTail(number, answer.stamp, answer.sha256)
