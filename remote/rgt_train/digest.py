"""Checksums of large files, fast enough to look at every byte on every launch.

CRC-32 of 16 MiB chunks: it finds every single flipped bit and every burst of up to 32 bits, zlib computes it at 6 GB/s
a core without holding the GIL, and chunks are checked side by side. It guards against disks and cables, not against
people: nothing that is read back is ever executed (see `rgt_train.tree`), so there is nothing to gain by forging it.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from rgt_train import reading

CHUNK = 16 << 20
"""Bytes under one checksum."""
_PIECE = 1 << 20
"""Bytes that are read and summed up at a time: they stay in the cache of a core between the two."""
_MOST_THREADS = 8


def crc32s(view: memoryview, chunk: int = CHUNK, threads: int = 1) -> List[str]:
    """Return the CRC-32 of each `chunk` of `view` as eight hexadecimal digits; an empty view has none.

    Args:
        view: Contiguous bytes.
        chunk: Bytes under one checksum.
        threads: How many compute at a time.
    """
    count = -(-len(view) // chunk)
    found = [""] * count

    def one(number: int) -> None:
        begin = number * chunk
        found[number] = f"{zlib.crc32(view[begin : begin + chunk]):08x}"

    in_parallel([bind(one, number) for number in range(count)], threads)
    return found


def crc32_in(path: str, begin: int, length: int) -> Tuple[str, int]:
    """Return the CRC-32 of `length` bytes of a file from `begin` on, and how many there were.

    They are read, not mapped: a sector that cannot be read is an error then, not the end of the process (SIGBUS).

    Raises:
        OSError: It cannot be opened, or not be read.
    """
    found = done = 0
    buffer = memoryview(bytearray(min(_PIECE, length)))
    fd = reading.open_file(path)  # one for each piece of work: their read-ahead does not disturb each other
    try:
        while done < length:
            piece = buffer[: length - done]
            count = reading.read_into(fd, begin + done, piece)
            found = zlib.crc32(piece[:count], found)
            done += count
            if count < len(piece):
                break
    finally:
        os.close(fd)
    return f"{found:08x}", done


def facts(view: memoryview, threads: int = 1, *, sha256: bool = False) -> Dict[str, Any]:
    """Return the entry of a manifest for a file with the content `view`.

    Args:
        view: Contiguous bytes.
        threads: How many compute the checksums at a time.
        sha256: Whether to add one digest of the whole, for whoever compares copies of the file.
    """
    found: Dict[str, Any] = {"size": len(view), "crc32": crc32s(view, threads=threads), "chunk": CHUNK}
    if sha256:
        found["sha256"] = hashlib.sha256(view).hexdigest()
    return found


def spare_threads() -> int:
    """Return how many threads are worth using on this machine while nothing else runs."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, cores))


def bind(work: Callable[[int], None], number: int) -> Callable[[], None]:
    """Return ``work(number)`` as a task."""
    return lambda: work(number)


def in_parallel(tasks: Sequence[Callable[[], None]], threads: int) -> None:
    """Run `tasks`, `threads` at a time.

    Raises:
        BaseException: The first error of a task; the others are finished or not started.
    """
    if threads <= 1 or len(tasks) <= 1:
        for task in tasks:
            task()
        return
    waiting = iter(tasks)
    errors: List[BaseException] = []
    guard = threading.Lock()

    def work() -> None:
        while not errors:
            with guard:
                task: Optional[Callable[[], None]] = next(waiting, None)
            if task is None:
                return
            try:
                task()
            except BaseException as error:
                errors.append(error)

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(tasks)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
