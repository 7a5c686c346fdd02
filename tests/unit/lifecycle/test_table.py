"""The table of checks."""

from __future__ import annotations

import pytest

from rgt_tui.health import CHECKS, PHASES, evaluate_checks
from rgt_tui.model import BoxSpec, BoxState, CheckStatus
from rgt_tui.profiles import all_profiles, load_profile
from tests.unit.triage.builders import NOW, box


def test_ids_are_distinct_and_in_order() -> None:
    ids = [tuple(map(int, check.id.split("."))) for check in CHECKS]
    assert ids == sorted(set(ids))
    assert {check.phase for check in CHECKS} == set(range(len(PHASES)))


def test_at_least_sixteen_are_evaluated_from_live_data() -> None:
    proved = [
        r
        for r in evaluate_checks(box(), load_profile("vastai"), NOW)
        if r.status is not CheckStatus.PERSON
    ]
    assert len(proved) >= 16


@pytest.mark.parametrize("id_", sorted(all_profiles()))
def test_a_box_of_which_nothing_is_known_proves_nothing_but_its_profile(id_: str) -> None:
    state = BoxState(spec=BoxSpec("new", "h", profile=id_))
    results = evaluate_checks(state, load_profile(id_), NOW)
    proved = {result.id for result in results if result.status is CheckStatus.PASSED}
    assert proved <= {"0.1", "5.3"}
    assert not [result for result in results if result.status is CheckStatus.FAILED]


def test_results_follow_the_table() -> None:
    results = evaluate_checks(box(), load_profile("vastai"), NOW)
    assert [(r.id, r.phase, r.title) for r in results] == [(c.id, c.phase, c.title) for c in CHECKS]


def test_evidence_is_never_of_the_future() -> None:
    for result in evaluate_checks(box(), load_profile("vastai"), NOW):
        assert result.at is None or result.at <= NOW, result
