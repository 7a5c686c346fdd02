"""What the values of a box may be, beyond their types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from rgt_tui.fleet.config import secrets
from rgt_tui.ssh import check_host, check_user, percent

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FASTEST_S, SLOWEST_S = 0.05, 3600.0
"""Bounds of the time between samples, as the agent has them."""

Check = Callable[[Any], str | None]
"""Returns what is wrong with a value, or None."""


def _host(value: str) -> str | None:
    if "@" in value:
        return "put what stands before the @ into `user`"
    try:
        check_host(value)
    except ValueError:
        return "is neither a host name nor an alias of ssh_config"
    return "is neither a host name nor an alias of ssh_config" if "/" in value else None


def _user(value: str | None) -> str | None:
    try:
        if value is not None:
            check_user(value)
    except ValueError:
        return "is no user name"
    return None


def _path_here(value: str | None) -> str | None:
    """Check a path on this machine: `~` and ``${NAME}`` are expanded when the box is connected to."""
    try:
        percent(value or "", {"%": "%", "d": ""})
    except ValueError as error:
        return f"cannot be expanded: {error}"
    return None


def _port(value: int | None) -> str | None:
    return None if value is None or 1 <= value <= 65535 else "is no port between 1 and 65535"


def _interval(value: float) -> str | None:
    if FASTEST_S <= value <= SLOWEST_S:
        return None
    return f"is not between {FASTEST_S:g} and {SLOWEST_S:g} seconds"


def _price(value: float | None) -> str | None:
    return None if value is None or (math.isfinite(value) and value >= 0) else "is no price of an hour"


def _currency(value: str) -> str | None:
    return None if re.fullmatch(r"[A-Z]{3}", value) else 'is no currency such as "USD" or "CNY"'


def _pattern(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        return f"is no regular expression: {error}"
    return None


def _variable(value: str | None) -> str | None:
    if value is None:
        return None
    if secrets.VARIABLE.fullmatch(value) and not secrets.no_variable(value):
        return None
    return f"must be the name of an environment variable, and is none; {secrets.ADVICE}"


def _address(value: str | None) -> str | None:
    if value is None or re.match(r"https?://[^/@\s]+(?:/|$)", value):
        return None
    return "must be an http(s) address without user and password, and is none"


def _file(value: str | None) -> str | None:
    if value is None or "://" not in value:
        return None
    return f"must be a file that holds the address, not the address; {secrets.ADVICE}"


BOX: dict[str, Check] = {
    "host": _host,
    "port": _port,
    "user": _user,
    "identity": _path_here,
    "known_hosts": _path_here,
    "ssh_config": _path_here,
    "interval": _interval,
    "per_hour": _price,
    "currency": _currency,
    "pattern": _pattern,
}


SINK: dict[str, Check] = {"url_env": _variable, "url_file": _file, "token_env": _variable}
"""What a sink says of its secrets; `rgt_tui.health.alert_settings` checks the rest."""
PROVIDER: dict[str, Check] = {"key_env": _variable, "base_url": _address}
