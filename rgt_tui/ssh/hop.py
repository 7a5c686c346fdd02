"""Log in on one server of a route, over a socket, a tunnel or a ProxyCommand."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import asyncssh
import msgspec

from rgt_tui.model.plain import clean
from rgt_tui.ssh import algorithms
from rgt_tui.ssh import hop_words as words
from rgt_tui.ssh.deadline import Deadline
from rgt_tui.ssh.errors import AuthFailed, BoxError, ConfigError, HostKeyRefused, Unreachable
from rgt_tui.ssh.hop_words import Step
from rgt_tui.ssh.hostkeys.entries import Entry
from rgt_tui.ssh.hostkeys.judge import Offered, judge
from rgt_tui.ssh.hostkeys.known import Known, bare_keys, lookup, revocation_list
from rgt_tui.ssh.hostkeys.policy import Policy
from rgt_tui.ssh.login.client import Login
from rgt_tui.ssh.login.person import Person
from rgt_tui.ssh.proxy import Proxy, open_proxy
from rgt_tui.ssh.resolve import Host

CONNECT_SECONDS = 10.0
LOGIN_SECONDS = 20.0
KEEPALIVE_SECONDS = 10.0
KEEPALIVE_MISSES = 3
FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


class Opener:
    """Opens hops for one box.

    Args:
        person: Who is asked.
        policy: What becomes of unknown host keys.
        env: The environment, for a ProxyCommand's shell.
    """

    def __init__(self, person: Person, policy: Policy, env: dict[str, str]) -> None:
        self._person = person
        self._policy = policy
        self._env = env

    async def open(
        self, step: Step, tunnel: asyncssh.SSHClientConnection | None
    ) -> asyncssh.SSHClientConnection:
        """Log in; the tunnel is closed with the connection, and when it fails.

        Raises:
            HostKeyRefused: the host key is not the known one, or nobody accepted it.
            AuthFailed: the server did not let us in.
            Unreachable: everything else.
        """
        person = Person(self._person.box, None, self._person.answers) if step.host.batch else self._person
        pinned: Offered | None = None
        again = True
        while True:
            known = self._known(step, pinned)
            login = Login(step.host, person, Deadline(_connect_seconds(step.host)), LOGIN_SECONDS)
            try:
                return await self._attempt(step, tunnel, login, known)
            except asyncssh.HostKeyNotVerifiable as error:
                pinned = await self._unknown(step, login, known, pinned, person, str(error.reason))
            except Unreachable as error:
                # A server that got tired of waiting for a person gets the answer in a new connection, once.
                late = await login.patience.outlived()
                if late and login.declined:
                    raise AuthFailed(words.refusal(step, login)) from error
                if not again or not login.patience.asked or login.declined:
                    raise
                again = False
            finally:
                login.patience.drop()

    def _known(self, step: Step, pinned: Offered | None) -> Known:
        host = step.host
        known = lookup(host, (step.moved.old,) if step.moved else ())
        known = msgspec.structs.replace(
            known, revoked=known.revoked + revocation_list(host.revoked_host_keys)
        )
        if pinned is not None:
            # What was accepted, and nothing else: the server must show the same key again.
            entry = Entry("accepted by you", 0, host.known_as, pinned.type, pinned.key)
            return msgspec.structs.replace(known, keys=(entry,))
        if known.keys:
            return known
        accepted = self._person.answers.accepted(host.known_as)
        kept = tuple(Entry("accepted by you", 0, host.known_as, kind, key) for kind, key in accepted)
        return msgspec.structs.replace(known, keys=kept)

    async def _unknown(
        self,
        step: Step,
        login: Login,
        known: Known,
        pinned: Offered | None,
        person: Person,
        reason: str,
    ) -> Offered:
        """Return the key that is trusted in the next attempt."""
        if login.offered is None:
            at = ", ".join(entry.at for entry in (*known.revoked, *known.authorities))
            raise HostKeyRefused(
                f"ssh: {step.label}: the host key is not trusted: {clean(reason)}"
                + (f" (see {at})" if at else "")
            )
        kind, key, *_ = login.offered.export_public_key().decode().split()
        offered = Offered(kind, key)
        if pinned is not None:
            raise HostKeyRefused(
                f"ssh: {step.label}: it showed one host key when it was asked about and another one just now; "
                "somebody may be in between"
            )
        if any((entry.type, entry.key) == (kind, key) for entry in bare_keys(step.host)):
            return offered
        title = f"new host key of {step.label}"
        async with person.idle(title), person.answers.lock("host-key", step.host.known_as):
            fresh = self._known(step, None)
            if not any((entry.type, entry.key) == (kind, key) for entry in fresh.keys):
                await judge(
                    step.host, step.label, offered, fresh, person, self._policy, step.by_hand, step.moved
                )
        return offered

    async def _attempt(
        self, step: Step, tunnel: asyncssh.SSHClientConnection | None, login: Login, known: Known
    ) -> asyncssh.SSHClientConnection:
        host = step.host
        proxy: Proxy | None = None
        try:
            if tunnel is None and host.proxy_command is not None:
                proxy = await open_proxy(host.proxy_command, self._env)
            async with login.deadline:
                connection = await asyncssh.connect(**_options(host, login, known), **_way(tunnel, proxy))
            carrier = proxy if proxy is not None else tunnel
            if carrier is not None:
                connection.set_tunnel(carrier)
            forget_offers(connection)
            proxy = None
            return connection
        except asyncssh.HostKeyNotVerifiable:
            raise
        except asyncssh.PermissionDenied as error:
            login.refused()
            raise AuthFailed(words.refusal(step, login)) from error
        except (asyncssh.Error, OSError) as error:
            if isinstance(error, asyncssh.Error) and "authentication failures" in str(error.reason):
                login.refused()
                raise AuthFailed(words.too_many(step, login)) from error
            seconds = LOGIN_SECONDS if login.reached else _connect_seconds(host)
            reason = words.reason(error, seconds, reached=login.reached)
            advice = words.advice(error, reached=login.reached)
            raise Unreachable(await words.failure(step, tunnel, proxy, reason, advice)) from error
        except BoxError:
            raise
        except ValueError as error:
            raise ConfigError(f"ssh: {step.label}: {error}") from error
        finally:
            login.keyring.close()
            if proxy is not None:
                proxy.close()


def forget_offers(connection: asyncssh.SSHClientConnection) -> None:
    """Free the lists of algorithms that both sides offered: of no use until a next key exchange brings its own.

    asyncssh keeps them, 3 KiB for as long as the connection lives, and hundreds of boxes are watched.
    """
    for name in ("_client_kexinit", "_server_kexinit"):
        if isinstance(getattr(connection, name, None), bytes):
            setattr(connection, name, b"")


def _options(host: Host, login: Login, known: Known) -> dict[str, Any]:
    trusted, authorities, revoked = (_keys(e) for e in (known.keys, known.authorities, known.revoked))
    return {
        "config": None,
        "host": host.host,
        "port": host.port,
        "username": host.user,
        "client_factory": lambda: login,
        "known_hosts": (trusted, authorities, revoked),
        "host_key_alias": host.host_key_alias,
        "server_host_key_algs": algorithms.host_keys(host, trusted, bool(authorities)),
        # The keys come from `Login`, in OpenSSH's order; without this, asyncssh would load the default ones.
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
        "login_timeout": 0,
        "connect_timeout": None,
        **algorithms.chosen(host),
    }


def keepalive(host: Host) -> dict[str, float]:
    """Return asyncssh's options for it. What would never find out that a link is dead counts as not set."""
    count = host.alive_count or 0
    return {
        "keepalive_interval": host.alive_interval or KEEPALIVE_SECONDS,
        "keepalive_count_max": count if count > 0 else KEEPALIVE_MISSES,
    }


def _way(tunnel: asyncssh.SSHClientConnection | None, proxy: Proxy | None) -> dict[str, Any]:
    if proxy is not None:
        return {"sock": proxy.socket}
    return {"tunnel": tunnel} if tunnel is not None else {"tunnel": None}


def _keys(entries: tuple[Entry, ...]) -> list[asyncssh.SSHKey]:
    keys = []
    for entry in entries:
        with contextlib.suppress(asyncssh.KeyImportError, ValueError):
            keys.append(asyncssh.import_public_key(f"{entry.type} {entry.key}"))
    return keys


def _connect_seconds(host: Host) -> float:
    return host.connect_timeout or CONNECT_SECONDS
