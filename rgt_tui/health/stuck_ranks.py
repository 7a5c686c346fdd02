"""Finds the rank that blocks a distributed training: dead, stopped, asleep, or busy elsewhere.

Pure.

A rank that waits in a collective either does not run at all (gloo sleeps in a futex) or runs all
the time (NCCL spins in the synchronisation of its stream). A rank that evaluates, loads or saves
runs now and then, however long the others wait. So only a rank that has not run for a while is
named soon, any other after `RankLimits.patient_s` without progress. Ranks of our own trainer, or
with our callback, report their phase in a heartbeat: the ones behind are named soon, whatever they
do. If torch's flight recorder has written a dump, it shows which rank did not join which
collective, regardless of the kernel's view.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rgt_tui.handbook import collectives
from rgt_tui.handbook.collectives import CollectiveVerdict
from rgt_tui.health.condition import EntryProof
from rgt_tui.health.facts import BoxFacts
from rgt_tui.language import translate
from rgt_tui.model import (
    Finding,
    FixStep,
    FrozenStruct,
    Heartbeat,
    TrainingProcess,
    format_duration,
    is_exact_path,
    noun,
    training_of,
)


class RankLimits(FrozenStruct):
    """How long ranks may wait for each other, in seconds."""

    waited_s: float = 20.0
    """Seconds the others must wait before a rank that is dead, stopped or asleep is named."""
    asleep_s: float = 30.0
    """Seconds of sleep after which a rank no longer works for the training: code that polls wakes
    up in between."""
    patient_s: float = 300.0
    """Limit without further evidence of a hang: it may be an evaluation, a slow disk or a slow
    loader."""
    alone_s: float = 40.0
    """Seconds the others must wait before a rank in the user's own code is named, unless it is rank
    0, which may have work of its own."""
    slack_s: float = 15.0
    """How much later than the event a curve may arrive: it is written, read and sent first."""
    open_s: float = 40.0
    """Seconds that a collective must have been open when the dump was written, if only the dump
    shows whether constantly computing ranks advance."""
    fresh_s: float = 300.0
    """Maximum age in seconds of such a dump."""
    named: int = 4


RANK_LIMITS = RankLimits()


COLLECTIVE = ("futex", "do_futex")
"""Where a PyTorch thread sleeps that waits for another thread's work, and so also for a collective.
"""
SLEEPS = ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep")
ELSEWHERE = {
    "sleeps (time.sleep or similar)": SLEEPS,
    "waits for a program that it has started": ("do_wait", "kernel_wait4"),
    "waits for a pipe, such as that of a loader worker": ("pipe_", "anon_pipe"),
    "waits for a connection or a pipe": (
        "do_poll", "do_sys_poll", "poll_schedule", "do_select", "ep_poll", "do_epoll",
    ),
    "waits for a connection": ("wait_woken", "sk_wait", "tcp_", "unix_stream", "inet_"),
    "waits for somebody to type": ("n_tty", "tty_"),
    "waits for a file that another has locked": ("flock", "locks_", "fcntl_setlk"),
}  # fmt: skip
"""What a thread does → prefixes of the kernel functions where it waits then."""

STOPPED, GONE, AWAY, ALL = "HANG1", "D20", "HANG2", "D19"
"""Pages of the handbook."""
SURE, LIKELY, MAYBE = 0.95, 0.8, 0.6
FACTOR, OVER_SLOWEST = 5.0, 1.5
"""How many usual steps, and how many of the slowest so far, one step may take."""

ORDER = {"data": 0, "loop": 1, "forward": 2, "backward": 3, "collective": 4, "optimizer": 5}
"""The phases of a step in order."""
EXACT = frozenset(("data", "forward", "backward", "optimizer"))
"""Phases with known content; ``loop`` is the user's own code, where anything can happen."""
PHASE_WORDS = {
    "loop": "in the code of its loop",
    "data": "waiting for its data",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "collective": "in a collective",
    "optimizer": "in the optimizer",
    "checkpoint": "saving",
    "evaluation": "evaluating",
    "start": "starting",
    "end": "ending",
}


class StuckTraining(NamedTuple):
    """A training that waits for some of its ranks."""

    page: str
    run: str | None
    away: tuple[tuple[int, int | None, str], ...]
    """Rank, pid (None = unknown) and reason of the ranks that the others wait for; () = all wait.
    """
    wait: tuple[TrainingProcess, ...]
    confidence: float
    age: float = RANK_LIMITS.patient_s
    """Minimum seconds without progress."""
    told: str = ""
    """What the flight recorders, or NCCL, show."""


def find_stuck_trainings(view: BoxFacts) -> list[StuckTraining]:
    """Return the trainings of a box that are blocked by some of their ranks."""
    groups: dict[str, list[TrainingProcess]] = {}
    for proc in view.box.sample.procs if view.box.sample is not None else ():
        if proc.dist is not None:
            groups.setdefault(proc.dist.group, []).append(proc)
    return [found for ranks in groups.values() if (found := _judge_ranks(view, ranks)) is not None]


def _judge_ranks(view: BoxFacts, ranks: list[TrainingProcess]) -> StuckTraining | None:
    there = sorted(ranks, key=_rank_number)
    if there[0].dist:
        away = [(lost.rank, lost.pid, translate("is gone")) for lost in there[0].dist.lost]
    else:
        away = []
    stopped = [
        proc
        for proc in there
        if proc.state in ("T", "t") and _still_seconds(proc) >= RANK_LIMITS.slack_s
    ]
    rest = [proc for proc in there if proc not in stopped and proc.state not in ("Z", "X")]
    if not rest:
        # all are stopped: the run was paused as a whole, which the `halted` alert reports
        return None
    quiet = _newest_output_age(view, there[0].run, logs=False)
    written = any(proc.dist is not None and (proc.dist.flight or proc.dist.ras) for proc in rest)
    if written:
        shown = _find_recorded_verdict(
            rest, quiet, _newest_output_age(view, there[0].run, logs=True)
        )
    else:
        shown = None
    told = ""
    if shown is not None:
        told = shown.text
    if away or stopped:
        waited = min(_waited_seconds(proc, quiet) for proc in rest)
        # A single remaining rank may be finishing, e.g. uploading, while the others have exited.
        patience = RANK_LIMITS.waited_s
        if away and len(rest) == 1:
            patience = RANK_LIMITS.patient_s
        if waited < patience or (quiet is not None and quiet < waited - RANK_LIMITS.slack_s):
            return None
        named = away + [
            (
                _rank_number(proc),
                proc.pid,
                translate("is stopped by a signal (state T){proc}", proc=_activity_suffix(proc)),
            )
            for proc in stopped
        ]
        return StuckTraining(
            GONE if away else STOPPED, there[0].run, tuple(named), tuple(rest), SURE, told=told
        )
    place = compare_ranks(rest)
    if shown is not None and (place is None or place.age >= place.limit):
        return _by_record(shown, rest)
    if place is None or (place.aside and place.age >= place.limit):
        return _judge_by_kernel_view(view, rest, quiet)
    if (
        place.aside
        or place.age < place.limit
        or (quiet is not None and quiet < place.age - RANK_LIMITS.slack_s)
    ):
        return None
    if place.ahead:
        return _judge_ranks_behind(place)
    return _judge_equal_ranks(view, place)


def _by_record(shown: CollectiveVerdict, ranks: Sequence[TrainingProcess]) -> StuckTraining:
    """Name the ranks that the flight recorders name. If they name none or all, all ranks wait."""
    here = {_rank_number(proc): proc for proc in ranks}
    wait = tuple(proc for rank, proc in here.items() if rank not in shown.ranks)
    if not shown.ranks or not wait:
        return StuckTraining(
            ALL,
            ranks[0].run,
            (),
            tuple(ranks),
            shown.confidence,
            _longest_wait_s(ranks),
            shown.text,
        )
    away = tuple(
        (rank, here[rank].pid, _describe_rank(here[rank]))
        if rank in here
        else (rank, None, translate("is not on this machine"))
        for rank in shown.ranks
    )
    return StuckTraining(AWAY, ranks[0].run, away, wait, shown.confidence, told=shown.text)


def _longest_wait_s(ranks: Sequence[TrainingProcess]) -> float:
    return max(max(_still_seconds(proc), _spin_seconds(proc)) for proc in ranks)


def _judge_ranks_behind(place: RankComparison) -> StuckTraining | None:
    """Name the ranks that are less advanced than the others."""
    if place.is_exact:
        return _build_stuck(AWAY, place.behind, place.ahead, LIKELY)
    if place.phases == {"collective"}:  # the others got past it, so they are not in the same one
        if place.age >= RANK_LIMITS.alone_s:
            return _all_wait(place)
        return None
    return _in_its_loop(place, place.behind, place.ahead)


def _judge_equal_ranks(view: BoxFacts, place: RankComparison) -> StuckTraining | None:
    """Judge ranks that are all at the same point of a step.

    The kernel shows which ones wait there.
    """
    ranks = place.behind
    together = _ranks_in_collective(ranks)
    away = [proc for proc in ranks if proc not in together]
    if place.phases == {"data"}:
        return _judge_by_kernel_view(
            view, ranks, _newest_output_age(view, ranks[0].run, logs=False)
        )
    if not together or len(away) > len(together):
        return None
    if not away:
        if place.age >= RANK_LIMITS.alone_s:
            return _all_wait(place)
        return None
    if place.is_exact:
        if place.age >= RANK_LIMITS.alone_s:
            return _build_stuck(AWAY, away, together, LIKELY)
        return None
    return _in_its_loop(place, away, together)


def _in_its_loop(
    place: RankComparison, away: Sequence[TrainingProcess], wait: Sequence[TrainingProcess]
) -> StuckTraining | None:
    """Name ranks that are in the user's own code.

    Rank 0 gets more time, as it may have work of its own.
    """
    if all(
        _still_seconds(proc) >= RANK_LIMITS.asleep_s and _waits_in(proc, SLEEPS) for proc in away
    ):
        return _build_stuck(AWAY, away, wait, LIKELY)
    if any(_rank_number(proc) == 0 for proc in away):
        patience = RANK_LIMITS.patient_s
    else:
        patience = RANK_LIMITS.alone_s
    if place.age >= patience:
        return _build_stuck(AWAY, away, wait, MAYBE)
    return None


def _all_wait(place: RankComparison) -> StuckTraining:
    ranks = (*place.behind, *place.ahead)
    return StuckTraining(ALL, ranks[0].run, (), ranks, MAYBE, place.age)


def _ranks_in_collective(ranks: Sequence[TrainingProcess]) -> list[TrainingProcess]:
    """Return the ranks in a collective. If most ranks spin, spinning is the collective."""
    spinning = [proc for proc in ranks if _spin_seconds(proc) >= RANK_LIMITS.waited_s]
    blocked = [
        proc
        for proc in ranks
        if _still_seconds(proc) >= RANK_LIMITS.waited_s and _waits_in(proc, COLLECTIVE)
    ]
    if len(spinning) > len(blocked):
        return spinning
    return blocked


def _judge_by_kernel_view(
    view: BoxFacts, ranks: Sequence[TrainingProcess], quiet: float | None
) -> StuckTraining | None:
    """Separate the ranks in a collective from those elsewhere, using only the kernel's view."""
    together = _ranks_in_collective(ranks)
    away = [proc for proc in ranks if proc not in together]
    if not together:
        return None
    waited = min(max(_still_seconds(proc), _spin_seconds(proc)) for proc in together)
    if quiet is not None and quiet < waited - RANK_LIMITS.slack_s:
        return None
    asleep = [
        proc
        for proc in away
        if _still_seconds(proc) >= RANK_LIMITS.asleep_s and _waits_in(proc, SLEEPS)
    ]
    if asleep and asleep == away and _waits_in(together[0], COLLECTIVE):
        return _build_stuck(AWAY, asleep, together, LIKELY)
    still = [
        age for age in (quiet, _newest_output_age(view, ranks[0].run, logs=True)) if age is not None
    ]
    if waited < RANK_LIMITS.patient_s or not still or min(still) < RANK_LIMITS.patient_s:
        return None
    if not away:
        return StuckTraining(ALL, ranks[0].run, (), tuple(ranks), MAYBE)
    if len(away) <= len(together):
        return _build_stuck(AWAY, away, together, MAYBE)
    return None


def _build_stuck(
    page: str, away: Sequence[TrainingProcess], wait: Iterable[TrainingProcess], confidence: float
) -> StuckTraining:
    told = tuple((_rank_number(proc), proc.pid, _describe_rank(proc)) for proc in away)
    return StuckTraining(page, away[0].run, told, tuple(wait), confidence)


def _activity_suffix(proc: TrainingProcess) -> str:
    """Return what a rank itself reports that it is doing."""
    told = describe_phase(proc)
    return told and f", {told}"


def _describe_rank(proc: TrainingProcess) -> str:
    told = describe_phase(proc)
    if told:
        return translate("is {phase}: {activity}", phase=told, activity=_describe_activity(proc))
    return _describe_activity(proc)


def _describe_activity(proc: TrainingProcess) -> str:
    if proc.dist is not None:
        where = proc.dist.stack or proc.dist.wait
    else:
        where = None
    told = f" ({where})" if where else ""
    if proc.state == "D":
        return translate("waits for a disk or a file server (state D){told}", told=told)
    if _still_seconds(proc) >= RANK_LIMITS.waited_s:
        what = next(
            (translate(words) for words, names in ELSEWHERE.items() if _waits_in(proc, names)),
            translate("waits for something else"),
        )
        return f"{what}{told}"
    if _spin_seconds(proc) >= RANK_LIMITS.waited_s:
        return translate("computes by itself")
    return translate("works by itself")


def _rank_number(proc: TrainingProcess) -> int:
    if proc.dist is not None:
        return proc.dist.rank
    return 0


def _still_seconds(proc: TrainingProcess) -> float:
    return (proc.dist.still_s if proc.dist is not None else None) or 0.0


def _spin_seconds(proc: TrainingProcess) -> float:
    return (proc.dist.spin_s if proc.dist is not None else None) or 0.0


def _waits_in(proc: TrainingProcess, names: Sequence[str]) -> bool:
    return proc.dist is not None and (proc.dist.wait or "").startswith(tuple(names))


def _waited_seconds(proc: TrainingProcess, quiet: float | None) -> float:
    """Return for how long a rank has waited. Spinning counts as work while the curve advances."""
    spun = 0.0
    if quiet is not None:
        spun = min(_spin_seconds(proc), quiet - RANK_LIMITS.waited_s)
    still = 0.0
    if proc.dist is None or not proc.dist.wait or _waits_in(proc, COLLECTIVE):
        still = _still_seconds(proc)
    return max(still, spun)


def _newest_output_age(view: BoxFacts, name: str | None, *, logs: bool) -> float | None:
    """Return the age of a training's newest curve point or log line at the time of the sample.

    Args:
        view: The facts.
        name: The training; None = any run.
        logs: Use the logs instead of the curves.
    """
    box = view.box
    if logs:
        paths = {cell.log for cell in view.cells if cell.name == name}
        paths.update(
            path for found in box.found if found.name == name for path in (found.log, *found.logs)
        )
        ages = [
            log.at for log in box.logs if log.path in paths and log.at is not None and log.lines
        ]
    else:
        runs = [run for run in box.runs if name is None or training_of(run.name, {name}) == name]
        ages = [run.progressed_at for run in runs if run.progressed_at is not None]
    if ages:
        return max(0.0, (box.sample_at or view.now) - max(ages))
    return None


def _format_ranks(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[: RANK_LIMITS.named]))
    more = ""
    if len(numbers) > RANK_LIMITS.named:
        more = translate(" and {numbers} more", numbers=len(numbers) - RANK_LIMITS.named)
    return f"{noun(len(numbers), 'rank')} {shown}{more}"


def _build_proof(found: StuckTraining) -> EntryProof:
    waiting = [_rank_number(proc) for proc in found.wait]
    first = found.wait[0].dist
    assert first is not None
    where = [
        told for told in (describe_phase(found.wait[0]) if found.away else "", first.wait) if told
    ]
    at = ""
    if where:
        at = f" ({'; '.join(where)})"
    if len(waiting) > 1:
        verb = "wait"
    else:
        verb = "waits"
    by_record = ""
    if found.told:
        by_record = f"; {found.told}"
    if not found.away:
        text = translate(
            "all {waiting} ranks here wait{at}, and {found}{by_record}",
            waiting=len(waiting),
            at=at,
            found=_describe_stall(found),
            by_record=by_record,
        )
        return EntryProof(
            text,
            resource=translate("all ranks of {world}", world=first.world),
            run=found.run,
            fixes=_list_fixes(found),
            confidence=found.confidence,
        )
    told = "; ".join(
        f"rank {rank}{f' (pid {pid})' if pid is not None else ''} {why}"
        for rank, pid, why in found.away[: RANK_LIMITS.named]
    )
    rank, pid, _ = found.away[0]
    return EntryProof(
        translate(
            "{told}; {waiting} {verb} for it{at}{by_record}",
            told=told,
            waiting=_format_ranks(waiting),
            verb=verb,
            at=at,
            by_record=by_record,
        ),
        resource=translate("rank {rank} of {world}", rank=rank, world=first.world)
        + (f" (pid {pid})" if pid is not None else ""),
        run=found.run,
        fixes=_list_fixes(found),
        confidence=found.confidence,
    )


def _describe_stall(found: StuckTraining) -> str:
    """Return for how long nothing has advanced while all ranks wait, and where each waits."""
    told: dict[str, list[int]] = {}
    for proc in found.wait:
        told.setdefault(describe_phase(proc), []).append(_rank_number(proc))
    if "" in told:
        if found.told:
            return translate("no progress for {age}", age=format_duration(found.age))
        return translate(
            "nothing has been logged for {patient}",
            patient=format_duration(RANK_LIMITS.patient_s),
        )
    first = found.wait[0].dist
    missing = first is not None and len(found.wait) < first.world
    return translate("no progress for {age}: ", age=format_duration(found.age)) + "; ".join(
        [
            f"{_format_ranks(ranks)} {words}"
            for words, ranks in list(told.items())[: RANK_LIMITS.named]
        ]
        + [translate("the one that they wait for may be on another machine")] * missing
    )


_SHOW_RANKS = "ps -o pid,ppid,stat,wchan:24,etime,args -p {n}"
_SHOW_KILLS = "dmesg -T | grep -iE 'oom|killed process' | tail"
STEP_COMMANDS = (_SHOW_RANKS, _SHOW_KILLS)
"""Commands of the steps below that only look, with ``{n}`` for pids."""


def _list_fixes(found: StuckTraining) -> tuple[FixStep, ...]:
    """Return the steps that fix it, with the pids of this box. Inspecting comes before changing."""
    # A box may report any number as a pid, and to ``kill`` -1 means all processes.
    pids = [pid for _, pid, _ in found.away if pid is not None and pid > 1]
    others = [proc.pid for proc in found.wait if proc.pid > 1]
    keep = [
        FixStep(
            translate("Save the stack of {whose} before you restart anything", whose=whose),
            f"py-spy dump --pid {pid}",
        )
        for whose, known in (
            ("it", [] if found.page == GONE else pids),
            (translate("one that waits"), others),
        )
        for pid in known[:1]
    ]
    dumps = [proc.dist.dump for proc in found.wait if proc.dist is not None and proc.dist.dump]
    if dump := next((path for path in dumps if path.startswith("/") and is_exact_path(path)), None):
        folder, name = posixpath.split(dump)
        prefix = name.rstrip("0123456789")
        compare = f"torchfrtrace {shlex.quote(folder)} --prefix {shlex.quote(prefix)}"
        keep.append(
            FixStep(
                translate(
                    "The flight recorder has written: compare which collective each rank reached"
                ),
                compare,
            )
        )
    ps = ",".join(map(str, (*pids, *others)))
    look = FixStep(translate("See what state each rank is in"), _SHOW_RANKS.replace("{n}", ps))
    last = FixStep(
        translate("Then stop the launch and start it again: it resumes from its newest checkpoint")
    )
    if found.page == STOPPED and pids:
        return (
            look,
            FixStep(
                translate("Let the stopped rank continue: the others only wait"),
                f"kill -CONT {' '.join(map(str, pids))}",
            ),
            *keep[1:],
        )
    if found.page == GONE:
        why = FixStep(
            translate("Find out why it ended: its first error in the log, or a kill by the kernel"),
            _SHOW_KILLS,
        )
        return (why, look, *keep, last)  # fmt: skip
    return (
        look,
        *keep,
        FixStep(
            translate("Where NCCL's own client is installed, it names the rank that is missing"),
            "ncclras",
        ),
        last,
    )


def prove_stopped(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the ranks that a signal has stopped while the others wait."""
    return _iterate_proofs(view, STOPPED)


def prove_gone(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the ranks that are gone while the others wait."""
    return _iterate_proofs(view, GONE)


def prove_away(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the ranks that do something else while the others wait in a collective."""
    return _iterate_proofs(view, AWAY)


def prove_all_wait(view: BoxFacts) -> Iterator[EntryProof]:
    """Yield the trainings whose ranks all wait without progress."""
    return _iterate_proofs(view, ALL)


def _iterate_proofs(view: BoxFacts, page: str) -> Iterator[EntryProof]:
    return (_build_proof(found) for found in find_stuck_trainings(view) if found.page == page)


def pid_of(finding: Finding) -> str | None:
    """Return the pid of the rank that a finding is about."""
    _, found, rest = finding.resource.partition("(pid ")
    if found:
        return rest.rstrip(")")
    return None


def _find_recorded_verdict(
    ranks: Sequence[TrainingProcess], quiet: float | None, silent: float | None
) -> CollectiveVerdict | None:
    """Return the surest verdict of flight recorder dumps and NCCL; None = no verdict, or outdated.

    A dump shows one moment: it counts only until the launch advances.

    Args:
        ranks: The ranks of a launch that exist.
        quiet: Seconds since its curve advanced; None = unknown.
        silent: Seconds since its log advanced.
    """
    dumps = []
    stands = False
    for proc in ranks:
        if proc.dist is None or proc.dist.flight is None:
            continue
        try:
            dumps.append(collectives.dump_of(proc.dist.flight, proc.dist.rank))
        except ValueError:
            continue
        stands = stands or _stands_since_dump(proc, quiet, silent)
    if stands:
        found = [
            (translate("flight recorder"), verdict) for verdict in collectives.compare_dumps(dumps)
        ]
    else:
        found = []
    if quiet is None or quiet >= RANK_LIMITS.waited_s:
        told = [
            proc.dist.ras for proc in ranks if proc.dist is not None and proc.dist.ras is not None
        ]
        answers = [value for value in told if collectives.is_ras_json(value)]
        found += [
            ("ncclras", verdict)
            for value in answers
            for verdict in collectives.of_ras_json(value, twice=True)
        ]
    if not found:
        return None
    source, best = max(found, key=lambda one: one[1].confidence)
    return best._replace(text=f"{source}: {best.text}")


def _stands_since_dump(proc: TrainingProcess, quiet: float | None, silent: float | None) -> bool:
    """Return whether a rank has not advanced since its dump was written."""
    assert proc.dist is not None and proc.dist.flight is not None
    age, opened = (
        _float_or_zero(proc.dist.flight.get("age_s")),
        _float_or_zero(proc.dist.flight.get("open_s")),
    )
    since = max(age - RANK_LIMITS.slack_s, RANK_LIMITS.waited_s)
    beat = heartbeat_of(proc)
    if beat is not None:
        return beat.for_s >= since
    if quiet is not None and quiet < since:
        return False
    if (proc.dist.still_s or 0.0) >= since or quiet is not None:
        return True
    if silent is not None:
        return silent >= since
    return (
        (proc.dist.spin_s or 0.0) >= since
        and opened >= RANK_LIMITS.open_s
        and age <= RANK_LIMITS.fresh_s
    )


def _float_or_zero(value: object) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    return 0.0


# How far each rank of a training is by its heartbeat, and which one lags behind. Pure.
#
# Our own trainer sends heartbeats, and so do other trainers with our callback. The ranks in an
# earlier step or phase are the ones the others wait for, because a later phase cannot block on
# anything else. The time limit of a step comes from the ranks' own measurements.


class RankComparison(NamedTuple):
    """How the ranks of a training compare with each other.

    Attributes:
        age: Seconds since any of them last advanced.
        limit: Seconds without progress that are acceptable.
        behind: The ranks that are least advanced.
        ahead: The others; () = all are at the same point.
        aside: One of them evaluates, saves, starts or ends.
    """

    age: float
    limit: float
    behind: tuple[TrainingProcess, ...]
    ahead: tuple[TrainingProcess, ...]
    aside: bool

    @property
    def phases(self) -> frozenset[str]:
        """The phases of the ranks that are behind."""
        return frozenset(
            beat.phase for proc in self.behind if (beat := heartbeat_of(proc)) is not None
        )

    @property
    def is_exact(self) -> bool:
        """Whether it is known what the ranks behind are doing."""
        return self.phases <= EXACT


def compare_ranks(ranks: Sequence[TrainingProcess]) -> RankComparison | None:
    """Compare the ranks; None if one of them has no heartbeat, or is in an unknown phase."""
    beats = [
        beat
        for proc in ranks
        if (beat := heartbeat_of(proc)) is not None and beat.phase in PHASE_WORDS
    ]
    if not ranks or len(beats) < len(ranks):
        return None
    aside = [beat for beat in beats if beat.phase not in ORDER]
    if aside:
        oldest = min(beat.for_s for beat in aside)
        # Seconds for which a rank may evaluate, save, start or end while the others wait, without
        # being a hang.
        aside_s = 1800.0
        return RankComparison(oldest, aside_s, (), (), aside=True)
    places = [(beat.step, ORDER[beat.phase]) for beat in beats]
    first = min(places)
    return RankComparison(
        min(beat.for_s for beat in beats),
        _stall_limit_s(beats),
        tuple(proc for proc, place in zip(ranks, places, strict=True) if place == first),
        tuple(proc for proc, place in zip(ranks, places, strict=True) if place != first),
        aside=False,
    )


def heartbeat_of(proc: TrainingProcess) -> Heartbeat | None:
    """Return the heartbeat of a rank, if it has one."""
    if proc.dist is not None:
        return proc.dist.beat
    return None


def describe_phase(proc: TrainingProcess) -> str:
    """Return what a rank is doing, such as ``in the forward pass of step 41 for 32 s``.

    "" = unknown.
    """
    beat = heartbeat_of(proc)
    if beat is None or beat.phase not in PHASE_WORDS:
        return ""
    if beat.phase in ORDER:
        of = translate(" of step {step}", step=beat.step + 1)
    else:
        of = translate(" after step {step}", step=beat.step)
    return translate(
        "{phase}{of} for {time}",
        phase=translate(PHASE_WORDS[beat.phase]),
        of=of,
        time=format_duration(beat.for_s),
    )


def _stall_limit_s(beats: Sequence[Heartbeat]) -> float:
    # Steps after which the duration of a step is known.
    measured = 3
    # Time limit before that: the first step compiles, loads and fills caches.
    unmeasured_s = 300.0
    if min(beat.steps for beat in beats) < measured:
        return unmeasured_s
    usual = FACTOR * max(beat.usual_s for beat in beats)
    slowest = OVER_SLOWEST * max(beat.slowest_s for beat in beats)
    # Seconds without progress before the ranks are compared.
    soon_s = 20.0
    return max(soon_s, usual, min(slowest, unmeasured_s))
