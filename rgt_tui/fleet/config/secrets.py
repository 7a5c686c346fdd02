"""A secret has no place in the fleet file: it is copied, shown and committed too easily. Never quotes a value."""

from __future__ import annotations

import re

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


def named_like_one(key: str) -> bool:
    """Tell whether a key asks for a secret, such as ``password`` or ``api_key``."""
    return _NAMES.search(key) is not None


def looks_like_one(value: object) -> bool:
    """Tell whether a value is a secret itself: a private key, or a token of a known shape."""
    return isinstance(value, str) and _VALUES.search(value) is not None
