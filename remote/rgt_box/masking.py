"""Mask secrets in command lines, so that they are neither sent nor stored. Pure.

A secret is recognised by its name (an option, a variable, a parameter of a URL, a header) or by its
shape. In doubt it is hidden: a less informative command line is no loss.
"""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Match

HIDDEN = "***"
LONGEST_NAME = 100
PLAIN_KEYS = frozenset(
    (
        "audio", "batch", "cache", "caption", "chosen", "column", "data", "dataset", "feature",
        "foreign", "group",
        "image", "input", "label", "lookup", "map", "messages", "metric", "monitor", "output",
        "partition", "primary",
        "prompt", "public", "rejected", "response", "reward", "sort", "step", "target", "text",
        "video",
    )
)  # fmt: skip
"""``--image-key jpg`` names a column of the data: after these words, ``key`` does not mean a
secret.
"""

_WORD = (
    r"((?:api|access|auth|hf|hub|wandb|refresh|session|bot|deploy)[-_]?(?:key|token)|secret|token"
    r"|passw(?:or)?d|pass"
    r"|passphrase|passcode|pwd|credentials?|auth|authorization|cookies?|signature|sig|dsn|key)"
    r"(?:[-_](?:id|key|access[-_]?key|token|secret))?"
)
_NAME = re.compile(r"(?:^|(?<=[^A-Za-z0-9]))" + _WORD + "$", re.I)
_OPTION_NAME = re.compile(r"[-+\w.]+$")
_VALUE = r"(\"[^\"]*\"|'[^']*'|[^\s\"'&;,|)}\]]+)"
_ASSIGNED = re.compile(r"(?<![A-Za-z0-9])" + _WORD + r"[\"']?\s{0,3}[=:]\s{0,3}" + _VALUE, re.I)
_OPTION = re.compile(r"(?<!\S)--?(?:[\w.]{1,60}[-_.])??" + _WORD + r"\s{1,3}(?!-)" + _VALUE, re.I)
_HEADER = re.compile(r"((?:authorization|cookie)[\"']?\s{0,3}[:=]\s{0,3}[\"']?)[^\"'\r\n]+", re.I)
_BEARER = re.compile(r"\b(bearer|basic)\s+\S+", re.I)
_LOGIN = re.compile(r"\b(wandb\s+login(?:\s+--?\w+)*\s+)[^\s\-]\S*")
_SHAPES = re.compile(
    r"\b(?:hf_|sk-|[rsw]k_(?:live|test)_|rpa_|gh[opusr]_|github_pat_|glpat-|xox[abeprs]-|xapp-"
    r"|nvapi-|r8_|dckr_pat_|npm_"
    r"|pypi-|gsk_|lsv2_|tskey-|wandb_v\d_|dop_v1_|whsec_|SG\.|ya29\."
    r"|local-(?=[0-9a-f]{40}))[\w\-]{8,}[\w.\-]*"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\bAIza[\w\-]{30,}"
    r"|\beyJ[\w\-]{10,2000}\.[\w\-]{5,}(?:\.[\w\-]+)?"
    r"|\b\d{8,10}:AA[\w\-]{30,}"
)
"""Prefixes by which the vendors' own scanners recognise their keys."""
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*", re.S)
_HOOK = re.compile(
    r"(hooks\.slack\.com/\w{1,20}/|discord(?:app)?\.com/api/webhooks/)[^\s\"']+", re.I
)
"""Addresses that are secrets themselves: knowing one allows sending."""
_URL = re.compile(r"(?<!\w)(\w{1,20}://[^/\s:@]{0,200}):[^\s@\"']+@(?=[^\s@]*)")
_URL_TOKEN = re.compile(r"(?<!\w)(\w{1,20}://)(?=[^/\s:@]{0,200}\d)[^/\s:@]{16,200}@")
_COUNTED = re.compile(r"(?:\d+(?:\.\d+)?|true|false|none|null|yes|no)$", re.I)
_SAID = re.compile(r"(?:true|false|none|null|yes|no)$", re.I)
"""Values that are not secrets: ``--token 512`` is a length, and ``--auth false`` a switch. A
password may be a number.
"""
_FILE = re.compile(r"(?:~|\.{1,2})?(?:/[\w.\-]{1,24})+/?$")
"""A path: no part of one is as long as a key."""
_PAIR = re.compile(r"[^\s:/]+:(?!\d+$)[^\s/]+$")
"""``curl -u NAME:PASSWORD``, but not Docker's ``-u 1000:1000``."""


def mask_words(words: list[str]) -> list[str]:
    """Return a command line without its secrets."""
    found = []
    hide = ""
    shell_password = bool(words) and os.path.basename(words[0]) == "sshpass"
    for word in words:
        name = hide
        hide = ""
        if name == "login" and word.startswith("-"):
            hide = name
            found.append(word)
            continue
        if name and not word.startswith("--"):
            # A value may begin with one dash (``--password -x1``), but not with two.
            found.append(word if _is_harmless(name, word) else HIDDEN)
            continue
        # sshpass takes ``-pSECRET`` and ``-p SECRET``.
        if shell_password and word.startswith("-p"):
            hide = "password"
            if word[2:]:
                hide = ""
            found.append("-p" + HIDDEN * bool(word[2:]))
            continue
        if word in ("-u", "--user") or (
            word == "login" and found and os.path.basename(found[-1]) == "wandb"
        ):
            hide = word
        elif word.startswith("-") or _NAME.fullmatch(word):
            hide = _secret_name(word)
        before, sign, value = word.partition("=")
        named = ""
        if sign and value and _OPTION_NAME.match(before):
            named = _secret_name(before)
        if named and not _is_harmless(named, value):
            found.append(f"{before}={HIDDEN}")
            continue
        found.append(_mask_text(word))
    return found


def why_secret(name: str, value: str) -> str:
    """Return why a variable is a secret: by its ``name`` or its ``shape``, or "".

    This refuses users' own settings, so a path to a key file and a tokenizer's ``<pad>`` do not
    count.
    """
    word = _secret_name(name)
    # Characters of the shortest key or token of any service; a password may be shorter.
    shortest_key = 8
    short = len(value) < shortest_key and re.search("token|key|auth|sig", word)
    if word and value and not (short or _is_harmless(word, value) or _FILE.match(value)):
        return "name"
    if has_shape(value):
        return "shape"
    return ""


def has_shape(text: str) -> bool:
    """Return whether a text contains a string shaped like a key, or a password in a URL."""
    return any(pattern.search(text) for pattern in (_SHAPES, _PRIVATE, _HOOK, _URL, _URL_TOKEN))


def _mask_text(text: str) -> str:
    """Return a text without its secrets: one word may be a complete script (``sh -c``) or a URL."""
    # Whole blocks first: later patterns would leave parts of a private key.
    text = _PRIVATE.sub(HIDDEN, text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _HOOK.sub(rf"\1{HIDDEN}", text)
    text = _URL_TOKEN.sub(rf"\1{HIDDEN}@", _URL.sub(rf"\1:{HIDDEN}@", text))
    text = _LOGIN.sub(rf"\1{HIDDEN}", text)
    return _SHAPES.sub(HIDDEN, _OPTION.sub(_mask_assignment, _ASSIGNED.sub(_mask_assignment, text)))


def _mask_assignment(match: Match[str]) -> str:
    """Return an assignment without its value, or unchanged if the value is harmless."""
    whole = match.group()
    # The words before it decide whether ``key`` means a secret (see `PLAIN_KEYS`).
    begin = max(0, match.start(1) - LONGEST_NAME)
    before = match.string[begin : match.start(1)]
    secret = _secret_name(before + match.group(1))
    if not secret or _is_harmless(secret, match.group(2).strip("\"'")):
        return whole
    return whole[: match.start(2) - match.start()] + HIDDEN


def _secret_name(text: str) -> str:
    """Return the word that makes a name that of a secret, or ""."""
    # Only the end: the pattern must not search through a command line of megabytes.
    found = _NAME.search(text[-LONGEST_NAME:])
    if found is None:
        return ""
    word = found.group(1).lower()
    start = text[-LONGEST_NAME:][: found.start()].lower().rstrip("-_.")
    before = re.split(r"[^a-z0-9]+", start)[-1]
    if word == "key" and before in PLAIN_KEYS:
        return ""
    return word


def _is_harmless(name: str, value: str) -> bool:
    if name in ("-u", "--user"):
        return not _PAIR.match(value)
    return bool((_COUNTED if re.search("token|key|auth|sig", name) else _SAID).match(value))
