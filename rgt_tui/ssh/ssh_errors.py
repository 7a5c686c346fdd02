"""Errors while connecting to a box; each message names the box and what to do next."""

from __future__ import annotations


class BoxError(Exception):
    """Base class of errors on the way to a box."""


def describe_lost_stream(error: Exception | None) -> str:
    """Return why a stream ended without an exit status; a `BoxError` has its own message."""
    if isinstance(error, BoxError):
        return str(error)
    return f"ssh: {error or 'the connection was lost'}"


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
    """The login shell ended before it ran the command: mostly a start-up file is the cause."""


class ProbeFailed(BoxError):
    """Not even a plain shell could be used to read the box."""
