"""Which algorithms are offered, and in which order.

`aes128-gcm` and `curve25519` come first: they cost the client the least where hundreds of boxes are watched. The
rest of what asyncssh trusts stays on offer behind them. ssh_config decides instead where it says something.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import (
    get_certificate_algs,
    get_default_certificate_algs,
    get_default_public_key_algs,
    get_public_key_algs,
)

from rgt_tui.ssh.errors import ConfigError
from rgt_tui.ssh.resolve import Host

CIPHERS_FIRST = "^aes128-gcm@openssh.com"
KEX_FIRST = "^curve25519-sha256,curve25519-sha256@libssh.org"


def chosen(host: Host) -> dict[str, Any]:
    """Return asyncssh's options for ciphers, key exchange, MACs and compression.

    Raises:
        ConfigError: ssh_config names only what asyncssh does not know.
    """
    found: dict[str, Any] = {
        "encryption_algs": _said("Ciphers", host.ciphers, get_encryption_algs(), host) or CIPHERS_FIRST,
        "kex_algs": _said("KexAlgorithms", host.kex, get_kex_algs(), host) or KEX_FIRST,
    }
    if macs := _said("MACs", host.macs, get_mac_algs(), host):
        found["mac_algs"] = macs
    if host.compression:
        found["compression_algs"] = ["zlib@openssh.com", "zlib", "none"]
    return found


def host_keys(host: Host, trusted: Sequence[asyncssh.SSHKey], authorities: bool) -> list[str]:
    """Return the host key algorithms, those of known keys first, so that a known key is what the server shows.

    Raises:
        ConfigError: HostKeyAlgorithms names only what asyncssh does not know.
    """
    # Interned, because each of hundreds of connections keeps its list.
    known = [sys.intern(name.decode()) for key in trusted for name in key.sig_algorithms]
    plain = [sys.intern(name.decode()) for name in get_default_public_key_algs()]
    # A certificate that no known authority signed could not be verified, so none is asked for.
    certificates = [name.decode() for name in get_default_certificate_algs()] if authorities else []
    possible = get_public_key_algs() + (get_certificate_algs() if authorities else [])
    said = _said("HostKeyAlgorithms", host.host_key_algorithms, possible, host) or [*certificates, *plain]
    signed = [name for name in said if name in certificates]
    return list(dict.fromkeys([*signed, *[name for name in known if name in said], *said]))


def _said(option: str, value: str | None, possible: Sequence[bytes], host: Host) -> list[str] | None:
    """Return a list of ssh_config without the names that asyncssh does not know; None = nothing is said."""
    if value is None:
        return None
    known = {name.decode() for name in possible}
    kept = [name for name in value.split(",") if name in known]
    if not kept:
        raise ConfigError(f"ssh_config, for {host.alias}: {option} {value}: rgt knows none of them")
    return kept
