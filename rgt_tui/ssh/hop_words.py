"""What is said when a hop fails: which one, over which way, why, and what to do next."""

from __future__ import annotations

import asyncssh
import msgspec

from rgt_tui.model.plain import clean
from rgt_tui.ssh.config.host import Host
from rgt_tui.ssh.hostkeys.judge import Moved
from rgt_tui.ssh.login.client import Login
from rgt_tui.ssh.proxy import Proxy


class Step(msgspec.Struct, frozen=True):
    """One hop, with what its messages need."""

    host: Host
    label: str
    """How messages call it: ``root@1.2.3.4:40022``, or ``jump host gate (me@gate.example.org:22)``."""
    moved: Moved | None = None


async def failure(
    step: Step, tunnel: asyncssh.SSHClientConnection | None, proxy: Proxy | None, reason: str
) -> str:
    """Say that a server was not reached, over which way, and why."""
    if proxy is not None:
        words = await proxy.last_words()
        return f"ssh: {step.label}: the ProxyCommand {step.host.proxy_command!r} did not get there: " + (
            words or reason
        )
    if tunnel is not None:
        return f"ssh: {step.label}: not reached through {tunnel.get_extra_info('rgt_label')}: {reason}"
    return f"ssh: {step.label}: {reason}"


def refusal(step: Step, login: Login) -> str:
    """Say that a login was refused: what the server takes, what was tried, what to do."""
    methods = ", ".join(login.methods) or "no method that rgt has"
    tried = login.keyring.tried
    keys = f"{len(tried)} keys tried ({', '.join(tried[:5])})" if tried else "no key to try"
    said = [f"ssh: {step.label} refused the login of {step.host.user}: it takes {methods}; {keys}"]
    said += login.keyring.notes[:5]
    if login.unanswered:
        said.append(
            f"asked for the {login.unanswered[0]}, and nobody answered: open the dashboard (rgt) and answer there, "
            "or put a key on the box"
        )
    elif "publickey" in login.methods:
        said.append(
            "put your public key on the box (or its provider's console), or name the right `identity`"
        )
    return clean("; ".join(said))


def too_many(step: Step, login: Login) -> str:
    """Say that the server had enough of our keys."""
    tried = len(login.keyring.tried)
    return (
        f"ssh: {step.label} refused the login of {step.host.user}: too many keys for it ({tried} tried); name the "
        "right one with `identity` in the fleet file, or IdentityFile and IdentitiesOnly in ssh_config"
    )
