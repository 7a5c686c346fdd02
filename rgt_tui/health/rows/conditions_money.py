"""Conditions of money: finished work that bills, a silent provider, deadlines, an empty account."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rgt_tui.health.condition import (
    NOTHING,
    AlertRung,
    Reading,
    Verdict,
    failed_verdict,
    passed_verdict,
    waiting_verdict,
    warn_verdict,
)
from rgt_tui.health.danger_clocks import (
    ClockReading,
    balance_left,
    clock_readings,
    countdown_urgency,
    soonest_countdown,
)
from rgt_tui.health.facts import LIMITS, BoxFacts
from rgt_tui.language import translate
from rgt_tui.model import (
    FLEET_FILE,
    MACHINE,
    AccountBill,
    BillingVerb,
    Lifecycle,
    MeterKind,
    UnlistedItem,
    format_duration,
    format_money,
)
from rgt_tui.profiles import (
    ProfileError,
    describe_unlisted_item,
    is_cluster,
    list_caveats,
    path_survives,
    thing_price,
    tier_of,
)

CLOCK = tuple(
    AlertRung(level, left / 3600.0, left / 3600.0)
    for level, left in (
        ("warn", LIMITS.danger_warn_s),
        ("error", LIMITS.danger_error_s),
    )
)
# In hours of burn, not money: what an account needs depends on what it rents.
BALANCE = (
    AlertRung("warn", LIMITS.balance_warn_s / 3600.0, 30.0),
    AlertRung("error", LIMITS.balance_error_s / 3600.0, 8.0),
)


def read_done_billing(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the work is over, nothing trains, and the provider says the GPU still bills.

    The work is every queue or, without a queue, the trainings that were found.
    """
    meter = view.box.meter
    if meter.lifecycle is not Lifecycle.RUNNING or meter.kind is not MeterKind.COMPUTE_AND_STORAGE:
        # None keeps the alert: a provider that cannot be read has not stopped billing.
        if meter.lifecycle is Lifecycle.UNKNOWN:
            return None
        return NOTHING
    if not _is_over(view) or view.trains:
        return NOTHING
    # Something may train unseen, so "done" is not sure.
    if view.is_blind:
        return None
    ended = [
        cell.ended for queue in view.box.queues for cell in queue.cells if cell.ended is not None
    ]
    if not view.box.queues:
        ended = [run.ended for run in view.box.found if run.ended is not None]
        # Seconds without a training that are normal on a box without a queue, where a script starts
        # the next one.
        between_s = 120.0
        # None, not nothing: an alert that was raised stays until a training is seen.
        if ended and view.box_now - max(ended) < between_s:
            return None
    return (Reading("", 1.0, age_s=max(0.0, view.box_now - max(ended)) if ended else None),)


def _is_over(view: BoxFacts) -> bool:
    if view.box.queues:
        return view.queue_done
    return bool(view.box.found) and not any(run.alive for run in view.box.found)


def say_done_billing(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the hourly price, and what was wasted so far."""
    meter = view.box.meter
    rate = format_money(meter.per_hour, meter.currency, meter.at_least)
    waited = max(0.0, view.now - since)
    if view.box.queues:
        what = translate("queue done")
    else:
        what = translate("no training alive")
    # Seconds below which the wasted money is not mentioned.
    short_s = 60.0
    if waited < short_s:
        return translate(
            "{what}, still billed {rate}/h ({source})", what=what, rate=rate, source=meter.source
        )
    if meter.per_hour is None:
        wasted = None
    else:
        # At the present price, also for hours before it changed.
        wasted = meter.per_hour * waited / 3600.0
    spent = ""
    if wasted is not None:
        spent = translate(
            ": {money} wasted", money=format_money(wasted, meter.currency, meter.at_least)
        )
    if view.box.queues:
        length = translate("{now} ago", now=format_duration(waited))
    else:
        length = translate("for {time}", time=format_duration(waited))
    return translate(
        "{what} {length}, still billed {rate}/h{spent} ({source})",
        what=what,
        length=length,
        rate=rate,
        spent=spent,
        source=meter.source,
    )


def read_meter(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the seconds since the provider was last read, while it cannot be read."""
    meter = view.box.meter
    # An error counts, not age alone: a provider that is asked seldom is not lost.
    if meter.error is None:
        if view.meter_unread:
            return None
        return NOTHING
    # Never read and failing now: older than any limit.
    return (Reading("", math.inf if meter.at is None else view.now - meter.at),)


def say_meter(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the age of the last reading, and the reason for the failure."""
    meter = view.box.meter
    if meter.at is None:
        last = translate("never read")
    else:
        last = translate("last read {now} ago", now=format_duration(view.now - meter.at))
    return translate("price unknown, {last}: {error}", last=last, error=meter.error)


def read_open_action(view: BoxFacts) -> Sequence[Reading]:
    """Return whether a billing call was sent whose outcome is unknown."""
    if view.box.open_action:
        return (Reading("", 1.0),)
    return NOTHING


def say_open_action(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the action and its time."""
    return view.box.open_action


def _unlisted_things(bill: AccountBill, *, machines: bool) -> tuple[UnlistedItem, ...]:
    """Return the things of an account that are, or may be, charged and belong to no box.

    On a cluster, other people's jobs and volumes are not rentals, so nothing is returned.
    """
    shared = is_cluster(bill.kind)
    return tuple(
        thing
        for thing in bill.things
        if thing.bills and not shared and (thing.what == MACHINE) is machines
    )


def read_unlisted(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the account's machines that belong to no box and are, or may be, charged."""
    bill = view.box.account
    # Not listed yet is not the same as an empty list.
    if bill is None or bill.machines_at is None:
        return None
    return tuple(Reading(thing.id, 1.0, thing) for thing in _unlisted_things(bill, machines=True))


def read_leftovers(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the account's volumes, addresses and the like that no box uses."""
    bill = view.box.account
    if bill is None or bill.leftovers_at is None:
        return None
    unseen = _unlisted_things(bill, machines=False)
    # With the kind, because ids of volumes and addresses may be equal.
    return tuple(Reading(f"{thing.what}:{thing.id}", 1.0, thing) for thing in unseen)


def say_unlisted(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the thing and its price."""
    thing: UnlistedItem = reading.about
    return translate(
        "{thing}, of {kind}, belongs to no box: {thing_2}",
        thing=describe_unlisted_item(thing),
        kind=thing.kind,
        thing_2=thing_price(thing),
    )


def read_agreed(view: BoxFacts) -> Sequence[Reading] | None:
    """Compare what is billed with what was requested when renting.

    Values not reported stay unknown.
    """
    asked, meter = view.box.spec.asked, view.box.meter
    if asked is None:
        return NOTHING
    # A stopped machine costs less than was agreed, which is no difference.
    if meter.lifecycle not in (Lifecycle.RUNNING, Lifecycle.STARTING):
        if meter.lifecycle is Lifecycle.UNKNOWN:
            return None
        return NOTHING
    found = []
    if asked.spot is not None:
        if meter.spot is None:
            kind = None
        else:
            kind = float(meter.spot is not asked.spot)
        if kind != 0.0:
            found.append(Reading("spot", kind, "spot" if meter.spot else "on-demand"))
    # Amounts in two currencies are not compared: rgt knows no rates of exchange.
    if asked.max_per_hour is not None and meter.currency == asked.currency:
        # Fraction by which a price may exceed the agreed one: platforms round hourly prices.
        cents = 0.005
        if meter.per_hour is None:
            over = None
        else:
            over = meter.per_hour > asked.max_per_hour * (1.0 + cents)
        if over is not False:
            found.append(Reading("price", None if over is None else 1.0))
    return tuple(found)


def say_agreed(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with what was requested, and what is billed."""
    asked, meter = view.box.spec.asked, view.box.meter
    now = f"{format_money(meter.per_hour, meter.currency, meter.at_least)}/h"
    if reading.key == "spot" or asked is None:
        if asked is not None and asked.spot:
            wanted = "spot"
        else:
            wanted = "on-demand"
        return translate(
            "asked for {wanted}, billed as {about}: {now} ({source})",
            wanted=wanted,
            about=reading.about,
            now=now,
            source=meter.source,
        )
    return translate(
        "asked for {max_per_hour}/h at most, billed {now} ({source})",
        max_per_hour=format_money(asked.max_per_hour, asked.currency),
        now=now,
        source=meter.source,
    )


def read_clock(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the hours left on the clock that ends soonest. The balance has an alert of its own."""
    try:
        profile = view.profile
    except ProfileError:
        return None  # the platform has no profile, so no clock is known
    clocks = clock_readings(profile, view.box, view.now, charges=False)
    found = soonest_countdown(
        one for one in clocks if not one.own_alert
    )  # those have an alert of their own
    if found is None:
        if view.meter_unread:
            return None
        return NOTHING
    left = countdown_urgency(found)
    return (Reading("", left / 3600.0, found, level=None if left else found.level),)


def say_clock(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with what happens, and when."""
    found: ClockReading = reading.about
    return found.text


def read_balance(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the hours for which the account's balance lasts at the current cost."""
    meter = view.box.meter
    if view.off and meter.lifecycle is Lifecycle.GONE:
        return NOTHING
    # Without the burn, a balance has no end.
    if meter.balance is None or meter.burn_per_hour is None:
        # The provider was read and does not report it (any more): an older value proves nothing.
        if meter.at is None or meter.error is not None:
            return None
        return NOTHING
    left = balance_left(meter, view.now)
    if left is None:
        return NOTHING
    return (Reading("", left / 3600.0),)


def say_balance(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with what is left, and the cost that uses it up."""
    meter = view.box.meter
    left = format_money(meter.balance, meter.currency)
    burn = format_money(meter.burn_per_hour, meter.currency)
    return translate(
        "the account has {left} left, {format_duration} at {burn}/h ({source})",
        left=left,
        format_duration=format_duration((reading.value or 0.0) * 3600.0),
        burn=burn,
        source=meter.source,
    )


def check_profile_known(view: BoxFacts) -> Verdict:
    """The platform is known, and a person has been shown its page in its present form."""
    # A general profile is used for an unknown platform: its dangers are not those of this one.
    if view.profile.id != view.box.spec.profile:
        return warn_verdict(
            translate(
                "no profile '{profile}'; {name} is used: {top_danger}",
                profile=view.box.spec.profile,
                name=view.profile.name,
                top_danger=view.profile.top_danger,
            )
        )
    said = f"{view.profile.name}: {view.profile.top_danger}"
    if not view.page_seen:
        return waiting_verdict(
            translate(
                "{said} Its page has not been read yet: press i, or rgt profiles show {id}",
                said=said,
                id=view.profile.id,
            )
        )
    return passed_verdict(said)


def check_durable_survives(view: BoxFacts) -> Verdict:
    """The durable place outlives the box, by the profile."""
    path = view.box.spec.durable or view.profile.overrides.durable_dir
    # The path that cells really use, before a configured one.
    used = next((cell.durable_path for cell in view.cells if cell.durable_path), path)
    if used is None:
        return warn_verdict(
            translate(
                "no durable directory is set; on {name} pull before you destroy",
                name=view.profile.name,
            )
        )
    storage = view.storage_for(BillingVerb.DESTROY)
    tier = tier_of(view.profile, used, known=storage.known)
    doubts = "".join(f"; {doubt.text}" for doubt in storage.doubts_at(used))
    if tier is None:
        return warn_verdict(
            translate("{used}: that disk is not in the profile{doubts}", used=used, doubts=doubts)
        )
    stays = path_survives(used, view.profile, storage.known, BillingVerb.DESTROY)
    if stays is True:
        text = translate(
            "{used} is on {name}, which survives destroy{doubts}",
            used=used,
            name=tier.name,
            doubts=doubts,
        )
        if doubts:
            return warn_verdict(text)
        return passed_verdict(text)
    if stays is None:
        return warn_verdict(
            translate(
                "{used} is on {name}; unknown whether it survives destroy{doubts}",
                used=used,
                name=tier.name,
                doubts=doubts,
            )
        )
    other = next(
        (
            one
            for one in view.profile.tiers
            if one.survives_destroy and set(one.mounts) & set(tier.mounts)
        ),
        None,
    )
    unless = ""
    if other is not None:
        unless = translate(", unless a {name} is mounted there", name=other.name)
    return failed_verdict(
        translate(
            "{used} is on {name}, which destroy deletes{unless}{doubts}",
            used=used,
            name=tier.name,
            unless=unless,
            doubts=doubts,
        )
    )


def check_meter_read(view: BoxFacts) -> Verdict:
    """What the box costs now is read from the provider."""
    meter = view.box.meter
    if view.box.spec.provider is None and meter.at is None:
        return warn_verdict(translate("no provider is configured: the cost of the box is unknown"))
    if meter.at is None:
        return waiting_verdict(
            translate("not read yet{more}", more=f": {meter.error}" if meter.error else "")
        )
    rate = f"{format_money(meter.per_hour, meter.currency, meter.at_least)}/h"
    if meter.source == FLEET_FILE:
        return warn_verdict(
            translate(
                "no provider: {rate} is the price in the fleet file; compare it with the console",
                rate=rate,
            ),
            meter.at,
        )
    text = "; ".join(
        (
            f"{meter.source}: {meter.lifecycle.value}, {meter.kind.value}, {rate}",
            *list_caveats(meter),
        )
    )
    if meter.error is not None or view.now - meter.at > LIMITS.meter_old_s:
        return warn_verdict(
            translate(
                "{words}; last read {now} ago{more}",
                words=text,
                now=format_duration(view.now - meter.at),
                more=f", {meter.error}" if meter.error else "",
            ),
            meter.at,
        )
    if meter.kind is MeterKind.UNKNOWN or meter.lifecycle is Lifecycle.UNKNOWN:
        return warn_verdict(text, meter.at)
    return passed_verdict(text, meter.at)
