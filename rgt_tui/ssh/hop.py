"""Logs in to one server of a route, over a socket, a tunnel or a ProxyCommand; reports failures.

`aes128-gcm` and `curve25519` are preferred: they cost the client the least when hundreds of boxes
are watched. asyncssh's other trusted algorithms are offered after them. Settings in ssh_config take
precedence.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import asyncssh
import msgspec
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import (
    get_certificate_algs,
    get_default_certificate_algs,
    get_default_public_key_algs,
    get_public_key_algs,
)

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text, how_many
from rgt_tui.ssh.box_transport import AuthFailed, BoxError, ConfigError, HostKeyRefused, Unreachable
from rgt_tui.ssh.known_hosts import (
    HostKeyPolicy,
    KnownHostLine,
    KnownLines,
    MovedHost,
    OfferedKey,
    judge_host_key,
    keys_without_port,
    lines_of_host,
    revocation_list,
)
from rgt_tui.ssh.login import Login
from rgt_tui.ssh.person import PausableDeadline, Person
from rgt_tui.ssh.ssh_route import SshHost

CIPHERS_FIRST = "^aes128-gcm@openssh.com"
KEX_FIRST = "^curve25519-sha256,curve25519-sha256@libssh.org"
ENDING = "proxy-command-ends"
"""Name of the task that ends a ProxyCommand."""


def algorithm_options(host: SshHost) -> dict[str, Any]:
    """Return asyncssh's options for ciphers, key exchange, MACs and compression.

    Raises:
        ConfigError: ssh_config names only algorithms that asyncssh does not know.
    """
    found: dict[str, Any] = {
        "encryption_algs": _known_algorithms("Ciphers", host.ciphers, get_encryption_algs(), host)
        or CIPHERS_FIRST,
        "kex_algs": _known_algorithms("KexAlgorithms", host.kex, get_kex_algs(), host) or KEX_FIRST,
    }
    if macs := _known_algorithms("MACs", host.macs, get_mac_algs(), host):
        found["mac_algs"] = macs
    if host.compression:
        found["compression_algs"] = ["zlib@openssh.com", "zlib", "none"]
    return found


def host_keys(host: SshHost, trusted: Sequence[asyncssh.SSHKey], authorities: bool) -> list[str]:
    """Return the host key algorithms. Those of known keys come first, so that the server shows one.

    Raises:
        ConfigError: HostKeyAlgorithms names only algorithms that asyncssh does not know.
    """
    # Interned, because each of hundreds of connections keeps its list.
    known = [sys.intern(name.decode()) for key in trusted for name in key.sig_algorithms]
    plain = [sys.intern(name.decode()) for name in get_default_public_key_algs()]
    # A certificate without a known authority could not be verified, so none is requested.
    if authorities:
        certificates = [name.decode() for name in get_default_certificate_algs()]
    else:
        certificates = []
    possible = get_public_key_algs() + (get_certificate_algs() if authorities else [])
    said = _known_algorithms("HostKeyAlgorithms", host.host_key_algorithms, possible, host) or [
        *certificates,
        *plain,
    ]
    signed = [name for name in said if name in certificates]
    # The types of the known keys first, as OpenSSH does: else a server with several keys may show
    # one that is not in known_hosts, and look like a new host.
    return list(dict.fromkeys([*signed, *[name for name in known if name in said], *said]))


def _known_algorithms(
    option: str, value: str | None, possible: Sequence[bytes], host: SshHost
) -> list[str] | None:
    """Return a list from ssh_config without names unknown to asyncssh; None = not set."""
    if value is None:
        return None
    known = {name.decode() for name in possible}
    kept = [name for name in value.split(",") if name in known]
    if not kept:
        raise ConfigError(
            translate(
                "ssh_config, for {alias}: {option} {value}: rgt supports none of them",
                alias=host.alias,
                option=option,
                value=value,
            )
        )
    return kept


class HopStep(FrozenStruct):
    """One hop, with the data for its messages."""

    host: SshHost
    label: str
    """Its name in messages: ``root@1.2.3.4:40022``, or ``jump host gate (me@gate.example.org:22)``.
    """
    by_hand: tuple[str, ...]
    """The arguments for ``ssh`` that lead there."""
    moved: MovedHost | None = None


NEXT_STEPS: tuple[tuple[type[BaseException], str], ...] = (
    (
        ConnectionRefusedError,
        (
            "nothing listens there: is the machine up, and are its address and port still the "
            "same? Rentals change them"
        ),
    ),
    (socket.gaierror, "check `host`, and whether this machine is online"),
    (
        TimeoutError,
        "it may be stopped, behind a firewall, or have moved: check the provider's console",
    ),
    (
        asyncssh.ChannelOpenError,
        "the hop before it cannot reach it: check the address as seen from there",
    ),
    (asyncssh.KeyExchangeFailed, "name an algorithm that both sides know in ssh_config"),
    (
        asyncssh.Error,
        (
            "it closed the connection: it may be starting, have too many logins, or have banned "
            "this address"
        ),
    ),
)
"""Advice by kind of error; the first match applies."""
_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)


def failure_advice(error: BaseException, *, reached: bool) -> str:
    """Return what to do after a failed connection or login; empty if there is no advice.

    Args:
        error: The error.
        reached: The server answered before that.
    """
    if reached and isinstance(error, TimeoutError):
        return translate(
            "it answers but the login hangs: it may be out of memory; check the provider's console"
        )
    # Before the table: these are plain OSErrors, which have no class of their own.
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return translate("there is no route to it: check this machine's connection and VPN")
    return translate(next((words for kind, words in NEXT_STEPS if isinstance(error, kind)), ""))


def failure_reason_text(error: asyncssh.Error | OSError, seconds: float, *, reached: bool) -> str:
    """Return the reason of a failure in a few words.

    Args:
        error: The error.
        seconds: The limit of a timeout.
        reached: The server answered before that.
    """
    if isinstance(error, asyncssh.Error):
        return clean_text(str(error.reason))
    if isinstance(error, TimeoutError):
        if reached:
            return translate("the login took longer than {seconds:g} s", seconds=seconds)
        return translate("no answer within {seconds:g} s", seconds=seconds)
    if isinstance(error, ConnectionRefusedError):
        return translate("refused the connection")
    return error.strerror or str(error)


async def unreachable_message(
    step: HopStep,
    tunnel: asyncssh.SSHClientConnection | None,
    proxy: ProxyProcess | None,
    reason: str,
    advice: str,
) -> str:
    """Return the message for an unreachable server: route, reason, and what to do next."""
    if proxy is not None:
        words = await proxy.last_words()
        return translate(
            "ssh: {label}: the ProxyCommand {proxy_command!r} failed to connect: {words}; run the "
            "command separately to test it",
            label=step.label,
            proxy_command=step.host.proxy_command,
            words=words or reason,
        )
    through = ""
    if tunnel is not None:
        hop = tunnel.get_extra_info("rgt_label")
        through = translate("not reached through {hop}: ", hop=hop)
    return f"ssh: {step.label}: {through}{reason}" + (f"; {advice}" if advice else "")


def refused_login_message(step: HopStep, login: Login) -> str:
    """Return the message for a refused login: accepted methods, what was tried, what to do."""
    methods = ", ".join(login.methods) or translate("no method that rgt has")
    tried = login.keyring.tried
    if tried:
        keys = translate(
            "{keys} tried ({names})", keys=how_many(len(tried), "key"), names=", ".join(tried[:5])
        )
    else:
        keys = translate("no key to try")
    said = [
        translate(
            "ssh: {label} refused the login of {user}: it accepts {methods}; {keys}",
            label=step.label,
            user=step.host.user,
            methods=methods,
            keys=keys,
        )
    ]
    said += login.keyring.notes[:5]
    if login.has_expired:
        said.append(
            translate(
                "the password has expired, and rgt types nothing into a prompt for a new one: "
                "change it with "
            )
            + shlex.join(["ssh", "-t", *step.by_hand])
        )
    elif login.unanswered:
        said.append(
            translate(
                "asked for the {what} and got no answer: open the dashboard (rgt) and answer "
                "there, or put a key on the box",
                what=login.unanswered[0],
            )
        )
    elif "publickey" in login.methods:
        said.append(
            translate(
                "put your public key on the box (or its provider's console), or name the right "
                "`identity`"
            )
        )
    return clean_text("; ".join(said))


def too_many(step: HopStep, login: Login) -> str:
    """Return the message for a server that refused further keys."""
    tried = len(login.keyring.tried)
    return translate(
        "ssh: {label} refused the login of {user}: too many keys for it ({tried} tried); name "
        "the right one with `identity` in the fleet file, or IdentityFile and IdentitiesOnly "
        "in ssh_config",
        label=step.label,
        user=step.host.user,
        tried=tried,
    )


LOGIN_SECONDS = 20.0
KEEPALIVE_SECONDS = 10.0
FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


class HopOpener:
    """Opens hops for one box.

    Args:
        person: Answers prompts.
        policy: How to treat unknown host keys.
        env: The environment, for a ProxyCommand's shell.
    """

    def __init__(self, person: Person, policy: HostKeyPolicy, env: dict[str, str]) -> None:
        self._person = person
        self._policy = policy
        self._env = env

    async def open_hop(
        self, step: HopStep, tunnel: asyncssh.SSHClientConnection | None
    ) -> asyncssh.SSHClientConnection:
        """Log in; the tunnel is closed with the connection, and on failure.

        Raises:
            HostKeyRefused: the host key is not the known one, or was not accepted.
            AuthFailed: the server refused the login.
            Unreachable: everything else.
        """
        if step.host.batch:
            # BatchMode: answers that were given before count, but there is no prompt.
            person = Person(self._person.box, None, self._person.answers)
        else:
            person = self._person
        pinned: OfferedKey | None = None
        again = True
        while True:
            known = self._find_known_keys(step, pinned)
            login = Login(
                step.host, person, PausableDeadline(_connect_seconds(step.host)), LOGIN_SECONDS
            )
            try:
                return await self._attempt_login(step, tunnel, login, known)
            except asyncssh.HostKeyNotVerifiable as error:
                pinned = await self._accept_unknown_key(
                    step, login, known, pinned, person, str(error.reason)
                )
            except Unreachable as error:
                # If the server timed out while a person was answering, retry once with the answer.
                late = await login.patience.wait_for_answer()
                if late and login.was_declined:
                    raise AuthFailed(refused_login_message(step, login)) from error
                if not again or not login.patience.asked or login.was_declined:
                    raise
                again = False
            finally:
                login.patience.cancel_prompt()

    def _find_known_keys(self, step: HopStep, pinned: OfferedKey | None) -> KnownLines:
        host = step.host
        known = lines_of_host(host, (step.moved.old,) if step.moved else ())
        known = msgspec.structs.replace(
            known, revoked=known.revoked + revocation_list(host.revoked_host_keys)
        )
        if pinned is not None:
            # Only the accepted key is trusted: the server must show the same one again.
            entry = KnownHostLine("accepted by you", 0, host.known_as, pinned.type, pinned.key)
            return msgspec.structs.replace(known, keys=(entry,))
        if known.keys:
            return known
        accepted = self._person.answers.accepted_keys(host.known_as)
        kept = tuple(
            KnownHostLine("accepted by you", 0, host.known_as, kind, key) for kind, key in accepted
        )
        return msgspec.structs.replace(known, keys=kept)

    async def _accept_unknown_key(
        self,
        step: HopStep,
        login: Login,
        known: KnownLines,
        pinned: OfferedKey | None,
        person: Person,
        reason: str,
    ) -> OfferedKey:
        """Return the key that is trusted in the next attempt."""
        if login.offered is None:
            at = ", ".join(entry.location for entry in (*known.revoked, *known.authorities))
            raise HostKeyRefused(
                translate(
                    "ssh: {label}: the host key is not trusted: {reason}",
                    label=step.label,
                    reason=clean_text(reason),
                )
                + (translate(" (see {at})", at=at) if at else "")
            )
        kind, key, *_ = login.offered.export_public_key().decode().split()
        offered = OfferedKey(kind, key)
        if pinned is not None:
            raise HostKeyRefused(
                translate(
                    "ssh: {label}: it showed another host key than before your answer; someone may "
                    "be intercepting the connection",
                    label=step.label,
                )
            )
        if any((entry.type, entry.key) == (kind, key) for entry in keys_without_port(step.host)):
            return offered
        title = translate("new host key of {label}", label=step.label)
        # One prompt per host: many boxes with one jump host would ask the same at once.
        async with person.idle(title), person.answers.prompt_lock("host-key", step.host.known_as):
            # Read again: while this one waited for the lock, another box may have got the answer.
            fresh = self._find_known_keys(step, None)
            if not any((entry.type, entry.key) == (kind, key) for entry in fresh.keys):
                await judge_host_key(
                    step.host,
                    step.label,
                    offered,
                    fresh,
                    person,
                    self._policy,
                    step.by_hand,
                    step.moved,
                )
        return offered

    async def _attempt_login(
        self,
        step: HopStep,
        tunnel: asyncssh.SSHClientConnection | None,
        login: Login,
        known: KnownLines,
    ) -> asyncssh.SSHClientConnection:
        host = step.host
        proxy: ProxyProcess | None = None
        try:
            if tunnel is None and host.proxy_command is not None:
                proxy = await open_proxy(host.proxy_command, self._env)
            async with login.deadline:
                connection = await asyncssh.connect(
                    **_connect_options(host, login, known), **_carrier_options(tunnel, proxy)
                )
            carrier = proxy if proxy is not None else tunnel
            if carrier is not None:
                # asyncssh then closes the carrier with the connection.
                connection.set_tunnel(carrier)
            connection.set_extra_info(rgt_host=host, rgt_login=login)
            free_login_data(connection)
            proxy = None
            return connection
        # Handled by `open_hop`, and a subclass of asyncssh.Error, which is caught below.
        except asyncssh.HostKeyNotVerifiable:
            raise
        except asyncssh.PermissionDenied as error:
            login.drop_refused_password()
            raise AuthFailed(refused_login_message(step, login)) from error
        except (asyncssh.Error, OSError) as error:
            # sshd's "Too many authentication failures" comes as a disconnect, not as
            # PermissionDenied.
            if isinstance(error, asyncssh.Error) and "authentication failures" in str(error.reason):
                login.drop_refused_password()
                raise AuthFailed(too_many(step, login)) from error
            if login.reached:
                seconds = LOGIN_SECONDS
            else:
                seconds = _connect_seconds(host)
            why = failure_reason_text(error, seconds, reached=login.reached)
            hint = failure_advice(error, reached=login.reached)
            raise Unreachable(await unreachable_message(step, tunnel, proxy, why, hint)) from error
        except BoxError:
            raise
        except ValueError as error:
            raise ConfigError(f"ssh: {step.label}: {error}") from error
        finally:
            login.keyring.close()
            if proxy is not None:
                proxy.close()


_ALIKE: dict[tuple[bytes, ...], list[bytes]] = {}
"""Interned lists of algorithms, shared by all connections with equal ones."""


def free_login_data(connection: asyncssh.SSHClientConnection) -> None:
    """Free data that only the login needed, and share what is equal for most boxes.

    asyncssh keeps 7 KiB for the lifetime of each connection, and hundreds of boxes are watched:
    both sides' algorithm offers (a rekeying sends new ones), the server's signature algorithms, and
    the original options. If another asyncssh version names them differently, they are kept.
    """
    # Private attributes of asyncssh, so each is checked: another version may not have them. They
    # are needed only during the login (kexinit also by the first key exchange's hash).
    for name in ("_client_kexinit", "_server_kexinit"):
        if isinstance(getattr(connection, name, None), bytes):
            setattr(connection, name, b"")
    if isinstance(getattr(connection, "_server_sig_algs", None), set):
        setattr(connection, "_server_sig_algs", frozenset())  # noqa: B010  (no attribute of asyncssh's types)
    for name in (
        "_server_host_key_algs",
        "_sig_algs",
        "_kex_algs",
        "_enc_algs",
        "_mac_algs",
        "_cmp_algs",
    ):
        value = getattr(connection, name, None)
        if isinstance(value, list):
            setattr(connection, name, _ALIKE.setdefault(tuple(value), value))
    options = getattr(connection, "_options", None)
    if isinstance(getattr(options, "kwargs", None), dict):
        setattr(options, "kwargs", {})  # noqa: B010


def _connect_options(host: SshHost, login: Login, known: KnownLines) -> dict[str, Any]:
    trusted, authorities, revoked = (
        _import_keys(e) for e in (known.keys, known.authorities, known.revoked)
    )
    return {
        # None: asyncssh would read ~/.ssh/config by its own rules, and here all of it is resolved.
        "config": None,
        "host": host.host,
        "port": host.port,
        "username": host.user,
        "client_factory": lambda: login,
        "known_hosts": (trusted, authorities, revoked),
        "host_key_alias": host.host_key_alias,
        "server_host_key_algs": host_keys(host, trusted, bool(authorities)),
        # `Login` supplies the keys in OpenSSH's order; else asyncssh would load the default ones.
        "client_keys": None,
        "agent_path": None,
        "agent_forwarding": False,
        "x509_trusted_certs": None,
        "gss_host": None,
        "host_based_auth": False,
        "public_key_auth": host.public_key_auth,
        "password_auth": host.password_auth,
        "kbdint_auth": host.kbdint_auth,
        "preferred_auth": list(host.preferred_auth) or (),
        "family": FAMILIES[host.family],
        "local_addr": (host.bind_address, 0) if host.bind_address else None,
        **keepalive(host),
        # Off, because `Login.deadline` pauses while a person is asked, which asyncssh's timers do
        # not.
        "login_timeout": 0,
        "connect_timeout": None,
        **algorithm_options(host),
    }


def keepalive(host: SshHost) -> dict[str, float]:
    """Return asyncssh's keepalive options.

    Values that never detect a dead link count as not set.
    """
    count = host.alive_count or 0
    keepalive_misses = 3
    return {
        "keepalive_interval": host.alive_interval or KEEPALIVE_SECONDS,
        "keepalive_count_max": count if count > 0 else keepalive_misses,
    }


def _carrier_options(
    tunnel: asyncssh.SSHClientConnection | None, proxy: ProxyProcess | None
) -> dict[str, Any]:
    if proxy is not None:
        return {"sock": proxy.socket}
    if tunnel is not None:
        return {"tunnel": tunnel}
    return {"tunnel": None}


def _import_keys(entries: tuple[KnownHostLine, ...]) -> list[asyncssh.SSHKey]:
    keys = []
    for entry in entries:
        # A type of key that asyncssh does not know must not make the other keys useless.
        with contextlib.suppress(asyncssh.KeyImportError, ValueError):
            keys.append(asyncssh.import_public_key(f"{entry.type} {entry.key}"))
    return keys


def _connect_seconds(host: SshHost) -> float:
    connect_seconds = 10.0
    return host.connect_timeout or connect_seconds


# ProxyCommand: a program whose stdin and stdout are the connection. Its stderr is not shown.


class ProxyProcess:
    """A running ProxyCommand. asyncssh closes it with the connection that it carries."""

    def __init__(self, process: asyncio.subprocess.Process, near: socket.socket) -> None:
        self.socket = near
        self._process = process
        self._words = b""
        self._listening = asyncio.create_task(self._collect_errors())
        self._closing: asyncio.Task[None] | None = None

    async def _collect_errors(self) -> None:
        assert self._process.stderr is not None
        kept_bytes = 2048
        while data := await self._process.stderr.read(kept_bytes):
            self._words = (self._words + data)[-kept_bytes:]

    async def last_words(self) -> str:
        """Return its last line of stderr and its exit status."""
        with contextlib.suppress(TimeoutError):
            # The reason is usually printed just before the end; 0.5 s so that a hanging one does
            # not delay.
            await asyncio.wait_for(asyncio.shield(self._process.wait()), 0.5)
            await asyncio.wait_for(asyncio.shield(self._listening), 0.5)
        lines = self._words.decode(errors="replace").strip().splitlines()
        said = ""
        if lines:
            said = clean_text(lines[-1])[:300]
        status = self._process.returncode
        if status is None:
            ended = ""
        else:
            ended = f"it ended with {status}"
        return ": ".join(part for part in (ended, said) if part)

    def close(self) -> None:
        """End it, and the processes that it started."""
        self.socket.close()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._end_process(), name=ENDING)

    async def _end_process(self) -> None:
        if self._process.returncode is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    # Its whole group (start_new_session): a ProxyCommand may have started others.
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._process.wait(), 2.0)
                    break
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def wait_closed(self) -> None:
        """Wait until it has ended."""
        if self._closing is not None:
            await self._closing


async def open_proxy(command: str, env: Mapping[str, str]) -> ProxyProcess:
    """Start a ProxyCommand with the user's shell, as OpenSSH does.

    Raises:
        Unreachable: the shell cannot be started.
    """
    near, far = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            env.get("SHELL") or "/bin/sh",
            "-c",
            # exec as OpenSSH does: no shell stays between, and signals reach the command itself.
            f"exec {command}",
            stdin=far.fileno(),
            stdout=far.fileno(),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        near.close()
        raise Unreachable(
            translate(
                "ssh: the ProxyCommand {command!r} cannot be started: {strerror}",
                command=command,
                strerror=error.strerror,
            )
        ) from error
    finally:
        # The child has its copy; with ours open, the end of the child would not be the end of the
        # stream.
        far.close()
    near.setblocking(False)
    return ProxyProcess(process, near)
