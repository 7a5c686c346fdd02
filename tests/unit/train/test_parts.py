"""The parts that need no trainer: order, cadence, retention, manifest, space, ledger, lines."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
from rgt_train import durable, manifest, space
from rgt_train.cadence import CEILING_S, FLOOR_S, Cadence, daly
from rgt_train.hashing import HashingFile
from rgt_train.jsonl import Appender
from rgt_train.ledger import PRIOR_MTBF_S, Ledger
from rgt_train.report import Report, last_seen
from rgt_train.sampler import BatchPlan, EpochSampler, mix, sample_seed
from rgt_train.signals import StopRequest
from rgt_train.store import Store, Writer


class TestOrder:
    def test_every_sample_once_an_epoch_and_other_orders_in_other_epochs(self) -> None:
        sampler = EpochSampler(101, 8, seed=3)
        epochs = [[i for batch in sampler.batches(epoch) for i in batch] for epoch in range(3)]
        for order in epochs:
            assert sorted(order) == list(range(101))
        assert epochs[0] != epochs[1] != epochs[2]
        assert sampler.steps_per_epoch == 13

    def test_a_cursor_gives_the_rest(self) -> None:
        sampler = EpochSampler(50, 4, seed=1, steps_per_epoch=5, accumulate=2)
        whole = list(sampler.batches(2))
        assert len(whole) == 10
        for done in range(6):
            assert (
                list(EpochSampler(50, 4, 1, steps_per_epoch=5, accumulate=2).batches(2, done))
                == whole[2 * done :]
            )

    def test_the_random_state_returns_before_the_first_batch_even_of_none(self) -> None:
        seen: list[int] = []
        plan = BatchPlan(EpochSampler(8, 2, 0), 0, 4, lambda: seen.append(1))
        iterator = iter(plan)
        assert (len(plan), seen) == (0, [])
        assert list(iterator) == []
        assert seen == [1]

    def test_too_many_steps_are_refused(self) -> None:
        with pytest.raises(ValueError, match="1 to 4"):
            EpochSampler(8, 2, 0, steps_per_epoch=5)
        with pytest.raises(ValueError, match="positive"):
            EpochSampler(0, 2, 0)

    def test_seeds_spread(self) -> None:
        seeds = {sample_seed(s, e, i) for s in range(5) for e in range(5) for i in range(40)}
        assert len(seeds) == 1000
        assert all(0 <= seed < 2**63 for seed in seeds)
        assert mix(1, 2) != mix(2, 1)


class TestCadence:
    @pytest.mark.parametrize(("mtbf_min", "minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
    def test_figures_of_daly(self, mtbf_min: float, minutes: float) -> None:
        found = daly(5 * 60, mtbf_min * 60) / 60
        assert found == pytest.approx(minutes, abs=0.5 if minutes > 10 else 0.05)

    def test_limits(self) -> None:
        assert daly(100, 40) == 40
        with pytest.raises(ValueError, match="positive"):
            daly(0, 1)

    def test_fixed_steps_are_multiples(self) -> None:
        cadence = Cadence(10, 3600)
        assert [step for step in range(1, 41) if cadence.due(step, 0)] == [10, 20, 30, 40]

    def test_chosen_from_what_is_measured(self) -> None:
        cadence = Cadence(0, 4 * 3600)
        assert cadence.choice().steps == 10
        cadence.measured_step(0.5)
        cadence.measured_save(2.0)
        choice = cadence.choice()
        assert choice.steps == round(daly(2.0, 4 * 3600) / 0.5)
        assert "2000 ms" in choice.reason
        assert not cadence.due(choice.steps, 1)
        assert cadence.due(choice.steps + 1, 1)

    @pytest.mark.parametrize(
        ("cost", "seconds", "word"), [(1e-5, FLOOR_S, "floor"), (900.0, CEILING_S, "ceiling")]
    )
    def test_floor_and_ceiling(self, cost: float, seconds: float, word: str) -> None:
        cadence = Cadence(0, 48 * 3600)
        cadence.measured_step(0.1)
        cadence.measured_save(cost)
        if word == "floor":
            cadence = Cadence(0, 60)
            cadence.measured_step(0.1)
            cadence.measured_save(cost)
        assert cadence.choice().steps == round(seconds / 0.1)
        assert word in cadence.choice().reason


def writer(data: bytes) -> Writer:
    def write(file: HashingFile) -> None:
        file.write(data)

    return write


class TestStore:
    def test_keeps_the_last_k_and_best(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 1, keep=2)
        for step in (5, 10, 15, 20):
            store.commit(step, {"a": writer(b"x" * step)}, {})
        store.commit_best(10, {"a": writer(b"best")}, {})
        store.commit_best(20, {"a": writer(b"better")}, {})
        assert store.steps() == [15, 20]
        assert (tmp_path / "best" / "a").read_bytes() == b"better"
        assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
            "step-00000015",
            "step-00000020",
        ]

    def test_a_failed_write_leaves_nothing(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 1)
        good = store.commit(1, {"a": writer(b"1")}, {})

        def refuse(file: HashingFile) -> None:
            os.close(file._fd)
            file._fd = os.open(tmp_path / "checkpoints", os.O_RDONLY)  # every write to it fails
            file.write(b"2")

        with pytest.raises(OSError, match=r"a'$") as caught:
            store.commit(2, {"a": refuse}, {})
        assert caught.value.errno == errno.EBADF
        assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == [Path(good.path).name]
        found, complaints = store.newest_good()
        assert found is not None
        assert (found.step, complaints) == (1, [])

    def test_the_same_step_again_replaces_it(self, tmp_path: Path) -> None:
        store = Store(tmp_path, 1)
        for data in (b"old", b"new"):
            store.commit(7, {"a": writer(data)}, {})
        assert (tmp_path / "checkpoints/step-00000007/a").read_bytes() == b"new"

    def test_every_bit_of_a_manifest_counts(self, tmp_path: Path) -> None:
        Store(tmp_path, 1).commit(7, {"a": writer(b"data")}, {"epoch": 1.5})
        path = tmp_path / "checkpoints/step-00000007"
        raw = (path / manifest.NAME).read_bytes()
        assert manifest.verify(path)["epoch"] == 1.5
        for bit in range(0, 8 * len(raw), 7):
            data = bytearray(raw)
            data[bit // 8] ^= 1 << bit % 8
            (path / manifest.NAME).write_bytes(data)
            with pytest.raises(manifest.Damaged):
                manifest.verify(path)


@pytest.mark.parametrize("fits", [0, 100, 3000])
def test_torch_save_to_a_full_disk_ends_with_the_errno(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: int
) -> None:
    import torch

    real, written = os.write, [0]

    def write(fd: int, data: memoryview) -> int:
        written[0] += len(data)
        if written[0] > fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    file = HashingFile(tmp_path / "a")
    monkeypatch.setattr(os, "write", write)
    torch.save({"x": torch.zeros(1000)}, cast(Any, file))
    with pytest.raises(OSError, match=r"No space left on device: '.*/a'$") as caught:
        file.close()
    assert caught.value.errno == errno.ENOSPC


class TestSpace:
    def test_root_reads(self, tmp_path: Path) -> None:
        found = space.read_space(tmp_path)
        assert os.path.ismount(found.mount)
        assert 0 <= found.bytes_free <= found.bytes_total

    def test_words(self) -> None:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/w/x")
        none_left = space.Space("/w", 97, 100, 0, 4096)
        assert (
            space.describe(full, none_left, 5, 4) == "no inodes left on /w (4,096 of 4,096 used; bytes 3 %)"
        )
        few_bytes = space.Space("/w", 300_000, 10_000_000, 4000, 4096)
        assert (
            space.describe(full, few_bytes, 1_200_000, 4)
            == "no bytes left on /w (needs 1.2 MB, 300.0 kB free; inodes 2 %)"
        )
        assert space.resource_of(full, space.Space("/w", 1, 2, None, None), 5, 4) == "bytes"
        quota = OSError(errno.EDQUOT, "Disk quota exceeded")
        assert space.describe(quota, none_left, 5, 4) == "quota exceeded on /w"
        other = OSError(errno.EMFILE, "Too many open files")
        assert space.describe(other, none_left, 5, 4) == "EMFILE (Too many open files) on /w"

    @pytest.mark.parametrize(
        ("n", "text"), [(0, "0 B"), (999, "999 B"), (1234567, "1.2 MB"), (5e13, "50.0 TB")]
    )
    def test_human(self, n: float, text: str) -> None:
        assert space.human(n) == text


class TestLines:
    def test_appends_after_a_torn_line(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"a": 1}\n{"b"')
        lines = Appender(path)
        assert lines.append('{"c": 3}')
        lines.close()
        assert path.read_bytes() == b'{"a": 1}\n{"b"\n{"c": 3}\n'

    def test_waits_for_its_directory_and_keeps_the_order(self, tmp_path: Path) -> None:
        path = tmp_path / "later" / "a.jsonl"
        lines = Appender(path)
        assert not lines.append("1")
        assert not lines.append("2")
        path.parent.mkdir()
        assert lines.append("3")
        assert path.read_text() == "1\n2\n3\n"
        lines.close()

    def test_nan_is_a_word_and_the_tail_is_read(self, tmp_path: Path) -> None:
        report = Report(tmp_path)
        report.point(3, 0.5, loss=math.nan, lr=-math.inf)
        report.event("resume", 2, reason="killed")
        report.point(3, 0.5, loss=1.25)
        report.close()
        rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert (rows[0]["loss"], rows[0]["lr"], rows[2]["loss"]) == ("nan", "-inf", 1.25)
        assert last_seen(tmp_path)[0] == 3

    def test_ledger(self, tmp_path: Path) -> None:
        first = Ledger(tmp_path)
        assert (first.attempt, first.past.cause, first.past.mtbf_s()) == (1, None, PRIOR_MTBF_S)
        first.start(0)
        first.alive(10)
        second = Ledger(tmp_path)
        assert (second.attempt, second.past.cause) == (2, "killed")
        assert second.past.mtbf_s() == pytest.approx(PRIOR_MTBF_S / 2, rel=0.01)
        second.start(10)
        second.end(20, "SIGTERM")
        (tmp_path / "ledger.jsonl").open("a").write("torn {\n[1]\n")
        assert Ledger(tmp_path).past.cause == "SIGTERM"


def test_signals_are_flags_and_end_a_wait() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = StopRequest()
    assert not stop.wait(0.0)
    signal.raise_signal(signal.SIGTERM)
    assert stop.wait(3600)
    assert stop.name == "SIGTERM"
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    stop.close()
    stop.close()
    assert signal.getsignal(signal.SIGTERM) is before


def test_replace_file_leaves_the_old_one_on_failure(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    durable.replace_file(path, b"1")
    durable.replace_file(path, b"2")
    assert path.read_bytes() == b"2"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    with pytest.raises(OSError, match="missing"):
        durable.replace_file(tmp_path / "missing" / "a.json", b"3")
