"""The record: appended whole or not at all, readable by its owner only, and never skipped silently."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rgt_tui import files
from rgt_tui.gate import AuditEntry, AuditEvent, AuditFailed, AuditLog
from rgt_tui.gate.audit import ROOM, default_path, who
from rgt_tui.model.evidence import Verb


def entry(event: AuditEvent = AuditEvent.REQUESTED, text: str = "DELETE /v2/pods/k3v9") -> AuditEntry:
    return AuditEntry(at=1.5, event=event, box="a", verb=Verb.DESTROY, instance="k3v9", typed="a", text=text)


def test_lines_are_appended_with_who_and_owner_rights(tmp_path: Path) -> None:
    path = tmp_path / "state" / "rgt" / "audit.jsonl"
    log = AuditLog(path)
    log.record(entry())
    path.chmod(0o644)
    log.record(entry(AuditEvent.ANSWER, "204\nforged line"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["requested", "answer"]
    assert lines[0]["who"] == who()
    assert lines[0]["instance"] == "k3v9"
    assert lines[1]["text"] == "204\nforged line"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"at": 1.0, "ev')
    AuditLog(path).record(entry())
    assert path.read_text().splitlines()[0] == '{"at": 1.0, "ev'
    assert json.loads(path.read_text().splitlines()[1])["box"] == "a"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "audit.jsonl"
    path.symlink_to(victim)
    with pytest.raises(AuditFailed, match="cannot be written"):
        AuditLog(path).record(entry())
    assert victim.read_text() == "mine"


def test_the_place_follows_xdg(tmp_path: Path) -> None:
    assert default_path({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "rgt" / "audit.jsonl"
    fallback = Path.home() / ".local" / "state" / "rgt" / "audit.jsonl"
    assert default_path({}) == fallback
    assert default_path({"XDG_STATE_HOME": "relative"}) == fallback


def test_an_unwritable_place_refuses_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditFailed, match=r"Not a directory|File exists"):
        AuditLog(tmp_path / "file" / "audit.jsonl").record(entry())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_a_full_disk_refuses_before_the_call(small_disk: Path) -> None:
    path = small_disk / "audit.jsonl"
    log = AuditLog(path)
    log.record(entry())
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(b"x" * 1024 * 1024)
    with pytest.raises(AuditFailed, match="bytes left"):
        log.record(entry())
    assert path.read_bytes() == before
    with pytest.raises(AuditFailed, match="No space left"):
        log.record(entry(AuditEvent.ANSWER, "x" * 8192))
    assert path.read_bytes() == before, "half a line stayed behind"
    (small_disk / "ballast").unlink()
    log.record(entry())
    assert len(path.read_bytes().splitlines()) == 2


def test_an_action_needs_room_for_the_answer_as_well(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * (256 * 1024 - ROOM + 8192))
    log = AuditLog(small_disk / "audit.jsonl")
    with pytest.raises(AuditFailed, match="bytes left"):
        log.record(entry())
    log.record(entry(AuditEvent.REFUSED, "no room"))


def test_a_line_is_on_the_disk_before_the_call_goes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def watched(module: Any, name: str, said: Callable[..., str]) -> None:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            done.append(said(*args))
            return real(*args)

        monkeypatch.setattr(module, name, call)

    watched(files, "take", lambda fd: "lock")
    watched(os, "write", lambda fd, data: "write")
    watched(os, "fsync", lambda fd: "sync " + ("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"))
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record(entry())
    assert done == ["lock", "write", "sync file", "sync folder"]
    done.clear()
    log.record(entry(AuditEvent.ANSWER))
    assert done == ["lock", "write", "sync file"]


def test_a_disk_that_does_not_take_it_refuses_and_leaves_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record(entry())
    before = log.path.read_bytes()

    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(AuditFailed, match="Input/output error"):
        log.record(entry())
    assert log.path.read_bytes() == before


def test_two_rgt_write_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.record(entry())
    with path.open("rb") as other, ThreadPoolExecutor(1) as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        size = path.stat().st_size
        writing = pool.submit(log.record, entry())
        with pytest.raises(TimeoutError):
            writing.result(0.3)
        assert path.stat().st_size == size, "it waits for the other's lock"
        fcntl.flock(other, fcntl.LOCK_UN)
        writing.result(30)
    assert len(path.read_text().splitlines()) == 2


def test_a_lock_that_nobody_lets_go_of_refuses_the_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.take, "__defaults__", (0.1,))
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record(entry())
    with log.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(AuditFailed, match="another program has held its lock"):
            log.record(entry())
    log.record(entry())
