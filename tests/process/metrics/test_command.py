"""The verb and the client's command: the exact line per series, the table, and what is said when there is nothing."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from rgt_box.metrics import main

from rgt_tui.cli import curves, entry

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures" / "scalars" / "console"
NANOGPT = str(FIXTURES / "nanogpt.log")


def rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_per_series(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([NANOGPT, "--json"]) == 0
    out = capfd.readouterr().out
    assert rows(out)[0] == {
        "file": NANOGPT,
        "source": "console:generic",
        "tag": "loss",
        "metric": "loss",
        "x": "step",
        "points": 2,
        "nonfinite": 0,
        "last": [10, 9.4102],
    }
    assert list(rows(out)[0]) == [
        "file",
        "source",
        "tag",
        "metric",
        "x",
        "points",
        "nonfinite",
        "last",
    ]
    (evaluated,) = [row for row in rows(out) if row["metric"] == "eval_loss"]
    assert (evaluated["nonfinite"], evaluated["last"]) == (1, [250, "nan"])
    assert "NaN" not in out


def test_infinities_have_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"step": 1, "loss": -Infinity, "lr": Infinity}\n')
    assert main(["--json", str(path)]) == 0
    assert {str(row["tag"]): row["last"] for row in rows(capfd.readouterr().out)} == {
        "loss": [1, "-inf"],
        "lr": [1, "inf"],
    }


def test_a_directory_is_searched_and_the_table_marks_what_is_drawn(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text(Path(NANOGPT).read_text())
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "time": 1e9, "loss": 1.5}\n')
    (tmp_path / "notes.log").write_text("nothing here\n")
    assert main([str(tmp_path)]) == 0
    out, problems = capfd.readouterr()
    assert problems == ""
    drawn = {
        line.split()[-1]: line
        for line in out.splitlines()
        if " loss " in line and "train" not in line
    }
    assert drawn["metrics.jsonl"].startswith("*")
    assert main(["--json", str(tmp_path)]) == 0
    assert {row["source"] for row in rows(capfd.readouterr().out)} == {"rgt", "console:generic"}


def test_runs_of_a_database_stand_before_their_tags_where_there_are_several(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "project.db"
    db = sqlite3.connect(path)
    db.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id, timestamp, run_name, step, metrics)"
    )
    insert = "INSERT INTO metrics VALUES (?, 'id', '2026-01-01T00:00:00', ?, ?, ?)"
    db.execute(insert, (1, "a", 1, '{"loss": 1.5}'))
    db.commit()
    assert main([str(path), "--json"]) == 0
    assert [row["tag"] for row in rows(capfd.readouterr().out)] == ["loss"]
    db.execute(insert, (2, "b", 1, '{"loss": 2.5}'))
    db.commit()
    db.close()
    assert main([str(path), "--json"]) == 0
    assert [row["tag"] for row in rows(capfd.readouterr().out)] == ["a:loss", "b:loss"]


def test_a_database_below_a_relative_path_is_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    db = sqlite3.connect(tmp_path / "runs/project.db")
    db.execute(
        "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id, timestamp, run_name, step, metrics)"
    )
    db.execute(
        "INSERT INTO metrics VALUES (1, 'id', '2026-01-01T00:00:00', 'a', 1, '{\"loss\": 1.5}')"
    )
    db.commit()
    db.close()
    monkeypatch.chdir(tmp_path)
    for path in ("runs", "runs/project.db", "."):
        assert main([path, "--json"]) == 0, capfd.readouterr().err
        assert [row["tag"] for row in rows(capfd.readouterr().out)] == ["loss"]


def test_names_cannot_move_the_cursor(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[2J\n.jsonl"
    path.write_text('{"step": 1, "loss\\u001b[1m": 1.0}\n')
    assert main([str(path)]) == 0
    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert out.count("\n") == 2


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["/no/such/place"], 2, "/no/such/place: No such file or directory"),
        ([], 2, "one PATH is needed"),
        (["a", "b"], 2, "one PATH is needed"),
        (["--xml", "a"], 2, "--xml"),
        ([str(FIXTURES.parent / "console" / "nanogpt.log"), "--json=1"], 0, ""),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], status: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    try:
        assert main(words) == status
    except SystemExit as end:
        assert end.code == status
    assert said in capfd.readouterr().err


def test_a_file_that_no_reader_knows_and_an_empty_directory(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    path = tmp_path / "notes.md"
    path.write_text("# Nothing\n")
    assert main([str(path), "--json"]) == 1
    out, problems = capfd.readouterr()
    assert out == ""
    assert f"{path}: no reader for this file" in problems
    assert f"{tmp_path}: no reader for anything below it" in problems
    (tmp_path / "empty.log").touch()
    assert main([str(tmp_path / "empty.log")]) == 1


def test_a_fifo_is_no_file_to_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main([str(tmp_path / "pipe")]) == 2
    assert "not a regular file" in capfd.readouterr().err


def test_help(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "usage: scalars PATH" in capfd.readouterr().out


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    words = shlex.join(
        [sys.executable, "-m", "rgt_box.metrics.scalars_command", str(FIXTURES), "--json"]
    )
    command = f"{words} | head -c 100 >/dev/null"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "remote")}
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def client(*words: str) -> int:
    return curves.run_scalars(entry.parse_command_line(["scalars", *words]))


def test_the_client_runs_the_code_of_the_box(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client(NANOGPT, "--json") == 0
    assert {row["source"] for row in rows(capfd.readouterr().out)} == {"console:generic"}
    assert client("/no/such/place") == 2
    assert "/no/such/place" in capfd.readouterr().err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the run was imported')")
    (tmp_path / "-odd.log").write_text(Path(NANOGPT).read_text())
    assert client("--json", "--", "-odd.log") == 0
    assert rows(capfd.readouterr().out)[0]["file"] == "./-odd.log"
    assert client(".") == 0


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13"])
def test_every_python_of_a_box_says_the_same(version: str) -> None:
    found = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    interpreter = str(found[0]) if found else sys.executable
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "remote")}

    def said(python: str) -> str:
        words = [python, "-m", "rgt_box.metrics.scalars_command", str(FIXTURES), "--json"]
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert said(interpreter) == said(sys.executable)


def test_a_full_standard_output_is_named() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rgt_tui", "scalars", NANOGPT],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    told = "rgt: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)
