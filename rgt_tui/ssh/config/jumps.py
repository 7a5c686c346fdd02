"""ProxyJump: one line into hops."""

from __future__ import annotations

import re

from rgt_tui.ssh.config.host import Jump

_JUMP = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+(?:@[^@]+)*)@)?(?:\[(?P<literal>[^\]]+)\]|(?P<host>[^\[\]:/@]+))(?::(?P<port>\d+))?/?"
)


def parse_jumps(text: str) -> tuple[Jump, ...]:
    """Parse ``[user@]host[:port]`` or ``ssh://…``, with commas between several.

    Raises:
        ValueError: an element is wrong.
    """
    return tuple(_jump(part.strip()) for part in text.split(","))


def _jump(text: str) -> Jump:
    found = _JUMP.fullmatch(text)
    if found is None or text.startswith("-"):
        raise ValueError(f"ProxyJump: {text!r} is not [user@]host[:port]")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"ProxyJump: {port} is no port")
    host = found["literal"] or found["host"]
    if host.startswith("-"):
        raise ValueError(f"ProxyJump: {text!r} is not [user@]host[:port]")
    return Jump(host, found["user"], port)
