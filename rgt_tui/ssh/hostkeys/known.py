"""What the known_hosts files say about one server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rgt_tui.ssh.config.host import Host
from rgt_tui.ssh.errors import HostKeyRefused
from rgt_tui.ssh.hostkeys.entries import CA, REVOKED, Entry, parse


class Known(msgspec.Struct, frozen=True):
    """The lines about a server, by what they mean."""

    keys: tuple[Entry, ...] = ()
    authorities: tuple[Entry, ...] = ()
    revoked: tuple[Entry, ...] = ()

    def same_type(self, kind: str) -> tuple[Entry, ...]:
        """Return the known keys of a type."""
        return tuple(entry for entry in self.keys if entry.type == kind)


def read(paths: Sequence[str]) -> tuple[Entry, ...]:
    """Read files; one that does not exist says nothing.

    Raises:
        HostKeyRefused: a file cannot be read: it may hold a revoked key.
    """
    entries: tuple[Entry, ...] = ()
    for path in dict.fromkeys(paths):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostKeyRefused(
                f"ssh: {path} cannot be read ({error.strerror}), and no host key is trusted without it"
            ) from error
        entries += parse(path, text)
    return entries


def about(entries: Sequence[Entry], names: Sequence[str]) -> Known:
    """Return what is said about a server that has these names."""
    found = [entry for entry in entries if any(entry.about(name) for name in names)]
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
    entries = read((*host.user_known_hosts, *host.global_known_hosts))
    known = about(entries, (host.known_as, *also))
    if host.host_key_alias is not None or host.port == 22:
        return known
    bare = about(entries, (host.host,))
    return Known(
        keys=known.keys,
        authorities=tuple(dict.fromkeys(known.authorities + bare.authorities)),
        revoked=tuple(dict.fromkeys(known.revoked + bare.revoked)),
    )


def bare_keys(host: Host) -> tuple[Entry, ...]:
    """Return the keys that are known by the host's name alone, for a host on another port than 22."""
    if host.host_key_alias is not None or host.port == 22:
        return ()
    return about(read((*host.user_known_hosts, *host.global_known_hosts)), (host.host,)).keys


def elsewhere(host: Host, kind: str, key: str) -> tuple[Entry, ...]:
    """Return the lines that have this very key under any name."""
    entries = read((*host.user_known_hosts, *host.global_known_hosts))
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
