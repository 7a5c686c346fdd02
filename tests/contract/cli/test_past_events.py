"""`rgt journal`: what the history has, from the command line; no box is connected to."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest

from rgt_tui.model import BoxSpec, BoxState, FleetEvent, FleetState
from rgt_tui.store import FLEET, BoxWrites, HistoryFile, ObservedCost
from rgt_tui.store.spending import day_of
from tests.contract.cli.conftest import Rgt


@pytest.fixture
def kept(rgt: Rgt, tmp_path: Path) -> Rgt:
    rgt.fleet.write_text('[boxes.lab]\nhost = "a.invalid"\n[boxes.other]\nhost = "b.invalid"\n')
    path = tmp_path / "kept.db"
    rgt.env["RGT_HISTORY"] = str(path)
    now = time.time()
    file = HistoryFile(path, fleet=str(rgt.fleet.absolute()))
    specs = [
        BoxSpec(name=name, host=host)
        for name, host in (("lab", "a.invalid"), ("other", "b.invalid"))
    ]
    file.adopt_boxes(specs)
    for seconds, box, level, text in (
        (-20 * 86400, "lab", "info", "long ago"),
        (-60, "lab", "error", "a cell \x1b[31mfailed"),
        (-30, "other", "info", "connected"),
    ):
        cost = ObservedCost(day_of(now), "USD", 0.5, 0.25, 60.0)
        state = FleetState(boxes=tuple(BoxState(spec=spec) for spec in specs), at=now + seconds)
        event = FleetEvent(at=now + seconds, box=box, text=text, level=level, about="x")
        file.commit_batch(
            {box: BoxWrites(events=(event,), costs=(cost,)), FLEET: BoxWrites(moments=(state,))}
        )
    file.close()
    return rgt


def test_the_report_and_the_events_of_the_time_that_is_asked_for(kept: Rgt) -> None:
    done = kept.on("journal", "--since", "1h")
    assert (done.returncode, done.stderr) == (0, "")
    report, _, events = done.stdout.partition("\n\n")
    assert "1 error, not over yet" in report
    assert "spent ≥ $1.00" in report
    assert "wasted ≥ $0.50" in report
    assert [line[21:] for line in events.splitlines()] == [
        "error  lab  a cell failed",
        "info   other  connected",
    ]
    assert "long ago" in kept.on("journal", "--since", "30 days ago").stdout
    assert (
        kept.on("journal", "--since", "30 days ago", "--until", "10 days ago").stdout.count("lab")
        == 1
    )


def test_json_of_one_box_and_of_the_report(kept: Rgt) -> None:
    rows = [
        json.loads(line)
        for line in kept.on("journal", "lab", "--since", "1h", "--json").stdout.splitlines()
    ]
    assert [(row["box"], row["level"], row["about"]) for row in rows] == [("lab", "error", "x")]
    (report,) = kept.on("journal", "--report", "--json", "--since", "1h").stdout.splitlines()
    found = json.loads(report)
    assert (found["errors"], found["ended"]) == (1, 0)
    assert found["spent"][0]["at_least"] is True
    words = kept.on("journal", "--report").stdout
    assert "next clock none known" in words
    assert "connected" not in words


@pytest.mark.parametrize(
    "words", [("--since", "noon"), ("--since", "1h", "--until", "2h"), ("nobody",)]
)
def test_what_cannot_be_meant_is_refused(kept: Rgt, words: tuple[str, ...]) -> None:
    done = kept.on("journal", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_without_a_history_it_says_so_and_makes_none(kept: Rgt, tmp_path: Path) -> None:
    kept.env["RGT_HISTORY"] = str(tmp_path / "none.db")
    done = kept.on("journal")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no history yet" in done.stderr
    assert not (tmp_path / "none.db").exists()
    kept.env["RGT_HISTORY"] = "off"
    assert "no history is kept" in kept.on("journal").stderr


def test_a_history_that_cannot_be_used_is_named(kept: Rgt, tmp_path: Path) -> None:
    con = sqlite3.connect(tmp_path / "theirs.db")
    con.execute("CREATE TABLE theirs (x)")
    con.commit()
    con.close()
    kept.env["RGT_HISTORY"] = str(tmp_path / "theirs.db")
    done = kept.on("journal")
    assert (done.returncode, done.stdout) == (1, "")
    assert "theirs.db is not a history of rgt" in done.stderr
