"""The vitals of a box as lines and sections: GPUs, memory, disks, processes, checkpoints, the past hours, the link."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rgt_tui.fleet.attention import words
from rgt_tui.health.autostop_words import box_words, of_box
from rgt_tui.health.facts import DISK_ERROR_PCT, DISK_WARN_PCT, MEMORY_ERROR_PCT, MEMORY_WARN_PCT
from rgt_tui.model.box import BoxState, Past
from rgt_tui.model.profile import Profile
from rgt_tui.model.protocol import Disk, Gpu, Proc
from rgt_tui.profiles.readings import byte_pct, how_many, inode_pct, is_absent, memory_pct
from rgt_tui.profiles.survival import survival, unmounted
from rgt_tui.ui.notation import NONE, clean, clock, compact_time, gib, glyphs, percent, ratio, size, thousands
from rgt_tui.ui.widgets.bars import bar, spark
from rgt_tui.ui.widgets.fleet_cells import level
from rgt_tui.ui.widgets.panes import Section
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip,
    dim,
    fit,
    line,
    spread,
    toned,
    width_of,
    wrapped,
)

SIM = line(Span("SIM", Tone.BADGE))


def is_old(box: BoxState, now: float) -> bool:
    """Say whether the last sample is older than three intervals."""
    return box.sample_at is None or now - box.sample_at > 3 * max(box.spec.interval, 1.0)


def faded(lines: list[Line], *, old: bool) -> list[Line]:
    """Return the lines dim when their values are old; trouble keeps its tone."""
    if not old:
        return lines
    keep = {Tone.TROUBLE, Tone.WARN, Tone.BADGE}
    return [tuple(span if span.tone in keep else dim(span.text) for span in made) for made in lines]


def gpu_sections(box: BoxState, width: int) -> list[Section]:
    """Return a section for each GPU: full for up to two, one line each for more."""
    gpus = box.sample.gpus if box.sample else ()
    if not gpus:
        text = "no sample yet" if box.sample is None else "no GPU found on this box"
        return [Section(line("GPU"), [line(dim(text))])]
    if len(gpus) > 2:
        sim = SIM if any(gpu.sim for gpu in gpus) else EMPTY
        title = line(f"GPU {glyphs().times}{len(gpus)}", dim(f"  {clean(gpus[0].name)}"))
        return [Section(title, [_gpu_short(gpu, width) for gpu in gpus], sim)]
    return [
        Section(
            line(f"GPU {gpu.index}", dim(f"  {clean(gpu.name)}")),
            gpu_lines(gpu, box, width),
            SIM if gpu.sim else EMPTY,
        )
        for gpu in gpus
    ]


def gpu_lines(gpu: Gpu, box: BoxState, width: int) -> list[Line]:
    """Return utilisation, memory, temperature, power, clock and throttling of one GPU."""
    g = glyphs()
    if gpu.error:
        return [line(Span(clean(gpu.error), Tone.TROUBLE))]
    room = max(4, width - 16)
    history = box.rings.gpu_util if box.sample and len(box.sample.gpus) == 1 else (gpu.util,)
    vram = ratio(gpu.vram_used, gpu.vram_total)
    out = [
        spread(
            line(dim("util  "), spark(history[-2 * room :], room, low=0, high=100)),
            line(percent(gpu.util)),
            width,
        ),
        spread(
            line(dim("vram  "), *bar(vram, room)),
            line(gib(gpu.vram_used), dim(f"/{gib(gpu.vram_total).removesuffix('.0')} G")),
            width,
        ),
    ]
    parts = [
        f"{gpu.temp_c:.0f} {g.degree}C" if gpu.temp_c is not None else "",
        f"{_whole(gpu.power_w)}/{_whole(gpu.power_limit_w)} W" if gpu.power_w is not None else "",
        f"{thousands(gpu.clock_mhz)}/{thousands(gpu.clock_max_mhz)} MHz" if gpu.clock_mhz is not None else "",
    ]
    out.append(line("   ".join(part for part in parts if part)))
    if gpu.fan_pct is not None:
        fan = f"fan {percent(gpu.fan_pct)}"
        fits = width_of(out[-1]) + 3 + len(fan) <= width
        out[-1:] = [line(*out[-1], "   ", fan)] if fits else [out[-1], line(fan)]
    if gpu.throttle:
        out.append(line(Span(f"{g.warn} throttled: {clean(', '.join(gpu.throttle))}", Tone.WARN)))
    return out + fault_lines(gpu)


def fault_lines(gpu: Gpu) -> list[Line]:
    """Return what the driver and the kernel log hold against a GPU; nothing for a healthy one."""
    g = glyphs()
    out: list[Line] = []
    if gpu.xid is not None:
        out.append(line(Span(f"{g.trouble} Xid {gpu.xid} in the kernel log", Tone.TROUBLE)))
    if gpu.ecc_uncorrected:
        text = f"{g.trouble} {how_many(gpu.ecc_uncorrected, 'uncorrected memory error')}"
        out.append(line(Span(text, Tone.TROUBLE)))
    if gpu.ecc_corrected:
        out.append(line(dim(how_many(gpu.ecc_corrected, "corrected memory error"))))
    if gpu.orphans:
        held = ", ".join(f"{holder.pid} {clean(holder.cmd)[:20]}" for holder in gpu.orphans[:2])
        out.append(line(Span(f"{g.warn} held by processes unknown to the driver: {held}", Tone.WARN)))
    return out


def _troubled(gpu: Gpu) -> Span:
    if gpu.xid is not None or gpu.ecc_uncorrected:
        return Span(f" {glyphs().trouble}", Tone.TROUBLE)
    return Span(f" {glyphs().warn}", Tone.WARN) if gpu.throttle or gpu.orphans else Span("  ")


def _gpu_short(gpu: Gpu, width: int) -> Line:
    if gpu.error:
        return line(f"{gpu.index} ", Span(clean(gpu.error), Tone.TROUBLE))
    room = max(3, (width - 25) // 2)
    return line(
        dim(f"{gpu.index} "),
        *bar(gpu.util, room),
        f" {percent(gpu.util):>4}  ",
        *bar(ratio(gpu.vram_used, gpu.vram_total), room),
        f" {gib(gpu.vram_used):>5} G",
        f" {_whole(gpu.temp_c):>3}{glyphs().degree}",
        _troubled(gpu),
    )


def _whole(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}"


def memory_lines(box: BoxState, width: int) -> list[Line]:
    """Return the container's memory with its limit drawn, and the host's apart from it."""
    if box.sample is None:
        return [line(dim("no sample yet"))]
    mem = box.sample.mem
    share = memory_pct(mem)
    tone = level(share, MEMORY_WARN_PCT, MEMORY_ERROR_PCT)
    used = None if mem.used is None else max(0, mem.used - (mem.cache or 0))
    limit = f" of {size(mem.limit)}" if mem.limit else " no limit" if mem.cgroup else " limit unknown"
    label = line(size(used), dim(limit))
    room = max(4, width - 20)
    whole = 0.9  # the limit stands inside the bar, so that one sees it
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
    notes = [
        Span(f"oom kills {NONE if kills is None else kills}", Tone.TROUBLE if kills else Tone.TEXT),
        dim(f"  cache {size(mem.cache)}"),
        dim(f"  host {gib(mem.host_used)}/{gib(mem.host_total)} G") if mem.host_total else dim(""),
    ]
    out.append(clip(tuple(notes), width))
    cpu = box.sample.cpu
    if cpu.throttled_pct:
        quota = "" if cpu.quota is None else f" of {cpu.quota:g} cores"
        out.append(line(Span(f"cpu throttled {percent(cpu.throttled_pct)}{quota}", Tone.WARN)))
    return out


def disk_lines(box: BoxState, profile: Profile | None, width: int) -> list[Line]:
    """Return a line for each mount: bytes, inodes, and what it survives."""
    disks = box.sample.disks if box.sample else ()
    if not disks:
        return [line(dim("no sample yet" if box.sample is None else "no mounts"))]
    known = {**unmounted(profile, disks, box.spec.tiers), **box.spec.tiers} if profile is not None else {}
    there = [disk for disk in disks if not is_absent(disk, box)]
    missing = ", ".join(clean(disk.mount) for disk in disks if is_absent(disk, box))
    lines = [made for disk in there for made in _disk(disk, profile, known, width)]
    return [*lines, line(dim(fit(f"not on this box: {missing}", width)))] if missing else lines


def _disk(disk: Disk, profile: Profile | None, known: Mapping[str, str], width: int) -> list[Line]:
    tail = 13 + (5 if profile else 0)
    mount = Span(fit(clean(disk.mount), max(4, width - tail)))
    if disk.error:
        return [line(mount, Span(f" {clean(disk.error)}", Tone.TROUBLE))]
    used, inodes = byte_pct(disk), inode_pct(disk)
    quiet = disk.read_only
    spans = [
        mount,
        _share(used, 6, quiet=quiet),
        _share(inodes, 7, quiet=quiet),
        *(_survives(profile, disk.mount, known) if profile else ()),
    ]
    out: list[Line] = [tuple(spans)]
    for hog in disk.hogs[:3]:
        out.append(
            line(dim(fit(f"  {clean(hog.path)}", max(4, width - 15)) + f"{thousands(hog.inodes):>9} files"))
        )
    return [toned(out[0], Tone.DIM), *out[1:]] if quiet else out


def _share(value: float | None, width: int, *, quiet: bool) -> Span:
    tone = Tone.DIM if quiet else level(value, DISK_WARN_PCT, DISK_ERROR_PCT)
    return Span(fit(percent(value), width, right=True), tone)


def _survives(profile: Profile, mount: str, known: Mapping[str, str]) -> tuple[Span, ...]:
    tier = survival(profile, mount, known=known)
    stop = None if tier is None else tier.survives_stop
    destroy = None if tier is None else tier.survives_destroy
    return (Span("  "), _badge("s", stop), Span(" "), _badge("d", destroy))


def _badge(letter: str, value: bool | None) -> Span:
    if value is None:
        return dim("?")
    return Span(letter, Tone.ACCENT) if value else dim(glyphs().unknown)


SURVIVAL_LEGEND: Line = line(
    Span("s", Tone.ACCENT), dim(" survives stop  "), Span("d", Tone.ACCENT), dim(" destroy")
)


def process_lines(box: BoxState, width: int) -> list[Line]:
    """Return a line for each training process."""
    procs = box.sample.procs if box.sample else ()
    unseen = box.sample.unseen if box.sample else None
    shown = [_process(proc, width) for proc in procs]
    if unseen is not None:
        return [
            *shown,
            line(Span(f"{'others' if shown else 'processes'} unknown: {clean(unseen)}", Tone.WARN)),
        ]
    return shown or [line(dim("no sample yet" if box.sample is None else "no training process"))]


def _process(proc: Proc, width: int) -> Line:
    state = Span(f" {proc.state}", Tone.TROUBLE) if proc.state in {"D", "Z", "T"} else Span("")
    age = "" if proc.age_s is None else f"  {compact_time(proc.age_s)}"
    right = line(size(proc.rss), dim(f"  {proc.threads or NONE} thr{age}"), state)
    return spread(line(dim(f"{proc.pid} "), command(proc.cmd)), line("  ", right), width)


def command(cmd: str) -> str:
    """Return a command line that begins with what tells it: the program's name without its directory."""
    program, _, rest = clean(cmd).partition(" ")
    return f"{program.rsplit('/', 1)[-1] or program} {rest}".rstrip()


LEAST_ROWS = 3
LABEL = 14
NAMES = {"util": "gpu", "vram": "vram", "cgroup": "mem"}
"""What the first columns are called; disks and inodes carry their mount."""


def past_title(past: Past) -> Line:
    """Return the title: how far back it goes."""
    return line("past ", dim(compact_time(past.at[-1] - past.at[0] + past.width)))


def past_lines(past: Past, width: int) -> list[Line]:
    """Return a line for each quantity: its course over time with holes where nobody looked, and its mean."""
    if len(past.at) < LEAST_ROWS:
        return []
    out: list[Line] = []
    for place, name in enumerate(past.names):
        values = [row[place] if place < len(row) else None for row in past.values]
        known = [value for value in values if value is not None and math.isfinite(value)]
        if not known:
            continue
        label = fit(_label(name), LABEL)
        even = evenly(past.at, values, past.width)
        mean = line(dim("mean "), f"{percent(sum(known) / len(known)):>4}")
        course = dim(spark(even, max(4, width - LABEL - 11), low=0, high=100))
        out.append(spread(line(dim(label), " ", course), mean, width))
    return out


def _label(name: str) -> str:
    kind, _, mount = name.partition(":")
    if not mount:
        return NAMES.get(kind, clean(kind))
    short = clean(mount).rsplit("/", 1)[-1] or "/"
    return f"{'inode' if kind == 'inodes' else 'disk'} {short}"


def evenly(at: Sequence[float], values: Sequence[float | None], width: float) -> list[float | None]:
    """Return the values at even distances of `width` seconds; a stretch without a row is None."""
    if not at or width <= 0:
        return list(values)
    count = min(100_000, round((at[-1] - at[0]) / width) + 1)
    out: list[float | None] = [None] * max(1, count)
    for moment, value in zip(at, values, strict=True):
        place = round((moment - at[0]) / width)
        if 0 <= place < len(out):
            out[place] = value
    return out


def vitals_sections(box: BoxState, profile: Profile, width: int, now: float, *, short: bool) -> list[Section]:
    """Return GPUs, memory, disks, processes, checkpoints and the link.

    Where not all fits (`short`), what kills runs silently comes first: disks and memory.
    """
    old = is_old(box, now)
    version = box.sample.mem.cgroup if box.sample else None
    age = (
        line(dim(f"{glyphs().stale} {compact_time(now - box.sample_at)} old"))
        if old and box.sample_at
        else None
    )
    gpus = [Section(p.title, faded(list(p.body), old=old), p.hint) for p in gpu_sections(box, width)]
    memory = Section(
        line("memory", dim(f" (cgroup v{version})" if version else "")),
        faded(memory_lines(box, width), old=old),
    )
    disks = Section(
        line("disks"), faded(disk_lines(box, profile, width), old=old), line(dim("bytes  inodes     "))
    )
    processes = Section(line("processes"), faded(process_lines(box, width), old=old))
    parts = [disks, memory, *gpus, processes] if short else [*gpus, memory, disks, processes]
    if age is not None:
        parts[0] = parts[0]._replace(title=line(*parts[0].title, "  ", *age))
    checkpoints = checkpoint_lines(box, width, now)
    if checkpoints:
        parts.append(Section(line("checkpoints"), checkpoints))
    past = past_lines(box.past, width)
    if past:
        parts.append(Section(past_title(box.past), past))
    if own := own_stop_lines(box, width, now):
        parts.append(Section(line("stops itself"), own))
    parts.append(Section(line("link"), link_lines(box, now)))
    return parts


def own_stop_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return how the box's own stop stands, or what became of it, and how it is put off; none where it has none."""
    words = box_words(box, now)
    if not words:
        return []
    first, *rest = wrapped(clean(words), max(8, width - 2), most=3)
    out = [line(f"{glyphs().power} ", first), *(line("  ", more) for more in rest)]
    if of_box(box):
        out.append(line(dim(f"put it off: rgt keep {clean(box.spec.name)} 2h")))
    return out


def checkpoint_lines(box: BoxState, width: int, now: float) -> list[Line]:
    """Return the newest checkpoint of each run with its age."""
    out: list[Line] = []
    skew = box.clock_skew or 0.0
    for run in box.checkpoints[-3:]:
        if not run.items:
            continue
        newest = run.items[-1]
        age = dim(f"  {compact_time(now + skew - newest.at)} ago")
        text = f"{fit(clean(run.run), min(14, max(6, width - 34)))}  step {thousands(newest.step)}"
        out.append(spread(line(text), line(dim(f"{len(run.items)} kept  "), size(newest.bytes), age), width))
    return out


def link_lines(box: BoxState, now: float) -> list[Line]:
    """Return how the connection stands, and what the stream proves about itself."""
    counters = box.counters
    sure = counters.gaps == 0 and counters.duplicates == 0
    since = f" {compact_time(now - box.since)}" if box.since else ""
    out = [line(f"{box.link.value}{since}", dim(f"  {clean(box.reason)}"))]
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
    out += limited_lines(box)
    if box.hello is not None:
        rss = size(box.sample.agent_rss) if box.sample and box.sample.agent_rss else ""
        out.append(line(dim(f"agent {clean(box.hello.agent)[:8]}  python {clean(box.hello.python)}  {rss}")))
    return out


def limited_lines(box: BoxState) -> list[Line]:
    """Return what does not work on this box, and why."""
    agents = box.hello.limited if box.hello is not None else ()
    reasons = dict.fromkeys((*box.limited, *agents))
    limited = [line(Span(f"{glyphs().warn} limited: {clean(text)}", Tone.WARN)) for text in list(reasons)[:5]]
    return limited + [line(Span(f"{glyphs().warn} {text}", Tone.WARN)) for text in words(box.left_out)]
