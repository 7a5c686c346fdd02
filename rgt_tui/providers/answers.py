"""What a provider's answer to a stop or a destroy proves, a row per provider and verb.

A row says only what the vendor documents. Whatever no row names was sent, and nobody knows what came of it: a 2xx whose
body cannot be read, a redirect, a time-out, a server error, a connection that was cut.
"""

from __future__ import annotations

import enum

from rgt_tui.model.evidence import Verb
from rgt_tui.providers.control_plane import PermitRefused, ProviderError


class Proof(enum.StrEnum):
    """What follows from an answer that is not the documented success."""

    NOTHING = "nothing"
    """The machine is as it was."""
    ASK = "ask"
    """The machine's state did not allow it, or it is not there: reading it and the list settle what is so."""
    MAYBE = "maybe"
    """It may have been done."""


_RUNPOD = {
    401: Proof.NOTHING,
    403: Proof.NOTHING,
    404: Proof.ASK,
    409: Proof.ASK,
    422: Proof.NOTHING,
    429: Proof.NOTHING,
}
"""Errors of REST v2, all as problem+json: https://docs.runpod.io/api-reference-v2/overview (verified 2026-11)."""

ANSWERS: dict[tuple[str, Verb], dict[int, Proof]] = {
    ("runpod", Verb.PARK): _RUNPOD,
    ("runpod", Verb.DESTROY): _RUNPOD,
}
"""``kind`` of the provider and verb → HTTP status → what it proves."""

ANYWHERE = {404: Proof.ASK, 409: Proof.ASK}
"""Where a row says nothing of these: not there, and a state that does not allow it."""


def proof(kind: str, verb: Verb, error: ProviderError | PermitRefused) -> Proof:
    """Return what follows from the trouble with a call."""
    if isinstance(error, PermitRefused) or not error.sent:
        return Proof.NOTHING
    row = {**ANYWHERE, **ANSWERS.get((kind, verb), {})}
    return row.get(error.status or 0, Proof.MAYBE)
