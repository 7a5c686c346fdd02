"""A command line as rentals hand it out, ``ssh -p 40022 root@1.2.3.4``, into the keys of a box. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Any

VALUED = "BbcDEeFIiJLlmOopQRSWw"
"""Options of OpenSSH's ssh that take a value."""
OPTIONS = {"port": "port", "user": "user", "identityfile": "identity", "hostname": "host"}


class NotSsh(ValueError):
    """What was pasted is no way to a box; the message says why."""


def parse_target(text: str) -> dict[str, Any]:
    """Return ``host`` and, where they are said, ``port``, ``user``, ``identity`` and ``ssh_config``.

    Args:
        text: ``HOST``, ``USER@HOST``, ``HOST:PORT``, ``ssh://…``, or a whole ssh command.

    Raises:
        NotSsh: it is none of these.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise NotSsh(f"{text!r}: {error}") from error
    if not parts:
        raise NotSsh("no host is named")
    if re.search(r"(?:^|/)ssh$", parts[0]) and len(parts) > 1:
        return _command(parts[1:])
    if len(parts) > 1:
        raise NotSsh(f"{text!r} is neither a host nor an ssh command; put the command in quotes")
    return _address(parts[0])


def _command(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    target: dict[str, Any] | None = None
    words = list(words)
    while words and (target is None or words[0].startswith("-")):
        word = words.pop(0)
        if word == "--":
            continue
        if not word.startswith("-"):
            target = _address(word)
            continue
        for key, value in _option(word, words):
            found.setdefault(key, value)
    if target is None:
        raise NotSsh("the ssh command names no host")
    return target | found


def _option(word: str, rest: list[str]) -> list[tuple[str, Any]]:
    """Read one word of options, such as ``-p``, ``-p40022``, ``-tA``; takes its value from `rest`."""
    for place, letter in enumerate(word[1:], 1):
        if letter not in VALUED:
            continue
        value = word[place + 1 :]
        if not value:
            if not rest:
                raise NotSsh(f"-{letter} lacks its value")
            value = rest.pop(0)
        if letter == "p":
            return [("port", _port(value))]
        if letter == "l":
            return [("user", value)]
        if letter == "i":
            return [("identity", value)]
        if letter == "F":
            return [("ssh_config", value)]
        if letter == "o":
            return _long(value)
        if letter == "J":
            raise NotSsh(
                f"-J {value}: put it into an entry of ~/.ssh/config (Host ALIAS, ProxyJump {value}), "
                "then: rgt add NAME ALIAS"
            )
        return []
    return []


def _long(value: str) -> list[tuple[str, Any]]:
    name, _, text = re.sub(r"\s*[= ]\s*", "=", value.strip(), count=1).partition("=")
    key = OPTIONS.get(name.lower())
    if name.lower() in ("proxyjump", "proxycommand"):
        raise NotSsh(f"-o {name}: put it into an entry of ~/.ssh/config, then: rgt add NAME ALIAS")
    if key is None:
        return []
    return [(key, _port(text) if key == "port" else text)]


def _address(text: str) -> dict[str, Any]:
    uri = re.fullmatch(r"ssh://(.*?)/?", text)
    body = uri.group(1) if uri else text
    user, at, host = body.rpartition("@")
    found: dict[str, Any] = {}
    literal = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", host)
    if literal:
        host, port = literal.group(1), literal.group(2)
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        if not port:
            raise NotSsh(f"{text!r} has an empty port")
    else:
        port = None
    if not host or host.startswith("-") or re.search(r"[\s/]", host) or (at and not user):
        raise NotSsh(f"{text!r} is no host")
    found["host"] = host
    if port is not None:
        found["port"] = _port(port)
    if user:
        found["user"] = user
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise NotSsh(f"{text!r} is no port")
    return int(text)
