"""Judges evidence. This is the only place that builds a `Permit`; a test greps that it stays so."""

from __future__ import annotations

import hashlib

import msgspec

from rgt_tui.model.evidence import Evidence, EvidenceItem, Permit, Refusal

PERMIT_S = 60.0
"""Seconds a permit lives: time to send one call, not to walk away and come back."""

NAME = "name"
REQUIRED = ("quiet", "queue", "durable", "provider", NAME)
"""Without one of these there is no permit. Further items may be there; each of them must hold as well."""

MAX_AGE_S = {"quiet": 10.0, "provider": 15.0}
"""Seconds after which a reading no longer says what is the case now."""
AHEAD_S = 1.0
"""Seconds by which a reading may seem to come from the future; more means that a clock was set back."""


def evaluate(evidence: Evidence, now: float) -> Permit | Refusal:
    """Return a permit for exactly this box, verb and instance, or every reason against it.

    Args:
        evidence: What `rgt_tui.gate.gather` found.
        now: The client clock, epoch seconds.
    """
    reasons = tuple(text for _, text in objections(evidence, now))
    if reasons:
        return Refusal(reasons=reasons)
    return Permit(
        box=evidence.box,
        verb=evidence.verb,
        instance=evidence.instance,
        digest=digest(evidence),
        expires=now + PERMIT_S,
    )


def objections(evidence: Evidence, now: float) -> tuple[tuple[str, str], ...]:
    """Return ``(key of the item, reason)`` for everything that stands against the action, in order."""
    found: list[tuple[str, str]] = []
    present = [item.key for item in evidence.items]
    for key in REQUIRED:
        if key not in present:
            found.append((key, f"nothing is known about: {key}"))
    if not evidence.instance:
        found.append(("provider", "no provider instance is named in the fleet file"))
    for item in evidence.items:
        if not item.ok:
            found.append((item.key, item.text))
        elif (stale := _stale(item, now)) is not None:
            found.append((item.key, stale))
    # Said again here, whatever the item claims: nobody may get past the name by a forged item.
    if evidence.typed != evidence.box and NAME not in [key for key, _ in found]:
        found.append((NAME, "the typed name is not the box's exact name"))
    return tuple(found)


def _stale(item: EvidenceItem, now: float) -> str | None:
    limit = MAX_AGE_S.get(item.key)
    if limit is None:
        return None
    if item.at is None:
        return f"{item.key}: it is not known when this was read"
    age = now - item.at
    # `not <=` rather than `>`: an age that is not a number must refuse, too.
    if not -AHEAD_S <= age <= limit:
        return f"{item.key}: the reading is {age:.0f} s old, at most {limit:.0f} s are allowed"
    return None


def digest(shown: msgspec.Struct) -> str:
    """Return the SHA-256 of a struct's canonical JSON (sorted keys), in hexadecimal."""
    return hashlib.sha256(msgspec.json.encode(shown, order="sorted")).hexdigest()
