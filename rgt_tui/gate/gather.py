"""Makes the evidence for a billing action out of a box's state. Pure: same arguments, same evidence."""

from __future__ import annotations

from collections.abc import Mapping

from rgt_tui.gate.durable import durable
from rgt_tui.gate.evaluate import AHEAD_S, MAX_AGE_S, NAME
from rgt_tui.gate.quiet import quiet
from rgt_tui.gate.storage import action_for
from rgt_tui.gate.words import ago, listed, quoted
from rgt_tui.model.box import BoxState
from rgt_tui.model.evidence import Evidence, EvidenceItem, Verb
from rgt_tui.model.money import Meter
from rgt_tui.model.profile import Profile


def gather(
    state: BoxState,
    meter: Meter,
    profile: Profile | None,
    verb: Verb,
    now: float,
    *,
    action: str,
    typed: str = "",
    known_tiers: Mapping[str, str] | None = None,
) -> Evidence:
    """Return what is known for and against an action.

    Args:
        state: The newest state of the box.
        meter: A reading of the provider made for this very purpose, not the one in `state`.
        profile: The platform; None = unknown, which refuses.
        verb: Park or destroy.
        now: Client clock, epoch seconds.
        action: The provider's word for the verb, as it stands in ``meter.actions``.
        typed: What the person typed.
        known_tiers: Mount point → tier name of the profile, as far as the provider knows it.
    """
    known = known_tiers or {}
    instance = state.spec.provider.instance if state.spec.provider else ""
    return Evidence(
        box=state.spec.name,
        verb=verb,
        instance=instance,
        items=(
            quiet(state, now),
            queue(state, verb),
            durable(state, profile, verb, known),
            provider(meter, profile, verb, action, instance, now),
            name(state.spec.name, typed),
        ),
        typed=typed,
    )


def queue(state: BoxState, verb: Verb) -> EvidenceItem:
    """Say how the cells stand: for a destroy each must be done; a park lets the waiting ones wait."""
    cells = [cell for queue in state.queues for cell in queue.cells]
    errors = [queue.error for queue in state.queues if queue.error]

    def item(ok: bool, text: str) -> EvidenceItem:
        return EvidenceItem(key="queue", ok=ok, text=text, at=state.sample_at)

    running = [cell.name for cell in cells if cell.state == "running"]
    if running:
        return item(False, f"the queue says that {listed(running)} is running")
    if errors:
        return item(verb is Verb.PARK, f"a queue could not be read: {quoted(errors[0])}")
    if not state.queues:
        return item(
            verb is Verb.PARK, "no queue is known on this box, so nothing tells what a result would be"
        )
    if state.left_out.queues:
        lost = f"{state.left_out.queues} queues of this box were not kept: how their cells stand is unknown"
        return item(verb is Verb.PARK, lost)
    undone = [f"{cell.name} ({cell.state})" for cell in cells if cell.state != "done"]
    if undone and verb is Verb.DESTROY:
        return item(False, f"{len(undone)} of {len(cells)} cells not done: {listed(undone)}")
    if undone:
        return item(True, f"{len(undone)} of {len(cells)} cells go on after a start: {listed(undone)}")
    return item(True, f"{len(cells)} cells, all done" if cells else "the queue is empty")


def provider(
    meter: Meter, profile: Profile | None, verb: Verb, action: str, instance: str, now: float
) -> EvidenceItem:
    """Say what the provider said just now, and whether it would take the action."""

    def item(ok: bool, text: str) -> EvidenceItem:
        return EvidenceItem(key="provider", ok=ok, text=text, at=meter.at)

    if not instance:
        return item(False, "no provider instance is named in the fleet file; use the platform's console")
    if meter.error is not None:
        return item(False, f"the provider's state could not be read: {meter.error}")
    status = quoted(meter.native_status or meter.lifecycle.value)
    if meter.at is None or not -AHEAD_S <= now - meter.at <= MAX_AGE_S["provider"]:
        return item(False, f"the provider's state ({status}) was read {ago(meter.at, now)}; read it again")
    native = action_for(profile, verb) if profile is not None else None
    if profile is not None and native is None:
        return item(False, f"{profile.name} has no action that would {verb.value} a box")
    if native is not None and native.stops_gpu_meter is not True:
        return item(False, f"by the profile, {native.native_label} does not surely stop the GPU meter")
    if action not in meter.actions:
        accepts = listed(list(meter.actions)) or "nothing"
        return item(
            False, f"the provider says {status} and does not accept {action} now (accepts: {accepts})"
        )
    return item(True, f"{status}, read {ago(meter.at, now)}, accepts {action}")


def name(box: str, typed: str) -> EvidenceItem:
    """Compare what was typed with the box's name, character by character: no trimming, no folding."""
    if typed == box and box:
        return EvidenceItem(key=NAME, ok=True, text="the name was typed exactly")
    if not typed:
        return EvidenceItem(key=NAME, ok=False, text="the name is not typed yet")
    if typed.strip() == box:
        text = "there is a blank before or after the typed name"
    elif typed.casefold() == box.casefold():
        text = "upper and lower case differ from the box's name"
    elif not typed.isascii() and box.isascii():
        text = "the typed name holds letters that only look like those of the box's name"
    else:
        text = "the typed name is not the box's name"
    return EvidenceItem(key=NAME, ok=False, text=text)
