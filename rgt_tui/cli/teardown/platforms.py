"""``rgt profiles``: the platforms that rgt knows, what each keeps and charges, and what happens there by itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from rgt_tui.cli.commands import OK, USAGE
from rgt_tui.cli.printing import complain
from rgt_tui.health import BY_ID
from rgt_tui.model.profile import Claim, ClockMode, ClockStart, DangerClock, Profile
from rgt_tui.profiles import ProfileError, all_profiles, load_profile
from rgt_tui.profiles.prices import price_words
from rgt_tui.profiles.readings import age

CLOCKS = "clocks"


def run_profiles(arguments: argparse.Namespace) -> int:
    """Print platforms, one platform, or danger clocks; return the exit code."""
    words: list[str] = arguments.words
    clocks = words[:1] == [CLOCKS]
    names = words[1:] if clocks else words
    try:
        profiles = [load_profile(name) for name in names] or list(all_profiles().values())
    except ProfileError as error:
        complain(error)
        return USAGE
    if clocks:
        rows: Iterable[Any] = (clock_row(p, clock) for p in profiles for clock in p.clocks)
        text = _clock_lines(profiles)
    elif names:
        rows, text = (
            (msgspec.to_builtins(p) for p in profiles),
            (ln for p in profiles for ln in _profile_lines(p)),
        )
    else:
        rows, text = (overview_row(p) for p in profiles), (_overview(p) for p in profiles)
    for line in (msgspec.json.encode(row).decode() for row in rows) if arguments.json else text:
        sys.stdout.write(f"{line}\n")
    return OK


def overview_row(profile: Profile) -> dict[str, Any]:
    """Return what ``rgt profiles --json`` prints of a platform."""
    return {
        "id": profile.id,
        "name": profile.name,
        "kind": profile.kind,
        "confidence": profile.confidence,
        "top_danger": profile.top_danger,
        "clocks": len(profile.clocks),
        "home_url": profile.home_url,
    }


def clock_row(profile: Profile, clock: DangerClock) -> dict[str, Any]:
    """Return what ``rgt profiles clocks --json`` prints of a clock."""
    return {
        "platform": profile.id,
        "what": clock.what,
        "mode": clock.mode.value,
        "counts_from": None if clock.counts_from is None else clock.counts_from.value,
        "runs": clock.runs,
        "watched_by": clock.watched_by,
        "after_s": clock.after_s,
        "approx": clock.approx,
        "applies_when": clock.applies_when,
        "consequence": clock.consequence,
        "dispute": clock.dispute,
        "claims": [msgspec.to_builtins(claim) for claim in clock.claims],
    }


def _overview(profile: Profile) -> str:
    return f"{profile.id:<14} {profile.name:<18} {profile.top_danger}"


def _clock_lines(profiles: Iterable[Profile]) -> Iterator[str]:
    for profile in profiles:
        yield f"{profile.name} ({profile.id})"
        yield from (f"  {line}" for clock in profile.clocks for line in clock_lines(clock))
        yield ""


def clock_lines(clock: DangerClock) -> Iterator[str]:
    """Yield a clock in words: its mode, what happens, when, and who says so."""
    yield f"{clock.mode.value:<9}  {clock.what}: {_manner(clock)}"
    yield f"           when {clock.applies_when}: {clock.consequence}"
    if clock.dispute is not None:
        yield f"           the sources disagree, the worse counts: {clock.dispute}"
    for claim in clock.claims:
        yield f"           source: {_source(claim)}"


_BEGINNINGS: dict[ClockStart, tuple[str, str]] = {
    ClockStart.STOP: ("the stop", "at the stop"),
    ClockStart.START: ("the start", "at the start"),
    ClockStart.WALLTIME: ("the end of the walltime", "when the walltime is over"),
    ClockStart.END_DATE: ("the end date", "at the end date"),
    ClockStart.BALANCE: (
        "the moment at which the balance is used up",
        "when the balance is used up, at the present burn",
    ),
    ClockStart.QUOTA: ("the moment at which the quota is used up", "when the quota is used up"),
}
"""What a countdown counts from, with a time after it and without one."""


def _manner(clock: DangerClock) -> str:
    about = "about " if clock.approx else ""
    after = "" if not clock.after_s else f"{about}{age(clock.after_s)}"
    if clock.counts_from is not None:
        begins, at_once = _BEGINNINGS[clock.counts_from]
        return f"{after} from {begins}" if after else at_once
    if clock.mode is ClockMode.CHARGE:
        return {"always": "in every state"}.get(clock.runs or "", f"while {clock.runs}")
    if clock.mode is ClockMode.TRIPWIRE:
        row = BY_ID.get(clock.watched_by or "")
        title = f" ({row.title})" if row is not None else ""
        return f"{'within ' + after + ', ' if after else ''}watched by the alert {clock.watched_by}{title}"
    return "nothing can watch for it: said when the platform is first met, and before a billing action"


def _source(claim: Claim) -> str:
    where = ", ".join(part for part in (claim.url, claim.cited_as) if part)
    return f"{where} ({claim.verified if claim.verified else 'not dated'})"


_STATES = {True: "yes", False: "no", None: "unknown"}


def _profile_lines(profile: Profile) -> Iterator[str]:
    """Yield a platform in full."""
    yield f"{profile.name} ({profile.id}), {profile.confidence}"
    if profile.confidence_note:
        yield f"  {profile.confidence_note}"
    yield f"  danger: {profile.top_danger}"
    yield "storage"
    for tier in profile.tiers:
        where = " ".join(tier.mounts)
        kept = f"survives stop {_STATES[tier.survives_stop]}, destroy {_STATES[tier.survives_destroy]}"
        yield f"  {tier.name:<16} {where:<24} {kept}, bills while stopped {_STATES[tier.bills_while_stopped]}"
        charge = f"{price_words(tier, running=True)} running; {price_words(tier, running=False)} stopped"
        yield from (f"  {'':<16} {text}" for text in (charge, tier.note) if text)
    yield "billing"
    for action in profile.billing:
        yield f"  {action.native_label} ({action.kind}): {action.note or ''}"
        yield from (f"    {how}" for how in action.how)
    yield "clocks"
    for clock in profile.clocks:
        yield from (f"  {line}" for line in clock_lines(clock))
    yield "sources"
    for source in profile.sources:
        yield f"  {source.fact}"
        where = ", ".join(part for part in (source.url, source.cited_as) if part)
        yield f"    {where} ({source.verified or 'not dated'})"
