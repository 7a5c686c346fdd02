"""Checks whether a box is quiet: one item per reason against it, so each can be accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rgt_tui.health import LIMITS, training_processes, unseen_reason
from rgt_tui.health.facts import gpus_computing, gpus_in_use
from rgt_tui.language import translate
from rgt_tui.model import (
    BoxState,
    EvidenceItem,
    FrozenStruct,
    GpuReading,
    Lifecycle,
    LinkState,
    Meter,
    RunState,
    Sample,
    TrainingProcess,
    format_duration,
    format_time_ago,
    how_many,
    join_names,
    memory,
    pct,
    quote_name,
    short_command,
)

FINISHED = frozenset({"done", "failed", "interrupted"})
FRESH_S = 10.0
"""Maximum age in seconds of a reading that counts as current."""
AHEAD_S = 1.0
"""Seconds by which a reading may seem to come from the future; more is invalid."""
QUIET = "quiet"


class BusyReason(FrozenStruct):
    """A reason why a box is not quiet."""

    about: str
    """The thing it is about; part of the item's key, stable between readings."""
    text: str
    fact: str = ""
    """Same as `EvidenceItem.fact`."""


def list_quiet_items(
    state: BoxState,
    now: float,
    ticks: float,
    meter: Meter | None = None,
    meter_at: float | None = None,
    since: float | None = None,
) -> tuple[EvidenceItem, ...]:
    """Return whether the box is quiet: a fresh sample, and nothing trains, copies or types.

    Args:
        state: The box.
        now: Client clock, Unix time; only used for how long ago something advanced.
        ticks: The steady clock.
        meter: The provider's current status: nothing runs on a stopped machine.
        meter_at: When the provider was read, by the steady clock.
        since: A reading received before this (steady clock) does not count; None = only its age
            counts.
    """
    # A live link disproves an "off" of the provider, so then the box itself is judged.
    if meter is not None and state.link is not LinkState.LIVE and is_off(meter):
        says = quote_name(meter.native_status or meter.lifecycle.value)
        text = translate(
            "the provider's status is {says}: nothing runs on a machine that is off", says=says
        )
        return (EvidenceItem(key=QUIET, ok=True, text=text, at=meter_at),)
    at = state.seen.sample
    # A box that cannot be seen is busy: without a fresh reading, silence proves nothing.
    blind = _find_blind_reason(state, ticks, since)
    if blind is not None:
        reasons = [blind]
    else:
        reasons = list(_iterate_busy_reasons(state, now))
    if not reasons:
        text = translate("nothing trains, computes, copies or types")
        return (EvidenceItem(key=QUIET, ok=True, text=text, at=at),)
    return tuple(
        EvidenceItem(
            key=f"{QUIET}:{reason.about}",
            ok=False,
            text=reason.text,
            at=at,
            fact=reason.fact,
            forfeitable=True,
        )
        for reason in reasons
    )


def is_off(meter: Meter) -> bool:
    """Return whether the provider's latest reading says that the machine is off."""
    return meter.error is None and meter.lifecycle in (Lifecycle.STOPPED, Lifecycle.GONE)


def _find_blind_reason(state: BoxState, ticks: float, since: float | None) -> BusyReason | None:
    """Return why the box cannot be judged; None = it can."""

    def build_reason(text: str) -> BusyReason:
        return BusyReason("unseen", text, "unseen")

    seen = state.seen.sample
    # The link is checked before the age: the last sample of a lost box may still be fresh.
    if state.link is not LinkState.LIVE:
        return build_reason(
            translate(
                "the box is {link} ({reason}): unknown what runs on it now",
                link=translate(state.link.value),
                reason=quote_name(state.reason),
            )
        )
    if state.sample is None or seen is None:
        return build_reason(
            translate(
                "no reading of the box ({reason}): unknown what runs on it",
                reason=quote_name(state.reason),
            )
        )
    age = ticks - seen
    # `not <=` instead of `>`: NaN must refuse, too.
    if not -AHEAD_S <= age <= FRESH_S:
        return build_reason(
            translate(
                "the newest reading of the box is {age:.0f} s old: unknown what runs on it now",
                age=age,
            )
        )
    if since is not None and not seen >= since:
        return build_reason(
            translate("the box has not answered the request: unknown what runs on it now")
        )
    if (why := unseen_reason(state.sample)) is not None:
        return build_reason(
            translate("the processes of the box cannot be listed: {why}", why=quote_name(why))
        )
    return None


def _iterate_busy_reasons(state: BoxState, now: float) -> Iterator[BusyReason]:
    for look in _LOOKS:
        yield from look(state, now)


def _iterate_training(state: BoxState, now: float) -> Iterator[BusyReason]:
    live = training_processes(state.sample)
    if not live:
        return
    running = [name for name, cell in _map_cell_states(state).items() if cell == "running"]
    # The text may shorten the list; the fact below names every process, so that a new one changes
    # it.
    pids = ", ".join(str(proc.pid) for proc in live[:4]) + ("…" if len(live) > 4 else "")
    # With the start time: a reused PID is another process, and must be accepted again.
    fact = " ".join(f"{proc.pid}@{proc.started:.0f}" for proc in live)
    yield BusyReason("training", _describe_training(live, pids, running, state.runs, now), fact)


def _describe_training(
    live: tuple[TrainingProcess, ...],
    pids: str,
    running: list[str],
    runs: tuple[RunState, ...],
    now: float,
) -> str:
    names = running or [
        run.name
        for run in runs
        if run.progressed_at and now - run.progressed_at < LIMITS.no_queue_moving_s
    ]
    if names:
        who = translate("{names} is training", names=join_names(names))
    else:
        who = translate("a training process is alive")
    text = f"{who}: pid {pids}"
    run = next((run for run in runs if len(names) == 1 and run.name == names[0]), None)
    if run is None or run.step is None:
        if not names:
            return f"{text}, {quote_name(short_command(live[0].cmd), 60)}"
        return text
    return translate(
        "{words}, {position}, advanced {ago}",
        words=text,
        position=run.position,
        ago=format_time_ago(run.progressed_at, now),
    )


def _iterate_found_runs(state: BoxState, now: float) -> Iterator[BusyReason]:
    """Yield trainings found alive whose processes are missing from the process list."""
    live = {proc.pid for proc in training_processes(state.sample)}
    for run in state.found:
        # Those in the process list are already reported as training.
        if run.alive and not live.intersection((run.pid, *run.pids)):
            text = translate(
                "{name} is training: found alive, pid {pid}, {command}",
                name=quote_name(run.name),
                pid=run.pid,
                command=quote_name(run.command, 60),
            )
            yield BusyReason(f"found {run.name}", text, f"{run.pid}@{run.started:.0f}")
    # A run that was dropped for the memory limit may be the training that is alive.
    if state.left_out.found:
        lost = how_many(state.left_out.found, "found training")
        text = translate("not kept of this box: {lost}; unknown whether one is alive", lost=lost)
        yield BusyReason("found, left out", text, "left out")


def _iterate_runners(state: BoxState, now: float) -> Iterator[BusyReason]:
    for queue in state.queues:
        if queue.runner_alive:
            if queue.runner_pid is not None:
                pid = f"pid {queue.runner_pid}"
            else:
                pid = translate("pid unknown")
            waiting = sum(cell.state == "waiting" for cell in queue.cells)
            text = translate(
                "the queue runner is alive ({pid}), {cells} waiting",
                pid=pid,
                cells=how_many(waiting, "cell"),
            )
            yield BusyReason(f"runner {queue.path}", text)


def _iterate_advanced_runs(state: BoxState, now: float) -> Iterator[BusyReason]:
    """Yield runs that advanced just now, even if the process list shows no training."""
    if training_processes(state.sample):
        return
    cells = _map_cell_states(state)
    for run in state.runs:
        at = max((at for at in (run.progressed_at, run.unread_at) if at is not None), default=None)
        # The last step of a finished cell is recent as well, and proves nothing.
        if cells.get(run.name) not in FINISHED and at is not None and now - at < LIMITS.moving_s:
            text = translate(
                "{name} advanced to {position} {ago}",
                name=quote_name(run.name),
                position=run.position,
                ago=format_time_ago(at, now),
            )
            yield BusyReason(f"run {run.name}", text, "advances")


def _iterate_busy_gpus(state: BoxState, now: float) -> Iterator[BusyReason]:
    """Yield GPUs that compute, or whose memory is in use at 0% or unknown utilisation."""
    sample = state.sample
    # A training explains the use of its GPUs; a second reason would only have to be accepted twice.
    if sample is None or training_processes(sample):
        return
    busy, held = gpus_computing(sample), gpus_in_use(sample)
    for gpu in sample.gpus:
        about = f"gpu {gpu.index}"
        if gpu in busy:
            use = f"GPU {gpu.index} {pct(gpu.util)}"
            yield BusyReason(
                about,
                translate("no training process found, but something computes: {use}", use=use),
                "computes",
            )
        elif gpu in held:
            yield BusyReason(
                about,
                translate("no training process found, but {gpu}", gpu=_describe_held_memory(gpu)),
                "held",
            )
        elif not gpu.sim and gpu.util is None and gpu.vram_used is None:
            # A driver that answers nothing must not look like an idle GPU.
            why = ""
            if gpu.error:
                why = f" ({quote_name(gpu.error)})"
            yield BusyReason(
                about,
                translate(
                    "neither use nor memory of GPU {index} can be read{why}",
                    index=gpu.index,
                    why=why,
                ),
                "unread",
            )


def _describe_held_memory(gpu: GpuReading) -> str:
    told = [proc.bytes or 0 for proc in gpu.procs]
    if gpu.vram_used is not None:
        used = gpu.vram_used
    else:
        used = sum(told)
    if gpu.util is None:
        use = translate("a use that cannot be read")
    else:
        use = pct(gpu.util)
    pids = [str(holder.pid) for holder in gpu.orphans] + [
        str(proc.pid) for proc in gpu.procs if proc.mapped
    ]
    if pids:
        who = f"pid {join_names(pids)}"
    else:
        who = translate("somebody")
    return translate(
        "{who} holds {size} of GPU {index} at {use}",
        who=who,
        size=memory(used),
        index=gpu.index,
        use=use,
    )


def _transfers(state: BoxState, now: float) -> Iterator[BusyReason]:
    sample = state.sample
    if sample is None:
        return
    # None = not read, which is no proof; an empty tuple is one.
    if sample.transfers is None:
        yield BusyReason(
            "transfers", translate("whether files are being copied is not known"), "unknown"
        )
    for transfer in sample.transfers or ():
        text = translate(
            "files are being copied: {name}, pid {pid}",
            name=quote_name(transfer.name, 40),
            pid=transfer.pid,
        )
        yield BusyReason(f"transfer {transfer.pid}", text)


def _iterate_typing(state: BoxState, now: float) -> Iterator[BusyReason]:
    sample = state.sample
    if sample is None:
        return
    if sample.input_at is None:
        yield BusyReason(
            "terminal",
            translate("whether somebody types at a terminal of the box is not known"),
            "unknown",
        )
        return
    since = _since_input(sample)
    # `not >=` instead of `<`: NaN must refuse, too.
    if sample.input_at != 0 and not since >= LIMITS.typed_s:
        text = translate(
            "somebody typed at a terminal of the box {time} ago", time=format_duration(since)
        )
        yield BusyReason("terminal", text, "typed")


def _since_input(sample: Sample) -> float:
    """Return the seconds since the last terminal input; both times are of the box's own clock."""
    return sample.at - (sample.input_at or 0.0)


def _map_cell_states(state: BoxState) -> dict[str, str]:
    return {cell.name: cell.state for queue in state.queues for cell in queue.cells}


_LOOKS: tuple[Callable[[BoxState, float], Iterator[BusyReason]], ...] = (
    _iterate_training,
    _iterate_found_runs,
    _iterate_runners,
    _iterate_advanced_runs,
    _iterate_busy_gpus,
    _transfers,
    _iterate_typing,
)
