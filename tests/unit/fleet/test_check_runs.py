"""Which checks are run on request: those alone whose command only looks."""

from __future__ import annotations

from pathlib import Path

from rgt_tui.fleet import check_arguments
from rgt_tui.health import CHECKS


def test_only_what_looks_is_run() -> None:
    words = {check.id: check_arguments(check.id, "lab") for check in CHECKS}
    run = {id_: found for id_, found in words.items() if found is not None}
    assert set(run) == {"0.4", "1.1", "1.2", "3.1", "3.3", "4.7", "5.1", "5.2", "5.4", "5.6"}
    assert {found[0] for found in run.values()} == {
        "doctor",
        "gpu-health",
        "grep",
        "reap",
        "verify",
        "queue",
    }
    assert all(
        found[-1] in {"check", "status", "reconcile"}
        for found in run.values()
        if found[0] == "queue"
    )
    assert run["5.4"] == ("reap", "lab"), "it lists, and ends nobody"
    assert run["4.7"] == ("grep", "lab", "Error|Traceback")
    for id_ in ("2.1", "3.2", "3.5", "4.6", "none"):
        assert check_arguments(id_, "lab") is None


def test_a_name_is_one_word_whatever_is_in_it(tmp_path: Path) -> None:
    assert check_arguments("0.4", "a b; rm -rf /") == ("gpu-health", "a b; rm -rf /")
    assert check_arguments("5.6", "lab", tmp_path) == ("verify", str(tmp_path / "lab"))
