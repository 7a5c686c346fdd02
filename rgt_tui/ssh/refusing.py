"""Open a session on a connection, and why it was not: the box refuses it, or there is no connection any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncssh
from asyncssh.constants import OPEN_CONNECT_FAILED, OPEN_RESOURCE_SHORTAGE

from rgt_tui.model.plain import clean
from rgt_tui.ssh.errors import BoxError, NoCommands, Unreachable

Make = Callable[[], asyncssh.SSHClientSession[bytes]]

FREED = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between the tries while a session that has ended may still count: where sshd allows one per connection
(MaxSessions 1) it refuses the next until it has cleared the last away, and says no more than "open failed"."""

_CLOSED = "SSH connection closed"
"""asyncssh's own words for a connection that went away before the answer; it has no error of its own for that."""


async def open_session(
    connection: asyncssh.SSHClientConnection, make: Make, command: str | None, **options: Any
) -> asyncssh.SSHClientChannel[bytes]:
    """Start a command in a session of its own, of bytes.

    A connection whose first session is refused gets no second try: such a box runs no commands at all.

    Args:
        connection: Where.
        make: Makes the session, once it is granted.
        command: For the login shell of the box; None = that shell itself.
        options: More for `asyncssh.SSHClientConnection.create_session`.

    Raises:
        asyncssh.ChannelOpenError: it is refused; `not_opened` tells what that means.
        asyncssh.Error: it cannot be started.
    """
    for wait in FREED:
        try:
            return await _open(connection, make, command, options)
        except asyncssh.ChannelOpenError as error:
            if not no_further(connection, error):
                raise
        await asyncio.sleep(wait)
    return await _open(connection, make, command, options)


async def _open(
    connection: asyncssh.SSHClientConnection, make: Make, command: str | None, options: dict[str, Any]
) -> asyncssh.SSHClientChannel[bytes]:
    channel, _ = await connection.create_session(make, command, encoding=None, **options)
    connection.set_extra_info(rgt_had_session=True)
    return channel


def no_further(connection: asyncssh.SSHClientConnection, error: asyncssh.ChannelOpenError) -> bool:
    """Tell a refusal that is about this session alone: others were granted on the same connection."""
    granted = connection.get_extra_info("rgt_had_session") is True
    return granted and error.code == OPEN_CONNECT_FAILED and not _gone(connection, error)


def not_opened(
    connection: asyncssh.SSHClientConnection, error: asyncssh.ChannelOpenError, what: str
) -> BoxError:
    """Return what it means that a channel was not opened.

    Args:
        connection: Where it was to be opened.
        error: What asyncssh raised: one kind for a box that refuses and for a connection that was lost meanwhile.
        what: What the box refuses if it does: ``to run commands``.
    """
    if _gone(connection, error):
        return lost(connection)
    if error.code == OPEN_RESOURCE_SHORTAGE:
        return Unreachable(f"ssh: {_label(connection)} is short of resources: {clean(str(error.reason))}")
    if no_further(connection, error):
        return NoCommands(
            f"the box opens no further session on this connection ({clean(str(error.reason))}): those that are open "
            "may be all that its sshd allows; raise MaxSessions in its sshd_config"
        )
    return NoCommands(f"the box refuses {what}: {clean(str(error.reason))}")


def _gone(connection: asyncssh.SSHClientConnection, error: asyncssh.ChannelOpenError) -> bool:
    return (error.code == OPEN_CONNECT_FAILED and error.reason == _CLOSED) or connection.is_closed()


def lost(connection: asyncssh.SSHClientConnection) -> Unreachable:
    """Return what is said of a connection that went away."""
    return Unreachable(f"ssh: {_label(connection)}: the connection was lost")


def _label(connection: asyncssh.SSHClientConnection) -> str:
    return str(connection.get_extra_info("rgt_label") or "the box")
