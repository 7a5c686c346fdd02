from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import masking, ownership, procstat
from rgt_box.sampling import processes
from rgt_box.sampling.cgroup import count_threads
from rgt_box.sampling.processes import ProcSampler, is_training

from tests.process.box.harness import until

TRAIN = re.compile("rgt_train")


@pytest.mark.parametrize(
    ("words", "training"),
    [
        (["python", "-m", "rgt_train", "--config", "a"], True),
        (["/opt/conda/bin/python3.11", "/x/rgt_train/__main__.py"], True),
        (["bash", "-c", "python -m rgt_train"], False),
        (["-bash", "-c", "python -m rgt_train"], False),
        (["tmux: server", "new-session", "rgt_train"], False),
        (["tail", "-f", "rgt_train.log"], False),
        (
            [
                "python3",
                "-I",
                "-S",
                "/root/.cache/rgt/rgt-box-0123456789abcdef.pyz",
                "record",
                "rgt_train",
            ],
            False,
        ),
        (["python3", "/src/remote/rgt_box", "queue", "run", "--job", "rgt_train"], False),
        (["python", "train.py"], False),
        ([], False),
    ],
)
def test_what_is_a_training_process(words: list[str], training: bool) -> None:
    assert is_training(words, TRAIN) is training


def test_what_trains_nothing_is_read_again_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "RESCAN", 0.0)
    read: list[int] = []
    real = procstat.read_cmdline

    def counted(pid: int, limit: int = 4096) -> list[str]:
        read.append(pid)
        return real(pid, limit)

    monkeypatch.setattr(procstat, "read_cmdline", counted)
    with subprocess.Popen(["sleep", "1000"]) as other:
        sampler = ProcSampler("no such words")
        for _ in range(2 * processes.FULL + processes.YOUNG):
            sampler.read()
        other.kill()
    assert read.count(other.pid) == processes.YOUNG + 1 + 2


def test_a_command_line_is_masked_once_and_again_when_the_process_becomes_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "RESCAN", 0.0)
    masked: list[list[str]] = []
    real = masking.mask_words

    def counted(words: list[str]) -> list[str]:
        masked.append(words)
        return real(words)

    monkeypatch.setattr(masking, "mask_words", counted)
    marker = f"pretend_training_{os.getpid()}_a"
    code = "import os, sys; sys.stdin.readline(); os.execv('/bin/tail', ['other', '-f', '/dev/null', sys.argv[1]])"
    words = [sys.executable, "-c", code, marker]
    sampler = ProcSampler(marker)
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as process:
        try:
            until(
                lambda: [proc["pid"] for proc in sampler.read()] == [process.pid], "it is tracked"
            )
            for _ in range(3):
                (proc,) = sampler.read()
            assert len(masked) == 1 and "-c" in proc["cmd"]
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            until(
                lambda: [proc["cmd"][:5] for proc in sampler.read()] == ["other"],
                "it is another program",
            )
            assert len(masked) == 2
        finally:
            process.kill()


def test_a_live_process_is_described_and_its_workers_are_not_counted() -> None:
    marker = f"pretend_training_{os.getpid()}"
    code = "import os, sys, time\nif not os.fork():\n  time.sleep(1000)\nprint('up', flush=True)\ntime.sleep(1000)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, marker],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        sampler = ProcSampler(marker)
        (proc,) = sampler.read()
        assert (proc["pid"], proc["threads"]) == (process.pid, 1)
        assert proc["state"] in "RSD"
        assert proc["rss"] > 1 << 20
        assert marker in proc["cmd"]
        assert "cpu_pct" not in proc
        (again,) = sampler.read()
        assert (again["started"], again["cpu_pct"] >= 0) == (proc["started"], True)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    until(lambda: sampler.read() == [], "the end of the process")


WORKERS = """
import os, time
if not os.fork():
    if not os.fork():  # a worker's worker: its words are the same
        time.sleep(1000)
    time.sleep(1000)
if not os.fork():
    time.sleep(1000)
print("up", flush=True)
time.sleep(1000)
"""


def test_workers_are_summed_up_with_their_parent_which_has_a_user_and_its_own_threads() -> None:
    marker = f"pretend_training_{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-c", WORKERS, marker],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "12,2"},
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()

        def counted() -> bool:
            (proc,) = ProcSampler(marker).read()
            return bool(proc.get("workers", {}).get("count") == 3)

        until(counted, "three workers")
        (proc,) = ProcSampler(marker).read()
        assert proc["workers"]["threads"] == sum(proc["workers"]["states"].values()) == 3
        assert set(proc["workers"]["states"]) <= set("RSD")
        assert (proc["ppid"], proc["omp"]) == (os.getpid(), 12)
        assert proc["user"] == pwd.getpwuid(os.getuid()).pw_name
        assert count_threads([proc]) == 4
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_user_that_the_box_does_not_list_is_a_number(tmp_path: Path) -> None:
    listed = tmp_path / "passwd"
    listed.write_text(
        "root:x:0:0::/root:/bin/sh\nodd\n:x:\nlong" + "g" * 900 + ":x:7:7::/:/\nagain:x:0:0::/:/\n"
    )
    assert {uid: name[:5] for uid, name in ownership.user_names(str(listed)).items()} == {
        0: "root",
        7: "longg",
    }
    assert len(ownership.user_names(str(listed))[7]) == ownership.LONGEST_NAME
    assert ownership.user_names(str(tmp_path / "none")) == {}


def test_a_malformed_pattern_is_an_error() -> None:
    with pytest.raises(re.error):
        ProcSampler("(")


def test_a_pid_alone_is_never_trusted() -> None:
    ticks = procstat.start_ticks(os.getpid())
    assert ticks is not None
    assert procstat.is_alive(os.getpid(), ticks)
    assert not procstat.is_alive(os.getpid(), ticks + 1)
    assert not procstat.is_alive(os.getpid(), None)
    assert procstat.read_stat(2**22 + 1) is None


def test_names_with_brackets_do_not_confuse_the_parser() -> None:
    text = b"42 (a) b (c) S 1 42 42 0 -1 4194560 1 0 0 0 7 5 0 0 20 0 3 0 999 1000 250 18446744073709551615"
    stat = procstat.ProcessStat(42, text)
    assert (stat.state, stat.ppid, stat.cpu, stat.threads, stat.start) == ("S", 1, 12, 3, 999)
    assert stat.rss == 250 * procstat.PAGE


@pytest.fixture
def cell() -> Iterator[Callable[[list[str]], subprocess.Popen[bytes]]]:
    """Start what a queue starts: the leader of a session of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def start(words: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def write_state(folder: Path, pid: int, name: str = "a") -> None:
    state: dict[str, Any] = {
        "cells": [{"name": "z", "state": "done"}, {"name": name, "state": "running"}]
    }
    state |= {"cell_pid": pid, "cell_ticks": procstat.start_ticks(pid)}
    (folder / "state.json").write_text(json.dumps(state))


Start = Callable[[list[str]], subprocess.Popen[bytes]]
WAIT = "import sys, time; print('up', flush=True); time.sleep(1000)"


def test_a_cell_is_found_by_its_queue_whatever_its_command(tmp_path: Path, cell: Start) -> None:
    leader = cell([sys.executable, "-c", WAIT])
    write_state(tmp_path, leader.pid)
    assert ProcSampler("no such pattern").read() == []
    (found,) = ProcSampler("no such pattern", [str(tmp_path)]).read()
    assert (found["pid"], found["run"], found["threads"]) == (leader.pid, "a", 1)
    assert found["fds"] == len(os.listdir(f"/proc/{leader.pid}/fd"))
    write_state(tmp_path, 2**22 + 1)  # the pid of a cell that is gone is nobody's
    assert ProcSampler("no such pattern", [str(tmp_path)]).read() == []


def test_ranks_with_sessions_of_their_own_belong_to_the_cell(tmp_path: Path, cell: Start) -> None:
    launcher = (
        "import subprocess, sys; "
        "ranks = [subprocess.Popen([sys.executable, '-c', sys.argv[1], rank], start_new_session=True, "
        "stdout=subprocess.PIPE) for rank in '01']; "
        "[rank.stdout.readline() for rank in ranks]; print('up', flush=True); ranks[0].wait()"
    )
    leader = cell([sys.executable, "-c", launcher, WAIT])
    write_state(tmp_path, leader.pid)
    sampler = ProcSampler("no such pattern", [str(tmp_path)])
    found = sampler.read()
    ranks = [proc["pid"] for proc in found if proc["ppid"] == leader.pid]
    try:
        assert [proc["run"] for proc in found] == ["a", "a", "a"]
        assert len(ranks) == 2
        leader.kill()
        leader.wait()
        assert {proc["pid"] for proc in sampler.read()} == set(ranks), "they outlive their launcher"
    finally:
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)


def test_a_wrapper_gives_way_to_what_it_started(tmp_path: Path, cell: Start) -> None:
    script = f'"{sys.executable}" -c "{WAIT}"; true'
    leader = cell(["sh", "-c", script])
    write_state(tmp_path, leader.pid, "b")
    (found,) = ProcSampler("no such pattern", [str(tmp_path)]).read()
    assert (found["pid"] != leader.pid, found["run"]) == (True, "b")
    lonely = cell(["sh", "-c", "echo up; read line < /dev/ptmx"])
    write_state(tmp_path, lonely.pid, "c")
    (found,) = ProcSampler("no such pattern", [str(tmp_path)]).read()
    assert (found["pid"], found["run"]) == (lonely.pid, "c")


def test_what_a_cell_left_behind_stays_its_run_s(
    tmp_path: Path, cell: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "RESCAN", 0.0)
    code = (
        "import os, sys, time\n"
        "if not os.fork(): os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
        "print('up', flush=True); time.sleep(1000)"
    )
    leader = cell([sys.executable, "-c", code])
    write_state(tmp_path, leader.pid)
    sampler = ProcSampler("no such pattern", [str(tmp_path)])
    both = until(lambda: len(found := sampler.read()) == 2 and found, "the child")
    assert {found["run"] for found in both} == {"a"}
    leader.kill()
    leader.wait()
    (left,) = until(lambda: len(found := sampler.read()) == 1 and found, "the end of the leader")
    assert (left["pid"] != leader.pid, left["run"]) == (True, "a")
    (again,) = sampler.read()
    assert again["pid"] == left["pid"]


def test_helpers_of_a_training_are_not_listed(tmp_path: Path, cell: Start) -> None:
    leader = cell(
        ["sh", "-c", f'"{sys.executable}" -c "{WAIT}" multiprocessing.resource_tracker; true']
    )
    write_state(tmp_path, leader.pid)
    (found,) = ProcSampler("no such pattern", [str(tmp_path)]).read()
    assert found["pid"] == leader.pid
