"""Mutes: by id or kind, for a while or until it is over; and never for long where money runs."""

from __future__ import annotations

import pytest

from rgt_tui.health import (
    ALERTS,
    DAY_S,
    EVERYTHING,
    UNSEEN_S,
    AlertMute,
    is_alert_muted,
    mark_muted,
    mute_is_over,
    put_mute,
)
from rgt_tui.model import Alert

NOW = 1_790_000_000.0
INODES = Alert("inodes:/data", "warn", "t")
OTHER = Alert("inodes:/", "warn", "t")
BILLING = Alert("done-billing", "warn", "t")


def quiet(
    mutes: tuple[AlertMute, ...], *alerts: Alert, box: str = "a", now: float = NOW
) -> list[bool]:
    return [alert.muted for alert in mark_muted(mutes, box, alerts, now)]


@pytest.mark.parametrize(
    ("what", "muted"),
    [("inodes:/data", [True, False]), ("inodes", [True, True]), ("bytes", [False, False])],
)
def test_an_id_or_a_whole_kind(what: str, muted: list[bool]) -> None:
    assert quiet(put_mute((), "a", what, 60, NOW), INODES, OTHER) == muted


def test_only_the_box_that_was_named_and_only_so_long() -> None:
    mutes = put_mute((), "a", "inodes", 60, NOW)
    assert quiet(mutes, INODES, box="b") == [False]
    assert quiet(mutes, INODES, now=NOW + 59) == [True]
    assert quiet(mutes, INODES, now=NOW + 60) == [False]
    assert mute_is_over(mutes[0], (INODES,), NOW + 60, met=True, live=True)


def test_until_it_is_over() -> None:
    (mute,) = put_mute((), "a", "inodes:/data", None, NOW)
    assert quiet((mute,), INODES, now=NOW + 30 * DAY_S) == [True]
    assert not mute_is_over(mute, (INODES, OTHER), NOW + 30 * DAY_S, met=True, live=True)
    assert mute_is_over(mute, (OTHER,), NOW, met=True, live=True)


def test_until_it_is_over_for_who_has_never_seen_it() -> None:
    """Another rgt has: here it may have to last for minutes before it rises."""
    (mute,) = put_mute((), "a", "idle-gpu", None, NOW)
    longest = max(kind.hold_s for kind in ALERTS)
    assert not mute_is_over(mute, (), NOW + longest + 60, met=False, live=True)
    assert not mute_is_over(mute, (), NOW + DAY_S, met=False, live=False)
    assert mute_is_over(mute, (), NOW + UNSEEN_S, met=False, live=True)


def test_a_new_word_replaces_the_old_one() -> None:
    mutes = put_mute(put_mute((), "a", "inodes", 60, NOW), "a", "inodes", 600, NOW)
    assert len(mutes) == 1
    assert mutes[0].until == NOW + 600


@pytest.mark.parametrize("muted", ["inodes", "inodes:/data"])
@pytest.mark.parametrize("spoken", ["inodes", "inodes:/data"])
def test_speaking_again_is_not_in_vain(muted: str, spoken: str) -> None:
    mutes = put_mute(put_mute((), "a", muted, None, NOW), "b", muted, None, NOW)
    assert [mute.box for mute in put_mute(mutes, "a", spoken, 0, NOW)] == ["b"]


@pytest.mark.parametrize("seconds", [None, 30 * DAY_S, DAY_S])
def test_money_that_runs_speaks_again_after_a_day(seconds: float | None) -> None:
    mutes = put_mute((), "a", "done-billing", seconds, NOW)
    assert quiet(mutes, BILLING, now=NOW + DAY_S - 1) == [True]
    assert quiet(mutes, BILLING, now=NOW + DAY_S) == [False]


def test_everything_of_a_box_is_muted_for_a_day_at_most_and_speaks_again_with_anything_of_it() -> (
    None
):
    mutes = put_mute((), "lab", EVERYTHING, None, NOW)
    assert [(mute.what, mute.until) for mute in mutes] == [("*", NOW + DAY_S)]
    assert put_mute((), "lab", EVERYTHING, 60.0, NOW)[0].until == NOW + 60.0
    assert is_alert_muted(mutes, "lab", "inodes:/data", NOW)
    assert not is_alert_muted(mutes, "lab", "inodes:/data", NOW + DAY_S)
    assert not is_alert_muted(mutes, "other", "inodes:/data", NOW)
    alert = Alert("inodes:/data", "warn", "x")
    assert mark_muted(mutes, "lab", (alert,), NOW)[0].muted
    for what in (EVERYTHING, "inodes", "inodes:/data"):
        assert put_mute(mutes, "lab", what, 0.0, NOW) == ()
    both = put_mute(put_mute(mutes, "lab", "ecc", 60.0, NOW), "other", EVERYTHING, 60.0, NOW)
    assert [mute.box for mute in put_mute(both, "lab", EVERYTHING, 0.0, NOW)] == ["other"]
