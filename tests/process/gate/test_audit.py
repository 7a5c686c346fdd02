"""The record: appended whole or not at all, readable by its owner only, and never skipped silently."""

from __future__ import annotations

import errno
import fcntl
import hashlib
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
from rgt_tui.gate import (
    AuditEntry,
    AuditEvent,
    AuditFailed,
    AuditLog,
    HashChainCheck,
    InstanceTarget,
    Journal,
    read_checked,
    verify_hash_chain,
)
from rgt_tui.gate.audit import FIRST, ROOM, default_path, find_user_and_host
from rgt_tui.model import BillingVerb


def entry(
    event: AuditEvent = AuditEvent.REQUESTED, text: str = "DELETE /v2/pods/k3v9"
) -> AuditEntry:
    return AuditEntry(
        at=1.5,
        event=event,
        box="a",
        verb=BillingVerb.DESTROY,
        instance="k3v9",
        typed="a",
        text=text,
    )


def test_lines_are_appended_with_who_and_owner_rights(tmp_path: Path) -> None:
    path = tmp_path / "state" / "rgt" / "audit.jsonl"
    log = AuditLog(path)
    log.record_entry(entry())
    path.chmod(0o644)
    log.record_entry(entry(AuditEvent.ANSWER, "204\nforged line"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["requested", "answer"]
    assert lines[0]["who"] == find_user_and_host()
    assert lines[0]["instance"] == "k3v9"
    assert lines[1]["text"] == "204\nforged line"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_torn_last_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"at": 1.0, "ev')
    AuditLog(path).record_entry(entry())
    assert path.read_text().splitlines()[0] == '{"at": 1.0, "ev'
    assert json.loads(path.read_text().splitlines()[1])["box"] == "a"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path = tmp_path / "audit.jsonl"
    path.symlink_to(victim)
    with pytest.raises(AuditFailed, match="cannot be written"):
        AuditLog(path).record_entry(entry())
    assert victim.read_text() == "mine"


def test_the_place_follows_xdg(tmp_path: Path) -> None:
    assert default_path({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "rgt" / "audit.jsonl"
    fallback = Path.home() / ".local" / "state" / "rgt" / "audit.jsonl"
    assert default_path({}) == fallback
    assert default_path({"XDG_STATE_HOME": "relative"}) == fallback


def test_an_unwritable_place_refuses_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditFailed, match=r"Not a directory|File exists"):
        AuditLog(tmp_path / "file" / "audit.jsonl").record_entry(entry())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.getuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_a_full_disk_refuses_before_the_call(small_disk: Path) -> None:
    path = small_disk / "audit.jsonl"
    log = AuditLog(path)
    log.record_entry(entry())
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(b"x" * 1024 * 1024)
    with pytest.raises(AuditFailed, match="bytes left"):
        log.record_entry(entry())
    assert path.read_bytes() == before
    with pytest.raises(AuditFailed, match="No space left"):
        log.record_entry(entry(AuditEvent.ANSWER, "x" * 8192))
    assert path.read_bytes() == before, "half a line stayed behind"
    (small_disk / "ballast").unlink()
    log.record_entry(entry())
    assert len(path.read_bytes().splitlines()) == 2


def test_an_action_needs_room_for_the_answer_as_well(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * (256 * 1024 - ROOM + 8192))
    log = AuditLog(small_disk / "audit.jsonl")
    with pytest.raises(AuditFailed, match="bytes left"):
        log.record_entry(entry())
    log.record_entry(entry(AuditEvent.REFUSED, "no room"))


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

    watched(files, "lock_file", lambda fd: "lock")
    watched(os, "write", lambda fd, data: "write")
    watched(
        os,
        "fsync",
        lambda fd: "sync " + ("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"),
    )
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record_entry(entry())
    assert done == ["lock", "write", "sync file", "sync folder"]
    done.clear()
    log.record_entry(entry(AuditEvent.ANSWER))
    assert done == ["lock", "write", "sync file"]


def test_a_disk_that_does_not_take_it_refuses_and_leaves_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record_entry(entry())
    before = log.path.read_bytes()

    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(AuditFailed, match="Input/output error"):
        log.record_entry(entry())
    assert log.path.read_bytes() == before


def test_two_rgt_write_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.record_entry(entry())
    with path.open("rb") as other, ThreadPoolExecutor(1) as pool:
        fcntl.flock(other, fcntl.LOCK_EX)
        size = path.stat().st_size
        writing = pool.submit(log.record_entry, entry())
        with pytest.raises(TimeoutError):
            writing.result(0.3)
        assert path.stat().st_size == size, "it waits for the other's lock"
        fcntl.flock(other, fcntl.LOCK_UN)
        writing.result(30)
    assert len(path.read_text().splitlines()) == 2


def test_a_lock_that_nobody_lets_go_of_refuses_the_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.lock_file, "__defaults__", (0.1,))
    log = AuditLog(tmp_path / "audit.jsonl")
    log.record_entry(entry())
    with log.path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(AuditFailed, match="another program has held its lock"):
            log.record_entry(entry())
    log.record_entry(entry())


def chained(path: Path, lines: int = 4) -> AuditLog:
    log = AuditLog(path)
    for number in range(lines):
        log.record_entry(entry(text=f"call {number}"))
    return log


def test_each_line_carries_the_hash_of_the_one_before(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    hashes = [
        log.record_entry(entry(text="x" * 100_000)),
        log.record_entry(entry()),
        log.record_entry(entry()),
    ]
    lines = log.path.read_bytes().splitlines()
    assert hashes == [hashlib.sha256(line).hexdigest() for line in lines]
    assert [json.loads(line)["before"] for line in lines] == [FIRST, *hashes[:2]]
    assert [line.hash for line in log.read_lines()] == hashes
    assert verify_hash_chain(log.read_lines()) == HashChainCheck(lines=3, begins=1)


@pytest.mark.parametrize(
    ("damage", "at", "why"),
    [
        (
            lambda lines: [lines[0], lines[1].replace(b"call 1", b"call 7"), *lines[2:]],
            3,
            "does not follow",
        ),
        (lambda lines: [lines[0], *lines[2:]], 2, "does not follow"),
        (lambda lines: lines[1:], 1, "does not follow"),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2, "does not follow"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3, "does not follow"),
        (lambda lines: [*lines[:2], b'{"at":1}', *lines[2:]], 3, "cannot be read"),
        (lambda lines: [*lines[:3], b"x" * 20], 4, "cannot be read"),
        (lambda lines: [*lines, lines[0].partition(b',"before"')[0] + b"}"], 5, "has no hash"),
    ],
)
def test_what_was_changed_is_found_at_its_first_line(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], at: int, why: str
) -> None:
    log = chained(tmp_path / "audit.jsonl")
    lines = damage(log.path.read_bytes().splitlines())
    log.path.write_bytes(b"\n".join(lines) + b"\n")
    chain = verify_hash_chain(log.read_lines())
    assert chain.broken == at
    assert why in chain.reason


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    log = chained(tmp_path / "audit.jsonl", 3)
    data = log.path.read_bytes()
    first = data.index(b"\n") + 1  # a change of the last line is vouched for by nobody
    for place in range(0, first, 7):
        log.path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert verify_hash_chain(log.read_lines()).broken in (1, 2)


def test_a_log_of_before_is_read_and_the_chain_begins_where_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    old = b'{"at":1.0,"event":"refused","box":"a","verb":"park","instance":"i"}\n'
    path.write_bytes(old + b'{"at": 1.0, "ev\n' + old)
    chained(path, 2)
    log = AuditLog(path)
    assert verify_hash_chain(log.read_lines()) == HashChainCheck(lines=5, begins=4, torn=(2,))
    path.write_bytes(path.read_bytes().replace(b'"instance":"i"}', b'"instance":"j"}'))
    assert verify_hash_chain(log.read_lines()).broken == 4, (
        "the last of the old lines is vouched for by the first of the new ones"
    )


@pytest.mark.parametrize("continued", [False, True])
def test_half_a_line_is_no_breach(tmp_path: Path, continued: bool) -> None:
    log = chained(tmp_path / "audit.jsonl", 2)
    with log.path.open("ab") as file:
        file.write(b'{"at":1.5,"ev')
    if continued:
        log.record_entry(entry())
    assert verify_hash_chain(log.read_lines()) == HashChainCheck(
        lines=4 if continued else 3, begins=1, torn=(3,)
    )


def test_what_is_written_while_it_is_checked_does_not_seem_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, journal = AuditLog(tmp_path / "rgt" / "audit.jsonl"), Journal(tmp_path / "rgt" / "journal")
    target = InstanceTarget(kind="runpod", account="default@vendor", instance="i")

    def act() -> None:
        with journal.lock_instance(target, "a", BillingVerb.PARK) as action:
            action.record_intent("x", audit=log.record_entry(entry()))

    acted: list[bool] = []

    def followed_by_an_action(
        read: Callable[[Any], Iterator[Any]],
    ) -> Callable[[Any], Iterator[Any]]:
        def call(self: Any) -> Iterator[Any]:
            found = list(read(self))
            if not acted:
                acted.append(True)
                act()
            return iter(found)

        return call

    act()
    monkeypatch.setattr(AuditLog, "read_lines", followed_by_an_action(AuditLog.read_lines))
    monkeypatch.setattr(Journal, "iterate_audited", followed_by_an_action(Journal.iterate_audited))
    _, chain = read_checked({"XDG_STATE_HOME": str(tmp_path)})
    assert (acted, chain.broken) == ([True], None)


def test_no_log_has_no_lines_and_one_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    assert verify_hash_chain(AuditLog(tmp_path / "audit.jsonl").read_lines()) == HashChainCheck()
    (tmp_path / "audit.jsonl").mkdir()
    with pytest.raises(AuditFailed, match="cannot be read"):
        list(AuditLog(tmp_path / "audit.jsonl").read_lines())
