"""`rgt logs`: standard output is the file, byte by byte, whatever happens on the way."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pty
import random
import re
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet import connected
from rgt_tui.model import BoxSpec
from rgt_tui.ssh import run_command
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd, fresh_sshd
from tests.free_ports import free_port
from tests.process.box.harness import until
from tests.torture.agent.proxy import Fate, Proxy

replace = msgspec.structs.replace

ODD = (
    b"plain\n\xff\xfe not utf-8 \x80\n\x1b[31mred\x1b[0m\n10%\r20%\r100%\ntabs\tand\x00nul\n"
    b"\r\n\n\xe4\xbd\xa0\xe5\xa5\xbd\nlast line without an end \xe4\xbd"
)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content(size: int, seed: int) -> bytes:
    dice = random.Random(seed)
    return ODD + dice.randbytes(size) + b"\n" + ODD


class Printed:
    """What a running `rgt logs` prints, read by a thread."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.out = b""
        self.said = b""
        self._news = threading.Condition()
        self._threads = [
            threading.Thread(target=self._read, args=(pipe, name), daemon=True)
            for pipe, name in ((process.stdout, "out"), (process.stderr, "said"))
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, pipe: object, name: str) -> None:
        while data := os.read(pipe.fileno(), 65536):  # type: ignore[attr-defined]
            with self._news:
                setattr(self, name, getattr(self, name) + data)
                self._news.notify_all()

    def until(self, text: bytes, name: str = "out") -> None:
        with self._news:
            found = self._news.wait_for(lambda: text in getattr(self, name), PATIENCE)
        assert found, f"{text!r} did not come; {self.out[-300:]!r} {self.said[-2000:]!r}"

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return code


def test_the_whole_file_byte_by_byte(rgt: Rgt, lab: BoxSpec) -> None:
    data = content(3_000_000, 1)
    (rgt.folder / "train.log").write_bytes(data)
    done = subprocess.run(
        rgt.command("logs", "--fleet", str(rgt.fleet), "lab", str(rgt.folder / "train.log"), "--from-start"),
        env=rgt.environment(), capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert digest(done.stdout) == digest(data)


@pytest.mark.parametrize(
    ("count", "expected"), [("0", b""), ("1", b"c"), ("2", b"bb\nc"), ("9", b"aaa\nbb\nc")]
)
def test_the_last_lines(rgt: Rgt, lab: BoxSpec, count: str, expected: bytes) -> None:
    (rgt.folder / "train.log").write_bytes(b"aaa\nbb\nc")
    done = rgt.on("logs", "lab", str(rgt.folder / "train.log"), "--lines", count)
    assert done.stdout.encode() == expected


def test_what_a_terminal_would_obey_is_taken_out_on_a_terminal_alone(
    rgt: Rgt, lab: BoxSpec
) -> None:
    (rgt.folder / "train.log").write_bytes(b"\x1b]0;owned\x07a\x1b[2Jb\n10%\r100%\nend\n")
    words = rgt.command("logs", "--fleet", str(rgt.fleet), "lab", str(rgt.folder / "train.log"))
    shown = {}
    for extra in ((), ("--raw",)):
        leader, follower = pty.openpty()
        with subprocess.Popen(
            [*words, *extra], stdout=follower, env=rgt.environment(), cwd=rgt.folder
        ):
            os.close(follower)
            seen = b""
            while b"end" not in seen:
                assert select.select([leader], [], [], PATIENCE)[0], seen
                seen += os.read(leader, 4096)
        os.close(leader)
        shown[extra] = seen
    assert shown[()].replace(b"\r\n", b"\n").startswith(b"ab\n100%\nend")
    assert b"\x1b[2J" in shown[("--raw",)]


def test_plain_takes_out_of_a_pipe_what_a_terminal_would_obey(rgt: Rgt, lab: BoxSpec) -> None:
    """A clipboard (OSC 52) and a link (OSC 8) that wait in a file for whoever shows it."""
    log = rgt.folder / "train.log"
    log.write_bytes(b"a\x1b]52;c;cm0gLXJmIH4=\x07b\n\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\nlast")
    exact = rgt.on("logs", "lab", str(log)).stdout
    assert exact.encode() == log.read_bytes()
    assert rgt.on("logs", "lab", str(log), "--plain").stdout == "ab\nlink\nlast\n"


class Severable(Proxy):
    """Passes everything on until all connections are cut at once."""

    def __init__(self, target: int) -> None:
        super().__init__(target, random.Random(0))
        self.gentle = True

    def sever(self) -> None:
        for task in list(self._tasks):
            task.cancel()


class Cuts(Proxy):
    """Cuts in the midst of the file: an SSH packet of it has up to 32 KiB, and counts only as a whole."""

    def _choose(self) -> Fate:
        kind = self._dice.choice(("reset", "silence", "corrupt"))
        return Fate(kind, int(40_000 + 200_000 * self._dice.random()))


@pytest.mark.parametrize("seed", [1, 2])
async def test_cut_connections_leave_no_gap_and_no_repeat(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd, seed: int
) -> None:
    data = content(700_000, seed)
    (rgt.folder / "train.log").write_bytes(data)
    async with Cuts(real_sshd.port, random.Random(seed)) as proxy:
        host_key = (real_sshd.folder / "host_key.pub").read_text()
        known = rgt.folder / "known_hosts"
        known.write_text(f"[127.0.0.1]:{proxy.port} {host_key}")
        rgt.describe([replace(lab, port=proxy.port, known_hosts=str(known))])
        process = await asyncio.create_subprocess_exec(
            *rgt.command("logs", "--fleet", str(rgt.fleet), "lab", str(rgt.folder / "train.log"), "--from-start"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=rgt.environment(),
        )  # fmt: skip
        out, said = await process.communicate()
    assert process.returncode == 0, said
    resumed = [int(byte.replace(b",", b"")) for byte in re.findall(rb"from byte ([0-9,]+)", said)]
    assert len([byte for byte in resumed if 0 < byte < len(data)]) >= 2, said
    assert resumed == sorted(resumed)
    assert digest(out) == digest(data)


def test_following_goes_on_with_what_is_written_also_without_a_line_end(
    rgt: Rgt, lab: BoxSpec
) -> None:
    log = rgt.folder / "train.log"
    log.write_bytes(b"one\ntwo")
    printed = Printed(rgt.start("logs", "lab", str(log), "--follow", "--from-start"))
    printed.until(b"one\ntwo")
    with log.open("ab") as file:
        for word in (b" and more\n", b"\xff\xfe", b"partial"):
            file.write(word)
            file.flush()
            printed.until(word)
    assert printed.end() == 0
    assert printed.out == log.read_bytes()


def test_rotation_is_followed_to_the_last_byte_of_the_old_file(rgt: Rgt, lab: BoxSpec) -> None:
    log = rgt.folder / "train.log"
    log.write_bytes(b"old 1\n")
    printed = Printed(rgt.start("logs", "lab", str(log), "--follow", "--from-start"))
    printed.until(b"old 1\n")
    with log.open("ab") as still_open:
        log.rename(rgt.folder / "train.log.1")
        still_open.write(b"old 2 without an end")
    log.write_bytes(b"new 1\n")
    printed.until(b"new 1\n")
    printed.until(b"was rotated", "said")
    assert printed.end() == 0
    assert printed.out == b"old 1\nold 2 without an endnew 1\n"


def test_truncation_is_told_and_the_new_text_printed(rgt: Rgt, lab: BoxSpec) -> None:
    log = rgt.folder / "train.log"
    log.write_bytes(b"before before before\n")
    printed = Printed(rgt.start("logs", "lab", str(log), "--follow", "--from-start"))
    printed.until(b"before\n")
    log.write_bytes(b"after, and longer than what stood there before\n")
    printed.until(b"stood there before\n")
    printed.until(b"truncated or rewritten", "said")
    assert printed.end() == 0
    assert printed.out == b"before before before\nafter, and longer than what stood there before\n"


def test_a_file_that_is_not_there_yet_is_waited_for_when_following(rgt: Rgt, lab: BoxSpec) -> None:
    log = rgt.folder / "later.log"
    printed = Printed(rgt.start("logs", "lab", str(log), "--follow"))
    printed.until(b"later.log yet; waiting for it", "said")
    log.write_bytes(b"here\n")
    printed.until(b"here\n")
    assert printed.end() == 0


async def test_a_link_that_is_lost_before_the_first_line_does_not_end_the_following(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd
) -> None:
    log = rgt.folder / "later.log"
    proxy = Severable(real_sshd.port)
    async with proxy:
        host_key = (real_sshd.folder / "host_key.pub").read_text()
        known = rgt.folder / "known_hosts"
        known.write_text(f"[127.0.0.1]:{proxy.port} {host_key}")
        rgt.describe([replace(lab, port=proxy.port, known_hosts=str(known))])
        # No patience at all: a box that was never reached would be given up at once.
        printed = Printed(rgt.start("logs", "lab", str(log), "--follow", "--timeout", "0.001"))
        await asyncio.to_thread(printed.until, b"waiting for it", "said")
        proxy.sever()
        await asyncio.to_thread(printed.until, b"trying again", "said")
        log.write_bytes(b"here\n")
        await asyncio.to_thread(printed.until, b"here\n")
        assert await asyncio.to_thread(printed.end) == 0


def test_the_newest_log_is_taken_and_the_others_are_named(rgt: Rgt, lab: BoxSpec) -> None:
    for age, name in ((100, "old.log"), (50, "new.log"), (70, "mid.log")):
        (rgt.folder / name).write_text(f"I am {name}\n")
        os.utime(rgt.folder / name, (time.time() - age, time.time() - age))
    rgt.describe([replace(lab, logs=(f"{rgt.folder}/*.log",))])
    done = rgt.on("logs", "lab")
    assert (done.returncode, done.stdout) == (0, "I am new.log\n")
    assert "new.log is the newest of 3 logs" in done.stderr
    assert done.stderr.index("mid.log") < done.stderr.index("old.log")
    assert rgt.on("logs", "lab", "old").stdout == "I am old.log\n"
    assert rgt.on("logs", "lab", f"{rgt.folder}/*.log").stdout == "I am new.log\n"
    listed = rgt.on("logs", "lab", "--list").stdout.splitlines()
    assert [Path(line.split()[-1]).name for line in listed] == ["new.log", "mid.log", "old.log"]


@pytest.fixture
def own_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSshd]:
    """A box of its own: what is found on the one of all tests is remembered there."""
    with fresh_sshd(tmp_path_factory.mktemp("own")) as running:
        yield running


async def test_a_found_run_is_called_as_status_calls_it(rgt: Rgt, own_box: RealSshd) -> None:
    folder = rgt.folder / "exp"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import time\nprint('step 1 loss 2.5', flush=True)\ntime.sleep(600)\n"
    )
    spec = replace(own_box.spec, name="lab", pattern=f"{folder}/train.py")
    rgt.describe([spec])
    python = shlex.quote(sys.executable)
    async with connected(spec) as connection:
        await run_command(
            connection,
            f"cd {folder}; nohup {python} {folder}/train.py > out.txt 2>&1 & echo $! > {folder}/pid",
        )
        try:
            until((folder / "out.txt").read_text, "its first line")
            (name,) = [
                one["name"]
                for one in msgspec.json.decode(rgt.on("status", "--json").stdout)["runs"]
            ]
            assert name == "exp/train"
            done = rgt.on("logs", "lab", name)
            assert (done.returncode, done.stdout) == (0, "step 1 loss 2.5\n"), done.stderr
            printed = Printed(rgt.start("logs", "lab", name, "--follow"))
            printed.until(b"step 1 loss 2.5\n")
            assert printed.end() == 0
            for follow in ((), ("--follow",)):
                wrong = rgt.on("logs", "lab", "exp/trian", *follow)
                assert wrong.returncode == 1
                assert (
                    "no run, log or file is called exp/trian; there are: exp/train" in wrong.stderr
                )
        finally:
            await run_command(connection, f"kill $(cat {folder}/pid)")


def test_exit_statuses(rgt: Rgt, lab: BoxSpec) -> None:
    missing = rgt.on("logs", "lab", "/nowhere/x.log")
    assert (missing.returncode, "No such file" in missing.stderr) == (1, True)
    folder = rgt.on("logs", "lab", str(rgt.folder))
    assert folder.returncode == 1
    none = rgt.on("logs", "lab")
    assert (none.returncode, "no log was found" in none.stderr) == (1, True)
    assert rgt.on("logs", "lob").returncode == 2
    rgt.describe([replace(lab, port=free_port())])
    dead = rgt.on("logs", "lab", "/x", "--timeout", "3")
    assert (dead.returncode, "refused the connection" in dead.stderr) == (3, True)


def test_a_large_file_takes_no_memory(rgt: Rgt, lab: BoxSpec) -> None:
    """The peak for 160 MiB is about that for an empty file."""
    log = rgt.folder / "big.log"
    log.touch()
    small = peak(rgt, log)
    with log.open("r+b") as file:
        file.truncate(160 << 20)
    assert peak(rgt, log) < small + 24 * 1024


def peak(rgt: Rgt, log: Path) -> int:
    """The most KiB that a whole print of a file takes."""
    with open(os.devnull, "wb") as null:
        process = subprocess.Popen(
            rgt.command("logs", "--fleet", str(rgt.fleet), "lab", str(log), "--from-start"),
            stdout=null, env=rgt.environment(),
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss


def test_json_has_an_object_per_line_with_its_place(rgt: Rgt, lab: BoxSpec) -> None:
    log = rgt.folder / "train.log"
    log.write_bytes(ODD)
    done = rgt.on("logs", "lab", str(log), "--from-start", "--json")
    found = [msgspec.json.decode(line) for line in done.stdout.encode().splitlines()]
    lines = ODD.split(b"\n")
    assert [item["text"] for item in found] == [line.decode("utf-8", "replace") for line in lines]
    for item, line in zip(found, lines, strict=True):
        assert ODD[item["offset"] :].startswith(line)
        assert item["path"] == str(log)
    listed = rgt.on("logs", "lab", str(log), "--list", "--json")
    assert msgspec.json.decode(listed.stdout.encode())["size"] == len(ODD)
