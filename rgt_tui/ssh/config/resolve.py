"""From an alias to a `Host`: read the files, fill in the defaults, expand what the values name."""

from __future__ import annotations

import functools
import getpass
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.ssh.config import tokens
from rgt_tui.ssh.config.conditions import Conditions
from rgt_tui.ssh.config.errors import ConfigError
from rgt_tui.ssh.config.host import DEFAULT_IDENTITIES, Host, check_host, check_user
from rgt_tui.ssh.config.jumps import parse_jumps
from rgt_tui.ssh.config.reader import Reader, Source

SYSTEM = Path("/etc/ssh")
NO_FILE = "none"


class Wanted(msgspec.Struct, frozen=True):
    """What is asked for. The explicit values win over every file, as on ssh's command line."""

    host: str
    port: int | None = None
    user: str | None = None
    default_user: str | None = None
    """Counts where no file names a user; None = the local user."""
    proxied: bool = False
    """The way there is settled: ProxyJump and ProxyCommand of the files do not count."""


class Surroundings(msgspec.Struct, frozen=True):
    """Where the files are, and whose they are."""

    sources: tuple[Source, ...]
    home: str
    local_user: str
    env: Mapping[str, str]

    @property
    def ssh(self) -> Path:
        """The directory of the user's own files."""
        return Path(self.home) / ".ssh"


def surroundings(ssh_config: str | None = None, env: Mapping[str, str] | None = None) -> Surroundings:
    """Describe this machine.

    Args:
        ssh_config: One file that is used alone; None = ``~/.ssh/config`` and ``/etc/ssh/ssh_config``; ``none`` =
            no file.
        env: The environment; None = the process's.
    """
    env = dict(os.environ if env is None else env)
    home = env.get("HOME") or str(Path.home())
    ssh = Path(home) / ".ssh"
    if ssh_config is None:
        sources: tuple[Source, ...] = (
            Source(ssh / "config", ssh, private=True),
            Source(SYSTEM / "ssh_config", SYSTEM),
        )
    elif ssh_config == NO_FILE:
        sources = ()
    else:
        sources = (Source(Path(tokens.path(ssh_config, {"%": "%", "d": home}, env)), ssh, must_exist=True),)
    return Surroundings(sources, home, env.get("LOGNAME") or env.get("USER") or _user(), env)


@functools.cache
def _user() -> str:
    """Return who runs this process, as the user database says; it may be asked over a network."""
    return getpass.getuser()


def resolve(wanted: Wanted, around: Surroundings) -> Host:
    """Work out how to reach a host. It may run the commands of ``Match exec``: call it in a thread.

    Raises:
        ConfigError: a file is wrong; the message names file and line.
    """
    return _Resolver(wanted, around).host()


class _Resolver:
    def __init__(self, wanted: Wanted, around: Surroundings) -> None:
        self._wanted, self._around = wanted, around
        self._fallback = wanted.default_user or around.local_user
        notes: list[str] = []
        conditions = Conditions(self._tokens, around.env, notes.append)
        self._reader = Reader(wanted.host, conditions, dict(around.env), around.home)
        self._reader.notes = notes
        for field, value in (("port", wanted.port), ("user", wanted.user)):
            if value is not None:
                self._reader.values[field] = value

    def host(self) -> Host:
        for source in self._around.sources:
            self._reader.read(source)
        if self._reader.wants_final:
            self._reader.values["hostname"] = _lower(self._name(self._reader))
            self._reader.final = True
            for source in self._around.sources:
                self._reader.read(source)
        try:
            return self._filled(self._reader.values, self._reader.lists)
        except ValueError as error:
            raise ConfigError(f"ssh_config, for {self._wanted.host}: {error}") from error

    def _name(self, reader: Reader) -> str:
        given = reader.values.get("hostname")
        if given is None:
            return self._wanted.host
        if reader.final:
            return str(given)  # worked out before the second pass: a % in it is one
        return tokens.percent(given, {"%": "%", "h": self._wanted.host})

    def _tokens(self, reader: Reader) -> tokens.Tokens:
        values = reader.values
        return tokens.Tokens(
            original=self._wanted.host,
            host=self._name(reader),
            port=values.get("port", 22),
            user=tokens.environment(values.get("user", self._fallback), self._around.env),
            local_user=self._around.local_user,
            home=self._around.home,
            jump="" if values.get("proxy_jump", "none").lower() == "none" else values["proxy_jump"],
            alias=values.get("host_key_alias", "").lower() or None,
        )

    def _filled(self, values: dict[str, Any], lists: dict[str, list[str]]) -> Host:
        known = self._tokens(self._reader)
        known = msgspec.structs.replace(known, host=_lower(known.host))
        try:
            check_host(known.host)
        except ValueError as error:
            if "hostname" in values:
                raise
            # What was asked for is at fault, not a file.
            raise ConfigError(f"{error}, and ssh_config has no HostName for it") from error
        check_user(known.user)
        table, around = known.table(), self._around
        command = values.get("proxy_command")
        jump = values.get("proxy_jump")
        if self._wanted.proxied:
            command = jump = None
        given = lists.get("identities")
        identities = [str(around.ssh / name) for name in DEFAULT_IDENTITIES] if given is None else given
        passed_on = {
            name: values[name]
            for name in (
                "identities_only", "alive_interval", "alive_count", "connect_timeout",
                "hash_known_hosts", "strict", "batch", "public_key_auth", "password_auth", "kbdint_auth",
                "ciphers", "macs", "kex", "host_key_algorithms", "family", "bind_address", "compression",
            )
            if name in values
        }  # fmt: skip
        revoked = values.get("revoked_host_keys")
        return Host(
            alias=known.original,
            host=known.host,
            port=known.port,
            user=known.user,
            identities=self._paths(identities, table),
            identities_given=given is not None,
            certificates=self._paths(lists.get("certificates", []), table),
            host_key_alias=known.alias,
            agent=self._agent(values.get("agent"), table),
            jumps=() if _none(jump) else parse_jumps(tokens.percent(str(jump), table)),
            proxy_command=None if _none(command) else tokens.percent(str(command), table),
            user_known_hosts=self._known("user_known_hosts", around.ssh, "known_hosts", table),
            global_known_hosts=self._known("global_known_hosts", SYSTEM, "ssh_known_hosts", table),
            revoked_host_keys=None if _none(revoked) else tokens.path(str(revoked), table, around.env),
            preferred_auth=tuple(m.strip() for m in values.get("preferred_auth", "").split(",") if m.strip()),
            notes=tuple(dict.fromkeys(self._reader.notes)),
            **passed_on,
        )

    def _paths(self, values: Sequence[str], table: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(tokens.path(value, table, self._around.env) for value in values if not _none(value))

    def _known(self, field: str, folder: Path, name: str, table: Mapping[str, str]) -> tuple[str, ...]:
        values = self._reader.values.get(field)
        if values is None:
            return (str(folder / name), str(folder / f"{name}2"))
        return self._paths(values, table)

    def _agent(self, value: str | None, table: Mapping[str, str]) -> str | None:
        env = self._around.env
        if value is None or value == "SSH_AUTH_SOCK":
            return env.get("SSH_AUTH_SOCK") or None
        if _none(value):
            return None
        if value.startswith("$") and not value.startswith("${"):
            return env.get(value[1:]) or None
        return tokens.path(value, table, env)


def _lower(host: str) -> str:
    """Return a host name as OpenSSH goes on with it: what holds a % is an address with its scope."""
    return host if "%" in host else host.lower()


def _none(value: str | None) -> bool:
    return value is None or value.lower() == "none"
