"""Alerts that call for a person, and muted ones that neither colour a box nor move it up."""

from __future__ import annotations

import msgspec
import pytest

from rgt_tui.health import alert_advice, assess_box, calls_for_person
from rgt_tui.model import Alert, BoxHealth, BoxState
from tests.unit.triage.builders import NOW, box, cell, queue, run

FAILED = Alert("failed:a", "error", "a failed", word="failed", since=NOW - 60)
SLOW = Alert("throttled:0", "warn", "GPU 0 is slowed down", word="throttled", since=NOW - 60)
STALLED = Alert("stalled:a", "warn", "a stands", word="stalled", since=NOW - 60)


def kept(*alerts: Alert) -> BoxState:
    return box(alerts=alerts, alerts_kept=True)


def calls_for_a_person(state: BoxState) -> bool:
    return any(calls_for_person(alert) for alert in assess_box(state, NOW).alerts)


def muted(alert: Alert) -> Alert:
    return msgspec.structs.replace(alert, muted=True)


def test_the_machines_of_the_fleet_decide_where_it_keeps_them() -> None:
    stuck = (run(progressed_at=NOW - 999),)
    assert [a.id for a in assess_box(box(runs=stuck), NOW).alerts] == ["stalled:lstm-b"]
    assert assess_box(box(runs=stuck, alerts_kept=True), NOW).alerts == ()
    found = assess_box(kept(FAILED), NOW)
    assert (found.health, found.word, found.why) == (BoxHealth.TROUBLE, "failed", "a failed")
    assert found.alerts[0].since == NOW - 60


def test_muted_alerts_are_listed_and_do_nothing_else() -> None:
    calm, quiet = assess_box(kept(), NOW), assess_box(kept(muted(FAILED)), NOW)
    assert (quiet.health, quiet.word, quiet.why, quiet.rank) == (
        calm.health,
        calm.word,
        calm.why,
        calm.rank,
    )
    assert [alert.id for alert in quiet.alerts] == ["failed:a"]
    both = assess_box(kept(SLOW, muted(FAILED)), NOW)
    assert (both.health, both.word) == (BoxHealth.WARN, "throttled")


@pytest.mark.parametrize(
    ("alerts", "calls_"),
    [
        ((), False),
        ((SLOW,), False),
        ((STALLED,), True),
        ((FAILED,), True),
        ((muted(FAILED), muted(STALLED)), False),
    ],
)
def test_what_calls_for_a_person(alerts: tuple[Alert, ...], calls_: bool) -> None:
    assert calls_for_a_person(kept(*alerts)) is calls_


def test_a_state_that_nobody_watched_is_judged_by_the_same_rules() -> None:
    failed = box(queues=(queue(cell(state="failed", exit_code=1)),))
    assert calls_for_a_person(failed)
    assert [alert.since for alert in assess_box(failed, NOW).alerts] == [None]


def test_an_alert_of_a_later_rgt_has_no_advice() -> None:
    assert alert_advice(Alert("new-kind:x", "warn", "t")) == ""
