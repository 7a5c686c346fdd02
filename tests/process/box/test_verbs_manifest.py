"""The manifest verb on real files, hostile names included."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from rgt_box.commands import file_tree, hashing
from rgt_box.commands.hashing import HashCache

from tests.process.box.harness import Agent, until


def manifest(agent: Agent, *words: str) -> tuple[int, list[dict[str, Any]]]:
    done = agent.run("manifest", *words)
    return done.returncode, [json.loads(row) for row in done.stdout.splitlines()]


def named(row: dict[str, Any]) -> bytes:
    return base64.b64decode(row["path_b64"]) if "path_b64" in row else row["path"].encode()


HOSTILE = [
    b"a.b",
    b"a/c",
    b"new\nline",
    b"\xff\xfe",
    "ümlaut".encode(),
    b"\x1b[31m",
    b"z" * 255,
    b"-rf",
    b" ",
    b"a/d/e",
]


def test_hostile_names_survive_sorted_by_their_bytes(agent: Agent, tmp_path: Path) -> None:
    top = os.fsencode(tmp_path / "t")
    for name in HOSTILE:
        path = os.path.join(top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(name)
    status, rows = manifest(agent, str(tmp_path / "t"))
    root, *listed, end = rows
    assert (status, root) == (0, {"root": str(tmp_path / "t")})
    assert [named(row) for row in listed] == sorted(HOSTILE)
    for row in listed:
        assert row["sha256"] == hashlib.sha256(named(row)).hexdigest()
        assert row["size"] == len(named(row))
        assert row["mtime"] == pytest.approx(
            os.stat(os.path.join(top, named(row))).st_mtime, abs=1e-6
        )
    assert (end["end"], end["files"], end["bytes"]) == (True, len(HOSTILE), sum(map(len, HOSTILE)))


def test_a_second_run_hashes_nothing_again_and_notices_every_change(
    agent: Agent, tmp_path: Path
) -> None:
    top = tmp_path / "t"
    top.mkdir()
    for name in "abc":
        (top / name).write_text(name)
    assert manifest(agent, str(top))[1][-1]["hashed"] == 3
    # The files must be older than what counts as "just now", and each run starts a new process.
    until(lambda: manifest(agent, str(top))[1][-1]["cached"] == 3)
    kept = os.stat(top / "a")
    (top / "a").write_text("A")
    os.utime(
        top / "a", ns=(kept.st_atime_ns, kept.st_mtime_ns)
    )  # same size, same mtime, other content
    _, rows = manifest(agent, str(top))
    assert rows[1]["sha256"] == hashlib.sha256(b"A").hexdigest()
    assert rows[-1]["hashed"] == 1
    assert manifest(agent, str(top), "--no-cache")[1][-1]["hashed"] == 3


def test_a_killed_run_goes_on_where_it_was(agent: Agent, tmp_path: Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    for number in range(20):
        (top / f"{number:02}").write_text("x")
    until(lambda: time.time() - os.stat(top / "19").st_ctime > 0.1, "files that are not brand-new")
    cache = tmp_path / "cache"
    big = top / "99"
    with big.open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes hours, so that nothing but the kill ends it
    run = agent.start("manifest", str(top), "--cache", str(cache))
    until(lambda: cache.exists() and len(cache.read_bytes().splitlines()) >= 1)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    done = len(cache.read_bytes().splitlines())
    big.unlink()
    with cache.open("ab") as file:
        file.write(b'{"k":"torn')
    end = manifest(agent, str(top), "--cache", str(cache))[1][-1]
    assert end["cached"] == done
    assert end["files"] == 20


def test_links_are_named_and_not_followed_and_special_files_are_refused(
    agent: Agent, tmp_path: Path
) -> None:
    top = tmp_path / "t"
    (top / "d").mkdir(parents=True)
    (top / "d" / "f").write_text("x")
    (top / "in").symlink_to("d/f")
    (top / "out").symlink_to("/etc")
    (top / "dangling").symlink_to("nowhere")
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(top / "sock"))
        status, rows = manifest(agent, str(top))
    found = {row["path"]: row for row in rows if "path" in row}
    assert status == 1
    assert found["in"] == {"path": "in", "link": "d/f"}
    assert found["out"] == {"path": "out", "link": "/etc", "outside": True}
    assert found["dangling"]["link"] == "nowhere"
    assert "a named pipe" in found["pipe"]["error"]
    assert "a socket" in found["sock"]["error"]
    assert set(found) == {"d/f", "in", "out", "dangling", "pipe", "sock"}
    assert rows[-1]["problems"] == 2


def test_a_file_that_changes_while_it_is_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x")
    reads = []

    def opened() -> int:
        fd = os.open(path, os.O_RDONLY)
        reads.append(fd)
        return fd

    real = hashing.hash_open_file

    def writing(fd: int, into: int | None = None) -> tuple[str, int]:
        found = real(fd, into)
        with path.open("a") as file:
            file.write("more")
        return found

    with pytest.MonkeyPatch.context() as patch, pytest.raises(hashing.FileChangedError):
        patch.setattr(hashing, "hash_open_file", writing)
        hashing.hash_unchanging_file(opened)
    assert len(reads) == 2
    assert hashing.hash_unchanging_file(opened)[0] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_out_is_written_by_rename_and_does_not_list_itself(agent: Agent, tmp_path: Path) -> None:
    top = tmp_path / "t"
    top.mkdir()
    (top / "a").write_text("x")
    status, rows = manifest(agent, str(top), "--out", str(top / "m.jsonl"))
    listed = [json.loads(row) for row in (top / "m.jsonl").read_bytes().splitlines()]
    assert (status, len(rows)) == (0, 1)
    assert [row.get("path") for row in listed] == [None, "a", None]
    assert listed[-1] == rows[0]
    assert set(os.listdir(top)) == {"a", "m.jsonl"}
    assert manifest(agent, str(top), "--out", "/proc/nowhere/m")[0] == 2
    assert manifest(agent)[0] == 2
    status, rows = manifest(agent, str(tmp_path / "missing"))
    assert (status, rows[1]["error"]) == (1, "No such file or directory")


def test_a_reader_that_goes_away_is_no_traceback(agent: Agent, tmp_path: Path) -> None:
    for number in range(800):
        (tmp_path / f"{number}-{'x' * 60}").touch()
    run = subprocess.Popen(
        agent.command("manifest", str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=agent.env,
    )
    assert run.stdout is not None
    run.stdout.close()
    assert run.stderr is not None
    assert run.stderr.read() == b""
    assert run.wait() == 1
    run.stderr.close()


def test_a_deep_tree_needs_neither_recursion_nor_long_paths(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 50, dir_fd=fd)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    entries = list(file_tree.walk_tree(str(tmp_path)))
    assert len(entries) == 301
    assert entries[-1].path.endswith(b"/f")
    assert len(entries[-1].path) > 4096
    subprocess.run(["rm", "-rf", str(tmp_path / ("d" * 50))], check=True)


def test_the_cache_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache"
    path.write_bytes(
        b"".join(b'{"k":"%d","h":"%064d"}\n' % (number, number) for number in range(200))
    )
    monkeypatch.setattr("rgt_box.commands.hashing.MOST", 10000)
    HashCache(str(path)).close()
    rows = [json.loads(row)["k"] for row in path.read_bytes().splitlines()]
    assert rows == [str(number) for number in range(100, 200)]
