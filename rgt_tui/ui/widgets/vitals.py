"""The vitals of a box: GPUs, memory, CPU, disks, processes, checkpoints and the link."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rgt_tui.fleet import describe_dropped
from rgt_tui.health import LIMITS, describe_self_stop, list_readings
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    BillingVerb,
    BoxHealth,
    BoxState,
    CpuReading,
    DiskReading,
    Profile,
    Sample,
    TrainingProcess,
    WorkerSums,
    how_many,
    short_command,
)
from rgt_tui.profiles import (
    JudgedStorage,
    byte_pct,
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
    clock_or_dash,
    compact_time,
    current_glyphs,
    format_thousands,
    gib_of,
    gib_or_dash,
    memory_or_dash,
    percent_or_dash,
    size_or_dash,
)
from rgt_tui.ui.widgets.bars import draw_bar
from rgt_tui.ui.widgets.fleet_rows.fleet_cells import choose_tone
from rgt_tui.ui.widgets.gpu_cards import gpu_sections, in_trouble
from rgt_tui.ui.widgets.panes import PaneSection
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    join_fitting,
    join_parts,
    make_line,
    spread_line,
    tone_line,
    width_of,
    wrap_text,
)

PROCESS_STATES = {
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


def is_old(box: BoxState, now: float) -> bool:
    """Return whether the last sample is too old for a live box."""
    return box.sample_at is None or now - box.sample_at > stale_after(box)


def fade_lines(lines: list[Line], *, old: bool) -> list[Line]:
    """Dim the lines if their values are old; warnings and badges keep their tone."""
    if not old:
        return lines
    keep = {Tone.TROUBLE, Tone.WARN, Tone.BADGE}
    return [
        tuple(span if span.tone in keep else dim_span(span.text) for span in made) for made in lines
    ]


def memory_lines(box: BoxState, width: int) -> list[Line]:
    """Return the container's memory against its limit, and the host's memory separately."""
    if box.sample is None:
        return [make_line(dim_span(translate("no sample yet")))]
    mem = box.sample.mem
    share = memory_pct(mem)
    tone = choose_tone(share, LIMITS.memory_warn_pct, LIMITS.memory_error_pct)
    if mem.used is None:
        used = None
    else:
        # As in `memory_pct`: the kernel can free the cache.
        used = max(0, mem.used - (mem.cache or 0))
    if mem.limit:
        now, most = gib_of(used, mem.limit)
        label = make_line(now, dim_span(most))
    else:
        label = make_line(
            memory_or_dash(used),
            dim_span(translate(" no limit") if mem.cgroup else translate(" limit unknown")),
        )
    room = max(4, width - 20)
    whole = 0.9  # the limit is drawn inside the bar, so that it is visible
    drawn = None
    if share is not None:
        drawn = share * whole
    bar = EMPTY
    if mem.limit:
        bar = draw_bar(drawn, room, tone=tone, limit=100 * whole)
    out = [spread_line(bar, label, width)]
    kills = mem.oom_kills
    kill_count = NONE
    if kills is not None:
        kill_count = str(kills)
    kill_tone = Tone.TEXT
    if kills:
        kill_tone = Tone.TROUBLE
    killed = Span(translate("oom kills {none}", none=kill_count), kill_tone)
    # The longest text that fits is shown.
    ways: tuple[str, ...] = (translate("  cache {bytes}", bytes=memory_or_dash(mem.cache)),)
    if mem.host_total:
        cache = translate("  cache {bytes}", bytes=gib_or_dash(mem.cache))
        host = translate("  host {bytes}", bytes="".join(gib_of(mem.host_used, mem.host_total)))
        bare = host.removesuffix(" GiB")
        ways = (cache + host, cache + bare, host, bare)
    fitting = next((way for way in ways if width_of((killed, Span(way))) <= width), ways[-1])
    out.append(clip_line((killed, dim_span(fitting)), width))
    return out


def disk_lines(box: BoxState, profile: Profile | None, width: int) -> list[Line]:
    """Return a line per mount: bytes, inodes, and whether it survives a stop and a destroy."""
    if box.sample:
        disks = box.sample.disks
    else:
        disks = ()
    if not disks:
        return [
            make_line(
                dim_span(
                    translate("no sample yet") if box.sample is None else translate("no mounts")
                )
            )
        ]
    fates = {verb: storage_of(box, profile, verb) for verb in BillingVerb}
    # A mount that the profile names may not exist on this box: one line for all of them is enough.
    there = [disk for disk in disks if not is_absent(disk, box)]
    missing = ", ".join(disk.mount for disk in disks if is_absent(disk, box))
    lines = [made for disk in there for made in _disk_lines(disk, profile, fates, width)]
    if missing:
        return [
            *lines,
            make_line(
                dim_span(fit_text(translate("not on this box: {missing}", missing=missing), width))
            ),
        ]
    return lines


def _disk_lines(
    disk: DiskReading,
    profile: Profile | None,
    fates: Mapping[BillingVerb, JudgedStorage],
    width: int,
) -> list[Line]:
    # Both shares take 13 cells, the badges 5.
    tail = 13 + (5 if profile else 0)
    mount = Span(fit_text(disk.mount, max(4, width - tail)))
    if disk.error:
        return [make_line(mount, Span(f" {disk.error}", Tone.TROUBLE))]
    used, inodes = byte_pct(disk), inode_pct(disk)
    # A read-only disk cannot fill up, so it has no warning colours.
    quiet = disk.read_only
    spans = [
        mount,
        _share_span(used, 6, quiet=quiet),
        _share_span(inodes, 7, quiet=quiet),
        *(_survival_badges(profile, disk.mount, fates) if profile else ()),
    ]
    out: list[Line] = [tuple(spans)]
    for doubt in fates[BillingVerb.DESTROY].doubts_at(disk.mount):
        # A doubt about a directory above is shown at that one.
        if doubt.mount == disk.mount:
            out += wrap_text(f"{current_glyphs().warn} {doubt.text}", width, Tone.WARN)
    for hog in disk.hogs[:3]:
        out.append(
            make_line(
                dim_span(
                    fit_text(f"  {hog.path}", max(4, width - 15))
                    + translate("{inodes:>9} files", inodes=format_thousands(hog.inodes))
                )
            )
        )
    if quiet:
        return [tone_line(out[0], Tone.DIM), *out[1:]]
    return out


def _share_span(value: float | None, width: int, *, quiet: bool) -> Span:
    if quiet:
        tone = Tone.DIM
    else:
        tone = choose_tone(value, LIMITS.disk_warn_pct, LIMITS.disk_error_pct)
    return Span(fit_text(percent_or_dash(value), width, right=True), tone)


def _survival_badges(
    profile: Profile, mount: str, fates: Mapping[BillingVerb, JudgedStorage]
) -> tuple[Span, ...]:
    # In the order of `BillingVerb`: stop, destroy.
    stop, destroy = (path_survives(mount, profile, fates[verb].known, verb) for verb in BillingVerb)
    if fates[BillingVerb.DESTROY].doubts_at(mount):
        doubted = Span(f" {current_glyphs().warn}", Tone.WARN)
    else:
        doubted = Span("  ")
    return (doubted, _survival_badge("s", stop), Span(" "), _survival_badge("d", destroy))


def _survival_badge(letter: str, value: bool | None) -> Span:
    if value is None:
        return dim_span("?")
    if value:
        return Span(letter, Tone.ACCENT)
    return dim_span(current_glyphs().unknown)


def survival_legend() -> Line:
    """Return what the letters after a mount mean."""
    return make_line(
        Span("s", Tone.ACCENT),
        dim_span(translate(" survives stop  ")),
        Span("d", Tone.ACCENT),
        dim_span(translate(" destroy")),
    )


def vitals_sections(
    box: BoxState,
    profile: Profile,
    width: int,
    now: float,
    *,
    short: bool,
    health: BoxHealth = BoxHealth.STALE,
) -> list[PaneSection]:
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
    if box.sample:
        version = box.sample.mem.cgroup
    else:
        version = None
    if old and box.sample_at:
        age = make_line(
            dim_span(
                translate(
                    "{health} {now} old",
                    health=old_mark(health),
                    now=compact_time(now - box.sample_at),
                )
            )
        )
    else:
        age = None
    gpus = [
        PaneSection(p.title, fade_lines(list(p.body), old=old), p.hint)
        for p in gpu_sections(box, width)
    ]
    memory = PaneSection(
        make_line(
            translate("memory"),
            dim_span(translate(" (cgroup v{version})", version=version) if version else ""),
        ),
        fade_lines(memory_lines(box, width), old=old),
    )
    disks = PaneSection(
        make_line(translate("disks")),
        fade_lines(disk_lines(box, profile, width), old=old),
        make_line(dim_span(translate("bytes  inodes     "))),
    )
    cpu = PaneSection(make_line(translate("cpu")), fade_lines(cpu_lines(box, width), old=old))
    processes = PaneSection(
        make_line(translate("processes")), fade_lines(process_lines(box, width), old=old)
    )
    parts = [*gpus, disks, memory, cpu, processes]
    if not short:
        parts = [*gpus, memory, cpu, disks, processes]
    elif not in_trouble(box):
        parts = [disks, memory, *gpus, cpu, processes]
    if age is not None:
        parts[0] = parts[0]._replace(title=make_line(*parts[0].title, "  ", *age))
    checkpoints = checkpoint_lines(box, width, now)
    if checkpoints:
        parts.append(PaneSection(make_line(translate("checkpoints")), checkpoints))
    if own := own_stop_lines(box, width, now):
        parts.append(PaneSection(make_line(translate("stops itself")), own))
    parts.append(PaneSection(make_line(translate("link")), link_lines(box, width, now)))
    return parts


def own_stop_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return the state or result of the box's own stop, and how to postpone it.

    Empty without one.
    """
    words = describe_self_stop(box, now)
    if not words:
        return []
    first, *rest = wrap_text(words, max(8, width - 2), most=3)
    out = [
        make_line(f"{current_glyphs().power} ", first),
        *(make_line("  ", more) for more in rest),
    ]
    if list_readings(box):
        out.append(
            make_line(dim_span(translate("postpone it: rgt keep {name} 2h", name=box.spec.name)))
        )
    return out


def checkpoint_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return the newest checkpoint of each run with its age."""
    out: list[Line] = []
    # Checkpoints have the times of the box's clock.
    skew = box.clock_skew or 0.0
    for run in box.checkpoints[-3:]:
        name = fit_text(run.run, min(14, max(6, width - 34)))
        if run.items:
            newest = run.items[-1]
            saved = make_line(f"{name} {saved_point(newest)}")
            right = [
                (2, make_line(dim_span(translate("{items} kept", items=len(run.items))))),
                (1, make_line(size_or_dash(newest.bytes))),
                (
                    0,
                    make_line(
                        dim_span(translate("{now} ago", now=compact_time(now + skew - newest.at)))
                    ),
                ),
            ]
            out.append(spread_line(saved, join_fitting(width - width_of(saved) - 2, right), width))
        # Only the newest: those before it were left by attempts that died.
        for begun in run.writing[-1:]:
            text = make_line(
                dim_span(
                    translate("{name} {begun} not complete", name=name, begun=saved_point(begun))
                )
            )
            right = [
                (1, make_line(size_or_dash(begun.bytes))),
                (
                    0,
                    make_line(
                        dim_span(translate("{now} ago", now=compact_time(now + skew - begun.at)))
                    ),
                ),
            ]
            out.append(spread_line(text, join_fitting(width - width_of(text) - 2, right), width))
    return out


def link_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return the state of the connection, and counts that prove the stream is complete."""
    counters = box.counters
    sure = counters.gaps == 0 and counters.duplicates == 0
    since = ""
    if box.since:
        since = f" {compact_time(now - box.since)}"
    said = f"{box.link.value}{since}"
    why = wrap_text(box.reason, max(8, width - len(said) - 2), Tone.DIM, most=3) or [EMPTY]
    out = [
        make_line(said if place == 0 else " " * len(said), "  ", *row)
        for place, row in enumerate(why)
    ]
    stream = ", ".join(
        (
            how_many(counters.samples, "sample"),
            how_many(counters.gaps, "gap"),
            how_many(counters.duplicates, "duplicate"),
        )
    )
    out.append(make_line(dim_span(stream) if sure else Span(stream, Tone.WARN)))
    # Only a changed interval: the one of the fleet file is what the person expects.
    if box.interval is not None and box.interval != box.spec.interval:
        out.append(
            make_line(dim_span(translate("sampled every {interval:g} s", interval=box.interval)))
        )
    # Until the first sample, the values are those that an earlier rgt has kept.
    if box.remembered_at is not None and box.sample is None:
        out.append(
            make_line(
                dim_span(
                    translate(
                        "values recorded at {remembered_at} by an earlier rgt",
                        remembered_at=clock_or_dash(box.remembered_at),
                    )
                )
            )
        )
    out += limited_lines(box, width)
    if box.hello is not None:
        rss = ""
        if box.sample and box.sample.agent_rss:
            rss = memory_or_dash(box.sample.agent_rss)
        python = ""
        if box.hello.python:
            python = f"python {box.hello.python}"
        parts = (f"agent {box.hello.agent[:8]}", python, rss)
        out.append(make_line(dim_span("  ".join(part for part in parts if part))))
    return out


def limited_lines(box: BoxState, width: int) -> list[Line]:
    """Return what does not work on this box, and why."""
    if box.hello is not None:
        agents = box.hello.limited
    else:
        agents = ()
    reasons = dict.fromkeys((*box.limited, *agents))
    said = [
        translate("limited: {why}", why=show_recorded(text)) for text in list(reasons)[:5]
    ] + list(describe_dropped(box.left_out))
    return [
        row
        for text in said
        for row in wrap_text(f"{current_glyphs().warn} {text}", width, Tone.WARN)
    ]


# The training processes of a box as a tree, and the CPU cores that they share.


def process_lines(box: BoxState, width: int) -> list[Line]:
    """Return the training processes as a tree, each with its forked workers."""
    sample = box.sample
    procs = sample.procs if sample else ()
    unseen = sample.unseen if sample else None
    held = gpus_by_process(sample)
    users = {proc.user for proc in procs}
    # The agent reports up to 32; more are counted, not drawn.
    most_procs = 64
    shown = [
        made
        for proc, depth in walk_processes(procs[:most_procs])
        for made in _process_lines(proc, depth, held.get(proc.pid, ()), width, whose=len(users) > 1)
    ]
    if len(procs) > most_procs:
        shown.append(
            make_line(dim_span(translate("and {procs} more", procs=len(procs) - most_procs)))
        )
    if unseen is not None:
        whose = "others unknown: {why}" if shown else "processes unknown: {why}"
        others = translate(whose, why=unseen)
        return [*shown, make_line(Span(others, Tone.WARN))]
    return shown or [
        make_line(
            dim_span(
                translate("no sample yet") if sample is None else translate("no training process")
            )
        )
    ]


def walk_processes(procs: Sequence[TrainingProcess]) -> Iterator[tuple[TrainingProcess, int]]:
    """Yield each process once with its depth, children after their parent; cycles are flattened."""
    pids = {proc.pid for proc in procs}
    below: dict[int, list[TrainingProcess]] = {}
    for proc in procs:
        if proc.ppid in pids and proc.ppid != proc.pid:
            below.setdefault(proc.ppid or 0, []).append(proc)
    done: set[int] = set()

    def walk_from(proc: TrainingProcess, depth: int) -> Iterator[tuple[TrainingProcess, int]]:
        if id(proc) in done:
            return
        done.add(id(proc))
        # Deeper levels are not indented further, or no room would be left for the command.
        deepest = 6
        yield proc, min(depth, deepest)
        for child in below.get(proc.pid, ()):
            yield from walk_from(child, depth + 1)

    for proc in procs:
        if proc.ppid not in pids or proc.ppid == proc.pid:
            yield from walk_from(proc, 0)
    # Only cycles are left: none of their processes has a parent outside.
    for proc in procs:
        yield from walk_from(proc, 0)


def gpus_by_process(sample: Sample | None) -> Mapping[int, tuple[int, ...]]:
    """Return the GPU indexes per process; empty if the driver's pids are of another namespace."""
    held: dict[int, list[int]] = {}
    for gpu in sample.gpus if sample is not None else ():
        for user in gpu.procs:
            if user.mapped:
                held.setdefault(user.pid, []).append(gpu.index)
    return {pid: tuple(cards) for pid, cards in held.items()}


def _process_lines(
    proc: TrainingProcess, depth: int, cards: tuple[int, ...], width: int, *, whose: bool
) -> list[Line]:
    bad = proc.state in STUCK
    # Minimum width to show the user of each process.
    wordy_limit = 56
    wordy = width >= wordy_limit
    state = (proc.state or "?")[:1]
    longest_user = 12
    user = ""
    if proc.user is not None:
        user = fit_text(proc.user, min(longest_user, len(proc.user)))
    if proc.age_s is None:
        age = ""
    else:
        age = f"  {compact_time(proc.age_s)}"
    gpus = ""
    if cards:
        gpus = f"  gpu {','.join(map(str, cards[:8]))}{current_glyphs().ellipsis if len(cards) > 8 else ''}"
    threads = translate("  {threads} thr", threads=proc.threads or NONE)
    branch = ""
    if depth:
        branch = f"{'  ' * (depth - 1)}{BRANCH[current_glyphs().braille]}"
    named = short_command(proc.cmd)
    state_tone = Tone.DIM
    if bad:
        state_tone = Tone.TROUBLE
    user_span: Line | Span = EMPTY
    if user and (wordy or whose):
        user_span = dim_span(f"{user} ")
    left = make_line(
        dim_span(f"{branch}{proc.pid} "), Span(f"{state} ", state_tone), user_span, named
    )
    rights = [
        make_line(gpus, f"  {memory_or_dash(proc.rss)}", dim_span(more))
        for more in (threads + age, threads, "")
    ]
    # Minimum cells of the command; the age and the threads are dropped before it gets shorter.
    least_command = 10
    room = width - width_of(left) + min(len(named), least_command)
    right = next((one for one in rights if width_of(one) <= room), rights[-1])
    out = [spread_line(left, right, width)]
    under = " " * (len(branch) + len(str(proc.pid)) + 1)
    if bad:
        out.append(
            make_line(under, Span(translate(PROCESS_STATES[proc.state or ""]), Tone.TROUBLE))
        )
    if proc.workers is not None and proc.workers.count > 0:
        out.append(make_line(under, *_workers_line(proc.workers)))
    return out


BRANCH = {True: "└ ", False: "`-"}
"""Keyed by whether the terminal can show more than ASCII."""


def _workers_line(workers: WorkerSums) -> Line:
    counts = [(letter[:1], count) for letter, count in sorted(workers.states.items())[:8]]
    states = [
        Span(f" {count} {letter}", Tone.TROUBLE if letter in STUCK else Tone.DIM)
        for letter, count in counts
    ]
    return make_line(
        dim_span(f"{how_many(workers.count, 'worker')}, {how_many(workers.threads, 'thread')} "),
        *states,
    )


def cpu_lines(box: BoxState, width: int) -> list[Line]:
    """Return the granted CPU cores, and the threads that compete for them."""
    sample = box.sample
    if sample is None:
        return [make_line(dim_span(translate("no sample yet")))]
    cpu = sample.cpu
    if cpu.load1 is not None:
        load = make_line(dim_span(translate("load ")), f"{cpu.load1:.1f}")
    else:
        load = EMPTY
    if cpu.quota is not None or cpu.cores is not None or load:
        out = [spread_line(_granted_cores(cpu), load, width)]
    else:
        out = []
    if cpu.throttled_pct:
        out += wrap_text(
            translate(
                "throttled by the quota {throttled_pct} of the time",
                throttled_pct=percent_or_dash(cpu.throttled_pct),
            ),
            width,
            Tone.WARN,
        )
    return out + _thread_lines(sample, width)


def _granted_cores(cpu: CpuReading) -> Line:
    if cpu.quota is not None:
        if cpu.cores is None:
            of = ""
        else:
            of = translate(" of {count}", count=cpu.cores)
        return make_line(
            translate("{quota:g}{of} cores", quota=cpu.quota, of=of),
            dim_span(translate(" by quota")),
        )
    if cpu.cores is not None:
        return make_line(f"{how_many(cpu.cores, 'core')}", dim_span(translate(", no quota")))
    return make_line(dim_span(translate("cores unknown")))


def _thread_lines(sample: Sample, width: int) -> list[Line]:
    cpu = sample.cpu
    own = sum(proc.threads or 0 for proc in sample.procs)
    workers = [proc.workers for proc in sample.procs if proc.workers is not None]
    forked, theirs = sum(one.count for one in workers), sum(one.threads for one in workers)
    if not own + theirs:
        return []
    # The host's cores are the last choice: under a quota, a training gets fewer.
    usable = cpu.usable
    if usable is None:
        usable = cpu.quota
    if usable is None:
        usable = cpu.cores
    share = ""
    if usable:
        each = translate("{count:.1f} a core", count=(own + theirs) / usable)
        share = f" {current_glyphs().dot} {each}"
    crowd = ""
    if forked:
        crowd = f", {how_many(forked, 'worker')}"
    many = how_many(len(sample.procs), "process", "processes")
    text = f"{how_many(own + theirs, 'thread')}{share} ({many}{crowd})"
    if cpu.oversubscribed:
        out = wrap_text(
            translate(
                "{warn} {words}: they slow each other down", warn=current_glyphs().warn, words=text
            ),
            width,
            Tone.WARN,
            most=3,
        )
    else:
        out = wrap_text(text, width, Tone.DIM, most=2)
    asked = [proc.omp for proc in sample.procs if proc.omp is not None]
    if asked and usable:
        over = sum(asked) > usable
        low, high, times = min(asked), max(asked), current_glyphs().times
        if low == high and len(asked) > 1:
            each = f"{low} {times} {len(asked)} = {sum(asked)}"
        else:
            each = f"{low}"
        words = f"OMP_NUM_THREADS {each if low == high else f'{low}-{high}'}"
        more = translate(", {usable:g} cores", usable=usable) if over else ""
        tone = Tone.DIM
        if over and cpu.oversubscribed:
            tone = Tone.WARN
        out += join_parts([make_line(Span(f"{words}{more}", tone))], width)
    return out
