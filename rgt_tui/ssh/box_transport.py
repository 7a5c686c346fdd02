"""The interface between a box's sessions and its transport, SSH or ``kubectl exec``, and its errors.

Each error's message names the box and what to do next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from rgt_tui.language import translate

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
"""Makes the receiver of a command's output, exit status and end. Its `connection_lost` gets None at
a regular end, and otherwise the error.
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


class BoxError(Exception):
    """Base class of errors on the way to a box."""


def describe_lost_stream(error: Exception | None) -> str:
    """Return why a stream ended without an exit status; a `BoxError` has its own message."""
    if isinstance(error, BoxError):
        return str(error)
    # As asyncssh says it, which is not imported here.
    if error is None or str(error) == "Connection lost":
        return translate("ssh: the connection was lost")
    return f"ssh: {error}"


class ConfigError(BoxError):
    """ssh_config, or a fleet file's SSH setting, is unusable.

    The message has file and line, or the key.
    """


class Unreachable(BoxError):
    """No SSH connection: refused, timed out, lost. It says nothing about the machine itself."""


class HostKeyRefused(BoxError):
    """The host key is unknown or has changed. No connection was made, and nothing was sent."""


class AuthFailed(BoxError):
    """The box refused our key or password."""


class PasswordExpired(AuthFailed):
    """The login works, but the box runs nothing until the password is changed."""


class NoPython(BoxError):
    """No Python that can run the agent was found on the box."""


class DeployFailed(BoxError):
    """The agent could not be written to the box."""


class CommandFailed(BoxError):
    """A command on the box did not end in time, or printed too much."""


class NoCommands(BoxError):
    """The login works, but the box runs no commands: at most it offers a terminal."""


class CommandNotRun(NoCommands):
    """The login shell ended before it ran the command: mostly a start-up file is the cause.

    Args:
        message: The message.
        said: The shell's own output, as far as it is known.
    """

    def __init__(self, message: str, said: str = "") -> None:
        super().__init__(message)
        self.said = said


class RestrictedShell(NoCommands):
    """The login shell runs only some commands, or none."""


class ProbeFailed(BoxError):
    """Not even a plain shell could be used to read the box."""
