"""What a billing verb leaves on the bill by the platform's own profile, and how a person carries it out by hand."""

from __future__ import annotations

from rgt_tui.model.evidence import Verb
from rgt_tui.model.money import Amount
from rgt_tui.model.profile import BillingAction, ClockStart, DangerClock, Profile
from rgt_tui.profiles.prices import money, price_words, projected
from rgt_tui.profiles.readings import age
from rgt_tui.profiles.survival import action_for


def keeps_billing(profile: Profile | None, verb: Verb) -> tuple[str, ...]:
    """Return what goes on costing money after the verb, a line each, with the platform's prices and their month.

    What the profile leaves open is there as well: unknown is never free.
    """
    if profile is None:
        return ("unknown: the platform has no profile",)
    lines = []
    for tier in profile.tiers:
        price = price_words(tier, running=False)
        if verb is Verb.PARK and tier.bills_while_stopped is True:
            lines.append(f"{tier.name}: {price}")
        elif verb is Verb.PARK and tier.bills_while_stopped is None:
            lines.append(f"{tier.name}, perhaps: the profile does not say; {price}")
        elif (
            verb is Verb.DESTROY
            and tier.survives_destroy is not False
            and tier.bills_while_stopped is not False
        ):
            lines.append(f"{tier.name}, if there is one: it outlives the box; {price}")
    return tuple(lines)


def stop_clock(profile: Profile) -> DangerClock | None:
    """Return the first clock with an end that a stop of a box would start, or None."""
    timed = [clock for clock in profile.clocks if clock.counts_from is ClockStart.STOP and clock.after_s]
    return min(timed, key=lambda clock: clock.after_s or 0.0, default=None)


def until_clock(profile: Profile, per_hour: Amount) -> str:
    """Return what a price adds up to until the clock that a stop starts has run down; empty where there is none."""
    clock = stop_clock(profile)
    if clock is None or not clock.after_s:
        return ""
    sum_ = projected(per_hour, clock.after_s)
    about = "about " if clock.approx else ""
    length = f"{about}{age(clock.after_s)}"
    return f"{money(sum_.value, sum_.currency, sum_.at_least)} until {clock.what} ({length})"


def in_both(action: BillingAction) -> str:
    """Return the platform's own word for a verb, with ours beside it where it is not English: ``关机 (stop)``."""
    word = action.native_label
    return word if word.isascii() else f"{word} ({action.verb.replace('-', ' ')})"


def by_hand(action: BillingAction | None) -> tuple[tuple[str, str], ...]:
    """Return how a person stops the meter without rgt, as (label, text): what comes first, the ways, what is told."""
    if action is None:
        return ()
    ways = action.how or (in_both(action),)
    lines = [("first", action.first), *(("by hand", way) for way in ways)]
    lines += [("note", action.note), ("done when", action.confirm_with)]
    return tuple((label, text) for label, text in lines if text)


def lacking(profile: Profile, verb: Verb) -> str:
    """Return that a platform has no such verb, and what there is instead; empty where it has one."""
    if action_for(profile, verb) is not None:
        return ""
    other = action_for(profile, Verb.DESTROY if verb is Verb.PARK else Verb.PARK)
    text = f"{profile.name} has no action that would {verb.value} a box"
    if not profile.billed:
        return f"{text}: nothing bills there" + (f"; {in_both(other)} ends it" if other is not None else "")
    if verb is Verb.DESTROY:
        return f"{text}: to spend nothing at all takes {profile.stops_all}" if profile.stops_all else text
    if other is None or other.stops_gpu_meter is not True:
        return text
    traps = ", ".join(in_both(action) for action in profile.billing if action.trap)
    does = "do" if ", " in traps else "does"
    return f"{text}: only {in_both(other)} ends the bill" + (f" ({traps} {does} not)" if traps else "")
