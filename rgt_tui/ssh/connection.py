"""Opens an SSH connection to a box hop by hop, and writes the same route as ssh_config blocks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import cast
from weakref import WeakKeyDictionary

import asyncssh
import msgspec

from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, FrozenStruct
from rgt_tui.ssh.box_transport import BoxTransport, ConfigError, Unreachable
from rgt_tui.ssh.hop import KEEPALIVE_SECONDS, HopOpener, HopStep, keepalive
from rgt_tui.ssh.known_hosts import HostKeyPolicy, MovedHost
from rgt_tui.ssh.person import Person, default_prompt
from rgt_tui.ssh.ssh_config import NO_FILE, Surroundings, expand_path, scan_config, surroundings
from rgt_tui.ssh.ssh_route import (
    HostRequest,
    SshHost,
    check_host,
    check_user,
    host_and_port,
    resolve_route,
)


def arguments(
    spec: BoxSpec,
    around: Surroundings,
    hop: SshHost,
    before: Sequence[SshHost],
    *,
    last: bool,
    moved: bool,
) -> tuple[str, ...]:
    """Return the arguments for ``ssh``; the alias's settings in ssh_config are left to ssh.

    Args:
        spec: The box.
        around: The ssh_config files and their environment.
        hop: The server.
        before: The hops that lead to it.
        last: It is the box itself, so its description applies.
        moved: Its address differs from its alias.
    """
    # A shell expands nothing in quotes, and ssh expands no `~` after -F.
    if spec.ssh_config is None:
        words = []
    else:
        words = ["-F", *(str(source.path) for source in around.sources)]
    # Without -F ssh would read the user's own files, which rgt did not read for this box.
    words += [NO_FILE] if words == ["-F"] else []
    if last and spec.identity is not None:
        # IdentitiesOnly: else the agent's keys come first, and sshd ends a login after six
        # attempts.
        words += ["-i", hop.identities[0], "-o", "IdentitiesOnly=yes"]
    if last and spec.known_hosts is not None:
        words += ["-o", _format_option("UserKnownHostsFile", hop.user_known_hosts[0])]
    if before and (moved or not last):
        words += [
            "-J",
            ",".join(f"{jump.user}@{host_and_port(jump.alias, jump.port)}" for jump in before),
        ]
    if hop.port != 22 or (last and spec.port is not None):
        words += ["-p", str(hop.port)]
    return (*words, f"{hop.user}@{hop.host if moved else hop.alias}")


def _format_option(name: str, value: str) -> str:
    if " " in value:
        return f'{name}="{value}"'
    return f"{name}={value}"


replace = msgspec.structs.replace
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class MovedAddress(FrozenStruct):
    """The current address of a box, if it differs from its description."""

    host: str
    port: int
    source: str = "the provider"
    """Source of the address."""

    @property
    def is_usable(self) -> bool:
        """Whether it is a valid address; a provider may return anything."""
        try:
            check_host(self.host)
        except ValueError:
            return False
        return 0 < self.port < 65536


def resolve_hops(
    spec: BoxSpec,
    default_user: str | None = None,
    elsewhere: MovedAddress | None = None,
    around: Surroundings | None = None,
) -> tuple[HopStep, ...]:
    """Return the route to a box from ssh_config and its description.

    May run ``Match exec`` commands.

    Raises:
        ConfigError: ssh_config or the description is wrong; the message names file and line, or the
            key.
    """
    if around is None:
        around = _surroundings_of(spec)
    if spec.user is not None:
        with _blame_fleet_key(spec, "user"):
            check_user(spec.user)
    if spec.untrusted and spec.host not in scan_config(around).aliases:
        raise ConfigError(
            translate(
                "{name} is not connected: the fleet file is not trusted (rgt trust), and your "
                "ssh_config has no Host {host}",
                name=spec.name,
                host=spec.host,
            )
        )
    wanted = HostRequest(spec.host, port=spec.port, user=spec.user, default_user=default_user)
    *jumps, last = resolve_route(wanted, around)
    table = {"%": "%", "d": around.home}
    if spec.identity is not None:
        with _blame_fleet_key(spec, "identity"):
            only = (expand_path(spec.identity, table, around.env),)
        last = replace(last, identities=only, identities_given=True, identities_only=True)
    if spec.known_hosts is not None:
        with _blame_fleet_key(spec, "known_hosts"):
            file = (expand_path(spec.known_hosts, table, around.env),)
        # The fleet file names the only file that counts; /etc/ssh must not add keys to it.
        last = replace(last, user_known_hosts=file, global_known_hosts=())
    moved = None
    if elsewhere is not None and (elsewhere.host, elsewhere.port) != (last.host, last.port):
        if not elsewhere.is_usable:
            raise ConfigError(
                translate(
                    "boxes.{name}: {source} reports {host!r}, port {port}, which is not an address",
                    name=spec.name,
                    source=elsewhere.source,
                    host=elsewhere.host,
                    port=elsewhere.port,
                )
            )
        moved = MovedHost(elsewhere.source, last.known_as)
        # Keys of the old name still count (`MovedHost.old`), next to those of the new address.
        last = replace(last, host=elsewhere.host.lower(), port=elsewhere.port, host_key_alias=None)
    steps = [
        HopStep(
            hop,
            f"jump host {_hop_label(hop)}",
            arguments(spec, around, hop, jumps[:place], last=False, moved=False),
        )
        for place, hop in enumerate(jumps)
    ]
    by_hand = arguments(spec, around, last, jumps, last=True, moved=moved is not None)
    return (*steps, HopStep(last, _hop_label(last), by_hand, moved))


def _surroundings_of(spec: BoxSpec) -> Surroundings:
    with _blame_fleet_key(spec, "ssh_config"):
        # An untrusted fleet file must not name a file that runs commands.
        return surroundings(None if spec.untrusted else spec.ssh_config)


@contextlib.contextmanager
def _blame_fleet_key(spec: BoxSpec, key: str) -> Iterator[None]:
    """Add the wrong key of the fleet file to an error."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(
            translate(
                "boxes.{name}.{key} in the fleet file: {error}",
                name=spec.name,
                key=key,
                error=error,
            )
        ) from error


def _hop_label(host: SshHost) -> str:
    if host.alias.lower() == host.host:
        return host.user_host_port
    return f"{host.alias} ({host.user_host_port})"


async def connect_box(
    spec: BoxSpec,
    *,
    person: Person | None = None,
    policy: HostKeyPolicy = HostKeyPolicy.ASK,
    default_user: str | None = None,
    elsewhere: MovedAddress | None = None,
) -> BoxTransport:
    """Connect to a box with its transport; see `connect` for the arguments, which are SSH's, and errors."""
    if spec.kubectl is not None:
        from rgt_tui.ssh.kubectl_exec import open_pod  # most fleets have no pod

        return await open_pod(spec)
    return await connect(
        spec, person=person, policy=policy, default_user=default_user, elsewhere=elsewhere
    )


async def connect(
    spec: BoxSpec,
    *,
    person: Person | None = None,
    policy: HostKeyPolicy = HostKeyPolicy.ASK,
    default_user: str | None = None,
    elsewhere: MovedAddress | None = None,
) -> asyncssh.SSHClientConnection:
    """Connect to a box by SSH.

    Args:
        spec: Its description; missing values are taken from ssh_config.
        person: Answers prompts for passwords and host keys; None = set by `answered_by`, or nobody.
        policy: How to treat an unknown host key.
        default_user: The profile's user.
        elsewhere: The box's current address; identity and known host key remain those of the
            description.

    Raises:
        ConfigError: ssh_config or the description is wrong.
        HostKeyRefused: a host key has changed, or is unknown and was not accepted.
        AuthFailed: a server refused the login.
        Unreachable: everything else; it distinguishes refused from timed out, and names the hop.
    """
    around = _surroundings_of(spec)
    # Number of threads that run ``ssh -G`` (about 20 ms each). Few, because a used thread keeps its
    # memory.
    at_once = 4
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(at_once)):
        # In a thread: it reads files and runs `ssh -G`, which may run commands of `Match exec`.
        steps = await asyncio.to_thread(resolve_hops, spec, default_user, elsewhere, around)
    opener = HopOpener(person or Person(spec.name, default_prompt()), policy, dict(around.env))
    connection: asyncssh.SSHClientConnection | None = None
    try:
        for step in steps:
            connection, below = await opener.open_hop(step, connection), connection
            connection.set_extra_info(
                rgt_label=step.label, rgt_below=below, rgt_by_hand=step.by_hand
            )
            connection.set_extra_info(rgt_alive=tuple(keepalive(step.host).values()))
    except BaseException:
        if connection is not None:
            # abort, not close: there is no one to wait for an orderly end.
            connection.abort()
        raise
    if connection is None:
        raise Unreachable(translate("ssh: no route to {host}", host=spec.host))
    return connection


def watched_moved_address(connection: BoxTransport, seconds: float | None) -> None:
    """Suspend SSH's own keepalive while something else detects a dead connection sooner.

    Its timer is reset for each packet, which is a measurable part of the cost of watching hundreds
    of boxes.

    Args:
        connection: Opened by `connect`.
        seconds: Silence after which the connection is given up anyway; None = nothing else watches
            it.
    """
    interval, count = connection.get_extra_info("rgt_alive", (0, 0))
    # Frames at least as frequent as keepalive would take to notice a dead link prove the same.
    rests = seconds is not None and seconds <= interval * (count + 1)
    if interval and rests is not connection.get_extra_info("rgt_rests", False):
        connection.set_extra_info(rgt_rests=rests)
        # only SSH's connections have `rgt_alive`
        cast("asyncssh.SSHClientConnection", connection).set_keepalive(0 if rests else interval)


def ssh_arguments(connection: BoxTransport) -> tuple[str, ...]:
    """Return the arguments for ``ssh`` that lead to the same place as a connection."""
    words: tuple[str, ...] = connection.get_extra_info("rgt_by_hand", ())
    return words


def connection_label(connection: BoxTransport) -> str:
    """Return the name of a connection's far end: alias, user, host and port."""
    return str(connection.get_extra_info("rgt_label") or "the box")


def peer_address(connection: BoxTransport) -> tuple[str, int] | None:
    """Return the actual remote address of a connection.

    None = it goes through a jump host or proxy command.
    """
    name = connection.get_extra_info("peername")
    if (
        connection.get_extra_info("rgt_below") is not None
        or not isinstance(name, tuple)
        or len(name) < 2
    ):
        return None
    return str(name[0]), int(name[1])


_ODD = re.compile(r'[\x00-\x1f\x7f"]')


def config_blocks(name: str, steps: Sequence[HopStep]) -> str:
    """Return an ssh_config block for a box and one for each jump host; all values are resolved.

    Args:
        name: The alias for ``ssh NAME``; the jump hosts are ``NAME-via-1`` and so on.
        steps: The route from `rgt_tui.ssh.hops`.

    Raises:
        ConfigError: a value cannot be written in the file.
    """
    names = [f"{name}-via-{index}" for index in range(1, len(steps))] + [name]
    blocks = []
    for index, (alias, step) in enumerate(zip(names, steps, strict=True)):
        lines = [
            f"Host {alias}",
            *(f"    {key} {value}" for key, value in _list_host_options(step)),
        ]
        if index:
            lines.append(f"    ProxyJump {names[index - 1]}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(reversed(blocks))


def _list_host_options(step: HopStep) -> list[tuple[str, str]]:
    host = step.host
    found = [
        ("HostName", host.host),
        ("Port", str(host.port)),
        ("User", _quoted_word(host, host.user)),
    ]
    if host.identities_given:
        found += [("IdentityFile", _quoted_path(host, path)) for path in host.identities]
    # Paths are written expanded, so their percent signs are doubled.
    found += [("CertificateFile", _quoted_path(host, path)) for path in host.certificates]
    if host.identities_only:
        found.append(("IdentitiesOnly", "yes"))
    if host.proxy_command is not None:
        # Its tokens are expanded already: a remaining % is literal, and must be doubled again.
        found.append(("ProxyCommand", _checked_line(host, host.proxy_command.replace("%", "%%"))))
    known = step.moved.old if step.moved is not None else host.host_key_alias
    if known is not None:
        found.append(("HostKeyAlias", _quoted_word(host, known)))
    if host.user_known_hosts:
        files = " ".join(_quoted_path(host, path) for path in host.user_known_hosts)
        found.append(("UserKnownHostsFile", files))
    if host.strict in ("yes", "accept-new"):
        found.append(("StrictHostKeyChecking", host.strict))
    interval = host.alive_interval or KEEPALIVE_SECONDS
    return [*found, ("ServerAliveInterval", f"{max(1, round(interval))}")]


def _checked_line(host: SshHost, text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ConfigError(
            translate(
                "ssh_config, for {alias}: {words!r} cannot be written on one line",
                alias=host.alias,
                words=text,
            )
        )
    return text


def _quoted_word(host: SshHost, text: str) -> str:
    if _ODD.search(text):
        raise ConfigError(
            translate(
                "ssh_config, for {alias}: {words!r} has characters that ssh_config cannot contain",
                alias=host.alias,
                words=text,
            )
        )
    if " " in text:
        return f'"{text}"'
    return text


def _quoted_path(host: SshHost, text: str) -> str:
    if "${" in text:
        raise ConfigError(
            translate(
                "ssh_config, for {alias}: {words!r} has characters that ssh expands",
                alias=host.alias,
                words=text,
            )
        )
    return _quoted_word(host, text.replace("%", "%%"))
