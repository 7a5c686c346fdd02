"""The sections of the vitals pane, in the order in which they matter at the size that there is."""

from __future__ import annotations

from rgt_tui.fleet.budget import words
from rgt_tui.model.box import BoxState
from rgt_tui.model.profile import Profile
from rgt_tui.ui.format import clean, clock, compact_time, size, thousands
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.box_vitals import disk_lines, faded, gpu_sections, is_old, memory_lines, process_lines
from rgt_tui.ui.widgets.frame import Section
from rgt_tui.ui.widgets.past_lines import past_lines, past_title
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim, fit, line, spread


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
    parts.append(Section(line("link"), link_lines(box, now)))
    return parts


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
    stream = f"{thousands(counters.samples)} samples, {counters.gaps} gaps, {counters.duplicates} duplicates"
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
