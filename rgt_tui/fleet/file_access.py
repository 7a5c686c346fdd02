"""Whether the SSH server of a box lets files be copied (SFTP), asked once per connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import asyncssh

from rgt_tui.ssh import NO_FILES, NO_SFTP, Unreachable, has_sftp


class FileAccess:
    """What is known of one box. One that takes files is asked once, any other once per connection.

    Args:
        on_lack: Called when it is found out that the box takes none.
    """

    def __init__(self, on_lack: Callable[[], None]) -> None:
        self._has: bool | None = None
        self._on_lack = on_lack
        self._task: asyncio.Task[None] | None = None

    def ask(self, connection: asyncssh.SSHClientConnection) -> None:
        """Begin to ask, unless that is under way or the answer is known."""
        if not self._has and self._task is None:
            self._task = asyncio.create_task(self._ask(connection), name="sftp")

    async def _ask(self, connection: asyncssh.SSHClientConnection) -> None:
        with contextlib.suppress(Unreachable):
            self._has = await has_sftp(connection)
            if self._has:
                self._task = None
            elif self._has is False:
                self._on_lack()

    def limits(self, others: tuple[str, ...]) -> tuple[str, ...]:
        """Return what does not work on the box, files included where they are known not to."""
        said = self._has is not False or NO_FILES in others or NO_SFTP in others
        return others if said else (*others, NO_SFTP)

    def end(self) -> None:
        """The connection is gone."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
