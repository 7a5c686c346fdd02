"""Conditions of connection, machine and autostop: unreachable, stopped, gone, clock skew."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from rgt_tui.health.autostop_words import (
    describe_armed_off,
    describe_clock,
    describe_reported_park,
    list_readings,
    may_have_parked,
)
from rgt_tui.health.condition import (
    NOTHING,
    SO,
    Reading,
    Verdict,
    failed_verdict,
    passed_verdict,
    person_verdict,
    waiting_verdict,
    warn_verdict,
)
from rgt_tui.health.danger_clocks import ClockReading, preemption_reading
from rgt_tui.health.facts import LIMITS, BoxFacts
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    AutostopMode,
    AutostopReading,
    Lifecycle,
    LinkState,
    format_duration,
    how_many,
    join_names,
    quote_name,
)

DISARMED = "autostop-disarmed"
"""Kind of the event with which a box reports that it is no longer armed."""
SILENT_S = 30.0
"""Seconds within which a recorder that was just armed has a sample ready."""


def read_unreachable(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the box does not answer; None while a connection is being tried."""
    link = view.box.link
    if link is LinkState.LIVE or view.off:
        return NOTHING
    if link is LinkState.UNREACHABLE:
        return (Reading("", 1.0, age_s=max(0.0, view.now - view.box.since)),)
    # A try that is under way decides nothing: the alert neither begins nor ends.
    if link in (LinkState.CONNECTING, LinkState.ASKING):
        return None
    return NOTHING


def say_unreachable(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the reason and the provider's status.

    A refused connection proves nothing about the machine.
    """
    box = view.box
    says = ""
    if box.meter.at is not None:
        says = translate(
            "; {source} says {state}",
            source=box.meter.source,
            state=translate(box.meter.lifecycle.value),
        )
    return translate(
        "unreachable for {now}: {reason}{says}",
        now=format_duration(view.now - since),
        reason=box.reason,
        says=says,
    )


def read_silent(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether a connection is open without samples.

    Once it is lost, that is reported instead.
    """
    box = view.box
    if view.off or box.link in (LinkState.PAUSED, LinkState.REFUSED_KEY, LinkState.REFUSED_LOGIN):
        return NOTHING
    if box.link is not LinkState.LIVE:
        # Not at once, so that a short break hands the alert over without a gap.
        lost = box.link is LinkState.UNREACHABLE and view.now - box.since >= LIMITS.lost_s
        if lost:
            return NOTHING
        return None
    # The age of the sample does not count: after this computer has slept, every sample is old for a
    # moment.
    if view.stale:
        return SO
    return NOTHING


def say_silent(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the age of the newest sample."""
    if view.sample_age is None:
        return translate("connected, but no sample yet: the agent or its recorder hangs")
    return translate(
        "connected, but no sample for {sample_age}: the agent, its recorder or the machine hangs",
        sample_age=format_duration(view.sample_age),
    )


FAKE = ipaddress.ip_network("198.18.0.0/15")
"""Reserved for network benchmarks (RFC 2544, RFC 6890): proxies return such addresses instead of
real ones.
"""


def read_proxied(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the connection leads to an address that only a proxy hands out."""
    if view.box.peer is None:
        if view.box.link is LinkState.CONNECTING:
            return None
        return NOTHING
    try:
        address = ipaddress.ip_address(view.box.peer[0])
    except ValueError:
        return NOTHING
    if address.version == 4 and address in FAKE:
        return (Reading("", 1.0, view.box.peer[0]),)
    return NOTHING


def say_proxied(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the address."""
    return translate(
        "ssh goes through a proxy: {host} resolves to {about}, an address that no machine has",
        host=view.box.spec.host,
        about=reading.about,
    )


def read_asking(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether a question waits for a person.

    Until it is answered, the box is not watched.
    """
    if view.box.link is not LinkState.ASKING:
        return NOTHING
    return (Reading("", 1.0, age_s=max(0.0, view.now - view.box.since)),)


def say_asking(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the question."""
    return translate("not watched until you answer: {reason}", reason=view.box.reason)


def read_host_key(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the box shows another key than the known one."""
    if view.box.link is LinkState.REFUSED_KEY:
        return SO
    return NOTHING


def say_host_key(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the reason of the refusal."""
    return translate("host key refused: {reason}", reason=view.box.reason)


def read_login(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the box answers and refuses the login."""
    if view.box.link is LinkState.REFUSED_LOGIN:
        return SO
    return NOTHING


def say_login(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the reason of the refusal."""
    return translate("login refused: {reason}", reason=view.box.reason)


def read_stopped(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether a box that ran was stopped without a request through rgt, per its provider."""
    # Right after the start nothing is known: an alert of an earlier rgt must not end for that.
    if view.meter_unread:
        return None
    past = view.memory.past
    stopped = view.off and view.box.meter.lifecycle is Lifecycle.STOPPED
    known = view.box.self_stop
    if known is not None and known.told_at is None and may_have_parked(known):
        return NOTHING  # it was armed to stop, which has an alert of its own
    # Seen running before: a box that was off when rgt met it was not stopped just now.
    if stopped and past.ran and not past.asked:
        return SO
    return NOTHING


def say_stopped(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with its source."""
    return view.box.meter.state_text(translate(", not requested from here"))


def read_preemption(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the platform has announced that it takes the machine away."""
    found = preemption_reading(view.box, view.now)
    if found is None:
        return NOTHING
    return (Reading("", 1.0, found),)


def say_preemption(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the seconds that are left, and which runs were asked to save."""
    found: ClockReading = reading.about
    return found.text


def read_gone(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether the provider no longer knows the box, which was not destroyed through rgt."""
    if view.meter_unread:
        return None
    past = view.memory.past
    gone = view.off and view.box.meter.lifecycle is Lifecycle.GONE
    # A park is no excuse: a parked machine that vanishes took its disk along.
    if gone and past.existed and past.asked != "destroy":
        return SO
    return NOTHING


def say_gone(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with its source."""
    return view.box.meter.state_text(translate(", not destroyed from here"))


def read_contested(view: BoxFacts) -> Sequence[Reading]:
    """Return whether the provider calls the box stopped or gone although it answers."""
    if view.contested:
        return SO
    return NOTHING


def say_contested(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with both sources."""
    return describe_contested(view)


def describe_contested(view: BoxFacts) -> str:
    """Return the provider's status and the evidence of SSH, each with its age."""
    meter = view.box.meter
    if meter.at is None:
        read = ""
    else:
        read = translate(", read {now} ago", now=format_duration(view.now - meter.at))
    return meter.state_text(
        translate(
            "{read}; but it answers over SSH, last sample {sample_age} ago",
            read=read,
            sample_age=format_duration(view.sample_age),
        )
    )


def read_skew(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the difference between the box's clock and ours."""
    skew = view.box.clock_skew
    if skew is None:
        return None
    return (Reading("", abs(skew), skew),)


def say_skew(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with which clock is ahead."""
    skew: float = reading.about
    amount = format_duration(abs(skew))
    if skew > 0:
        return translate("the box's clock is {skew} ahead of this machine's", skew=amount)
    return translate("the box's clock is {skew} behind this machine's", skew=amount)


def read_own_clock(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the difference between this computer's clock and the provider's."""
    meter = view.box.meter
    # The skew is measured by the answer's date, so an old or failed answer proves nothing.
    if meter.at is None or meter.error is not None:
        return None
    return (Reading("", abs(meter.clock_skew or 0.0), meter.clock_skew or 0.0),)


def say_own_clock(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with which clock is ahead, and what the provider's clock is used for."""
    skew: float = reading.about
    way = translate("ahead of" if skew > 0 else "behind")
    return translate(
        "this computer's clock is {skew} {way} the provider's ({source}): what was "
        "spent is counted by the provider's",
        skew=format_duration(abs(skew)),
        way=way,
        source=view.box.meter.source,
    )


def read_stream(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the number of bad frames and missing frame numbers since rgt was started."""
    counters = view.box.counters
    return (Reading("", float(counters.bad_frames + counters.gaps), counters),)


def say_stream(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with both counts."""
    if reading.about is not None:
        counters = reading.about
    else:
        counters = view.box.counters
    return translate(
        "the agent's stream is damaged: {bad_frames}, {gaps:,} missing",
        bad_frames=how_many(counters.bad_frames, "bad frame"),
        gaps=counters.gaps,
    )


def check_channel(view: BoxFacts) -> Verdict:
    """The channel is live, and so the host key is the known one: another would have been refused."""
    box = view.box
    if box.link is LinkState.LIVE:
        return passed_verdict(
            translate("connected, host key verified"),
            box.sample_at if box.sample_at is not None else box.since,
        )
    if box.link is LinkState.REFUSED_KEY:
        return failed_verdict(translate("host key refused: {reason}", reason=box.reason), box.since)
    if box.link is LinkState.UNREACHABLE:
        return failed_verdict(translate("unreachable: {reason}", reason=box.reason), box.since)
    # Waiting, not failed: on such a platform a refused login is the first step, not an error.
    if box.link is LinkState.REFUSED_LOGIN and view.profile.launch.key_step:
        step = translate(
            "put your public key there: {key_step}", key_step=view.profile.launch.key_step
        )
        return waiting_verdict(f"{box.reason}; {step}", box.since)
    return waiting_verdict(box.reason, box.since)


def check_agent(view: BoxFacts) -> Verdict:
    """The agent on the box answers, and says what it cannot do there."""
    hello = view.box.hello
    if hello is None:
        return waiting_verdict(translate("the agent has not spoken yet"))
    python = ""
    if hello.python:
        python = f"Python {hello.python}, "
    text = translate(
        "{python}agent {agent}, protocol {proto}",
        python=python,
        agent=hello.agent[:8],
        proto=hello.proto,
    )
    if hello.limited:
        limited = translate("limited: {why}", why=", ".join(hello.limited))
        return warn_verdict(f"{text}; {limited}", view.box.sample_at)
    return passed_verdict(text, view.box.sample_at)


def check_clock_skew(view: BoxFacts) -> Verdict:
    """The clocks agree: ages, logs and tokens with an expiry depend on it."""
    skew = view.box.clock_skew
    if skew is None:
        return waiting_verdict(translate("not measured yet"))
    way = translate("ahead" if skew >= 0 else "behind")
    text = translate("the box is {skew:.1f} s {way}", skew=abs(skew), way=way)
    if abs(skew) >= LIMITS.skew_warn_s:
        return failed_verdict(text, view.box.sample_at)
    if abs(skew) > LIMITS.skew_noted_s:
        return warn_verdict(text, view.box.sample_at)
    return passed_verdict(text, view.box.sample_at)


def check_gapless(view: BoxFacts) -> Verdict:
    """The stream is whole: no sample was lost, none came twice."""
    counters, at = view.box.counters, view.box.sample_at
    # No gap without any sample would be an empty proof.
    if counters.samples == 0:
        return waiting_verdict(translate("no sample yet"))
    text = translate(
        "{samples}, {gaps} lost, {duplicates} received twice, ",
        samples=how_many(counters.samples, "sample"),
        gaps=counters.gaps,
        duplicates=counters.duplicates,
    )
    text += how_many(counters.connects, "connection")
    if counters.gaps or counters.duplicates or counters.bad_frames:
        return warn_verdict(f"{text}, {how_many(counters.bad_frames, 'bad frame')}", at)
    return passed_verdict(text, at)


def check_credentials(view: BoxFacts) -> Verdict:
    """No key is where others can read it. Only the usual places are checked."""
    hello = view.box.hello
    if hello is None or hello.exposed is None:
        return person_verdict(translate("no key in an argument, a log, or on the durable share"))
    lying = [
        f"{quote_name(token.path)} ({quote_name(token.why)}): {quote_name(token.open, 200)}"
        for token in hello.exposed
        if token.open
    ]
    # Three of them: the list is one line.
    if lying:
        shown = lying[:3]
        if len(lying) > len(shown):
            shown.append(translate("{count} more", count=len(lying) - len(shown)))
        return failed_verdict("; ".join(shown))
    return person_verdict(
        translate("no key exposed in the usual places; check arguments, scripts and logs yourself")
    )


# Conditions of autostop: about to stop, failed, idleness unknown, unwatched, disarmed, off as
# planned.


def _in_state(view: BoxFacts, state: str) -> Sequence[Reading]:
    return tuple(
        Reading(one.mode, 1.0, one) for one in list_readings(view.box) if one.state == state
    )


def read_warned(view: BoxFacts) -> Sequence[Reading]:
    """Return whether the box has warned that it stops soon."""
    return _in_state(view, "warned")


def say_clock(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the time, and the command that postpones it."""
    found: AutostopReading = reading.about
    # Hours by which the advice postpones a stop.
    kept_h = 2
    return translate(
        "{found}: rgt keep {name} {kept_h}h",
        found=describe_clock(found),
        name=view.box.spec.name,
        kept_h=kept_h,
    )


def read_failed_stop(view: BoxFacts) -> Sequence[Reading]:
    """Return whether it tried to stop itself and failed."""
    return _in_state(view, "failed")


def say_failed_stop(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with its last message about the failure."""
    words = next(
        (event.text for event in reversed(view.box.events) if event.kind == "autostop-failed"), ""
    )
    return translate(
        "it could not park itself, and is still billed{more}", more=f": {words}" if words else ""
    )


def read_unknown_idle(view: BoxFacts) -> Sequence[Reading]:
    """Return how long it is unknown whether the box is idle, relative to the limit.

    Until that is known, it will not stop itself.
    """
    if view.box.sample is not None and list_readings(view.box):
        found = view.box.sample.autostop
    else:
        found = None
    if found is None or found.unknown_s is None or found.limit_s is None:
        return NOTHING
    return (Reading("", found.unknown_s / max(found.limit_s, 1.0), found),)


def say_unknown_idle(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the duration, and what cannot be read."""
    found: AutostopReading = reading.about
    why = ""
    if found.why:
        why = f": {show_recorded(found.why[0])}"
    return translate(
        "for {unknown_s} it has been unknown whether it is idle, so it will not stop itself{why}",
        unknown_s=format_duration(found.unknown_s),
        why=why,
    )


def read_unwatched(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether it was armed for this boot, and its samples do not mention autostop.

    Then no recorder watches it.
    """
    known, hello = view.box.self_stop, view.box.hello
    if known is None or hello is None or known.told_at is not None:
        return NOTHING
    here = any(one.boot == hello.boot for one in known.armed)
    if not here or list_readings(view.box) or _disarmed_here(view):
        return NOTHING
    return SO


def say_unwatched(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the consequence."""
    return translate(
        "armed from here, but no recorder on the box confirms it: it will not stop itself"
    )


def _disarmed_here(view: BoxFacts) -> bool:
    known, hello = view.box.self_stop, view.box.hello
    if known is None or hello is None:
        return False
    since = max((one.at for one in known.armed), default=0.0) + (view.box.clock_skew or 0.0)
    return any(
        event.kind == DISARMED and event.boot == hello.boot and event.at >= since
        for event in view.box.events
    )


def read_disarmed(view: BoxFacts) -> Sequence[Reading]:
    """Return whether it is no longer armed: restarted since, or disarmed elsewhere."""
    known, hello = view.box.self_stop, view.box.hello
    if known is None or not known.armed or hello is None or list_readings(view.box):
        return NOTHING
    again = all(one.boot != hello.boot for one in known.armed)
    if again or _disarmed_here(view):
        return SO
    return NOTHING


def say_disarmed(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the reason, and what it did before."""
    known = view.box.self_stop
    if known is not None and known.told_at is not None:
        return translate(
            "no longer armed, since it was started again; {known}",
            known=describe_reported_park(known),
        )
    words = next((event.text for event in reversed(view.box.events) if event.kind == DISARMED), "")
    return translate(
        "no longer armed{more}",
        more=f": {words}" if words else translate(", since it was started again"),
    )


def read_lease_unsaving(view: BoxFacts) -> Sequence[Reading]:
    """Return the runs in the lease's way: not known to save on SIGTERM, and not accepted."""
    for found in list_readings(view.box):
        if found.mode == AutostopMode.LEASE and found.unsaving:
            return (Reading("", float(len(found.unsaving)), found),)
    return NOTHING


def say_lease_unsaving(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with their names and the end of the lease."""
    found: AutostopReading = reading.about
    names = join_names(list(found.unsaving))
    return translate(
        "{found}, and will not stop runs that are not known to save: {names}",
        found=describe_clock(found),
        names=names,
    )


def read_parked_itself(view: BoxFacts) -> Sequence[Reading] | None:
    """Return whether it was armed to park itself, and its provider says that it is off."""
    known = view.box.self_stop
    if known is None or known.off_at is None or known.told_at is not None:
        return NOTHING
    if view.meter_unread:
        return None
    off = view.off and view.box.meter.lifecycle is Lifecycle.STOPPED
    if off and may_have_parked(known):
        return SO
    return NOTHING


def say_parked_itself(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the time, and how it was armed."""
    known = view.box.self_stop
    if known is None:
        return ""
    return describe_armed_off(known, view.box.meter.source)
