"""The training processes of a box as a tree, and the cores that they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rgt_tui.model import BoxState, Cpu, Proc, Sample, Workers, short_command
from rgt_tui.profiles import how_many
from rgt_tui.ui.notation import NONE, compact_time, glyphs, memory, percent
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim,
    fit,
    joined,
    line,
    spread,
    width_of,
    wrapped,
)

STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk",
    "Z": "has ended, not yet reaped",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "I": "idle",
    "X": "dead",
}
"""Letters of /proc/PID/stat (proc_pid_stat(5))."""
STUCK = frozenset("DZTt")
MOST_PROCS = 64
"""An agent tells of 32; what claims more is counted, not drawn."""
DEEPEST = 6
LONGEST_USER = 12
LEAST_COMMAND = 10
"""Cells of the command that are worth more than the age, and the threads."""
WORDY = 56
"""From this width on user, state and age stand in each line."""


def process_lines(box: BoxState, width: int) -> list[Line]:
    """Return the training processes, children below their parents, each with the workers that it has forked off."""
    sample = box.sample
    procs = sample.procs if sample else ()
    unseen = sample.unseen if sample else None
    held = held_cards(sample)
    users = {proc.user for proc in procs}
    shown = [
        made
        for proc, depth in tree(procs[:MOST_PROCS])
        for made in _process(proc, depth, held.get(proc.pid, ()), width, whose=len(users) > 1)
    ]
    if len(procs) > MOST_PROCS:
        shown.append(line(dim(f"and {len(procs) - MOST_PROCS} more")))
    if unseen is not None:
        others = f"{'others' if shown else 'processes'} unknown: {unseen}"
        return [*shown, line(Span(others, Tone.WARN))]
    return shown or [line(dim("no sample yet" if sample is None else "no training process"))]


def tree(procs: Sequence[Proc]) -> Iterator[tuple[Proc, int]]:
    """Yield each process once, a child right after its parent, with its depth; what claims to be a circle is flat."""
    pids = {proc.pid for proc in procs}
    below: dict[int, list[Proc]] = {}
    for proc in procs:
        if proc.ppid in pids and proc.ppid != proc.pid:
            below.setdefault(proc.ppid or 0, []).append(proc)
    done: set[int] = set()

    def walk(proc: Proc, depth: int) -> Iterator[tuple[Proc, int]]:
        if id(proc) in done:
            return
        done.add(id(proc))
        yield proc, min(depth, DEEPEST)
        for child in below.get(proc.pid, ()):
            yield from walk(child, depth + 1)

    for proc in procs:
        if proc.ppid not in pids or proc.ppid == proc.pid:
            yield from walk(proc, 0)
    for proc in procs:
        yield from walk(proc, 0)


def held_cards(sample: Sample | None) -> Mapping[int, tuple[int, ...]]:
    """Return the numbers of the cards whose memory each process holds; nothing where the driver's pids are not ours."""
    held: dict[int, list[int]] = {}
    for gpu in sample.gpus if sample is not None else ():
        for user in gpu.procs:
            if user.mapped:
                held.setdefault(user.pid, []).append(gpu.index)
    return {pid: tuple(cards) for pid, cards in held.items()}


def _process(proc: Proc, depth: int, cards: tuple[int, ...], width: int, *, whose: bool) -> list[Line]:
    bad = proc.state in STUCK
    wordy = width >= WORDY
    state = (proc.state or "?")[:1]
    user = fit(proc.user, min(LONGEST_USER, len(proc.user))) if proc.user is not None else ""
    age = "" if proc.age_s is None else f"  {compact_time(proc.age_s)}"
    gpus = (
        f"  gpu {','.join(map(str, cards[:8]))}{glyphs().ellipsis if len(cards) > 8 else ''}" if cards else ""
    )
    threads = f"  {proc.threads or NONE} thr"
    branch = f"{'  ' * (depth - 1)}{BRANCH[glyphs().braille]}" if depth else ""
    named = short_command(proc.cmd)
    left = line(
        dim(f"{branch}{proc.pid} "),
        Span(f"{state} ", Tone.TROUBLE if bad else Tone.DIM),
        dim(f"{user} ") if user and (wordy or whose) else EMPTY,
        named,
    )
    rights = [line(gpus, f"  {memory(proc.rss)}", dim(more)) for more in (threads + age, threads, "")]
    room = width - width_of(left) + min(len(named), LEAST_COMMAND)
    right = next((one for one in rights if width_of(one) <= room), rights[-1])
    out = [spread(left, right, width)]
    under = " " * (len(branch) + len(str(proc.pid)) + 1)
    if bad:
        out.append(line(under, Span(STATES[proc.state or ""], Tone.TROUBLE)))
    if proc.workers is not None and proc.workers.count > 0:
        out.append(line(under, *_workers(proc.workers)))
    return out


BRANCH = {True: "└ ", False: "`-"}
"""By whether the terminal has more than ASCII."""


def _workers(workers: Workers) -> Line:
    counts = [(letter[:1], count) for letter, count in sorted(workers.states.items())[:8]]
    states = [
        Span(f" {count} {letter}", Tone.TROUBLE if letter in STUCK else Tone.DIM) for letter, count in counts
    ]
    return line(dim(f"{how_many(workers.count, 'worker')}, {how_many(workers.threads, 'thread')} "), *states)


def cpu_lines(box: BoxState, width: int) -> list[Line]:
    """Return the cores that the box grants, and the threads that want them."""
    sample = box.sample
    if sample is None:
        return [line(dim("no sample yet"))]
    cpu = sample.cpu
    load = line(dim("load "), f"{cpu.load1:.1f}") if cpu.load1 is not None else EMPTY
    out = (
        [spread(_granted(cpu), load, width)] if cpu.quota is not None or cpu.cores is not None or load else []
    )
    if cpu.throttled_pct:
        out += wrapped(f"held back by the quota {percent(cpu.throttled_pct)} of the time", width, Tone.WARN)
    return out + _threads(sample, width)


def _granted(cpu: Cpu) -> Line:
    if cpu.quota is not None:
        of = "" if cpu.cores is None else f" of {cpu.cores}"
        return line(f"{cpu.quota:g}{of} cores", dim(" by quota"))
    if cpu.cores is not None:
        return line(f"{how_many(cpu.cores, 'core')}", dim(", no quota"))
    return line(dim("cores unknown"))


def _threads(sample: Sample, width: int) -> list[Line]:
    cpu = sample.cpu
    own = sum(proc.threads or 0 for proc in sample.procs)
    workers = [proc.workers for proc in sample.procs if proc.workers is not None]
    forked, theirs = sum(one.count for one in workers), sum(one.threads for one in workers)
    if not own + theirs:
        return []
    usable = cpu.usable if cpu.usable is not None else cpu.quota if cpu.quota is not None else cpu.cores
    share = f" {glyphs().dot} {(own + theirs) / usable:.1f} a core" if usable else ""
    crowd = f", {how_many(forked, 'worker')}" if forked else ""
    many = how_many(len(sample.procs), "process", "processes")
    text = f"{how_many(own + theirs, 'thread')}{share} ({many}{crowd})"
    out = (
        wrapped(f"{glyphs().warn} {text}: they slow each other down", width, Tone.WARN, most=3)
        if cpu.oversubscribed
        else wrapped(text, width, Tone.DIM, most=2)
    )
    asked = [proc.omp for proc in sample.procs if proc.omp is not None]
    if asked and usable:
        over = sum(asked) > usable
        low, high, times = min(asked), max(asked), glyphs().times
        each = f"{low} {times} {len(asked)} = {sum(asked)}" if low == high and len(asked) > 1 else f"{low}"
        words = f"OMP_NUM_THREADS {each if low == high else f'{low} to {high}'}"
        more = f", {usable:g} cores" if over else ""
        out += joined(
            [line(Span(f"{words}{more}", Tone.WARN if over and cpu.oversubscribed else Tone.DIM))], width
        )
    return out
