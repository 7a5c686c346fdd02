"""What a book remembers of a box besides its alerts: growth, and what the machine was doing."""

from __future__ import annotations

import re

import msgspec

from rgt_tui.alerts.trend import Trend
from rgt_tui.alerts.xid import HARDWARE, level_of
from rgt_tui.model.box import BoxState
from rgt_tui.model.money import Lifecycle
from rgt_tui.model.protocol import Event

replace = msgspec.structs.replace

_XID = re.compile(r"GPU (\S+) \(.*?\): Xid (\d+)")


class Past(msgspec.Struct, frozen=True):
    """What is known of the machine's life: worth keeping when rgt ends."""

    existed: bool = False
    """The provider has known it."""
    ran: bool = False
    """It has been seen running since it last stopped."""
    asked: str = ""
    """Verb that was asked for through rgt since then: park or destroy."""
    rested: bool = False
    """The provider has called it stopped or gone since it ran."""
    stopped_at: float | None = None
    """Client clock at which the provider first called it stopped, where that was seen."""


class Memory(msgspec.Struct, frozen=True):
    """What earlier views have shown."""

    past: Past = Past()
    trends: dict[str, Trend] = {}
    """``bytes:MOUNT`` and ``inodes:MOUNT``."""


class News(msgspec.Struct, frozen=True):
    """What a box's events tell, gathered in one pass."""

    oom_seq: int = 0
    """Number of the newest kill; 0 = none."""
    oom_at: float | None = None
    """Box clock."""
    soft_seq: int = 0
    """Number of the newest Xid that is no fault of the hardware."""
    soft_at: float | None = None
    soft_text: str = ""
    hard: dict[str, str] = {}
    """GPU → text of its newest Xid that tells of broken hardware."""


def news_of(events: tuple[Event, ...]) -> News:
    """Gather what the rules want to know of `events`; those before the newest boot are history."""
    if not events:
        return _NONE
    boot = events[-1].boot
    news = _NONE
    for event in events:
        if event.kind not in ("oom-kill", "xid") or event.boot != boot:
            continue
        if event.kind == "oom-kill":
            news = replace(news, oom_seq=event.seq, oom_at=event.at)
            continue
        match = _XID.match(event.text)
        number = int(match.group(2)) if match else None
        level = level_of(number) if number is not None else event.level
        if level == HARDWARE:
            gpu = match.group(1) if match else "?"
            news = replace(news, hard={**news.hard, gpu: event.text})
        elif level == "warn":
            news = replace(news, soft_seq=event.seq, soft_at=event.at, soft_text=event.text)
    return news


_NONE = News()


def lived(past: Past, box: BoxState) -> Past:
    """Return what is known of the machine's life after the provider's newest word."""
    word = box.meter.lifecycle
    if word in (Lifecycle.RUNNING, Lifecycle.STARTING):
        if past.ran and not past.rested:
            return past
        return Past(existed=True, ran=True, asked="" if past.rested else past.asked)
    if word in (Lifecycle.STOPPED, Lifecycle.GONE) and not past.rested:
        stopped = word is Lifecycle.STOPPED
        at = box.meter.at if past.ran and stopped else None
        return replace(past, existed=past.existed or stopped, rested=True, stopped_at=at)
    return past


def asked(past: Past, verb: str) -> Past:
    """Return the past after `verb` (park or destroy) was asked for through rgt."""
    return replace(past, asked=verb)


def measured(trends: dict[str, Trend], box: BoxState, at: float) -> dict[str, Trend]:
    """Return the trends with one more point per mount, at `at` known seconds."""
    found: dict[str, Trend] = {}
    for disk in box.sample.disks if box.sample is not None else ():
        if disk.read_only or disk.error is not None:
            continue
        for what, used in (("bytes", disk.bytes_used), ("inodes", disk.inodes_used)):
            if used is not None:
                key = f"{what}:{disk.mount}"
                found[key] = trends.get(key, Trend()).fed(at, float(used))
    return found
