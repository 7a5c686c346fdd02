"""``%h``, ``${NAME}`` and ``~`` in the values of ssh_config."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Mapping

import msgspec

_TOKEN = re.compile(r"%(.?)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


class Tokens(msgspec.Struct, frozen=True):
    """What the tokens stand for."""

    original: str
    """As the person wrote the host."""
    host: str
    port: int
    user: str
    """On the box."""
    local_user: str
    home: str
    jump: str = ""
    alias: str | None = None

    def table(self) -> dict[str, str]:
        """Return token → text."""
        local = socket.gethostname()
        digest = hashlib.sha1(f"{local}{self.host}{self.port}{self.user}{self.jump}".encode())
        return {
            "%": "%",
            "C": digest.hexdigest(),
            "d": self.home,
            "h": self.host,
            "i": str(os.getuid()),
            "j": self.jump,
            "k": self.alias or self.original,
            "L": local.partition(".")[0],
            "l": local,
            "n": self.original,
            "p": str(self.port),
            "r": self.user,
            "u": self.local_user,
        }


def percent(text: str, table: Mapping[str, str]) -> str:
    """Replace the tokens.

    Raises:
        ValueError: a token is unknown.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in table:
            raise ValueError(f"the token {found[0]!r} is not known here (a % as such is written %%)")
        return table[found[1]]

    return _TOKEN.sub(value, text) if "%" in text else text


def environment(text: str, env: Mapping[str, str]) -> str:
    """Replace ``${NAME}``.

    Raises:
        ValueError: a variable is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in env:
            raise ValueError(f"the environment variable {found[1]} is not set")
        return env[found[1]]

    return _VARIABLE.sub(value, text)


def path(text: str, table: Mapping[str, str], env: Mapping[str, str]) -> str:
    """Return the path that a value names: tokens, variables, ``~``."""
    expanded = environment(percent(text, table), env)
    if expanded == "~" or expanded.startswith("~/"):
        return table["d"] + expanded[1:]
    # Another user's home, ~name/…, is the system's business.
    return os.path.expanduser(expanded)  # noqa: PTH111 (a Path would drop a trailing slash)
