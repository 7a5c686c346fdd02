"""Figures and words: an unknown never becomes a number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.model import DiskReading, MemoryReading, Series, format_duration, pct, size
from rgt_tui.profiles import (
    byte_pct,
    compute_percent,
    disk_of,
    inode_pct,
    memory_pct,
    stale_after,
    stall_after,
    step_time,
)
from tests.unit.triage.builders import NOW, box, cell, run


@pytest.mark.parametrize(
    ("used", "total", "share"),
    [(1, 4, 25.0), (0, 4, 0.0), (None, 4, None), (1, None, None), (1, 0, None), (1, -1, None)],
)
def test_percent(used: float | None, total: float | None, share: float | None) -> None:
    assert compute_percent(used, total) == share


def test_memory_leaves_out_what_the_kernel_gives_back() -> None:
    assert memory_pct(MemoryReading(used=9, cache=4, limit=10)) == 50.0
    assert memory_pct(MemoryReading(used=9, limit=10)) == 90.0
    assert memory_pct(MemoryReading(used=3, cache=4, limit=10)) == 0.0
    assert memory_pct(MemoryReading(used=9, cache=4)) is None
    assert memory_pct(MemoryReading(limit=10)) is None


def test_bytes_are_counted_as_df_counts_them() -> None:
    assert byte_pct(DiskReading(mount="/", bytes_total=100, bytes_used=90, bytes_free=0)) == 100.0
    assert byte_pct(DiskReading(mount="/", bytes_total=100, bytes_used=90)) == 90.0
    assert byte_pct(DiskReading(mount="/", bytes_total=100)) is None


def test_no_fixed_number_of_inodes_is_no_share() -> None:
    assert inode_pct(DiskReading(mount="/", inodes_used=5)) is None


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/workspace/a", "/workspace"),
        ("/workspace", "/workspace"),
        ("/workspaces", "/"),
        ("/root", "/"),
    ],
)
def test_disk_of_a_path(path: str, mount: str) -> None:
    found = disk_of((DiskReading(mount="/"), DiskReading(mount="/workspace")), path)
    assert found is not None
    assert found.mount == mount


def test_no_disk_above_a_path() -> None:
    assert disk_of((DiskReading(mount="/workspace"),), "/root") is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (59.9, "59s"), (134.0, "2m14"), (3600.0, "1h00"), (11220.0, "3h07"), (1231200.0, "14d 6h"),
     (-3.0, "0s"), (None, "?"), (math.inf, "?")],
)  # fmt: skip
def test_age(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (15_600_000, "15.6 MB"),
        (503e9, "503 GB"),
        (2.5e12, "2.5 TB"),
        (None, "?"),
    ],
)
def test_size(count: float | None, text: str) -> None:
    assert size(count) == text


@given(st.floats(min_value=0, max_value=99.999))
def test_nothing_reads_as_full_that_is_not(value: float) -> None:
    assert pct(value) != "100%"


def test_unknown_in_words() -> None:
    assert pct(None) == "?"


def test_stale_after_three_intervals() -> None:
    assert stale_after(box()) == 3.0


def test_usual_step_time_is_of_the_present_attempt() -> None:
    slow = run(losses=[1.0] * 100, last_at=NOW)
    assert step_time(cell(started=NOW - 1000), slow) == pytest.approx(10.0)
    assert stall_after(cell(started=NOW - 1000), slow) == pytest.approx(100.0)


def test_without_a_pace_ten_minutes_are_a_stall() -> None:
    assert step_time(cell(started=None), run()) is None
    assert stall_after(cell(started=None), run()) == 600.0
    begun = run(losses=[1.0, 0.9], last_at=NOW - 590)
    assert step_time(cell(started=NOW - 600), begun) is None, "two points are no pace"
    assert stall_after(cell(started=NOW - 600), begun) == 600.0
    third = run(losses=[1.0, 0.9, 0.8], last_at=NOW - 570)
    assert stall_after(cell(started=NOW - 600), third) == pytest.approx(100.0)


def test_the_pace_is_that_after_the_last_fall_of_the_step() -> None:
    """A script that knows nothing of rgt names no resume: its second attempt begins at step 1."""
    steps = [*range(1, 101), 1, 2, 3]
    loss = Series().with_points([(step, 1.0) for step in steps])
    again = run(last_at=NOW, series={"loss": loss})
    assert step_time(cell(started=NOW - 120, attempts=2), again) == pytest.approx(40.0)


def test_an_attempt_that_continues_at_the_next_step_has_no_known_pace() -> None:
    """Its points cannot be distinguished from those of the attempt before, which were many."""
    loss = Series().with_points([(step, 1.0) for step in range(1, 104)])
    again = run(last_at=NOW, series={"loss": loss})
    second = cell(started=NOW - 150, attempts=2)
    assert step_time(second, again) is None
    assert stall_after(second, again) == 600.0
