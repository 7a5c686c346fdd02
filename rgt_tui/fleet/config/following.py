"""Follow a fleet file that changes while rgt runs.

A valid change is applied, an invalid one is only reported. ``rgt up``, ``rgt add``, ``rgt import``
and editors write the file while a dashboard is open.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from rgt_tui.fleet.config import open_place
from rgt_tui.fleet.config.loading import FleetConfig, FleetFileError, FleetFilePlace
from rgt_tui.fleet.config.trusted import default_path
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec

EVERY_SECONDS = 2.0
Stamp = tuple[int, int, int] | None
"""Time of the last change, size and inode; None = the file does not exist."""


class FleetFileFollower:
    """Watches a fleet file.

    Args:
        place: Path of the file, and the way of finding it.
        config: Its content as applied since the start.
        names: Only these boxes; empty = all.
        env: The environment; None = the process's.
        sleep: Sleeps for a number of seconds; None = `asyncio.sleep`.
    """

    def __init__(
        self,
        place: FleetFilePlace,
        config: FleetConfig,
        *,
        names: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._place, self._config, self._names = place, config, frozenset(names)
        self._env = os.environ if env is None else env
        self._sleep = sleep
        self._stamps = self._read_stamps()
        self._said = ""
        self._settled = True
        """The present content was checked twice: an error in a half-written file is reported only
        if it persists."""

    async def wait_for_change(self, say: Callable[[str, str], None]) -> tuple[BoxSpec, ...]:
        """Wait until the file has a change that applies; return its boxes.

        Args:
            say: Called with text and level about changes that do not apply, and why.
        """
        import asyncio  # deferred: the file is read before the first frame, which needs no loop

        sleep = self._sleep or asyncio.sleep
        while True:
            await sleep(EVERY_SECONDS)
            found = await asyncio.to_thread(self.check_file, say)
            if found is not None:
                return found

    def check_file(self, say: Callable[[str, str], None]) -> tuple[BoxSpec, ...] | None:
        """Check once; None = no new change that applies."""
        stamps = self._read_stamps()
        if stamps == self._stamps and self._settled:
            return None
        fresh, self._stamps = stamps != self._stamps, stamps
        try:
            config = open_place(self._place, self._env)
        except FleetFileError as error:
            # Report the error only if it is the same at two checks.
            self._settled = not fresh
            if not fresh:
                self._say_once(
                    say, translate("{error}; the boxes are unchanged", error=error), "error"
                )
            return None
        self._settled = True
        return self._apply_config(config, say)

    def _apply_config(
        self, config: FleetConfig, say: Callable[[str, str], None]
    ) -> tuple[BoxSpec, ...] | None:
        if config.doubt is not None:
            self._say_once(
                say, translate("{doubt}; the boxes are unchanged", doubt=config.doubt), "warn"
            )
            return None
        if self._config.doubt is not None:
            self._say_once(
                say,
                translate(
                    "{path} is trusted now: restart rgt to apply all of it", path=config.path
                ),
                "warn",
            )
            return None
        self._said = ""
        if config.alerts != self._config.alerts:
            say(
                translate(
                    "changes to alerts in {path} apply from the next start of rgt", path=config.path
                ),
                "warn",
            )
        for warning in config.warnings:
            if warning not in self._config.warnings:
                say(warning, "warn")
        before, self._config = self._config, config
        if config.boxes == before.boxes:
            return None
        return tuple(spec for spec in config.boxes if not self._names or spec.name in self._names)

    def _say_once(self, say: Callable[[str, str], None], text: str, level: str) -> None:
        if text != self._said:
            self._said = text
            say(text, level)

    def _read_stamps(self) -> tuple[Stamp, Stamp]:
        """Return stamps that change with the file, or with the list of trusted files."""
        book = None
        if self._place.lies_there:
            book = _file_stamp(default_path(self._env))
        return _file_stamp(self._place.path), book


def _file_stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
