"""Reads known_hosts, decides about unknown host keys, and adds accepted ones."""

from __future__ import annotations

import asyncio
import base64
import binascii
import enum
import functools
import hashlib
import hmac
import os
import re
import secrets
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rgt_tui.files import lock_file
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, QuestionKind
from rgt_tui.ssh.box_transport import HostKeyRefused
from rgt_tui.ssh.person import Person
from rgt_tui.ssh.ssh_route import SshHost

_CHARS = " .o+=*BOX@%&#/^SE"
_WIDTH, _HEIGHT = 17, 9
_BITS = {
    "ssh-ed25519": 256,
    "ecdsa-sha2-nistp256": 256,
    "ecdsa-sha2-nistp384": 384,
    "ecdsa-sha2-nistp521": 521,
}


@functools.lru_cache(maxsize=4096)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    # Not fnmatch, in which brackets are a pattern: here "[host]:2222" means itself.
    parts = {"*": ".*", "?": "."}
    # Several stars in a row mean one; more would only slow down matching of a long name.
    text = re.sub(r"\*+", "*", pattern)
    return re.compile("".join(parts.get(char) or re.escape(char) for char in text), re.DOTALL)


def matches_pattern(pattern: str, text: str) -> bool:
    """Return whether one pattern matches the whole text."""
    return _compile_pattern(pattern).fullmatch(text) is not None


def any_of(patterns: Iterable[str], text: str) -> bool:
    """Return whether a pattern matches and none that begins with ``!`` does."""
    found = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if matches_pattern(pattern[1:], text):
                return False
        else:
            found = found or matches_pattern(pattern, text)
    return found


def in_list(patterns: str, text: str) -> bool:
    """Same as `any_of`, for a comma-separated list, ignoring case."""
    return any_of(patterns.lower().split(","), text.lower())


CA, REVOKED = "cert-authority", "revoked"


class KnownHostLine(FrozenStruct):
    """One line with a key."""

    path: str
    line: int
    hosts: str
    """Comma-separated names, with patterns, or one hashed name."""
    type: str
    """Name of the key's algorithm, e.g. ``ssh-ed25519``."""
    key: str
    """The public key in base64."""
    marker: str = ""

    @property
    def location(self) -> str:
        """``file:line``."""
        return f"{self.path}:{self.line}"

    @property
    def key_blob(self) -> bytes:
        """The key in wire format."""
        return base64.b64decode(self.key)

    def is_about(self, name: str) -> bool:
        """Return whether the line is about a server; `name` is ``host`` or ``[host]:port``."""
        # |1| is HMAC-SHA1, the only form of hashed names.
        if self.hosts.startswith("|1|"):
            return _matches_hashed(self.hosts, name.lower())
        return in_list(self.hosts, name)


def parse_known_hosts(path: str, text: str) -> tuple[KnownHostLine, ...]:
    """Parse a file. Invalid lines are skipped, as in OpenSSH."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split(None, 4)
        marker = ""
        if words and words[0].startswith("@"):
            marker = words.pop(0)[1:]
        # An unknown marker changes the meaning of a line, so the line is ignored, as OpenSSH does.
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", CA, REVOKED):
            continue
        hosts, kind, key = words[:3]
        # The column with the type may be wrong; the type inside the key counts.
        if _type_of(key) == kind:
            entries.append(KnownHostLine(path, number, hosts, kind, key, marker))
    return tuple(entries)


def _type_of(key: str) -> str:
    """Return the type written in the key itself; empty if it is not a key."""
    try:
        blob = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return ""
    size = int.from_bytes(blob[:4], "big")
    if 0 < size < 64:
        return blob[4 : 4 + size].decode("ascii", "replace")
    return ""


def _matches_hashed(hosts: str, name: str) -> bool:
    try:
        _, _, salt, digest = hosts.split("|")
        expected = base64.b64decode(digest, validate=True)
        found = hmac.new(
            base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1
        ).digest()
    except ValueError:
        return False
    return hmac.compare_digest(found, expected)


def hash_name(name: str) -> str:
    """Return a name hashed like HashKnownHosts: it can be recognised, but not read."""
    salt = secrets.token_bytes(20)
    digest = hmac.new(salt, name.lower().encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


class KnownLines(FrozenStruct):
    """The lines about a server, by kind."""

    keys: tuple[KnownHostLine, ...] = ()
    authorities: tuple[KnownHostLine, ...] = ()
    revoked: tuple[KnownHostLine, ...] = ()

    def same_type(self, kind: str) -> tuple[KnownHostLine, ...]:
        """Return the known keys of a type."""
        return tuple(entry for entry in self.keys if entry.type == kind)


class KnownHostsFile:
    """The lines of one file. Full names are indexed, because a fleet makes hundreds of look-ups."""

    def __init__(self, entries: tuple[KnownHostLine, ...]) -> None:
        self.entries = entries
        self._named: dict[str, list[KnownHostLine]] = {}
        self._other: list[KnownHostLine] = []
        """Lines with patterns or hashed names."""
        for entry in entries:
            # Patterns and hashed names cannot be looked up; there are few of them.
            if any(char in entry.hosts for char in "*?!|"):
                self._other.append(entry)
            else:
                for name in entry.hosts.lower().split(","):
                    self._named.setdefault(name, []).append(entry)

    def find_lines(self, names: Sequence[str]) -> list[KnownHostLine]:
        """Return the lines about a server that has these names, in file order."""
        found = [entry for entry in self._other if any(entry.is_about(name) for name in names)]
        for name in names:
            found += self._named.get(name.lower(), ())
        return sorted({entry.line: entry for entry in found}.values(), key=lambda entry: entry.line)


def read_files(paths: Sequence[str]) -> list[KnownHostsFile]:
    """Read files, cached until they change; a missing file has no lines.

    Raises:
        HostKeyRefused: a file cannot be read: it may contain a revoked key.
    """
    found = []
    for path in dict.fromkeys(paths):
        try:
            status = Path(path).stat()
            found.append(_read_cached(path, (status.st_ino, status.st_size, status.st_mtime_ns)))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostKeyRefused(
                translate(
                    "ssh: {path} cannot be read ({strerror}), so no host key can be trusted",
                    path=path,
                    strerror=error.strerror,
                )
            ) from error
    return found


@functools.lru_cache(maxsize=16)
def _read_cached(path: str, _stamp: tuple[int, int, int]) -> KnownHostsFile:
    return KnownHostsFile(
        parse_known_hosts(path, Path(path).read_text(encoding="utf-8", errors="replace"))
    )


def lines_about(paths: Sequence[str], names: Sequence[str]) -> KnownLines:
    """Return the lines of files about a server that has these names.

    Raises:
        HostKeyRefused: a file cannot be read.
    """
    found = [entry for book in read_files(paths) for entry in book.find_lines(names)]
    return KnownLines(
        keys=tuple(entry for entry in found if not entry.marker),
        authorities=tuple(entry for entry in found if entry.marker == CA),
        revoked=tuple(entry for entry in found if entry.marker == REVOKED),
    )


def lines_of_host(host: SshHost, also: Sequence[str] = ()) -> KnownLines:
    """Return what the files of a host say about it.

    As in OpenSSH, a server on another port than 22 may also be known by its bare name, if no line
    names the port: there only a matching key counts, so `judge_host_key` reports no changed key
        because of
    such a line.

    Args:
        host: The hop.
        also: Names that the same machine had before it moved.

    Raises:
        HostKeyRefused: a file cannot be read.
    """
    paths = (*host.user_known_hosts, *host.global_known_hosts)
    known = lines_about(paths, (host.known_as, *also))
    if host.host_key_alias is not None or host.port == 22:
        return known
    bare = lines_about(paths, (host.host,))
    return KnownLines(
        keys=known.keys,
        # Keys of the bare name are left out: with another port it may be another server.
        authorities=tuple(dict.fromkeys(known.authorities + bare.authorities)),
        revoked=tuple(dict.fromkeys(known.revoked + bare.revoked)),
    )


def keys_without_port(host: SshHost) -> tuple[KnownHostLine, ...]:
    """Return the keys known by the host's name alone, for a host on another port than 22."""
    if host.host_key_alias is not None or host.port == 22:
        return ()
    return lines_about((*host.user_known_hosts, *host.global_known_hosts), (host.host,)).keys


def find_same_key(host: SshHost, kind: str, key: str) -> tuple[KnownHostLine, ...]:
    """Return the lines that have this very key under any name."""
    found = read_files((*host.user_known_hosts, *host.global_known_hosts))
    entries = (entry for book in found for entry in book.entries)
    return tuple(
        entry for entry in entries if not entry.marker and (entry.type, entry.key) == (kind, key)
    )


def revocation_list(path: str | None) -> tuple[KnownHostLine, ...]:
    """Read the file of RevokedHostKeys: one public key per line.

    Raises:
        HostKeyRefused: it is missing, or a binary list (KRL), which only OpenSSH can read; then
            nothing is trusted.
    """
    if path is None:
        return ()
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise HostKeyRefused(
            translate(
                "ssh: RevokedHostKeys {path} cannot be read ({strerror}), so no host key can be "
                "trusted",
                path=path,
                strerror=error.strerror,
            )
        ) from error
    if data.startswith(b"SSHKRL\n\0"):
        raise HostKeyRefused(
            translate(
                "ssh: RevokedHostKeys {path} is a binary revocation list, which rgt cannot read; "
                "name a file with one public key a line for this host",
                path=path,
            )
        )
    lines = (f"* {line.strip()}" for line in data.decode("utf-8", "replace").split("\n"))
    return parse_known_hosts(path, "\n".join(lines))


LOCK_SECONDS = 10.0
NOWHERE = ("/dev/null", "none", "")


def append_key(path: str, name: str, kind: str, key: str, *, hashed: bool = False) -> KnownHostLine:
    """Add the key of `name` to a file, unless it has that line already. It may wait for the lock.

    Call it in a thread. The file is locked against other rgt processes and appended to in one call,
    so that neither they nor ``ssh`` can interleave lines.

    Args:
        path: The file; created with mode 0600, its directory with 0700.
        name: ``host`` or ``[host]:port``.
        kind: e.g. ``ssh-ed25519``.
        key: base64.
        hashed: Write the name hashed.

    Raises:
        HostKeyRefused: it cannot be written, or has another key of this server by now.
    """
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # O_APPEND: a line that ssh adds meanwhile is not overwritten.
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        # Before reading: another rgt may be adding the same host.
        lock_file(handle, LOCK_SECONDS)
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        for entry in parse_known_hosts(path, text):
            if entry.marker or entry.type != kind or not entry.is_about(name):
                continue
            if entry.key == key:
                return entry
            raise HostKeyRefused(
                translate(
                    "ssh: {location} now has another {kind} key of {name}; rgt did not connect",
                    location=entry.location,
                    kind=kind,
                    name=name,
                )
            )
        if not text or text.endswith("\n"):
            gap = ""
        else:
            # An editor may have left the last line without its end; ours must not become part of
            # it.
            gap = "\n"
        shown = hash_name(name) if hashed else name
        data = f"{gap}{shown} {kind} {key}\n".encode()
        # A full disk: half a line would be an invalid key, which ssh skips without a word.
        if os.write(handle, data) != len(data):
            raise OSError(0, translate("only a part could be written"))
        os.fsync(handle)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        os.close(handle)
    return KnownHostLine(path, (text + gap).count("\n") + 1, shown, kind, key)


def _unwritten(path: str, error: OSError) -> HostKeyRefused:
    return HostKeyRefused(
        translate(
            "ssh: the accepted host key cannot be written to {path} ({strerror}); fix that, or "
            "name another file with known_hosts in the fleet file",
            path=path,
            strerror=error.strerror or error,
        )
    )


# What to do with a host key that known_hosts does not have.


def fingerprint(blob: bytes) -> str:
    """Return ``SHA256:…`` of a public key in wire format."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def key_bits(kind: str, blob: bytes) -> int:
    """Return the size of a key in bits; 0 = unknown."""
    if kind != "ssh-rsa":
        return _BITS.get(kind, 0)
    rest = blob
    for _ in range(2):  # skip the type and the exponent; the modulus is left
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    return int.from_bytes(rest[4 : 4 + int.from_bytes(rest[:4], "big")], "big").bit_length()


def randomart(blob: bytes, label: str) -> tuple[str, ...]:
    """Return OpenSSH's randomart of a key (the drunken bishop), easier to compare by eye."""
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
    rows = (
        "".join(_CHARS[field[column][row]] for column in range(_WIDTH)) for row in range(_HEIGHT)
    )
    return (
        _randomart_edge(f"[{label}]"),
        *(f"|{row}|" for row in rows),
        _randomart_edge("[SHA256]"),
    )


def _randomart_edge(label: str) -> str:
    label = label[:_WIDTH]
    left = (_WIDTH - len(label)) // 2
    return "+" + "-" * left + label + "-" * (_WIDTH - left - len(label)) + "+"


class HostKeyPolicy(enum.StrEnum):
    """How to treat an unknown host key."""

    ASK = "ask"
    """Show it to a person and wait."""
    ACCEPT_NEW = "accept-new"
    """Record it and continue, unless the server is known under another key."""
    REFUSE = "refuse"


def effective(asked: HostKeyPolicy, strict: str) -> HostKeyPolicy:
    """Combine rgt's own policy with StrictHostKeyChecking of ssh_config.

    ``yes`` refuses; ``accept-new`` accepts; ``no`` is treated as ``ask``: rgt never continues
    unverified.
    """
    if strict == "yes" or asked is HostKeyPolicy.REFUSE:
        return HostKeyPolicy.REFUSE
    if strict == "accept-new" or asked is HostKeyPolicy.ACCEPT_NEW:
        return HostKeyPolicy.ACCEPT_NEW
    return asked


class OfferedKey(FrozenStruct):
    """The key that a server showed."""

    type: str
    key: str
    """base64."""

    @property
    def key_blob(self) -> bytes:
        """The key in wire format."""
        return base64.b64decode(self.key)


class MovedHost(FrozenStruct):
    """The provider reports a new address of the box."""

    source: str
    """Source of the address."""
    old: str
    """The name under which the box was known before."""


async def judge_host_key(
    host: SshHost,
    label: str,
    offered: OfferedKey,
    known: KnownLines,
    person: Person,
    policy: HostKeyPolicy,
    by_hand: tuple[str, ...],
    moved: MovedHost | None = None,
) -> None:
    """Return if the key may be trusted from now on; it has then been recorded.

    Args:
        host: The server.
        label: Its name in messages.
        offered: The key that it showed.
        known: The known facts about it.
        person: Answers prompts.
        policy: How to treat unknown keys.
        by_hand: The arguments for ``ssh`` that lead there.
        moved: Its earlier address.

    Raises:
        HostKeyRefused: it has changed, was not accepted, or it cannot be recorded.
    """
    shown = f"{offered.type} {fingerprint(offered.key_blob)}"
    changed = known.same_type(offered.type)
    # Before any policy: no option lets a changed key pass.
    if changed:
        raise HostKeyRefused(_changed_key_message(host, label, shown, changed))
    rule = effective(policy, host.strict)
    others = ", ".join(f"{entry.type} at {entry.location}" for entry in known.keys)
    if rule is HostKeyPolicy.REFUSE or (rule is HostKeyPolicy.ACCEPT_NEW and others):
        if others:
            why = translate(
                "its {type} key is unknown; known keys of this server: {others}",
                type=offered.type,
                others=others,
            )
        else:
            why = translate("its key is unknown, and unknown keys are refused")
        raise HostKeyRefused(
            translate(
                "ssh: {label}: {why} (shown: {shown}); {host}",
                label=label,
                why=why,
                shown=shown,
                host=_describe_acceptance(host, known.keys, by_hand, person.box),
            )
        )
    if rule is HostKeyPolicy.ASK and not await _ask_to_accept(
        host, label, offered, shown, others, person, moved
    ):
        raise HostKeyRefused(
            translate(
                "ssh: {label}: its host key is unknown and was not accepted (shown: {shown}); ",
                label=label,
                shown=shown,
            )
            + _describe_acceptance(host, known.keys, by_hand, person.box)
        )
    path = file_for_new_keys(host)
    if path is None:
        person.answers.keep_accepted_key(host.known_as, offered.type, offered.key)
    else:
        # In a thread: another program may hold the file's lock.
        await asyncio.to_thread(
            append_key, path, host.known_as, offered.type, offered.key, hashed=host.hash_known_hosts
        )


def file_for_new_keys(host: SshHost) -> str | None:
    """Return the known_hosts file for new keys; None = there is none."""
    first = next(iter(host.user_known_hosts), "")
    if first in NOWHERE:
        return None
    return first


async def _ask_to_accept(
    host: SshHost,
    label: str,
    offered: OfferedKey,
    shown: str,
    others: str,
    person: Person,
    moved: MovedHost | None,
) -> bool:
    path = file_for_new_keys(host)
    lines = [translate("{label} shows an unknown host key:", label=label), shown]
    if moved is not None:
        lines.append(
            translate(
                "{source} reports that the box has moved here from {old}",
                source=moved.source,
                old=moved.old,
            )
        )
    if others:
        lines.append(
            translate(
                "CAUTION: this server is known with another type of key: {others}", others=others
            )
        )
    same = find_same_key(host, offered.type, offered.key)
    if same:
        lines.append(
            translate("the very same key is known at ")
            + ", ".join(entry.location for entry in same[:3])
        )
    if path is not None:
        lines.append(
            translate("yes writes it to {path} as {known_as}", path=path, known_as=host.known_as)
        )
    else:
        lines.append(
            translate(
                "yes keeps it until rgt ends: ssh_config names no known_hosts file for this host"
            )
        )
    lines += randomart(offered.key_blob, _key_caption(offered))
    answer = await person.prompt_person(
        QuestionKind.HOST_KEY, translate("new host key of {label}", label=label), tuple(lines)
    )
    # The whole word, as in ssh: a stray key press trusts no one.
    return answer is not None and answer.strip().lower() == "yes"


def _key_caption(offered: OfferedKey) -> str:
    if offered.type.startswith("ecdsa-"):
        name = "ECDSA"
    else:
        name = offered.type.removeprefix("ssh-").upper()
    bits = key_bits(offered.type, offered.key_blob)
    if bits:
        return f"{name} {bits}"
    return name


def _changed_key_message(
    host: SshHost, label: str, shown: str, known: tuple[KnownHostLine, ...]
) -> str:
    lines = "; ".join(
        f"{entry.location} has {entry.type} {fingerprint(entry.key_blob)}" for entry in known
    )
    return translate(
        "ssh: {label}: THE HOST KEY HAS CHANGED, nothing was sent. It shows {shown}, but "
        "{lines}. Someone may be intercepting the connection, or the machine was reinstalled: "
        "ask the provider, and only if it was, forget the old key: ",
        label=label,
        shown=shown,
        lines=lines,
    ) + _forget_command(host, known)


def _describe_acceptance(
    host: SshHost, others: tuple[KnownHostLine, ...], by_hand: tuple[str, ...], box: str
) -> str:
    """Return how the key can be accepted under the rules for this server."""
    strict = ""
    if host.strict == "yes" or (host.strict == "accept-new" and others):
        strict = host.strict
    if strict:
        options = ["-o", "StrictHostKeyChecking=ask"]
    else:
        options = []
    options += ["-o", "BatchMode=no"] if host.batch else []
    by_ssh = f"by `{shlex.join(('ssh', *options, *by_hand))}`"
    if others:
        # ssh treats a server known by another kind of key as one whose key has changed.
        by_ssh = translate(
            "forget the other key ({command}) and accept this one {by_ssh}",
            command=_forget_command(host, others),
            by_ssh=by_ssh,
        )
    if strict:
        closed = f"StrictHostKeyChecking is {strict}"
    elif host.batch:
        closed = "BatchMode is yes"
    else:
        closed = ""
    if closed:
        if others:
            way = by_ssh
        else:
            way = f"accept it {by_ssh}"
        return translate(
            "{closed} for it in ssh_config, so rgt does not ask: {compare}, then {way}",
            closed=closed,
            compare=_COMPARE,
            way=way,
        )
    asking = translate(
        "`rgt doctor {box}` on a terminal or the dashboard (rgt), which ask", box=shlex.quote(box)
    )
    if others:
        return translate(
            "{compare}, then accept it in {asking}, or {by_ssh}",
            compare=_COMPARE,
            asking=asking,
            by_ssh=by_ssh,
        )
    return translate(
        "{compare}, then accept it in {asking}, with --accept-new-host-key, or {by_ssh}",
        compare=_COMPARE,
        asking=asking,
        by_ssh=by_ssh,
    )


_COMPARE = "compare it with what the provider shows"


def _forget_command(host: SshHost, known: tuple[KnownHostLine, ...]) -> str:
    return " ".join(
        f"`ssh-keygen -R {shlex.quote(host.known_as)} -f {shlex.quote(path)}`"
        for path in dict.fromkeys(entry.path for entry in known)
    )
