"""The vitals of a box: GPUs, memory, CPU, disks, processes, checkpoints and the link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rgt_tui.fleet import words
from rgt_tui.health import (
    DISK_ERROR_PCT,
    DISK_WARN_PCT,
    MEMORY_ERROR_PCT,
    MEMORY_WARN_PCT,
    box_words,
    of_box,
)
from rgt_tui.model import (
    BoxState,
    Cpu,
    Disk,
    Health,
    Proc,
    Profile,
    Sample,
    Verb,
    Workers,
    short_command,
)
from rgt_tui.profiles import (
    Storage,
    byte_pct,
    how_many,
    inode_pct,
    is_absent,
    memory_pct,
    path_survives,
    saved_point,
    stale_after,
    storage_of,
)
from rgt_tui.ui.box_status import old_mark
from rgt_tui.ui.notation import (
    NONE,
    clock,
    compact_time,
    gib,
    gib_of,
    glyphs,
    memory,
    percent,
    size,
    thousands,
)
from rgt_tui.ui.widgets.bars import bar
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import level
from rgt_tui.ui.widgets.gpu_cards import gpu_sections, in_trouble
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip,
    dim,
    fit,
    joined,
    line,
    pick,
    spread,
    toned,
    width_of,
    wrapped,
)

STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk",
    "Z": "zombie: ended, not yet reaped",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "I": "idle",
    "X": "dead",
}
"""State letters of /proc/PID/stat (proc_pid_stat(5))."""
STUCK = frozenset("DZTt")
MOST_PROCS = 64
"""The agent reports up to 32; more are counted, not drawn."""
DEEPEST = 6
LONGEST_USER = 12
LEAST_COMMAND = 10
"""Minimum cells of the command; the age and the threads are dropped before it gets shorter."""
WORDY = 56
"""Minimum width to show the user of each process."""


def is_old(box: BoxState, now: float) -> bool:
    """Return whether the last sample is too old for a live box."""
    return box.sample_at is None or now - box.sample_at > stale_after(box)


def faded(lines: list[Line], *, old: bool) -> list[Line]:
    """Dim the lines if their values are old; warnings and badges keep their tone."""
    if not old:
        return lines
    keep = {Tone.TROUBLE, Tone.WARN, Tone.BADGE}
    return [tuple(span if span.tone in keep else dim(span.text) for span in made) for made in lines]


def memory_lines(box: BoxState, width: int) -> list[Line]:
    """Return the container's memory against its limit, and the host's memory separately."""
    if box.sample is None:
        return [line(dim("no sample yet"))]
    mem = box.sample.mem
    share = memory_pct(mem)
    tone = level(share, MEMORY_WARN_PCT, MEMORY_ERROR_PCT)
    used = None if mem.used is None else max(0, mem.used - (mem.cache or 0))
    if mem.limit:
        now, most = gib_of(used, mem.limit)
        label = line(now, dim(most))
    else:
        label = line(memory(used), dim(" no limit" if mem.cgroup else " limit unknown"))
    room = max(4, width - 20)
    whole = 0.9  # the limit is drawn inside the bar, so that it is visible
    out = [
        spread(
            (
                bar(None if share is None else share * whole, room, tone=tone, limit=100 * whole)
                if mem.limit
                else EMPTY
            ),
            label,
            width,
        )
    ]
    kills = mem.oom_kills
    killed = Span(
        f"oom kills {NONE if kills is None else kills}", Tone.TROUBLE if kills else Tone.TEXT
    )
    ways: tuple[str, ...] = (f"  cache {memory(mem.cache)}",)
    if mem.host_total:
        cache, host = f"  cache {gib(mem.cache)}", "".join(gib_of(mem.host_used, mem.host_total))
        bare = host.removesuffix(" GiB")
        ways = (
            f"{cache}  host {host}",
            f"{cache}  host {bare}",
            f"  host {host}",
            f"  host {bare}",
        )
    fitting = next((way for way in ways if width_of((killed, Span(way))) <= width), ways[-1])
    out.append(clip((killed, dim(fitting)), width))
    return out


def disk_lines(box: BoxState, profile: Profile | None, width: int) -> list[Line]:
    """Return a line per mount: bytes, inodes, and whether it survives a stop and a destroy."""
    disks = box.sample.disks if box.sample else ()
    if not disks:
        return [line(dim("no sample yet" if box.sample is None else "no mounts"))]
    fates = {verb: storage_of(box, profile, verb) for verb in Verb}
    there = [disk for disk in disks if not is_absent(disk, box)]
    missing = ", ".join(disk.mount for disk in disks if is_absent(disk, box))
    lines = [made for disk in there for made in _disk(disk, profile, fates, width)]
    if missing:
        return [*lines, line(dim(fit(f"not on this box: {missing}", width)))]
    return lines


def _disk(
    disk: Disk, profile: Profile | None, fates: Mapping[Verb, Storage], width: int
) -> list[Line]:
    tail = 13 + (5 if profile else 0)
    mount = Span(fit(disk.mount, max(4, width - tail)))
    if disk.error:
        return [line(mount, Span(f" {disk.error}", Tone.TROUBLE))]
    used, inodes = byte_pct(disk), inode_pct(disk)
    quiet = disk.read_only
    spans = [
        mount,
        _share(used, 6, quiet=quiet),
        _share(inodes, 7, quiet=quiet),
        *(_survives(profile, disk.mount, fates) if profile else ()),
    ]
    out: list[Line] = [tuple(spans)]
    for doubt in fates[Verb.DESTROY].doubts_at(disk.mount):
        if doubt.mount == disk.mount:
            out += wrapped(f"{glyphs().warn} {doubt.text}", width, Tone.WARN)
    for hog in disk.hogs[:3]:
        out.append(
            line(
                dim(fit(f"  {hog.path}", max(4, width - 15)) + f"{thousands(hog.inodes):>9} files")
            )
        )
    if quiet:
        return [toned(out[0], Tone.DIM), *out[1:]]
    return out


def _share(value: float | None, width: int, *, quiet: bool) -> Span:
    tone = Tone.DIM if quiet else level(value, DISK_WARN_PCT, DISK_ERROR_PCT)
    return Span(fit(percent(value), width, right=True), tone)


def _survives(profile: Profile, mount: str, fates: Mapping[Verb, Storage]) -> tuple[Span, ...]:
    stop, destroy = (path_survives(mount, profile, fates[verb].known, verb) for verb in Verb)
    doubted = (
        Span(f" {glyphs().warn}", Tone.WARN) if fates[Verb.DESTROY].doubts_at(mount) else Span("  ")
    )
    return (doubted, _badge("s", stop), Span(" "), _badge("d", destroy))


def _badge(letter: str, value: bool | None) -> Span:
    if value is None:
        return dim("?")
    if value:
        return Span(letter, Tone.ACCENT)
    return dim(glyphs().unknown)


SURVIVAL_LEGEND: Line = line(
    Span("s", Tone.ACCENT), dim(" survives stop  "), Span("d", Tone.ACCENT), dim(" destroy")
)


def vitals_sections(
    box: BoxState,
    profile: Profile,
    width: int,
    now: float,
    *,
    short: bool,
    health: Health = Health.STALE,
) -> list[Section]:
    """Return GPUs, memory, CPU, disks, processes, checkpoints and the link.

    If not all fits, disks and memory come first, because they kill runs silently; a GPU in trouble
    comes before them.

    Args:
        box: The box.
        profile: The platform's profile.
        width: Inner width of the pane.
        now: Client clock.
        short: Whether not all fits.
        health: Why its values are old, if they are.
    """
    old = is_old(box, now)
    version = box.sample.mem.cgroup if box.sample else None
    if old and box.sample_at:
        age = line(dim(f"{old_mark(health)} {compact_time(now - box.sample_at)} old"))
    else:
        age = None
    gpus = [
        Section(p.title, faded(list(p.body), old=old), p.hint) for p in gpu_sections(box, width)
    ]
    memory = Section(
        line("memory", dim(f" (cgroup v{version})" if version else "")),
        faded(memory_lines(box, width), old=old),
    )
    disks = Section(
        line("disks"),
        faded(disk_lines(box, profile, width), old=old),
        line(dim("bytes  inodes     ")),
    )
    cpu = Section(line("cpu"), faded(cpu_lines(box, width), old=old))
    processes = Section(line("processes"), faded(process_lines(box, width), old=old))
    parts = [*gpus, disks, memory, cpu, processes]
    if not short:
        parts = [*gpus, memory, cpu, disks, processes]
    elif not in_trouble(box):
        parts = [disks, memory, *gpus, cpu, processes]
    if age is not None:
        parts[0] = parts[0]._replace(title=line(*parts[0].title, "  ", *age))
    checkpoints = checkpoint_lines(box, width, now)
    if checkpoints:
        parts.append(Section(line("checkpoints"), checkpoints))
    if own := own_stop_lines(box, width, now):
        parts.append(Section(line("stops itself"), own))
    parts.append(Section(line("link"), link_lines(box, width, now)))
    return parts


def own_stop_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return the state or result of the box's own stop, and how to postpone it.

    Empty without one.
    """
    words = box_words(box, now)
    if not words:
        return []
    first, *rest = wrapped(words, max(8, width - 2), most=3)
    out = [line(f"{glyphs().power} ", first), *(line("  ", more) for more in rest)]
    if of_box(box):
        out.append(line(dim(f"postpone it: rgt keep {box.spec.name} 2h")))
    return out


def checkpoint_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return the newest checkpoint of each run with its age."""
    out: list[Line] = []
    skew = box.clock_skew or 0.0
    for run in box.checkpoints[-3:]:
        name = fit(run.run, min(14, max(6, width - 34)))
        if run.items:
            newest = run.items[-1]
            saved = line(f"{name} {saved_point(newest)}")
            right = [
                (2, line(dim(f"{len(run.items)} kept"))),
                (1, line(size(newest.bytes))),
                (0, line(dim(f"{compact_time(now + skew - newest.at)} ago"))),
            ]
            out.append(spread(saved, pick(width - width_of(saved) - 2, right), width))
        for begun in run.writing[-1:]:
            text = line(dim(f"{name} {saved_point(begun)} not complete"))
            right = [
                (1, line(size(begun.bytes))),
                (0, line(dim(f"{compact_time(now + skew - begun.at)} ago"))),
            ]
            out.append(spread(text, pick(width - width_of(text) - 2, right), width))
    return out


def link_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return the state of the connection, and counts that prove the stream is complete."""
    counters = box.counters
    sure = counters.gaps == 0 and counters.duplicates == 0
    since = f" {compact_time(now - box.since)}" if box.since else ""
    said = f"{box.link.value}{since}"
    why = wrapped(box.reason, max(8, width - len(said) - 2), Tone.DIM, most=3) or [EMPTY]
    out = [
        line(said if place == 0 else " " * len(said), "  ", *row) for place, row in enumerate(why)
    ]
    stream = ", ".join(
        (
            how_many(counters.samples, "sample"),
            how_many(counters.gaps, "gap"),
            how_many(counters.duplicates, "duplicate"),
        )
    )
    out.append(line(dim(stream) if sure else Span(stream, Tone.WARN)))
    if box.interval is not None and box.interval != box.spec.interval:
        out.append(line(dim(f"sampled every {box.interval:g} s")))
    if box.remembered_at is not None and box.sample is None:
        out.append(line(dim(f"values recorded at {clock(box.remembered_at)} by an earlier rgt")))
    out += limited_lines(box, width)
    if box.hello is not None:
        rss = memory(box.sample.agent_rss) if box.sample and box.sample.agent_rss else ""
        python = f"python {box.hello.python}" if box.hello.python else ""
        parts = (f"agent {box.hello.agent[:8]}", python, rss)
        out.append(line(dim("  ".join(part for part in parts if part))))
    return out


def limited_lines(box: BoxState, width: int) -> list[Line]:
    """Return what does not work on this box, and why."""
    agents = box.hello.limited if box.hello is not None else ()
    reasons = dict.fromkeys((*box.limited, *agents))
    said = [f"limited: {text}" for text in list(reasons)[:5]] + list(words(box.left_out))
    return [row for text in said for row in wrapped(f"{glyphs().warn} {text}", width, Tone.WARN)]


# The training processes of a box as a tree, and the CPU cores that they share.


def process_lines(box: BoxState, width: int) -> list[Line]:
    """Return the training processes as a tree, each with its forked workers."""
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
    """Yield each process once with its depth, children after their parent; cycles are flattened."""
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
    """Return the GPU indexes per process; empty if the driver's pids are of another namespace."""
    held: dict[int, list[int]] = {}
    for gpu in sample.gpus if sample is not None else ():
        for user in gpu.procs:
            if user.mapped:
                held.setdefault(user.pid, []).append(gpu.index)
    return {pid: tuple(cards) for pid, cards in held.items()}


def _process(
    proc: Proc, depth: int, cards: tuple[int, ...], width: int, *, whose: bool
) -> list[Line]:
    bad = proc.state in STUCK
    wordy = width >= WORDY
    state = (proc.state or "?")[:1]
    user = fit(proc.user, min(LONGEST_USER, len(proc.user))) if proc.user is not None else ""
    age = "" if proc.age_s is None else f"  {compact_time(proc.age_s)}"
    if cards:
        gpus = f"  gpu {','.join(map(str, cards[:8]))}{glyphs().ellipsis if len(cards) > 8 else ''}"
    else:
        gpus = ""
    threads = f"  {proc.threads or NONE} thr"
    branch = f"{'  ' * (depth - 1)}{BRANCH[glyphs().braille]}" if depth else ""
    named = short_command(proc.cmd)
    left = line(
        dim(f"{branch}{proc.pid} "),
        Span(f"{state} ", Tone.TROUBLE if bad else Tone.DIM),
        dim(f"{user} ") if user and (wordy or whose) else EMPTY,
        named,
    )
    rights = [
        line(gpus, f"  {memory(proc.rss)}", dim(more)) for more in (threads + age, threads, "")
    ]
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
"""Keyed by whether the terminal can show more than ASCII."""


def _workers(workers: Workers) -> Line:
    counts = [(letter[:1], count) for letter, count in sorted(workers.states.items())[:8]]
    states = [
        Span(f" {count} {letter}", Tone.TROUBLE if letter in STUCK else Tone.DIM)
        for letter, count in counts
    ]
    return line(
        dim(f"{how_many(workers.count, 'worker')}, {how_many(workers.threads, 'thread')} "), *states
    )


def cpu_lines(box: BoxState, width: int) -> list[Line]:
    """Return the granted CPU cores, and the threads that compete for them."""
    sample = box.sample
    if sample is None:
        return [line(dim("no sample yet"))]
    cpu = sample.cpu
    load = line(dim("load "), f"{cpu.load1:.1f}") if cpu.load1 is not None else EMPTY
    if cpu.quota is not None or cpu.cores is not None or load:
        out = [spread(_granted(cpu), load, width)]
    else:
        out = []
    if cpu.throttled_pct:
        out += wrapped(
            f"throttled by the quota {percent(cpu.throttled_pct)} of the time", width, Tone.WARN
        )
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
    usable = (
        cpu.usable if cpu.usable is not None else cpu.quota if cpu.quota is not None else cpu.cores
    )
    share = f" {glyphs().dot} {(own + theirs) / usable:.1f} a core" if usable else ""
    crowd = f", {how_many(forked, 'worker')}" if forked else ""
    many = how_many(len(sample.procs), "process", "processes")
    text = f"{how_many(own + theirs, 'thread')}{share} ({many}{crowd})"
    if cpu.oversubscribed:
        out = wrapped(
            f"{glyphs().warn} {text}: they slow each other down", width, Tone.WARN, most=3
        )
    else:
        out = wrapped(text, width, Tone.DIM, most=2)
    asked = [proc.omp for proc in sample.procs if proc.omp is not None]
    if asked and usable:
        over = sum(asked) > usable
        low, high, times = min(asked), max(asked), glyphs().times
        each = (
            f"{low} {times} {len(asked)} = {sum(asked)}"
            if low == high and len(asked) > 1
            else f"{low}"
        )
        words = f"OMP_NUM_THREADS {each if low == high else f'{low} to {high}'}"
        more = f", {usable:g} cores" if over else ""
        out += joined(
            [line(Span(f"{words}{more}", Tone.WARN if over and cpu.oversubscribed else Tone.DIM))],
            width,
        )
    return out
