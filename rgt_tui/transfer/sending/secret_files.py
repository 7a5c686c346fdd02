"""Which files of a tree are keys, or hold one: they do not belong on a machine that is rented."""

from __future__ import annotations

import fnmatch
import re

NAMES = (
    ".env", ".env.*", "*.env", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.pem",
    "*.ppk", "*.p12", "*.pfx", ".netrc", "_netrc", ".pypirc", ".npmrc", ".git-credentials", "kaggle.json", ".pgpass",
    "*.kdbx", "service-account*.json", "service_account*.json", "credentials.json", "client_secret*.json",
    ".wandb_key",
)  # fmt: skip
HARMLESS = (".env.example", ".env.sample", ".env.template", ".env.dist")
SHAPES = (
    r"\b(?:hf_|sk-|[rsw]k_(?:live|test)_|rpa_|gh[opusr]_|github_pat_|glpat-|xox[abeprs]-|xapp-|nvapi-|r8_|dckr_pat_|npm_"
    r"|pypi-|gsk_|lsv2_|tskey-|wandb_v\d_|dop_v1_|whsec_|SG\.|ya29\.|local-(?=[0-9a-f]{40}))[\w\-]{8,}[\w.\-]*"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\bAIza[\w\-]{30,}|\beyJ[\w\-]{10,2000}\.[\w\-]{5,}(?:\.[\w\-]+)?"
    r"|\b\d{8,10}:AA[\w\-]{30,}"
)
"""As the agent hides them in command lines (``rgt_box/masking.py``)."""
_SHAPED = re.compile(SHAPES.encode(), re.ASCII)
_PRIVATE = re.compile(rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----\s*[A-Za-z0-9+/=\s]{40}")
_RUN = re.compile(rb"[A-Za-z0-9]{16,}")
"""``hf_hub_download`` has the shape of a token; none has a word in it as long as this, with letters and digits."""
MOST = 1 << 20
"""Bytes of a file that are looked at."""


def why_secret(name: str, head: bytes) -> str | None:
    """Return in words why a file is a secret; None = nothing tells so.

    Args:
        name: Its name without the directory.
        head: Its first `MOST` bytes.
    """
    names = () if name in HARMLESS else NAMES
    pattern = next((each for each in names if fnmatch.fnmatchcase(name, each)), None)
    if pattern is not None and not (
        name.endswith(".pem") and b"PRIVATE KEY" not in head and b"CERTIFICATE" in head
    ):
        return f"by its name ({pattern})"
    if _PRIVATE.search(head):
        return f"a private key in line {_line(head, _PRIVATE)}"
    if b"\0" in head[:8192]:
        return None
    for match in _SHAPED.finditer(head):
        if any(_is_random(run) for run in _RUN.findall(match.group())):
            line = head.count(b"\n", 0, match.start()) + 1
            return f"what looks like a token in line {line}"
    return None


def _line(head: bytes, pattern: re.Pattern[bytes]) -> int:
    match = pattern.search(head)
    return head.count(b"\n", 0, match.start()) + 1 if match else 1


def _is_random(run: bytes) -> bool:
    digits = sum(48 <= byte <= 57 for byte in run)
    return 0 < digits < len(run) or len(run) == digits >= 30
