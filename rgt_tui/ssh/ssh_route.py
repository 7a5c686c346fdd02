"""Resolves an alias to the route to its box: every hop to log in to, with all values set."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct
from rgt_tui.ssh.box_transport import ConfigError
from rgt_tui.ssh.ssh_config import (
    NO_FILE,
    NO_KEY,
    NOTES,
    OF_ITS_OWN,
    SYSTEM,
    Answer,
    Surroundings,
    environment,
    expand_path,
    query_settings,
    replace_tokens,
)

DEFAULT_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
"""Files in ``~/.ssh``, in the order in which OpenSSH tries them."""
NOT_HONOURED = (
    "bindinterface", "gssapiauthentication", "hostbasedauthentication", "knownhostscommand",
    "pkcs11provider",
    "proxyusefdpass", "requiredrsasize", "verifyhostkeydns",
)  # fmt: skip
"""Options that may affect the login and that rgt ignores; see docs/ssh.md."""


class JumpHost(FrozenStruct):
    """One element of ProxyJump."""

    host: str
    user: str | None = None
    port: int | None = None


class SshHost(FrozenStruct):
    """How to reach one SSH server: one hop of a route. Paths are expanded, times are in seconds."""

    alias: str
    """As the person wrote it; used in error messages."""
    host: str
    port: int
    user: str
    identities: tuple[str, ...] = ()
    identities_given: bool = False
    """The files were named; otherwise they are the default ones, most of which do not exist."""
    certificates: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str | None = None
    """Socket of the SSH agent; None = use no agent."""
    jumps: tuple[JumpHost, ...] = ()
    proxy_command: str | None = None
    alive_interval: float | None = None
    """None or 0 = not set."""
    alive_count: int | None = None
    connect_timeout: float | None = None
    user_known_hosts: tuple[str, ...] = ()
    """Files that are read; new keys are written to the first."""
    global_known_hosts: tuple[str, ...] = ()
    host_key_alias: str | None = None
    hash_known_hosts: bool = False
    strict: str = "ask"
    """``yes``, ``no``, ``ask`` or ``accept-new``; for rgt's meaning see `rgt_tui.ssh.known_hosts`.
    """
    revoked_host_keys: str | None = None
    batch: bool = False
    """Never prompt a person."""
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
    """How rgt deviates from ssh for this host."""

    @property
    def user_host_port(self) -> str:
        """``user@host:port``, as in messages."""
        return f"{self.user}@{host_and_port(self.host, self.port)}"

    @property
    def known_as(self) -> str:
        """The server's name in known_hosts."""
        return known_name(self.host, self.port, self.host_key_alias)


class HostRequest(FrozenStruct):
    """The requested host. Explicit values override every file, as on ssh's command line."""

    host: str
    port: int | None = None
    user: str | None = None
    default_user: str | None = None
    """Used if no file names a user; None = the local user."""
    proxied: bool = False
    """The route is already determined: ignore ProxyJump and ProxyCommand in the files."""


def check_host(host: str) -> None:
    """Refuse a host name that a shell or an option parser could misinterpret.

    Raises:
        ValueError: it is such a name.
    """
    # As OpenSSH since 9.6: the name may be expanded in ProxyCommand or Match exec.
    if not host or host.startswith("-") or re.search(r"[\s\x00-\x1f\x7f'`\"$\\;&<>|(){}]", host):
        raise ValueError(translate("{host!r} is not a valid host name", host=host))


def check_user(user: str) -> None:
    """Refuse a user name that a shell or an option parser could misinterpret.

    Raises:
        ValueError: it is such a name.
    """
    if not user or user.startswith("-") or re.search(r"[\x00-\x1f\x7f'`\";&<>|(){}]|\s-|\\$", user):
        raise ValueError(translate("{user!r} is not a valid user name", user=user))


def host_and_port(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def known_name(host: str, port: int, alias: str | None = None) -> str:
    """Return a server's name in known_hosts: ``host``, ``[host]:port``, or its alias."""
    if alias is not None:
        return alias
    if port == 22:
        return host
    return f"[{host}]:{port}"


_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+(?:@[^@]+)*)@)?(?:\[(?P<literal>[^\]]+)\]"
    r"|(?P<host>[^\[\]:/@]+))(?::(?P<port>\d+))?/?"
)


def parse_jumps(text: str) -> tuple[JumpHost, ...]:
    """Parse ``[user@]host[:port]`` or ``ssh://…``, comma-separated.

    Raises:
        ValueError: an element is wrong.
    """
    return tuple(_parse_jump(part.strip()) for part in text.split(","))


def _parse_jump(text: str) -> JumpHost:
    found = _JUMP.fullmatch(text)
    host = ""
    if found is not None:
        host = found["literal"] or found["host"]
    # A host of "-oProxyCommand=…" would be an option of ssh.
    if found is None or text.startswith("-") or host.startswith("-"):
        raise ValueError(translate("ProxyJump: {words!r} is not [user@]host[:port]", words=text))
    if found["port"]:
        port = int(found["port"])
    else:
        port = None
    if port is not None and not 0 < port < 65536:
        raise ValueError(translate("ProxyJump: {port} is not a valid port", port=port))
    return JumpHost(host, found["user"], port)


def resolve_route(wanted: HostRequest, around: Surroundings) -> tuple[SshHost, ...]:
    """Return the hops, the box last. May run ``Match exec`` commands: call it in a thread.

    A chain ``ProxyJump a,b`` works like ``ssh -J a,b``: `a` is reached as its own entry says
    (including its ProxyJump or ProxyCommand), `b` always through `a`, regardless of the entry of
    `b`.

    Raises:
        ConfigError: a file is wrong, or the chain is circular.
    """
    return _resolve_route(wanted, around, ())


def _resolve_route(
    wanted: HostRequest, around: Surroundings, above: tuple[SshHost, ...]
) -> tuple[SshHost, ...]:
    # Loops are found by address below: two aliases may lead to one another.
    host = resolve_host(wanted, around)
    if any(
        (host.host, host.port, host.user) == (other.host, other.port, other.user) for other in above
    ):
        circle = " → ".join(hop.alias for hop in (*above, host))
        raise ConfigError(
            translate(
                "ssh_config: ProxyJump has a loop: {circle}{of_its_own}",
                circle=circle,
                of_its_own=OF_ITS_OWN,
            )
        )
    if not host.jumps:
        return (host,)
    # Only the first hop follows its own entry; see `resolve_route`.
    first, *others = host.jumps
    hops = _resolve_route(HostRequest(first.host, first.port, first.user), around, (*above, host))
    through = (HostRequest(jump.host, jump.port, jump.user, proxied=True) for jump in others)
    return (*hops, *(resolve_host(hop, around) for hop in through), host)


def resolve_host(wanted: HostRequest, around: Surroundings) -> SshHost:
    """Resolve how to reach a host. May run ``Match exec`` commands: call it in a thread.

    Raises:
        ConfigError: a file is wrong, or the host or user name is invalid.
    """
    options = (
        *(("-p", str(wanted.port)) if wanted.port is not None else ()),
        *(("-l", wanted.user) if wanted.user is not None else ()),
    )
    try:
        return _SettingsReader(
            wanted, query_settings(wanted.host, options, wanted.default_user, around), around
        ).read_host()
    except ValueError as error:
        raise ConfigError(
            translate("ssh_config, for {host}: {error}", host=wanted.host, error=error)
        ) from error


class _SettingsReader:
    """Converts one answer of ``ssh -G`` to a `SshHost`."""

    def __init__(self, wanted: HostRequest, answer: Answer, around: Surroundings) -> None:
        self._wanted, self._answer, self._around = wanted, answer, around
        alias = wanted.host
        self._name = self._first_value("hostname") or (alias if "%" in alias else alias.lower())
        self._port = int(self._first_value("port") or wanted.port or 22)
        user = self._first_value("user") or wanted.user or wanted.default_user or around.local_user
        self._user = environment(user, around.env)
        self._key_alias = self._first_value("hostkeyalias").lower() or None
        jump = self._first_value("proxyjump")
        if jump.lower() == NO_FILE:
            self._jump = ""
        else:
            self._jump = jump
        self._table = self._token_table()

    def read_host(self) -> SshHost:
        try:
            check_host(self._name)
        except ValueError as error:
            if self._name.lower() != self._wanted.host.lower():
                raise
            # The requested name is wrong, not a file.
            raise ConfigError(
                translate("{error}, and ssh_config has no HostName for it", error=error)
            ) from error
        check_user(self._user)
        around, wanted = self._around, self._wanted
        named = [path for path in self._answer.get("identityfile", ()) if path != NO_KEY]
        identities = named or [str(around.ssh_folder / name) for name in DEFAULT_IDENTITIES]
        command, revoked = self._first_value("proxycommand"), self._first_value("revokedhostkeys")
        timeout = self._first_value("connecttimeout")
        strict = self._first_value("stricthostkeychecking")
        jumps: tuple[JumpHost, ...] = ()
        through = revocations = None
        if not wanted.proxied and self._jump:
            jumps = parse_jumps(replace_tokens(self._jump, self._table))
        if not wanted.proxied and _is_named(command):
            through = replace_tokens(command, self._table)
        if _is_named(revoked):
            revocations = expand_path(revoked, self._table, around.env)
        return SshHost(
            alias=wanted.host,
            host=self._name,
            port=self._port,
            user=self._user,
            identities=self._expand_paths(identities),
            identities_given=bool(named),
            certificates=self._expand_paths(self._answer.get("certificatefile", ())),
            identities_only=self._is_yes("identitiesonly"),
            agent=self._agent_path(self._first_value("identityagent")),
            jumps=jumps,
            proxy_command=through,
            alive_interval=float(self._first_value("serveraliveinterval") or 0) or None,
            alive_count=int(self._first_value("serveralivecountmax") or 3),
            connect_timeout=float(timeout) if _is_named(timeout) else None,
            user_known_hosts=self._known_hosts_paths(
                "userknownhostsfile", around.ssh_folder, "known_hosts"
            ),
            global_known_hosts=self._known_hosts_paths(
                "globalknownhostsfile", SYSTEM, "ssh_known_hosts"
            ),
            host_key_alias=self._key_alias,
            hash_known_hosts=self._is_yes("hashknownhosts"),
            strict={"true": "yes", "false": "no", "off": "no"}.get(strict, strict) or "ask",
            revoked_host_keys=revocations,
            batch=self._is_yes("batchmode"),
            public_key_auth=self._first_value("pubkeyauthentication") not in ("no", "false"),
            password_auth=self._is_yes("passwordauthentication", otherwise=True),
            kbdint_auth=self._is_yes("kbdinteractiveauthentication", otherwise=True),
            preferred_auth=tuple(
                filter(None, self._first_value("preferredauthentications").split(","))
            ),
            ciphers=self._first_value("ciphers") or None,
            macs=self._first_value("macs") or None,
            kex=self._first_value("kexalgorithms") or None,
            host_key_algorithms=self._first_value("hostkeyalgorithms") or None,
            family=self._first_value("addressfamily") or "any",
            bind_address=self._first_value("bindaddress") or None,
            compression=self._is_yes("compression"),
            notes=self._list_notes(),
        )

    def _first_value(self, key: str) -> str:
        return self._answer.get(key, ("",))[0]

    def _is_yes(self, key: str, *, otherwise: bool = False) -> bool:
        value = self._first_value(key)
        if value:
            return value in ("yes", "true")
        return otherwise

    def _expand_paths(self, values: Sequence[str]) -> tuple[str, ...]:
        return tuple(
            expand_path(value, self._table, self._around.env)
            for value in values
            if _is_named(value)
        )

    def _known_hosts_paths(self, key: str, folder: Path, name: str) -> tuple[str, ...]:
        values = self._answer.get(key)
        if values is None:
            return (str(folder / name), str(folder / f"{name}2"))
        # ssh separates the files with blanks, without quotes: a new path starts a new file.
        parts = re.split(r" (?=[/~])", values[0]) if len(values) == 1 else values
        # ssh has expanded their tokens; a % is literal.
        return tuple(
            re.sub("^~(?=/)", self._around.home, part) for part in parts if _is_named(part)
        )

    def _agent_path(self, value: str) -> str | None:
        env = self._around.env
        if value in ("", "SSH_AUTH_SOCK"):
            return env.get("SSH_AUTH_SOCK") or None
        if not _is_named(value):
            return None
        if value.startswith("$") and not value.startswith("${"):
            return env.get(value[1:]) or None
        return expand_path(value, self._table, env)

    def _list_notes(self) -> tuple[str, ...]:
        said = [
            translate("{key} {value} of ssh_config is not supported by rgt", key=key, value=value)
            for key in NOT_HONOURED
            if (value := self._first_value(key)) not in ("", "no", "none", "false")
        ]
        return (*self._answer.get(NOTES, ()), *said)

    def _token_table(self) -> Mapping[str, str]:
        local, around = socket.gethostname(), self._around
        digest = hashlib.sha1(f"{local}{self._name}{self._port}{self._user}{self._jump}".encode())
        return {
            "%": "%",
            "C": digest.hexdigest(),
            "d": around.home,
            "h": self._name,
            "i": str(os.getuid()),
            "j": self._jump,
            "k": self._key_alias or self._wanted.host,
            "L": local.partition(".")[0],
            "l": local,
            "n": self._wanted.host,
            "p": str(self._port),
            "r": self._user,
            "u": around.local_user,
        }


def _is_named(value: str) -> bool:
    return value.lower() not in ("", NO_FILE)
