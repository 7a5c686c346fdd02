"""The parts that need no trainer: order, cadence, retention, manifest, space, ledger, lines."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rgt_train import Run, StopRequest
from rgt_train.checkpoint import LineAppender, diskio, store
from rgt_train.data.sampler import BatchPlan, EpochPosition, EpochSampler, mix_bits, sample_seed
from rgt_train.tracking import report as reports
from rgt_wire import size_text


def test_sums_over_ranks_are_exact() -> None:
    """29 / 7 * 7 is not 29: a count of samples must not come from a mean."""

    class Seven:
        def all_gather(self, value: object) -> list[object]:
            return [value] * 6 + [(23, 0.5)]

    run = SimpleNamespace(_ranks=Seven())
    assert Run.total(cast(Run, run), 1, 0.25) == [29.0, 2.0]


class TestOrder:
    def test_every_sample_once_an_epoch_and_other_orders_in_other_epochs(self) -> None:
        sampler = EpochSampler(101, 8, seed=3)
        epochs = [
            [i for batch in sampler.iterate_batches(epoch) for i in batch] for epoch in range(3)
        ]
        for order in epochs:
            assert sorted(order) == list(range(101))
        assert epochs[0] != epochs[1] != epochs[2]
        assert sampler.steps_per_epoch == 13

    def test_a_cursor_gives_the_rest(self) -> None:
        sampler = EpochSampler(50, 4, seed=1, steps_per_epoch=5, accumulate=2)
        whole = list(sampler.iterate_batches(2))
        assert len(whole) == 10
        for done in range(6):
            assert (
                list(
                    EpochSampler(50, 4, 1, steps_per_epoch=5, accumulate=2).iterate_batches(2, done)
                )
                == whole[2 * done :]
            )

    def test_the_random_state_returns_before_the_first_batch_even_of_none(self) -> None:
        seen: list[int] = []
        plan = BatchPlan(EpochSampler(8, 2, 0), lambda: EpochPosition(0, 4), lambda: seen.append(1))
        iterator = iter(plan)
        assert (len(plan), plan.batches_left, seen) == (4, 0, [])
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
        assert mix_bits(1, 2) != mix_bits(2, 1)


class TestSpace:
    def test_root_reads(self, tmp_path: Path) -> None:
        found = store.read_space(tmp_path)
        assert os.path.ismount(found.mount)
        assert 0 <= found.bytes_free <= found.bytes_total

    def test_words(self) -> None:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/w/x")
        none_left = store.DiskSpace("/w", 97, 100, 0, 4096)
        assert (
            store.why_failed(full, none_left, 5, 4)
            == "no inodes left on /w (4,096 of 4,096 used; bytes 3%)"
        )
        few_bytes = store.DiskSpace("/w", 300_000, 10_000_000, 4000, 4096)
        assert (
            store.why_failed(full, few_bytes, 1_200_000, 4)
            == "no bytes left on /w (needs 1.2 MB, 300 kB free; inodes 2%)"
        )
        assert (
            store.exhausted_resource(full, store.DiskSpace("/w", 1, 2, None, None), 5, 4) == "bytes"
        )
        quota = OSError(errno.EDQUOT, "Disk quota exceeded")
        assert store.why_failed(quota, none_left, 5, 4) == "quota exceeded on /w"
        other = OSError(errno.EMFILE, "Too many open files")
        assert store.why_failed(other, none_left, 5, 4) == "EMFILE (Too many open files) on /w"

    @pytest.mark.parametrize(
        ("n", "text"), [(0, "0 B"), (999, "999 B"), (1234567, "1.2 MB"), (5e13, "50.0 TB")]
    )
    def test_human(self, n: float, text: str) -> None:
        assert size_text(n) == text


class TestLines:
    def test_appends_after_a_torn_line(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_bytes(b'{"a": 1}\n{"b"')
        lines = LineAppender(path)
        assert lines.append_line('{"c": 3}')
        lines.close()
        assert path.read_bytes() == b'{"a": 1}\n{"b"\n{"c": 3}\n'

    def test_waits_for_its_directory_and_keeps_the_order(self, tmp_path: Path) -> None:
        path = tmp_path / "later" / "a.jsonl"
        lines = LineAppender(path)
        assert not lines.append_line("1")
        assert not lines.append_line("2")
        path.parent.mkdir()
        assert lines.append_line("3")
        assert path.read_text() == "1\n2\n3\n"
        lines.close()

    def test_those_that_came_together_wait_one_by_one_and_the_oldest_are_dropped(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "later" / "a.jsonl"
        lines = LineAppender(path)
        for first in range(0, 20_016, 16):
            lines.append_line("\n".join(map(str, range(first, first + 16))))
        path.parent.mkdir()
        assert lines.flush()
        assert path.read_text().split() == [str(number) for number in range(16, 20_016)]
        lines.close()

    def test_a_disk_that_takes_half_a_line_gets_it_back_and_later_the_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, room, real = tmp_path / "a.jsonl", [5], os.write

        def fills_up(fd: int, data: bytes) -> int:
            if not room[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            taken = real(fd, data[: room[0]])
            room[0] -= taken
            return taken

        monkeypatch.setattr(os, "write", fills_up)
        lines = LineAppender(path)
        assert lines.append_line("1")
        assert not lines.append_line("2222")
        assert path.read_text() == "1\n"
        room[0] = 100
        assert lines.append_line("3")
        assert path.read_text() == "1\n2222\n3\n"
        lines.close()

    def test_what_a_full_disk_tore_is_ended_before_ours_also_once_there_is_room_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, real = tmp_path / "a.jsonl", os.write
        path.write_text('{"a": 1}\n{"b"')

        def full(fd: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        lines = LineAppender(path)
        assert not lines.append_line('{"c": 3}')
        monkeypatch.setattr(os, "write", real)
        assert lines.flush()
        assert path.read_text() == '{"a": 1}\n{"b"\n{"c": 3}\n'
        lines.close()

    def test_nan_is_a_word_and_the_tail_is_read(self, tmp_path: Path) -> None:
        report = reports.RunReport(tmp_path)
        report.record_point(3, 0.5, loss=math.nan, lr=-math.inf)
        report.append_event("resume", 2, reason="killed")
        report.record_point(3, 0.5, loss=1.25)
        report.close()
        rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert (rows[0]["loss"], rows[0]["lr"], rows[2]["loss"]) == ("nan", "-inf", 1.25)
        assert reports.last_logged_point(tmp_path)[0] == 3

    def test_an_integer_beyond_a_float_ends_no_training(self, tmp_path: Path) -> None:
        report, told = reports.RunReport(tmp_path), list[str]()
        folder = tmp_path / "events"
        report.add_sinks(
            [reports.GuardedSink("tensorboard", reports.EventFile(folder), told.append)]
        )
        report.record_point(1, 0.0, tokens=10**400, loss=1.5)
        report.record_point(2, 0.0, tokens=-(10**5000))
        report.record_point(3, 0.0, tokens=7)
        report.close()
        log = tmp_path / "metrics.jsonl"
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        assert [row["tokens"] for row in rows] == [10**400, "-inf", 7]
        assert rows[0]["loss"] == 1.5
        assert told == []
        with log.open("a") as file:
            file.write('{"step": 1e999, "time": 3}\n{"step": 4, "time": 1' + "0" * 400 + "}\n")
        assert reports.last_logged_point(tmp_path)[0] == 3


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
    diskio.replace_file(path, b"1")
    diskio.replace_file(path, b"2")
    assert path.read_bytes() == b"2"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    with pytest.raises(OSError, match="missing"):
        diskio.replace_file(tmp_path / "missing" / "a.json", b"3")
