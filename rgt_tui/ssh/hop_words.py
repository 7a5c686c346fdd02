"""What is said when a hop fails: which one, over which way, why, and what to do next."""

from __future__ import annotations

import errno
import socket

import asyncssh
import msgspec

from rgt_tui.model.plain import clean
from rgt_tui.ssh.hostkeys.judge import Moved
from rgt_tui.ssh.login.client import Login
from rgt_tui.ssh.proxy import Proxy
from rgt_tui.ssh.resolve import Host


class Step(msgspec.Struct, frozen=True):
    """One hop, with what its messages need."""

    host: Host
    label: str
    """How messages call it: ``root@1.2.3.4:40022``, or ``jump host gate (me@gate.example.org:22)``."""
    by_hand: tuple[str, ...]
    """What to type after ``ssh`` to get there."""
    moved: Moved | None = None


_NEXT: tuple[tuple[type[BaseException], str], ...] = (
    (
        ConnectionRefusedError,
        "nothing listens there: is the machine up, and is this its address and port today? Rentals change them",
    ),
    (socket.gaierror, "check `host`, and whether this machine is online"),
    (TimeoutError, "it may be stopped, behind a firewall, or elsewhere by now: ask its provider"),
    (
        asyncssh.ChannelOpenError,
        "the hop before it cannot get there: check the address as seen from that one",
    ),
    (asyncssh.KeyExchangeFailed, "name an algorithm that both sides know in ssh_config"),
    (
        asyncssh.Error,
        "it hung up: it may be starting, have too many logins at once, or have banned this address",
    ),
)
"""What to do next, by what went wrong; the first that fits."""
_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)


def advice(error: BaseException, *, reached: bool) -> str:
    """Return what to do next when a server was not reached, or did not finish the login; empty where nobody knows.

    Args:
        error: What went wrong.
        reached: The server has answered before that.
    """
    if reached and isinstance(error, TimeoutError):
        return (
            "the server answers and does not get on: it may be short of memory; its provider's console tells"
        )
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return "no network leads there: check this machine's connection and VPN"
    return next((words for kind, words in _NEXT if isinstance(error, kind)), "")


def reason(error: asyncssh.Error | OSError, seconds: float, *, reached: bool) -> str:
    """Say in a few words what went wrong.

    Args:
        error: What was raised.
        seconds: The limit that a timeout ran into.
        reached: The server has answered before that.
    """
    if isinstance(error, asyncssh.Error):
        return clean(str(error.reason))
    if isinstance(error, TimeoutError):
        return f"{'the login took longer than' if reached else 'no answer within'} {seconds:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    return error.strerror or str(error)


async def failure(
    step: Step, tunnel: asyncssh.SSHClientConnection | None, proxy: Proxy | None, reason: str, advice: str
) -> str:
    """Say that a server was not reached, over which way, why, and what to do next."""
    if proxy is not None:
        words = await proxy.last_words()
        return (
            f"ssh: {step.label}: the ProxyCommand {step.host.proxy_command!r} did not get there: {words or reason}; "
            "try the command by itself"
        )
    through = f"not reached through {tunnel.get_extra_info('rgt_label')}: " if tunnel is not None else ""
    return f"ssh: {step.label}: {through}{reason}" + (f"; {advice}" if advice else "")


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
