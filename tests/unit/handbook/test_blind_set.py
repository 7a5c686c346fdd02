"""The blind set is well-formed, and repeats neither itself nor the sets that triage was made with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rgt_tui.handbook import shipped_pages
from scripts.measure_blind import judge_failure, judge_series, read_cases

TRIAGE = Path(__file__).parents[2] / "fixtures" / "triage"
SIZES = {
    "failures": 80,
    "healthy": 40,
    "metrics": 30,
    "hosts": 10,
    "fourth/failures": 100,
    "fourth/healthy": 30,
    "fourth/metrics": 18,
    "fifth/metrics": 63,
    "sixth/metrics": 18,
    "seventh/failures": 100,
    "seventh/healthy": 30,
}


@pytest.mark.parametrize("kind", SIZES)
def test_each_case_says_where_it_is_from_and_what_is_right(kind: str) -> None:
    cases = read_cases(kind)
    assert len(cases) >= SIZES[kind]
    assert len({case["case"] for case in cases}) == len(cases)
    pages = {"none", *shipped_pages()}
    for case in cases:
        assert re.fullmatch(r"\d{4}-\d\d|unknown", case["month"]), case["case"]
        assert case["source"], case["case"]
        assert case["about"], case["case"]
        part = kind.rpartition("/")[2]
        if part == "failures":
            assert case["first"], case["case"]
            assert set(case["first"]) <= pages, case["case"]
            assert case.get("action") or case["cause"], case["case"]
        if part in {"failures", "healthy"}:
            assert 0 < len(case["log"].splitlines()) <= 200, case["case"]
        if part == "metrics":
            assert case["series"], case["case"]
            assert Path(case["name"]).name == case["name"], case["case"]
        if part == "hosts":
            assert case["box"], case["case"]
            assert case["expected"], case["case"]


def test_no_case_repeats_another_or_one_of_the_older_sets() -> None:
    logs = [
        json.loads(line)["log"]
        for path in sorted(TRIAGE.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    blind = [
        case.get("log") or case["text"]
        for kind in SIZES
        if not kind.endswith("hosts")
        for case in read_cases(kind)
    ]
    assert len(set(blind)) == len(blind)
    assert set(blind).isdisjoint(logs)


def test_a_finding_is_right_by_its_place_and_none_may_be_right_as_well() -> None:
    case = {"first": ["none", "U9"]}
    assert judge_failure(case, [], 1)
    assert judge_failure(case, ["PY1", "U9"], 2)
    assert not judge_failure(case, ["PY1", "U9"], 1)
    assert not judge_failure({"first": ["U9"]}, [], 2)


def test_a_series_is_right_if_all_of_it_is() -> None:
    expected = {"names": ["loss"], "x": ["step"], "points": [3], "last": [[20, 0.5], [21, 0.5]]}
    series = {"tag": "train/Loss", "metric": None, "x": "step", "points": 3, "last": [21, 0.5]}
    assert judge_series(expected, [series])
    assert judge_series(expected, [series | {"tag": "x", "metric": "loss"}])
    for change in ({"x": "epoch"}, {"points": 4}, {"last": [21, "nan"]}, {"tag": "gloss"}):
        assert not judge_series(expected, [series | change])


def test_a_half_of_the_fourth_set_was_drawn_and_kept_back() -> None:
    for kind in ("failures", "healthy", "metrics"):
        kept_back = [case["kept_back"] for case in read_cases(f"fourth/{kind}")]
        assert 2 * sum(kept_back) == len(kept_back)


def test_the_later_metric_files_come_from_reports_that_no_other_set_has() -> None:
    older = {case["source"] for kind in ("metrics", "fourth/metrics") for case in read_cases(kind)}
    later = [
        case["source"] for kind in ("fifth", "sixth") for case in read_cases(f"{kind}/metrics")
    ]
    assert len(set(later)) == len(later)
    assert older.isdisjoint(later)
