"""Which lines of a log match, as far as searched: newest first, in chunks that a thread searches."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from rgt_tui.fleet.logs.kept_lines import KeptLines, LineBlock
from rgt_tui.ui.logs.line_finder import Finder

AT_ONCE = 4 << 20
"""Bytes that one job of a thread looks through."""
SMALL = 96 << 10
"""So much that is new is looked through at once, where the finder is quick."""


class Job:
    """Something to look through, and what was found in it.

    Args:
        finder: What looks.
        blocks: The lines, and those around them.
        start: Number of the first line that counts.
        stop: Number behind the last one.
    """

    def __init__(self, finder: Finder, blocks: Sequence[LineBlock], start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.found: list[tuple[int, str]] = []
        self._finder, self._blocks = finder, blocks

    @property
    def size(self) -> int:
        """Bytes to look through."""
        return sum(len(block.text) for block in self._blocks)

    def run(self) -> None:
        """Look; in a thread."""
        blocks = self._blocks
        if self._finder.around and len(blocks) > 1:
            text = b"".join(block.text for block in blocks)
            blocks = [LineBlock(blocks[0].first, text, array("I"))]
        for block in blocks:
            found = self._finder.find(block)
            self.found += [one for one in found if self.start <= one[0] < self.stop]


class Marks:
    """The lines of one log that a finder has found.

    Args:
        kept: The log.
        finder: What looks.
        most: Lines from the end that are looked through at most.
    """

    def __init__(self, kept: KeptLines, finder: Finder, most: int | None = None) -> None:
        self.finder = finder
        self.names: dict[int, str] = {}
        """What the finder calls it, where it does."""
        self._kept = kept
        self._most = most
        self._numbers: array[int] = array("q")
        self._low = self._high = kept.end

    @property
    def whole(self) -> bool:
        """All lines were looked through."""
        return self._high >= self._kept.end and self._low <= self._lowest()

    def _lowest(self) -> int:
        first = self._kept.first
        return first if self._most is None else max(first, self._kept.end - self._most)

    @property
    def numbers(self) -> Sequence[int]:
        """The lines that were found, in order."""
        gone = bisect_left(self._numbers, self._kept.first)
        if gone:
            del self._numbers[:gone]
        return self._numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, number: int) -> bool:
        place = bisect_left(self._numbers, number)
        return place < len(self._numbers) and self._numbers[place] == number

    def rank(self, number: int) -> int:
        """Return how many of the lines that were found stand before a line, or are it."""
        return bisect_right(self.numbers, number)

    def after(self, number: int) -> Iterator[int]:
        """Yield the lines behind one, in order."""
        numbers = self.numbers
        for place in range(bisect_right(numbers, number), len(numbers)):
            yield numbers[place]

    def before(self, number: int) -> Iterator[int]:
        """Yield the lines before one, the nearest first."""
        numbers = self.numbers
        for place in range(bisect_left(numbers, number) - 1, -1, -1):
            yield numbers[place]

    def looked(self, number: int) -> bool:
        """Tell whether a line was looked at."""
        return self._low <= number < self._high

    def forget_before(self, number: int) -> None:
        """Other lines stand before a line than those that were looked through."""
        self._low = min(max(self._low, number), self._high)
        del self._numbers[: bisect_left(self._numbers, number)]
        self.names = {one: name for one, name in self.names.items() if one >= number}

    def job(self) -> Job | None:
        """Return what to look through next; None = nothing is left. What is new comes before what is old."""
        first, end = self._lowest(), self._kept.end
        self._low = max(self._low, min(first, self._high))
        if self._high < first:
            self._low = self._high = first
        if self._high < end:
            start, stop = self._high, end
            blocks = self._bounded(self._kept.blocks(start - self.finder.around, stop))
            stop = min(stop, blocks[-1].first + len(blocks[-1].starts))
        elif self._low > first:
            stop = self._low
            back = max(first, stop - AT_ONCE // 64)
            blocks = list(self._kept.blocks(back - self.finder.around, stop))
            while len(blocks) > 1 and sum(len(block.text) for block in blocks) > AT_ONCE:
                gone = blocks.pop(0)
                back = max(back, gone.first + len(gone.starts) + self.finder.around)
            start = min(back, stop - 1)
        else:
            return None
        return Job(self.finder, blocks, start, stop)

    def _bounded(self, blocks: Iterator[LineBlock]) -> list[LineBlock]:
        taken: list[LineBlock] = []
        size = 0
        for block in blocks:
            taken.append(block)
            size += len(block.text)
            if size >= AT_ONCE and block.first + len(block.starts) > self._high:
                break
        return taken

    def take(self, job: Job) -> None:
        """Take in what a job has found."""
        numbers = array("q", [number for number, _ in job.found])
        self.names.update((number, name) for number, name in job.found if name)
        if job.start == self._high:
            self._numbers += numbers
            self._high = job.stop
        elif job.stop == self._low:
            self._numbers[:0] = numbers
            self._low = job.start
        # Else the lines changed meanwhile: they are looked through anew.

    def catch_up(self) -> None:
        """Look through what is new at once, where that is little."""
        if self.finder.quick and self._high < self._kept.end:
            job = self.job()
            if job is not None and job.size <= SMALL:
                job.run()
                self.take(job)
