"""Mirror on real mounts: resumed after a kill, full disks, hostile trees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import files
from rgt_box.commands import file_tree, hashing, mirror
from rgt_box.commands.hashing import HashCache

from tests.process.box.harness import Agent, until


def run(agent: Agent, *words: object) -> tuple[int, list[dict[str, Any]], str]:
    done = agent.run("mirror", *map(str, words))
    return (
        done.returncode,
        [json.loads(row) for row in done.stdout.splitlines()],
        done.stderr.decode(),
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    top = tmp_path / "src"
    (top / "deep" / "empty").mkdir(parents=True)
    (top / "a").write_text("one")
    (top / "deep" / "new\nline").write_text("two")
    with open(os.fsencode(top) + b"/\xff", "wb") as file:
        file.write(b"three")
    (top / "link").symlink_to("deep/new\nline")
    (top / "script").write_text("#!/bin/sh\n")
    (top / "script").chmod(0o755)
    return top


def content(top: Path) -> dict[bytes, Any]:
    found: dict[bytes, Any] = {}
    for entry in file_tree.walk_tree(str(top)):
        path = os.path.join(os.fsencode(top), entry.path)
        stat = os.lstat(path)
        if entry.kind == file_tree.FILE:
            with open(path, "rb") as file:
                found[entry.path] = (file.read(), stat.st_mode, stat.st_mtime_ns)
        else:
            found[entry.path] = os.readlink(path) if entry.kind == file_tree.LINK else entry.kind
    return found


def test_a_copy_is_the_same_and_a_second_run_only_verifies(
    agent: Agent, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "deep" / "dst"
    status, rows, _ = run(agent, source, target)
    assert (status, rows[-1]["ok"], rows[-1]["copied"], rows[-1]["verified"]) == (0, True, 5, 5)
    assert content(source) == content(target)
    (target / "foreign").write_text("stays")
    status, rows, _ = run(agent, source, target, "--quiet")
    assert (status, len(rows), rows[0]["same"], rows[0]["copied"]) == (0, 1, 5, 0)
    assert (target / "foreign").read_text() == "stays"


def test_silent_damage_in_the_copy_is_found_and_made_good(
    agent: Agent, source: Path, tmp_path: Path
) -> None:
    target = tmp_path / "dst"
    run(agent, source, target)
    kept = os.stat(target / "a")
    (target / "a").write_text("oNe")
    os.utime(target / "a", ns=(kept.st_atime_ns, kept.st_mtime_ns))
    status, rows, _ = run(agent, source, target)
    assert (status, [row["path"] for row in rows[:-1] if row["status"] == "copied"]) == (0, ["a"])
    assert (target / "a").read_text() == "one"


STUCK = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from rgt_box.commands import hashing, mirror
whole = hashing.hash_open_file
def digest(reader, writer=None):
    if writer is None or os.fstat(reader).st_size < 1 << 20:
        return whole(reader, writer)
    os.write(writer, os.read(reader, 2 << 20))
    time.sleep(1000)
hashing.hash_open_file = digest
mirror.main(sys.argv[2:])
"""
"""A mirror that gets stuck in the midst of the first large file."""


def test_killed_in_the_midst_it_goes_on(agent: Agent, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "dst"
    (source / "z-big").write_bytes(bytes(4 << 20))
    words = [agent.python, "-c", STUCK, str(agent.path), str(source), str(target)]
    first = subprocess.Popen(words, stdout=subprocess.PIPE, env=agent.env)
    part = target / os.fsdecode(mirror.PART)
    until(lambda: part.exists() and part.stat().st_size > 1 << 20, "the big file to be on its way")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not (target / "z-big").exists()
    os.truncate(source / "z-big", 1 << 20)
    status, rows, _ = run(agent, source, target)
    assert (status, rows[-1]["copied"], rows[-1]["same"]) == (0, 2, 4)
    assert content(source) == content(target)


def test_what_is_no_file_is_refused_by_name_and_the_rest_is_copied(
    agent: Agent, source: Path, tmp_path: Path
) -> None:
    (source / "out").symlink_to("/etc/hostname")
    os.mkfifo(source / "pipe")
    target = tmp_path / "dst"
    (target / "a").mkdir(parents=True)
    status, rows, _ = run(agent, source, target)
    failed = {row["path"]: row["error"] for row in rows[:-1] if row["status"] == "failed"}
    assert (status, set(failed), rows[-1]["verified"]) == (1, {"out", "pipe", "a"}, 4)
    assert failed["out"] == f"is a link to a target outside {source}"
    assert "nothing is deleted" in failed["a"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=6", "none", str(mount)], check=False
    )
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_no_room_is_foreseen_with_needed_and_free(
    agent: Agent, disk: Path, source: Path, tmp_path: Path
) -> None:
    status, _, err = run(agent, source, disk / "x")
    assert (status, err) == (74, f"mirror: no inodes on {disk}: 7 needed, 5 free\n")
    big = tmp_path / "big"
    big.mkdir()
    (big / "f").write_bytes(bytes(2 << 20))
    status, _, err = run(agent, big, disk / "x")
    assert (status, "2.1 MB (2097152 bytes) needed, 1.0 MB (1048576 bytes) free" in err) == (
        74,
        True,
    )
    assert os.listdir(disk) == []


def test_a_disk_that_fills_up_meanwhile_is_named_too(
    disk: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    (tmp_path / "f").write_bytes(bytes(2 << 20))
    monkeypatch.setattr(mirror.MirrorRun, "_check_room", lambda _: None)
    monkeypatch.setenv("RGT_STATE_DIR", str(tmp_path / "state"))
    assert mirror.main([str(tmp_path / "f"), str(disk)]) == 74
    out, err = capfdbinary.readouterr()
    assert json.loads(out)["error"] == "No space left on device"
    assert (
        b"no space for f: 2097152 bytes and 1 inode needed, 1048576 bytes and 5 inodes free" in err
    )
    assert os.listdir(disk) == []


def test_a_copy_that_reads_back_different_is_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "dst").mkdir()
    monkeypatch.setattr(hashing, "hash_path", lambda _: "0")
    for entry in file_tree.walk_tree(str(tmp_path / "f")):
        row = mirror.copy_file(entry, os.fsencode(tmp_path / "dst" / "f"), HashCache(None))
    assert (row["status"], row["error"]) == ("failed", "reads back different from what was written")
    assert os.listdir(tmp_path / "dst") == []


def test_wrong_uses(agent: Agent, source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for words in (
        (source,),
        (source, source / "in"),
        (source / "deep", source),
        (tmp_path / "none", tmp_path / "x"),
        (source, tmp_path / "x", "--delete"),
        (source, tmp_path / "file" / "x"),
    ):
        assert run(agent, *words)[0] == 2, words


def test_only_one_at_a_time(
    agent: Agent, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RGT_STATE_DIR", str(agent.state))
    held = mirror._lock_target(str(tmp_path / "dst"))
    assert isinstance(held, files.FileLock)
    assert run(agent, source, tmp_path / "dst")[0] == 3
    held.release()
    assert run(agent, source, tmp_path / "dst")[0] == 0


@pytest.mark.parametrize(
    "words", [("/", "{}/copy"), ("{}/copy", "/"), ("{}", "{}/copy"), ("{}", "{}")]
)
def test_a_tree_is_not_copied_into_itself(
    words: tuple[str, str], tmp_path: Path, monkeypatch: Any
) -> None:
    """Not even the whole box: the copy would be copied for ever."""
    monkeypatch.setattr(mirror.MirrorRun, "copy_tree", lambda self: 0)
    (tmp_path / "copy").mkdir()
    assert mirror.main([word.format(tmp_path) for word in words]) == mirror.USAGE
