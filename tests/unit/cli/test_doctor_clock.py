"""How far ``rgt doctor`` calls a box's clock off: never by the time that the question itself took."""

from __future__ import annotations

import pytest

from rgt_tui.cli.set_up.doctor_box import clock
from rgt_tui.cli.set_up.doctor_here import Status


@pytest.mark.parametrize(
    ("at", "status", "says"),
    [
        (1000.0, Status.OK, "+0.0 s"),
        (1030.0, Status.OK, "+0.0 s"),
        (1032.5, Status.OK, "+2.5 s"),
        (998.0, Status.OK, "-2.0 s"),
        (1040.0, Status.WARN, "+10"),
        (990.0, Status.WARN, "-10"),
        (1400.0, Status.FAIL, "+370 s"),
        (400.0, Status.FAIL, "-600 s"),
    ],
)
def test_a_clock_is_off_by_what_the_question_does_not_explain(
    at: float, status: Status, says: str
) -> None:
    found = clock(at, before=1000.0, after=1030.0)
    assert (found[0], found[1].startswith(says)) == (status, True), found
