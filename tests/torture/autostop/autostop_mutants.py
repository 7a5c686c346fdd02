"""Guards of a box that stops itself, each taken out by itself: the machine has to miss every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rgt_box.autostop import armed_plan, idle_clock, own_stop, stop_process, story

Mutant = Callable[[pytest.MonkeyPatch], None]


def verdict_without(*fields: str) -> Mutant:
    """Return the mutant that does not see some part of what a look says."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        real = idle_clock.judge_reading

        def lenient(sample: Any, signs: Any, accepted: Any) -> Any:
            return real(sample, signs, accepted)._replace(**dict.fromkeys(fields, ()))

        patch.setattr(idle_clock, "judge_reading", lenient)

    return mutate


def recorder_blind(patch: pytest.MonkeyPatch) -> None:
    """The recorder takes every look for idle; the last look still sees."""
    real = idle_clock.IdleClock.feed
    patch.setattr(
        idle_clock.IdleClock,
        "feed",
        lambda self, at, verdict: real(self, at, idle_clock.IdleVerdict()),
    )


def unbroken(patch: pytest.MonkeyPatch) -> None:
    """A clock that was set and a machine that slept are no matter."""
    patch.setattr(idle_clock.IdleClock, "_find_time_gap", lambda *_: "")


def of_any_boot(patch: pytest.MonkeyPatch) -> None:
    """A plan holds whatever boot and machine it was armed for."""
    patch.setattr(armed_plan, "why_void", lambda *_: "")


def suspended(patch: pytest.MonkeyPatch) -> None:
    """A machine that was suspended and resumed goes on."""
    patch.setattr(armed_plan, "SLEPT", 1e12)


def no_last_look(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        stop_process.StopAttempt, "_check_last_time", lambda self: self._require_still_armed()
    )


def one_last_look(patch: pytest.MonkeyPatch) -> None:
    """It looks before it saves, and not again before it asks."""
    real = stop_process.StopAttempt._check_last_time

    def once(self: Any) -> None:
        if self._journal.get("phase") in (None, story.BEGUN):
            real(self)

    patch.setattr(stop_process.StopAttempt, "_check_last_time", once)


def not_kept(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks in the end whether it was put off or taken back."""
    patch.setattr(stop_process.StopAttempt, "_require_still_armed", lambda self: None)


def unsealed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stop_process.StopAttempt, "_acquire_queues", lambda self: None)


def unwarned(patch: pytest.MonkeyPatch) -> None:
    """It stops as soon as that is due, warned of or not."""

    def step(self: Any, at: float, due: float | None, warn: float) -> Any:
        if due is not None and at >= max(due, self.not_before):
            return idle_clock.DueAction("stop", 0.0)
        return idle_clock.DueAction("", None)

    patch.setattr(idle_clock.Countdown, "next_action", step)


def never(patch: pytest.MonkeyPatch) -> None:
    """It is never time."""
    patch.setattr(idle_clock.Countdown, "next_action", lambda *_: idle_clock.DueAction("", None))


def restless(patch: pytest.MonkeyPatch) -> None:
    """Every look begins the time anew."""
    real = idle_clock.IdleClock.feed

    def feed(self: Any, at: Any, verdict: Any) -> Any:
        self.restart_clock()
        return real(self, at, verdict)

    patch.setattr(idle_clock.IdleClock, "feed", feed)


def put_off_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """What was put off stops all the same."""
    real = idle_clock.due_when_idle
    patch.setattr(
        idle_clock,
        "due_when_idle",
        lambda plan, since, inspected: real(dict(plan, kept_until_boot=None), since, inspected),
    )
    not_kept(patch)


def uninspected(patch: pytest.MonkeyPatch) -> None:
    """A failed cell holds the box no longer than any other."""
    patch.setattr(idle_clock, "idle_limit", lambda plan, inspected: float(plan["idle_s"]))


def unwritten(patch: pytest.MonkeyPatch) -> None:
    """The intent is not written down before the call."""
    real = stop_process.StopAttempt._write_journal

    def write(self: Any, phase: str, strict: bool = False, **more: Any) -> None:
        if phase not in (story.INTENT, story.ANSWERED):
            real(self, phase, strict, **more)

    patch.setattr(stop_process.StopAttempt, "_write_journal", write)


def hopeful(patch: pytest.MonkeyPatch) -> None:
    """An answer that is no success proves that nothing was done."""
    real = own_stop.OwnStop.send_stop

    def park(self: Any) -> Any:
        answer = real(self)
        return (
            answer
            if answer.proves == own_stop.ACCEPTED
            else answer._replace(proves=own_stop.NOTHING)
        )

    patch.setattr(own_stop.OwnStop, "send_stop", park)


def impatient(patch: pytest.MonkeyPatch) -> None:
    """What still runs right after the call was not stopped by it."""
    patch.setattr(stop_process, "SETTLE", 0.0)


def guessing(patch: pytest.MonkeyPatch) -> None:
    """Where nobody answers what came of it, it is sent again."""
    real = stop_process.StopAttempt._wait_until_off

    def came_off(self: Any, own: Any) -> bool:
        try:
            return bool(real(self, own))
        except stop_process.StopFailed:
            return False

    patch.setattr(stop_process.StopAttempt, "_wait_until_off", came_off)


def unaccepted(patch: pytest.MonkeyPatch) -> None:
    """A lease ends whatever runs."""
    patch.setattr(stop_process.StopAttempt, "_accepts_unsaving", lambda self, name: True)


def unproved(patch: pytest.MonkeyPatch) -> None:
    """A lease ends runs without asking whether the box can be stopped after them."""
    patch.setattr(stop_process.StopAttempt, "_prove_right", lambda self, own: None)


def eager_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(idle_clock, "due_by_lease", lambda plan: float(plan["armed_boot"]) + 20.0)


def acting(patch: pytest.MonkeyPatch) -> None:
    """A box that may only ask parks."""
    real = armed_plan.load_plans

    def load(folder: str) -> Any:
        found = real(folder)
        return {mode: dict(plan, action="park") for mode, plan in found.items()}

    patch.setattr(armed_plan, "load_plans", load)


MUTANTS: dict[str, Mutant] = {
    "work is not seen": verdict_without("active"),
    "the recorder sees no work": recorder_blind,
    "what cannot be told counts as idle": verdict_without("unknown"),
    "idle processes that hold memory do not count": verdict_without("holders"),
    "a clock that was set is no matter": unbroken,
    "a plan holds for any boot": of_any_boot,
    "a resumed machine goes on": suspended,
    "the last look is skipped": no_last_look,
    "no look right before the call": one_last_look,
    "put off in the last moment for nothing": not_kept,
    "put off for nothing": put_off_for_nothing,
    "no seal": unsealed,
    "no warning": unwarned,
    "never": never,
    "every look begins the time anew": restless,
    "no time to inspect": uninspected,
    "the intent is not written": unwritten,
    "every answer proves that nothing was done": hopeful,
    "no time to settle": impatient,
    "an answer that is lost is sent again": guessing,
    "a lease ends what nobody has accepted": unaccepted,
    "a lease ends too soon": eager_lease,
    "a lease ends runs without a proof": unproved,
    "a box that may only ask parks": acting,
}
"""What is left out → how."""
