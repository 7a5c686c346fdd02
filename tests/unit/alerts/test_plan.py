"""What a sink has to be told: once, not too often, not at night, and what is over is over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rgt_tui.health import (
    MAX_DIGEST_BYTES,
    DeliveryPlan,
    SentAlert,
    alert_message,
    build_digest_event,
    minutes_left,
    plan_delivery,
)
from rgt_tui.health.delivery import parse_quiet_hours
from rgt_tui.model import Alert, AlertEvent, SinkSettings

NOW = 1_790_000_000.0
SINK = SinkSettings("bell", name="bell")
NOON, NIGHT = 12 * 60, 23 * 60 + 30


def event(id_: str = "inodes:/data", level: str = "warn", box: str = "a") -> AlertEvent:
    return alert_message(box, Alert(id_, level, "97%", word="inodes", since=NOW), NOW)


def planned(
    *events: AlertEvent,
    told: dict[str, SentAlert] | None = None,
    now: float = NOW,
    minute: int = NOON,
    held: tuple[str, ...] = (),
    **over: Any,
) -> DeliveryPlan:
    active = {f"{one.box}@host {one.id}": one for one in events}
    settings = msgspec.structs.replace(SINK, **over)
    return plan_delivery(active, told or {}, settings, now, minute, ("a@host ", "b@host "), held)


KEY = "a@host inodes:/data"


def test_what_is_new_is_told() -> None:
    found = planned(event())
    assert [(key, one.what) for key, one in found.send] == [(KEY, "raised")]
    assert found.again_in is None


def test_what_was_told_is_not_told_again() -> None:
    assert planned(event(), told={KEY: SentAlert("warn", NOW - 9999)}).send == ()


def test_worse_is_told_at_once_and_better_is_not() -> None:
    found = planned(event(level="error"), told={KEY: SentAlert("warn", NOW - 1)})
    assert [one.what for _, one in found.send] == ["worse"]
    assert planned(event(), told={KEY: SentAlert("error", NOW - 1)}).send == ()


def test_what_comes_and_goes_is_told_at_most_every_ten_minutes() -> None:
    flapping = {KEY: SentAlert("warn", NOW - 100, over=True)}
    found = planned(event(), told=flapping)
    assert (found.send, found.again_in) == ((), 500.0)
    assert len(planned(event(), told=flapping, now=NOW + 500).send) == 1


@pytest.mark.parametrize(
    "over",
    [{"min_level": "error"}, {"kinds": ("bytes",)}, {"boxes": ("b",)}],
    ids=["level", "kind", "box"],
)
def test_what_a_sink_does_not_want(over: dict[str, Any]) -> None:
    assert planned(event(), **over).send == ()


def test_over_is_forgotten_or_told() -> None:
    told = {KEY: SentAlert("warn", NOW - 50)}
    assert planned(told=told).forget == (KEY,)
    found = planned(told=told, resolved=True)
    assert [(one.what, one.level, one.title) for _, one in found.send] == [
        ("resolved", "info", "a: resolved")
    ]
    after = {KEY: SentAlert("info", NOW, over=True)}
    assert planned(told=after, resolved=True).again_in == 600.0
    assert planned(told=after, resolved=True, now=NOW + 600).forget == (KEY,)


def test_what_holds_unsaid_is_not_over() -> None:
    """It was told, and then somebody muted it, or a finding took its place."""
    told = {KEY: SentAlert("warn", NOW - 50)}
    for resolved in (True, False):
        assert planned(told=told, held=(KEY,), resolved=resolved) == DeliveryPlan((), (), None)
    assert planned(event(), told=told, resolved=True).send == (), (
        "and it is told once when it is back"
    )


def test_the_boxes_of_another_fleet_are_left_alone() -> None:
    told = {"z@elsewhere inodes:/data": SentAlert("warn", NOW)}
    assert planned(told=told, resolved=True) == DeliveryPlan((), (), None)


def test_at_night_only_errors() -> None:
    over: dict[str, Any] = {"quiet_hours": "22:00-07:00"}
    found = planned(event(), event("bytes:/", "error"), minute=NIGHT, **over)
    assert [one.id for _, one in found.send] == ["bytes:/"]
    assert found.again_in == 7.5 * 3600
    told = {KEY: SentAlert("warn", NOW)}
    assert planned(told=told, resolved=True, minute=NIGHT, **over).send == ()


@pytest.mark.parametrize(
    ("text", "minute", "left"),
    [
        ("22:00-07:00", 21 * 60 + 59, 0),
        ("22:00-07:00", 22 * 60, 540),
        ("22:00-07:00", 0, 420),
        ("22:00-07:00", 419, 1),
        ("22:00-07:00", 420, 0),
        ("12:00 - 13:30", 12 * 60 + 29, 61),
        (None, 0, 0),
    ],
)
def test_quiet_hours(text: str | None, minute: int, left: int) -> None:
    assert minutes_left(text, minute) == left


@pytest.mark.parametrize("text", ["", "22-07", "25:00-07:00", "22:00-22:00", "22:60-07:00"])
def test_what_are_no_hours(text: str) -> None:
    assert parse_quiet_hours(text) is None


def test_many_at_once_are_one_message() -> None:
    found = build_digest_event([event(), event("bytes:/", "error"), event(box="b")], NOW)
    assert (found.what, found.level, found.title) == ("digest", "error", "3 alerts on 2 boxes")
    assert found.text.splitlines() == ["a: inodes: 97%"] * 2 + ["b: inodes: 97%"]
    assert len(found.items) == 3


def test_a_digest_of_a_whole_fleet_fits_into_a_message_errors_first() -> None:
    many = [
        *(event(box=f"box-{n}", id_="x:é" * 9) for n in range(200)),
        event(box="last", level="error"),
    ]
    found = build_digest_event(many, NOW)
    lines = found.text.splitlines()
    assert len(found.text.encode()) <= MAX_DIGEST_BYTES + 20
    assert lines[0].startswith("last: ")
    assert lines[-1] == f"… and {201 - (len(lines) - 1)} more"
    assert (found.title, len(found.items)) == ("201 alerts on 201 boxes", 201)


def test_what_is_over_is_named_in_plain_text() -> None:
    hostile = "a@host bytes:/mnt/\x1b]0;pwned\x07\u202edisk"
    ((_, one),) = planned(told={hostile: SentAlert("warn", NOW)}, resolved=True).send
    assert (one.title, one.text) == ("a: resolved", "/mnt/disk has free space again")
