"""The reading end of the history: the ring on disk, then what is kept in memory while the disk refuses."""

from __future__ import annotations

import os

from rgt_box.history import home
from rgt_box.history.layout import RING
from rgt_box.history.reader import HISTORY, Record, RingReader, newest, oldest


class ChainReader:
    """A position in the history, wherever its records stand. No record comes twice when they move.

    Args:
        folder: The state directory.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._disk = RingReader(os.path.join(folder, RING))
        self._memory: RingReader | None = None
        self._at: tuple[str | None, int] = (None, 0)

    def newest(self) -> tuple[str, int] | None:
        """Return (boot, seq) of the newest record; None when there is none."""
        for place in reversed(home.places(self._folder)):
            found = newest(os.path.join(place, RING))
            if found is not None:
                return found
        return None

    def seek(self, boot: str | None, seq: int) -> None:
        """Go behind the record ``(boot, seq)``, or, without a boot, to the last `HISTORY` records."""
        memory = home.ram(self._folder)
        if boot is None and memory is not None:
            found = newest(os.path.join(memory, RING))
            if found is not None:
                firsts = [oldest(os.path.join(place, RING), found[0]) for place in (self._folder, memory)]
                first = min(number for number in firsts if number is not None)
                boot, seq = found[0], max(found[1] - HISTORY, first - 1)
        self._at = (boot, seq)
        self._disk.seek(boot, seq)
        self._look_into_memory()

    def read(self, limit: int = 262144) -> list[Record]:
        """Return the next records, about `limit` bytes of them; [] when there is nothing newer."""
        found = self._disk.read(limit)
        other = self._memory
        if not found and self._look_into_memory() and self._memory is not None:
            found, other = self._memory.read(limit), self._disk
        if found:
            self._at = (found[-1].boot, found[-1].seq)
            if other is not None:
                other.advance(*self._at)
        return found

    def _look_into_memory(self) -> bool:
        memory = home.ram(self._folder)
        if memory is None:
            return False
        if self._memory is None:
            self._memory = RingReader(os.path.join(memory, RING))
            if self._at[0] is not None:
                self._memory.seek(self._at[0], self._at[1])
        return True

    def close(self) -> None:
        """Close the files."""
        for reader in (self._disk, self._memory):
            if reader is not None:
                reader.close()
