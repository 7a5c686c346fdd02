"""Phase 5: the results are safe, and the meter is known."""

from __future__ import annotations

from rgt_tui.health.facts import METER_OLD_S, Facts, trainers
from rgt_tui.lifecycle.check import Verdict, absent, failed, passed, person, waiting, warn
from rgt_tui.model.money import Lifecycle, MeterKind
from rgt_tui.profiles.readings import age, money
from rgt_tui.profiles.survival import survival


def all_done(view: Facts) -> Verdict:
    """Every cell of every queue is done."""
    if not view.cells:
        return absent(view, "no cell yet")
    done = sum(cell.state == "done" for cell in view.cells)
    at = view.client(max(queue.at for queue in view.box.queues))
    text = f"{done} of {len(view.cells)} cells done"
    lost = [cell.name for cell in view.cells if cell.state == "failed"]
    if lost:
        return failed(f"{text}; failed: {', '.join(lost)}", at)
    return passed(text, at) if done == len(view.cells) else waiting(text, at)


def all_verified(view: Facts) -> Verdict:
    """Every finished cell's result was read back from the durable place with equal hashes."""
    done = [cell for cell in view.cells if cell.state == "done"]
    if not done:
        return absent(view, "no cell is done yet")
    at = view.client(max(queue.at for queue in view.box.queues))
    good = sum(cell.durable == "verified" for cell in done)
    text = f"{good} of {len(done)} finished cells verified on durable storage"
    if any(cell.durable == "failed" for cell in done):
        return failed(text, at)
    if good == len(done):
        return passed(text, at)
    if any(cell.durable is None for cell in done):
        return warn(f"{text}; the others name no durable place", at)
    return waiting(text, at)


def durable_survives(view: Facts) -> Verdict:
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


def quiet(view: Facts) -> Verdict:
    """Nothing trains any more."""
    box = view.box
    if box.sample is None:
        return waiting("no sample yet")
    if live := trainers(box.sample):
        return waiting(f"{len(live)} training: pid {live[0].pid} {live[0].cmd[:60]}", box.sample_at)
    if view.blind:
        return warn(f"whether anything trains is unknown: {view.unseen}", box.sample_at)
    if view.marked_running or any(queue.runner_alive and not queue.done for queue in box.queues):
        return waiting("a cell or its runner is alive", box.sample_at)
    return passed("no training process, no cell running", box.sample_at)


def meter_read(view: Facts) -> Verdict:
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


def opened(view: Facts) -> Verdict:
    """A file that has arrived is not yet a result."""
    return person("you opened the pulled results on your own machine")
