"""The writer of a killed attempt cannot publish behind the back of the next one."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rgt_train import UsageError
from rgt_train.checkpoint import RunLock
from rgt_train.checkpoint import lock as processes

from tests.process.train.harness import Zygote, events

WAIT = "import sys, time; print('up', flush=True); time.sleep(600)"


def locked(folder: Path) -> int:
    """Hold the lock of a run as a trainer does that has not said yet who it is; return the descriptor."""
    fd = os.open(folder / "run.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def child(*fds: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT], pass_fds=fds, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def dead() -> dict[str, object]:
    process = child()
    facts = processes.describe_process(process.pid)
    process.kill()
    process.communicate()
    return facts


@pytest.fixture
def orphan(tmp_path: Path) -> Callable[[dict[str, object]], subprocess.Popen[str]]:
    def make(trainer: dict[str, object]) -> subprocess.Popen[str]:
        fd = locked(tmp_path)
        process = child(fd)
        facts = {
            **trainer,
            "host": "h",
            "since": 0,
            "helpers": [processes.describe_process(process.pid)],
        }
        os.pwrite(fd, json.dumps(facts).encode(), 0)
        os.close(fd)
        return process

    return make


def test_an_orphaned_writer_is_ended_before_anything_is_looked_at(
    tmp_path: Path, orphan: Callable[[dict[str, object]], subprocess.Popen[str]]
) -> None:
    process = orphan(dead())
    lock = RunLock(tmp_path)
    assert lock.fenced == [process.pid]
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    lock.close()


def test_the_writer_of_a_living_trainer_is_left_alone(
    tmp_path: Path, orphan: Callable[[dict[str, object]], subprocess.Popen[str]]
) -> None:
    process = orphan(processes.describe_process(os.getpid()))
    with pytest.raises(
        UsageError, match=rf"another trainer is running in .*pid {os.getpid()} on h"
    ):
        RunLock(tmp_path)
    assert process.poll() is None
    process.kill()
    process.communicate()


def test_a_trainer_that_is_being_torn_down_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = locked(tmp_path)
    trainer = child(fd)
    os.pwrite(
        fd,
        json.dumps({**processes.describe_process(trainer.pid), "host": "h", "since": 0}).encode(),
        0,
    )
    os.close(fd)
    asked = []

    def dying(facts: Mapping[str, Any]) -> bool:
        asked.append(facts["pid"])
        if len(asked) == 3:
            trainer.kill()
            trainer.communicate()
        return True

    monkeypatch.setattr(processes, "is_exiting", dying)
    RunLock(tmp_path).close()
    assert asked == [trainer.pid] * 3


def test_the_holder_s_words_are_there_at_every_instant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is refused reads them at any time, also while those of a launch are replaced or made shorter."""
    (tmp_path / "run.lock").write_text(
        json.dumps({**processes.describe_process(os.getpid()), "host": "h" * 999})
    )
    seen: list[Any] = []

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any) -> Any:
            result = real(*words)
            seen.append(json.loads((tmp_path / "run.lock").read_text())["pid"])
            return result

        return call

    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    lock = RunLock(tmp_path)
    lock.note_helper(os.getpid())
    assert set(seen) == {os.getpid()}
    assert len(json.loads((tmp_path / "run.lock").read_text())["helpers"]) == 1
    lock.close()


def test_a_trainer_that_took_the_lock_a_moment_ago_is_named_and_not_the_dead_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = locked(tmp_path)
    words = {"host": "h", "since": 0, "helpers": []}
    os.pwrite(fd, json.dumps({**dead(), **words}).encode(), 0)

    def end(*_: object) -> list[int]:  # meanwhile it has written who it is
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({**processes.describe_process(os.getpid()), **words}).encode(), 0)
        return []

    monkeypatch.setattr(processes, "kill_processes", end)
    monkeypatch.setattr(processes, "_FENCE_S", 0.0)
    with pytest.raises(
        UsageError, match=rf"another trainer is running in .*pid {os.getpid()} on h"
    ):
        RunLock(tmp_path)
    os.close(fd)


def test_who_is_being_torn_down() -> None:
    process = child()
    assert not processes.is_exiting(processes.describe_process(process.pid))
    stat, status = (Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("stat", "status"))
    assert not processes.is_dying(stat, status)
    assert processes.is_dying(stat, re.sub(rb"(ShdPnd:\t0{13})000", rb"\g<1>100", status))
    assert not processes.is_dying(stat, re.sub(rb"(ShdPnd:\t0{12})0000", rb"\g<1>4000", status)), (
        "a SIGTERM"
    )
    before, name, rest = stat.rpartition(b")")
    fields = rest.split()
    fields[6] = str(int(fields[6]) | 4).encode()
    assert processes.is_dying(before + name + b" " + b" ".join(fields), status)
    process.kill()
    process.communicate()


def test_a_process_that_got_the_number_later_is_left_alone(tmp_path: Path) -> None:
    process = child()
    facts = processes.describe_process(process.pid)
    for lie in ({"start": 1}, {"boot": "another"}, {"start": None}):
        assert not processes.is_alive({**facts, **lie})
        assert processes.kill_processes([{**facts, **lie}], 1.0) == []
    assert processes.is_alive(facts)
    assert processes.kill_processes([facts], 10.0) == [process.pid]
    process.communicate()
    assert not processes.is_alive(facts)


def test_a_writer_dies_with_its_trainer(trainers: Zygote, tmp_path: Path) -> None:
    out = tmp_path / "run"
    trainer = trainers.launch(out, {"pace_ms": 20}, brake=60)
    trainer.wait_line("^checkpoint 7 ")
    helpers = json.loads((out / "run.lock").read_text())["helpers"]
    assert len(helpers) == 1
    assert processes.is_alive(helpers[0])
    os.kill(helpers[0]["pid"], signal.SIGSTOP)  # even one that hangs
    trainer.kill()
    again = trainers.launch(out)
    assert again.wait() == 0, again.text()
    assert not processes.is_alive(helpers[0])
    assert events(out, "resume")[0]["step"] >= 7


def test_signals_to_the_whole_group_leave_the_writer_to_finish(
    trainers: Zygote, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    trainer = trainers.launch(out, {"pace_ms": 20}, brake=60)
    trainer.wait_line("^checkpoint 7 ")
    writer = json.loads((out / "run.lock").read_text())["helpers"][0]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        os.kill(writer["pid"], number)
    trainer.signal(signal.SIGTERM)
    assert trainer.wait() == 75, trainer.text()
    assert "could not be saved" not in trainer.text()
    assert not processes.is_alive(writer), "it ended with its trainer"
