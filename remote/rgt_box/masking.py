"""Secrets in command lines are never told: neither on the wire nor in a file. Pure."""

from __future__ import annotations

import re

HIDDEN = "***"
_KEY = r"(?:[\w.]*[-_.])?(?:api[-_]?key|access[-_]?key|secret|token|passw(?:or)?d|passphrase|pwd|credentials?|auth)"
_KEY += r"(?:[-_](?:id|key|access[-_]?key))?"
_NAMED = re.compile(r"^(-{0,2}%s)=(.+)$" % _KEY, re.I | re.S)
_NEXT = re.compile(r"^--?%s$" % _KEY, re.I)
_SHAPES = re.compile(
    r"\b(?:hf_|sk-|rpa_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|nvapi-|r8_|dckr_pat_)[\w\-]{8,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\beyJ[\w\-]{10,}\.[\w\-]{5,}(?:\.[\w\-]+)?"
)
"""Prefixes by which the vendors' own scanners know their keys."""
_URL = re.compile(r"(\w+://[^/\s:@]*):[^/\s@]+@")
_BEARER = re.compile(r"\b(bearer|basic)\s+\S+", re.I)
_COUNTED = re.compile(r"^(?:\d+(?:\.\d+)?|true|false|none|null|yes|no)$", re.I)
"""What is no secret: ``--token 512`` is a length."""


def masked(words: list[str]) -> list[str]:
    """Return a command line without its secrets: by the name of an option, or by the shape of a word."""
    found = []
    hide = False
    for word in words:
        if hide and not word.startswith("--"):
            found.append(word if _COUNTED.match(word) else HIDDEN)
            hide = False
            continue
        hide = bool(_NEXT.match(word))
        named = _NAMED.match(word)
        if named and not _COUNTED.match(named.group(2)):
            word = "%s=%s" % (named.group(1), HIDDEN)
        word = _URL.sub(r"\1:%s@" % HIDDEN, word)
        word = _BEARER.sub(r"\1 %s" % HIDDEN, word)
        found.append(_SHAPES.sub(HIDDEN, word))
    return found
