"""Makes the evidence for a billing action out of a box's state. Pure: same arguments, same evidence."""

from __future__ import annotations

from collections.abc import Mapping

from rgt_tui.gate.decision import AHEAD_S, MAX_AGE_S, NAME
from rgt_tui.health.facts import MOVING_S, NO_QUEUE_MOVING_S, computing, trainers, unseen
from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.evidence import Evidence, EvidenceItem, Verb
from rgt_tui.model.money import Meter
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import Cell, Proc
from rgt_tui.model.run import RunState
from rgt_tui.profiles.readings import ago, listed, quoted
from rgt_tui.profiles.survival import action_for, path_survives, tiers_of


def durable(state: BoxState, profile: Profile | None, verb: Verb, known: Mapping[str, str]) -> EvidenceItem:
    """Say whether every result outlives the verb.

    For a destroy: every done cell has a copy that the runner verified, on a tier that survives a destroy. For
    a park: what is not safe in that way must at least lie on a tier that survives a stop.
    """

    def item(ok: bool, text: str) -> EvidenceItem:
        return EvidenceItem(key="durable", ok=ok, text=text, at=state.sample_at)

    if profile is None:
        return item(False, "the platform's profile is unknown, so nothing says what would be lost")
    cells = [cell for queue in state.queues for cell in queue.cells]
    copied = {
        cell.name for cell in cells if cell.state == "done" and _copy_survives(cell, profile, known, verb)
    }
    problems: list[str] = []
    if verb is Verb.DESTROY:
        problems += [
            _why(cell, profile, known) for cell in cells if cell.state == "done" and cell.name not in copied
        ]
    problems += _left_behind(state, cells, copied, profile, known, verb)
    if problems:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        return item(False, "; ".join(problems[:3]) + more)
    if copied:
        return item(
            True,
            f"{len(copied)} results verified on storage that outlives the action ({listed(sorted(copied))})",
        )
    return item(True, "no result on the box is at stake")


def _copy_survives(cell: Cell, profile: Profile, known: Mapping[str, str], verb: Verb) -> bool:
    if cell.durable != "verified" or not cell.durable_path:
        return False
    return path_survives(cell.durable_path, profile, known, verb) is True


def _why(cell: Cell, profile: Profile, known: Mapping[str, str]) -> str:
    """Return why a done cell's result would not outlive a destroy."""
    name = quoted(cell.name)
    if cell.durable != "verified" or not cell.durable_path:
        return f"{name} has no verified durable copy ({cell.durable or 'the job names no durable directory'})"
    tiers = tiers_of(cell.durable_path, profile, known)
    where = (
        f"{quoted(cell.durable_path)} ({' or '.join(tier.name for tier in tiers) or 'no known storage tier'})"
    )
    if path_survives(cell.durable_path, profile, known, Verb.DESTROY) is False:
        return f"the copy of {name} at {where} is erased with the box"
    return f"nothing says that the copy of {name} at {where} outlives the box"


def _left_behind(
    state: BoxState,
    cells: list[Cell],
    copied: set[str],
    profile: Profile,
    known: Mapping[str, str],
    verb: Verb,
) -> list[str]:
    """Return what the verb would take although nobody has a copy: checkpoints and outputs without one."""
    handled = copied | (
        {cell.name for cell in cells if cell.state == "done"} if verb is Verb.DESTROY else set()
    )
    paths: dict[str, str] = {}
    for cell in cells:
        if cell.name not in handled and cell.out and cell.state != "waiting":
            paths[cell.name] = cell.out
    for group in state.checkpoints:
        if group.run not in handled and group.items:
            paths[group.run] = group.items[-1].path
    problems = []
    if state.left_out.checkpoints:
        lists = f"{state.left_out.checkpoints} lists of checkpoints of this box"
        problems.append(f"{lists} were not kept: whether a copy of them is anywhere is unknown")
    for name, path in paths.items():
        answer = path_survives(path, profile, known, verb)
        if answer is not True:
            fate = "is erased by it" if answer is False else "may be erased by it (the profile does not say)"
            problems.append(f"what {quoted(name)} has at {quoted(path)} {fate}")
    return problems


FINISHED = frozenset({"done", "failed", "interrupted"})


def quiet(state: BoxState, now: float) -> EvidenceItem:
    """Say whether the box is quiet: a fresh sample, no training, no queue runner, nothing computing."""
    blind = _blind(state, now)
    reasons = [blind] if blind else _busy(state, now)
    if reasons:
        return EvidenceItem(key="quiet", ok=False, text="; ".join(reasons), at=state.sample_at)
    text = f"no training process, no queue runner; read {ago(state.sample_at, now)}"
    return EvidenceItem(key="quiet", ok=True, text=text, at=state.sample_at)


def _blind(state: BoxState, now: float) -> str | None:
    """Return why the box cannot be judged; None = it can."""
    if state.sample is None or state.sample_at is None:
        return f"no reading of the box ({quoted(state.reason)}): what runs on it is unknown"
    if state.link is not Link.LIVE:
        return f"the box is {state.link.value} ({quoted(state.reason)}): what runs on it now is unknown"
    age = now - state.sample_at
    if not -AHEAD_S <= age <= MAX_AGE_S["quiet"]:
        return f"the newest reading of the box is {age:.0f} s old: what runs on it now is unknown"
    if (why := unseen(state.sample)) is not None:
        return f"the box cannot be asked for its processes: {quoted(why)}"
    return None


def _busy(state: BoxState, now: float) -> list[str]:
    cells = {cell.name: cell.state for queue in state.queues for cell in queue.cells}
    running = [name for name, cell in cells.items() if cell == "running"]
    live = trainers(state.sample)
    reasons = []
    if live:
        reasons.append(_training(live, running, state.runs, now))
    for queue in state.queues:
        if queue.runner_alive:
            pid = f"pid {queue.runner_pid}" if queue.runner_pid is not None else "pid unknown"
            waiting = sum(cell.state == "waiting" for cell in queue.cells)
            reasons.append(f"the queue runner is alive ({pid}), {waiting} cells waiting")
    if not live:
        reasons += [
            _advanced(run, now)
            for run in state.runs
            if cells.get(run.name) not in FINISHED
            and run.progressed_at is not None
            and now - run.progressed_at < MOVING_S
        ]
        if busy := computing(state.sample):
            which = listed([f"GPU {gpu.index} {gpu.util:.0f} %" for gpu in busy])
            reasons.append(f"no training process is known, but something computes: {which}")
    return reasons


def _training(live: tuple[Proc, ...], running: list[str], runs: tuple[RunState, ...], now: float) -> str:
    pids = ", ".join(str(proc.pid) for proc in live[:4]) + ("…" if len(live) > 4 else "")
    names = running or [
        run.name for run in runs if run.progressed_at and now - run.progressed_at < NO_QUEUE_MOVING_S
    ]
    who = f"{listed(names)} is training" if names else "a training process is alive"
    text = f"{who}: pid {pids}"
    run = next((run for run in runs if len(names) == 1 and run.name == names[0]), None)
    if run is None or run.step is None:
        return f"{text}, {quoted(live[0].cmd, 60)}" if not names else text
    return f"{text}, step {run.step:,}, advanced {ago(run.progressed_at, now)}"


def _advanced(run: RunState, now: float) -> str:
    return f"{quoted(run.name)} advanced to step {run.step} {ago(run.progressed_at, now)}"


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
        kind=state.spec.provider.kind if state.spec.provider is not None else "",
        account=state.spec.provider.account if state.spec.provider is not None else "",
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
