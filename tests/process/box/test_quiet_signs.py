"""Programs that copy files, and input at real terminals: on real processes and real pseudo-terminals."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rgt_box import procstat
from rgt_box.sampling import quiet_signs
from rgt_box.sampling.processes import FULL, YOUNG
from rgt_box.sampling.quiet_signs import QuietSigns, transfer_name

from rgt_tui.model import protocol
from tests.process.box.harness import Agent, until

AGENT = ["python3", "-I", "-S", "/root/.cache/rgt/rgt-box-0123456789abcdef.pyz"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["rsync", "-a", "/x", "host:"], "rsync"),
        (["/usr/bin/rsync", "--server", "--sender", "."], "rsync"),
        (["scp", "-f", "/x"], "scp"),
        (["/usr/lib/openssh/sftp-server"], "sftp-server"),
        (["sshd: root@internal-sftp"], "sftp-server"),
        (["rclone", "copy", "a", "b:"], "rclone"),
        (["/usr/bin/python3", "/usr/local/bin/aws", "s3", "cp", "a", "s3://b"], "aws s3"),
        (["aws", "--profile", "x", "s3", "sync", "a", "s3://b"], "aws s3"),
        (["aws", "ec2", "describe-instances"], None),
        (["python", "/opt/bin/gsutil", "-m", "cp", "-r", "a", "gs://b"], "gsutil cp"),
        (
            ["python3.11", "-u", "/x/bin/huggingface-cli", "upload", "me/x"],
            "huggingface-cli upload",
        ),
        (["/x/bin/python", "/x/bin/hf", "upload", "me/x"], "hf upload"),
        (["python", "train.py", "upload"], None),
        (["git", "push", "origin"], "git push"),
        (["git", "status"], None),
        (["cp", "-r", "out", "/workspace"], "cp"),
        (["bash", "-c", "rsync -a x y"], None),
        (["vim", "rsync"], None),
        ([*AGENT, "mirror", "/a", "/b"], "rgt mirror"),
        ([*AGENT, "cat", "--path", "/x"], None),
        ([*AGENT, "watch"], None),
        ([*AGENT, "results", "--job", "rsync"], None),
        ([], None),
        (["python3"], None),
    ],
)
def test_what_copies_files(words: list[str], name: str | None) -> None:
    assert transfer_name(words) == name


@contextmanager
def called(title: str, *files: Path) -> Iterator[int]:
    """A live process that is called `title` and has `files` open."""
    code = (
        "import os, sys, time\n"
        "held = [os.open(name, os.O_DIRECTORY * os.path.isdir(name)) for name in sys.argv[1:]]\n"
        "print('up', flush=True)\n"
        "time.sleep(1000)"
    )
    script = f'exec -a "{title}" "$0" -c "$@"'
    process = subprocess.Popen(
        ["bash", "-c", script, sys.executable, code, *map(str, files)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def found(pid: int) -> list[str]:
    return [item["name"] for item in quiet_signs.transfers() if item["pid"] == pid]


def test_a_live_copy_is_found_until_it_ends(tmp_path: Path) -> None:
    with called("rsync") as pid:
        assert found(pid) == ["rsync"]
    assert found(pid) == []


def test_several_are_told_and_no_more_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with called("rsync") as first, called("scp") as second:
        assert (found(first), found(second)) == (["rsync"], ["scp"])
        # Of these two alone: what else this machine copies begins and ends meanwhile.
        lines = {
            pid: b"\0".join(map(str.encode, procstat.read_cmdline(pid))) for pid in (first, second)
        }
        told = [item["pid"] for item in quiet_signs.transfers(lines)]
        assert told == sorted((first, second), reverse=True)
        monkeypatch.setattr(quiet_signs, "MOST", 1)
        assert [item["pid"] for item in quiet_signs.transfers(lines)] == told[:1]


def test_a_server_of_files_counts_while_it_has_one_open(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("x")
    null = Path(os.devnull)
    with (
        called("/usr/lib/openssh/sftp-server", null) as idle,
        called("sftp-server", tmp_path) as listing,
        called("sftp-server", tmp_path / "model.pt") as busy,
    ):
        assert (found(idle), found(listing), found(busy)) == ([], [], ["sftp-server"])


@contextmanager
def terminal() -> Iterator[tuple[int, str]]:
    """The end that a person sits at, and the path of the other."""
    person, program = os.openpty()
    try:
        yield person, os.ttyname(program)
    finally:
        os.close(person)
        os.close(program)


def test_input_is_when_somebody_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as (person, path):
        os.utime(path, (1000.0, 1000.0))
        assert quiet_signs.input_at([path]) == 1000.0
        os.write(person, b"ls\n")
        fd = os.open(path, os.O_RDONLY | os.O_NOCTTY)
        os.read(fd, 10)
        os.close(fd)
        assert 0 <= time.time() - quiet_signs.input_at([path]) < 120
        monkeypatch.setenv("RGT_TERMINALS", f"/nowhere/*:{path}")
        assert quiet_signs.terminals() == [path]
        monkeypatch.delenv("RGT_TERMINALS")
        assert path in quiet_signs.terminals()


def test_output_alone_is_no_input() -> None:
    with terminal() as (person, path):
        os.utime(path, (1000.0, 1000.0))
        fd = os.open(path, os.O_WRONLY | os.O_NOCTTY)
        os.write(fd, b"epoch 1\n")
        os.close(fd)
        os.read(person, 100)
        assert quiet_signs.input_at([path]) == 1000.0


def test_what_is_no_terminal_and_what_is_gone_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    assert (
        quiet_signs.input_at([str(tmp_path / "file"), str(tmp_path / "pipe"), "/dev/pts/none"])
        == 0.0
    )


def test_the_terminal_of_a_queue_runner_is_nobodys(tmp_path: Path) -> None:
    script = tmp_path / "rgt-box-0123456789abcdef.pyz"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    with terminal() as (_person, path):
        assert time.time() - quiet_signs.input_at([path]) < 120, "one that was just opened counts"
        held = os.open(path, os.O_RDWR | os.O_NOCTTY)
        process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, str(script), "queue", "run"],
            stdin=held,
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert quiet_signs.input_at([path]) == 0.0
        finally:
            process.kill()
            process.communicate()
            os.close(held)


def test_devices_are_unpacked_as_the_kernel_packs_them() -> None:
    for pid in (os.getpid(), os.getppid()):
        known = procstat.read_stat(pid)
        assert known is not None
        if known.terminal:
            seen = os.stat(f"/proc/{pid}/fd/0")
            assert stat.S_ISCHR(seen.st_mode)
    # drivers/tty: new_encode_dev(MKDEV(136, 300)) = (300 & 0xff) | (136 << 8) | ((300 & ~0xff) << 12)
    assert quiet_signs._device_number(
        (300 & 0xFF) | (136 << 8) | ((300 & ~0xFF) << 12)
    ) == os.makedev(136, 300)
    assert quiet_signs._device_number((136 << 8) | 5) == os.makedev(136, 5)


def test_the_look_is_rare_and_remembers_a_terminal_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    looks: list[float] = []
    typed = [5000.0]

    def look(lines: Mapping[int, bytes]) -> list[dict[str, Any]]:
        looks.append(clock[0])
        return []

    monkeypatch.setattr(quiet_signs, "input_at", lambda lines: typed[0])
    monkeypatch.setattr(quiet_signs, "transfers", look)
    signs = QuietSigns()
    assert signs.read() == {"transfers": [], "input_at": 5000.0}
    typed[0] = 0.0
    for clock[0] in (101.0, 109.9, 110.0, 111.0):
        assert signs.read()["input_at"] == 5000.0
    assert looks == [100.0, 110.0]


def test_a_look_reads_each_command_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    really = procstat.read_bytes

    def reading(path: str, limit: int = 65536) -> bytes | None:
        read.append(path)
        return really(path, limit)

    with terminal() as (_person, path), called("rsync") as pid:
        monkeypatch.setenv("RGT_TERMINALS", path)  # just opened: whose it is, is asked, too
        monkeypatch.setattr(procstat, "read_bytes", reading)
        told = QuietSigns().read()
        assert pid in [item["pid"] for item in told["transfers"]]
        assert time.time() - told["input_at"] < 120
    assert read.count(f"/proc/{pid}/cmdline") == 1


def test_a_program_that_becomes_another_is_seen_at_the_next_look() -> None:
    lines = quiet_signs.CommandLines()
    script = "read; exec -a rsync sleep 1000"
    with subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: procstat.read_cmdline(process.pid)[:1] == ["bash"], "it is there")
            for _ in range(YOUNG + 2):
                told = [item["pid"] for item in quiet_signs.transfers(lines.read())]
                assert process.pid not in told
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            until(
                lambda: procstat.read_cmdline(process.pid)[:1] == ["rsync"], "it is another program"
            )
            assert process.pid in [item["pid"] for item in quiet_signs.transfers(lines.read())]
        finally:
            process.kill()


def test_what_has_no_command_line_is_asked_again_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def reading(path: str, limit: int = 65536) -> bytes | None:
        read.append(path)
        return b"sleep\x001000\0" if "/4002/" in path else b""

    lines = quiet_signs.CommandLines()
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda _: ["4001", "4002", "self"])
        patch.setattr(procstat, "read_bytes", reading)
        told = [lines.read() for _ in range(FULL + 1)]
    assert told == [{4001: b"", 4002: b"sleep\x001000\0"}] * (FULL + 1)
    assert read.count("/proc/4001/cmdline") == YOUNG + 2
    assert read.count("/proc/4002/cmdline") == FULL + 1


def test_a_sample_tells_both_and_silence_is_no_answer(agent: Agent) -> None:
    done = agent.run("sample", env={"RGT_TERMINALS": ""})
    sample = protocol.Sample(boot="b", seq=1, at=1.0)
    assert (sample.transfers, sample.input_at) == (None, None)
    frame = msgspec.json.decode(done.stdout, type=protocol.Sample)
    assert frame.transfers is not None and frame.input_at == 0.0


def test_a_channel_tells_who_the_box_is(agent: Agent) -> None:
    agent.env |= {"RUNPOD_POD_ID": "pod-x", "RUNPOD_API_KEY": "secret"}
    hello = agent.watch().expect(lambda frame: isinstance(frame, protocol.Hello))
    assert hello.identity["RUNPOD_POD_ID"] == "pod-x"
    assert "secret" not in str(hello)
    until(lambda: agent.recorder_pid(), "the recorder")
