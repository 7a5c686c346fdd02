"""Searching logs from their end, in bounded memory and bounded time."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rgt_box.commands import grep as grep_verb

from tests.process.box.harness import Agent


def grep(agent: Agent, *words: object) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    done = agent.run("grep", *map(str, words))
    *rows, end = [json.loads(row) for row in done.stdout.splitlines()] or [{}]
    return done.returncode, rows, end


def read(path: Path, limit: int = 1 << 30) -> list[tuple[int, bytes]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(grep_verb.lines_backwards(fd, grep_verb.ReadBudget(limit)))
    finally:
        os.close(fd)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 18])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n", [b""]),
        (b"a\n\nb", [b"b", b"", b"a"]),
        (b"one\r\ntwo\r\n", [b"two", b"one"]),
        (b"10%\r20%\rdone\nend\n", [b"end", b"done", b"20%", b"10%"]),
        (b"\r\n\n\rx", [b"x", b"", b"", b""]),
    ],
)
def test_lines_backwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, data: bytes, lines: list[bytes]
) -> None:
    monkeypatch.setattr(grep_verb, "BLOCK", block)
    path = tmp_path / "log"
    path.write_bytes(data)
    found = read(path)
    assert [line for _, line in found] == lines
    for offset, line in found:
        assert data[offset : offset + len(line)] == line


def test_a_line_without_an_end_is_broken_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_verb, "BLOCK", 1000)
    monkeypatch.setattr(grep_verb, "LONGEST", 5000)
    path = tmp_path / "log"
    path.write_bytes(b"first\n" + b"x" * 100000 + b"\nlast\n")
    pieces = [line for _, line in read(path)]
    assert (pieces[0], pieces[-1]) == (b"last", b"first")
    assert max(map(len, pieces)) <= 6000
    assert b"".join(reversed(pieces[1:-1])) == b"x" * 100000


def test_the_newest_come_first_with_their_context(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    status, rows, end = grep(agent, "line [0-9]*7$", path, "--max", 3, "--context", 2)
    assert (status, [row["text"] for row in rows]) == (0, ["line 97", "line 87", "line 77"])
    assert rows[0]["before"] == ["line 95", "line 96"]
    assert rows[0]["after"] == ["line 98", "line 99"]
    assert path.read_bytes()[rows[1]["offset"] :].startswith(b"line 87\n")
    assert (end["matches"], end["complete"], end["stopped"]) == (3, False, "3 matches")
    status, rows, end = grep(agent, "line (0|1)$", path, "--context", 2)
    assert [row["before"] for row in rows] == [["line 0"], []]
    assert (end["complete"], end["stopped"], end["read"]) == (True, None, path.stat().st_size)


def test_never_more_than_the_limit_is_read(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"needle\n")
        file.truncate(5 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nneedle at the end\n")
    status, rows, end = grep(agent, "needle", path, "--limit-mib", 1)
    assert (status, [row["text"] for row in rows]) == (0, ["needle at the end"])
    assert (end["read"], end["complete"], end["stopped"]) == (1 << 20, False, "1048576 bytes read")


def test_a_pattern_that_takes_for_ever_is_stopped(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a" * 60 + "b\n")
    status, _, end = grep(agent, "(a+)+$", tmp_path / "log", "--timeout", 0.2)
    assert (status, end["complete"], end["stopped"]) == (1, False, "0.2 seconds")


def test_directories_globs_and_files_that_are_none(agent: Agent, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for age, name in enumerate(("new", "old")):
        (logs / f"{name}.log").write_bytes(b"Error \xff here\n")
        os.utime(logs / f"{name}.log", (1000 - age, 1000 - age))
    os.mkfifo(logs / "pipe")
    status, rows, end = grep(agent, "error", logs, "--ignore-case")
    assert (status, [os.path.basename(row["path"]) for row in rows]) == (0, ["new.log", "old.log"])
    assert (rows[0]["text"], end["complete"]) == ("Error \ufffd here", True)
    assert grep(agent, "Error", logs / "*.log")[2]["files"] == 2
    status, _, end = grep(agent, "x", logs / "pipe", logs / "new.log", tmp_path / "gone")
    assert (status, end["complete"]) == (1, False)
    assert [row["error"] for row in end["problems"]] == ["does not exist", "not a regular file"]


def test_wrong_uses_are_named(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    done = agent.run("grep", "(", str(tmp_path / "log"))
    assert (done.returncode, b"is not a regular expression: missing )" in done.stderr) == (2, True)
    for words in (["x"], ["x", str(tmp_path / "gone")], ["x", str(tmp_path / "log"), "--max", "0"]):
        assert agent.run("grep", *words).returncode == 2, words
    assert agent.run("grep", "-x", "--", "-x", str(tmp_path / "log")).returncode == 2
    assert agent.run("grep", "--", "-x", str(tmp_path / "log")).returncode == 1


PATTERNS = [
    "loss",
    "^x",
    "x$",
    "^$",
    r"\d+\s*$",
    "[^x]y",
    "é",
    r"\w",
    r"\bx\b",
    "a|b",
    "(?<!x)y",
    r"\s",
    ".",
]
ROWS = st.lists(
    st.sampled_from(
        ["loss 12", "x", "", "xy", "é y", "a  ", "\ty", "10%\r20%\rx", "LOSS", "-" * 30]
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(
    rows=ROWS, ends=st.booleans(), piece=st.integers(1, 60), fold=st.booleans(), fixed=st.booleans()
)
def test_many_lines_at_once_are_searched_as_one_by_one(
    rows: list[str], ends: bool, piece: int, fold: bool, fixed: bool
) -> None:
    data = "\n".join(rows).encode() + b"\n" * ends
    with pytest.MonkeyPatch.context() as patch, tempfile.NamedTemporaryFile() as file:
        patch.setattr(grep_verb, "PIECE", piece)
        file.write(data)
        file.flush()
        for text in PATTERNS:
            pattern = re.compile(re.escape(text) if fixed else text, re.IGNORECASE if fold else 0)
            given_ = {name[2:]: None for name in grep_verb.SPEC} | {
                "ignore-case": fold,
                "max": 10_000,
            }
            quick = grep_verb.quick_search(text, fixed, fold)
            found = [
                (row["offset"], row["text"])
                for row in grep_verb.LogSearch(
                    pattern, quick, {**given_, "before": len(data)}
                ).search_file(file.name)
            ]
            wanted = [
                (at, row.decode())
                for at, row in read(Path(file.name))
                if pattern.search(row.decode())
            ]
            assert found == wanted, (text, fold, fixed, data)


def test_so_much_is_sent_and_the_rest_is_counted(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"NaN {number} {'x' * 500}\n" for number in range(5000)))
    words = (
        "--fixed",
        "--ignore-case",
        "--count",
        "--max",
        50,
        "--cut",
        20,
        "--nice",
        "--progress",
        0.000001,
    )
    status, rows, end = grep(agent, "nan", path, *words)
    told = [row for row in rows if "text" in row]
    assert (status, len(told), end["matches"], end["complete"]) == (0, 50, 5000, True)
    assert told[0]["text"].startswith("NaN 4999 xxxxxxxxxxx … [line cut]")
    assert [row["read"] for row in rows if "progress" in row]
    status, rows, end = grep(
        agent, "nan", path, "--ignore-case", "--count", "--max", 5000, "--most-kib", 64
    )
    assert end["matches"] == 5000
    assert sum(len(json.dumps(row)) for row in rows) < 80 << 10


def test_a_log_that_is_cut_meanwhile_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_text("needle\n" * 100)
    given_ = {name[2:]: None for name in grep_verb.SPEC} | {"max": 1000}
    search = grep_verb.LogSearch(
        re.compile("needle"), grep_verb.quick_search("needle", True, False), given_
    )
    monkeypatch.setattr(grep_verb, "PIECE", 70)
    rows = search.search_file(str(path))
    next(rows)
    os.truncate(path, 10)
    assert len(list(rows)) < 99
    assert search.summary_row()["complete"] is False
    assert "truncated while it was searched" in search.problems[0]["error"]
