"""What an action can cost at worst, the words that have to be typed for it, and the digest of what was shown."""

from __future__ import annotations

import hashlib
import json

from rgt_tui.gate.identity import IDENTITY
from rgt_tui.model.evidence import Evidence, Forfeit, Level, Verb
from rgt_tui.model.profile import BillingAction

DIGEST_S = 60.0
"""Seconds for which the digest of a review may be acted on: from the end of a dry run to the confirmed call."""


def level_of(verb: Verb, action: BillingAction | None, forfeits: tuple[Forfeit, ...] = ()) -> Level:
    """Return the level of a billing action; what nobody can vouch for cannot be undone.

    Args:
        verb: Park or destroy.
        action: The platform's own; None = unknown.
        forfeits: What is given up.
    """
    if verb is Verb.DESTROY or action is None or action.reversible is False or forfeits:
        return Level.IRREVERSIBLE
    return Level.METER


def phrase(box: str, instance: str, forfeits: tuple[Forfeit, ...] = ()) -> str:
    """Return what must be typed: the box's name, longer where something is forfeited.

    Where it is given up that anything proves which machine this is, the instance's id must be typed as well.
    """
    if not forfeits:
        return box
    words = f"forfeit {len(forfeits)} of {box}"
    return f"{words} {instance}" if any(forfeit.key == IDENTITY for forfeit in forfeits) else words


def unprotect_phrase(box: str) -> str:
    """Return what must be typed, besides, to act on a box whose description says ``protected``."""
    return f"unprotect {box}"


def facts_digest(evidence: Evidence) -> str:
    """Return the SHA-256 of what the evidence says: no time, no age, nothing typed, no seal.

    The same twice as long as nothing has changed on the box, at the provider, in the copies and in the fleet file.
    """
    facts = (
        evidence.kind,
        evidence.account,
        evidence.instance,
        evidence.box,
        evidence.verb.value,
        evidence.generation,
        sorted(
            (item.key, item.ok, item.forfeited, item.fact or item.text)
            for item in evidence.items
            if item.key not in UNSTEADY
        ),
    )
    return hashlib.sha256(json.dumps(facts).encode("ascii")).hexdigest()


UNSTEADY = ("name", "seal")
"""Kinds of items that a digest leaves out: they come to be between a dry run and the call."""


def dated(digest: str, ticks: float) -> str:
    """Return a digest that says when it was made, by the steady clock: another start of the computer makes it void."""
    return f"{digest}-{int(ticks)}"


def outdated(wanted: str, digest: str, ticks: float) -> str | None:
    """Say why a digest of an earlier review does not cover what is the case now; None = it does.

    Args:
        wanted: What `dated` returned then.
        digest: `facts_digest` of now.
        ticks: The steady clock.
    """
    facts, _, made = wanted.rpartition("-")
    if not facts or not made.isdecimal():
        return "this is not an evidence digest: take the one that the dry run printed"
    if facts != digest:
        return "the evidence is another one than that of the dry run: look at it again"
    # A whole second for what `dated` cut off.
    if not -1.0 <= ticks - int(made) <= DIGEST_S + 1.0:
        return f"the dry run is older than {DIGEST_S:.0f} s: look at the evidence again"
    return None
