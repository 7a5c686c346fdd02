"""A box is looked at at most once in so many seconds, and never not at all."""

from __future__ import annotations

import msgspec

from rgt_tui.fleet import JudgePace
from rgt_tui.model import BoxSpec, BoxState, LinkState, Meter, QueueState

BOX = BoxState(spec=BoxSpec(name="a", host="h"))
OTHER = BoxState(spec=BoxSpec(name="b", host="h"))
replace = msgspec.structs.replace


def test_a_box_that_changes_all_the_time_is_looked_at_at_the_pace() -> None:
    pace = JudgePace(3.0)
    assert [pace.is_due(BOX, BOX, t) for t in (0.0, 1.0, 2.0, 3.0, 4.0, 6.0)] == [
        True, False, False, True, False, True,
    ]  # fmt: skip


def test_what_changed_in_between_is_looked_at_later() -> None:
    pace = JudgePace(3.0)
    pace.is_due(BOX, BOX, 0.0)
    pace.is_due(OTHER, OTHER, 0.0)
    pace.is_due(BOX, BOX, 1.0)
    assert pace.overdue_boxes(2.9) == set()
    assert pace.overdue_boxes(3.0) == {"a"}
    assert pace.is_due(BOX, BOX, 3.1, at_once=True)
    assert pace.overdue_boxes(9.0) == set()


def test_a_link_a_queue_and_a_meter_do_not_wait() -> None:
    for change in (
        {"link": LinkState.LIVE},
        {"queues": (QueueState(path="/q", at=0.0),)},
        {"meter": Meter(at=1.0)},
    ):
        pace = JudgePace(3.0)
        pace.is_due(BOX, BOX, 0.0)
        assert pace.is_due(BOX, replace(BOX, **change), 0.1)
