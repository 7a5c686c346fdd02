"""What a training raised at its tracker becomes an event of the box, once."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from rgt_box.streams.curve_followers import FoundScalars

from tests.process.box.harness import until
from tests.process.metrics.test_databases import TRACKIO, make

ALERTS = """CREATE TABLE alerts (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
 run_name TEXT NOT NULL, title TEXT NOT NULL, text TEXT, level TEXT NOT NULL DEFAULT 'warn', step INTEGER,
 alert_id TEXT)"""
"""As trackio 0.43 makes it."""
METRICS = "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)"


def frames_until(scalars: FoundScalars, kind: str) -> list[Any]:
    """Return the frames of a database up to the first of this kind; both kinds come from one reading."""
    frames: list[Any] = []

    def has_come() -> bool:
        frames.extend(scalars.poll())
        return any(frame["t"] == kind for frame in frames)

    until(has_come, kind, 20)
    return frames


@pytest.mark.parametrize("since", [None, 1780000000.0, 1900000000.0])
def test_what_a_run_raised_at_trackio_is_an_event(tmp_path: Path, since: float | None) -> None:
    """The rows are those of `trackio.alert()`, as trackio 0.43 writes them."""
    db = make(tmp_path / "birds.db", TRACKIO)
    db.execute(ALERTS)
    rows = "INSERT INTO alerts (run_id, timestamp, run_name, title, text, level, step) VALUES (?, ?, ?, ?, ?, ?, ?)"
    stamp = "2026-11-30T16:19:07.091094+00:00"
    error = ("4ce8", stamp, "run-a", "Loss divergence", "loss 5.2", "error", 3)
    db.execute(rows, error)
    db.execute(rows, ("4ce8", stamp, "run-a", "Milestone", None, "info", 3))
    db.execute(METRICS, ("2031-01-01T00:00:00+00:00", "run-a", 3, '{"loss": 5.2}'))
    each = FoundScalars("birds", str(tmp_path), None, {}, since=since)
    db.close()
    seen = frames_until(each, "scalar" if since == 1900000000.0 else "event")
    found = [frame for frame in seen if frame["t"] == "event"]
    if since == 1900000000.0:
        assert found == [], "those of an earlier training"
        return
    assert [(one["kind"], one["level"], one["text"]) for one in found] == [
        ("tracker-error", "error", "run-a: Loss divergence: loss 5.2 (step 3)"),
        ("tracker-info", "info", "run-a: Milestone (step 3)"),
    ]
    assert found[0]["at"] == pytest.approx(1796055547.09, abs=0.1)
    db = sqlite3.connect(tmp_path / "birds.db", isolation_level=None)
    db.execute(rows, ("4ce8", stamp, "run-a", "Again", None, "warn", 4))
    db.close()
    again = [frame for frame in frames_until(each, "event") if frame["t"] == "event"]
    assert [one["text"] for one in again] == ["run-a: Again (step 4)"]
