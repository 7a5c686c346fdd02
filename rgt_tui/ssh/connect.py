"""Open one SSH connection to a box, and say in plain words why it failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncssh

from rgt_tui.model.box import BoxSpec
from rgt_tui.ssh.errors import AuthFailed, HostKeyRefused, Unreachable

CONNECT_SECONDS = 10
LOGIN_SECONDS = 20
KEEPALIVE_SECONDS = 10
KEEPALIVE_MISSES = 3


def options(spec: BoxSpec) -> dict[str, Any]:
    """Return asyncssh's options for a box. The host key is always verified."""
    chosen: dict[str, Any] = {
        "host": spec.host,
        **({"port": spec.port} if spec.port is not None else {}),
        **({"username": spec.user} if spec.user is not None else {}),
        "connect_timeout": CONNECT_SECONDS,
        "login_timeout": LOGIN_SECONDS,
        "keepalive_interval": KEEPALIVE_SECONDS,
        "keepalive_count_max": KEEPALIVE_MISSES,
    }
    if spec.identity is not None:
        chosen["client_keys"] = [str(Path(spec.identity).expanduser())]
        chosen["agent_path"] = None
    if spec.known_hosts is not None:
        chosen["known_hosts"] = str(Path(spec.known_hosts).expanduser())
        # A box that brings its own known_hosts is described in full: no stranger's ssh_config may change it.
        chosen["config"] = None
    return chosen


async def connect(spec: BoxSpec) -> asyncssh.SSHClientConnection:
    """Connect to a box.

    Raises:
        HostKeyRefused: the host key is not the one that known_hosts has.
        AuthFailed: the box did not accept us.
        Unreachable: everything else; refused and timed out are told apart in the message.
    """
    where = f"{spec.host}:{spec.port or 22}"
    try:
        return await asyncssh.connect(**options(spec))
    except asyncssh.HostKeyNotVerifiable as error:
        raise HostKeyRefused(f"ssh: the host key of {where} is not the known one ({error.reason})") from error
    except asyncssh.PermissionDenied as error:
        raise AuthFailed(f"ssh: {where} refused the login of {spec.user} ({error.reason})") from error
    except (asyncssh.Error, TimeoutError) as error:
        reason = getattr(error, "reason", "") or f"no answer within {CONNECT_SECONDS} s"
        raise Unreachable(f"ssh: {where}: {reason}") from error
    except ConnectionRefusedError as error:
        raise Unreachable(f"ssh: {where} refused the connection") from error
    except OSError as error:
        raise Unreachable(f"ssh: {where}: {error.strerror or error}") from error
