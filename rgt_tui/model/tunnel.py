"""A port of this machine that leads to a port of a box, or beyond it. Only loopback listens."""

from __future__ import annotations

import re

import msgspec

LOOPBACK = "127.0.0.1"
SOCKS = "socks"
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]")


class Tunnel(msgspec.Struct, frozen=True):
    """Where it begins and ends."""

    local: int
    """Port on this machine's loopback."""
    host: str = "localhost"
    """As the box names it; empty = a SOCKS proxy: each connection says where to."""
    port: int = 0

    def __str__(self) -> str:
        return f"{self.local}:{self.host}:{self.port}" if self.host else f"{SOCKS}:{self.local}"

    @property
    def end(self) -> str:
        """Where it leads, in words."""
        return f"{self.host}:{self.port} there" if self.host else "wherever the box can reach (SOCKS)"


def parse_tunnel(text: str) -> Tunnel:
    """Return what ``PORT``, ``LOCAL:PORT``, ``LOCAL:HOST:PORT`` or ``socks:PORT`` says.

    Raises:
        ValueError: it is none of these.
    """
    parts = re.findall(r"\[[^\]]*\]|[^:]+", text)
    wrong = ValueError(f"{text!r} is no tunnel; write PORT, LOCAL:PORT, LOCAL:HOST:PORT or {SOCKS}:PORT")
    if ":".join(parts) != text or not 1 <= len(parts) <= 3:
        raise wrong
    if len(parts) == 2 and parts[0] == SOCKS:
        return Tunnel(_port(parts[1], wrong), "")
    local, end = _port(parts[0], wrong), _port(parts[-1], wrong)
    host = parts[1] if len(parts) == 3 else "localhost"
    if not _HOST.fullmatch(host):
        raise wrong
    return Tunnel(local, host, end)


def pasted_tunnel(option: str, value: str) -> Tunnel | None:
    """Return what ``-L`` or ``-D`` of an ssh command says, without the address that it would listen on.

    Returns:
        None for what is no pair of ports, such as sockets in the file system.
    """
    parts = re.findall(r"\[[^\]]*\]|[^:]+", value.replace("/", ":") if value.count("/") >= 2 else value)
    wanted = 3 if option == "L" else 1
    try:
        return parse_tunnel(":".join(parts[-wanted:]) if option == "L" else f"{SOCKS}:{parts[-1]}")
    except (ValueError, IndexError):
        return None


def _port(text: str, wrong: ValueError) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= 65535):
        raise wrong
    return int(text)
