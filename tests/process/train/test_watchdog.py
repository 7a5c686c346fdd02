"""A stalled step is told with the stacks of all threads; a living run is not."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rgt_train.guards import StallRules, Watchdog

from tests.process.train.harness import ENV, TIMEOUT, Mounts


@pytest.fixture(scope="module")
def mounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounts]:
    made = Mounts(tmp_path_factory.mktemp("mounts"), {"hold": "size=1m,nr_inodes=500"})
    if made.zygote is None:
        pytest.skip("needs a mount namespace")
    yield made
    made.zygote.close()


def watch(
    out: Path, rules: StallRules
) -> tuple[Watchdog, threading.Event, list[tuple[float, float, str]]]:
    told: list[tuple[float, float, str]] = []
    event = threading.Event()

    def tell(spent: float, limit: float, path: str) -> None:
        told.append((spent, limit, path))
        event.set()

    return Watchdog(out, rules, tell), event, told


def test_a_stall_is_told_once_with_the_stacks(tmp_path: Path) -> None:
    dog, event, told = watch(tmp_path, StallRules(factor=3.0, floor_s=0.05))
    try:
        assert event.wait(TIMEOUT)
        text = (tmp_path / "stalls.log").read_text()
        assert "no step for" in text
        assert "test_a_stall_is_told_once_with_the_stacks" in text  # this very thread's stack
        assert told[0][0] >= told[0][1] == 0.05
        event.clear()
        dog.note_step()
        assert event.wait(TIMEOUT)  # after a sign of life the next one is told again
    finally:
        dog.close()
    assert len(told) == 2


def test_the_limit_follows_the_step_times(tmp_path: Path) -> None:
    dog, _, _ = watch(tmp_path, StallRules(factor=20.0, floor_s=1.0))
    try:
        assert dog.limit_s() == 1.0
        dog._times.extend([4.0, 5.0, 600.0])
        assert dog.limit_s() == 100.0
    finally:
        dog.close()


def test_one_that_is_off_watches_nothing(tmp_path: Path) -> None:
    off, _, _ = watch(tmp_path, StallRules(factor=0.0, floor_s=0.0))
    assert off._thread is None
    off.close()


LEAVES = """
import sys, threading
from rgt_train.guards import StallRules, Watchdog
Watchdog(sys.argv[1], StallRules(1.0, 0.1, exit_code=75), lambda *stall: print("told", flush=True))
threading.Event().wait()
"""

HOLDS_THE_LOCK = """
import ctypes, faulthandler, sys, threading
from rgt_train.guards import StallRules, Watchdog
arm, armed = faulthandler.dump_traceback_later, threading.Event()
faulthandler.dump_traceback_later = lambda *words, **more: (arm(*words, **more), armed.set())
sleep = ctypes.PyDLL(None).sleep
dog = Watchdog(sys.argv[1], StallRules(1.0, 2.0, exit_code=75), lambda *stall: print("told", flush=True))
armed.wait()
dog.note_alive()
sleep(600)   # never gives the interpreter lock back
"""


def test_it_can_leave_for_a_requeue(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVES, str(tmp_path)]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 75
    assert done.stdout == "told\n"
    assert "most recent call first" in done.stderr


def test_a_call_that_keeps_the_interpreter_lock_is_dumped_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDS_THE_LOCK, str(tmp_path)]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 1  # faulthandler's own exit: no Python could run
    assert "Timeout" in done.stderr
    assert 'File "<string>", line 10' in done.stderr


def test_waiting_for_a_full_disk_is_no_stall(mounts: Mounts, tmp_path: Path) -> None:
    """It holds for longer than the limit of the watchdog, is not called stalled, and does not leave."""
    assert mounts.zygote is not None
    out, place = mounts.inside("hold") + "/run", mounts.outside("hold")
    values = {"epochs": 1, "steps_per_epoch": 40, "save_every": 4, "max_unsaved": 3, "pace_ms": 10}
    watch = {"stall_factor": 1, "stall_floor": 8, "stall_exit": 75}
    trainer = mounts.zygote.launch(out, {**values, **watch}, brake=8)
    trainer.wait_line("^step 2 ")
    hog = place / "hog"
    with hog.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 65536)
    trainer.go_on()
    trainer.wait_line("^holding at step")
    begun = time.monotonic()
    while time.monotonic() - begun < 11.0:  # longer than the limit of 8 s
        assert trainer.code is None, trainer.text()
        time.sleep(0.1)
    hog.unlink()
    assert trainer.wait() == 0, trainer.text()
    assert "stalled:" not in trainer.text()
