"""Why a channel was not opened: the box refuses it, or there is no connection any more."""

from __future__ import annotations

import asyncssh
from asyncssh.constants import OPEN_CONNECT_FAILED, OPEN_RESOURCE_SHORTAGE

from rgt_tui.model.plain import clean
from rgt_tui.ssh.errors import BoxError, NoCommands, Unreachable

_CLOSED = "SSH connection closed"
"""asyncssh's own words for a connection that went away before the answer; it has no error of its own for that."""


def not_opened(
    connection: asyncssh.SSHClientConnection, error: asyncssh.ChannelOpenError, what: str
) -> BoxError:
    """Return what it means that a channel was not opened.

    Args:
        connection: Where it was to be opened.
        error: What asyncssh raised: one kind for a box that refuses and for a connection that was lost meanwhile.
        what: What the box refuses if it does: ``to run commands``.
    """
    gone = error.code == OPEN_CONNECT_FAILED and error.reason == _CLOSED
    if gone or connection.is_closed():
        return lost(connection)
    if error.code == OPEN_RESOURCE_SHORTAGE:
        return Unreachable(f"ssh: {_label(connection)} is short of resources: {clean(str(error.reason))}")
    return NoCommands(f"the box refuses {what}: {clean(str(error.reason))}")


def lost(connection: asyncssh.SSHClientConnection) -> Unreachable:
    """Return what is said of a connection that went away."""
    return Unreachable(f"ssh: {_label(connection)}: the connection was lost")


def _label(connection: asyncssh.SSHClientConnection) -> str:
    return str(connection.get_extra_info("rgt_label") or "the box")
