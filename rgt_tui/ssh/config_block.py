"""A route as blocks of ssh_config, for programs that read nothing else: they say the same as what rgt does."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rgt_tui.ssh.hop import KEEPALIVE_SECONDS, Step
from rgt_tui.ssh.ssh_errors import ConfigError
from rgt_tui.ssh.ssh_route import Host

_ODD = re.compile(r'[\x00-\x1f\x7f"]')


def config_blocks(name: str, steps: Sequence[Step]) -> str:
    """Return a block for a box and one for each jump host before it; every value is worked out.

    Args:
        name: What ``ssh NAME`` is to be called; the jump hosts are ``NAME-via-1`` and so on.
        steps: The way, as `rgt_tui.ssh.hops` gives it.

    Raises:
        ConfigError: a value cannot be said in a file.
    """
    names = [f"{name}-via-{place}" for place in range(1, len(steps))] + [name]
    blocks = []
    for place, (alias, step) in enumerate(zip(names, steps, strict=True)):
        lines = [f"Host {alias}", *(f"    {key} {value}" for key, value in _said(step))]
        if place:
            lines.append(f"    ProxyJump {names[place - 1]}")
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
    return f'"{text}"' if " " in text else text


def _path(host: Host, text: str) -> str:
    if "${" in text:
        raise ConfigError(f"ssh_config, for {host.alias}: {text!r} has what ssh would expand")
    return _word(host, text.replace("%", "%%"))
