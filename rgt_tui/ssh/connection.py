"""Opens an SSH connection to a box hop by hop, and writes the same route as blocks of ssh_config."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

import asyncssh
import msgspec

from rgt_tui.model import BoxSpec
from rgt_tui.ssh.hop import KEEPALIVE_SECONDS, Opener, Step, keepalive
from rgt_tui.ssh.known_hosts import Moved, Policy
from rgt_tui.ssh.person import Person, default_ask
from rgt_tui.ssh.ssh_config import NO_FILE, Surroundings, expand, scan, surroundings
from rgt_tui.ssh.ssh_errors import ConfigError, Unreachable
from rgt_tui.ssh.ssh_route import Host, Wanted, check_host, check_user, place, route


def arguments(
    spec: BoxSpec,
    around: Surroundings,
    hop: Host,
    before: Sequence[Host],
    *,
    last: bool,
    moved: bool,
) -> tuple[str, ...]:
    """Return the words behind ``ssh``; what ssh_config says of the alias is left to ssh.

    Args:
        spec: The box.
        around: With its ssh_config.
        hop: The server.
        before: The hops that lead to it.
        last: It is the box itself: what the description says counts.
        moved: It is not where its alias leads.
    """
    # A shell does not expand what is quoted, and ssh expands no `~` behind -F.
    words = (
        [] if spec.ssh_config is None else ["-F", *(str(source.path) for source in around.sources)]
    )
    words += [NO_FILE] if words == ["-F"] else []
    if last and spec.identity is not None:
        words += ["-i", hop.identities[0], "-o", "IdentitiesOnly=yes"]
    if last and spec.known_hosts is not None:
        words += ["-o", _option("UserKnownHostsFile", hop.user_known_hosts[0])]
    if before and (moved or not last):
        words += ["-J", ",".join(f"{jump.user}@{place(jump.alias, jump.port)}" for jump in before)]
    if hop.port != 22 or (last and spec.port is not None):
        words += ["-p", str(hop.port)]
    return (*words, f"{hop.user}@{hop.host if moved else hop.alias}")


def _option(name: str, value: str) -> str:
    if " " in value:
        return f'{name}="{value}"'
    return f"{name}={value}"


replace = msgspec.structs.replace
_AT_ONCE = 4
"""Few threads: each that has worked once keeps memory of its own. They wait for ``ssh -G``, some 20 ms each."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class Elsewhere(msgspec.Struct, frozen=True):
    """Where a box is by now, against what its description says."""

    host: str
    port: int
    source: str = "the provider"
    """Who says so."""

    @property
    def usable(self) -> bool:
        """It is an address that one can connect to; a provider may say anything."""
        try:
            check_host(self.host)
        except ValueError:
            return False
        return 0 < self.port < 65536


def hops(
    spec: BoxSpec,
    default_user: str | None = None,
    elsewhere: Elsewhere | None = None,
    around: Surroundings | None = None,
) -> tuple[Step, ...]:
    """Return the way to a box as ssh_config and its description say; it may run commands of ``Match exec``.

    Raises:
        ConfigError: ssh_config or the description is wrong; the message names file and line, or the key.
    """
    around = _around(spec) if around is None else around
    if spec.user is not None:
        with _blamed(spec, "user"):
            check_user(spec.user)
    if spec.untrusted and spec.host not in scan(around).aliases:
        raise ConfigError(
            f"{spec.name} is not connected to: nobody has trusted the fleet file (rgt trust), and your own ssh_config "
            f"has no Host {spec.host}"
        )
    wanted = Wanted(spec.host, port=spec.port, user=spec.user, default_user=default_user)
    *jumps, last = route(wanted, around)
    table = {"%": "%", "d": around.home}
    if spec.identity is not None:
        with _blamed(spec, "identity"):
            only = (expand(spec.identity, table, around.env),)
        last = replace(last, identities=only, identities_given=True, identities_only=True)
    if spec.known_hosts is not None:
        with _blamed(spec, "known_hosts"):
            file = (expand(spec.known_hosts, table, around.env),)
        last = replace(last, user_known_hosts=file, global_known_hosts=())
    moved = None
    if elsewhere is not None and (elsewhere.host, elsewhere.port) != (last.host, last.port):
        if not elsewhere.usable:
            raise ConfigError(
                f"boxes.{spec.name}: {elsewhere.source} says that it is at {elsewhere.host!r}, port {elsewhere.port}, "
                "which is not an address"
            )
        moved = Moved(elsewhere.source, last.known_as)
        last = replace(last, host=elsewhere.host.lower(), port=elsewhere.port, host_key_alias=None)
    steps = [
        Step(
            hop,
            f"jump host {_label(hop)}",
            arguments(spec, around, hop, jumps[:place], last=False, moved=False),
        )
        for place, hop in enumerate(jumps)
    ]
    by_hand = arguments(spec, around, last, jumps, last=True, moved=moved is not None)
    return (*steps, Step(last, _label(last), by_hand, moved))


def _around(spec: BoxSpec) -> Surroundings:
    with _blamed(spec, "ssh_config"):
        # A file that nobody trusts may not name one that runs commands.
        return surroundings(None if spec.untrusted else spec.ssh_config)


@contextlib.contextmanager
def _blamed(spec: BoxSpec, key: str) -> Iterator[None]:
    """Say which key of the fleet file is wrong."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"boxes.{spec.name}.{key} in the fleet file: {error}") from error


def _label(host: Host) -> str:
    if host.alias.lower() == host.host:
        return host.where
    return f"{host.alias} ({host.where})"


async def connect(
    spec: BoxSpec,
    *,
    person: Person | None = None,
    policy: Policy = Policy.ASK,
    default_user: str | None = None,
    elsewhere: Elsewhere | None = None,
) -> asyncssh.SSHClientConnection:
    """Connect to a box.

    Args:
        spec: Its description; what it leaves out is taken from ssh_config.
        person: Who is asked for passwords and about host keys; None = as `answered_by` says, otherwise nobody.
        policy: What becomes of an unknown host key.
        default_user: The profile's user.
        elsewhere: Where the box is by now; its identity and its known host key stay those of the description.

    Raises:
        ConfigError: ssh_config or the description is wrong.
        HostKeyRefused: a host key has changed, or is unknown and nobody accepted it.
        AuthFailed: a server did not let us in.
        Unreachable: everything else; refused and timed out are told apart, and the hop is named.
    """
    around = _around(spec)
    # In a thread: it reads files and runs `ssh -G`, which may run commands of `Match exec`.
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)):
        steps = await asyncio.to_thread(hops, spec, default_user, elsewhere, around)
    opener = Opener(person or Person(spec.name, default_ask()), policy, dict(around.env))
    connection: asyncssh.SSHClientConnection | None = None
    try:
        for step in steps:
            connection, below = await opener.open(step, connection), connection
            connection.set_extra_info(
                rgt_label=step.label, rgt_below=below, rgt_by_hand=step.by_hand
            )
            connection.set_extra_info(rgt_alive=tuple(keepalive(step.host).values()))
    except BaseException:
        if connection is not None:
            connection.abort()
        raise
    if connection is None:
        raise Unreachable(f"ssh: no route to {spec.host}")
    return connection


def watched_elsewhere(connection: asyncssh.SSHClientConnection, seconds: float | None) -> None:
    """Let SSH's own keepalive rest while something else gives the connection up sooner than it would.

    Its timer is set anew for each packet: of hundreds of boxes that is a part of what watching them costs.

    Args:
        connection: Opened by `connect`.
        seconds: Silence after which it is given up anyway; None = nothing else watches it.
    """
    interval, count = connection.get_extra_info("rgt_alive", (0, 0))
    rests = seconds is not None and seconds <= interval * (count + 1)
    if interval and rests is not connection.get_extra_info("rgt_rests", False):
        connection.set_extra_info(rgt_rests=rests)
        connection.set_keepalive(0 if rests else interval)


def by_hand(connection: asyncssh.SSHClientConnection) -> tuple[str, ...]:
    """Return the words behind ``ssh`` that lead to where a connection has led."""
    words: tuple[str, ...] = connection.get_extra_info("rgt_by_hand", ())
    return words


def where(connection: asyncssh.SSHClientConnection) -> str:
    """Return how a connection's far end is called: alias, user, host and port."""
    return str(connection.get_extra_info("rgt_label") or "the box")


_ODD = re.compile(r'[\x00-\x1f\x7f"]')


def config_blocks(name: str, steps: Sequence[Step]) -> str:
    """Return a block for a box and one for each jump host before it; every value is worked out.

    Args:
        name: What ``ssh NAME`` is to be called; the jump hosts are ``NAME-via-1`` and so on.
        steps: The way, as `rgt_tui.ssh.hops` gives it.

    Raises:
        ConfigError: a value cannot be said in a file.
    """
    names = [f"{name}-via-{index}" for index in range(1, len(steps))] + [name]
    blocks = []
    for index, (alias, step) in enumerate(zip(names, steps, strict=True)):
        lines = [f"Host {alias}", *(f"    {key} {value}" for key, value in _said(step))]
        if index:
            lines.append(f"    ProxyJump {names[index - 1]}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(reversed(blocks))


def _said(step: Step) -> list[tuple[str, str]]:
    host = step.host
    found = [("HostName", host.host), ("Port", str(host.port)), ("User", _word(host, host.user))]
    if host.identities_given:
        found += [("IdentityFile", _path(host, path)) for path in host.identities]
    found += [("CertificateFile", _path(host, path)) for path in host.certificates]
    if host.identities_only:
        found.append(("IdentitiesOnly", "yes"))
    if host.proxy_command is not None:
        found.append(("ProxyCommand", _line(host, host.proxy_command.replace("%", "%%"))))
    known = step.moved.old if step.moved is not None else host.host_key_alias
    if known is not None:
        found.append(("HostKeyAlias", _word(host, known)))
    if host.user_known_hosts:
        files = " ".join(_path(host, path) for path in host.user_known_hosts)
        found.append(("UserKnownHostsFile", files))
    if host.strict in ("yes", "accept-new"):
        found.append(("StrictHostKeyChecking", host.strict))
    interval = host.alive_interval or KEEPALIVE_SECONDS
    return [*found, ("ServerAliveInterval", f"{max(1, round(interval))}")]


def _line(host: Host, text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ConfigError(f"ssh_config, for {host.alias}: {text!r} cannot be written on one line")
    return text


def _word(host: Host, text: str) -> str:
    if _ODD.search(text):
        raise ConfigError(
            f"ssh_config, for {host.alias}: {text!r} has characters that a file of ssh cannot say"
        )
    if " " in text:
        return f'"{text}"'
    return text


def _path(host: Host, text: str) -> str:
    if "${" in text:
        raise ConfigError(f"ssh_config, for {host.alias}: {text!r} has what ssh would expand")
    return _word(host, text.replace("%", "%%"))
