"""Reads a provider's answers field by field, and decides what they prove.

``ANSWERS`` of a provider's module has a row per verb, which holds what the vendor documents and nothing else. Whatever
no row names was sent, and its outcome is unknown: a 2xx whose body cannot be read, a redirect, a time-out, a
server error, a connection that was cut.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime, tzinfo

from rgt_tui.model import Verb
from rgt_tui.providers.control_plane import PermitRefused, ProviderError, printable
from rgt_tui.providers.registry import module_of


class Proof(enum.StrEnum):
    """What follows from an answer that is not the documented success."""

    NOTHING = "nothing"
    """The machine is as it was."""
    ASK = "ask"
    """The machine's state did not allow it, or it is not there: reading it and the list settle what is so."""
    MAYBE = "maybe"
    """It may have been done."""


Answers = Mapping[Verb, Mapping[int | str, Proof]]
"""Verb → HTTP status, or the error's own code in the body → what it proves."""
ANYWHERE: dict[int | str, Proof] = {404: Proof.ASK, 409: Proof.ASK}
"""Where a row says nothing of these: not there, and a state that does not allow it."""
_RUNPOD_CREATION: dict[int | str, Proof] = dict.fromkeys((400, 401, 402, 403, 404, 422, 429), Proof.NOTHING)
"""400: a rule broken or no capacity, 402: the balance; a 5xx may come after the pod was made, and billed.

https://docs.runpod.io/api-reference-v2/pods/create-a-pod (verified 2026-08),
https://github.com/transformerlab/transformerlab-app/issues/2305 (verified 2026-06)
"""
CREATIONS: dict[str, dict[int | str, Proof]] = {
    # 422: no such size now, or the limit of droplets: https://docs.digitalocean.com/reference/api/ (verified 2026-08).
    "digitalocean": dict.fromkeys((401, 403, 422, 429), Proof.NOTHING),
    # https://docs.lambda.ai/api/cloud (verified 2026-08); what the provider behind Lambda says (``provider/…``) proves
    # nothing.
    "lambda": dict.fromkeys(
        (
            "instance-operations/launch/insufficient-capacity",
            "instance-operations/launch/file-system-in-wrong-region",
            "global/quota-exceeded",
            "global/invalid-parameters",
            "global/invalid-api-key",
            "global/account-inactive",
            "global/invalid-address",
            "global/object-does-not-exist",
            401,
            403,
            429,
        ),
        Proof.NOTHING,
    ),
    # What a lack of capacity is answered with is not documented: it can be a 200 and a machine that stays off.
    "paperspace-core": dict.fromkeys(
        ("BAD_REQUEST", "UNAUTHORIZED", "FORBIDDEN", "TOO_MANY_REQUESTS", 401, 403, 429), Proof.NOTHING
    ),
    "runpod": _RUNPOD_CREATION,
    # https://docs.vast.ai/api-reference/instances/create-instance (verified 2026-08); an error that names a new
    # contract has made one, and is no error (`rgt_tui.providers.markets.rented_market`).
    "vastai": {
        "auth_error": Proof.NOTHING,
        "invalid_args": Proof.NOTHING,
        "invalid_price": Proof.NOTHING,
        "no_ssh_key_for_vm": Proof.NOTHING,
        "no_such_ask": Proof.NOTHING,
        401: Proof.NOTHING,
        403: Proof.NOTHING,
        429: Proof.NOTHING,
    },
}
"""``kind`` of the provider → status or code of the answer to a creation → what it proves. `Proof.ASK`: look for it."""


def answers_of(kind: str) -> Answers:
    """Return what a provider's answers prove: the ``ANSWERS`` of its module; nothing for an unknown kind."""
    found: Answers = getattr(module_of(kind), "ANSWERS", {})
    return found


def proof(kind: str, verb: Verb, error: ProviderError | PermitRefused) -> Proof:
    """Return what follows from the trouble with a call."""
    return _proof({**ANYWHERE, **answers_of(kind).get(verb, {})}, error)


def creation_proof(kind: str, error: ProviderError | PermitRefused) -> Proof:
    """Return what an error of a creation proves; without a row the machine may exist, and bill."""
    return _proof(CREATIONS.get(kind, {}), error)


def _proof(row: dict[int | str, Proof], error: ProviderError | PermitRefused) -> Proof:
    if isinstance(error, PermitRefused) or not error.sent:
        return Proof.NOTHING
    # The code in the body says more than the status, which some platforms leave at 200.
    return row.get(error.code) or row.get(error.status or 0, Proof.MAYBE)


Parts = tuple[tuple[str, float | None], ...]
"""What is billed: its name, and its price an hour; None = at a price that nobody said."""


def known_sum(parts: Parts) -> tuple[float | None, tuple[str, ...]]:
    """Return what the parts cost as far as known, and which have no known price; None: not one is known."""
    rates = [rate for _, rate in parts if rate is not None]
    unpriced = tuple(name for name, rate in parts if rate is None)
    return (None if unpriced and not sum(rates) else sum(rates)), unpriced


MOST = 1e18
"""No price or size is beyond it; sums of such numbers stay finite."""


def number(value: object) -> float | None:
    """Return a price or size that comes as number or string; None for what is below 0, or beyond `MOST`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if 0 <= result <= MOST else None


def signed(value: object) -> float | None:
    """Return a sum of money, which may be below zero; None for what is no number, or beyond `MOST`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= MOST else None


def whole(value: object) -> int | None:
    """Return a count of one or more; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None


def port(value: object) -> int | None:
    """Return a port that comes as number or string; None for anything else."""
    found = number(value)
    return int(found) if found is not None and found.is_integer() and 0 < found < 65536 else None


def said(value: object) -> bool | None:
    """Return true or false; None for anything else."""
    return value if isinstance(value, bool) else None


def text(value: object, limit: int = 120) -> str | None:
    """Return printable words; None for what is no text, and for an empty one."""
    return (printable(value, limit) or None) if isinstance(value, str) else None


def when(value: object, zone: tzinfo | None = None) -> float | None:
    """Return the epoch seconds of an ISO 8601 time; None for anything else.

    Args:
        value: Of the answer.
        zone: Of a time that names none. None = such a time is unknown: hours too late, it would take the results of
            these hours for files of the image.
    """
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None and zone is None:
            return None
        result = (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None
    return moment_of(result)


def moment_of(value: object) -> float | None:
    """Return epoch seconds that can be a machine's time; None for anything else.

    Years in which no machine was made are nonsense, and some cannot be turned back into a date.
    """
    found = number(value)
    return found if found is not None and 0 < found < 2**33 else None


def table(value: object) -> dict[str, object]:
    """Return a JSON object; an empty one for anything else, null included."""
    return value if isinstance(value, dict) else {}


def array(value: object) -> list[object]:
    """Return a JSON array; an empty one for anything else, null included."""
    return value if isinstance(value, list) else []
