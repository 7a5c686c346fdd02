"""The GPUs of a box, the worst first: a section each if there are few, else a line each."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui import health
from rgt_tui.health import LIMITS
from rgt_tui.language import translate
from rgt_tui.model import BoxState, GpuReading, MigSlice, how_many, short_command
from rgt_tui.profiles import compute_percent as ratio
from rgt_tui.ui.notation import (
    NONE,
    current_glyphs,
    format_thousands,
    gib_of,
    gib_or_dash,
    percent_or_dash,
)
from rgt_tui.ui.widgets.bars import draw_bar, draw_sparkline
from rgt_tui.ui.widgets.panes import PaneSection
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_text,
    join_parts,
    make_line,
    spread_line,
    width_of,
    wrap_text,
)

SIM = make_line(Span("SIM", Tone.BADGE))
TWO_LINES = 4
FAULTY, WEAK, IDLE = 1, 2, 3
"""Ranks. Up to `FAULTY` a GPU is in trouble; `WEAK`: slowed or with missing lanes; `IDLE`: idle
while others work."""


def rank_urgency(gpu: GpuReading, busiest: float) -> int:
    """Return how urgently a GPU needs attention, 0 = most urgently.

    Args:
        gpu: The GPU.
        busiest: Utilisation of the box's busiest GPU.
    """
    if gpu.error:
        return 0
    if gpu.xid is not None or gpu.ecc_uncorrected:
        return FAULTY
    if health.is_slowed(gpu) or gpu.orphans or is_pcie_narrow(gpu) or links_down(gpu):
        return WEAK
    # Idle alone is normal between runs; next to busy GPUs, it is a rank that does nothing.
    if gpu.util is not None and gpu.util < LIMITS.busy_pct <= busiest:
        return IDLE
    return IDLE + 1


def worst_first(gpus: Sequence[GpuReading]) -> list[GpuReading]:
    """Return the GPUs: those in trouble first, then idle ones among busy ones, then by number."""
    busiest = _max_util(gpus)
    return sorted(gpus, key=lambda gpu: (rank_urgency(gpu, busiest), gpu.index))


def _max_util(gpus: Sequence[GpuReading]) -> float:
    return max((gpu.util for gpu in gpus if gpu.util is not None), default=0.0)


def in_trouble(box: BoxState) -> bool:
    """Return whether a GPU of the box is dead or has an error reported by the driver."""
    return box.sample is not None and any(
        # 0.0, because it does not matter here whether a GPU is idle.
        rank_urgency(gpu, 0.0) <= FAULTY
        for gpu in box.sample.gpus
    )


def is_pcie_narrow(gpu: GpuReading) -> bool:
    """Return whether PCIe lanes are missing.

    A lower generation is ignored: an idle GPU lowers it.
    """
    return (
        gpu.pcie_width is not None
        and gpu.pcie_width_max is not None
        and gpu.pcie_width < gpu.pcie_width_max
    )


def links_down(gpu: GpuReading) -> bool:
    """Return whether only some NVLinks are up. None up is ignored: the GPU may lack a bridge."""
    return bool(gpu.nvlinks_up) and gpu.nvlinks is not None and (gpu.nvlinks_up or 0) < gpu.nvlinks


def gpu_sections(box: BoxState, width: int) -> list[PaneSection]:
    """Return a section per GPU if there are few, else one section with all of them."""
    gpus = box.sample.gpus if box.sample else ()
    if not gpus:
        if box.sample is None:
            text = translate("no sample yet")
        else:
            text = translate("no GPU found on this box")
        return [PaneSection(make_line(translate("GPU")), [make_line(dim_span(text))])]
    cards = worst_first(gpus)
    # Up to this many GPUs get a section each; up to `TWO_LINES` get two lines, more get one.
    whole_cards = 2
    if len(cards) <= whole_cards:
        return [
            PaneSection(
                make_line(translate("GPU {index}", index=gpu.index), dim_span(f"  {gpu.name}")),
                gpu_lines(gpu, box, width),
                SIM if gpu.sim else EMPTY,
            )
            for gpu in cards
        ]
    # A GPU that was lost before the first sample has no name of its own.
    names = list(dict.fromkeys(gpu.name for gpu in gpus if gpu.error is None)) or [gpus[0].name]
    more = ""
    if len(names) > 1:
        more = translate(" and {names} other", names=len(names) - 1)
    title = make_line(
        translate("GPU {times}{gpus}", times=current_glyphs().times, gpus=len(gpus)),
        dim_span(f"  {names[0]}{more}"),
    )
    busiest = _max_util(gpus)
    # Further GPUs are counted, not drawn.
    most_cards = 64
    body = [
        made
        for gpu in cards[:most_cards]
        for made in _gpu_lines(gpu, width, _urgency_mark(gpu, busiest), two=len(cards) <= TWO_LINES)
    ]
    if len(cards) > most_cards:
        body.append(
            make_line(dim_span(translate("and {cards} more", cards=len(cards) - most_cards)))
        )
    sim = EMPTY
    if any(gpu.sim for gpu in gpus):
        sim = SIM
    return [PaneSection(title, body, sim)]


def gpu_lines(gpu: GpuReading, box: BoxState, width: int) -> list[Line]:
    """Return everything known about one GPU."""
    if gpu.error:
        return [*wrap_text(gpu.error, width, Tone.TROUBLE, most=3), *fault_lines(gpu, width)]
    room = max(4, width - 18)
    # the ring is the mean over all GPUs
    alone = box.sample is not None and len(box.sample.gpus) == 1
    # A cell of the line shows two values.
    course = (Span(draw_sparkline(box.rings.gpu_util[-2 * room :], room, low=0, high=100)),)
    vram = ratio(gpu.vram_used, gpu.vram_total)
    return [
        spread_line(
            make_line(
                dim_span(translate("util  ")), *(course if alone else draw_bar(gpu.util, room))
            ),
            make_line(percent_or_dash(gpu.util)),
            width,
        ),
        spread_line(
            make_line(dim_span(translate("vram  ")), *draw_bar(vram, room)),
            _vram_line(gpu.vram_used, gpu.vram_total),
            width,
        ),
        *join_parts(state_words(gpu), width),
        *join_parts(link_words(gpu), width),
        *trouble_lines(gpu, width),
    ]


def state_words(gpu: GpuReading) -> list[Line]:
    """Return temperature, power and clock, each with its limit if known, and the fan."""
    degree = f"{current_glyphs().degree}C"
    if gpu.temp_slow_c is None:
        hot = ""
    else:
        hot = f"/{gpu.temp_slow_c:.0f}"
    if gpu.power_limit_w is None:
        limit = ""
    else:
        limit = f"/{gpu.power_limit_w:.0f}"
    if gpu.clock_max_mhz is None:
        clock = ""
    else:
        clock = f"/{format_thousands(gpu.clock_max_mhz)}"
    parts = [
        "" if gpu.temp_c is None else f"{gpu.temp_c:.0f}{hot} {degree}",
        "" if gpu.power_w is None else f"{gpu.power_w:.0f}{limit} W",
        "" if gpu.clock_mhz is None else f"{format_thousands(gpu.clock_mhz)}{clock} MHz",
        "" if gpu.fan_pct is None else translate("fan {share}", share=percent_or_dash(gpu.fan_pct)),
    ]
    return [make_line(part) for part in parts if part]


def link_words(gpu: GpuReading) -> list[Line]:
    """Return the links to the host and to other GPUs, current and maximum."""
    times, out = current_glyphs().times, []
    if gpu.pcie_gen is not None or gpu.pcie_width is not None:
        lower = (
            gpu.pcie_gen is not None
            and gpu.pcie_gen_max is not None
            and gpu.pcie_gen < gpu.pcie_gen_max
        )
        if gpu.pcie_gen is None:
            gen = ""
        else:
            gen = f" {gpu.pcie_gen}{f'/{gpu.pcie_gen_max}' if lower else ''}"
        most = ""
        if is_pcie_narrow(gpu):
            most = f"/{times}{gpu.pcie_width_max}"
        if gpu.pcie_width is None:
            lanes = ""
        else:
            lanes = f" {times}{gpu.pcie_width}{most}"
        lane_tone = Tone.DIM
        if is_pcie_narrow(gpu):
            lane_tone = Tone.WARN
        out.append(make_line(Span(translate("PCIe{gen}{lanes}", gen=gen, lanes=lanes), lane_tone)))
    if gpu.nvlinks:
        if gpu.nvlinks_up is None:
            up = NONE
        else:
            up = str(gpu.nvlinks_up)
        if links_down(gpu):
            tone = Tone.WARN
        else:
            tone = Tone.DIM
        out.append(
            make_line(
                Span(translate("NVLink {up} of {nvlinks} up", up=up, nvlinks=gpu.nvlinks), tone)
            )
        )
    # None = without ECC, or not reported: then nothing is claimed.
    if (gpu.ecc_corrected, gpu.ecc_uncorrected) == (0, 0):
        out.append(make_line(dim_span(translate("ECC no errors"))))
    return out


def trouble_lines(gpu: GpuReading, width: int) -> list[Line]:
    """Return why a GPU is slow, its errors, and its MIG slices."""
    out: list[Line] = []
    if gpu.throttle:
        bad = health.is_slowed(gpu)
        mark = ""
        if bad:
            mark = f"{current_glyphs().warn} "
        tone = Tone.DIM
        if bad:
            tone = Tone.WARN
        out += wrap_text(
            translate("{mark}throttled: {gpu}", mark=mark, gpu=health.throttle_words(gpu)),
            width,
            tone,
            most=2,
        )
    return out + fault_lines(gpu, width) + slice_lines(gpu, width)


def fault_lines(gpu: GpuReading, width: int = 200) -> list[Line]:
    """Return a GPU's errors from the driver and the kernel log; empty for a healthy one."""
    g = current_glyphs()
    out: list[Line] = []
    if gpu.xid is not None:
        out.append(
            make_line(
                Span(
                    translate(
                        "{trouble} Xid {xid} in the kernel log", trouble=g.trouble, xid=gpu.xid
                    ),
                    Tone.TROUBLE,
                )
            )
        )
    if gpu.ecc_uncorrected:
        text = f"{g.trouble} {how_many(gpu.ecc_uncorrected, 'uncorrected memory error')}"
        out.append(make_line(Span(text, Tone.TROUBLE)))
    if gpu.ecc_corrected:
        out.append(make_line(dim_span(how_many(gpu.ecc_corrected, "corrected memory error"))))
    if gpu.orphans:
        held = ", ".join(
            f"{holder.pid} {short_command(holder.cmd)[:20]}" for holder in gpu.orphans[:2]
        )
        out += wrap_text(
            translate(
                "{warn} used by processes unknown to the driver: {held}", warn=g.warn, held=held
            ),
            width,
            Tone.WARN,
            most=3,
        )
    return out


def slice_lines(gpu: GpuReading, width: int) -> list[Line]:
    """Return one line per MIG slice."""
    if gpu.mig is None:
        return []
    if not gpu.mig:
        return [
            make_line(
                dim_span(translate("MIG is on, but no MIG instance exists or is visible here"))
            )
        ]
    # A GPU can be split into 7.
    most_slices = 16
    out = [_slice_line(one, width) for one in gpu.mig[:most_slices]]
    if len(gpu.mig) > most_slices:
        more = translate("  and {mig} more", mig=len(gpu.mig) - most_slices)
        out.append(make_line(dim_span(more)))
    return out


def _vram_line(used: int | None, total: int | None) -> Line:
    now, most = gib_of(used, total)
    return make_line(now, dim_span(most))


def _slice_line(one: MigSlice, width: int) -> Line:
    room = max(4, width - 32)
    left = make_line(
        dim_span(translate("  MIG ")),
        fit_text(one.name, 10),
        " ",
        *draw_bar(ratio(one.vram_used, one.vram_total), room),
    )
    return spread_line(left, _vram_line(one.vram_used, one.vram_total), width)


def _gpu_lines(gpu: GpuReading, width: int, mark: Span, *, two: bool) -> list[Line]:
    """Return a GPU's line, which ends with `mark`; with `two` also its state; then its problems."""
    if gpu.error:
        first, *rest = wrap_text(gpu.error, max(8, width - 4), Tone.TROUBLE, most=2)
        head = make_line(Span(f"{gpu.index} {current_glyphs().trouble} ", Tone.TROUBLE), *first)
        return [
            head,
            *(make_line("    ", *more) for more in rest),
            *_indent_lines(fault_lines(gpu, width - 2)),
        ]
    if width >= 64:
        wide = make_line(f"  {_format_whole(gpu.power_w):>4} W")
    else:
        wide = EMPTY
    # 27 cells: the number, both percentages, the memory, the temperature and the mark.
    room = max(3, (width - 27 - width_of(wide)) // 2)
    head = make_line(
        dim_span(f"{gpu.index:<2}"),
        *draw_bar(gpu.util, room),
        f" {percent_or_dash(gpu.util):>4}  ",
        *draw_bar(ratio(gpu.vram_used, gpu.vram_total), room),
        translate(" {vram_used:>5} GiB", vram_used=gib_or_dash(gpu.vram_used)),
        f" {_format_whole(gpu.temp_c):>3}{current_glyphs().degree}",
        *wide,
        mark,
    )
    # In one line per GPU, only links with a problem are shown.
    links = [made for made in link_words(gpu) if two or made[0].tone is Tone.WARN]
    parts = links
    if two:
        parts = [*map(_dim_line, state_words(gpu)), *links]
    second = join_parts(parts, max(8, width - 2), "  ")
    if two or health.is_slowed(gpu):
        below = trouble_lines(gpu, max(8, width - 2))
    else:
        below = _quiet_lines(gpu, width)
    return [head, *_indent_lines(second), *_indent_lines(below)]


def _quiet_lines(gpu: GpuReading, width: int) -> list[Line]:
    """Return the faults of a GPU that is not slowed down, and its slices."""
    # A corrected error is no reason for a second line per GPU.
    faults = [made for made in fault_lines(gpu, max(8, width - 2)) if made[0].tone is not Tone.DIM]
    return faults + slice_lines(gpu, max(8, width - 2))


def _dim_line(row: Line) -> Line:
    return tuple(dim_span(span.text) for span in row)


def _indent_lines(rows: Sequence[Line]) -> list[Line]:
    return [make_line("  ", *row) for row in rows]


def _urgency_mark(gpu: GpuReading, busiest: float) -> Span:
    g = current_glyphs()
    glyph, tone = {
        **dict.fromkeys(range(FAULTY + 1), (g.trouble, Tone.TROUBLE)),
        WEAK: (g.warn, Tone.WARN),
        IDLE: (g.idle, Tone.WARN),
    }.get(rank_urgency(gpu, busiest), (" ", Tone.TEXT))
    return Span(f" {glyph}", tone)


def _format_whole(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.0f}"
