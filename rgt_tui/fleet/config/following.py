"""Follows a fleet file that changes while rgt runs: a valid change is applied, an invalid one is only reported.

``rgt up``, ``rgt add`` and ``rgt import`` write it while a dashboard is open; so does an editor.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rgt_tui.fleet.config import open_place
from rgt_tui.fleet.config.loading import FleetConfig, FleetFileError, Place
from rgt_tui.fleet.config.trusted import default_path
from rgt_tui.model import BoxSpec

EVERY_SECONDS = 2.0
Stamp = tuple[int, int, int] | None
"""Time of the last change, size and inode; None = it is not there."""


class Following:
    """Looks after a fleet file.

    Args:
        place: Where it is, and how it was found.
        config: What it says, as it counts since the start.
        names: Only these boxes; none = all.
        env: The environment; None = the process's.
        sleep: Waits that many seconds; None = the loop's own.
    """

    def __init__(
        self,
        place: Place,
        config: FleetConfig,
        *,
        names: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._place, self._config, self._names = place, config, frozenset(names)
        self._env = os.environ if env is None else env
        self._sleep = sleep
        self._stamps = self._stamped()
        self._said = ""
        self._settled = True
        """What stands there was looked at twice: a file that is being written is read when it is done."""

    async def changed(self, say: Callable[[str, str], None]) -> tuple[BoxSpec, ...]:
        """Wait until the file says something else that counts; return its boxes.

        Args:
            say: Told, with a level, of what does not count, and why.
        """
        import asyncio  # here: the file is read before the first frame, and that needs no loop

        sleep = self._sleep or asyncio.sleep
        while True:
            await sleep(EVERY_SECONDS)
            found = await asyncio.to_thread(self.look, say)
            if found is not None:
                return found

    def look(self, say: Callable[[str, str], None]) -> tuple[BoxSpec, ...] | None:
        """Look once; None = nothing new that counts."""
        stamps = self._stamped()
        if stamps == self._stamps and self._settled:
            return None
        fresh, self._stamps = stamps != self._stamps, stamps
        try:
            config = open_place(self._place, self._env)
        except FleetFileError as error:
            # Once it is the same at two looks.
            self._settled = not fresh
            if not fresh:
                self._tell(say, f"{error}; the boxes stay as they were", "error")
            return None
        self._settled = True
        return self._taken(config, say)

    def _taken(
        self, config: FleetConfig, say: Callable[[str, str], None]
    ) -> tuple[BoxSpec, ...] | None:
        if config.doubt is not None:
            self._tell(say, f"{config.doubt}; the boxes stay as they were", "warn")
            return None
        if self._config.doubt is not None:
            self._tell(
                say, f"{config.path} is trusted now: start rgt again to apply all of it", "warn"
            )
            return None
        self._said = ""
        if config.alerts != self._config.alerts:
            say(f"what {config.path} says about alerts counts from the next start of rgt", "warn")
        for warning in config.warnings:
            if warning not in self._config.warnings:
                say(warning, "warn")
        before, self._config = self._config, config
        if config.boxes == before.boxes:
            return None
        return tuple(spec for spec in config.boxes if not self._names or spec.name in self._names)

    def _tell(self, say: Callable[[str, str], None], text: str, level: str) -> None:
        if text != self._said:
            self._said = text
            say(text, level)

    def _stamped(self) -> tuple[Stamp, Stamp]:
        """Return what changes when the file does, or what of it is trusted."""
        return _stamp(self._place.path), _stamp(
            default_path(self._env)
        ) if self._place.lies_there else None


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
