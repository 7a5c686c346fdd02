"""Lines of known_hosts: which server each is about, and its key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

import msgspec

from rgt_tui.ssh.patterns import in_list

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
        return in_list(self.hosts, name, lower=True)


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
