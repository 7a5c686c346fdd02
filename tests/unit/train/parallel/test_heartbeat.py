"""What a rank writes down of itself, and what the agent makes of it."""

from __future__ import annotations

import itertools
import os
import struct
import time
import timeit

import pytest
import torch
from rgt_box.sampling import rank_waits
from rgt_train.ranks import heartbeat
from rgt_train.ranks.heartbeat import Heartbeat


def shown(rank: int = 1, world: int = 3) -> tuple[Heartbeat, str]:
    beat = Heartbeat()
    before = set(os.listdir("/proc/self/fd"))
    beat.share_page(rank, world)
    (fd,) = {name for name in set(os.listdir("/proc/self/fd")) - before if is_beat(name)}
    return beat, f"/proc/self/fd/{fd}"


def is_beat(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}") == rank_waits.HEARTBEAT_LINK
    except OSError:
        return False


def test_trainer_and_agent_mean_the_same() -> None:
    assert heartbeat.PHASES == rank_waits.PHASES
    beat, path = shown()
    for phase, name in enumerate(heartbeat.PHASES):
        beat.enter_phase(phase)
        told = rank_waits.read_phase(path, 1, 3)
        assert told is not None
        assert told["phase"] == name


def test_steps_and_ages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(7_000_000_000, 1_000_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(clock))
    beat, path = shown()
    at = 8_000_000_000  # the one look of `show`
    for step in range(1, 5):
        with beat.within_phase(heartbeat.CHECKPOINT):
            pass
        beat.record_step(step)
        at += 3_000_000_000
    monkeypatch.setattr(rank_waits, "clock", lambda: at + 2_500_000_000)
    assert rank_waits.read_phase(path, 1, 3) == {
        "phase": "loop", "for_s": 2.5, "step": 4, "step_s": 2.5, "usual_s": 2.0, "slowest_s": 2.0, "steps": 4,
    }  # fmt: skip
    monkeypatch.setattr(rank_waits, "clock", lambda: at - 1)
    assert rank_waits.read_phase(path, 1, 3) is None  # another clock than the agent's


def test_it_is_found_among_the_open_files_and_ends_with_them() -> None:
    _, path = shown()
    found = rank_waits.find_heartbeat(os.getpid())
    assert found is not None
    assert is_beat(os.path.basename(found))
    fd = int(os.path.basename(path))
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(fd, 0)  # or a write to the page would end the training
    assert not os.get_inheritable(fd)
    assert rank_waits.read_phase(path, 2, 3) is None  # another rank's, inherited
    os.close(fd)
    assert rank_waits.read_phase(path, 1, 3) is None
    assert rank_waits.find_heartbeat(2**22 + 1) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"rgtbeat1", bytes(64), b"\xff" * 64,
        struct.pack("<8s7Q", b"rgtbeat2", 1 << 32 | 3, 16, 0, 0, 0, 0, 0),
        struct.pack("<8s7Q", b"rgtbeat1", 1 << 32 | 3, 15, 0, 0, 0, 0, 0),
        struct.pack("<8s7Q", b"rgtbeat1", 1 << 32 | 3, 16, 0, 2**64 - 1, 0, 0, 0),
    ],
)  # fmt: skip
def test_a_page_of_something_else_tells_nothing(raw: bytes) -> None:
    fd = os.memfd_create(heartbeat.NAME)
    try:
        os.write(fd, raw)
        assert rank_waits.read_phase(f"/proc/self/fd/{fd}", 1, 3) is None
    finally:
        os.close(fd)


def test_a_number_that_now_belongs_to_another_file_tells_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process may close the page, and open what it likes under its number."""
    fd = os.memfd_create("another")
    try:
        os.write(fd, struct.pack("<8s7Q", b"rgtbeat1", 1 << 32 | 3, 16, 4, 0, 0, 0, 4))
        path = f"/proc/self/fd/{fd}"
        assert rank_waits.read_phase(path, 1, 3) is None
        monkeypatch.setattr(rank_waits, "HEARTBEAT_LINK", "/memfd:another (deleted)")
        assert rank_waits.read_phase(path, 1, 3) is not None  # it was for its name alone
    finally:
        os.close(fd)


def test_numbers_stay_such_that_any_reader_takes_them() -> None:
    fd = os.memfd_create(heartbeat.NAME)
    try:
        os.write(
            fd,
            struct.pack(
                "<8s7Q", b"rgtbeat1", 1 << 32 | 3, 16, 2**64 - 1, 0, 2**64 - 1, 0, 2**64 - 1
            ),
        )
        told = rank_waits.read_phase(f"/proc/self/fd/{fd}", 1, 3)
        assert told is not None
        assert told["step"] == told["steps"] == rank_waits.LARGEST
    finally:
        os.close(fd)


def test_a_page_that_changes_all_the_time_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = shown()
    torn = itertools.cycle([b"\x00" * 64, b"\x01" * 64])
    monkeypatch.setattr(os, "pread", lambda *_: next(torn))
    assert rank_waits.read_phase(path, 1, 3) is None


@pytest.mark.parametrize("name", ["memfd_create", "ftruncate"])
def test_where_there_is_no_such_memory_the_training_goes_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, name, refuse)
    beat = Heartbeat()
    beat.share_page(0, 2)
    beat.enter_phase(heartbeat.DATA)
    beat.record_step(1)
    assert not beat.shown
    monkeypatch.delattr(os, name)
    beat.share_page(0, 2)
    assert not beat.shown


def test_a_step_costs_a_few_microseconds() -> None:
    """Processor time, and far above what is measured (under 3 µs): what else runs here does not matter."""
    beat, _ = shown()

    def step() -> None:
        for phase in (heartbeat.DATA, heartbeat.LOOP, heartbeat.FORWARD, heartbeat.BACKWARD):
            beat.enter_step_phase(phase)
        beat.enter_phase(beat.enter_collective())
        beat.enter_phase(heartbeat.OPTIMIZER)
        beat.enter_phase(heartbeat.LOOP)
        beat.record_step(7)
        beat.enter_phase(beat.enter_collective())

    assert min(timeit.repeat(step, number=500, repeat=20, timer=time.process_time)) / 500 < 20e-6


def test_a_collective_in_an_evaluation_is_no_part_of_a_step() -> None:
    beat = Heartbeat()
    beat.enter_phase(heartbeat.LOOP)
    with beat.within_phase(heartbeat.EVALUATION):
        before = beat.enter_collective()
        beat.enter_step_phase(heartbeat.DATA)  # the loader of the evaluation
        beat.enter_phase(before)
    spent = beat.take_phase_times()
    assert spent[heartbeat.COLLECTIVE] == spent[heartbeat.DATA] == 0.0
    assert spent[heartbeat.EVALUATION] > 0.0
    assert beat.take_phase_times()[heartbeat.EVALUATION] == 0.0


def test_the_hooks_of_an_optimizer_go_with_the_run() -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.1)
    remove = heartbeat.optimizer_hooks(Heartbeat(), [optimizer, object()])
    assert optimizer._optimizer_step_pre_hooks and optimizer._optimizer_step_post_hooks
    remove()
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
