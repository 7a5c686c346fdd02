"""What to do with a host key that known_hosts does not have."""

from __future__ import annotations

import asyncio
import base64
import enum
import hashlib
import shlex

import msgspec

from rgt_tui.model import QuestionKind
from rgt_tui.ssh import known_hosts
from rgt_tui.ssh.known_hosts import Entry, Known, elsewhere
from rgt_tui.ssh.person import Person
from rgt_tui.ssh.ssh_errors import HostKeyRefused
from rgt_tui.ssh.ssh_route import Host

_CHARS = " .o+=*BOX@%&#/^SE"
_WIDTH, _HEIGHT = 17, 9
_BITS = {
    "ssh-ed25519": 256,
    "ecdsa-sha2-nistp256": 256,
    "ecdsa-sha2-nistp384": 384,
    "ecdsa-sha2-nistp521": 521,
}


def fingerprint(blob: bytes) -> str:
    """Return ``SHA256:…`` of a public key in wire format."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def key_bits(kind: str, blob: bytes) -> int:
    """Return the size of a key; 0 = not known."""
    if kind != "ssh-rsa":
        return _BITS.get(kind, 0)
    rest = blob
    for _ in range(2):  # the type, and the exponent; the modulus is left
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    return int.from_bytes(rest[4 : 4 + int.from_bytes(rest[:4], "big")], "big").bit_length()


def art(blob: bytes, label: str) -> tuple[str, ...]:
    """Return OpenSSH's picture of a key (the drunken bishop), which an eye compares faster than letters."""
    field = [[0] * _HEIGHT for _ in range(_WIDTH)]
    x, y = _WIDTH // 2, _HEIGHT // 2
    for byte in hashlib.sha256(blob).digest():
        for shift in (0, 2, 4, 6):
            move = byte >> shift & 3
            x = max(0, min(_WIDTH - 1, x + (1 if move & 1 else -1)))
            y = max(0, min(_HEIGHT - 1, y + (1 if move & 2 else -1)))
            field[x][y] = min(field[x][y] + 1, len(_CHARS) - 3)
    field[_WIDTH // 2][_HEIGHT // 2] = len(_CHARS) - 2
    field[x][y] = len(_CHARS) - 1
    rows = ("".join(_CHARS[field[column][row]] for column in range(_WIDTH)) for row in range(_HEIGHT))
    return (_edge(f"[{label}]"), *(f"|{row}|" for row in rows), _edge("[SHA256]"))


def _edge(label: str) -> str:
    label = label[:_WIDTH]
    left = (_WIDTH - len(label)) // 2
    return "+" + "-" * left + label + "-" * (_WIDTH - left - len(label)) + "+"


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


class Offered(msgspec.Struct, frozen=True):
    """The key that a server showed."""

    type: str
    key: str
    """base64."""

    @property
    def blob(self) -> bytes:
        """The key in wire format."""
        return base64.b64decode(self.key)


class Moved(msgspec.Struct, frozen=True):
    """The provider says that the box is elsewhere now."""

    source: str
    """Who says so."""
    old: str
    """The name under which the box was known before."""


async def judge(
    host: Host,
    label: str,
    offered: Offered,
    known: Known,
    person: Person,
    policy: Policy,
    by_hand: tuple[str, ...],
    moved: Moved | None = None,
) -> None:
    """Return if the key may be trusted from now on; it has then been written down.

    Args:
        host: The server.
        label: How messages call it.
        offered: What it showed.
        known: What is known of it.
        person: Who is asked.
        policy: What becomes of unknown keys.
        by_hand: What to type after ``ssh`` to get there.
        moved: Where it was before.

    Raises:
        HostKeyRefused: it has changed, was not accepted, or it cannot be written down.
    """
    shown = f"{offered.type} {fingerprint(offered.blob)}"
    changed = known.same_type(offered.type)
    if changed:
        raise HostKeyRefused(_changed(host, label, shown, changed))
    rule = effective(policy, host.strict)
    others = ", ".join(f"{entry.type} at {entry.at}" for entry in known.keys)
    if rule is Policy.REFUSE or (rule is Policy.ACCEPT_NEW and others):
        why = (
            f"its {offered.type} key is unknown, though the server is known by {others}"
            if others
            else "its key is unknown, and unknown keys are refused"
        )
        raise HostKeyRefused(
            f"ssh: {label}: {why} (shown: {shown}); {_how(host, known.keys, by_hand, person.box)}"
        )
    if rule is Policy.ASK and not await _accepted(host, label, offered, shown, others, person, moved):
        raise HostKeyRefused(
            f"ssh: {label}: its host key is unknown and was not accepted (shown: {shown}); "
            + _how(host, known.keys, by_hand, person.box)
        )
    path = file_of(host)
    if path is None:
        person.answers.accept(host.known_as, offered.type, offered.key)
    else:
        # In a thread: another program may hold the file's lock.
        await asyncio.to_thread(
            known_hosts.append, path, host.known_as, offered.type, offered.key, hashed=host.hash_known_hosts
        )


def file_of(host: Host) -> str | None:
    """Return the known_hosts file that is written to; None = there is none."""
    first = next(iter(host.user_known_hosts), "")
    return None if first in known_hosts.NOWHERE else first


async def _accepted(
    host: Host,
    label: str,
    offered: Offered,
    shown: str,
    others: str,
    person: Person,
    moved: Moved | None,
) -> bool:
    path = file_of(host)
    lines = [f"{label} shows a host key that is not known:", shown]
    if moved is not None:
        lines.append(f"{moved.source} says that the box has moved here; it was known as {moved.old}")
    if others:
        lines.append(f"CAUTION: the server is known by another kind of key: {others}")
    same = elsewhere(host, offered.type, offered.key)
    if same:
        lines.append("the very same key is known at " + ", ".join(entry.at for entry in same[:3]))
    lines.append(
        f"yes writes it to {path} as {host.known_as}"
        if path is not None
        else "yes keeps it until rgt ends: ssh_config names no known_hosts file for this host"
    )
    lines += art(offered.blob, _caption(offered))
    answer = await person.ask(QuestionKind.HOST_KEY, f"new host key of {label}", tuple(lines))
    return answer is not None and answer.strip().lower() == "yes"


def _caption(offered: Offered) -> str:
    name = "ECDSA" if offered.type.startswith("ecdsa-") else offered.type.removeprefix("ssh-").upper()
    bits = key_bits(offered.type, offered.blob)
    return f"{name} {bits}" if bits else name


def _changed(host: Host, label: str, shown: str, known: tuple[Entry, ...]) -> str:
    lines = "; ".join(f"{entry.at} has {entry.type} {fingerprint(entry.blob)}" for entry in known)
    return (
        f"ssh: {label}: THE HOST KEY HAS CHANGED, nothing was sent. It shows {shown}, but {lines}. Someone may be "
        "intercepting the connection, or the machine was reinstalled: ask the provider, and only if it was, forget the "
        "old key: " + _forget(host, known)
    )


def _how(host: Host, others: tuple[Entry, ...], by_hand: tuple[str, ...], box: str) -> str:
    """Say how the key can be accepted, under the rules that hold for this server."""
    strict = host.strict if host.strict == "yes" or (host.strict == "accept-new" and others) else ""
    options = ["-o", "StrictHostKeyChecking=ask"] if strict else []
    options += ["-o", "BatchMode=no"] if host.batch else []
    by_ssh = f"by `{shlex.join(('ssh', *options, *by_hand))}`"
    if others:
        # ssh takes a server that is known by another kind of key for one that has changed.
        by_ssh = f"forget the other key ({_forget(host, others)}) and accept this one {by_ssh}"
    closed = f"StrictHostKeyChecking is {strict}" if strict else "BatchMode is yes" if host.batch else ""
    if closed:
        way = by_ssh if others else f"accept it {by_ssh}"
        return f"{closed} for it in ssh_config, so rgt does not ask: {_COMPARE}, then {way}"
    asking = f"`rgt doctor {shlex.quote(box)}` on a terminal or the dashboard (rgt), which ask"
    if others:
        return f"{_COMPARE}, then accept it in {asking}, or {by_ssh}"
    return f"{_COMPARE}, then accept it in {asking}, with --accept-new-host-key, or {by_ssh}"


_COMPARE = "compare it with what the provider shows"


def _forget(host: Host, known: tuple[Entry, ...]) -> str:
    return " ".join(
        f"`ssh-keygen -R {shlex.quote(host.known_as)} -f {shlex.quote(path)}`"
        for path in dict.fromkeys(entry.path for entry in known)
    )
