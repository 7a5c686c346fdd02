"""Which options of ssh_config count, and how each is read: a table."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import msgspec

Read = Callable[[list[str]], Any]

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Option(msgspec.Struct, frozen=True):
    """One option."""

    field: str
    """Name in `Host`, or of what is worked out from it."""
    read: Read
    adds: bool = False
    """Every occurrence adds; otherwise the first one counts."""
    raw: bool = False
    """The rest of the line as it stands."""


def _one(words: list[str]) -> str:
    if len(words) != 1:
        raise ValueError("needs one argument" if not words else f"has too much after {words[0]!r}")
    return words[0]


def _many(words: list[str]) -> tuple[str, ...]:
    if not words:
        raise ValueError("needs an argument")
    return tuple(words)


def _port(words: list[str]) -> int:
    text = _one(words)
    if re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII):
        port = int(text)
    else:
        try:
            port = socket.getservbyname(text, "tcp")
        except (OSError, UnicodeError):
            raise ValueError(f"{text!r} is no port, and no service that this machine knows") from None
    if not 0 < port < 65536:
        raise ValueError(f"{text!r} is no port")
    return port


def _count(words: list[str]) -> int:
    text = _one(words)
    if not re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r} is no number")
    return int(text)


def seconds(words: list[str]) -> int | None:
    """Read a time such as ``90``, ``1m30s`` or ``none``."""
    text = _one(words)
    if text.lower() == "none":
        return None
    if not re.fullmatch(r"(\d+[smhdw])*\d*", text, re.IGNORECASE) or not text:
        raise ValueError(f"{text!r} is no time such as 90 or 1m30s")
    return sum(int(n) * _UNITS[unit.lower()] for n, unit in re.findall(r"(\d+)([smhdwSMHDW]?)", text))


def _words(table: dict[str, Any]) -> Read:
    def read(words: list[str]) -> Any:
        text = _one(words).lower()
        if text not in table:
            raise ValueError(f"{text!r} is none of {', '.join(sorted(table))}")
        return table[text]

    return read


_YES_NO = _words({"yes": True, "true": True, "no": False, "false": False})
_STRICT = _words(
    {
        "yes": "yes",
        "true": "yes",
        "no": "no",
        "off": "no",
        "false": "no",
        "ask": "ask",
        "accept-new": "accept-new",
    }
)
_PUBKEY = _words(
    {"yes": True, "true": True, "no": False, "false": False, "unbound": True, "host-bound": True}
)
_FAMILY = _words({"any": "any", "inet": "inet", "inet6": "inet6"})


def _text(words: list[str]) -> str:
    # ProxyCommand: the whole rest of the line is one argument.
    if not words[0]:
        raise ValueError("needs an argument")
    return words[0]


OPTIONS: dict[str, Option] = {
    "hostname": Option("hostname", _one),
    "port": Option("port", _port),
    "user": Option("user", _one),
    "identityfile": Option("identities", _one, adds=True),
    "certificatefile": Option("certificates", _one, adds=True),
    "identitiesonly": Option("identities_only", _YES_NO),
    "identityagent": Option("agent", _one),
    "proxyjump": Option("proxy_jump", _one),
    "proxycommand": Option("proxy_command", _text, raw=True),
    "serveraliveinterval": Option("alive_interval", seconds),
    "serveralivecountmax": Option("alive_count", _count),
    "connecttimeout": Option("connect_timeout", seconds),
    "userknownhostsfile": Option("user_known_hosts", _many),
    "globalknownhostsfile": Option("global_known_hosts", _many),
    "hostkeyalias": Option("host_key_alias", _one),
    "hashknownhosts": Option("hash_known_hosts", _YES_NO),
    "stricthostkeychecking": Option("strict", _STRICT),
    "revokedhostkeys": Option("revoked_host_keys", _one),
    "batchmode": Option("batch", _YES_NO),
    "pubkeyauthentication": Option("public_key_auth", _PUBKEY),
    "passwordauthentication": Option("password_auth", _YES_NO),
    "kbdinteractiveauthentication": Option("kbdint_auth", _YES_NO),
    "challengeresponseauthentication": Option("kbdint_auth", _YES_NO),
    "preferredauthentications": Option("preferred_auth", _one),
    "ciphers": Option("ciphers", _one),
    "macs": Option("macs", _one),
    "kexalgorithms": Option("kex", _one),
    "hostkeyalgorithms": Option("host_key_algorithms", _one),
    "addressfamily": Option("family", _FAMILY),
    "bindaddress": Option("bind_address", _one),
    "compression": Option("compression", _YES_NO),
    "tag": Option("tag", _one),
}

NOT_HONOURED = frozenset(
    (
        "bindinterface",
        "canonicalizehostname",
        "gssapiauthentication",
        "hostbasedauthentication",
        "knownhostscommand",
        "pkcs11provider",
        "proxyusefdpass",
        "requiredrsasize",
        "verifyhostkeydns",
    )
)
"""Options that could change whether or how one gets in, and that rgt leaves out; see docs/ssh.md."""
UNUSED = ("no", "none", "false")
"""What turns such an option off: then nothing is left out."""
