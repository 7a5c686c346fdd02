"""Notices a connection that has gone silent, and a computer that slept or whose clock was set."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from rgt_tui.model import BoxState
from rgt_tui.profiles import age

WOKEN_SECONDS = 10.0
"""A connection that says nothing for so long after the computer slept is dead."""
HUNG_SECONDS = 30.0
"""An agent that does not answer for so long hangs: it is stopped, or waits for a disk that is gone. A box that swaps
may take a while to answer."""


ROUND_SECONDS = 0.5
"""So often all that need not be looked at sooner are gone through."""


class _Rounds:
    """One timer for all connections that speak: hundreds of their own, set anew every few seconds, are not free."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._due: dict[Keepalive, float] = {}
        self._goes = False

    def join(self, one: Keepalive, seconds: float) -> None:
        """Have one looked at within so many seconds."""
        self._due[one] = time.monotonic() + seconds
        self._begin()

    def leave(self, one: Keepalive) -> None:
        """Nobody waits for it any more."""
        self._due.pop(one, None)

    def _begin(self) -> None:
        loop = self._loop()
        if self._due and not self._goes and loop is not None:
            self._goes = True
            loop.call_later(ROUND_SECONDS, self._go)

    def _go(self) -> None:
        self._goes = False
        soon = time.monotonic() + ROUND_SECONDS
        for one in [one for one, due in self._due.items() if due <= soon]:
            del self._due[one]
            one.look()
        self._begin()


_rounds: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Rounds] = weakref.WeakKeyDictionary()


class Keepalive:
    """Listens to one connection at a time. Every byte counts as a sign of life: a long line comes slowly.

    Args:
        patience: Seconds of silence after which the agent is asked.
        ask: Sends it a question that every agent answers.
        cut: Gives the connection up; called with the reason.
    """

    def __init__(
        self, patience: Callable[[], float], ask: Callable[[], None], cut: Callable[[str], None]
    ) -> None:
        self._began = self._last = 0.0
        self._patience = patience
        self._ask = ask
        self._cut = cut
        self._timer: asyncio.TimerHandle | None = None
        self._rounds: _Rounds | None = None

    @property
    def lived(self) -> float:
        """For how long something came, in seconds; the wait for what says nothing is no life."""
        return self._last - self._began

    def reset(self) -> None:
        """Nothing has come yet."""
        self._began = self._last = 0.0

    def begin(self) -> None:
        """A stream begins."""
        self._began = self._last = time.monotonic()
        self._again(self._patience())

    def heard(self) -> None:
        """Something came."""
        self._last = time.monotonic()

    def end(self) -> None:
        """The stream is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._rounds is not None:
            self._rounds.leave(self)

    def woke(self) -> None:
        """The computer slept: ask at once."""
        self._question(WOKEN_SECONDS)

    def look(self) -> None:
        """See for how long nothing has come."""
        silent, patience = time.monotonic() - self._last, self._patience()
        if silent < patience:
            self._again(patience - silent)
        else:
            self._question(HUNG_SECONDS)

    def _question(self, seconds: float) -> None:
        before = self._last
        self._ask()
        self._after(seconds, self._decide, before)

    def _decide(self, last: float) -> None:
        if self._last == last:
            silent = time.monotonic() - last
            self._cut(f"the agent has said nothing for {silent:.0f} s, and does not answer: it hangs")
        else:
            self._again(self._patience())

    def _again(self, seconds: float) -> None:
        if seconds <= 2 * ROUND_SECONDS:
            self._after(seconds, self.look)
            return
        self.end()
        loop = asyncio.get_running_loop()
        self._rounds = _rounds.get(loop) or _rounds.setdefault(loop, _Rounds(loop))
        self._rounds.join(self, seconds)

    def _after(self, seconds: float, call: Callable[..., None], *arguments: float) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, call, *arguments)


JUMP_SECONDS = 5.0
"""Less is a loop that was busy, or a clock that is being adjusted."""

replace = msgspec.structs.replace


class Times(NamedTuple):
    """The clocks at one moment, in seconds."""

    wall: float
    """Epoch; may be set."""
    awake: float
    """Never set; stands still while the computer sleeps."""
    elapsed: float
    """Never set; goes on while it sleeps. Where there is no such clock, the same as `awake`."""


class Jump(NamedTuple):
    """What happened between two moments."""

    slept: float = 0.0
    moved: float = 0.0
    """By how much the clock was set, positive = ahead."""

    @property
    def words(self) -> str:
        """For the event line."""
        if self.slept:
            return f"this computer slept for {age(round(self.slept))}: connecting again"
        way = "forward" if self.moved > 0 else "back"
        return f"this computer's clock went {way} {age(round(abs(self.moved)))}"


def read(wall: float) -> Times:
    """Return the clocks now; `wall` is the fleet's own."""
    return Times(wall, time.monotonic(), elapsed())


def elapsed() -> float:
    """Return a clock that also runs while the computer sleeps, where the system has one."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # Linux; macOS, whose `monotonic` stands still
        number = getattr(time, name, None)
        if number is not None:
            return time.clock_gettime(number)
    return time.monotonic()


def jump(before: Times, after: Times) -> Jump | None:
    """Return what happened in between; None = nothing out of the ordinary."""
    slept = (after.elapsed - before.elapsed) - (after.awake - before.awake)
    moved = (after.wall - before.wall) - (after.elapsed - before.elapsed)
    if slept < JUMP_SECONDS and abs(moved) < JUMP_SECONDS:
        return None
    return Jump(
        max(0.0, slept) if slept >= JUMP_SECONDS else 0.0, moved if abs(moved) >= JUMP_SECONDS else 0.0
    )


def shifted(state: BoxState, seconds: float) -> BoxState:
    """Return the state adjusted to a client clock that was set: ages stay what they were.

    Args:
        state: A box.
        seconds: By how much the clock was set, positive = ahead.
    """
    if not seconds:
        return state
    return replace(
        state,
        since=state.since + seconds,
        sample_at=_plus(state.sample_at, seconds),
        clock_skew=_plus(state.clock_skew, -seconds),
        retry_at=_plus(state.retry_at, seconds),
        remembered_at=_plus(state.remembered_at, seconds),
        runs=tuple(replace(run, progressed_at=_plus(run.progressed_at, seconds)) for run in state.runs),
        logs=tuple(
            replace(view, at=_plus(view.at, seconds), written=_plus(view.written, seconds))
            for view in state.logs
        ),
    )


def _plus(value: float | None, seconds: float) -> float | None:
    return None if value is None else value + seconds
