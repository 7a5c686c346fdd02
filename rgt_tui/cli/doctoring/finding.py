"""What a check found, and the table of all checks. The ids are a promise: scripts may look for them."""

from __future__ import annotations

import enum

import msgspec


class Status(enum.StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as it should."""
    FAIL = "fail"
    SKIP = "skip"
    """Not done, because another check has failed or nothing calls for it."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    id: str
    status: Status
    text: str
    """What was found, in one line."""
    advice: str = ""
    """What to do about it; empty where there is nothing to do."""


CLIENT_CHECKS: dict[str, str] = {
    "client.python": "the Python that runs rgt",
    "client.terminal": "whether the dashboard can be drawn here",
    "client.ssh-agent": "the SSH agent and its keys",
    "client.ssh-config": "~/.ssh/config can be read",
}
CONFIG_CHECKS: dict[str, str] = {
    "config.file": "the fleet file is found and can be used",
    "config.secrets": "every variable and file that it names for a secret is there",
}
BOX_CHECKS: dict[str, str] = {
    "dns": "the host name of the first hop has an address",
    "tcp": "its port answers as an SSH server",
    "hostkey": "the host keys on the way are the known ones",
    "login": "the box lets us in",
    "python": "a Python that can run the agent",
    "agent": "the agent is in place and answers",
    "disk": "bytes and inodes where rgt and the training write",
    "tmux": "the means by which work outlives a connection",
    "clock-skew": "the box's clock against ours",
    "mounts": "the mount points that the fleet file or the profile names",
    "gpu": "the GPUs and where their readings come from",
}
"""In the order in which they are done; the full id is ``box.NAME.CHECK``."""


def box_id(box: str, check: str) -> str:
    """Return the full id of a box's check."""
    return f"box.{box}.{check}"
