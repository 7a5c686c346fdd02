"""Which tests `make test` keeps: the cheapest that run each arc, and more of them for critical modules."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from scripts import choose_tests
from scripts.choose_tests import choose, make_faults, read_arcs, read_costs

ROOT = Path(__file__).parents[3]

MODULE = """
def pay(amount, limit):
    if amount > limit and limit:
        refuse()
    return amount
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    costs = {"cheap": (0.01, 0.01), "slow": (0.5, 1.0), "same": (1.0, 1.0), "reaped": (9.0, 0.5)}
    lines = [json.dumps([test, cpu, took]) for test, (cpu, took) in costs.items()]
    (tmp_path / "costs-gw0").write_text("\n".join(lines))
    (tmp_path / "arcs-7").write_text(
        "cheap\trgt_tui/a.py:1>2\nslow\trgt_tui/a.py:1>2\nslow\trgt_tui/gate/b.py:3>4\nnew\trgt_tui/a.py:1>2\n"
    )
    (tmp_path / "arcs-8").write_text("slow\trgt_tui/gate/b.py:3>4\nsame\trgt_tui/gate/b.py:3>4\n")
    return tmp_path


def test_costs_and_arcs_are_read(folder: Path) -> None:
    costs = read_costs(folder)
    assert costs["slow"] == pytest.approx(0.58)
    assert costs["reaped"] == pytest.approx(1.04), "no test has more than two cores for itself"
    run_by, arcs = read_arcs(folder, costs)
    assert sorted(run_by.values()) == [2], "a test without a cost stays as the cheap ones do"
    assert {test: len(found) for test, found in arcs.items()} == {"slow": 2, "same": 1, "reaped": 0}
    assert all(arc < 0 for arc in arcs["same"]), "the gate is critical"


def test_the_cheapest_tests_stay_until_each_arc_has_its_witnesses() -> None:
    arcs = {"a": {1}, "b": {1}, "c": {1}, "d": {1}, "other": {2}, "none": set()}
    costs = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0, "other": 5.0, "none": 0.1}
    assert choose(Counter(), arcs, costs, 100.0) == {"b", "c", "d", "other"}
    assert choose(Counter({1: 2}), arcs, costs, 100.0) == {"d", "other"}
    assert choose(Counter(), arcs, costs, 3.5) == {"c", "d"}
    # What `again` is worth falls as soon as `first` is kept.
    arcs = {"first": {1, 2, 3}, "again": {1, 2, 3}, "new": {4}}
    assert choose(Counter(), arcs, {"first": 1.0, "again": 1.05, "new": 2.0}, 3.0) == {
        "first",
        "new",
    }


def test_critical_arcs_have_three_times_the_witnesses() -> None:
    arcs = {f"test{number}": {-1} for number in range(12)}
    kept = choose(Counter(), arcs, dict.fromkeys(arcs, 1.0), 100.0)
    assert len(kept) == 3 * choose_tests.WITNESSES


def test_a_fault_is_one_change_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    faults = make_faults(path)
    assert sorted(line for line, _ in faults) == [3, 3, 3, 4]
    texts = [ast.unparse(ast.parse(text)) for _, text in faults]
    assert len({*texts, ast.unparse(ast.parse(MODULE))}) == 5


def test_each_test_that_waits_for_make_test_all_is_there() -> None:
    names: dict[str, str] = {}
    for test in choose_tests.REST.read_text().splitlines():
        file, *_, function = test.partition("[")[0].split("::")
        if file not in names:
            path = ROOT / file
            names[file] = path.read_text() if path.exists() else ""
        assert f"def {function}(" in names[file], f"{test}: choose again, or take it off the list"
