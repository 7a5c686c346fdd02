"""Cursors over files that grow, shrink, vanish and come back."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import (
    BY_KIND,
    EventDirectory,
    MetricReader,
    flatten_row,
    open_reader,
    parse_json_integer,
    rows,
    to_epoch_seconds,
    to_number,
    to_position,
)

from tests.unit.metrics import makers
from tests.unit.metrics.makers import FIXTURES, Follower, summary


def follower(kind: str, path: Path, limit: int = 5000) -> Follower:
    return Follower(functools.partial(open_reader, kind, str(path)), limit)


def line(step: int, **values: object) -> bytes:
    return json.dumps({"step": step, **values}).encode() + b"\n"


def test_truncated_replaced_deleted_and_recreated(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    each = follower("rgt", path)
    assert [problem.reason for problem in each.poll().problems] == ["No such file or directory"]
    path.write_bytes(line(1, loss=1.0) + line(2, loss=2.0))
    each.poll()
    assert (len(each.points), each.resets) == (2, 0)
    with path.open("r+b") as file:  # the same inode, shorter
        file.truncate()
        file.write(line(7, loss=7.0))
    each.poll()
    assert ([point[2] for point in each.points], each.resets) == ([7.0], 1)
    with path.open("r+b") as file:  # the same inode, longer than the cursor: the head tells
        file.truncate()
        file.write(line(1, loss=1.0) * 5)
    each.poll()
    assert (len(each.points), each.resets) == (5, 2)
    path.rename(tmp_path / "old")
    each.poll()
    assert len(each.points) == 5
    path.write_bytes(line(1, loss=1.0) * 9)  # another inode, the same head
    each.poll()
    assert (len(each.points), each.resets) == (9, 3)


def test_a_table_rewritten_under_another_header(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    shutil.copy(FIXTURES / "lightning/rewrite_before.csv", path)
    each = follower("lightning", path)
    each.poll()
    path.write_bytes((FIXTURES / "lightning/rewrite_after.csv").read_bytes())
    each.poll()
    assert each.resets == 1
    assert summary(each.store) == {
        ("", "train/loss", "step"): (8, 0, 7, 0.375),
        ("", "grad_norm", "step"): (4, 0, 7, 1.0),
    }


def test_a_cursor_of_another_world_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(line(1, loss=1.0))
    inode = path.stat().st_ino
    cursors: list[dict[str, Any]] = [
        {"inode": inode, "offset": 10**9, "head": 0},
        {"inode": inode, "offset": -1, "head": 0},
        {"inode": inode, "offset": "x"},
        {"inode": 1},
        {"files": {}},
    ]
    for cursor in cursors:
        batch = open_reader("rgt", str(path)).read(cursor)
        assert (len(batch.points), batch.reset) == (1, True)


def test_the_limit_ends_a_read_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(line(step, a=1, b=2) for step in range(10)))
    reader = open_reader("rgt", str(path))
    batch = reader.read(limit=3)
    assert (len(batch.points), batch.more) == (4, True)
    batch = reader.read(batch.cursor, 1000)
    assert (len(batch.points), batch.more) == (16, False)
    assert reader.read(batch.cursor).cursor == batch.cursor


def test_resumes_of_our_own_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    event = {"event": "resume", "step": 2, "reason": "SIGTERM", "time": 1.79e9}
    path.write_bytes(
        json.dumps({"event": "start", "step": 0, "total_steps": 9, "time": 1.79e9}).encode()
        + b"\n"
        + b"".join(
            line(step, loss="nan" if step == 3 else 1.0, time=1.79e9 + step) for step in range(5)
        )
        + json.dumps(event).encode()
        + b"\n"
        + line(2, loss=0.5)
        + line(3, loss="-inf", tok_s=5)
    )
    batch = open_reader("rgt", str(path)).read()
    assert [tuple(start) for start in batch.starts] == [(5, 2.0, "SIGTERM")]
    assert batch.points[4].at == 1.79e9 + 4
    each = follower("rgt", path, 1)
    each.poll()
    loss = each.store.series["", "loss", "step"]
    assert (loss.xs, loss.ys[-1], loss.breaks, loss.segment) == (
        [0, 1, 2, 3],
        float("-inf"),
        [2],
        1,
    )
    assert ("", "total_steps", "step") not in each.store.series


def test_detectron2_goes_back_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    rowlist = [
        {"iteration": step, "total_loss": step / 10, "time": 0.3} for step in (19, 39, 59, 39, 59)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rowlist))
    each = follower("detectron2", path)
    each.poll()
    loss = each.store.series["", "total_loss", "step"]
    assert (loss.xs, loss.breaks) == ([19, 39, 59], [39])
    assert loss.ats == [None] * 3


def test_generic_rows_never_mix_their_axes(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rowlist: list[dict[str, object]] = [
        {"iter": 10, "step": 1, "loss": "0.5", "train": {"acc": 0.1}, "ok": True, "note": "text"},
        {"epoch": 1, "val_loss": 2.0},
        {"step": 5, "other": 1},
        {"loss": 9},
        {"iter": "20", "loss": 1e400, "timestamp": 1790000000123},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rowlist))
    each = follower("jsonl", path)
    each.poll()
    assert each.points == [
        ("loss", "step", 10.0, 0.5, None, ""),
        ("train/acc", "step", 10.0, 0.1, None, ""),
        ("val_loss", "epoch", 1.0, 2.0, None, ""),
        ("loss", "step", 20.0, "inf", 1790000000.123, ""),
    ]


def test_axes_however_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("Epoch;Step;Loss\n0;5;1.0\n")
    each = follower("csv", path)
    each.poll()
    assert [point[:4] for point in each.points] == [
        ("epoch", "step", 5.0, 0.0),
        ("Loss", "step", 5.0, 1.0),
    ]
    path = tmp_path / "log.jsonl"
    path.write_text('{"Epoch": 3, "Loss": 1.0}\n')
    each = follower("jsonl", path)
    each.poll()
    assert [point[:4] for point in each.points] == [("Loss", "epoch", 3.0, 1.0)]


def test_mlflow_file_without_steps_counts_the_order(tmp_path: Path) -> None:
    path = tmp_path / "mlruns" / "0" / "abc" / "metrics" / "metrics" / "mAP"
    path.parent.mkdir(parents=True)
    path.write_text(
        "1795253821902 1.0 0\n1795253821903 2.0 0\n1795253821904 3.0 0 data digest\n1795253821905 4\n"
    )
    each = follower("mlflow_files", path, 1)
    each.poll()
    assert [point[:4] for point in each.points] == [
        ("metrics/mAP", "step", float(n), n + 1.0) for n in range(4)
    ]


def test_several_event_files_of_one_directory(tmp_path: Path) -> None:
    made = FIXTURES / "made" / "tensorboardX"
    first, second = sorted(made.iterdir())
    each = Follower(lambda: EventDirectory(str(tmp_path)), 7)
    shutil.copy(first, tmp_path)
    each.poll()
    assert summary(each.store)["", "train/loss", "step"] == (40, 1, 39, pytest.approx(3 / 40))
    shutil.copy(second, tmp_path)
    each.poll()
    loss = each.store.series["", "train/loss", "step"]
    assert (loss.xs, loss.ys[-1], loss.breaks) == (
        [float(step) for step in range(26)],
        -25.0,
        [20.0],
    )
    assert (
        max(each.store.series["", "train/grad_norm", "step"].xs) == 19
    )  # purge_step hides all from 20 on
    assert (each.resets, each.problems) == (0, [])
    (tmp_path / first.name).unlink()
    each.poll()
    assert (each.resets, len(each.points)) == (1, 6)


@pytest.mark.parametrize("kind", [kind for kind in BY_KIND if kind != "console"])
def test_what_is_no_file(kind: str, tmp_path: Path) -> None:
    loop, fifo = tmp_path / "loop", tmp_path / "fifo"
    loop.symlink_to(loop)
    os.mkfifo(fifo)
    for path in (loop, fifo, tmp_path, tmp_path / "none"):
        if kind == "tensorboard_dir" and path == tmp_path:
            continue
        batch = open_reader(kind, str(path)).read()
        assert (batch.points, len(batch.problems), batch.more, batch.cursor) == ([], 1, False, None)
        assert batch.problems[0].path == str(path)


def test_a_reader_that_breaks_tells_it() -> None:
    class Broken(MetricReader):
        def _read_into(self, batch: object, limit: int) -> None:
            raise RuntimeError("oops")

    batch = Broken("x").read({"offset": 5})
    assert (batch.cursor, batch.problems[0]) == ({"offset": 5}, ("x", 0, "RuntimeError: oops"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5", 1234.5),
        (" 2e-05 ", 2e-05),
        ("", None),
        ("x", None),
        ("1_0", None),
        (True, None),
        (None, None),
    ],
)
def test_numbers(text: object, value: float | None) -> None:
    assert to_number(text) == value


def test_odd_numbers() -> None:
    assert [str(to_number(word)) for word in ("NaN", "-Infinity", "inf", "+nan")] == [
        "nan",
        "-inf",
        "inf",
        "nan",
    ]
    assert to_number(10**400) == float("inf") and to_number(-(10**400)) == float("-inf")
    assert to_position("nan") is None and to_position(1e300) is None
    assert to_epoch_seconds(1790000000123) == 1790000000.123 and to_epoch_seconds(5.0) is None
    assert parse_json_integer("7") == 7 and parse_json_integer("9" * 5000) == float("inf")
    assert flatten_row({"a": {"b": {"c": {"d": {"e": 1}}}}, "x": 2}, 100) == {"x": 2}
    assert len(flatten_row({str(n): n for n in range(50)}, 10)) == 10


def test_the_hidden_nan_of_a_row() -> None:
    assert rows.hides_nan({"loss": 0.0, "grad_norm": "nan"})
    assert not rows.hides_nan({"loss": 0.1, "grad_norm": "nan"})
    assert not rows.hides_nan({"loss": 0.0, "grad_norm": 1.0})
    assert not rows.hides_nan({"loss": 0.0})


def test_event_directory_ignores_other_files(tmp_path: Path) -> None:
    (tmp_path / "hparams.yaml").write_text("a: 1")
    (tmp_path / "events.out.tfevents.1.a").write_bytes(makers.scalars(("a", 1, 2.0)))
    batch = EventDirectory(str(tmp_path)).read()
    assert (len(batch.points), batch.problems) == (1, [])
