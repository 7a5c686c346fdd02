"""What a box must have before a condition or a handbook page has anything to check.

Each costs a fraction of what it spares, and several ask for the same: of a box that is well, most need not be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rgt_tui.health.facts import NO_QUEUE_STALL_S, STANDS, Facts
from rgt_tui.model import Link, Proc
from rgt_tui.profiles.readings import STALL_MIN_S

Sign = Callable[[Facts], object]
"""Tells, by something that is true or false, whether it is there."""

LEAST_STAND_S = min(STANDS * STALL_MIN_S, NO_QUEUE_STALL_S)


class Signs:
    """The signs of one view, each asked for once."""

    __slots__ = ("_known", "_view")

    def __init__(self, view: Facts) -> None:
        self._view = view
        self._known: dict[Sign, bool] = {}

    def lack(self, sign: Sign | None) -> bool:
        """Tell whether a sign is not there; where nothing is needed, nothing lacks."""
        if sign is None:
            return False
        there = self._known.get(sign)
        if there is None:
            there = self._known[sign] = bool(sign(self._view))
        return not there


def unreachable(view: Facts) -> object:
    """The box does not answer."""
    return view.box.link is Link.UNREACHABLE


def stale(view: Facts) -> object:
    """There is no figure of now."""
    return view.stale


def queued(view: Facts) -> object:
    """A queue."""
    return view.box.queues


def work(view: Facts) -> object:
    """A queue, or a training that was found."""
    return view.box.queues or view.box.found


def named_work(view: Facts) -> object:
    """A running cell, or a training that was found."""
    return view.running or view.box.found


def running(view: Facts) -> object:
    """A running cell."""
    return view.running


def going_on(view: Facts) -> object:
    """An active run."""
    return view.running or view.beside


def standing(view: Facts) -> object:
    """A run that has not advanced for so long that something may hang."""
    return view.progress_age is not None and view.progress_age >= LEAST_STAND_S


def resumed(view: Facts) -> object:
    """A run that resumed from a checkpoint."""
    return any(run.resumes for run in view.box.runs)


def odd_loss(view: Facts) -> object:
    """A loss that is no number."""
    return any(run.loss is not None and not math.isfinite(run.loss) for run in view.box.runs)


def waiting_run(view: Facts) -> object:
    """A run that waits with unsaved work in memory."""
    return any(run.wait is not None for run in view.box.runs)


def over(view: Facts) -> object:
    """A found training whose processes are gone."""
    return any(not run.alive for run in view.box.found)


def armed(view: Facts) -> object:
    """This computer has armed it to stop itself."""
    return view.box.self_stop


def unread_mount(view: Facts) -> object:
    """A mount that could not be read."""
    sample = view.box.sample
    return sample is not None and any(disk.error is not None for disk in sample.disks)


def ailing_card(view: Facts) -> object:
    """A card that does not answer, is throttled, or has reported errors."""
    sample = view.box.sample
    return view.news.hard or (
        sample is not None
        and any(
            gpu.error is not None or gpu.throttle or gpu.xid is not None or gpu.ecc_uncorrected
            for gpu in sample.gpus
        )
    )


def stopped_process(view: Facts) -> object:
    """A process that a signal has stopped."""
    return any(proc.state == "T" for proc in _procs(view))


def ranks(view: Facts) -> object:
    """A process that is a rank of a distributed training."""
    return any(proc.dist is not None for proc in _procs(view))


def _procs(view: Facts) -> tuple[Proc, ...]:
    return view.box.sample.procs if view.box.sample is not None else ()
