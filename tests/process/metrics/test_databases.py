"""Databases of other programs: read to the last committed row, and nothing is left beside them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rgt_box.metrics import open_reader, sqlite_files

from tests.unit.metrics.makers import Follower, listing, summary

TRACKIO = """CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, timestamp TEXT NOT NULL,
    run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL)"""
MLFLOW = """CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,
    run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,
    PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan))"""
AITOOLKIT = """CREATE TABLE steps (step INTEGER PRIMARY KEY, wall_time REAL NOT NULL);
    CREATE TABLE metrics (step INTEGER NOT NULL, key TEXT NOT NULL, value_real REAL, value_text TEXT,
    PRIMARY KEY (step, key))"""
NAN = float("nan")


@pytest.fixture(autouse=True)
def nothing_stays_in_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    private = tmp_path / "temporary"
    private.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    monkeypatch.setattr(sqlite_files, "STEPS", 200)
    yield
    assert os.listdir(private) == []


def make(path: Path, schema: str, mode: str = "wal") -> sqlite3.Connection:
    path.parent.mkdir(exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=" + mode)
    db.executescript(schema)
    return db


def log(db: sqlite3.Connection, step: int, run: str = "a", **metrics: object) -> None:
    text = json.dumps({key.replace("__", "/"): value for key, value in metrics.items()})
    row = ("x", "2026-11-21T09:36:31+00:00", run, step, text.encode())
    db.execute(
        "INSERT INTO metrics(run_id, timestamp, run_name, step, metrics) VALUES(?,?,?,?,?)", row
    )


def mlflow(
    db: sqlite3.Connection,
    key: str,
    value: float,
    step: int,
    is_nan: int = 0,
    at: int = 1795253821902,
) -> None:
    db.execute("INSERT INTO metrics VALUES(?,?,?,?,?,?)", (key, value, at, "run", step, is_nan))


def follower(kind: str, path: Path, limit: int = 5000) -> Follower:
    return Follower(functools.partial(open_reader, kind, str(path)), limit)


def test_a_live_writer_in_wal_mode_is_read_to_its_last_commit(tmp_path: Path) -> None:
    path = tmp_path / "d" / "p.db"
    db = make(path, TRACKIO)
    each = follower("trackio", path, 3)
    for step in range(20):
        log(db, step, loss=step / 2, lr=0.1)
        before = listing(path.parent)
        each.poll()
        assert listing(path.parent) == before
        assert len(each.points) == 2 * (step + 1)
    assert {name for name, _, _ in listing(path.parent)} == {"p.db", "p.db-wal", "p.db-shm"}
    assert summary(each.store) == {
        ("a", "loss", "step"): (20, 0, 19, 9.5),
        ("a", "lr", "step"): (20, 0, 19, 0.1),
    }
    db.execute("BEGIN")
    log(db, 99, loss=1.0)
    each.poll()
    assert len(each.points) == 40
    db.execute("COMMIT")
    db.close()
    before = listing(path.parent)
    assert [name for name, _, _ in before] == ["p.db"]
    each.poll()
    assert (len(each.points), each.resets, each.problems) == (41, 0, [])
    assert listing(path.parent) == before


def test_the_log_of_a_killed_writer_is_read_and_left_alone(tmp_path: Path) -> None:
    db = make(tmp_path / "live" / "p.db", TRACKIO)
    log(db, 1, loss=1.0)
    dead = tmp_path / "dead"
    dead.mkdir()
    for name in ("p.db", "p.db-wal"):
        shutil.copy(tmp_path / "live" / name, dead)
    db.close()
    before = listing(dead)
    each = follower("trackio", dead / "p.db")
    each.poll()
    assert [point[:4] for point in each.points] == [("loss", "step", 1.0, 1.0)]
    assert listing(dead) == before


def test_a_hot_journal_is_rolled_back_in_the_copy_only(tmp_path: Path) -> None:
    db = make(tmp_path / "live" / "m.db", MLFLOW, "delete")
    mlflow(db, "loss", 1.0, 1)
    db.execute("PRAGMA cache_size=1")
    db.execute("PRAGMA cache_spill=1")
    db.execute("BEGIN IMMEDIATE")
    for step in range(2, 2000):
        mlflow(db, "loss", 2.0, step)
    dead = tmp_path / "dead"
    dead.mkdir()
    for name in ("m.db", "m.db-journal"):
        shutil.copy(tmp_path / "live" / name, dead)
    db.close()
    before = listing(dead)
    assert len(before) == 2
    each = follower("mlflow", dead / "m.db")
    each.poll()
    assert (summary(each.store), each.problems) == ({("run", "loss", "step"): (1, 0, 1, 1.0)}, [])
    assert listing(dead) == before


def test_a_writer_that_locks_everything_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "d" / "m.db"
    db = make(path, MLFLOW, "delete")
    mlflow(db, "loss", 1.0, 1)
    each = follower("mlflow", path)
    db.execute("BEGIN EXCLUSIVE")
    each.poll()
    assert (each.points, each.problems) == ([], [])
    db.execute("COMMIT")
    each.poll()
    assert len(each.points) == 1
    db.close()


def test_a_read_only_file_system(tmp_path: Path) -> None:
    place = tmp_path / "ro"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], capture_output=True).returncode:
        pytest.skip("cannot mount")
    try:
        db = make(place / "w.db", TRACKIO)
        log(db, 1, loss=1.0)
        shutil.copy(place / "w.db", place / "left.db")
        shutil.copy(place / "w.db-wal", place / "left.db-wal")
        db.close()
        db = make(place / "j.db", MLFLOW, "delete")
        mlflow(db, "loss", 1.0, 1)
        db.close()
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
        before = listing(place)
        for kind, name in (("trackio", "w.db"), ("trackio", "left.db"), ("mlflow", "j.db")):
            each = follower(kind, place / name)
            each.poll()
            assert (len(each.points), each.problems) == (1, [])
        assert listing(place) == before
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_trackio_goes_along_the_trainers_own_step(tmp_path: Path) -> None:
    path = tmp_path / "d" / "p.db"
    db = make(path, TRACKIO)
    each = follower("trackio", path)
    log(db, 0, note=1.0)
    each.poll()
    log(db, 1, train__loss=2.0, train__global_step=50)
    log(db, 2, train__loss="NaN", train__global_step=100, deep={"a": 5})
    log(db, 3, eval__loss="Infinity")
    log(db, 0, "b", loss=7.0)
    each.poll()
    assert each.resets == 1
    assert [point[:4] + point[5:] for point in each.points] == [
        ("train/loss", "step", 50.0, 2.0, "a"),
        ("train/loss", "step", 100.0, "nan", "a"),
        ("deep/a", "step", 100.0, 5.0, "a"),
        ("eval/loss", "step", 100.0, "inf", "a"),
        ("loss", "step", 0.0, 7.0, "b"),
    ]
    log(db, 4, "b", loss=0.0, grad_norm="NaN")
    each.poll()
    assert [point[0:4] for point in each.points[-2:]] == [
        ("loss", "step", 4.0, "nan"),
        ("grad_norm", "step", 4.0, "nan"),
    ]
    db.close()


def test_mlflow_values(tmp_path: Path) -> None:
    path = tmp_path / "d" / "mlflow.db"
    db = make(path, MLFLOW, "delete")
    each = follower("mlflow", path)
    for step in range(3):
        mlflow(db, "loss", 0.0 if step == 2 else 1.0, step, is_nan=step == 2)
    mlflow(db, "up", 1.7976931348623157e308, 1)
    mlflow(db, "down", -1.7976931348623157e308, 1)
    mlflow(db, "system/cpu", 1.0, 1)
    for at in range(4):
        mlflow(db, "nostep", 2.0 * at, 0, at=1795253821902 + at)
        each.poll()
    before = listing(path.parent)
    each.poll()
    assert listing(path.parent) == before
    assert summary(each.store) == {
        ("run", "loss", "step"): (3, 1, 2, "nan"),
        ("run", "up", "step"): (1, 1, 1, "inf"),
        ("run", "down", "step"): (1, 1, 1, "-inf"),
        ("run", "nostep", "step"): (4, 0, 3, 6.0),
    }
    assert len(each.points) == 9
    mlflow(db, "loss", 0.0, 3)
    mlflow(db, "grad_norm", 1.0, 3)
    mlflow(db, "loss", 0.0, 4)
    each.poll()
    assert len(each.points) == 11  # the last zero may hide a NaN
    mlflow(db, "grad_norm", 0.0, 4, is_nan=1)
    each.poll()
    assert [point[2:4] for point in each.points if point[0] == "loss"][-2:] == [
        (3.0, 0.0),
        (4.0, "nan"),
    ]
    db.close()


def test_aitoolkit_prunes_at_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "d" / "loss_log.db"
    db = make(path, AITOOLKIT)
    each = follower("aitoolkit", path, 2)

    def step(number: int, y: float, wall: float) -> None:
        db.execute("INSERT INTO steps VALUES(?,?)", (number, wall))
        db.execute("INSERT INTO metrics VALUES(?,'loss/loss',?,NULL)", (number, y))
        db.execute("INSERT INTO metrics VALUES(?,'learning_rate',?,NULL)", (number, 0.1))

    for number in range(6):
        step(number, NAN if number == 3 else 1.0, 1.79e9 + number)
    each.poll()
    assert summary(each.store)["", "loss/loss", "step"] == (6, 1, 5, 1.0)
    db.execute("DELETE FROM steps WHERE step > 2")
    db.execute("DELETE FROM metrics WHERE step > 2")
    for number in range(3, 8):
        step(number, 2.0, 1.79e9 + 100 + number)
    each.poll()
    assert (each.resets, summary(each.store)["", "loss/loss", "step"]) == (1, (8, 0, 7, 2.0))
    db.close()


def test_a_replaced_database_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "d" / "p.db"
    db = make(path, TRACKIO)
    for step in range(5):
        log(db, step, loss=1.0)
    db.close()
    each = follower("trackio", path)
    each.poll()
    path.rename(tmp_path / "old.db")
    db = make(path, TRACKIO)
    log(db, 0, loss=3.0)
    db.close()
    each.poll()
    assert (each.resets, [point[3] for point in each.points]) == (1, [3.0])


def test_an_unchanged_database_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d" / "p.db"
    db = make(path, TRACKIO)
    log(db, 0, loss=1.0)
    db.close()
    opened: list[str] = []
    real = sqlite_files.open_restricted

    def connect(path: str, options: str) -> sqlite3.Connection:
        opened.append(options)
        return real(path, options)

    monkeypatch.setattr(sqlite_files, "open_restricted", connect)
    each = follower("trackio", path)
    moment = time.time() + 1000  # of now, however long it takes from here
    os.utime(path, (moment, moment))
    each.poll()
    each.poll()  # fresh: a change of the same moment could have been missed
    os.utime(path, (1.79e9, 1.79e9))
    each.poll()
    each.poll()
    assert (opened, len(each.points)) == (["immutable=1"] * 3, 1)


def test_copies_of_a_large_database_are_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d" / "p.db"
    db = make(path, TRACKIO)
    log(db, 0, loss=1.0)
    reader = open_reader("trackio", str(path))
    monkeypatch.setattr("rgt_box.metrics.sqlite_files.REST", 1e9)
    first = reader.read()
    log(db, 1, loss=1.0)
    second = reader.read(first.cursor)
    assert (len(first.points), second.points, second.cursor) == (1, [], first.cursor)
    monkeypatch.setattr(sqlite_files, "MAX_COPY", 100)
    assert [each.reason for each in open_reader("trackio", str(path)).read().problems] == [
        "being written, and too large to copy"
    ]
    db.close()


WRITER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
db.execute("PRAGMA journal_mode=" + sys.argv[2])
db.execute("PRAGMA synchronous=OFF")
db.execute("PRAGMA wal_autocheckpoint=20")
for n in range(0, 3000, 3):
    db.execute("BEGIN")
    for step in range(n, n + 3):
        row = ("x", "2026-11-21T09:36:31+00:00", "a", step, b'{"loss": %d, "text": "%s"}' % (step, b"x" * 300))
        db.execute("INSERT INTO metrics(run_id, timestamp, run_name, step, metrics) VALUES(?,?,?,?,?)", row)
    db.execute("COMMIT")
db.close()
"""


@pytest.mark.parametrize("mode", ["wal", "delete", "persist"])
def test_a_busy_writer_loses_nothing_and_is_not_held_up(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "d" / "p.db"
    make(path, TRACKIO, mode).close()
    each = follower("trackio", path)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), mode], stderr=subprocess.PIPE
    ) as writer:
        while writer.poll() is None:
            each.poll()
            assert len(each.points) % 3 == 0
        assert (writer.returncode, writer.stderr and writer.stderr.read()) == (0, b"")
    each.poll()
    assert [point[3] for point in each.points] == [float(step) for step in range(3000)]
    assert (each.resets, each.problems) == (0, [])
    assert [name for name, _, _ in listing(path.parent) if not name.endswith("-journal")] == [
        "p.db"
    ]


HOSTILE = {
    "endless view": "CREATE VIEW metrics AS WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id+1 FROM c) "
    "SELECT id AS rowid, id, '' AS timestamp, 'r' AS run_name, 0 AS step, '{}' AS metrics, 'k' AS key, "
    "1.0 AS value, 'r' AS run_uuid, 0 AS is_nan FROM c WHERE id < 0",
    "other tables": "CREATE TABLE metrics (a)",
    "no tables": "SELECT 1",
}


@pytest.mark.parametrize("kind", ["trackio", "mlflow", "aitoolkit"])
@pytest.mark.parametrize("schema", HOSTILE)
def test_a_hostile_schema_ends_in_a_problem(tmp_path: Path, kind: str, schema: str) -> None:
    path = tmp_path / "d" / "x.db"
    make(path, HOSTILE[schema]).close()
    batch = open_reader(kind, str(path)).read()
    assert (batch.points, len(batch.problems), batch.more) == ([], 1, False)


@pytest.mark.parametrize("kind", ["trackio", "mlflow", "aitoolkit"])
def test_no_database_at_all(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.db"
    assert open_reader(kind, str(path)).read().problems[0].reason == "No such file or directory"
    for data in (b"", b"SQLite format 3\0", b"SQLite format 3\0" + b"\1" * 5000):
        path.write_bytes(data)
        batch = open_reader(kind, str(path)).read()
        assert (batch.points, len(batch.problems)) == ([], 1)


def test_rows_of_absurd_size_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "d" / "p.db"
    db = make(path, TRACKIO)
    log(db, 0, text="x" * (2 << 20))
    log(db, 1, loss=1.0, text="10" * 3000)
    db.execute("INSERT INTO metrics VALUES(9, 'x', 'never', 'r', 'x', ?)", ("[" * 100000,))
    db.close()
    each = follower("trackio", path)
    each.poll()
    assert ([point[:4] for point in each.points], len(each.problems)) == (
        [("loss", "step", 1.0, 1.0)],
        2,
    )
