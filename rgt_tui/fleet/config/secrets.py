"""A secret has no place in the fleet file: it is copied, shown and committed too easily. Never quotes a value."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rgt_tui.fleet.config.positions import KeyPath

ADVICE = (
    "a secret (also an address that lets anyone in) does not belong into the fleet file: put it into an environment "
    "variable and name that (key_env, url_env, token_env), or into a file that only you can read (url_file)"
)
_NAMES = re.compile(
    r"^url$|(?:^|_|-)(?:password|passwd|passphrase|secret|token|api_?key|apikey|key|credentials?|bearer)$",
    re.IGNORECASE,
)
_VALUES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|^(?:rpa_|rps_|sk-|hf_|ghp_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ[A-Za-z0-9_-]{10,}\.)"
)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USUAL = re.compile(r"[A-Z_][A-Z0-9_]{0,39}")
_HIDDEN = re.compile(r"_env$|^url_file$|^base_url$")
_LONGEST_NAME, _LONG, _SCRAMBLED = 64, 16, 20


def named_like_one(key: str) -> bool:
    """Tell whether a key asks for a secret, such as ``password`` or ``api_key``."""
    return _NAMES.search(key) is not None


def looks_like_one(value: object) -> bool:
    """Tell whether a value is a secret itself: a private key, or a token of a known shape."""
    return isinstance(value, str) and _VALUES.search(value) is not None


def hidden(key: str) -> bool:
    """Tell whether a key stands beside a secret, so that one is easily pasted into it: its value is not repeated."""
    return _HIDDEN.search(key) is not None


def usual_name(variable: str) -> bool:
    """Tell whether a variable is called as variables are, ``RUNPOD_API_KEY``, so that its name may be shown."""
    return _USUAL.fullmatch(variable) is not None


def no_variable(name: str) -> bool:
    """Tell whether what is given as the name of a variable is likely the secret itself, such as a hexadecimal key."""
    digit = any(char.isdigit() for char in name)
    mixed = name != name.upper() and name != name.lower()
    return (
        len(name) > _LONGEST_NAME
        or (digit and "_" not in name and len(name) >= _LONG)
        or (digit and mixed and len(name) >= _SCRAMBLED)
    )


def leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield every value below tables and lists, with its place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, (*path, place))
    else:
        yield path, value
