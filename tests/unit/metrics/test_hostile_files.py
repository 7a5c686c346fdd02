"""Files made to hurt: every read stays small, ends, and says what was wrong where."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from rgt_box.metrics import BY_KIND, MAX_TAGS, PROBLEMS, open_reader

from tests.unit.metrics.makers import Follower

MIB = 1 << 20
GOOD = b'{"step": 1, "loss": 1.0}\n'
LINES = [
    each.kind
    for each in BY_KIND.values()
    if each.reader.split(".")[-1] in ("JsonLines", "Table", "TorchtuneLog", "MetricFile")
]


def poll(kind: str, path: Path) -> tuple[Follower, float]:
    """Read a file to its end; return the peak of memory in MiB as well."""
    each = Follower(lambda: open_reader(kind, str(path)))
    tracemalloc.start()
    try:
        each.poll()
        return each, tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", LINES)
def test_a_line_of_twenty_megabytes(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"epoch,step,loss\n" + b"x" * (20 * MIB) + b"\n" + b"1,1,1\n")
    each, peak = poll(kind, path)
    assert peak < 8
    assert sum(reason == "line longer than 1 MiB" for reason in each.problems) == 1
    if kind in ("csv", "lightning", "ultralytics", "keras", "deepspeed"):
        assert [point[3] for point in each.points if point[0] == "loss"] == [1.0]


def test_a_line_of_one_megabyte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(
        GOOD + json.dumps({"step": 2, "loss": 2.0, "text": "x" * 1000000}).encode() + b"\n" + GOOD
    )
    each, peak = poll("jsonl", path)
    assert (len(each.points), each.problems, peak < 12) == (3, [], True)


@pytest.mark.parametrize(
    "kind", [kind for kind in BY_KIND if kind not in ("tensorboard_dir", "console")]
)
@pytest.mark.parametrize("junk", ["zeros", "ones", "text", "brackets"])
def test_junk_of_any_kind(kind: str, junk: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = {
        "zeros": bytes(MIB),
        "ones": b"\xff" * MIB,
        "text": b"lorem ipsum\n" * 5000,
        "brackets": b"[" * MIB,
    }
    path.write_bytes(data[junk])
    each, peak = poll(kind, path)
    assert (each.points, peak < 12) == ([], True)


@pytest.mark.parametrize("opened", [b"[", b'{"a":'])
def test_deep_json(opened: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'{"step": 1, "x": ' + opened * 50000 + b"\n" + GOOD)
    each, _ = poll("jsonl", path)
    assert (len(each.points), each.problems) == (1, ["not a JSON object"])


def test_endless_digits_and_endless_names(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(
        b'{"step": 1, "loss": %s, "%s": 1}\n' % (b"9" * 400000, b"n" * 100000)
        + b'{"step": %s, "loss": 1}\n' % (b"9" * 400000)
        + json.dumps({"step": 3, **{f"m{n}": n for n in range(50000)}}).encode()
        + b"\n"
        + GOOD
    )
    each, peak = poll("jsonl", path)
    assert [point[2:4] for point in each.points if point[0] == "loss"] == [(1.0, "inf"), (1.0, 1.0)]
    assert (len(each.points), peak < 16) == (2 + MAX_TAGS, True)
    assert each.problems == [f"more than {MAX_TAGS} metrics in one row"]


def test_a_table_with_an_endless_header(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"step," + b"loss," * 20000 + b"x\n" + b"1," * 20001 + b"1\n")
    each, _ = poll("csv", path)
    assert (each.points, each.problems) == ([], ["no header that could be read"])


def test_quotes_and_ragged_rows(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(
        '\ufeff"step", "a,b" ,loss\n1,"1,234",0.5\n1,2\n2,"x\n3,3,3,3\n4,,1\n'.encode()
    )
    each, _ = poll("csv", path)
    assert [point[0:4] for point in each.points] == [
        ("a,b", "step", 1.0, 1234.0),
        ("loss", "step", 1.0, 0.5),
        ("loss", "step", 4.0, 1.0),
    ]
    assert len(each.problems) == 3


def test_problems_are_counted_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"junk\n" * 1000)
    batch = open_reader("jsonl", str(path)).read()
    assert (len(batch.problems), batch.problem_count) == (PROBLEMS, 1000)
    assert batch.problems[3] == (str(path), 15, "not a JSON object")
