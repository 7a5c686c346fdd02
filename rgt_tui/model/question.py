"""What only a person can answer on the way to a box: a first host key, a password, a passphrase."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable

import msgspec


class QuestionKind(enum.StrEnum):
    """What is asked, and so what an answer may be."""

    HOST_KEY = "host-key"
    """Answer ``yes`` to accept and write it to known_hosts; anything else refuses."""
    SECRET = "secret"
    """A password, a passphrase, a one-time code: never echoed, never stored."""
    TEXT = "text"
    """A keyboard-interactive prompt whose answer may be echoed."""


class Question(msgspec.Struct, frozen=True):
    """One question about one box."""

    id: int
    box: str
    kind: QuestionKind
    title: str
    """One line, e.g. ``password of root@1.2.3.4:40022``; already stripped of control sequences."""
    lines: tuple[str, ...] = ()
    """What to know before answering: fingerprint, key type, where it will be written, the server's own words."""
    asked_at: float = 0.0
    """Client clock."""


Ask = Callable[[Question], Awaitable[str | None]]
"""Asks a person and waits; None = refused, or there is nobody to ask."""
