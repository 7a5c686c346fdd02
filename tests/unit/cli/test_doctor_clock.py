"""How far ``rgt doctor`` calls a box's clock off: never by the time that the question itself took."""

from __future__ import annotations

import pytest

from rgt_tui.cli.set_up.doctor_box import check_clock
from rgt_tui.cli.set_up.doctor_here import DoctorStatus


@pytest.mark.parametrize(
    ("at", "status", "says"),
    [
        (1000.0, DoctorStatus.OK, "+0.0 s"),
        (1030.0, DoctorStatus.OK, "+0.0 s"),
        (1032.5, DoctorStatus.OK, "+2.5 s"),
        (998.0, DoctorStatus.OK, "-2.0 s"),
        (1040.0, DoctorStatus.WARN, "+10"),
        (990.0, DoctorStatus.WARN, "-10"),
        (1400.0, DoctorStatus.FAIL, "+370 s"),
        (400.0, DoctorStatus.FAIL, "-600 s"),
    ],
)
def test_a_clock_is_off_by_what_the_question_does_not_explain(
    at: float, status: DoctorStatus, says: str
) -> None:
    found = check_clock(at, before=1000.0, after=1030.0)
    assert (found[0], found[1].startswith(says)) == (status, True), found
