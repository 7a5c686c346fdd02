"""A database made to hurt costs the box neither memory nor time: it is read by a child that may have little of both."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import confined_child, place
from rgt_box.metrics import (
    BY_KIND,
    identify_kind,
    open_source,
    read_all,
    sqlite_child,
    sqlite_files,
)

from tests.process.box.harness import PATIENCE, Agent, pythons, until

MIB = 1 << 20
DATABASES = tuple(kind for kind, each in BY_KIND.items() if each.is_database)
TRACKIO = "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT{})"
MLFLOW = "CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN{})"
AITOOLKIT = (
    "CREATE TABLE steps (step INTEGER, wall_time REAL{}); "
    "CREATE TABLE metrics (step INTEGER, key TEXT, value_real REAL, value_text TEXT)"
)


def make(path: Path, script: str) -> Path:
    with sqlite3.connect(path) as db:
        db.executescript(script)
    db.close()
    return path


def good(path: Path, kind: str = "trackio") -> Path:
    row = {
        "trackio": """INSERT INTO metrics VALUES (1, '2026-11-21T09:36:31', 'r', 3, '{"loss": 0.5}')""",
        "mlflow": "INSERT INTO metrics VALUES ('loss', 0.5, 1795253821902, 'r', 3, 0)",
        "aitoolkit": "INSERT INTO steps VALUES (3, 1.79e9); INSERT INTO metrics VALUES (3, 'loss', 0.5, NULL)",
    }
    schema = {"trackio": TRACKIO, "mlflow": MLFLOW, "aitoolkit": AITOOLKIT}
    return make(path, schema[kind].format("") + ";" + row[kind])


def generated(path: Path, kind: str = "trackio") -> Path:
    """12 KB that ask for gigabytes: a column that is made when it is read."""
    column = {"trackio": "metrics TEXT", "mlflow": "key TEXT", "aitoolkit": "value_real REAL"}[kind]
    return _with_column(path, kind, column, "hex(zeroblob(1))", "499000000")


def slow(path: Path) -> Path:
    """A column whose value takes minutes inside of one instruction, where no progress handler looks."""
    expression = "instr(hex(zeroblob(1)) || hex(zeroblob(1)), hex(zeroblob(1)) || 'x')"
    return _with_column(path, "trackio", "step INTEGER", expression, "8000000")


def _with_column(path: Path, kind: str, column: str, expression: str, size: str) -> Path:
    schema = {"trackio": TRACKIO, "mlflow": MLFLOW, "aitoolkit": AITOOLKIT}[kind].format("")
    row = {
        "trackio": "INSERT INTO metrics (id) VALUES (1)",
        "mlflow": "INSERT INTO metrics (value) VALUES (1)",
        "aitoolkit": "INSERT INTO steps VALUES (1, 1.0); INSERT INTO metrics (step, key) VALUES (1, 'loss')",
    }[kind]
    schema = schema.replace(column, f"{column} GENERATED ALWAYS AS ({expression}) VIRTUAL")
    make(path, f"{schema}; {row}")
    # The size only now: SQLite makes the column when the row is written, too.
    return make(
        path,
        "PRAGMA writable_schema=1; "
        f"UPDATE sqlite_master SET sql = replace(sql, 'zeroblob(1)', 'zeroblob({size})') WHERE name = 'metrics'",
    )


LONG = 600
"""Seconds: the child is nicer than all others, and a second of a core comes late where many want one."""


@pytest.fixture(autouse=True)
def a_child_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[confined_child.ConfinedChild]:
    child = confined_child.ConfinedChild(sqlite_child.__name__)
    child.patience = LONG
    monkeypatch.setattr(confined_child, "WALL", LONG)
    monkeypatch.setattr(sqlite_child, "child", child)
    yield child
    child.close()


MEASURED = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stderr=subprocess.STDOUT)
_, _, usage = os.wait4(child.pid, 0)
print(usage.ru_maxrss)
"""
"""Linux counts what the parent held at the fork to the child's peak: the test's own process may hold a lot."""


def peak(words: list[str], env: dict[str, str]) -> tuple[int, float, bytes]:
    """Run a command; return the peak of resident bytes of it and its children, its seconds, its output."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words], env=env, capture_output=True, check=True
    )
    text, _, kib = done.stdout.rstrip().rpartition(b"\n")
    return int(kib) * 1024, time.monotonic() - began, text


@pytest.mark.parametrize("kind", DATABASES)
def test_an_honest_database(kind: str, tmp_path: Path) -> None:
    path = good(tmp_path / "x.db", kind)
    assert identify_kind(str(path), (kind,)) == kind
    store, problems = read_all(open_source(kind, str(path)))
    assert problems == []
    assert [series.ys for series in store.series.values()] == [[0.5]]


@pytest.mark.full_matrix
@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("kind", DATABASES)
def test_a_generated_column_costs_no_memory(
    kind: str, tmp_path: Path, agent: Agent, python: str
) -> None:
    """Below Python 3.11 SQLite cannot be told its longest text: there the address space alone decides."""
    agent.python = python
    path = generated(tmp_path / "x.db", kind)
    assert path.stat().st_size < 20_000
    most, _, text = peak(agent.command("scalars", str(path)), agent.env)
    assert most < 300 * MIB
    assert b"no scalars found" in text
    assert b"Traceback" not in text


@pytest.mark.parametrize("kind", DATABASES)
def test_a_schema_that_is_not_on_the_first_page_is_read_by_the_child_too(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.db"
    schema = {"trackio": TRACKIO, "mlflow": MLFLOW, "aitoolkit": AITOOLKIT}[kind].format("")
    make(
        path, ";".join(f"CREATE TABLE t{n} (a{'x' * 4000} TEXT)" for n in range(30)) + ";" + schema
    )
    assert b"CREATE TABLE metrics" not in path.read_bytes()[: 64 << 10]
    assert identify_kind(str(path), DATABASES) == kind
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["x.db"]


def test_one_instruction_without_an_end_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    a_child_of_its_own: confined_child.ConfinedChild,
) -> None:
    monkeypatch.setattr(confined_child, "SECONDS", 1)
    path = slow(tmp_path / "x.db")
    reader = open_source("trackio", str(path))
    batch = reader.read()
    (problem,) = batch.problems
    assert (
        problem.reason
        == "not read for 60 s, because reading it failed: it took more than 1 s of a core"
    )
    assert (batch.points, batch.cursor) == ([], None)
    with monkeypatch.context() as patch:
        patch.setattr(
            a_child_of_its_own, "request_answer", lambda *_: pytest.fail("it is asked for again")
        )
        assert reader.read().problems == []  # it is left alone
    monkeypatch.setattr(confined_child, "SECONDS", 60)
    assert (
        good(tmp_path / "good.db")
        and open_source("trackio", str(tmp_path / "good.db")).read().points
    )


def test_what_waits_without_end_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs takes no time of a core."""
    for package in ("rgt_box", "rgt_wire"):
        (tmp_path / package).symlink_to(f"{place.code_root()}/{package}")
    (tmp_path / "waiting.py").write_text(
        "import time\nanswer = lambda request: time.sleep(request['s']) or {}\n"
    )
    monkeypatch.setattr(place, "code_root", lambda: str(tmp_path))
    monkeypatch.setattr(confined_child, "WALL", 1)
    child = confined_child.ConfinedChild("waiting")
    child.patience = PATIENCE
    try:
        with pytest.raises(confined_child.ChildDied, match=r"it took more than 1 s$"):
            child.request_answer({"s": 1e6})
        monkeypatch.setattr(confined_child, "WALL", 60)
        assert child.request_answer({"s": 0}) == {}
    finally:
        child.close()


def test_who_waits_for_it_waits_a_moment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    a_child_of_its_own: confined_child.ConfinedChild,
) -> None:
    """The answer comes later, and what others ask meanwhile is not lost."""
    monkeypatch.setattr(confined_child, "SECONDS", 1)
    hostile, honest = slow(tmp_path / "x.db"), good(tmp_path / "good.db")
    a_child_of_its_own.patience = confined_child.PATIENCE
    stands: list[subprocess.Popen[bytes]] = []
    start = a_child_of_its_own._start_process

    def stopped() -> subprocess.Popen[bytes]:
        """However slow this process is, the child is not through before all have asked."""
        process = start()
        process.send_signal(signal.SIGSTOP)
        stands.append(process)
        return process

    monkeypatch.setattr(a_child_of_its_own, "_start_process", stopped)
    one, other = open_source("trackio", str(hostile)), open_source("trackio", str(honest))
    first = one.read()
    assert (first.points, first.problems, first.more) == ([], [], False)
    assert other.read().points == []
    assert a_child_of_its_own._asked, "nobody has waited for the end of it"
    monkeypatch.setattr(a_child_of_its_own, "_start_process", start)
    stands[0].send_signal(signal.SIGCONT)
    until(lambda: other.read().points, "the honest one's answer", LONG)
    assert [problem.reason for problem in one.read().problems] == [
        "not read for 60 s, because reading it failed: it took more than 1 s of a core"
    ]


def test_the_rest_doubles_and_an_answer_ends_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    a_child_of_its_own: confined_child.ConfinedChild,
) -> None:
    path = good(tmp_path / "x.db")
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    answers: list[Any] = [
        confined_child.ChildDied("x"),
        confined_child.ChildDied("x"),
        None,
        confined_child.ChildDied("x"),
    ]
    real = a_child_of_its_own.request_answer

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return real(request)

    monkeypatch.setattr(a_child_of_its_own, "request_answer", ask)
    reader = open_source("trackio", str(path))

    def told() -> list[str]:
        return [problem.reason[:18] for problem in reader.read().problems]

    assert told() == ["not read for 60 s,"]
    now[0] += 59.0
    assert (told(), len(answers)) == ([], 3)
    now[0] += 2.0
    assert told() == ["not read for 120 s"]
    now[0] += 121.0
    assert reader.read().points
    assert told() == ["not read for 60 s,"]


def test_an_unchanged_database_is_not_asked_for(
    tmp_path: Path,
    a_child_of_its_own: confined_child.ConfinedChild,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = good(tmp_path / "x.db")
    os.utime(path, (1.79e9, 1.79e9))
    reader = open_source("trackio", str(path))
    first = reader.read()
    assert first.points
    monkeypatch.setattr(
        a_child_of_its_own, "request_answer", lambda *_: pytest.fail("it is asked for")
    )
    again = reader.read(first.cursor)
    assert (again.points, again.cursor, again.problems) == ([], first.cursor, [])


def test_a_child_that_was_killed_is_replaced_and_leaves_no_copies(
    tmp_path: Path, a_child_of_its_own: confined_child.ConfinedChild
) -> None:
    path = good(tmp_path / "x.db")
    assert open_source("trackio", str(path)).read().points
    process, folder = a_child_of_its_own._process, a_child_of_its_own._folder
    assert process is not None and os.path.isdir(folder)
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = [open_source("trackio", str(path)).read() for _ in range(2)]
    assert found[-1].points
    assert not os.path.exists(folder)


def test_only_what_our_statements_need_is_allowed(tmp_path: Path) -> None:
    path = good(tmp_path / "x.db")
    db = sqlite_files.open_restricted(str(path), "mode=ro")
    assert db.execute(
        "SELECT count(*), max(length(metrics)) FROM metrics WHERE run_name NOT LIKE 'x/%'"
    ).fetchone()
    for refused in (
        "SELECT hex(metrics) FROM metrics",
        "SELECT randomblob(10)",
        "ATTACH '/tmp/x' AS y",
        "PRAGMA query_only=0",
        "INSERT INTO metrics (id) VALUES (9)",
        "CREATE TEMP TABLE t (a)",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n FROM c",
        "SELECT load_extension('x')",
    ):
        with pytest.raises(sqlite3.Error, match=r"not authorized|prohibited|not permitted"):
            db.execute(refused).fetchone()
    db.close()


def test_a_watch_goes_on_beside_hostile_databases(tmp_path: Path, agent: Agent) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for kind in DATABASES:
        generated(run / f"{kind}.db", kind)
    slow(run / "slow.db")
    good(run / "good.db")
    log = tmp_path / "good.log"
    log.write_text("here\n")
    channel = agent.watch(runs=[str(run)], logs=[str(log)], interval=1.0)
    missing = {"LogLines", "Scalars"}
    for frame in channel.frames():
        assert getattr(frame, "kind", "") not in ("files-hang", "follow-failed"), frame
        missing.discard(type(frame).__name__)
        if not missing:
            break
    assert not missing
    status = Path(f"/proc/{channel.process.pid}/status").read_text()
    words = dict(line.split(":", 1) for line in status.splitlines())
    assert int(words["VmHWM"].split()[0]) * 1024 < 150 * MIB
    channel.kill()


def test_the_child_takes_requests_as_lines(tmp_path: Path) -> None:
    """What is sent between agent and child is what `pack` and `unpack` agree on, NaN included."""
    from rgt_box.metrics import MetricPoint, ReadBatch

    batch = ReadBatch("x", {"id": 3})
    batch.points = [MetricPoint("loss", "step", 1.0, float("nan"), None, "g")]
    batch.add_restart(2.0, "again")
    batch.add_problem(5, "why")
    batch.more = batch.reset = True
    other = ReadBatch("x", None)
    sqlite_child.unpack_batch(json.loads(json.dumps(sqlite_child.pack_batch(batch))), other)
    assert repr(sqlite_child.pack_batch(other)) == repr(sqlite_child.pack_batch(batch))
