"""The ``cat`` verb: exact bytes, and a cursor that finds its text again wherever it went."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.box.harness import Agent


def printed(agent: Agent, *words: str) -> tuple[list[dict[str, Any]], bytes]:
    """Run the verb; return its records and the bytes between them."""
    done = agent.run("cat", *words)
    return split(done.stdout)


def split(out: bytes) -> tuple[list[dict[str, Any]], bytes]:
    records, data = [], b""
    while out:
        line, _, out = out.partition(b"\n")
        record = json.loads(line)
        if record["t"] == "data":
            data, out = data + out[: record["n"]], out[record["n"] :]
        else:
            records.append(record)
    return records, data


def cursor(path: Path, offset: int, length: int | None = None) -> str:
    """What a reader has that received a file up to `offset`."""
    kept = min(1024, offset) if length is None else length
    before = path.read_bytes()[offset - kept : offset]
    return f"{path.stat().st_ino}:{offset}:{len(before)}:{hashlib.sha256(before).hexdigest()}"


TEXT = b"first line\n\xff second\r\nthird and unfinished \xe4"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_bytes(TEXT)
    return path


def test_every_byte_comes_as_it_is(agent: Agent, log: Path) -> None:
    records, data = printed(agent, "--path", str(log))
    assert data == TEXT
    assert [record["t"] for record in records] == ["file", "end"]
    assert records[0] == {
        "t": "file", "path": str(log), "inode": log.stat().st_ino, "start": 0, "size": len(TEXT), "why": None,
    }  # fmt: skip


@pytest.mark.full_matrix
@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\n", b"a\nb", b"\n\n\n", b"a\n\nb\n" * 3])
def test_the_last_lines_are_those_of_tail(agent: Agent, log: Path, text: bytes, count: int) -> None:
    log.write_bytes(text)
    _, data = printed(agent, "--path", str(log), "--lines", str(count))
    assert (
        data
        == subprocess.run(
            ["tail", "-n", str(count), str(log)], capture_output=True, check=True
        ).stdout
    )


def test_the_last_lines_of_blocks_that_end_anywhere(agent: Agent, log: Path) -> None:
    log.write_bytes(b"x" * 262_143 + b"\n" + b"y" * 262_144 + b"\nz" * 3)
    for count in (3, 4, 5):
        _, data = printed(agent, "--path", str(log), "--lines", str(count))
        assert (
            data
            == subprocess.run(
                ["tail", f"-n{count}", str(log)], capture_output=True, check=True
            ).stdout
        )


@pytest.mark.parametrize("offset", [0, 1, 11, len(TEXT)])
def test_a_cursor_goes_on_at_its_byte(agent: Agent, log: Path, offset: int) -> None:
    records, data = printed(agent, "--path", str(log), "--cursor", cursor(log, offset))
    assert (data, records[0]["why"], records[0]["start"]) == (TEXT[offset:], "resumed", offset)


def test_a_renamed_file_is_read_to_its_end(agent: Agent, log: Path) -> None:
    where = cursor(log, 11)
    log.rename(log.with_name("train.log.1"))
    log.write_bytes(b"new\n")
    records, data = printed(agent, "--path", str(log), "--cursor", where)
    assert (data, records[0]["why"]) == (TEXT[11:], "resumed")


def test_a_file_that_was_copied_and_cut_is_read_to_its_end_in_the_copy(
    agent: Agent, log: Path
) -> None:
    """What logrotate calls copytruncate: the inode stays with the new text, and the old text has another."""
    where = cursor(log, 20)
    shutil.copy(log, log.with_name("train.log.1"))
    with log.open("r+b") as file:
        file.truncate()
        file.write(b"new text that is longer than what stood here before\n")
    _, data = printed(agent, "--path", str(log), "--cursor", where)
    assert data == TEXT[20:]


def test_another_text_at_the_same_inode_is_not_taken_for_the_same(agent: Agent, log: Path) -> None:
    where = cursor(log, 20)
    with log.open("r+b") as file:
        file.truncate()
        file.write(b"n" * 100)
    records, data = printed(agent, "--path", str(log), "--cursor", where)
    assert (data, records[0]["why"]) == (b"n" * 100, "truncated")


def test_a_lost_file_is_told(agent: Agent, log: Path) -> None:
    where = cursor(log, 20)
    fresh = log.with_name("fresh")
    fresh.write_bytes(b"fresh\n")
    fresh.rename(log)
    records, data = printed(agent, "--path", str(log), "--cursor", where)
    assert (data, records[0]["why"]) == (b"fresh\n", "replaced")


def test_it_stops_where_it_is_told_to(agent: Agent, log: Path) -> None:
    assert printed(agent, "--path", str(log), "--until", "5")[1] == TEXT[:5]


def test_of_a_glob_the_file_written_last_is_taken(agent: Agent, tmp_path: Path) -> None:
    for age, name in ((5, "a.log"), (1, "b c.log"), (9, "z.log")):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1_700_000_000 - age,) * 2)
    assert printed(agent, "--path", f"{tmp_path}/*.log")[1] == b"b c.log"
    done = agent.run("cat", "--list", f"{tmp_path}/*.log", "--list", f"{tmp_path}/none")
    names = [Path(json.loads(line)["path"]).name for line in done.stdout.splitlines()]
    assert names == ["b c.log", "a.log", "z.log"]


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
def test_what_is_no_file_is_an_error(agent: Agent, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    done = agent.run("cat", "--path", str(path))
    records, data = split(done.stdout)
    assert (done.returncode, records[0]["t"], data) == (1, "error", b"")
    assert str(path) in records[0]["text"]


@pytest.mark.parametrize(
    "words",
    [[], ["--path", "a", "--list", "b"], ["--path", "a", "--cursor", "x"], ["--path", "a", "--cursor", "1:2:3:x"]],
)  # fmt: skip
def test_wrong_command_lines(agent: Agent, words: list[str]) -> None:
    assert agent.run("cat", *words).returncode == 2


def test_following_ends_with_its_reader(agent: Agent, log: Path) -> None:
    process = subprocess.Popen(
        agent.command("cat", "--path", str(log), "--follow"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=agent.env,
    )  # fmt: skip
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert split(out)[1] == TEXT


@pytest.mark.parametrize(("line", "start"), [(1, 0), (2, 4), (3, 5), (4, 10), (5, 10), (900, 10)])
def test_a_line_is_found_by_its_number(agent: Agent, tmp_path: Path, line: int, start: int) -> None:
    path = tmp_path / "numbered"
    path.write_bytes(b"one\n\nfour\n")
    rows, data = printed(agent, "--path", str(path), "--line", str(line))
    assert (rows[0]["start"], data) == (start, b"one\n\nfour\n"[start:])


def test_lines_before_a_byte_are_counted(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "counted"
    path.write_bytes(b"one\n\nfour\nfive")
    for until, lines in ((0, 0), (3, 0), (4, 1), (5, 2), (14, 3), (99, 3)):
        rows, _ = printed(agent, "--path", str(path), "--count", "--until", str(until))
        assert rows[-1] == {"t": "count", "lines": lines}
