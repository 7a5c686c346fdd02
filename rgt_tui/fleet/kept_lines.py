"""Buffered lines of a log that is being read: blocks of bytes, and the offset of each line."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from rgt_tui.fleet.reducers import written_at
from rgt_tui.language import translate
from rgt_tui.model import LogLines, LogView

MOST_LINES = 1_000_000
MOST_BYTES = 128 << 20
"""Limits per log, the first that is reached; the oldest lines are dropped, but remain on the
box."""
BLOCK_BYTES = 64 << 10
"""New lines are added to the last block up to this size."""


class FilePlace(NamedTuple):
    """Position on the box where a line begins."""

    inode: int
    offset: int


class LineBlock(NamedTuple):
    """Consecutive lines, immutable so that a thread may search them."""

    first: int
    """Number of its first line. Numbers start at 0 where the log was opened; older lines have
    negative ones."""
    text: bytes
    """The lines in UTF-8, each with its newline."""
    starts: array[int]
    """Offset of each line in `text`."""

    def read_line(self, index: int) -> bytes:
        """Return a line without its newline."""
        start = self.starts[index]
        return self.text[start : self.text.index(b"\n", start)]

    def part(self, begin: int, stop: int) -> LineBlock:
        """Return the lines of a range of indexes."""
        at, *others = self.starts[begin:stop]
        end = self.text.index(b"\n", self.starts[stop - 1]) + 1
        starts = array("I", [0, *(start - at for start in others)])
        return LineBlock(self.first + begin, self.text[at:end], starts)


def block_of(first: int, lines: Iterable[str]) -> LineBlock:
    """Make a block of lines."""
    rows = [line.encode() for line in lines]
    starts = array("I", accumulate((len(row) + 1 for row in rows), initial=0))
    # The last one is the end of the text, where no line begins.
    starts.pop()
    return LineBlock(first, b"\n".join([*rows, b""]), starts)


def blocks_of(first: int, lines: Sequence[str], most: int = 600) -> list[LineBlock]:
    """Make blocks of at most `most` lines, so that a part of them is copied quickly."""
    ats = range(0, len(lines), most)
    return [block_of(first + at, lines[at : at + most]) for at in ats]


def join_blocks(blocks: Sequence[LineBlock]) -> LineBlock:
    """Make one block of consecutive blocks."""
    starts = array("I", blocks[0].starts)
    size = len(blocks[0].text)
    for block in blocks[1:]:
        starts.extend(size + start for start in block.starts)
        size += len(block.text)
    return LineBlock(blocks[0].first, b"".join(block.text for block in blocks), starts)


def _size_of(blocks: Iterable[LineBlock]) -> int:
    return sum(len(block.text) for block in blocks)


_FIRST = itemgetter(0)
"""Key to find the block of a line by bisection."""


class KeptLines:
    """The lines of one log, made printable.

    Args:
        path: On the box.
        most_lines: Maximum number of lines kept.
        most_bytes: Maximum bytes of text kept.
    """

    def __init__(
        self, path: str, most_lines: int = MOST_LINES, most_bytes: int = MOST_BYTES
    ) -> None:
        self.path = path
        self.partial: str | None = None
        """The unfinished last line; it has no number yet."""
        self.inode: int | None = None
        """Inode of the file being read now."""
        self.reached = 0
        """Byte offset up to which that file is known."""
        self.counted: tuple[int, int] | None = None
        """(count, number): `count` lines of the file precede line `number`; None = not counted."""
        self.notes: set[int] = set()
        """Numbers of lines that are rgt's own messages."""
        self.at: float | None = None
        """Client clock of the last data."""
        self._written: tuple[int, float] | None = None
        """Number after the newest line whose time of writing was reported, and that time (client
        clock)."""
        self._most_lines, self._most_bytes = most_lines, most_bytes
        self._blocks: list[LineBlock] = []
        self.end = 0
        """Number of the next line."""
        self.bytes = 0
        """Bytes of text kept."""
        self._places: list[tuple[int, FilePlace]] = []
        """Positions of some lines on the box, in order."""
        self._came: tuple[array[int], array[float]] = (array("q"), array("d"))
        """Line numbers, and since when lines from there on were received (client clock; NaN =
        unknown)."""
        self._seen_total = 0

    @property
    def first_number(self) -> int:
        """Number of the oldest line kept."""
        if self._blocks:
            return self._blocks[0].first
        return self.end

    def __len__(self) -> int:
        return self.end - self.first_number

    @property
    def oldest_position(self) -> tuple[int, FilePlace] | None:
        """Number and position of the oldest line with a known position on the box."""
        if self._places:
            return self._places[0]
        return None

    @property
    def lines_before(self) -> int | None:
        """Number of lines of the file before those kept; None = not counted."""
        if self.counted is None:
            return None
        return self.counted[0] + self.first_number - self.counted[1]

    def record_position(self, place: FilePlace) -> None:
        """Record the position of the next line."""
        if self._places:
            last = self._places[-1]
        else:
            last = None
        if (
            last is None
            or place.inode != last[1].inode
            # One per block is enough: older lines are loaded in pieces that are larger.
            or place.offset - last[1].offset >= BLOCK_BYTES
        ):
            self._places.append((self.end, place))

    def append_lines(self, lines: Sequence[str], at: float | None = None) -> None:
        """Append the next lines.

        Args:
            lines: Complete lines.
            at: Client clock when they were received; None = they were written earlier, at an
                unknown time.
        """
        if not lines:
            return
        self._note_time(self.end, at)
        made = blocks_of(self.end, lines)
        self.bytes += _size_of(made)
        self.end += len(lines)
        if self._blocks and _size_of((self._blocks[-1], made[0])) <= BLOCK_BYTES:
            made[0] = join_blocks((self._blocks.pop(), made[0]))
        self._blocks += made
        while self.bytes > self._most_bytes or len(self) > self._most_lines:
            oldest = self._blocks[0]
            surplus = bisect_left(oldest.starts, self.bytes - self._most_bytes)
            self._drop_before(oldest.first + max(surplus, len(self) - self._most_lines))

    def insert_note(self, text: str, at: float | None = None) -> None:
        """Insert a message of rgt between the lines."""
        self.notes.add(self.end)
        self.append_lines((text,), at)

    def _note_time(self, number: int, at: float | None) -> None:
        numbers, times = self._came
        value = float("nan") if at is None else at
        # Within half a second they count as one arrival; NaN is never equal, so it begins a new
        # one.
        if not times or not (times[-1] == value or 0 <= value - times[-1] < 0.5):
            numbers.append(number)
            times.append(value)

    def _drop_before(self, number: int) -> None:
        """Drop the lines before a number."""
        gone = self._split_at(number)
        self.bytes -= _size_of(self._blocks[:gone])
        del self._blocks[:gone]
        self._forget_before(number)

    def _forget_before(self, number: int) -> None:
        self.notes = {one for one in self.notes if one >= number}
        numbers, times = self._came
        gone = max(0, bisect_right(numbers, number) - 1)
        del numbers[:gone], times[:gone]
        if numbers:
            numbers[0] = max(numbers[0], number)
        self._places = [known for known in self._places if known[0] >= number]

    def reset_lines(self) -> None:
        """Drop all lines, because the log will be sent again. Numbering continues."""
        self.partial = self.inode = None
        self._seen_total = 0
        self._drop_before(self.end)

    def replace_before(self, number: int, lines: Sequence[str], place: FilePlace) -> bool:
        """Insert older lines before a line, replacing the lines there.

        Args:
            number: The line that they end before.
            lines: Oldest first; their times are unknown.
            place: Position of the first of them.

        Returns:
            False when they would exceed a limit; nothing has changed then.
        """
        made = blocks_of(number - len(lines), lines)
        keep = self._split_at(number)
        added = _size_of(made) - _size_of(self._blocks[:keep])
        if (
            self.end - number + len(lines) > self._most_lines
            or self.bytes + added > self._most_bytes
        ):
            return False
        self._blocks[:keep] = made
        self.bytes += added
        self._forget_before(number)
        self._places.insert(0, (number - len(lines), place))
        return True

    def _split_at(self, number: int) -> int:
        """Split a block so that one begins at a line; return that block's index."""
        index = bisect_left(self._blocks, number, key=_FIRST)
        if index > 0:
            block = self._blocks[index - 1]
            cut = number - block.first
            if cut < len(block.starts):
                self._blocks[index - 1 : index] = [
                    block.part(0, cut),
                    block.part(cut, len(block.starts)),
                ]
        return index

    def read_line(self, number: int) -> str:
        """Return a line by its number; the unfinished one is at `end`."""
        if number == self.end:
            return self.partial or ""
        index = bisect_right(self._blocks, number, key=_FIRST) - 1
        if index < 0:
            raise IndexError(number)
        block = self._blocks[index]
        return block.read_line(number - block.first).decode()

    def read_lines(self, start: int, stop: int) -> list[str]:
        """Return the kept lines of a range of numbers."""
        return [
            self.read_line(number)
            for number in range(max(start, self.first_number), min(stop, self.end))
        ]

    def iterate_blocks(self, start: int, stop: int) -> Iterator[LineBlock]:
        """Yield the lines of a range of numbers."""
        for block in self._blocks[max(0, bisect_right(self._blocks, start, key=_FIRST) - 1) :]:
            begin, count = max(0, start - block.first), len(block.starts)
            end = min(stop - block.first, count)
            if end - begin == count:
                yield block
            elif begin < end:
                yield block.part(begin, end)

    def received_at(self, number: int) -> float | None:
        """Return when a line was received (client clock); None = before the log was followed."""
        numbers, times = self._came
        index = bisect_right(numbers, number) - 1
        # NaN is the only value that differs from itself.
        if index < 0 or times[index] != times[index]:
            return None
        return times[index]

    @property
    def first_known_time(self) -> tuple[int, float] | None:
        """First line number with a known time of writing, and that time; None = unknown.

        The lines before it existed already when the log was opened.
        """
        numbers, times = self._came
        for number, at in zip(numbers, times, strict=True):
            if at == at:
                return number, at
        return self._written

    def append_view(self, view: LogView) -> bool:
        """Append the new lines of a `LogView`; return False if it is another file.

        For a source of states that buffers no more than `LogView` does.
        """
        whole, partial = view.complete_lines, view.open_line
        total = view.dropped + len(whole)
        if total < self._seen_total or view.path != self.path:
            return False
        new = total - self._seen_total
        if new > len(whole) and self._seen_total:
            self.insert_note(
                translate("··· {new:,} lines were not kept here", new=new - len(whole)), view.at
            )
        if new:
            known = view.at if self._seen_total else None
            self.append_lines(whole[-new:] if new < len(whole) else whole, known)
        if new and view.written is not None and self._written is None:
            self._written = (self.end, view.written)
        self._seen_total = total
        self.partial = partial
        self.at = view.at
        return True

    def append_frame(self, frame: LogLines, now: float) -> None:
        """Append new lines sent by a box.

        Args:
            frame: The new lines.
            now: Client clock.
        """
        begun = self.inode is not None
        if frame.reset and frame.inode == self.inode:
            self._places.clear()  # known positions are invalid now
        if frame.reset and begun:
            self.insert_note(translate("··· here the file was truncated or replaced"), now)
        if frame.skipped and begun:
            self.insert_note(
                translate(
                    "··· {skipped:,} lines are left out: the connection was too slow for them",
                    skipped=frame.skipped,
                ),
                now,
            )
        self.record_position(FilePlace(frame.inode, frame.start))
        # The first frame has lines that were written before anybody looked.
        self.append_lines(frame.lines, now if begun else None)
        if not begun and (written := written_at(frame, now)) is not None:
            self._written = (self.end, written)
        self.inode, self.reached, self.at = frame.inode, frame.end, now
        self.partial = frame.partial


def keep_from_view(view: LogView, inode: int | None, reached: int) -> KeptLines:
    """Begin to buffer a log whose newest lines are known.

    Args:
        view: These lines.
        inode: Inode of their file; None = unknown.
        reached: Byte offset after the last of them.
    """
    kept = KeptLines(view.path)
    kept.append_view(view)
    if inode is not None:
        kept.inode, kept.reached = inode, reached
        kept.record_position(FilePlace(inode, reached))
    return kept
