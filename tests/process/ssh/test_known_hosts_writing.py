"""Appending to known_hosts, alone and together with others."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rgt_tui.ssh import HostKeyRefused, SshHost, known_hosts
from rgt_tui.ssh.known_hosts import lines_of_host
from tests.contract.ssh.conftest import keygen


def test_lines_are_never_torn_or_doubled_by_many_writers(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("# no line feed at the end")
    keygen(tmp_path / "key")
    kind, key = (tmp_path / "key.pub").read_text().split()[:2]
    program = (
        "import sys\nfrom rgt_tui.ssh import known_hosts\n"
        "known_hosts.LOCK_SECONDS = 600.0\n"  # whoever has the lock may be held up itself
        "for n in range(40):\n    known_hosts.append_key(sys.argv[1], f'host{n}', sys.argv[2], sys.argv[3])\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(path), kind, key]) for _ in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = path.read_text().splitlines()
    assert lines[0] == "# no line feed at the end"
    assert sorted(lines[1:]) == sorted(f"host{n} {kind} {key}" for n in range(40))


def test_another_key_that_came_in_the_meantime_is_not_overruled(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    for name in ("one", "two"):
        keygen(tmp_path / name)
    kind, one = (tmp_path / "one.pub").read_text().split()[:2]
    two = (tmp_path / "two.pub").read_text().split()[1]
    entry = known_hosts.append_key(str(path), "host", kind, one)
    assert (entry.line, known_hosts.append_key(str(path), "host", kind, one).line) == (1, 1)
    with pytest.raises(HostKeyRefused, match=f"{path}:1"):
        known_hosts.append_key(str(path), "host", kind, two)
    known = lines_of_host(SshHost("h", "host", 22, "root", user_known_hosts=(str(path),)))
    assert [entry.key for entry in known.keys] == [one]


def test_a_lock_that_nobody_lets_go_of_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_hosts, "LOCK_SECONDS", 0.0)
    path = tmp_path / "known_hosts"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(HostKeyRefused, match=rf"{path} .*another program has held its lock"):
            known_hosts.append_key(str(path), "host", "ssh-ed25519", "AAAA")
    assert path.read_text() == ""


def test_a_key_is_trusted_once_its_line_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced = tmp_path / "known_hosts", []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(path.read_text())
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    known_hosts.append_key(str(path), "host", "ssh-ed25519", "AAAA")
    assert synced == ["host ssh-ed25519 AAAA\n"]

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostKeyRefused, match="No space left on device"):
        known_hosts.append_key(str(path), "other", "ssh-ed25519", "BBBB")
