"""What can go wrong while connecting to a box; each message names the box and what to do next."""

from __future__ import annotations


class BoxError(Exception):
    """Something on the way to a box failed."""


class ConfigError(BoxError):
    """ssh_config, or what the fleet file says of SSH, cannot be used; the message names file and line, or the key."""


class Unreachable(BoxError):
    """No SSH connection: refused, timed out, lost. It says nothing about the machine itself."""


class HostKeyRefused(BoxError):
    """The host key is unknown or has changed. Never connected, nothing sent."""


class AuthFailed(BoxError):
    """The box refused our key or password."""


class NoPython(BoxError):
    """No Python that could run the agent was found on the box."""


class DeployFailed(BoxError):
    """The agent could not be written to the box."""


class CommandFailed(BoxError):
    """A command on the box did not end in time, or printed more than anyone wants."""


class NoCommands(BoxError):
    """The box logs us in and runs no command: at most a terminal."""


class ProbeFailed(BoxError):
    """Not even a plain shell could be used to read the box."""
