"""What to type after ``ssh`` to reach the very same server in the very same way."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.model.box import BoxSpec
from rgt_tui.ssh.resolve import Host, place
from rgt_tui.ssh.ssh_config import NO_FILE, Surroundings


def arguments(
    spec: BoxSpec, around: Surroundings, hop: Host, before: Sequence[Host], *, last: bool, moved: bool
) -> tuple[str, ...]:
    """Return the words behind ``ssh``; what ssh_config says of the alias is left to ssh.

    Args:
        spec: The box.
        around: With its ssh_config.
        hop: The server.
        before: The hops that lead to it.
        last: It is the box itself: what the description says counts.
        moved: It is not where its alias leads.
    """
    # A shell does not expand what is quoted, and ssh expands no `~` behind -F.
    words = [] if spec.ssh_config is None else ["-F", *(str(source.path) for source in around.sources)]
    words += [NO_FILE] if words == ["-F"] else []
    if last and spec.identity is not None:
        words += ["-i", hop.identities[0], "-o", "IdentitiesOnly=yes"]
    if last and spec.known_hosts is not None:
        words += ["-o", _option("UserKnownHostsFile", hop.user_known_hosts[0])]
    if before and (moved or not last):
        words += ["-J", ",".join(f"{jump.user}@{place(jump.alias, jump.port)}" for jump in before)]
    if hop.port != 22 or (last and spec.port is not None):
        words += ["-p", str(hop.port)]
    return (*words, f"{hop.user}@{hop.host if moved else hop.alias}")


def _option(name: str, value: str) -> str:
    return f'{name}="{value}"' if " " in value else f"{name}={value}"
