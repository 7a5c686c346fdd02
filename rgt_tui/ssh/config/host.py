"""One host as ssh_config describes it, every value worked out."""

from __future__ import annotations

import re

import msgspec

DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
"""Below ``~/.ssh``, in the order in which OpenSSH tries them."""


class Jump(msgspec.Struct, frozen=True):
    """One element of ProxyJump."""

    host: str
    user: str | None = None
    port: int | None = None


class Host(msgspec.Struct, frozen=True):
    """How to reach one SSH server: one hop of a route. Paths are expanded, times are seconds."""

    alias: str
    """As the person wrote it: what error messages name."""
    host: str
    port: int
    user: str
    identities: tuple[str, ...] = ()
    identities_given: bool = False
    """The files were named; otherwise they are the default ones, of which most do not exist."""
    certificates: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str | None = None
    """Socket of the SSH agent; None = do not ask one."""
    jumps: tuple[Jump, ...] = ()
    proxy_command: str | None = None
    alive_interval: float | None = None
    """None or 0 = not set."""
    alive_count: int | None = None
    connect_timeout: float | None = None
    user_known_hosts: tuple[str, ...] = ()
    """Files that are read; the first is written to."""
    global_known_hosts: tuple[str, ...] = ()
    host_key_alias: str | None = None
    hash_known_hosts: bool = False
    strict: str = "ask"
    """yes, no, ask or accept-new, as written; what rgt makes of it, see `rgt_tui.ssh.hostkeys.policy`."""
    revoked_host_keys: str | None = None
    batch: bool = False
    """Never ask a person."""
    public_key_auth: bool = True
    password_auth: bool = True
    kbdint_auth: bool = True
    preferred_auth: tuple[str, ...] = ()
    ciphers: str | None = None
    macs: str | None = None
    kex: str | None = None
    host_key_algorithms: str | None = None
    family: str = "any"
    bind_address: str | None = None
    compression: bool = False
    notes: tuple[str, ...] = ()
    """Options that apply to this host and that rgt does not honour, each with file and line."""

    @property
    def where(self) -> str:
        """``user@host:port``, as messages name it."""
        return f"{self.user}@{place(self.host, self.port)}"

    @property
    def known_as(self) -> str:
        """The name by which known_hosts knows the server."""
        return known_name(self.host, self.port, self.host_key_alias)


def check_host(host: str) -> None:
    """Refuse a host name that a shell or an option parser could take for something else.

    Raises:
        ValueError: it is such a name.
    """
    if not host or host.startswith("-") or re.search(r"[\s\x00-\x1f\x7f'`\"$\\;&<>|(){}]", host):
        raise ValueError(f"{host!r} is no host name")


def check_user(user: str) -> None:
    """Refuse a user name of that kind.

    Raises:
        ValueError: it is such a name.
    """
    if not user or user.startswith("-") or re.search(r"[\x00-\x1f\x7f'`\";&<>|(){}]|\s-|\\$", user):
        raise ValueError(f"{user!r} is no user name")


def place(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def known_name(host: str, port: int, alias: str | None = None) -> str:
    """Return the name under which known_hosts lists a server: ``host``, ``[host]:port``, or its alias."""
    if alias is not None:
        return alias
    return host if port == 22 else f"[{host}]:{port}"
