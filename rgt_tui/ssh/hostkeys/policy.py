"""What to do about a host key that nobody has seen before. A changed key is refused under every policy."""

from __future__ import annotations

import enum


class Policy(enum.StrEnum):
    """What happens to an unknown host key."""

    ASK = "ask"
    """Show it to a person and wait."""
    ACCEPT_NEW = "accept-new"
    """Write it down and go on, if the server is not known under another key."""
    REFUSE = "refuse"


def effective(asked: Policy, strict: str) -> Policy:
    """Join rgt's own policy with StrictHostKeyChecking of ssh_config.

    ``yes`` refuses; ``accept-new`` accepts; ``no`` is taken for ``ask``: rgt never goes on unverified.
    """
    if strict == "yes" or asked is Policy.REFUSE:
        return Policy.REFUSE
    if strict == "accept-new" or asked is Policy.ACCEPT_NEW:
        return Policy.ACCEPT_NEW
    return asked
