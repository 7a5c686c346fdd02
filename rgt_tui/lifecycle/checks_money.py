"""What the checklist asks of money."""

from __future__ import annotations

from rgt_tui.health.facts import (
    METER_OLD_S,
    Facts,
)
from rgt_tui.lifecycle.check import Verdict, failed, passed, waiting, warn
from rgt_tui.model.money import Lifecycle, MeterKind
from rgt_tui.profiles.readings import age, money
from rgt_tui.profiles.survival import survival


def check_profile_known(view: Facts) -> Verdict:
    """The platform is known, and its worst danger is on the screen."""
    if view.profile.id != view.box.spec.profile:
        return warn(
            f"no profile '{view.box.spec.profile}'; {view.profile.name} is used: {view.profile.top_danger}"
        )
    return passed(f"{view.profile.name}: {view.profile.top_danger}")


def check_durable_survives(view: Facts) -> Verdict:
    """The durable place outlives the box, by the profile."""
    path = view.box.spec.durable or view.profile.durable_dir
    used = next((cell.durable_path for cell in view.cells if cell.durable_path), path)
    if used is None:
        return warn(f"no durable directory is named; on {view.profile.name} pull before you destroy")
    tier = survival(view.profile, used, known=view.box.spec.tiers)
    if tier is None:
        return warn(f"{used}: the profile does not know that disk")
    if tier.survives_destroy is True:
        return passed(f"{used} is on {tier.name}, which survives destroy")
    if tier.survives_destroy is None:
        return warn(f"{used} is on {tier.name}; whether it survives destroy is not known")
    other = next(
        (one for one in view.profile.tiers if one.survives_destroy and set(one.mounts) & set(tier.mounts)),
        None,
    )
    unless = f", unless a {other.name} is mounted there" if other is not None else ""
    return failed(f"{used} is on {tier.name}, which destroy deletes{unless}")


def check_meter_read(view: Facts) -> Verdict:
    """What the box costs now is read from the provider."""
    meter = view.box.meter
    if view.box.spec.provider is None and meter.at is None:
        return warn("no provider is configured: what the box costs is not known")
    if meter.at is None:
        return waiting(f"not read yet{f': {meter.error}' if meter.error else ''}")
    rate = f"{money(meter.per_hour, meter.currency)}/h"
    text = f"{meter.source}: {meter.lifecycle.value}, {meter.kind.value}, {rate}"
    if meter.error is not None or view.now - meter.at > METER_OLD_S:
        return warn(
            f"{text}; last read {age(view.now - meter.at)} ago{f', {meter.error}' if meter.error else ''}",
            meter.at,
        )
    if meter.kind is MeterKind.UNKNOWN or meter.lifecycle is Lifecycle.UNKNOWN:
        return warn(text, meter.at)
    return passed(text, meter.at)
