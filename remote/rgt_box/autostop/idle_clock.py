"""For how long the box has done nothing without a break, by the boot clock, and when it will stop. Pure.

A look is *idle* only when every sign could be read and none speaks of work. One that cannot be read is *unknown*, and
begins the time anew as work does: what is not known is never taken for idle.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False


if TYPE_CHECKING:
    from typing import Any, Collection, Mapping, NamedTuple

    class Now(NamedTuple):
        """One instant by three clocks, in seconds."""

        boot: float
        """Since the boot, with the time that the machine slept."""
        awake: float
        """Without it."""
        wall: float

    class Verdict(NamedTuple):
        """What a look says. All three empty: idle."""

        active: "tuple[str, ...]" = ()
        """What works, in words."""
        unknown: "tuple[str, ...]" = ()
        """What cannot be told, in words."""
        holders: "tuple[dict[str, Any], ...]" = ()
        """Idle processes that hold memory and were not accepted."""
else:
    from collections import namedtuple

    Now = namedtuple("Now", "boot awake wall")
    Verdict = namedtuple("Verdict", "active unknown holders", defaults=((), (), ()))
GPU_PCT = 3.0
"""Utilisation of a card from which on it works: drivers and monitors take a percent or two."""
RUN_PCT, OTHER_PCT = 2.0, 10.0
"""Percent of a core from which on a process works: one that trains, is a notebook or has a card open, and any other."""
STARVED_PCT = 1.0
"""Percent of a core from which on the time that a process waits for one counts as well: where others leave it little,
work looks like idleness. What uses less only wakes now and then."""
MUCH_RAM = 1 << 30
"""Bytes of RAM from which on an idle process holds something that a stop would lose."""
NOTEBOOK_RAM = 256 << 20
MUCH_VRAM = 1 << 30
"""Bytes in use on a card that somebody must account for; the driver itself needs less."""
JUMP, LEAP = 5.0, 5.0
"""Seconds by which the clock is set, or the machine slept, from which on the time begins anew."""


def now() -> Now:
    """Return this instant."""
    return Now(time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), time.time())


def judge(
    sample: Mapping[str, Any], signs: Mapping[str, Any], accepted: Collection[tuple[int, int]]
) -> Verdict:
    """Say what a look shows.

    Args:
        sample: As the sampler reads it.
        signs: What `work_signs` has seen beside it.
        accepted: (pid, start in ticks) of idle processes whose memory may be lost.
    """
    active: list[str] = list(signs.get("active") or ())
    unknown: list[str] = list(signs.get("unknown") or ())
    for card in sample.get("gpus") or []:
        _judge_card(card, signs, active, unknown)
    cards = len(sample.get("gpus") or [])
    if cards < int(signs.get("cards") or 0):
        unknown.append("%d of %d GPUs can be read" % (cards, signs["cards"]))
    transfers = sample.get("transfers")
    if transfers is None:
        unknown.append("it is not known whether files are being copied")
    active += [
        "files are being copied: %s, pid %d" % (item["name"], item["pid"])
        for item in transfers or []
    ]
    if sample.get("input_at") is None:
        unknown.append("it is not known when somebody last typed at a terminal")
    session = sample.get("session") or {}
    if session.get("slurm_error") and signs.get(
        "slurm"
    ):  # a program that was never set up tells nothing
        unknown.append(f"Slurm cannot be asked: {session['slurm_error']}")
    active += [f"Slurm has the job {job.get('id', '?')}" for job in session.get("slurm") or []]
    holders = []
    for process in signs.get("processes") or []:
        share = process.get("cpu_pct") or 0.0
        least = RUN_PCT if process.get("works") else OTHER_PCT
        if demand(process) >= least:
            words = "%s, pid %d, uses %.0f%% of a core" % (process["name"], process["pid"], share)
            if share < least:
                words += f", and waits for one {process['waits_pct']:.0f}% of the time"
            active.append(words)
        elif _holds(process) and (process["pid"], process["ticks"]) not in accepted:
            holders.append(process)
    return Verdict(tuple(active), tuple(unknown), tuple(holders))


def demand(process: Mapping[str, Any]) -> float:
    """Return the percent of a core that a process uses, or would use if it did not have to wait for one."""
    share, waits = process.get("cpu_pct") or 0.0, process.get("waits_pct") or 0.0
    return float(share + waits if share >= STARVED_PCT else share)


def _judge_card(
    card: Mapping[str, Any], signs: Mapping[str, Any], active: list[str], unknown: list[str]
) -> None:
    name = f"GPU {card.get('index', '?')}"
    if card.get("error"):
        unknown.append(f"{name} does not answer: {card['error']}")
        return
    share = card.get("util")
    if share is None:
        unknown.append(f"{name} does not say whether it is busy")
    elif share >= GPU_PCT:
        active.append(f"{name} is busy: {share:.0f}%")
    used = card.get("vram_used")
    if card.get("sim"):
        return
    if used is None:
        unknown.append(f"{name} does not say how much of its memory is in use")
    elif used >= MUCH_VRAM and not signs.get("named", {}).get(card.get("index")):
        unknown.append(f"{name}: {used / 2**30:.1f} GiB are held by an unknown process")


def _holds(process: Mapping[str, Any]) -> bool:
    """Tell whether an idle process holds what a stop would lose; a training that is alive always does."""
    if process.get("run") or process.get("vram"):
        return True
    return int(process.get("rss") or 0) >= (NOTEBOOK_RAM if process.get("notebook") else MUCH_RAM)


class IdleClock:
    """For how long the box has been idle.

    Args:
        every: Seconds between two looks, as far as nothing comes in between.
    """

    def __init__(self, every: float) -> None:
        self._gap = max(3.0 * every, every + 30.0)
        self._last: Now | None = None
        self.idle_since: float | None = None
        """By the clock of the boot; None = not idle, or not known."""
        self.unknown_since: float | None = None
        """Since when it cannot be told, with short whiles of idleness in between."""

    def begin_anew(self) -> None:
        """Forget what was seen."""
        self.idle_since = None

    def feed(self, at: Now, verdict: Verdict) -> str:
        """Process a look; returns why the idle time was reset although nothing works, "" = it was not."""
        why = "" if self._last is None else self._broken(self._last, at)
        self._last = at
        if why:
            self.idle_since = None
        if verdict.unknown and not verdict.active:
            self.idle_since = None
            if self.unknown_since is None:
                self.unknown_since = at.boot
        elif verdict.active or verdict.holders:
            self.idle_since = self.unknown_since = None
        elif self.idle_since is None:
            self.idle_since = at.boot
        return why

    def _broken(self, last: Now, at: Now) -> str:
        passed = at.boot - last.boot
        slept = passed - (at.awake - last.awake)
        set_by = (at.wall - last.wall) - passed
        if passed < 0 or abs(slept) >= LEAP:
            return f"the machine was suspended for {slept:.0f} s"
        if abs(set_by) >= JUMP:
            return f"the clock was set by {set_by:+.0f} s"
        if passed > self._gap:
            return f"nothing was read for {passed:.0f} s"
        return ""

    def known_again(self, at: Now, after: float) -> None:
        """Forget that it could not be told, once it was told to be idle for so many seconds."""
        if self.idle_since is not None and at.boot - self.idle_since >= after:
            self.unknown_since = None

    def idle_s(self, at: Now) -> float | None:
        """Return the seconds of idleness; 0 while it works, None while it cannot be told."""
        if self.idle_since is not None:
            return max(0.0, at.boot - self.idle_since)
        if self.unknown_since is not None:
            return None
        return 0.0

    def unknown_s(self, at: Now) -> float:
        """Return for how long it could not be told."""
        if self.unknown_since is None:
            return 0.0
        return max(0.0, at.boot - self.unknown_since)


if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple

    class Step(NamedTuple):
        """What is due now."""

        action: str
        """warn, withdraw, stop, or "" for nothing."""
        stops_in: "float | None"
        """Seconds until the stop, as far as can be told; None = it is not in sight."""
else:
    from collections import namedtuple

    Step = namedtuple("Step", "action stops_in")
RETRY, LONGEST_RETRY = 600.0, 7200.0
"""Seconds until a stop that failed is tried again: doubled by each further failure, up to the second figure."""


def retry_after(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row; a stop that was withdrawn counts as none."""
    return float(min(LONGEST_RETRY, RETRY * 2 ** min(10, max(0, failures - 1))))


def due_when_idle(
    plan: Mapping[str, Any], idle_since: float | None, inspected: bool
) -> float | None:
    """Return when an idle box stops, by the clock of its boot; None while it is not idle.

    Args:
        plan: What was armed.
        idle_since: As `IdleClock` has it.
        inspected: A cell has failed, for which the box is held a while longer.
    """
    if idle_since is None:
        return None
    return max(idle_since + idle_limit(plan, inspected), float(plan.get("kept_until_boot") or 0.0))


def idle_limit(plan: Mapping[str, Any], inspected: bool) -> float:
    """Return the seconds of idleness after which the box stops."""
    return float(plan["idle_s"]) + (float(plan.get("inspect_s") or 0.0) if inspected else 0.0)


def due_by_lease(plan: Mapping[str, Any]) -> float:
    """Return when a lease ends, by the clock of the boot."""
    ends = float(plan["armed_boot"]) + float(plan["lease_s"])
    return max(ends, float(plan.get("kept_until_boot") or 0.0))


class Countdown:
    """What has been said of one armed stop.

    Attributes:
        warned_at: When it was warned of, by the clock of the boot; None = it was not.
        not_before: No stop before this instant: the last one failed, or was withdrawn.
    """

    def __init__(self) -> None:
        self.warned_at: float | None = None
        self.not_before = 0.0

    def step(self, at: float, due: float | None, warn: float) -> Step:
        """Return what is due.

        Args:
            at: Now, by the clock of the boot.
            due: When it is to stop; None = that is not in sight.
            warn: Seconds before that to warn, and for which a warning must have stood.
        """
        if due is not None:
            due = max(due, self.not_before)
        if due is None or (self.warned_at is not None and due - warn > max(at, self.warned_at)):
            if self.warned_at is None:
                return Step("", None if due is None else max(0.0, due - at))
            self.warned_at = None
            return Step("withdraw", None if due is None else due - at)
        if self.warned_at is None:
            if at < due - warn:
                return Step("", due - at)
            self.warned_at = at
            return Step("warn", max(due, at + warn) - at)
        stop = max(due, self.warned_at + warn)
        return Step("stop" if at >= stop else "", max(0.0, stop - at))
