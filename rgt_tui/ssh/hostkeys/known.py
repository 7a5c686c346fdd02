"""What the known_hosts files say about one server."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rgt_tui.ssh.errors import HostKeyRefused
from rgt_tui.ssh.hostkeys.entries import CA, REVOKED, Entry, parse
from rgt_tui.ssh.resolve import Host


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
