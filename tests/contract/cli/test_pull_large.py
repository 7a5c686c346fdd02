"""A large file is written by an `ssh` of its own; whatever goes wrong with that, it comes whole, in pieces."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.fleet.pulls import piped_stream, pulling
from rgt_tui.fleet.pulls.pull_way import PullRequest
from rgt_tui.fleet.pulls.pulling import PullReport
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import BulkClient, HostKeyRefused
from rgt_tui.transfer.copying import RANGE_BYTES, Copy, Fetcher, fetching
from rgt_tui.transfer.copying.pull_plan import part_path
from tests.contract.ssh.conftest import RealSshd

SIZE = 3 * RANGE_BYTES + 12345
Into = Callable[[BulkClient, str, int], subprocess.Popen[bytes]]
into: Into = BulkClient.start_into


@pytest.fixture
def source(real_sshd: RealSshd) -> Iterator[Path]:
    folder = real_sshd.folder / "box" / "large"
    folder.mkdir(parents=True)
    draw = random.Random(3)
    (folder / "a.pt").write_bytes(draw.randbytes(SIZE))
    (folder / "b.txt").write_bytes(b"small")
    for path in folder.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this size count as large, and no line as slow."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(fetching, "LARGE_BYTES", RANGE_BYTES)
    monkeypatch.setattr(piped_stream, "ENOUGH", 0.0)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of large files came in pieces, each time."""
    found: list[int] = []
    land = Fetcher.land

    def count(self: Fetcher, task: Any, piece: memoryview) -> None:
        found.append(len(piece))
        land(self, task, piece)

    monkeypatch.setattr(Fetcher, "land", count)
    return found


def pulled(spec: BoxSpec, source: Path, to: Path, **options: Any) -> PullReport:
    request = PullRequest(paths=(str(source),), destination=to, **options)
    report = asyncio.run(pulling.pull(spec, request))
    copies = to / str(source).lstrip("/")
    assert all((copies / path.name).read_bytes() == path.read_bytes() for path in source.iterdir())
    assert (report.complete, report.landed, report.carrier) == (True, 2, "")
    assert not list(to.rglob(".rgt-parts/*"))
    return report


def test_it_comes_without_passing_through_this_process(
    lab: BoxSpec, source: Path, tmp_path: Path, pieces: list[int]
) -> None:
    report = pulled(lab, source, tmp_path / "out")
    assert not pieces
    assert report.landed_bytes == SIZE + 5
    copy = tmp_path / "out" / str(source / "a.pt").lstrip("/")
    assert copy.stat().st_mtime_ns == 10**18
    again = asyncio.run(pulling.pull(lab, PullRequest(paths=(str(source),), destination=tmp_path / "out")))
    assert (again.landed, again.same) == (0, 2)


def test_with_a_bound_on_the_rate_it_comes_in_pieces(
    lab: BoxSpec, source: Path, tmp_path: Path, pieces: list[int]
) -> None:
    pulled(lab, source, tmp_path / "out", limit=1e9)
    assert sum(pieces) == SIZE


def killed(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    """It dies after the first piece; so that it cannot be whole before, the box sends no more of it."""
    watched = os.dup(fd)
    process = into(self, f"{command} | {{ head -c {RANGE_BYTES}; sleep 600; }}", fd)

    def kill() -> None:
        while os.fstat(watched).st_size < RANGE_BYTES and process.poll() is None:
            time.sleep(0.001)
        os.close(watched)  # before it is gone: who still holds the file is taken for one that writes to it
        process.kill()

    threading.Thread(target=kill).start()
    return process


def preceded(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    return into(self, f"echo welcome; {command}", fd)


def followed(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    return into(self, f"{command}; echo goodbye", fd)


def altered(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    """Some of it comes otherwise than it was read."""
    return into(self, f"{command} | LC_ALL=C tr z y", fd)


def on_a_full_disk(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    with open("/dev/full", "wb") as full:
        return into(self, command, full.fileno())


def not_at_all(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    return into(self, "exit 9", fd)


def of_another(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    """The box says that the file is another one than it has listed."""
    told = "s/1000000000000000000/1000000000000000001/"
    return into(self, f"sh -c '{{ {command} 2>&1 1>&3 | sed {told} >&2; }} 3>&1'", fd)


def trickling(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
    """The line brings the beginning, then next to nothing for two minutes."""
    drops = "for i in $(seq 600); do sleep 0.2; head -c 1000 || break; done"
    return into(self, f"{command} | {{ head -c 100000; {drops}; }}", fd)


@pytest.mark.parametrize(
    ("wrong", "again"),
    [
        (killed, range(2 * RANGE_BYTES + 12346)),
        (preceded, range(SIZE, SIZE + 1)),
        (followed, range(SIZE + 1)),
        (altered, range(1, SIZE + 1)),
        (on_a_full_disk, range(SIZE, SIZE + 1)),
        (not_at_all, range(SIZE, SIZE + 1)),
        (of_another, range(SIZE + 1)),
    ],
)
def test_whatever_goes_wrong_it_comes_in_pieces_and_what_is_good_is_kept(
    lab: BoxSpec,
    source: Path,
    tmp_path: Path,
    pieces: list[int],
    monkeypatch: pytest.MonkeyPatch,
    wrong: Into,
    again: range,
) -> None:
    ends: list[str | None] = []
    written = Fetcher.written

    def end(self: Fetcher, copy: Copy, sha256: str | None) -> None:
        ends.append(sha256)
        written(self, copy, sha256)

    monkeypatch.setattr(Fetcher, "written", end)
    monkeypatch.setattr(BulkClient, "start_into", wrong)
    pulled(lab, source, tmp_path / "out")
    assert ends == [None] or (wrong is altered and len(ends) == 1), "not believed"
    assert sum(pieces) in again


def test_a_line_that_is_slow_for_one_is_left_to_several(
    lab: BoxSpec, source: Path, tmp_path: Path, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(piped_stream, "ENOUGH", 1e15)
    monkeypatch.setattr(piped_stream, "TRIAL_S", 0.0)
    monkeypatch.setattr(BulkClient, "start_into", trickling)
    pulled(lab, source, tmp_path / "out")
    assert sum(pieces) > 0


def test_another_host_key_ends_it(
    lab: BoxSpec, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(self: BulkClient, command: str, fd: int) -> subprocess.Popen[bytes]:
        words = "Host key verification failed."
        return subprocess.Popen(["sh", "-c", f"echo '{words}' >&2; exit 255"], stdin=-1, stdout=fd, stderr=-1)

    monkeypatch.setattr(BulkClient, "start_into", elsewhere)
    with pytest.raises(HostKeyRefused, match="another one to ssh just now"):
        pulled(lab, source, tmp_path / "out")


def test_an_ssh_that_has_outlived_its_pull_spoils_nothing(lab: BoxSpec, source: Path, tmp_path: Path) -> None:
    """That of a pull that was killed still holds the part, and writes to it after the next pull has ended."""
    out = tmp_path / "out"
    part = Path(part_path(out, str(source / "a.pt")))
    part.parent.mkdir(parents=True)
    code = "import fcntl, os, sys; fcntl.flock(1, fcntl.LOCK_EX); os.write(2, b'x')"
    code += "; sys.stdin.read(); os.write(1, b'spoilt')"
    with part.open("wb") as file:
        file.write((source / "a.pt").read_bytes()[:RANGE_BYTES])
        file.flush()
        ssh = subprocess.Popen(["python3", "-c", code], stdin=-1, stdout=file, stderr=-1)
    assert ssh.stderr is not None and ssh.stdin is not None
    assert ssh.stderr.read(1) == b"x"
    before = part.stat().st_ino
    pulled(lab, source, out)
    ssh.stdin.close()
    assert ssh.wait(60) == 0
    copy = out / str(source / "a.pt").lstrip("/")
    assert copy.read_bytes() == (source / "a.pt").read_bytes()
    assert copy.stat().st_ino != before
