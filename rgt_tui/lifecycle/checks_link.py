"""What the checklist asks of link."""

from __future__ import annotations

from rgt_tui.health.facts import (
    SKEW_NOTED_S,
    SKEW_WARN_S,
    Facts,
)
from rgt_tui.lifecycle.check import Verdict, failed, passed, person, waiting, warn
from rgt_tui.model.box import Link


def check_channel(view: Facts) -> Verdict:
    """The channel is live, and so the host key is the known one: another would have been refused."""
    box = view.box
    if box.link is Link.LIVE:
        return passed(
            "connected, host key verified", box.sample_at if box.sample_at is not None else box.since
        )
    if box.link is Link.REFUSED_KEY:
        return failed(f"host key refused: {box.reason}", box.since)
    if box.link is Link.UNREACHABLE:
        return failed(f"unreachable: {box.reason}", box.since)
    return waiting(box.reason, box.since)


def check_agent(view: Facts) -> Verdict:
    """The agent on the box answers, and says what it cannot do there."""
    hello = view.box.hello
    if hello is None:
        return waiting("the agent has not spoken yet")
    text = f"Python {hello.python}, agent {hello.agent[:8]}, protocol {hello.proto}"
    if hello.limited:
        return warn(f"{text}; limited: {', '.join(hello.limited)}", view.box.sample_at)
    return passed(text, view.box.sample_at)


def check_clock_skew(view: Facts) -> Verdict:
    """The clocks agree: ages, logs and tokens with an expiry depend on it."""
    skew = view.box.clock_skew
    if skew is None:
        return waiting("not measured yet")
    text = f"the box is {abs(skew):.1f} s {'ahead' if skew >= 0 else 'behind'}"
    if abs(skew) >= SKEW_WARN_S:
        return failed(text, view.box.sample_at)
    if abs(skew) > SKEW_NOTED_S:
        return warn(text, view.box.sample_at)
    return passed(text, view.box.sample_at)


def check_gapless(view: Facts) -> Verdict:
    """The stream is whole: no sample was lost, none came twice."""
    counters, at = view.box.counters, view.box.sample_at
    if counters.samples == 0:
        return waiting("no sample yet")
    text = f"{counters.samples:,} samples, {counters.gaps} lost, {counters.duplicates} twice"
    text += f", {counters.connects} connect{'s' if counters.connects != 1 else ''}"
    if counters.gaps or counters.duplicates or counters.bad_frames:
        return warn(f"{text}, {counters.bad_frames} bad frames", at)
    return passed(text, at)


def check_credentials(view: Facts) -> Verdict:
    """Where the secrets are cannot be read off a stream, and must not be."""
    return person("no key stands in an argument, a log, or on the durable share")
