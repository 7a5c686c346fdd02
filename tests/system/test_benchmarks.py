"""The benchmarks' harness: what it prints and finds, and the terminal it measures in. No speed is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as suite
from benchmarks import plain_table
from benchmarks.product import HEADER, READING, read_trace
from benchmarks.report import BenchmarkError, Row, main, table
from benchmarks.terminal import COLUMNS, LINES, Terminal, cpu_seconds, text_of
from benchmarks.ui_trace import ACTIVITIES, ENTRY, Timeline
from rgt_tui.model import BoxSpec, BoxState
from tests.system.tree import ROOT

ROWS = (Row("first_frame", 1234.5, "ms", 1.25, "the floor"), Row("bytes", 0.0421, "B/s"))


def test_the_table_is_aligned() -> None:
    assert table("startup", ROWS).splitlines() == [
        "startup",
        "  case          value unit  ratio  of         goal",
        "  first_frame   1,234 ms     1.25  the floor",
        "  bytes        0.0421 B/s",
    ]


def test_goals_are_judged_beside_what_they_are_for() -> None:
    rows = (
        Row("stall", 3.0, "ms", 0.03, "atomic", ratio_goal=0.02),
        Row("cpu", 11.5, "% of a core", goal=12),
        Row("none", 1.0, "s", goal=0),
        Row("speed", 9.0, "MB/s", 1.5, "rsync", ratio_least=1.2),
    )
    assert [row.verdict() for row in rows] == [
        "ratio ≤ 0.02 MISSED", "≤ 12 met", "≤ 0 MISSED", "ratio ≥ 1.2 met",
    ]  # fmt: skip
    assert [line.rpartition("  ")[2] for line in table("x", rows).splitlines()[2:]] == [
        row.verdict() for row in rows
    ]


def test_json_is_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("startup", lambda _quick: ROWS, ["--quick", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["name"] == "startup"
    assert shown["rows"][0] == {
        "case": "first_frame",
        "value": 1234.5,
        "unit": "ms",
        "ratio": 1.25,
        "of": "the floor",
        "goal": None,
        "least": None,
        "ratio_goal": None,
        "ratio_least": None,
    }
    assert shown["rows"][1]["ratio"] is shown["rows"][1]["of"] is None


def test_quick_reaches_the_benchmark() -> None:
    asked = []

    def run(quick: bool) -> tuple[Row, ...]:
        asked.append(quick)
        return ()

    main("x", run, ["--quick"])
    main("x", run, [])
    assert asked == [True, False]


def test_what_cannot_be_measured_is_said_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    def run(quick: bool) -> tuple[Row, ...]:
        raise BenchmarkError("the fleet did not come up")

    assert main("idle", run, ["--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "idle: the fleet did not come up" in captured.err


def test_every_benchmark_is_found_and_has_the_common_command_line() -> None:
    assert {"startup", "idle"} <= set(suite.names())
    assert not {"report", "terminal", "product", "plain_table"} & set(suite.names())
    for name in suite.names():
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}", "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "--quick" in done.stdout
        assert "--json" in done.stdout


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(["nothing"])
    assert "no such benchmark: nothing" in capsys.readouterr().err


def test_control_sequences_are_no_text() -> None:
    painted = b"\x1b[?2026h\x1b[1;1H\x1b[38;2;1;2;3m rgt \x1b[0m fleet\x1b]0;title\x07\x1bP+q54\x1b\\ 41%\x1b(B"
    assert text_of(painted) == " rgt  fleet 41%"


def test_a_torn_trace_gives_what_is_whole(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert read_trace(trace) == {}
    trace.write_text('{"event":"first-frame","t":5.5,"modules":["a"]}\nnoise\n{"event":"first-fr')
    events = read_trace(trace)
    assert list(events) == ["first-frame"]
    assert events["first-frame"].at == 5.5
    assert events["first-frame"].fields["modules"] == ["a"]


def test_the_terminal_has_its_size_and_counts_what_is_written() -> None:
    code = "import os; print(os.get_terminal_size(), os.environ['TERM']); input(); print('x' * 100_000)"
    with Terminal([sys.executable, "-u", "-c", code]) as terminal:
        assert terminal.wait_for(rf"columns={COLUMNS}, lines={LINES}\) xterm-256color", 60)
        terminal.send(b"\n")
        assert terminal.wait_until(lambda: terminal.written > 100_000, 60)


def test_a_key_is_split_into_what_the_dashboard_did(tmp_path: Path) -> None:
    names = ("wait", "draw", "handling", "wait", "render", "wait")
    # Drawing has the processor for 2 of its 5 ms; what it was doing before and after are waits.
    times, used = (0.0, 0.010, 0.015, 0.016, 0.020, 0.024), (0.0, 0.0, 0.002, 0.003, 0.003, 0.007)
    trace = tmp_path / "trace"
    trace.write_bytes(
        b"".join(
            ENTRY.pack(at, cpu, ACTIVITIES.index(name))
            for at, cpu, name in zip(times, used, names, strict=True)
        )
    )
    found = {name: round(ms, 6) for name, ms in Timeline(trace).split(0.008, 0.025).items() if ms}
    assert found == {
        "read": 2.0, "draw": 2.0, "others": 3.0, "handling": 1.0, "wait": 4.0, "render": 4.0, "terminal": 1.0,
    }  # fmt: skip


APP = """
from textual.app import App
from textual.widgets import Static
class Small(App):
    def compose(self):
        yield Static("rgt  fleet")
    def on_mount(self):
        self.set_timer(0.1, lambda: self.query_one(Static).update("fleet 41%"))
Small().run()
"""


def test_a_textual_app_is_seen_painting_and_ends_by_its_quit_key() -> None:
    with Terminal([sys.executable, "-c", APP]) as terminal:
        assert terminal.wait_for(HEADER, 60)
        assert terminal.wait_for(READING, 60)
        assert cpu_seconds(terminal.pid) > 0
    assert not terminal.running


def test_the_alternative_shows_one_value_per_column() -> None:
    empty = BoxState(spec=BoxSpec(name="lab", host="lab"))
    assert len(list(plain_table.cells(empty, 0.0))) == len(plain_table.COLUMNS)
    assert plain_table.bar(0.5) == "████····"
    assert plain_table.bar(None) == "?       "
    assert plain_table.spark((0.0, None, 7.0)) == "      ▁█"
    assert plain_table.percent(1, 4) == "25%"
