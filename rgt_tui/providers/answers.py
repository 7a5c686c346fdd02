"""What a provider's answer says, field by field, and what it proves, a row per provider and verb.

A row says only what the vendor documents. Whatever no row names was sent, and nobody knows what came of it: a 2xx whose
body cannot be read, a redirect, a time-out, a server error, a connection that was cut.
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime

from rgt_tui.model.evidence import Verb
from rgt_tui.providers.control_plane import PermitRefused, ProviderError, printable
from rgt_tui.providers.registry import CONSOLES, IN_BOX


class Proof(enum.StrEnum):
    """What follows from an answer that is not the documented success."""

    NOTHING = "nothing"
    """The machine is as it was."""
    ASK = "ask"
    """The machine's state did not allow it, or it is not there: reading it and the list settle what is so."""
    MAYBE = "maybe"
    """It may have been done."""


_RUNPOD: dict[int | str, Proof] = {
    401: Proof.NOTHING,
    403: Proof.NOTHING,
    404: Proof.ASK,
    409: Proof.ASK,
    422: Proof.NOTHING,
    429: Proof.NOTHING,
}
"""Errors of REST v2, all as problem+json: https://docs.runpod.io/api-reference-v2/overview (verified 2026-11)."""
_VAST: dict[int | str, Proof] = {
    "no_such_instance": Proof.ASK,
    401: Proof.NOTHING,
    403: Proof.NOTHING,
    404: Proof.ASK,
    429: Proof.NOTHING,
}
"""Errors as ``{success: false, error, msg}``: https://docs.vast.ai/api-reference/introduction (verified 2026-08).

An error word at status 200 that is not here proves nothing.
"""
_KUBECTL: dict[int | str, Proof] = {
    "Forbidden": Proof.NOTHING,
    "Unauthorized": Proof.NOTHING,
    "NotFound": Proof.ASK,
    "Conflict": Proof.ASK,
    "Invalid": Proof.NOTHING,
    "BadRequest": Proof.NOTHING,
    "MethodNotAllowed": Proof.NOTHING,
}
"""Reasons of a Status: https://kubernetes.io/docs/reference/using-api/api-concepts/, as kubectl prints them."""
_DIGITALOCEAN: dict[int | str, Proof] = {401: Proof.NOTHING, 404: Proof.ASK, 429: Proof.NOTHING}
"""Of a deletion: https://docs.digitalocean.com/reference/api/ (OpenAPI, verified 2026-08)."""
_LAMBDA: dict[int | str, Proof] = {
    "global/object-does-not-exist": Proof.ASK,
    "global/conflict": Proof.ASK,
    "global/invalid-api-key": Proof.NOTHING,
    "global/account-inactive": Proof.NOTHING,
    "global/invalid-parameters": Proof.NOTHING,
    401: Proof.NOTHING,
    403: Proof.NOTHING,
    429: Proof.NOTHING,
}
"""Errors as ``{error: {code, message, suggestion}}``: https://docs.lambda.ai/api/cloud (verified 2026-08)."""
_PAPERSPACE: dict[int | str, Proof] = {
    "BAD_REQUEST": Proof.NOTHING,
    "UNAUTHORIZED": Proof.NOTHING,
    "FORBIDDEN": Proof.NOTHING,
    "TOO_MANY_REQUESTS": Proof.NOTHING,
    "NOT_FOUND": Proof.ASK,
    "CONFLICT": Proof.ASK,
    "PRECONDITION_FAILED": Proof.ASK,
    401: Proof.NOTHING,
    403: Proof.NOTHING,
    429: Proof.NOTHING,
}
"""Codes of its errors: https://api.paperspace.com/v1/openapi.json (verified 2026-02)."""
_AUTODL: dict[int | str, Proof] = {"AuthorizeFailed": Proof.NOTHING, "PermissionDenied": Proof.NOTHING}
"""The two codes that say of themselves that nothing was done; AutoDL documents neither a list of them nor a status.

https://www.autodl.com/docs/instance_pro_api/ (verified 2026-08)
"""
_DSTACK: dict[int | str, Proof] = {
    400: Proof.NOTHING,
    401: Proof.NOTHING,
    403: Proof.NOTHING,
    "resource_not_exists": Proof.ASK,
    429: Proof.NOTHING,
}
"""Errors as ``{detail: [{msg, code}]}``: https://dstack.ai/docs/reference/api/http/ (verified 2026-08).

400 is also what a run that holds the instance is answered with.
"""
_SKYPILOT: dict[int | str, Proof] = {401: Proof.NOTHING, 403: Proof.NOTHING, 429: Proof.NOTHING}
"""A request that was refused was not queued: https://docs.skypilot.co (API version 62, verified 2026-08)."""
ANSWERS: dict[tuple[str, Verb], dict[int | str, Proof]] = {
    ("autodl", Verb.PARK): _AUTODL,
    ("autodl", Verb.DESTROY): _AUTODL,
    # On these a person acts: nothing is sent.
    **{(kind, verb): {} for kind in (*CONSOLES, *IN_BOX) for verb in Verb},
    # Its codes stand nowhere: featurize 0.0.27 on PyPI (verified 2024-03).
    ("featurize", Verb.PARK): {},
    ("featurize", Verb.DESTROY): {},
    ("digitalocean", Verb.PARK): _DIGITALOCEAN,
    ("digitalocean", Verb.DESTROY): _DIGITALOCEAN,
    ("dstack", Verb.PARK): {},
    ("dstack", Verb.DESTROY): _DSTACK,
    ("kubernetes", Verb.PARK): _KUBECTL,
    ("kubernetes", Verb.DESTROY): _KUBECTL,
    ("skypilot", Verb.PARK): _SKYPILOT,
    ("skypilot", Verb.DESTROY): _SKYPILOT,
    ("slurm", Verb.PARK): {},
    ("slurm", Verb.DESTROY): {"denied": Proof.NOTHING},
    ("lambda", Verb.PARK): _LAMBDA,
    ("lambda", Verb.DESTROY): _LAMBDA,
    ("paperspace-core", Verb.PARK): _PAPERSPACE,
    ("paperspace-core", Verb.DESTROY): _PAPERSPACE,
    ("runpod", Verb.PARK): _RUNPOD,
    ("runpod", Verb.DESTROY): _RUNPOD,
    ("vastai", Verb.PARK): _VAST,
    ("vastai", Verb.DESTROY): _VAST,
}
"""``kind`` of the provider and verb → HTTP status, or the error's own code in the body → what it proves."""
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
    "paperspace-core": {code: proves for code, proves in _PAPERSPACE.items() if proves is Proof.NOTHING},
    "runpod": _RUNPOD_CREATION,
    # https://docs.vast.ai/api-reference/instances/create-instance (verified 2026-08); an error that names a new
    # contract has made one, and is no error (`rgt_tui.providers.markets.rented_market`).
    "vastai": {
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


def proof(kind: str, verb: Verb, error: ProviderError | PermitRefused) -> Proof:
    """Return what follows from the trouble with a call."""
    return _proof({**ANYWHERE, **ANSWERS.get((kind, verb), {})}, error)


def creation_proof(kind: str, error: ProviderError | PermitRefused) -> Proof:
    """Return what follows from the trouble with a creation; without a row the machine may be there, and bill."""
    return _proof(CREATIONS.get(kind, {}), error)


def _proof(row: dict[int | str, Proof], error: ProviderError | PermitRefused) -> Proof:
    if isinstance(error, PermitRefused) or not error.sent:
        return Proof.NOTHING
    # The code in the body says more than the status, which some platforms leave at 200.
    return row.get(error.code) or row.get(error.status or 0, Proof.MAYBE)


Parts = tuple[tuple[str, float | None], ...]
"""What is billed: its name, and its price an hour; None = at a price that nobody said."""


def known_sum(parts: Parts) -> tuple[float | None, tuple[str, ...]]:
    """Return what the parts cost as far as it is known, and those of unknown price; None: not one is known."""
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


def when(value: object) -> float | None:
    """Return the epoch seconds of an ISO 8601 time (UTC where it names no zone); None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        result = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
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
