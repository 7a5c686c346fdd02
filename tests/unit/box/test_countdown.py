"""When an armed box stops: warned of for long enough, never while it is put off."""

from __future__ import annotations

from typing import Any

from rgt_box.autostop.idle_clock import (
    Countdown,
    DueAction,
    due_by_lease,
    due_when_idle,
    idle_limit,
)

PLAN: dict[str, Any] = {"idle_s": 100.0, "inspect_s": 50.0, "lease_s": 1000.0, "armed_boot": 7.0}


def test_when_it_is_due() -> None:
    assert due_when_idle(PLAN, None, False) is None
    assert due_when_idle(PLAN, 20.0, False) == 120
    assert due_when_idle(PLAN, 20.0, True) == 170
    assert (idle_limit(PLAN, False), idle_limit(PLAN, True)) == (100, 150)
    assert due_by_lease(PLAN) == 1007
    kept = PLAN | {"kept_until_boot": 5000.0}
    assert (due_when_idle(kept, 20.0, False), due_by_lease(kept)) == (5000, 5000)
    early = PLAN | {"kept_until_boot": 30.0}
    assert (due_when_idle(early, 20.0, False), due_by_lease(early)) == (120, 1007)


def test_it_warns_once_and_stops_when_the_time_is_over() -> None:
    count = Countdown()
    assert count.next_action(0.0, 100.0, 10.0) == DueAction("", 100.0)
    assert count.next_action(89.9, 100.0, 10.0).action == ""
    assert count.next_action(90.0, 100.0, 10.0) == DueAction("warn", 10.0)
    assert count.next_action(95.0, 100.0, 10.0) == DueAction("", 5.0)
    assert count.next_action(99.9, 100.0, 10.0).action == ""
    assert count.next_action(100.0, 100.0, 10.0) == DueAction("stop", 0.0)


def test_a_late_warning_stands_for_its_whole_time() -> None:
    count = Countdown()
    assert count.next_action(500.0, 100.0, 10.0) == DueAction("warn", 10.0)
    assert count.next_action(509.0, 100.0, 10.0) == DueAction("", 1.0)
    assert count.next_action(510.0, 100.0, 10.0).action == "stop"


def test_work_withdraws_it_and_it_warns_again() -> None:
    count = Countdown()
    count.next_action(90.0, 100.0, 10.0)
    assert count.next_action(95.0, None, 10.0) == DueAction("withdraw", None)
    assert count.next_action(96.0, None, 10.0) == DueAction("", None)
    assert count.next_action(196.0, 200.0, 10.0).action == "warn"


def test_who_keeps_it_withdraws_a_warning() -> None:
    count = Countdown()
    count.next_action(90.0, 100.0, 10.0)
    assert count.next_action(95.0, 7200.0, 10.0) == DueAction("withdraw", 7105.0)
    assert count.next_action(7189.0, 7200.0, 10.0).action == ""
    assert count.next_action(7190.0, 7200.0, 10.0).action == "warn"


def test_after_a_failure_it_waits() -> None:
    count = Countdown()
    count.not_before = 700.0
    assert count.next_action(200.0, 100.0, 10.0) == DueAction("", 500.0)
    assert count.next_action(690.0, 100.0, 10.0).action == "warn"
    assert count.next_action(700.0, 100.0, 10.0).action == "stop"
