"""Every event that the trainer writes has a place: what a client is sent of it, and whether it is a wait."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import EVENTS
from rgt_box.streams.curve_followers import ScalarFollower

TRAINER = Path(__file__).parents[3] / "remote" / "rgt_train"


def written_events() -> set[str]:
    """The kinds that the trainer's own code gives to `Report.event`."""
    found = set()
    for path in TRAINER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr == "append_event" and node.args:
                kind = node.args[0]
                assert isinstance(kind, ast.Constant), (
                    f"{path}:{node.lineno}: its kind is no plain string"
                )
                found.add(str(kind.value))
    return found


def test_the_table_has_every_event_of_the_trainer_and_no_other() -> None:
    assert written_events() == set(EVENTS)


HOLD = {"event": "hold", "step": 9, "unsaved": 81, "limit_s": 1800.0, "time": 1790000000.0}


def read(path: Path, *rows: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    frame, events = ScalarFollower("a", str(path), None).poll()
    assert frame is not None
    return frame, events


def test_a_hold_says_until_when_it_waits_and_what_would_be_lost(tmp_path: Path) -> None:
    frame, events = read(tmp_path / "metrics.jsonl", {"step": 9, "loss": 1.0}, HOLD)
    assert frame["wait"] == {
        "what": "disk", "step": 9, "at": 1790000000.0, "until": 1790001800.0, "unsaved": 81
    }  # fmt: skip
    assert [(event["kind"], event["level"]) for event in events] == [("hold", "error")]
    assert "81 steps are not saved" in events[0]["text"] and "30 min" in events[0]["text"]


@pytest.mark.parametrize(
    "row",
    [
        {"step": 10, "loss": 0.9},
        {"event": "checkpoint-recovered", "step": 9},
        {"event": "given-up", "step": 9, "unsaved": 81},
        {"event": "stop", "step": 9, "reason": "SIGTERM"},
        {"event": "done", "step": 9},
    ],
)
def test_a_hold_is_over_with_the_next_step_save_or_end(tmp_path: Path, row: dict[str, Any]) -> None:
    assert read(tmp_path / "metrics.jsonl", HOLD, row)[0]["wait"] == {"what": ""}


@pytest.mark.parametrize(
    "row",
    [
        {"event": "mirror-failed", "step": 9, "url": "u", "error": "e"},
        {"event": "stalled", "step": 9},
    ],
)
def test_other_events_do_not_end_a_hold(tmp_path: Path, row: dict[str, Any]) -> None:
    assert read(tmp_path / "metrics.jsonl", HOLD, row)[0]["wait"]["what"] == "disk"


def test_a_wait_for_the_mirror_is_one(tmp_path: Path) -> None:
    row = {
        "event": "mirror-wait",
        "step": 9,
        "url": "s3://b",
        "left": "step-9",
        "limit_s": 60.0,
        "time": 1.79e9,
    }
    frame, _ = read(tmp_path / "metrics.jsonl", row)
    assert (frame["wait"]["what"], frame["wait"]["until"]) == ("mirror", 1.79e9 + 60.0)


def test_no_event_of_ours_crashes_what_reads_it(tmp_path: Path) -> None:
    for kind in EVENTS:
        for row in (
            {"event": kind},
            {"event": kind, "step": 1, "unsaved": "x", "limit_s": "y", "time": None},
        ):
            read(tmp_path / f"{kind}.jsonl", row)
