from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from rgt_box.metrics import open_reader, wandb

from tests.unit.metrics import makers
from tests.unit.metrics.makers import FIXTURES, Follower, blob, history, number, summary


def follower(path: Path, limit: int = 5000) -> Follower:
    return Follower(functools.partial(open_reader, "wandb", str(path)), limit)


def read(tmp_path: Path, records: list[bytes], limit: int = 5000) -> Follower:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(makers.wandb_file(records))
    each = follower(path, limit)
    each.poll()
    return each


def test_a_file_that_wandb_wrote() -> None:
    each = follower(FIXTURES / "made" / "wandb_history.wandb")
    each.poll()
    found = summary(each.store)
    assert found["", "train/loss", "step"] == (60, 1, 590, 0.05)
    assert found["", "deep.a.b", "step"] == (60, 0, 590, 59.0)
    assert sum(tag.startswith("big/") for _, tag, _ in found) == 350
    assert (len(found), each.problems, each.resets) == (352, [], 0)


def test_records_over_several_blocks(tmp_path: Path) -> None:
    rows = [history({"_step": n, "loss": float(n), "text": "x" * (n * 700)}) for n in range(80)]
    assert len(makers.wandb_file(rows)) > 60 * 32768
    each = read(tmp_path, rows, 7)
    assert [point[2:4] for point in each.points] == [(float(n), float(n)) for n in range(80)]


def test_large_records_of_other_kinds_are_walked_over(tmp_path: Path) -> None:
    before, after = history({"_step": 0, "loss": 1.0}), history({"_step": 1, "loss": 2.0})
    each = read(tmp_path, [before, number(1, 5) + blob(17, bytes(9 << 20)), after])
    assert (len(each.points), each.problems) == (2, [])


def test_a_history_record_of_absurd_size(tmp_path: Path) -> None:
    records = [blob(2, bytes(9 << 20)), history({"_step": 1, "loss": 2.0})]
    each = read(tmp_path, records)
    assert (len(each.points), each.problems) == (1, ["record longer than 1 MiB"])


def test_damage_costs_one_block(tmp_path: Path) -> None:
    data = bytearray(
        makers.wandb_file([history({"_step": n, "loss": float(n)}) for n in range(3000)])
    )
    data[40000] ^= 1
    path = tmp_path / "run-x.wandb"
    path.write_bytes(data)
    each = follower(path)
    each.poll()
    assert each.problems == ["chunk damaged"]
    assert 1500 < len(each.points) < 3000


def test_values(tmp_path: Path) -> None:
    keys = {
        "loss": "NaN",
        "up": "Infinity",
        "text": '"hello"',
        "word": '"0.5"',
        "null": "null",
        "list": "[1]",
    }
    keys.update(
        _runtime="5",
        _timestamp="1790000000.5",
        nested='{"a": {"b": 7}}',
        image='{"_type": "x", "n": 5}',
    )
    items = b"".join(
        blob(1, blob(1, key.encode()) + blob(16, value.encode())) for key, value in keys.items()
    )
    deep = blob(1, blob(2, b"x") + blob(2, b"y") + blob(16, b"3"))
    each = read(tmp_path, [blob(2, items + deep + blob(2, number(1, 9)))])
    assert [point[:5] for point in each.points] == [
        (tag, "step", 9.0, y, 1790000000.5)
        for tag, y in (
            ("loss", "nan"),
            ("up", "inf"),
            ("word", 0.5),
            ("nested.a.b", 7.0),
            ("x.y", 3.0),
        )
    ]


def test_the_trainers_own_step_is_the_axis_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    rows: list[dict[str, object]] = [
        {"_step": 0, "note": 1.0},
        {"_step": 1, "loss": 5.0, "train/global_step": 500},
        {"_step": 2, "note": 2.0},
        {"_step": 3, "loss": 0.0, "grad_norm": float("nan"), "train/global_step": 1000},
    ]
    records = [history(row) for row in rows]
    path.write_bytes(makers.wandb_file(records[:1]))
    each = follower(path)
    each.poll()
    assert each.points == [("note", "step", 0.0, 1.0, None, "")]
    path.write_bytes(makers.wandb_file(records))
    each.poll()
    assert each.resets == 1
    assert [point[:4] for point in each.points] == [
        ("loss", "step", 500.0, 5.0),
        ("note", "step", 500.0, 2.0),
        ("loss", "step", 1000.0, "nan"),
        ("grad_norm", "step", 1000.0, "nan"),
    ]


@pytest.mark.parametrize("data", [b"", b":W&B", b":W&B\xe1\xbe\x00"])
def test_nothing_yet(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(data)
    batch = open_reader("wandb", str(path)).read()
    assert (batch.points, batch.problems, batch.more) == ([], [], False)


def test_another_file(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(b"something else")
    assert open_reader("wandb", str(path)).read().problems[0].reason == "not a W&B file"


def test_the_kind_of_a_record_is_seen_in_its_first_chunk() -> None:
    assert wandb.first_field_number(history({"a": 1})) == 2
    assert wandb.first_field_number(number(1, 5) + blob(17, bytes(300))[:4]) == 17
    assert wandb.first_field_number(json.dumps({}).encode()) == 0
    assert wandb.first_field_number(b"\xff" * 11) == 0
    assert (
        wandb.first_field_number(b"")
        == wandb.first_field_number(b"\x08")
        == wandb.first_field_number(b"\x08\x05")
        == wandb.UNKNOWN
    )


@pytest.mark.parametrize("left", range(30))
def test_a_record_that_begins_anywhere_before_the_end_of_a_block(tmp_path: Path, left: int) -> None:
    filling = blob(17, bytes(32768 - left - 19))
    assert len(makers.wandb_file([filling])) == 32768 - left
    each = read(tmp_path, [filling, history({"_step": 3, "loss": 1.0}, num=300), filling])
    assert (len(each.points), each.problems) == (1, [])
