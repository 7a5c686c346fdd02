"""Conditions of cells and queues: failed, stalled, too soon, interrupted, waiting; and findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rgt_tui.health.condition import (
    NOTHING,
    EntryProof,
    Reading,
    Verdict,
    failed_verdict,
    passed_verdict,
    unread_verdict,
    waiting_verdict,
    warn_verdict,
)
from rgt_tui.health.facts import LIMITS, PREEMPTED, BoxFacts, training_processes
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    BillingVerb,
    Finding,
    QueueCell,
    QueueState,
    RunState,
    TrainingProcess,
    format_duration,
    how_many,
    join_names,
    short_command,
)
from rgt_tui.profiles import (
    copy_survives,
    find_held_runs,
    find_redone_cells,
    stall_after,
    step_time,
    stopped_by_person,
    wait_text,
)

# Longer than any `hold_s`: evidence that cannot change needs no time to prove itself.
EVER = 1e9

WORDS = {"inodes": "inodes", "bytes": "disk", "quota": "quota", "space": "disk", "memory": "memory"}
"""A resource's word in the row; other findings show the id of their handbook entry."""


def read_findings(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the findings as readings.

    One that ends or silently spoils a run is an error until it is cleared; the others are warnings.
    Guesses are left out: they are reported with the finding before them.
    """
    return [
        Reading(
            finding_key(finding),
            1.0,
            finding,
            # "inodes of /data": the mount is in the text, and the row has room for one word.
            level="warn" if finding.cleared else finding.severity.alert_level,
            word=WORDS.get(finding.resource.split(" of ")[0], finding.gotcha),
        )
        for finding in view.box.findings
        if not finding.guess
    ]


def finding_key(finding: Finding) -> str:
    """Return the key of a finding within its box; the same cause in another run has another key."""
    return f"{finding.gotcha}:{finding.resource}:{finding.run or ''}"


_SHORT_OF = {
    "inodes": "inodes of {mount}",
    "bytes": "bytes of {mount}",
    "quota": "quota of {mount}",
    "space": "space of {mount}",
}


def describe_resource(resource: str) -> str:
    """Return a finding's resource in the person's language; its English is a part of ids."""
    kind, of, mount = resource.partition(" of /")
    if of and kind in _SHORT_OF:
        return translate(_SHORT_OF[kind], mount=f"/{mount}")
    kind, quote, name = resource.partition(" '")
    if quote:
        return translate(f"{kind} {{name}}").replace("{name}", f"'{name}")
    return translate(resource)


def say_finding(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the resource, its reading or proof, and the run."""
    finding = reading.about
    if finding.cleared:
        tail = translate("cause fixed, not saved yet")
    else:
        tail = finding.reading or finding.evidence
    who = ""
    if finding.run:
        who = f" · {finding.run}"
    return f"{describe_resource(finding.resource)}: {tail} · {finding.gotcha}{who}"


def describe_unread_runs(view: BoxFacts) -> str:
    """Return why it is unknown whether late runs are stuck: their curves, or their logs, are not read."""
    late = _late_runs(view)
    # A curve that is still being read explains itself within a minute, so it comes before the log.
    waiting = sum(1 for run, _ in late if view.is_curve_unread(run))
    if waiting == 1:
        return translate("its curve is still being read")
    if waiting:
        return translate("their curves are still being read")
    lost = [run for run, limit in late if view.is_step_unknown(run, limit)]
    if not lost:
        return ""
    if lost[0].counts_rows:
        return translate("the log of {lost} names no step", lost=lost[0].name)
    return translate("the log of {lost} grows, but no step in it is understood", lost=lost[0].name)


def _late_runs(view: BoxFacts) -> list[tuple[RunState, float]]:
    """Return the runs without progress for too long, and how long that is."""
    # Old figures make every run look late.
    if not view.live or view.is_blind:
        return []
    late = [
        (run, stall_after(cell, run))
        for queue, cell, run in view.running_cells
        if run is not None
        and run.progressed_at is not None
        # Without either it was cut off, which `read_interrupted` reports.
        and (queue.runner_alive or view.trains)
        and view.now - run.progressed_at >= stall_after(cell, run)
    ]
    late += [
        (runs[0], LIMITS.no_queue_stall_s)
        # A fixed limit: without a cell there is no plan from which a usual pace follows.
        for runs in view.beside
        if view.now - (runs[0].progressed_at or view.now) >= LIMITS.no_queue_stall_s
    ]
    return late


def read_stalled(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the time without progress, as a multiple of the usual limit: 30 s, or ten steps."""
    found = []
    for queue, cell, run in view.running_cells:
        if run is not None and run.wait is not None:
            continue  # the reason is known, see `read_holding`
        if (
            run is not None
            and run.progressed_at is not None
            and (queue.runner_alive or view.trains)
        ):
            limit = stall_after(cell, run)
            found.append(Reading(cell.name, _count_stalls(view, run, limit), (cell, run)))
    for runs in view.beside:
        # One reading per training, by the run of it that moved last.
        newest = runs[0]
        if newest.wait is not None:
            continue
        stalls = _count_stalls(view, newest, LIMITS.no_queue_stall_s)
        found.append(Reading(newest.name, stalls, (None, newest)))
    # Read before this check, and then dropped: None keeps the alert as it was.
    if view.live and not view.is_blind:
        return found
    return None


def _count_stalls(view: BoxFacts, run: RunState, limit_s: float) -> float | None:
    """Return how many times its limit a run has not advanced; None while that is unknown.

    A log in which no step is understood does not show a run that is stuck.
    """
    if view.is_curve_unread(run) or view.is_step_unknown(run, limit_s):
        return None
    return (view.now - (run.progressed_at or view.now)) / limit_s


def say_stalled(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the step, the duration, and the usual time per step."""
    about: tuple[QueueCell | None, RunState] = reading.about
    cell, run = about
    if cell is not None:
        per_step = step_time(cell, run)
    else:
        per_step = None
    if per_step is None:
        usual = ""
    else:
        usual = translate(", usually {per_step:.1f} s a step", per_step=per_step)
    still = format_duration(view.now - (run.progressed_at or view.now))
    return translate(
        "{name} stuck at {position} for {still}{usual}",
        name=run.name,
        position=run.position,
        still=still,
        usual=usual,
    )


def read_holding(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the runs that wait with unsaved work, because saving or their mirror fails."""
    if not view.live or view.is_blind:
        return None
    return [Reading(run.name, 1.0, run) for run in find_held_runs(view.box)]


def say_holding(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the step, the work at risk, and when the run gives up."""
    run: RunState = reading.about
    assert run.wait is not None
    return translate(
        "{name} is held at step {step:,}: {wait}",
        name=run.name,
        step=run.wait.step,
        wait=wait_text(run.wait, view.box.clock_skew, view.now),
    )


def read_halted(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the training processes stopped by a signal (state T).

    They hold GPUs and do nothing.
    """
    if view.box.sample is None:
        return None
    # When the run last moved is the best proof of when the signal came: /proc has no such time.
    moved = {run.name: run.progressed_at for run in view.box.runs}
    found = []
    for proc in view.box.sample.procs:
        if proc.state == "T":
            since = moved.get(proc.run or "")
            found.append(
                Reading(
                    str(proc.pid),
                    1.0,
                    proc,
                    age_s=EVER if since is None else max(0.0, view.now - since),
                )
            )
    if view.live:
        return found
    return None


def say_halted(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the process, and the command that resumes it."""
    proc: TrainingProcess = reading.about
    if proc.run:
        who = f"{proc.run}, pid {proc.pid}"
    else:
        who = f"pid {proc.pid} ({short_command(proc.cmd)})"
    resumes = ""
    # PIDs below 2 would address a process group or init.
    if proc.pid > 1:
        resumes = translate("; kill -CONT {pid} resumes it", pid=proc.pid)
    return translate("stopped by a signal (state T): {who}{resumes}", who=who, resumes=resumes)


def read_no_step(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the running cells that have logged no step yet."""
    found = []
    for queue, cell, run in view.running_cells:
        if (run is None or run.progressed_at is None) and (queue.runner_alive or view.trains):
            if cell.started is None:
                waited = None
            else:
                # Both times are the box's own, so a wrong clock there cancels out.
                waited = max(0.0, view.box_now - cell.started)
            found.append(Reading(cell.name, 1.0, cell, age_s=waited))
    if view.live and not view.is_blind:
        return found
    return None


def say_no_step(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the duration."""
    return translate(
        "{name} has logged no step, {now} after its start",
        name=reading.about.name,
        now=format_duration(view.now - since),
    )


def read_queue_error(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the queues that cannot be read."""
    return [Reading(queue.path, 1.0, queue) for queue in view.box.queues if queue.error is not None]


def say_queue_error(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the error."""
    return translate("queue {path}: {error}", path=reading.about.path, error=reading.about.error)


def _cells_in_state(view: BoxFacts, state: str) -> list[QueueCell]:
    return [cell for _, cell in _cells_of(view) if cell.state == state]


def read_failed(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the failed cells."""
    return [Reading(cell.name, 1.0, cell) for cell in _cells_in_state(view, "failed")]


def say_failed(view: BoxFacts, reading: Reading, since: float) -> str:
    """Return the text with the exit status and the reason."""
    cell: QueueCell = reading.about
    # The signal first: its name says more than 137.
    code = cell.signal or "?"
    if not cell.signal and cell.exit_code is not None:
        code = f"exit {cell.exit_code}"
    # The reason often begins with the status; both would say it twice.
    if cell.reason and cell.reason.startswith(code):
        code = show_recorded(cell.reason)
    elif cell.reason:
        code = translate("{ended}: {reason}", ended=code, reason=show_recorded(cell.reason))
    return translate("{name} failed, {code}", name=cell.name, code=code)


def read_fast(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the done cells that took much less time than similar ones, or too few steps."""
    # Built only for a finished cell without a flag, because this runs for every update of a box.
    runs = None
    found = []
    # A finished cell below this fraction of its planned steps has ended much too soon.
    short_of_plan = 0.5
    for cell in _cells_in_state(view, "done"):
        if cell.flag:
            found.append(
                Reading(cell.name, 1.0, f"{cell.name} {show_recorded(cell.flag)}", age_s=EVER)
            )
            continue
        if runs is None:
            runs = {run.name: run for run in view.box.runs}
        run = runs.get(cell.name)
        if run is None or run.step is None or not run.total_steps:
            continue
        if run.step < short_of_plan * run.total_steps:
            text = translate(
                "{name} is done at {position} of {total_steps:,}",
                name=cell.name,
                position=run.position,
                total_steps=run.total_steps,
            )
            found.append(Reading(cell.name, 1.0, text))
    return found


def _queues_without_runner(view: BoxFacts) -> list[QueueState]:
    """Return the queues that are not done and have no runner."""
    return [queue for queue in view.box.queues if not queue.runner_alive and not queue.done]


def read_interrupted(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the cells that were cut off, but not by a person, and have no runner any more."""
    found = []
    # A cell that a later queue has done again is no longer lost.
    over = find_redone_cells(view.box)
    for queue in _queues_without_runner(view):
        for cell in queue.cells:
            if (queue.path, cell.name) in over or stopped_by_person(cell):
                continue
            if cell.state == "interrupted":
                if cell.exit_code == PREEMPTED:
                    cause = "preempted"
                else:
                    cause = "interrupted"
                text = translate(
                    "{name} was {cause} and is not running", name=cell.name, cause=cause
                )
                found.append(Reading(cell.name, 1.0, text, word=cause))
            elif cell.state == "running":
                if view.trains:
                    left = translate("the training continues without it")
                else:
                    left = translate("the cell is not running")
                # "Not running" would invite a second start, while the first may still write to the
                # same files.
                if view.is_blind and not view.trains:
                    left = translate("whether the training continues is unknown")
                found.append(
                    Reading(
                        cell.name,
                        1.0,
                        translate(
                            "{name}: its runner has ended, {left}", name=cell.name, left=left
                        ),
                    )
                )
    return found


def read_waiting(view: BoxFacts) -> Sequence[Reading] | None:
    """Return the queues with waiting cells, none running, and no runner."""
    found = []
    for queue in _queues_without_runner(view):
        states = [cell.state for cell in queue.cells]
        waiting = states.count("waiting")
        # Those have an alert of their own with better advice: one queue, one alert.
        if waiting and "running" not in states and "interrupted" not in states:
            text = translate(
                "{waiting} waiting, no runner active", waiting=how_many(waiting, "cell")
            )
            found.append(Reading(queue.path, 1.0, text))
    if found:
        return found
    return NOTHING


def check_queue_read(view: BoxFacts) -> Verdict:
    """The queue is read, and no two cells share a name, nor two queues a place: they would write over each other."""
    queues = view.box.queues
    if not queues:
        return unread_verdict(view, translate("no queue on this box yet"))
    # The newest read, since verdicts age by it.
    at = view.to_client_time(max(queue.at for queue in queues))
    errors = [queue.error for queue in queues if queue.error is not None]
    if errors:
        return failed_verdict(errors[0], at)
    # Names before places: a name that is listed twice also writes to one place, and is the cause.
    for queue in queues:
        names = [cell.name for cell in queue.cells]
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            return failed_verdict(
                translate(
                    "{path}: {double} is listed twice", path=queue.path, double=", ".join(double)
                ),
                at,
            )
    owners: dict[str, str] = {}
    for queue in queues:
        for place in {
            place for cell in queue.cells for place in (cell.out, cell.durable_path) if place
        }:
            # A set per queue above: its own cells may share a place, two queues may not.
            if place in owners:
                return failed_verdict(
                    translate(
                        "{owners} and {path} both write to {place}",
                        owners=owners[place],
                        path=queue.path,
                        place=place,
                    ),
                    at,
                )
            owners[place] = queue.path
    count = len(view.cells)
    if count:
        return passed_verdict(
            translate("{count}, names distinct", count=how_many(count, "cell")), at
        )
    return waiting_verdict("empty", at)


def check_detached(view: BoxFacts) -> Verdict:
    """The runner lives in a session of its own, so that a lost connection ends nothing."""
    box = view.box
    if not box.queues:
        return unread_verdict(view, translate("no queue on this box yet"))
    if all(queue.done for queue in box.queues):
        return passed_verdict(
            translate("the runner has written QUEUE DONE"),
            view.to_client_time(max(queue.at for queue in box.queues)),
        )
    if box.sample is not None:
        tmux = box.sample.session.tmux
    else:
        tmux = ()
    where = ""
    if tmux:
        where = f", tmux {', '.join(tmux)}"
    alive = [queue for queue in box.queues if queue.runner_alive]
    # All of them: one active runner does not excuse another queue that has lost its own.
    if len(alive) == sum(not queue.done for queue in box.queues):
        return passed_verdict(
            translate(
                "runner {runner_pid} is active{where}",
                runner_pid=alive[0].runner_pid or "?",
                where=where,
            ),
            box.sample_at,
        )
    # Begun and left alone is a failure; not begun may be intended.
    if any(cell.state in ("running", "interrupted") for cell in view.cells):
        return failed_verdict(
            translate("a cell is unfinished and no runner is active{where}", where=where),
            box.sample_at,
        )
    return waiting_verdict(translate("no runner is active yet{where}", where=where), box.sample_at)


def check_first_step(view: BoxFacts) -> Verdict:
    """The cell that runs has logged a step."""
    if not view.marked_running:
        stepped = [run for run in view.box.runs if run.step is not None]
        if stepped:
            newest = stepped[-1]
            return passed_verdict(
                translate("{name} reached step {step:,}", name=newest.name, step=newest.step),
                view.to_client_time(newest.last_at),
            )
        return unread_verdict(view, translate("no cell is running"))
    # Marked cells, even if processes are unseen: a logged step is a lasting fact.
    for _, cell, run in view.marked_running:
        if run is None or run.step is None:
            return waiting_verdict(
                translate("{name} has logged no step yet", name=cell.name), view.box.sample_at
            )
    _, cell, run = view.marked_running[0]
    step = 0
    if run is not None and run.step is not None:
        step = run.step
    return passed_verdict(
        translate("{name} is at step {step:,}", name=cell.name, step=step),
        run.progressed_at if run is not None else None,
    )


def check_durable_named(view: BoxFacts) -> Verdict:
    """Every cell copies its result to a place that outlives the box."""
    if not view.cells:
        return unread_verdict(view, translate("no cell yet"))
    without = [
        cell.name for cell in view.cells if cell.durable is None and cell.durable_path is None
    ]
    if without:
        return warn_verdict(
            translate(
                "without durable storage: {without} of {cells}",
                without=len(without),
                cells=how_many(len(view.cells), "cell"),
            ),
            view.box.sample_at,
        )
    return passed_verdict(
        translate("with durable storage: {cells}", cells=how_many(len(view.cells), "cell")),
        view.box.sample_at,
    )


def check_undiagnosed(view: BoxFacts) -> Verdict:
    """Nothing is diagnosed."""
    if view.box.sample is None:
        return waiting_verdict(translate("no sample yet"))
    findings = [finding for finding in view.box.findings if not finding.cleared]
    if findings:
        return failed_verdict(
            f"{findings[0].gotcha}: {translate(findings[0].title)}, "
            f"{describe_resource(findings[0].resource)}",
            view.box.sample_at,
        )
    if view.box.findings:
        return warn_verdict(
            translate("{gotcha}: cause fixed, not saved since", gotcha=view.box.findings[0].gotcha),
            view.box.sample_at,
        )
    # Readings alone do not prove that nothing broke: most entries of the handbook need a log.
    if not view.box.logs:
        return unread_verdict(
            view, translate("no finding in the readings; no log is read"), view.box.sample_at
        )
    return passed_verdict(
        translate(
            "no finding in {logs} and the readings", logs=how_many(len(view.box.logs), "log")
        ),
        view.box.sample_at,
    )


def check_all_done(view: BoxFacts) -> Verdict:
    """Every cell of every queue is done."""
    if not view.cells:
        return unread_verdict(view, translate("no cell yet"))
    cells = [cell for _, cell in _cells_of(view)]
    done = sum(cell.state == "done" for cell in cells)
    at = view.to_client_time(max(queue.at for queue in view.box.queues))
    text = translate("{done} of {cells} done", done=done, cells=how_many(len(cells), "cell"))
    lost = [cell.name for cell in cells if cell.state == "failed"]
    if lost:
        names = translate("failed: {names}", names=", ".join(lost))
        return failed_verdict(f"{text}; {names}", at)
    if done == len(cells):
        return passed_verdict(text, at)
    return waiting_verdict(text, at)


def check_all_verified(view: BoxFacts) -> Verdict:
    """Every finished cell's result was read back from the durable place with equal hashes."""
    done = [cell for cell in view.cells if cell.state == "done"]
    if not done:
        return unread_verdict(view, translate("no cell is done yet"))
    at = view.to_client_time(max(queue.at for queue in view.box.queues))
    good = sum(cell.durable == "verified" for cell in done)
    # Asked for the strongest verb: a verified copy on the box's own disk ends with the box.
    known = view.storage_for(BillingVerb.DESTROY).known
    lost = [
        cell
        for cell in done
        if cell.durable == "verified"
        and copy_survives(cell, view.profile, known, BillingVerb.DESTROY) is False
    ]
    text = translate(
        "{good} of {done} verified on durable storage",
        good=good,
        done=how_many(len(done), "finished cell"),
    )
    if lost:
        where = translate(
            "{durable_path} is erased with the box", durable_path=lost[0].durable_path
        )
        return failed_verdict(
            translate(
                "{words}, but the copy of {join_names} is lost too: {where}",
                words=text,
                join_names=join_names([cell.name for cell in lost]),
                where=where,
            ),
            at,
        )
    if any(cell.durable == "failed" for cell in done):
        return failed_verdict(text, at)
    if good == len(done):
        return passed_verdict(text, at)
    if any(cell.durable is None for cell in done):
        return warn_verdict(
            translate("{words}; the others have no durable storage set", words=text), at
        )
    return waiting_verdict(text, at)


def check_quiet(view: BoxFacts) -> Verdict:
    """Nothing trains any more."""
    box = view.box
    if box.sample is None:
        return waiting_verdict(translate("no sample yet"))
    # Processes first: they are proof even when queues and cells cannot be seen.
    if live := training_processes(box.sample):
        return waiting_verdict(
            translate(
                "{live} training: pid {pid} {cmd}",
                live=len(live),
                pid=live[0].pid,
                cmd=short_command(live[0].cmd)[:60],
            ),
            box.sample_at,
        )
    if view.is_blind:
        return warn_verdict(
            translate("unknown whether anything trains: {unseen}", unseen=view.unseen),
            box.sample_at,
        )
    if view.marked_running or any(queue.runner_alive and not queue.done for queue in box.queues):
        return waiting_verdict(translate("a cell or its runner is alive"), box.sample_at)
    return passed_verdict(translate("no training process, no cell running"), box.sample_at)


KILLED = (137, -9)


def prove_copy_failed(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the cells whose durable copy failed."""
    for queue, cell in _cells_of(view):
        if cell.durable == "failed":
            yield _build_proof(
                queue, cell, translate("{name}: durable copy failed", name=cell.name)
            )


def prove_preempted(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the cells that a stop request ended, but not a person's, and that were not resumed."""
    for queue, cell in _cells_of(view):
        if stopped_by_person(cell):
            continue
        # With a runner it resumes by itself, and nothing is to do.
        if cell.state == "interrupted" and cell.exit_code == PREEMPTED and not queue.runner_alive:
            yield _build_proof(queue, cell, _describe_exit(cell))


def prove_killed_by_kernel(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the killed cells and trainings that match an OOM kill by the kernel."""
    yield from _prove_kills(view, by_kernel=True)


def prove_killed(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the cells that were killed by an unknown sender."""
    yield from _prove_kills(view, by_kernel=False)


def prove_restarted(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield cells and found trainings that ran when the machine was restarted, and no longer do."""
    boots = [event for event in view.box.events if event.kind == "rebooted"]
    if not boots:
        return
    # The last restart only: what an earlier one ended is known already.
    at = boots[-1].at
    for queue, cell in _cells_of(view):
        left = (
            cell.state in ("interrupted", "running") and not queue.runner_alive and not view.trains
        )
        # No exit status: the runner that would have written it ended with the machine.
        if left and cell.exit_code is None and cell.started is not None and cell.started < at:
            yield _build_proof(
                queue,
                cell,
                translate("{name} was running when the machine was restarted", name=cell.name),
            )
    # Seconds after a restart within which a training that it ended is noticed to be gone.
    restarted_s = 300.0
    for run in view.box.found:
        if (
            not run.alive
            and run.ended is not None
            and (run.seen or run.started) < at <= run.ended + restarted_s
        ):
            yield EntryProof(
                translate("{name} was running when the machine was restarted", name=run.name),
                run=run.name,
            )


def _prove_kills(view: BoxFacts, *, by_kernel: bool) -> Iterator[EntryProof]:
    if by_kernel:
        yield from _found_killed(view)
    for queue, cell in _cells_of(view):
        if _kernel_killed(view, cell) is not by_kernel or stopped_by_person(cell):
            continue
        # Exit 75 says that it had saved, so a later SIGKILL lost nothing.
        preempted = cell.state == "interrupted" and cell.exit_code == PREEMPTED
        killed = cell.exit_code in KILLED or cell.signal == "SIGKILL"
        if cell.state in ("failed", "interrupted") and killed and not preempted:
            yield _build_proof(queue, cell, _describe_exit(cell))


def _kernel_killed(view: BoxFacts, cell: QueueCell) -> bool:
    """Return whether the OOM counter moved while the cell ran.

    If the times are unknown, whether it ever did.
    """
    if view.box.sample is None or not view.box.sample.mem.oom_kills:
        return False
    # The counter is the container's since its start, so times decide where they are known.
    kills = [event.at for event in view.box.events if event.kind == "oom-kill"]
    if not kills or cell.started is None:
        return True
    if cell.ended is None:
        until = math.inf
    else:
        until = cell.ended + OOM_NEAR_S
    return any(cell.started <= at <= until for at in kills)


OOM_NEAR_S = 30.0
"""A found training that disappeared within this many seconds of an OOM kill was most likely its
victim.
"""


def _found_killed(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the found trainings that ended at the time of an OOM kill.

    Their exit status is unknown.
    """
    kills = [event for event in view.box.events if event.kind == "oom-kill"]
    for run in view.box.found:
        if run.alive or run.ended is None or run.exit_code == 0 or run.outcome == "COMPLETED":
            continue
        # Its end lies between the last time it was seen and the time it was found gone.
        first = (run.seen if run.seen is not None else run.ended) - OOM_NEAR_S
        hit = next((event for event in kills if first <= event.at <= run.ended + OOM_NEAR_S), None)
        if hit is not None:
            yield EntryProof(
                translate(
                    "{name} ended when the kernel killed it for lack of memory: {words}",
                    name=run.name,
                    words=hit.text,
                ),
                run=run.name,
                confidence=0.8,
            )


def _cells_of(view: BoxFacts) -> Iterator[tuple[QueueState, QueueCell]]:
    """Yield the cells that count, without those that a later attempt has replaced."""
    over = find_redone_cells(view.box)
    return (
        (queue, cell)
        for queue in view.box.queues
        for cell in queue.cells
        if (queue.path, cell.name) not in over
    )


def _describe_exit(cell: QueueCell) -> str:
    return f"{cell.name} {cell.state}, {cell.signal or f'exit {cell.exit_code}'}"


def _build_proof(queue: QueueState, cell: QueueCell, evidence: str) -> EntryProof:
    why = ""
    if cell.reason:
        why = f": {cell.reason}"
    return EntryProof(f"{evidence}{why}", queue.path, run=cell.name, durable=cell.durable_path)
