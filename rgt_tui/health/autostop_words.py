"""Texts that describe a box's autostop, used by every screen and command. Pure."""

from __future__ import annotations

from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    ArmedRecord,
    AutostopMode,
    AutostopReading,
    BoxState,
    EndAction,
    GpuReading,
    LinkState,
    RunState,
    SelfStopState,
    StopEvent,
    TrainingProcess,
    format_duration,
    format_money,
    memory,
    moment,
    pct,
    time_of_day,
    training_of,
)

POWER = "⏻"
UNDONE = ("failed", "refused", "withdrawn")
"""Last events of a stop that did not happen."""


def describe_clock(reading: AutostopReading) -> str:
    """Describe the clock of a box's own stop, e.g. ``parks itself in 9m12 (idle 36 m of 45 m)``."""
    if reading.action == EndAction.PARK:
        does = translate("parks itself")
    else:
        does = translate("calls you")
    if reading.state == "stopping":
        if reading.action == EndAction.PARK:
            return translate("parks itself now")
        return translate("calls you now")
    if reading.state == "failed":
        return translate("could not park itself: it is still billed")
    if reading.state == "disarmed":
        return translate("no longer armed")
    if reading.limit_s is None:
        limit = "?"
    else:
        limit = format_duration(reading.limit_s)
    if reading.kept_until is not None and reading.stops_in_s is not None:
        return translate(
            "{does} in {stops_in_s}, kept until {kept_until}",
            does=does,
            stops_in_s=format_duration(reading.stops_in_s),
            kept_until=time_of_day(reading.kept_until),
        )
    if reading.mode == AutostopMode.LEASE:
        if reading.stops_in_s is None:
            left = translate("at an unknown time")
        else:
            left = translate("in {time}", time=format_duration(reading.stops_in_s))
        return translate("{does} {left} (lease of {limit})", does=does, left=left, limit=limit)
    if reading.idle_s is None:
        why = ""
        if reading.why:
            why = f": {show_recorded(reading.why[0])}"
        return translate(
            "{does} when idle {limit}; unknown whether it is idle{why}",
            does=does,
            limit=limit,
            why=why,
        )
    if reading.idle_s <= 0.0:
        why = ""
        if reading.why:
            why = translate(", now: {why}", why=show_recorded(reading.why[0]))
        return translate("{does} when idle {limit}{why}", does=does, limit=limit, why=why)
    if reading.stops_in_s is None:
        left = ""
    else:
        left = translate(" in {time}", time=format_duration(reading.stops_in_s))
    return translate(
        "{does}{left} (idle {idle_s} of {limit})",
        does=does,
        left=left,
        idle_s=format_duration(reading.idle_s),
        limit=limit,
    )


def list_readings(box: BoxState) -> tuple[AutostopReading, ...]:
    """Return the newest sample's autostop readings: the idle clock, then the lease."""
    if box.sample is None or box.link is not LinkState.LIVE:
        return ()
    return tuple(one for one in (box.sample.autostop, box.sample.lease) if one is not None)


def describe_self_stop(box: BoxState, now: float) -> str:
    """Describe a box's own stop, or its outcome, in one line; empty if it has none.

    Args:
        box: The state.
        now: Client clock.
    """
    running = list_readings(box)
    if running:
        evidence = [text for one in running for text in one.no_progress]
        return "; ".join([*(describe_clock(one) for one in running), *evidence])
    known = box.self_stop
    if known is None or not known.armed:
        return ""
    if known.told_at is not None:
        # Seconds for which a box's report of its own stop is shown.
        shown_s = 86_400.0
        if now - known.told_at < shown_s:
            return describe_reported_park(known)
        return ""
    if known.off_at is not None and may_have_parked(known):
        return describe_armed_off(known, box.meter.source)
    return ""


def describe_hung_runs(box: BoxState, now: float) -> tuple[str, ...]:
    """Return the evidence of each process that lives, holds a GPU and makes no progress.

    Empty once the box is armed to count such a run as idle, and while a GPU or the process works:
    ``rgt autostop --idle-if no-progress`` would not count it then.

    Args:
        box: The state.
        now: Client clock.
    """
    # Late: the first frame shows only clocks of this module, and these load profiles.
    from rgt_tui.health.facts import facts_of
    from rgt_tui.health.rows.conditions_queue import read_stalled

    # Seconds without progress, and percent of a GPU and of a core that count as work: the box's own
    # limits, see `rgt_box.autostop.idle_clock`.
    least_s, busy_gpu, busy_core = 300.0, 3.0, 2.0
    sample = box.sample
    armed: tuple[ArmedRecord, ...] = ()
    if box.self_stop is not None and box.self_stop.told_at is None:
        armed = box.self_stop.armed
    if sample is None or any(one.no_progress_s for one in armed):
        return ()
    if any(gpu.util is None or gpu.util >= busy_gpu for gpu in sample.gpus):
        return ()
    found = []
    for reading in read_stalled(facts_of(box, now)) or ():
        run: RunState = reading.about[1]
        still = now - (run.progressed_at or now)
        if reading.value is None or reading.value < 1.0 or still < least_s:
            continue
        for process in _processes_of(box, run.name):
            held = [gpu for gpu in sample.gpus if _is_held_by(gpu, process)]
            if held and process.cpu_pct is not None and process.cpu_pct < busy_core:
                found.append(_hung_text(run, process, held, format_duration(still)))
                break  # one process of a run is evidence enough
    return tuple(found)


def _processes_of(box: BoxState, run: str) -> list[TrainingProcess]:
    """Return the live processes of a run: those of its cell, or of the training that was found."""
    if box.sample is None:
        return []
    trainings = {found.name: found.pids for found in box.found if found.alive}
    pids = trainings.get(training_of(run, trainings) or "", ())
    return [
        process
        for process in box.sample.procs
        if process.state != "Z" and (process.run == run or process.pid in pids)
    ]


def _is_held_by(gpu: GpuReading, process: TrainingProcess) -> bool:
    """Return whether a process holds memory of a GPU, or some process that the driver does not name."""
    named = [holder.pid for holder in gpu.procs if holder.mapped]
    if named:
        return process.pid in named
    much_memory = 1 << 30
    return (gpu.vram_used or 0) >= much_memory


def _hung_text(run: RunState, process: TrainingProcess, held: list[GpuReading], still: str) -> str:
    cards = ", ".join(
        f"GPU {gpu.index}{' SIM' * gpu.sim} ({memory(gpu.vram_used)})" for gpu in held
    )
    return translate(
        "{name}, pid {pid}, lives and holds {cards}, but makes no progress: {position} for "
        "{still}, GPU {util}, CPU {cpu}",
        name=run.name,
        pid=process.pid,
        cards=cards,
        position=run.position,
        still=still,
        util=pct(max(gpu.util or 0.0 for gpu in held)),
        cpu=pct(process.cpu_pct or 0.0),
    )


def may_have_parked(known: SelfStopState) -> bool:
    """Return whether a machine that is off may have stopped itself.

    If off before its limit, it did not.
    """
    if known.off_at is None:
        return False
    parks = [one for one in known.armed if one.action is EndAction.PARK]
    # Allowed difference between the clocks of box, client and provider, in seconds.
    slack_s = 60.0
    return known.stopping_at is not None or any(
        known.off_at >= one.at + one.limit_s - slack_s for one in parks
    )


def describe_armed_off(known: SelfStopState, source: str) -> str:
    """Describe an armed machine that is off.

    Claim that it parked itself only if it announced that.
    """
    armed = known.armed[-1]
    if known.off_at is None:
        at = ""
    else:
        at = time_of_day(known.off_at)
    heard = known.stopping_at is not None
    if heard:
        verb = translate("parked itself by {at}", at=at)
    else:
        verb = translate("off by {at}, as armed", at=at)
    if armed.mode is AutostopMode.IDLE:
        what = translate("idle {time}", time=format_duration(armed.limit_s))
    else:
        what = translate("lease of {limit_s}", limit_s=format_duration(armed.limit_s))
    told = translate(
        "({source}): {what}, armed at {at}", source=source, what=what, at=time_of_day(armed.at)
    )
    return translate(
        "{verb} {told}; its saved files are listed once it starts again", verb=verb, told=told
    )


def describe_reported_park(known: SelfStopState) -> str:
    """Say when, why and with what a box parked itself, as reported after its restart.

    Or that it did not.
    """
    armed = known.armed[-1]
    mine = [event for event in known.story if event.boot in ("", armed.boot)]
    sent = next((event for event in reversed(mine) if event.event == "intent"), None)
    last = mine[-1] if mine else None
    if sent is None or (last is not None and last.event in UNDONE):
        if last is None:
            why = translate("it wrote nothing about a stop")
        else:
            why = f"{last.event}: {last.text}"
        return translate("was started again, and is no longer armed: {why}", why=why)
    if known.off_at is not None:
        at = known.off_at
    else:
        at = sent.at
    if armed.mode is AutostopMode.IDLE:
        what = translate("idle {time}", time=format_duration(armed.limit_s))
    else:
        what = translate("lease of {limit_s}", limit_s=format_duration(armed.limit_s))
    texts = {event.event: event.text for event in mine}
    done = [texts[name] for name in ("sealed", "mirrored") if texts.get(name)]
    # Smallest saving that is mentioned, in any currency.
    least_saved = 0.01
    worth = known.saved is not None and known.saved >= least_saved
    money_saved = ""
    if worth:
        money_saved = translate(
            "; {saved} of compute saved", saved=format_money(known.saved, armed.currency, True)
        )
    return translate(
        "parked itself at {at}: {join}{money_saved}",
        at=time_of_day(at),
        join="; ".join((what, *done)),
        money_saved=money_saved,
    )


def story_lines(story: tuple[StopEvent, ...]) -> tuple[str, ...]:
    """Return the recorded events of a box's own stop, a line each, oldest first."""
    return tuple(f"{moment(event.at)}  {event.event:<10} {event.text}" for event in story)
