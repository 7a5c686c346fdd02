"""Read a file's lines from its end, in bounded memory, whatever the file is."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

BLOCK = 256 << 10
LONGEST = 1 << 20
"""Bytes without a line end after which a line is broken in two."""

_END = re.compile(rb"\r\n|\n|\r")


class Budget:
    """How many bytes may still be read."""

    def __init__(self, left: int) -> None:
        self.left, self.read, self.cut = left, 0, False


def lines(fd: int, budget: Budget) -> Iterator[tuple[int, bytes]]:
    r"""Yield (offset, line without its end), the last line first.

    A progress bar rewrites its line with ``\r``: each of its states counts as a line.

    Args:
        fd: A regular file.
        budget: Bytes that may be read; `Budget.cut` says afterwards that it ended before the file did.
    """
    end = os.fstat(fd).st_size
    held = b""  # the beginning of what follows `end`: its first line may go on further up
    last = True
    while end > 0:
        size = min(BLOCK, end, budget.left)
        if size <= 0:
            budget.cut = True
            return
        block = os.pread(fd, size, end - size)
        if not block:
            return
        # A file that was cut meanwhile gives less; what is left is then read as its end.
        end = end - size
        budget.left -= len(block)
        budget.read += len(block)
        data = block + held
        spans = [match.span() for match in _END.finditer(data)]
        if spans and spans[0][0] == 0 and end > 0 and data[:1] == b"\n":
            spans = spans[1:]  # its "\r" may be the last byte of the block before: look again with it
        stop = len(data)
        for left, right in reversed(spans):
            if not (last and right == len(data)):
                yield end + right, data[right:stop]
            last = False
            stop = left
        held = data[:stop]
        if len(held) > LONGEST:
            yield end, held
            held, last = b"", True
    if held or not last:
        yield 0, held
