"""The right end of the header line."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.model.box import BoxState, Health
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.format import clean, compact_time, money, money_sum
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.verdict import Assessment, counts, mark
from rgt_tui.ui.widgets.headline import Parts
from rgt_tui.ui.widgets.spans import Span, Tone, dim, line


def fleet_parts(state: FleetState, healths: Sequence[Health]) -> Parts:
    """Return the boxes counted by state, the rate of the whole fleet, and what it has cost."""
    found = counts(healths)
    many = len(state.boxes)
    parts: Parts = [(3, line(dim(f"{many} box" if many == 1 else f"{many} boxes")))]
    for health, count in found:
        glyph, tone = mark(health)
        parts.append((1, line(Span(f"{glyph} {count}", tone))))
    rate = money_sum((box.meter.per_hour, box.meter.currency) for box in state.boxes)
    parts.append((2, line("  ", Span(rate), dim(" /h"))))
    parts += spend_parts(state)
    unknown = sum(1 for box in state.boxes if box.meter.per_hour is None)
    if unknown and unknown < many:
        parts.append((5, line(dim(f"{unknown} without a meter"))))
    return parts


def spend_parts(state: FleetState) -> Parts:
    """Return today's bill, what of it was idle, and that of yesterday and of the month, where somebody keeps count.

    Where nobody does: what the boxes have cost.
    """
    spend = state.spend
    if spend is None:
        spent = money_sum((box.meter.spent, box.meter.currency) for box in state.boxes)
        return [(4, line(dim("spent "), Span(spent)))]
    least = dict.fromkeys(spend.at_least, "at least ")
    parts: Parts = [(4, line(dim("today "), Span(least.get("today", "") + _sum(spend.today))))]
    if any(amount > 0 for _, amount in spend.idle_today):
        parts.append((5, line(dim("idle "), Span(_sum(spend.idle_today)))))
    if any(amount > 0 for _, amount in spend.yesterday):
        parts.append((6, line(dim("yesterday "), Span(least.get("yesterday", "") + _sum(spend.yesterday)))))
    if spend.month and spend.month != spend.today:
        parts.append((7, line(dim("month "), Span(least.get("month", "") + _sum(spend.month)))))
    return parts


def _sum(amounts: Sequence[tuple[str, float]]) -> str:
    return money_sum((amount, currency) for currency, amount in amounts)


def box_parts(box: BoxState, verdict: Assessment, platform: str, clock: Span | None) -> Parts:
    """Return the state of one box, its platform, its meter and its nearest danger clock."""
    glyph, tone = mark(verdict.health)
    parts: Parts = [(1, line(Span(f"{glyph} {clean(verdict.word)}", tone)))]
    if box.sample is not None:
        up = box.sample.session.uptime_s
        if up is not None and not verdict.stale:
            parts.append((5, line(dim("up "), compact_time(up))))
        if box.sample.gpus:
            name = clean(box.sample.gpus[0].name)
            platform = f"{platform}  {name} {glyphs().times}{len(box.sample.gpus)}"
    parts.append((6, line(dim(platform))))
    meter = box.meter
    if meter.per_hour is None:
        parts.append((2, line(dim("meter unknown"))))
    else:
        parts.append((2, line(money(meter.per_hour, meter.currency), dim("/h"))))
    if meter.spent is not None:
        parts.append((3, line(dim("spent "), money(meter.spent, meter.currency))))
    if clock is not None:
        parts.append((4 if clock.tone is not Tone.DIM else 7, line(clock)))
    return parts
