"""Judges the evidence, and prepares what a person must see before a billing action.

A `Permit` is built only here; a test checks that with grep.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping

import msgspec

from rgt_tui.gate.evidence import (
    NAME,
    PROTECTED,
    SEAL,
    Situation,
    confirmation_phrase,
    unprotect_phrase,
)
from rgt_tui.gate.identity import IDENTITY
from rgt_tui.gate.quiet import AHEAD_S, FRESH_S
from rgt_tui.health import action_warnings
from rgt_tui.language import translate
from rgt_tui.model import (
    CLICK,
    ActionReview,
    BillingAction,
    BillingVerb,
    BoxState,
    DiskReading,
    Evidence,
    EvidenceItem,
    Forfeit,
    Meter,
    MeterKind,
    Permit,
    Profile,
    Refusal,
    RiskLevel,
    StorageTier,
    quote_name,
    size,
)
from rgt_tui.profiles import (
    action_for,
    cited_by,
    describe_check_months,
    format_month,
    list_old_facts,
    tier_survives,
)
from rgt_tui.profiles import list_kept_charges as bills_by_profile

PERMIT_S = 60.0
"""Seconds for which a permit is valid: long enough to send one call, not to leave and come back."""

REQUIRED = ("identity", "quiet", "queue", "results", "provider", SEAL, NAME)
"""Kinds of items that must all be present for a permit. Others may be present and must hold as
well.
"""

MAX_AGE_S = {"identity": 15.0, "quiet": FRESH_S, "provider": 15.0, "results": 600.0}
"""Maximum age of a reading in seconds. Results are allowed more, because listing takes long; the
seal shows whether they are still current.
"""

DIGEST_S = 60.0
"""Seconds for which the digest of a review is valid: from the end of a dry run to the confirmed
call.
"""

UNSTEADY = (NAME, SEAL)
"""Kinds of items left out of a digest: they appear between a dry run and the call."""


def evaluate_evidence(evidence: Evidence, ticks: float, seal: str = "") -> Permit | Refusal:
    """Return a permit for exactly this box, verb and instance, or every reason against it.

    Args:
        evidence: The result of `rgt_tui.gate.evidence`.
        ticks: The steady clock.
        seal: Nonce of the box's seal; empty if it cannot be sealed and the person forfeits that.
    """
    # All reasons at once: a person who settles one must not meet the next only afterwards.
    reasons = tuple(text for _, text in objections(evidence, ticks))
    if reasons:
        return Refusal(reasons=reasons)
    return Permit(
        box=evidence.box,
        verb=evidence.verb,
        instance=evidence.instance,
        digest=facts_digest(evidence),
        expires=ticks + PERMIT_S,
        kind=evidence.kind,
        account=evidence.account,
        seal=seal,
        nonce=secrets.token_hex(16),
    )


def objections(evidence: Evidence, ticks: float) -> tuple[tuple[str, str], ...]:
    """Return ``(kind of the item, reason)`` for everything that prevents the action, in order."""
    found: list[tuple[str, str]] = []
    present = {item.kind for item in evidence.items}
    for kind in REQUIRED:
        # An item that was forgotten must refuse, not count as fine.
        if kind not in present:
            found.append((kind, translate("unknown: {error}", error=translate(kind))))
    if not evidence.instance:
        found.append(("provider", translate("no provider instance is named in the fleet file")))
    for item in evidence.items:
        # A forged or outdated consent to something that cannot be given up blocks as well.
        if item.is_blocking or (item.forfeited and not item.forfeitable):
            found.append((item.kind, item.text))
        elif item.ok and (stale := _find_age_problem(item, ticks)) is not None:
            # Only good news can be too old: a reading that blocks does so at any age.
            found.append((item.kind, stale))
    # Checked again here regardless of the item, so that a forged item cannot bypass the typed name.
    wanted = confirmation_phrase(evidence.box, evidence.instance, evidence.forfeits)
    if (evidence.typed != wanted or not evidence.box) and NAME not in [kind for kind, _ in found]:
        found.append((NAME, translate("the typed text is not exactly {wanted!r}", wanted=wanted)))
    return tuple(found)


def _find_age_problem(item: EvidenceItem, ticks: float) -> str | None:
    limit = MAX_AGE_S.get(item.kind)
    if limit is None:
        return None
    if item.at is None:
        return translate("{kind}: unknown when this was read", kind=translate(item.kind))
    age = ticks - item.at
    # `not <=` instead of `>`: NaN must refuse, too.
    if not -AHEAD_S <= age <= limit:
        return translate(
            "{kind}: the reading is {age:.0f} s old, at most {limit:.0f} s are allowed",
            kind=translate(item.kind),
            age=age,
            limit=limit,
        )
    return None


def level_of(
    verb: BillingVerb, action: BillingAction | None, forfeits: tuple[Forfeit, ...] = ()
) -> RiskLevel:
    """Return the level of a billing action. One with an unknown effect counts as irreversible.

    Args:
        verb: Park or destroy.
        action: The platform's own action; None = unknown.
        forfeits: The items that are given up.
    """
    # A stop that gives results up is irreversible, too: they do not come back with the machine.
    if verb is BillingVerb.DESTROY or action is None or action.reversible is False or forfeits:
        return RiskLevel.IRREVERSIBLE
    return RiskLevel.METER


def facts_digest(evidence: Evidence) -> str:
    """Return the SHA-256 of the evidence's facts, without times, ages, typed text and seal.

    It stays the same until something changes on the box, at the provider, in the copies or in the
    fleet file.
    """
    facts = (
        evidence.kind,
        evidence.account,
        evidence.instance,
        evidence.box,
        evidence.verb.value,
        evidence.generation,
        # Sorted, so that the order in which a box lists its directories does not change the digest.
        sorted(
            (item.key, item.ok, item.forfeited, item.fact or item.text)
            for item in evidence.items
            if item.key not in UNSTEADY
        ),
    )
    return hashlib.sha256(json.dumps(facts).encode("ascii")).hexdigest()


def add_time_to_digest(digest: str, ticks: float) -> str:
    """Return a digest with its time on the steady clock.

    A reboot of this computer invalidates it.
    """
    return f"{digest}-{int(ticks)}"


def find_digest_problem(wanted: str, digest: str, ticks: float) -> str | None:
    """Return why the digest of an earlier review is no longer valid; None = it is valid.

    Args:
        wanted: The result of `add_time_to_digest` at that time.
        digest: The current `facts_digest`.
        ticks: The steady clock.
    """
    facts, _, made = wanted.rpartition("-")
    if not facts or not re.fullmatch("[0-9]{1,12}", made):
        return translate("this is not an evidence digest: use the one printed by the dry run")
    if facts != digest:
        return translate("the evidence has changed since the dry run: review it again")
    # One second of tolerance, because `add_time_to_digest` truncates.
    if not -1.0 <= ticks - int(made) <= DIGEST_S + 1.0:
        return translate(
            "the dry run is older than {seconds:.0f} s: review the evidence again",
            seconds=DIGEST_S,
        )
    return None


def hash_struct(shown: msgspec.Struct) -> str:
    """Return the SHA-256 of a struct's canonical JSON (sorted keys), in hexadecimal."""
    return hashlib.sha256(msgspec.json.encode(shown, order="sorted")).hexdigest()


def build_review(
    evidence: Evidence,
    given: Situation,
    *,
    native_label: str,
    will_send: str,
    known: Mapping[str, str],
    keeps_billing: tuple[str, ...] | None = None,
) -> ActionReview:
    """Return the review of one action. Pure.

    Args:
        evidence: The result of `gather` for `given`.
        given: The known facts.
        native_label: The platform's own word for the verb.
        will_send: The exact call, from the provider's ``describe``.
        known: Mount point → tier name, the worse one if person and provider disagree (`tiers`).
        keeps_billing: What continues to bill according to the provider, with prices; None = only
            the profile knows.
    """
    verb, profile, meter = evidence.verb, given.profile, given.meter
    if profile:
        action = action_for(profile, verb)
        checked = describe_check_months(profile, action)
        outdated = list_old_facts(profile, action, given.now)
    else:
        action, checked, outdated = None, "", ()
    forfeits = evidence.forfeits
    level = level_of(verb, action, forfeits)
    lost, kept = _list_lost_and_kept(given.state, profile, action, verb, known)
    if keeps_billing is None:
        keeps_billing = bills_by_profile(profile, verb)
    status = quote_name(meter.native_status or meter.lifecycle.value)
    if meter.error is not None:
        status = translate("unknown: {error}", error=meter.error)
    locked = any(item.key == PROTECTED and not item.ok for item in evidence.items)
    return ActionReview(
        box=evidence.box,
        verb=verb,
        native_label=native_label,
        instance=evidence.instance,
        irreversible=level is RiskLevel.IRREVERSIBLE,
        per_hour=meter.per_hour,
        spent=meter.spent,
        currency=meter.currency,
        at_least=meter.at_least,
        spent_at_least=meter.spent_at_least,
        spent_estimated=meter.spent_estimated,
        # Before a destroy, the evidence itself requires these first steps.
        first=action.first if action is not None and verb is BillingVerb.PARK else None,
        note=_dated_note(profile, action),
        checked=checked,
        outdated=outdated,
        how=action.how if action is not None else (),
        dangers=action_warnings(profile, verb) if profile is not None else (),
        lost=lost,
        kept=kept,
        keeps_billing=keeps_billing + _list_price_gaps(meter, verb),
        items=evidence.items,
        # The name is left out: it is typed in the dialog that shows this review.
        refusals=tuple(text for kind, text in objections(evidence, given.ticks) if kind != NAME),
        will_send=will_send,
        status=status,
        by_hand=given.action == CLICK,
        at=given.now,
        steady_at=given.ticks,
        level=level,
        phrase=confirmation_phrase(evidence.box, evidence.instance, forfeits),
        forfeits=forfeits,
        unprotect=unprotect_phrase(evidence.box) if locked else "",
        digest=add_time_to_digest(facts_digest(evidence), given.ticks),
    )


def _dated_note(profile: Profile | None, action: BillingAction | None) -> str | None:
    """Return the profile's note about an action, and the month in which it was checked."""
    if profile is None or action is None or action.note is None:
        return None
    return f"{action.note}{format_month(cited_by(profile, action))}"


def list_review_changes(shown: ActionReview, fresh: ActionReview) -> tuple[str, ...]:
    """Return what differs from what the person saw when the dialog opened; if anything, ask again.

    Ages, sizes and steps change all the time and are ignored; only what the decision depends on is
    compared.
    """
    found = []
    if (shown.box, shown.verb, shown.instance) != (fresh.box, fresh.verb, fresh.instance):
        found.append(translate("this is not the box, action or instance of the review"))
    # Without a provider nothing else ties the click on the console to this machine.
    if shown.by_hand and _list_machine_facts(shown) != _list_machine_facts(fresh):
        found.append(
            translate("another machine answers at this address than the one that was shown")
        )
    if shown.status != fresh.status:
        found.append(
            translate(
                "the provider's status was {status} and is {status_2} now",
                status=shown.status,
                status_2=fresh.status,
            )
        )
    if shown.will_send != fresh.will_send:
        found.append(translate("the call is now {will_send}", will_send=fresh.will_send))
    if shown.irreversible != fresh.irreversible:
        found.append(translate("whether it can be undone is judged differently now"))
    if shown.keeps_billing != fresh.keeps_billing:
        found.append(
            translate(
                "what keeps billing has changed: {charges}",
                charges="; ".join(fresh.keeps_billing) or translate("nothing now"),
            )
        )
    for words, before, after in (
        (translate("lost"), shown.lost, fresh.lost),
        (translate("kept"), shown.kept, fresh.kept),
    ):
        known, there = {_mask_sizes(line) for line in before}, {_mask_sizes(line) for line in after}
        found += [
            translate("{words} now, but not in the review: {line}", words=words, line=line)
            for line in after
            if _mask_sizes(line) not in known
        ]
        found += [
            translate("no longer {words}: {line}", words=words, line=line)
            for line in before
            if _mask_sizes(line) not in there
        ]
    shown_up = {forfeit.key: forfeit.fact for forfeit in shown.forfeits}
    for forfeit in fresh.forfeits:
        if forfeit.key not in shown_up:
            found.append(
                translate("given up now, but not in the review: {words}", words=forfeit.text)
            )
        elif shown_up[forfeit.key] != forfeit.fact:
            found.append(
                translate("the item given up differs from the review: {words}", words=forfeit.text)
            )
    # Items that were fine and block now; others that block are in the review.
    held = {item.key for item in shown.items if item.ok}
    found += [item.text for item in fresh.items if item.key in held - {NAME} and item.is_blocking]
    # One change may show up in several comparisons with the same text.
    return tuple(dict.fromkeys(found))


def _list_machine_facts(review: ActionReview) -> tuple[str, ...]:
    """Return how to find a machine on its console if no provider names it."""
    return tuple(item.fact for item in review.items if item.kind == IDENTITY)


_SIZE = re.compile(r"\b\d[\d.,]* (?:B|kB|KiB|[MGT]i?B)\b")


def _mask_sizes(line: str) -> str:
    """Return a line about lost or kept data without its sizes, which change all the time."""
    return _SIZE.sub("#", line)


def _list_lost_and_kept(
    state: BoxState,
    profile: Profile | None,
    action: BillingAction | None,
    verb: BillingVerb,
    known: Mapping[str, str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the lines about lost and kept data. Unknown counts as lost."""
    disks = {disk.mount: disk for disk in (state.sample.disks if state.sample else ())}
    if profile is None:
        return (translate("everything on the box: its platform is unknown"),), ()
    # True of every platform and verb, so it needs no profile.
    lost, kept = [translate("every running process and what is in memory")], []
    for tier in profile.tiers:
        if _is_tier_ruled_out(tier, known):
            continue
        answer = tier_survives(tier, verb, action)
        line = f"{tier.name} {_describe_tier_mounts(tier, disks, known)}"
        if answer is True:
            # If the provider reports the mounts, promise nothing about a tier that it does not
            # list.
            if not any(known.values()) or tier.name in known.values():
                kept.append(line)
        elif answer is False:
            lost.append(line)
        else:
            lost.append(translate("{line}: not in the profile, so count it as lost", line=line))
    return tuple(lost), tuple(kept)


def _is_tier_ruled_out(tier: StorageTier, known: Mapping[str, str]) -> bool:
    """Return whether the provider rules this tier out: each of its mounts has another tier."""
    return bool(tier.mounts) and all(
        mount in known and known[mount] != tier.name for mount in tier.mounts
    )


def _describe_tier_mounts(
    tier: StorageTier, disks: Mapping[str, DiskReading], known: Mapping[str, str]
) -> str:
    mounts = [mount for mount, name in known.items() if name == tier.name] or list(tier.mounts)
    parts = []
    for mount in mounts:
        disk = disks.get(mount)
        used = ""
        if disk and disk.bytes_used is not None:
            used = translate(", {size} used", size=size(disk.bytes_used))
        parts.append(f"({quote_name(mount)}{used})")
    return " ".join(parts) or translate("(if there is one)")


def _list_price_gaps(meter: Meter, verb: BillingVerb) -> tuple[str, ...]:
    """Return a line if the meter itself lacks information."""
    if meter.kind is MeterKind.UNKNOWN:
        return (
            translate("the provider does not report current charges: check its console afterwards"),
        )
    # Before the storage line: it names the parts whose price is missing.
    if meter.unpriced:
        return (translate("price unknown: {names}", names=", ".join(meter.unpriced)),)
    if (
        verb is BillingVerb.PARK
        and meter.storage_per_hour is None
        and meter.kind is not MeterKind.NONE
    ):
        return (translate("storage, price unknown"),)
    return ()
