"""Checks of single values in a fleet file, and what looks like a secret in one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from rgt_tui.language import translate
from rgt_tui.model import IGNORED_RULE, parse_idle_condition, parse_tunnel
from rgt_tui.ssh import check_host, check_user, replace_tokens

ADVICE = (
    "never put a secret (or a URL that grants access) in the fleet file: put it into an "
    "environment variable and name that (key_env, url_env, token_env), or into a file that only "
    "you can read (url_file)"
)
_NAMES = re.compile(
    r"^url$|(?:^|_|-)(?:password|passwd|passphrase|secret|token|api_?key|apikey|key|credentials?"
    r"|bearer)$",
    re.IGNORECASE,
)
_VALUES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|^(?:rpa_|rps_|sk-|hf_|ghp_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ[A-Za-z0-9_-]{10,}\.)"
)
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USUAL = re.compile(r"[A-Z_][A-Z0-9_]{0,39}")
_HIDDEN = re.compile(r"_env$|^url_file$|^base_url$")
_LONGEST_NAME, _LONG, _SCRAMBLED = 64, 16, 20


def named_like_secret(key: str) -> bool:
    """Return whether a key's name asks for a secret, such as ``password`` or ``api_key``."""
    return _NAMES.search(key) is not None


def looks_like_secret(value: object) -> bool:
    """Return whether a value is a secret itself: a private key, or a token of a known format."""
    return isinstance(value, str) and _VALUES.search(value) is not None


def is_hidden_key(key: str) -> bool:
    """Return whether a key is related to a secret, so that one may be pasted into it.

    Its value is never printed.
    """
    return _HIDDEN.search(key) is not None


def usual_name(variable: str) -> bool:
    """Return whether a variable has a usual name, like ``RUNPOD_API_KEY``, which may be shown."""
    return _USUAL.fullmatch(variable) is not None


def no_variable(name: str) -> bool:
    """Return whether a variable's name is probably a secret itself, such as a hexadecimal key."""
    # A long name with digits and without an underscore is rather a key than words.
    digit = any(char.isdigit() for char in name)
    mixed = name != name.upper() and name != name.lower()
    return (
        len(name) > _LONGEST_NAME
        or (digit and "_" not in name and len(name) >= _LONG)
        or (digit and mixed and len(name) >= _SCRAMBLED)
    )


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
FASTEST_S, SLOWEST_S = 0.05, 3600.0
"""Bounds of the seconds between samples, the same as the agent's."""

Check = Callable[[Any], str | None]
"""Returns an error message for a value, or None."""


def _find_host_problem(value: str) -> str | None:
    if "@" in value:
        return translate("put the part before the @ into `user`")
    try:
        check_host(value)
    except ValueError:
        return translate("is neither a host name nor an alias of ssh_config")
    if "/" in value:
        # `check_host` lets a slash pass.
        return translate("is neither a host name nor an alias of ssh_config")
    return None


def _find_user_problem(value: str | None) -> str | None:
    try:
        if value is not None:
            check_user(value)
    except ValueError:
        return translate("is not a valid user name")
    return None


def _path_here(value: str | None) -> str | None:
    """Check a local path; `~` and ``${NAME}`` are expanded only when connecting to the box."""
    try:
        replace_tokens(value or "", {"%": "%", "d": ""})
    except ValueError as error:
        return translate("cannot be expanded: {error}", error=error)
    return None


def _find_port_problem(value: int | None) -> str | None:
    if value is None or 1 <= value <= 65535:
        return None
    return translate("is not a port between 1 and 65535")


def _find_interval_problem(value: float) -> str | None:
    if FASTEST_S <= value <= SLOWEST_S:
        return None
    return translate(
        "is not between {fastest_s:g} and {slowest_s:g} seconds",
        fastest_s=FASTEST_S,
        slowest_s=SLOWEST_S,
    )


def _find_price_problem(value: float | None) -> str | None:
    # TOML has inf and nan.
    if value is None or (math.isfinite(value) and value >= 0):
        return None
    return translate("is not a price per hour")


def _find_currency_problem(value: str) -> str | None:
    if re.fullmatch(r"[A-Z]{3}", value):
        return None
    return translate('is not a currency such as "USD" or "CNY"')


def _find_globs_problem(value: Sequence[str]) -> str | None:
    for glob in value:
        if not glob.startswith("/") or ".." in glob.split("/"):
            return translate(
                "holds {glob!r}, which is not an absolute path on the box (nor a glob "
                "that begins with '/')",
                glob=glob,
            )
    return None


def _find_ignored_problem(value: Sequence[str]) -> str | None:
    # A pattern of nothing but wildcards: then a teardown would find nothing to lose.
    whole = next((glob for glob in value if not glob.strip("/*?[]!")), None)
    if whole is not None:
        return translate("has {whole!r}, which would ignore every result", whole=whole)
    return _find_globs_problem([glob for glob in value if not glob.startswith(IGNORED_RULE)])


def _find_tunnels_problem(value: Sequence[str]) -> str | None:
    for text in value:
        try:
            # Parsed here only for its error, which then has file and line.
            parse_tunnel(text)
        except ValueError as error:
            return translate("cannot be used: {error}", error=error)
    return None


def _find_idle_problem(value: str | None) -> str | None:
    try:
        parse_idle_condition(value or "never")
    except ValueError as error:
        return translate("cannot be used: {error}", error=error)
    return None


def _find_environment_problem(value: dict[str, str]) -> str | None:
    for name in value:
        if not VARIABLE_NAME.fullmatch(name):
            return translate("has {name!r}, which is no name of a variable", name=name)
        if named_like_secret(name):
            return translate(
                "has {name}, a secret by its name: rgt run --secret {name}, or rgt secret",
                name=name,
            )
    return None


def _find_pattern_problem(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        return translate("is not a regular expression: {error}", error=error)
    return None


def _find_variable_problem(value: str | None) -> str | None:
    if value is None:
        return None
    # A secret that is pasted here would otherwise be printed as "variable … is not set".
    if VARIABLE_NAME.fullmatch(value) and not no_variable(value):
        return None
    return translate(
        "must be the name of an environment variable; {advice}", advice=translate(ADVICE)
    )


def _find_address_problem(value: str | None) -> str | None:
    if value is None or re.match(r"https?://[^/@\s]+(?:/|$)", value):
        return None
    return translate("must be an http(s) address without user and password")


def _find_file_problem(value: str | None) -> str | None:
    if value is None or "://" not in value:
        return None
    return translate(
        "must be a file that contains the address, not the address itself; {advice}",
        advice=translate(ADVICE),
    )


BOX: dict[str, Check] = {
    "host": _find_host_problem,
    "port": _find_port_problem,
    "user": _find_user_problem,
    "identity": _path_here,
    "known_hosts": _path_here,
    "ssh_config": _path_here,
    "interval": _find_interval_problem,
    "per_hour": _find_price_problem,
    "currency": _find_currency_problem,
    "pattern": _find_pattern_problem,
    "results": _find_globs_problem,
    "ignore": _find_ignored_problem,
    "tunnels": _find_tunnels_problem,
    "idle_if": _find_idle_problem,
    "env": _find_environment_problem,
}


SINK: dict[str, Check] = {
    "url_env": _find_variable_problem,
    "url_file": _find_file_problem,
    "token_env": _find_variable_problem,
}
"""A sink's keys about secrets; `rgt_tui.health.delivery` checks the others."""


def _find_via_problem(value: str | None) -> str | None:
    if value is None or re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._:/@+-]{0,252}", value):
        return None
    return translate("must be a host of ssh_config (Slurm) or a context of kubeconfig (Kubernetes)")


PROVIDER: dict[str, Check] = {
    "key_env": _find_variable_problem,
    "base_url": _find_address_problem,
    "via": _find_via_problem,
}
AGREED: dict[str, Check] = {"max_per_hour": _find_price_problem, "currency": _find_currency_problem}
