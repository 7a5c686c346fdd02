from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from rgt_box import procstat
from rgt_box.sampling.procs import ProcSampler, is_training

from tests.unit.box.harness import until

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
            ["python3", "-I", "-S", "/root/.cache/rgt/rgt-box-0123456789abcdef.pyz", "record", "rgt_train"],
            False,
        ),
        (["python3", "/src/remote/rgt_box", "queue", "run", "--job", "rgt_train"], False),
        (["python", "train.py"], False),
        ([], False),
    ],
)
def test_what_is_a_training_process(words: list[str], training: bool) -> None:
    assert is_training(words, TRAIN) is training


def test_a_live_process_is_described_and_its_workers_are_not_counted() -> None:
    marker = f"pretend_training_{os.getpid()}"
    code = "import os, sys, time\nif not os.fork():\n  time.sleep(1000)\nprint('up', flush=True)\ntime.sleep(1000)"
    process = subprocess.Popen(
        [sys.executable, "-c", code, marker], stdout=subprocess.PIPE, start_new_session=True, text=True
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
    stat = procstat.Stat(42, text)
    assert (stat.state, stat.ppid, stat.cpu, stat.threads, stat.start) == ("S", 1, 12, 3, 999)
    assert stat.rss == 250 * procstat.PAGE
