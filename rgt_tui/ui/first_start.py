"""What the app asks where there is no fleet file: what there is to begin with, and the file's first boxes."""

from __future__ import annotations

from typing import Protocol

import msgspec

from rgt_tui.fleet import FleetSource


class Account(msgspec.Struct, frozen=True):
    """A platform whose key is at hand."""

    kind: str
    name: str
    """As people call the platform."""
    variable: str
    """Holds the key."""


class Beginnings(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on this computer; nothing was sent for it."""

    hosts: tuple[str, ...] = ()
    """Names that the boxes would have."""
    accounts: tuple[Account, ...] = ()
    path: str = ""
    """The fleet file that would be written."""
    trouble: str = ""
    """Why something could not be looked for."""


class FirstSteps(Protocol):
    """Ways to a first fleet. Each may take a while, and raises what is wrong; then nothing was written."""

    async def look(self) -> Beginnings:
        """Look what there is to begin with, on this computer alone."""
        ...

    async def demo(self) -> str:
        """Choose the demo; return what to say of it."""
        ...

    async def take_hosts(self) -> str:
        """Write the hosts of ssh_config into the fleet file; return what to say."""
        ...

    async def take_account(self, kind: str) -> str:
        """Ask a platform for the machines of the account, and write them into the fleet file."""
        ...

    async def paste(self, text: str) -> str:
        """Write the box of a pasted ssh line into the fleet file."""
        ...

    def make(self) -> FleetSource:
        """Make the fleet that was chosen."""
        ...
