"""Measures how long the box has been idle, and computes when it stops. Pure functions and state.

A reading is *idle* only if every sign could be read and none shows work. If any sign cannot be
read, it is *unknown*, which resets the idle time as work does: unknown never counts as idle.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False


if TYPE_CHECKING:
    from typing import Any, Collection, Mapping, NamedTuple

    from rgt_wire import JsonObject

    class ClockReading(NamedTuple):
        """One instant by three clocks, in seconds."""

        boot: float
        """Seconds since boot, including suspend."""
        awake: float
        """Seconds excluding suspend (monotonic clock)."""
        wall: float

    class IdleVerdict(NamedTuple):
        """Result of one reading. All three fields empty means idle."""

        active: "tuple[str, ...]" = ()
        """Descriptions of the work found."""
        unknown: "tuple[str, ...]" = ()
        """Descriptions of what cannot be determined."""
        holders: "tuple[JsonObject, ...]" = ()
        """Idle processes that hold memory and were not accepted."""
else:
    from collections import namedtuple

    ClockReading = namedtuple("ClockReading", "boot awake wall")
    IdleVerdict = namedtuple("IdleVerdict", "active unknown holders", defaults=((), (), ()))
GPU_PCT = 3.0
"""GPU utilisation (percent) that counts as work: drivers and monitors use one or two percent."""
RUN_PCT, OTHER_PCT = 2.0, 10.0
"""Percent of a core that counts as work: for a process that trains, is a notebook or uses a GPU,
and for any other."""
MUCH_RAM = 1 << 30
"""Bytes of RAM above which an idle process holds something that a stop would lose."""
NOTEBOOK_RAM = 256 << 20
MUCH_VRAM = 1 << 30
"""Bytes of GPU memory in use that must belong to a known process; the driver itself needs less."""
JUMP, LEAP = 5.0, 5.0
"""Seconds by which a clock change or a suspend resets the idle time."""


def read_clocks() -> ClockReading:
    """Return the current instant."""
    # CLOCK_BOOTTIME counts suspend, CLOCK_MONOTONIC does not (clock_gettime(2)).
    return ClockReading(time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), time.time())


def judge_reading(
    sample: Mapping[str, Any], signs: Mapping[str, Any], accepted: Collection[tuple[int, int]]
) -> IdleVerdict:
    """Return the verdict of one reading.

    Args:
        sample: A sample of the sampler.
        signs: Additional signs from `work_signs`; ``no_progress`` has the (pid, start in ticks) of
            live runs that count as idle.
        accepted: (pid, start in ticks) of idle processes whose memory may be lost.
    """
    active: list[str] = list(signs.get("active") or ())
    unknown: list[str] = list(signs.get("unknown") or ())
    for card in sample.get("gpus") or []:
        _judge_card(card, signs, active, unknown)
    cards = len(sample.get("gpus") or [])
    # A card that has dropped off the bus may be the one that works.
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
    ):  # ignore the error of a Slurm client that was never set up
        unknown.append(f"Slurm cannot be queried: {session['slurm_error']}")
    active += [f"Slurm has the job {job.get('id', '?')}" for job in session.get("slurm") or []]
    no_progress = signs.get("no_progress") or ()
    active += [
        row["text"]
        for row in signs.get("runners") or []
        if (row["pid"], row["ticks"]) not in no_progress
    ]
    holders = []
    for process in signs.get("processes") or []:
        share = process.get("cpu_pct") or 0.0
        # A training that waits for data uses little; any other process must use more to count.
        if process.get("works"):
            least = RUN_PCT
        else:
            least = OTHER_PCT
        if cpu_demand_pct(process) >= least:
            words = "%s, pid %d, uses %.0f%% of a core" % (process["name"], process["pid"], share)
            if share < least:
                words += f", and waits for one {process['waits_pct']:.0f}% of the time"
            active.append(words)
        elif _holds_memory(process) and not (
            (process["pid"], process["ticks"]) in accepted
            or (process["pid"], process["ticks"]) in no_progress
        ):
            holders.append(process)
    return IdleVerdict(tuple(active), tuple(unknown), tuple(holders))


def cpu_demand_pct(process: Mapping[str, Any]) -> float:
    """Return the percent of a core that a process uses, plus what it waits for if it is starved."""
    share = process.get("cpu_pct") or 0.0
    waits = process.get("waits_pct") or 0.0
    # Percent of a core above which time spent waiting for a core counts as well, because a starved
    # process looks idle. A process that uses less only wakes up now and then.
    starved_pct = 1.0
    return float(share + waits if share >= starved_pct else share)


def _judge_card(
    card: Mapping[str, Any], signs: Mapping[str, Any], active: list[str], unknown: list[str]
) -> None:
    name = f"GPU {card.get('index', '?')}"
    if card.get("error"):
        unknown.append(f"{name} does not answer: {card['error']}")
        return
    share = card.get("util")
    if share is None:
        unknown.append(f"{name} does not report its utilisation")
    elif share >= GPU_PCT:
        active.append(f"{name} is busy: {share:.0f}%")
    used = card.get("vram_used")
    # Simulated cards of the demo have no processes that could hold their memory.
    if card.get("sim"):
        return
    if used is None:
        unknown.append(f"{name} does not report its used memory")
    # In a container NVML names no processes of others; memory proves that one is there.
    elif used >= MUCH_VRAM and not signs.get("named", {}).get(card.get("index")):
        unknown.append(f"{name}: {used / 2**30:.1f} GiB are used by an unknown process")


def _holds_memory(process: Mapping[str, Any]) -> bool:
    """Return whether a stop would lose memory of an idle process; true for every training run."""
    if process.get("run") or process.get("vram"):
        return True
    return int(process.get("rss") or 0) >= (NOTEBOOK_RAM if process.get("notebook") else MUCH_RAM)


class IdleClock:
    """Tracks how long the box has been idle.

    Args:
        every: Seconds between two readings, normally. A much longer gap resets the idle time.
    """

    def __init__(self, every: float) -> None:
        self._gap = max(3.0 * every, every + 30.0)
        self._last: ClockReading | None = None
        self.idle_since: float | None = None
        """Boot-clock seconds; None if not idle, or unknown."""
        self.unknown_since: float | None = None
        """Boot-clock seconds since when idleness is unknown, ignoring short idle periods in
        between."""

    def restart_clock(self) -> None:
        """Reset the idle time."""
        self.idle_since = None

    def feed(self, at: ClockReading, verdict: IdleVerdict) -> str:
        """Process a reading; returns why a clock jump or gap reset the idle time, or ""."""
        if self._last is None:
            why = ""
        else:
            why = self._find_time_gap(self._last, at)
        self._last = at
        if why:
            self.idle_since = None
        # Work is certain, so unknown readings do not matter.
        if verdict.unknown and not verdict.active:
            self.idle_since = None
            if self.unknown_since is None:
                self.unknown_since = at.boot
        # A holder is known, not unknown: it keeps the box up, but clears the unknown time.
        elif verdict.active or verdict.holders:
            self.idle_since = self.unknown_since = None
        elif self.idle_since is None:
            self.idle_since = at.boot
        return why

    def _find_time_gap(self, last: ClockReading, at: ClockReading) -> str:
        passed = at.boot - last.boot
        slept = passed - (at.awake - last.awake)
        set_by = (at.wall - last.wall) - passed
        # The box was not watched meanwhile, so its idleness is not proved.
        if passed < 0 or abs(slept) >= LEAP:
            return f"the machine was suspended for {slept:.0f} s"
        if abs(set_by) >= JUMP:
            return f"the clock was set by {set_by:+.0f} s"
        if passed > self._gap:
            return f"nothing was read for {passed:.0f} s"
        return ""

    def clear_unknown_after(self, at: ClockReading, after: float) -> None:
        """Clear `unknown_since` after `after` seconds of known idleness."""
        if self.idle_since is not None and at.boot - self.idle_since >= after:
            self.unknown_since = None

    def idle_s(self, at: ClockReading) -> float | None:
        """Return the seconds of idleness; 0 while working, None while unknown."""
        if self.idle_since is not None:
            return max(0.0, at.boot - self.idle_since)
        if self.unknown_since is not None:
            return None
        return 0.0

    def unknown_s(self, at: ClockReading) -> float:
        """Return the seconds for which idleness has been unknown."""
        if self.unknown_since is None:
            return 0.0
        return max(0.0, at.boot - self.unknown_since)


if TYPE_CHECKING:
    from typing import Any, Mapping, NamedTuple

    class DueAction(NamedTuple):
        """The action that is due now."""

        action: str
        """``warn``, ``withdraw``, ``stop``, or "" for nothing."""
        stops_in: "float | None"
        """Seconds until the stop; None if no stop is expected."""
else:
    from collections import namedtuple

    DueAction = namedtuple("DueAction", "action stops_in")
RETRY, LONGEST_RETRY = 600.0, 7200.0
"""Seconds before a failed stop is retried: doubles with each failure, up to the second value."""


def retry_after(failures: int) -> float:
    """Return the seconds to wait after consecutive failures; withdrawn stops do not count."""
    # min(10): a power with a large exponent would overflow the float.
    return float(min(LONGEST_RETRY, RETRY * 2 ** min(10, max(0, failures - 1))))


def due_when_idle(
    plan: Mapping[str, Any], idle_since: float | None, inspected: bool
) -> float | None:
    """Return when an idle box stops (boot clock); None if it is not idle.

    Args:
        plan: The armed plan.
        idle_since: `IdleClock.idle_since`.
        inspected: A cell has failed, so the box stays up longer for inspection.
    """
    if idle_since is None:
        return None
    return max(idle_since + idle_limit(plan, inspected), float(plan.get("kept_until_boot") or 0.0))


def idle_limit(plan: Mapping[str, Any], inspected: bool) -> float:
    """Return the seconds of idleness after which the box stops."""
    return float(plan["idle_s"]) + (float(plan.get("inspect_s") or 0.0) if inspected else 0.0)


def due_by_lease(plan: Mapping[str, Any]) -> float:
    """Return when a lease ends (boot clock)."""
    ends = float(plan["armed_boot"]) + float(plan["lease_s"])
    return max(ends, float(plan.get("kept_until_boot") or 0.0))


class Countdown:
    """The warning state of one armed stop.

    Attributes:
        warned_at: When the warning was issued (boot clock); None without one.
        not_before: Earliest time of the next stop, after one failed or was withdrawn.
    """

    def __init__(self) -> None:
        self.warned_at: float | None = None
        self.not_before = 0.0

    def next_action(self, at: float, due: float | None, warn: float) -> DueAction:
        """Return the action that is due.

        Args:
            at: Now (boot clock).
            due: When the stop is due; None if it is not.
            warn: Seconds of warning before the stop; a late warning delays the stop.
        """
        if due is not None:
            due = max(due, self.not_before)
        # Not due any more, or so much later that a new warning must come first.
        if due is None or (self.warned_at is not None and due - warn > max(at, self.warned_at)):
            if self.warned_at is None:
                return DueAction("", None if due is None else max(0.0, due - at))
            self.warned_at = None
            return DueAction("withdraw", None if due is None else due - at)
        if self.warned_at is None:
            if at < due - warn:
                return DueAction("", due - at)
            self.warned_at = at
            return DueAction("warn", max(due, at + warn) - at)
        # A late warning delays the stop: a person must get the whole time.
        stop = max(due, self.warned_at + warn)
        return DueAction("stop" if at >= stop else "", max(0.0, stop - at))
