"""What known_hosts says about a server, and how a key is added to it."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rgt_tui.files import take
from rgt_tui.ssh.ssh_errors import HostKeyRefused
from rgt_tui.ssh.ssh_route import Host


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    # Several stars in a row mean one; each more would only cost time on a long name.
    text = re.sub(r"\*+", "*", pattern)
    return re.compile("".join(parts.get(char) or re.escape(char) for char in text), re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    """Tell whether one pattern fits the whole text."""
    return _compiled(pattern).fullmatch(text) is not None


def any_of(patterns: Iterable[str], text: str) -> bool:
    """Tell whether a pattern fits and none that begins with ``!`` does."""
    found = False
    for pattern in patterns:
        if pattern.startswith("!"):
            if matches(pattern[1:], text):
                return False
        else:
            found = found or matches(pattern, text)
    return found


def in_list(patterns: str, text: str) -> bool:
    """As `any_of`, for a list with commas, and without regard to case."""
    return any_of(patterns.lower().split(","), text.lower())


CA, REVOKED = "cert-authority", "revoked"


class Entry(msgspec.Struct, frozen=True):
    """One line that has a key."""

    path: str
    line: int
    hosts: str
    """Names with commas, patterns allowed, or one hashed name."""
    type: str
    """Name of the key's algorithm, e.g. ``ssh-ed25519``."""
    key: str
    """The public key in base64."""
    marker: str = ""

    @property
    def at(self) -> str:
        """``file:line``."""
        return f"{self.path}:{self.line}"

    @property
    def blob(self) -> bytes:
        """The key in wire format."""
        return base64.b64decode(self.key)

    def about(self, name: str) -> bool:
        """Tell whether the line is about a server; `name` is ``host`` or ``[host]:port``."""
        if self.hosts.startswith("|1|"):
            return _hashed(self.hosts, name.lower())
        return in_list(self.hosts, name)


def parse(path: str, text: str) -> tuple[Entry, ...]:
    """Parse a file. What is no entry is passed over, as OpenSSH does."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split(None, 4)
        marker = ""
        if words and words[0].startswith("@"):
            marker = words.pop(0)[1:]
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", CA, REVOKED):
            continue
        hosts, kind, key = words[:3]
        if _type_of(key) == kind:
            entries.append(Entry(path, number, hosts, kind, key, marker))
    return tuple(entries)


def _type_of(key: str) -> str:
    """Return the type that is written in the key itself; empty for what is no key."""
    try:
        blob = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        return ""
    size = int.from_bytes(blob[:4], "big")
    return blob[4 : 4 + size].decode("ascii", "replace") if 0 < size < 64 else ""


def _hashed(hosts: str, name: str) -> bool:
    try:
        _, _, salt, digest = hosts.split("|")
        expected = base64.b64decode(digest, validate=True)
        found = hmac.new(base64.b64decode(salt, validate=True), name.encode(), hashlib.sha1).digest()
    except ValueError:
        return False
    return hmac.compare_digest(found, expected)


def hash_name(name: str) -> str:
    """Return a name as HashKnownHosts writes it: it can be recognised, not read."""
    salt = secrets.token_bytes(20)
    digest = hmac.new(salt, name.lower().encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


class Known(msgspec.Struct, frozen=True):
    """The lines about a server, by what they mean."""

    keys: tuple[Entry, ...] = ()
    authorities: tuple[Entry, ...] = ()
    revoked: tuple[Entry, ...] = ()

    def same_type(self, kind: str) -> tuple[Entry, ...]:
        """Return the known keys of a type."""
        return tuple(entry for entry in self.keys if entry.type == kind)


class Book:
    """The lines of one file. Those that name servers in full are found by name: a fleet asks hundreds of times."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self.entries = entries
        self._named: dict[str, list[Entry]] = {}
        self._other: list[Entry] = []
        """Patterns and hashed names."""
        for entry in entries:
            if any(char in entry.hosts for char in "*?!|"):
                self._other.append(entry)
            else:
                for name in entry.hosts.lower().split(","):
                    self._named.setdefault(name, []).append(entry)

    def about(self, names: Sequence[str]) -> list[Entry]:
        """Return the lines about a server that has these names, in their order."""
        found = [entry for entry in self._other if any(entry.about(name) for name in names)]
        for name in names:
            found += self._named.get(name.lower(), ())
        return sorted({entry.line: entry for entry in found}.values(), key=lambda entry: entry.line)


def books(paths: Sequence[str]) -> list[Book]:
    """Read files, or recall them while they do not change; one that does not exist says nothing.

    Raises:
        HostKeyRefused: a file cannot be read: it may hold a revoked key.
    """
    found = []
    for path in dict.fromkeys(paths):
        try:
            status = Path(path).stat()
            found.append(_book(path, (status.st_ino, status.st_size, status.st_mtime_ns)))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostKeyRefused(
                f"ssh: {path} cannot be read ({error.strerror}), and no host key is trusted without it"
            ) from error
    return found


@functools.lru_cache(maxsize=16)
def _book(path: str, _stamp: tuple[int, int, int]) -> Book:
    return Book(parse(path, Path(path).read_text(encoding="utf-8", errors="replace")))


def about(paths: Sequence[str], names: Sequence[str]) -> Known:
    """Return what files say about a server that has these names.

    Raises:
        HostKeyRefused: a file cannot be read.
    """
    found = [entry for book in books(paths) for entry in book.about(names)]
    return Known(
        keys=tuple(entry for entry in found if not entry.marker),
        authorities=tuple(entry for entry in found if entry.marker == CA),
        revoked=tuple(entry for entry in found if entry.marker == REVOKED),
    )


def lookup(host: Host, also: Sequence[str] = ()) -> Known:
    """Return what the files of a host say about it.

    Args:
        host: The hop.
        also: Names that the same machine had before it moved.

    As in OpenSSH, a server on another port than 22 may be known by its bare name, too, if no line is about the
    port: only a matching key counts there, so `judge` calls no key changed on its account.

    Raises:
        HostKeyRefused: a file cannot be read.
    """
    paths = (*host.user_known_hosts, *host.global_known_hosts)
    known = about(paths, (host.known_as, *also))
    if host.host_key_alias is not None or host.port == 22:
        return known
    bare = about(paths, (host.host,))
    return Known(
        keys=known.keys,
        authorities=tuple(dict.fromkeys(known.authorities + bare.authorities)),
        revoked=tuple(dict.fromkeys(known.revoked + bare.revoked)),
    )


def bare_keys(host: Host) -> tuple[Entry, ...]:
    """Return the keys that are known by the host's name alone, for a host on another port than 22."""
    if host.host_key_alias is not None or host.port == 22:
        return ()
    return about((*host.user_known_hosts, *host.global_known_hosts), (host.host,)).keys


def elsewhere(host: Host, kind: str, key: str) -> tuple[Entry, ...]:
    """Return the lines that have this very key under any name."""
    found = books((*host.user_known_hosts, *host.global_known_hosts))
    entries = (entry for book in found for entry in book.entries)
    return tuple(entry for entry in entries if not entry.marker and (entry.type, entry.key) == (kind, key))


def revocation_list(path: str | None) -> tuple[Entry, ...]:
    """Read the file of RevokedHostKeys: one public key a line.

    Raises:
        HostKeyRefused: it is missing, or a binary list (KRL), which only OpenSSH can read: then nothing is trusted.
    """
    if path is None:
        return ()
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise HostKeyRefused(
            f"ssh: RevokedHostKeys {path} cannot be read ({error.strerror}); nothing is trusted without it"
        ) from error
    if data.startswith(b"SSHKRL\n\0"):
        raise HostKeyRefused(
            f"ssh: RevokedHostKeys {path} is a binary revocation list, which rgt cannot read; name a file with one "
            "public key a line for this host"
        )
    lines = (f"* {line.strip()}" for line in data.decode("utf-8", "replace").split("\n"))
    return parse(path, "\n".join(lines))


LOCK_SECONDS = 10.0
NOWHERE = ("/dev/null", "none", "")


def append(path: str, name: str, kind: str, key: str, *, hashed: bool = False) -> Entry:
    """Write down that `name` has a key; nothing happens when the file says so already.

    It may wait for the lock: call it in a thread.

    The file is locked for other rgt processes and written in one call behind its end, so that neither they nor
    ``ssh`` itself can tear a line.

    Args:
        path: The file; it is made with mode 0600, its directory with 0700.
        name: ``host`` or ``[host]:port``.
        kind: e.g. ``ssh-ed25519``.
        key: base64.
        hashed: Write the name so that it can be recognised, not read.

    Raises:
        HostKeyRefused: it cannot be written, or says something else about this server by now.
    """
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritten(path, error) from error
    try:
        take(handle, LOCK_SECONDS)
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        for entry in parse(path, text):
            if entry.marker or entry.type != kind or not entry.about(name):
                continue
            if entry.key == key:
                return entry
            raise HostKeyRefused(
                f"ssh: {entry.at} has got another {kind} key of {name} in the meantime; it was not connected"
            )
        gap = "" if not text or text.endswith("\n") else "\n"
        shown = hash_name(name) if hashed else name
        data = f"{gap}{shown} {kind} {key}\n".encode()
        if os.write(handle, data) != len(data):
            raise OSError(0, "only a part could be written")
        os.fsync(handle)
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        os.close(handle)
    return Entry(path, (text + gap).count("\n") + 1, shown, kind, key)


def _unwritten(path: str, error: OSError) -> HostKeyRefused:
    return HostKeyRefused(
        f"ssh: the accepted host key cannot be written to {path} ({error.strerror or error}); "
        "mend that, or name another file with known_hosts in the fleet file"
    )
