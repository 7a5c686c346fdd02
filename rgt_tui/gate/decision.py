"""Judges evidence, and says what a person must see before a billing action.

Only here is a `Permit` built; a test greps that it stays so.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

import msgspec

from rgt_tui.health import dangers
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Evidence, EvidenceItem, Forfeit, Permit, Refusal, Review, Verb
from rgt_tui.model.money import Meter, MeterKind
from rgt_tui.model.profile import BillingAction, Profile, Tier
from rgt_tui.model.protocol import Disk
from rgt_tui.profiles.keeps_billing import keeps_billing as bills_by_profile
from rgt_tui.profiles.readings import quoted, size
from rgt_tui.profiles.survival import action_for, survives

PERMIT_S = 60.0
"""Seconds a permit lives: time to send one call, not to walk away and come back."""

NAME = "name"
IDENTITY = "identity"
REQUIRED = ("quiet", "queue", "durable", "provider", NAME)
"""Without one of these there is no permit. Further items may be there; each of them must hold as well."""

MAX_AGE_S = {"quiet": 10.0, "provider": 15.0}
"""Seconds after which a reading no longer says what is the case now."""
AHEAD_S = 1.0
"""Seconds by which a reading may seem to come from the future; more means that a clock was set back."""


def evaluate(evidence: Evidence, now: float, steady_now: float) -> Permit | Refusal:
    """Return a permit for exactly this box, verb and instance, or every reason against it.

    Args:
        evidence: What `rgt_tui.gate.evidence` found.
        now: The client clock, epoch seconds.
        steady_now: `rgt_tui.model.evidence.steady`.
    """
    reasons = tuple(text for _, text in objections(evidence, now))
    if reasons:
        return Refusal(reasons=reasons)
    return Permit(
        box=evidence.box,
        verb=evidence.verb,
        instance=evidence.instance,
        digest=digest(evidence),
        expires=steady_now + PERMIT_S,
        kind=evidence.kind,
        account=evidence.account,
        nonce=secrets.token_hex(16),
    )


def phrase(box: str, instance: str, forfeits: tuple[Forfeit, ...] = ()) -> str:
    """Return what must be typed: the box's name, longer where something is given up.

    Where it is given up that anything proves which machine this is, the instance's id must be typed as well.
    """
    if not forfeits:
        return box
    words = f"forfeit {len(forfeits)} of {box}"
    return f"{words} {instance}" if any(forfeit.key == IDENTITY for forfeit in forfeits) else words


def unprotect_phrase(box: str) -> str:
    """Return what must be typed, besides, to act on a box whose description says ``protected``."""
    return f"unprotect {box}"


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


def review(
    evidence: Evidence,
    state: BoxState,
    meter: Meter,
    profile: Profile | None,
    *,
    native_label: str,
    will_send: str,
    now: float,
    keeps_billing: tuple[str, ...] | None = None,
    known_tiers: Mapping[str, str] | None = None,
) -> Review:
    """Return the review of one action. Pure.

    Args:
        evidence: What `gather` made from the same state and meter.
        state: The newest state of the box.
        meter: The provider's state, re-read for this review.
        profile: The platform; None = unknown.
        native_label: The platform's own word for the verb.
        will_send: The exact call, from the provider's ``describe``.
        now: Client clock, epoch seconds.
        keeps_billing: What goes on billing by the provider, with prices; None = only the profile can say.
        known_tiers: Mount point → tier name, as far as the provider knows it.
    """
    verb = evidence.verb
    action = action_for(profile, verb) if profile else None
    lost, kept = _fates(state, profile, action, verb, known_tiers or {})
    if keeps_billing is None:
        keeps_billing = bills_by_profile(profile, verb)
    status = quoted(meter.native_status or meter.lifecycle.value)
    if meter.error is not None:
        status = f"unknown: {meter.error}"
    return Review(
        box=evidence.box,
        verb=verb,
        native_label=native_label,
        instance=evidence.instance,
        irreversible=verb is Verb.DESTROY or action is None or action.reversible is False,
        per_hour=meter.per_hour,
        spent=meter.spent,
        currency=meter.currency,
        at_least=meter.at_least,
        spent_at_least=meter.spent_at_least,
        note=action.note if action is not None else None,
        how=action.how if action is not None else (),
        dangers=dangers(profile, verb) if profile is not None else (),
        lost=lost,
        kept=kept,
        keeps_billing=keeps_billing + _money(meter, verb),
        items=evidence.items,
        refusals=tuple(text for key, text in objections(evidence, now) if key != NAME),
        will_send=will_send,
        status=status,
        at=now,
        steady_at=now,
        phrase=evidence.box,
    )


def changes(shown: Review, fresh: Review) -> tuple[str, ...]:
    """Say what is no longer as a person saw it when the dialog opened; anything here means: look again.

    Ages, sizes and steps move all the time and are left out; what is compared is what a decision rests on.
    """
    found = []
    if (shown.box, shown.verb, shown.instance) != (fresh.box, fresh.verb, fresh.instance):
        found.append("this is another box, action or instance than the one shown")
    if shown.status != fresh.status:
        found.append(f"the provider said {shown.status}, and says {fresh.status} now")
    if shown.will_send != fresh.will_send:
        found.append(f"the call is now {fresh.will_send}")
    if shown.irreversible != fresh.irreversible:
        found.append("whether it can be undone is judged differently now")
    if shown.keeps_billing != fresh.keeps_billing:
        found.append("what goes on billing has changed: " + ("; ".join(fresh.keeps_billing) or "nothing now"))
    held = {item.key for item in shown.items if item.ok}
    found += [item.text for item in fresh.items if item.key in held - {NAME} and not item.ok]
    return tuple(found)


def _fates(
    state: BoxState,
    profile: Profile | None,
    action: BillingAction | None,
    verb: Verb,
    known: Mapping[str, str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines of what is lost and of what is kept. What nobody can vouch for counts as lost."""
    disks = {disk.mount: disk for disk in (state.sample.disks if state.sample else ())}
    if profile is None:
        return ("everything on the box: its platform is unknown",), ()
    lost, kept = ["every running process and what is in memory"], []
    for tier in profile.tiers:
        if _absent(tier, known):
            continue
        answer = survives(tier, verb, action)
        line = f"{tier.name} {_where(tier, disks, known)}"
        if answer is True:
            # Where the provider says what is mounted, nothing is promised about a tier that is not.
            if not known or tier.name in known.values():
                kept.append(line)
        elif answer is False:
            lost.append(line)
        else:
            lost.append(f"{line}: the profile does not say, so count it as lost")
    return tuple(lost), tuple(kept)


def _absent(tier: Tier, known: Mapping[str, str]) -> bool:
    """Tell whether the provider's word rules this tier out: another one stands at each of its mounts."""
    return bool(tier.mounts) and all(mount in known and known[mount] != tier.name for mount in tier.mounts)


def _where(tier: Tier, disks: Mapping[str, Disk], known: Mapping[str, str]) -> str:
    mounts = [mount for mount, name in known.items() if name == tier.name] or list(tier.mounts)
    parts = []
    for mount in mounts:
        disk = disks.get(mount)
        used = f", {size(disk.bytes_used)} used" if disk and disk.bytes_used is not None else ""
        parts.append(f"({quoted(mount)}{used})")
    return " ".join(parts) or "(if there is one)"


def _money(meter: Meter, verb: Verb) -> tuple[str, ...]:
    """Return a line where the meter itself does not know enough to promise anything."""
    if meter.kind is MeterKind.UNKNOWN:
        return ("the provider does not say what is billed now: check its console afterwards",)
    if meter.unpriced:
        return (f"at a price that nobody said: {', '.join(meter.unpriced)}",)
    if verb is Verb.PARK and meter.storage_per_hour is None and meter.kind is not MeterKind.NONE:
        return ("storage, at a price that the provider did not say",)
    return ()
