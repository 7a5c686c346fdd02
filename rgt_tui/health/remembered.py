"""What is remembered of a box besides its alerts: trends, the machine's life, and its events."""

from __future__ import annotations

import re
from array import array

import msgspec

from rgt_tui.model import BoxEvent, BoxState, FrozenStruct, Lifecycle, LinkState, MachineLife

replace = msgspec.structs.replace

# Xid numbers by class. The agent has the same table with the meanings
# (``remote/rgt_box/sampling/xid.py``, from https://docs.nvidia.com/deploy/xid-errors/); a test
# keeps the two equal.
HARDWARE, SOFTWARE, NOTE = "error", "warn", "info"

_HARDWARE = (32, 38, 46, 48, 54, 61, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 140, 143, 149)
_NOTE = (45,)


def xid_level(number: int) -> str:
    """Return the level of an Xid. An unknown number may mean anything, so it is a warning."""
    if number in _HARDWARE:
        return HARDWARE
    if number in _NOTE:
        return NOTE
    return SOFTWARE


class TrendLimits(FrozenStruct):
    """From which points a trend is computed."""

    every_s: float = 60.0
    """Seconds between two points."""
    points: int = 30
    """Points kept."""
    least: int = 10
    """Points needed for a slope: a burst of a few minutes is a download or a checkpoint, and ends
    soon."""


TREND = TrendLimits()


class FigureTrend(FrozenStruct):
    """The last half hour of one figure. The points are packed, because a box has several trends."""

    points: array[float] = msgspec.field(default_factory=lambda: array("d"))
    """Known seconds, value, known seconds, value …, oldest first; never modified."""
    slope: float | None = None
    """Growth per second; None = too early to know."""

    def with_point(self, at: float, value: float) -> FigureTrend:
        """Return the trend with one more point at `at` known seconds."""
        points = self.points[-2 * (TREND.points - 1) :]
        points.extend((at, value))
        return FigureTrend(
            points, _theil_sen_slope(points) if len(points) >= 2 * TREND.least else None
        )


def _theil_sen_slope(points: array[float]) -> float:
    """Return the Theil-Sen estimate, which tolerates up to 29% outliers.

    https://en.wikipedia.org/wiki/Theil%E2%80%93Sen_estimator
    """
    times, values = points[::2], points[1::2]
    if min(values) == max(values):
        return 0.0  # the usual case
    from statistics import median

    slopes = [
        (values[j] - values[i]) / (times[j] - times[i])
        for i in range(len(times))
        for j in range(i + 1, len(times))
        if times[j] > times[i]
    ]
    if slopes:
        return median(slopes)
    return 0.0


TRACKER_KINDS = ("tracker-warn", "tracker-error")
_XID = re.compile(r"GPU (\S+) \(.*?\): Xid (\d+)")


class RememberedBox(FrozenStruct):
    """What earlier views have shown."""

    past: MachineLife = MachineLife()
    trends: dict[str, FigureTrend] = {}
    """By ``bytes:MOUNT`` and ``inodes:MOUNT``."""


class EventNews(FrozenStruct):
    """What a box's events report, gathered in one pass."""

    oom_seq: int = 0
    """Sequence number of the newest OOM kill; 0 = none."""
    oom_at: float | None = None
    """Box clock."""
    soft_seq: int = 0
    """Sequence number of the newest Xid that is not a hardware fault."""
    soft_at: float | None = None
    soft_text: str = ""
    tracker: dict[str, BoxEvent] = {}
    """Level → the newest alert that a run raised at its tracker."""
    hard: dict[str, str] = {}
    """GPU → text of its newest Xid that reports broken hardware."""


def gather_event_news(events: tuple[BoxEvent, ...]) -> EventNews:
    """Gather the OOM kills and Xids of `events`. Those before the newest boot are ignored."""
    if not events:
        return _NONE
    boot = events[-1].boot
    news = _NONE
    for event in events:
        if event.kind in TRACKER_KINDS:
            news = replace(news, tracker={**news.tracker, event.level: event})
        if event.kind not in ("oom-kill", "xid") or event.boot != boot:
            continue
        if event.kind == "oom-kill":
            news = replace(news, oom_seq=event.seq, oom_at=event.at)
            continue
        match = _XID.match(event.text)
        if match:
            number = int(match.group(2))
        else:
            number = None
        if number is not None:
            level = xid_level(number)
        else:
            level = event.level
        if level == HARDWARE:
            gpu = match.group(1) if match else "?"
            news = replace(news, hard={**news.hard, gpu: event.text})
        elif level == "warn":
            news = replace(news, soft_seq=event.seq, soft_at=event.at, soft_text=event.text)
    return news


_NONE = EventNews()


SEEN_EVERY_S = 600.0
"""Seconds between two records that a machine runs: each one is written to disk."""


def update_life(past: MachineLife, box: BoxState, word: Lifecycle) -> MachineLife:
    """Return what is known of the machine's life after the newest provider status and sample.

    Args:
        past: The earlier life.
        box: Its state.
        word: The provider's status, as `facts.provider_word` returns it.
    """
    meter = box.meter
    if word is not Lifecycle.RUNNING:
        seen = box.sample_at
    else:
        seen = max(filter(None, (box.sample_at, meter.at)), default=None)
    live = box.link is LinkState.LIVE and box.sample_at is not None
    if word in (Lifecycle.RUNNING, Lifecycle.STARTING):
        if not past.ran or past.rested:
            past = MachineLife(
                existed=True, ran=True, asked="" if past.rested else past.asked, started_at=meter.at
            )
    elif word in (Lifecycle.STOPPED, Lifecycle.GONE) and not past.rested:
        is_stop = word is Lifecycle.STOPPED
        at = meter.at if is_stop else None
        past = replace(past, existed=past.existed or is_stop, rested=True, stopped_at=at)
    elif word is Lifecycle.UNKNOWN and live and past.started_at is None:
        past = replace(past, started_at=box.sample_at)
    if seen is not None and _is_new_sighting(past.seen_at, seen, live=live):
        past = replace(past, seen_at=seen)
    if (
        live
        and seen is not None
        and past.parked_at is not None
        and seen > past.parked_at + SEEN_EVERY_S
    ):
        past = replace(past, parked_at=None, started_at=seen)
    return past


def _is_new_sighting(before: float | None, seen: float, *, live: bool) -> bool:
    """Return whether to record a newer sighting.

    One before the last means that the clock was set back.
    """
    if before is None:
        return True
    return seen - before >= SEEN_EVERY_S or (live and before - seen >= SEEN_EVERY_S)


def record_stop_request(past: MachineLife, verb: str) -> MachineLife:
    """Return the past after `verb` (park or destroy) was requested through rgt."""
    return replace(past, asked=verb)


def park_confirmed(past: MachineLife, at: float) -> MachineLife:
    """Return the past after a park through rgt was confirmed, unless the machine has run since.

    Args:
        past: The earlier life.
        at: Client clock of the confirmation.
    """
    if past.seen_at is not None and past.seen_at > at + SEEN_EVERY_S:
        return past
    if past.parked_at is not None and past.parked_at >= at:
        return past
    return replace(past, parked_at=at)


def update_trends(
    trends: dict[str, FigureTrend], box: BoxState, at: float
) -> dict[str, FigureTrend]:
    """Return the trends with one more point per mount, at `at` known seconds."""
    found: dict[str, FigureTrend] = {}
    for disk in box.sample.disks if box.sample is not None else ():
        if disk.read_only or disk.error is not None:
            continue
        for what, used in (("bytes", disk.bytes_used), ("inodes", disk.inodes_used)):
            if used is not None:
                key = f"{what}:{disk.mount}"
                found[key] = trends.get(key, FigureTrend()).with_point(at, float(used))
    return found
