"""The interface between a box's sessions and its transport: SSH, or ``kubectl exec``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncssh


class BoxChannel(Protocol):
    """A running command's standard streams."""

    def write(self, data: bytes) -> None:
        """Send to its standard input."""

    def write_eof(self) -> None:
        """Close its standard input."""

    def pause_reading(self) -> None:
        """Stop delivering its output."""

    def resume_reading(self) -> None:
        """Deliver its output again."""

    def send_signal(self, signal: str) -> None:
        """Send it a signal, such as ``INT``, if the transport can."""

    def close(self) -> None:
        """Close its standard input, and end the session."""

    def abort(self) -> None:
        """End the session at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a note about the session."""

    def set_extra_info(self, **kwargs: Any) -> None:
        """Keep a note about the session."""


SessionFactory = Callable[[], "asyncssh.SSHClientSession[bytes]"]
"""Makes the receiver of a command's output, exit status and end. Its `connection_lost` gets None at a
regular end, and otherwise the error.
"""


class BoxTransport(Protocol):
    """An open way to a box, on which commands run in sessions of their own.

    `asyncssh.SSHClientConnection` is one.
    """

    async def create_session(
        self,
        session_factory: SessionFactory,
        command: str | None,
        *,
        encoding: None = None,
        window: int = 0,
        term_type: str | None = None,
        term_size: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> tuple[BoxChannel, Any]:
        """Start a command for the box's shell; None = the shell itself, in a terminal if one is named.

        `window` = bytes that may be on their way, where the transport can limit them.

        Raises:
            asyncssh.Error: it cannot be started.
            BoxError: it cannot be started, with the reason.
        """

    def is_closed(self) -> bool:
        """Whether no further session can be started."""

    def abort(self) -> None:
        """End every session, and close it."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a note about the connection, such as ``rgt_label``."""

    def set_extra_info(self, **kwargs: Any) -> None:
        """Keep a note about the connection."""


def transport_name(connection: BoxTransport) -> str:
    """Return the first word of messages about a connection: ``ssh``, or ``kubectl``."""
    return str(connection.get_extra_info("rgt_transport", "ssh"))
