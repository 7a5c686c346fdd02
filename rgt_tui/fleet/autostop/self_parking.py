"""Whether a box may be armed to park itself, judged by its platform, the fleet file and the gate's evidence.

Pure. What only the box can tell (its own key, what runs, what holds memory) it says itself when arming is rehearsed.
"""

from __future__ import annotations

from collections.abc import Iterator

from rgt_tui.gate.identity import IDENTITY
from rgt_tui.model import BoxSpec, EndsBy, Mode, Profile, Review, Verb
from rgt_tui.profiles import action_for, lacking, survives
from rgt_tui.providers import own_stop

CANNOT = "not armed: this box cannot stop itself"
RESULT_ROLES = ("data", "durable")
"""What a platform means for results; its system disk is not for them."""


def against_platform(profile: Profile, spec: BoxSpec) -> str | None:
    """Say why no box of a platform can park itself without losing results; None = nothing speaks against it.

    Only a park that surely ends the GPU's charge counts, that keeps every tier on which results are meant to lie, and
    that the box can carry out with a key or a command of its own.
    """
    action = action_for(profile, Verb.PARK)
    traps = [one for one in profile.billing if one.trap]
    if action is None or action.trap:
        why = lacking(profile, Verb.PARK) or f"{profile.name} has no stop that ends the bill"
    elif action.stops_gpu_meter is not True:
        why = f"by the profile, {action.native_label} is not certain to end the GPU's charge"
    elif lost := [
        tier.name
        for tier in profile.tiers
        if tier.role in RESULT_ROLES and survives(tier, Verb.PARK, action) is not True
    ]:
        why = f"by the profile, {action.native_label} is not certain to keep {', '.join(lost)}"
    elif own_stop(spec.provider) is None:
        kind = spec.provider.kind if spec.provider is not None else "none in the fleet file"
        why = f"no source names a key of its own for a box of {profile.name} (provider: {kind})"
    else:
        return None
    shut = "".join(f"; {one.native_label}: {one.note}" for one in traps if one.note)
    return f"{CANNOT}: {why}{shut}"


def known_objections(
    spec: BoxSpec, profile: Profile, action: EndsBy, *, readonly: bool = False
) -> Iterator[str]:
    """Say everything that keeps a box from being armed and that is known without asking anybody.

    Args:
        spec: The box.
        profile: Its platform.
        action: What it is to do.
        readonly: rgt was started so.
    """
    if readonly:
        yield "rgt was started with --readonly: it arms nothing, and stops no meter"
    if spec.untrusted:
        yield "the fleet file is not trusted: rgt trust"
    if action is EndsBy.ASK:
        return
    platform = against_platform(profile, spec)
    if platform is not None:
        yield f"{platform}. It can call you instead: --ask"
    if spec.protected:
        yield f"{spec.name} is protected in the fleet file: it must not stop by itself; --ask calls you instead"
    if spec.provider is None:
        yield "the fleet file names no provider and instance, so nothing proves which machine this is"


def wrong_machine(review: Review | None) -> Iterator[str]:
    """Say why it is not proved that the machine which we speak to is the one that would be stopped."""
    if review is None:
        yield "which machine this is could not be asked"
        return
    for item in review.items:
        if item.kind == IDENTITY and not item.ok:
            yield item.text


def erased(review: Review) -> tuple[str, ...]:
    """Return the results of which a park, by what is known now, would take the only copy."""
    return tuple(item.text for item in review.items if item.kind == "results" and item.blocks)


def promises(mode: Mode, action: EndsBy) -> tuple[str, ...]:
    """Return what is true of every armed box."""
    stops = (
        "the box itself, with its own key, and only a park: it never destroys"
        if action is EndsBy.PARK
        else "you alone: the box notifies you, and keeps billing"
    )
    if mode is Mode.IDLE:
        during = "a box that is working is never stopped"
    elif action is EndsBy.PARK:
        during = "it also ends what runs then: warned, SIGTERM, mirrored, parked"
    else:
        during = "what runs then goes on: nothing is sent SIGTERM, copied or parked"
    return (
        f"stopped by: {stops}",
        "this computer may sleep, or be off: the box keeps its own clock, and your absence stops nothing",
        f"{during}; a reboot or a resume disarms it, and says so",
    )
