"""A file that grows by random slices gives the same points as the whole file: no gap, no duplicate, at any byte."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rgt_box.metrics import open_reader

from tests.unit.metrics import makers
from tests.unit.metrics.makers import FIXTURES, Follower

Y = st.one_of(st.floats(width=32), st.just(0.0))
STEPS = st.integers(min_value=0, max_value=40)
TAGS = st.sampled_from(["train/loss", "train/grad_norm", "eval/loss", "lr", "µ/😀"])
CUTS = st.lists(st.floats(min_value=0, max_value=1), max_size=12)
QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def whole_and_sliced(
    kind: str, data: bytes, cuts: list[float], limit: int
) -> tuple[Follower, Follower]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "file")
        make = functools.partial(open_reader, kind, str(path))
        sliced = Follower(make, limit)
        sliced.poll()
        places = [*sorted({int(cut * len(data)) for cut in cuts}), len(data)]
        done = 0
        with path.open("ab", buffering=0) as file:
            for place in places:
                file.write(data[done:place])
                done = place
                sliced.poll()
        whole = Follower(make, 10**9)
        whole.poll()
        return whole, sliced


def same(kind: str, data: bytes, cuts: list[float], limit: int) -> Follower:
    whole, sliced = whole_and_sliced(kind, data, cuts, limit)
    assert sliced.points == whole.points
    assert {key: (each.xs, each.breaks) for key, each in sliced.store.series.items()} == {
        key: (each.xs, each.breaks) for key, each in whole.store.series.items()
    }
    return whole


def word(y: float) -> Any:
    return y if y == y and abs(y) != float("inf") else str(y)


@QUICK
@given(
    st.lists(
        st.one_of(
            st.dictionaries(TAGS, Y, max_size=3).flatmap(
                lambda row: STEPS.map(
                    lambda step: json.dumps(
                        {"step": step, **{key: word(y) for key, y in row.items()}}
                    ).encode()
                )
            ),
            st.binary(max_size=30).map(lambda junk: junk.replace(b"\n", b" ")),
            STEPS.map(lambda step: b'{"event": "resume", "step": %d, "reason": "SIGTERM"}' % step),
        ),
        max_size=30,
    ),
    CUTS,
    st.integers(min_value=1, max_value=20),
    st.sampled_from(["rgt", "jsonl"]),
)
def test_json_lines(lines: list[bytes], cuts: list[float], limit: int, kind: str) -> None:
    same(kind, b"".join(line + b"\n" for line in lines) + b'{"step": 1, "torn', cuts, limit)


@QUICK
@given(
    st.lists(st.tuples(STEPS, Y, st.booleans()), max_size=40),
    CUTS,
    st.integers(min_value=1, max_value=20),
    st.sampled_from(["csv", "lightning", "deepspeed"]),
)
def test_tables(
    rows: list[tuple[int, float, bool]], cuts: list[float], limit: int, kind: str
) -> None:
    header = "epoch,step,loss,late/key\r\n"
    text = header
    for step, y, sparse in rows:
        text += header if step == 13 else f"{'' if sparse else step // 9},{step},{y!r},\r\n"
    same(kind, text.encode() + b"1,2", cuts, limit)


@QUICK
@example(  # a session that starts again while a zero is held
    records=[
        ("train/loss", 0, 0.0), ("train/grad_norm", 1, 0.0), ("train/loss", 0, 0.0), 1,
        ("eval/loss", 1, 0.0), ("train/grad_norm", 28, 0.0),
    ],
    cuts=[0.75],
    limit=13,
)  # fmt: skip
@given(
    records=st.lists(st.one_of(st.tuples(TAGS, STEPS, Y), STEPS), max_size=40),
    cuts=CUTS,
    limit=st.integers(min_value=1, max_value=20),
)
def test_event_files(
    records: list[tuple[str, int, float] | int], cuts: list[float], limit: int
) -> None:
    data = makers.scalars()
    for record in records:
        if isinstance(record, int):
            data += makers.tfrecord(makers.number(2, record) + makers.blob(7, makers.number(1, 1)))
        else:
            tag, step, y = record
            data += makers.tfrecord(makers.event(step, makers.simple(tag, y)))
    same("tensorboard", data + makers.scalars()[:20], cuts, limit)


@QUICK
@given(
    st.lists(
        st.tuples(STEPS, Y, st.sampled_from([0, 0, 0, 9000, 40000, 70000]), st.booleans()),
        max_size=20,
    ),
    CUTS,
    st.integers(min_value=1, max_value=20),
)
def test_wandb_files(
    rows: list[tuple[int, float, int, bool]], cuts: list[float], limit: int
) -> None:
    records = []
    for index, (step, y, filling, own) in enumerate(rows):
        row: dict[str, Any] = {"_step": index, "loss": y, "text": "x" * filling}
        if own:
            row["train/global_step"] = step
        records.append(makers.history(row))
        records.append(makers.blob(17, bytes(filling)))
    same("wandb", makers.wandb_file(records) + b"torn", cuts, limit)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tensorboard", "tensorboard/torch_mixed_old_new_style.tfevents"),
        ("tensorboard", "tensorboard/tf2_events.out.tfevents.v2"),
        ("lightning", "lightning/metrics_v0.csv"),
        ("mmengine", "mmengine/by_epoch.json"),
        ("wandb", "wandb/history_nan.wandb"),
        ("mlflow_files", "mlflow/metrics/train/loss"),
        ("torchtune", "typed/torchtune_log.txt"),
    ],
)
def test_samples_byte_by_byte_or_nearly(kind: str, name: str) -> None:
    data = (FIXTURES / name).read_bytes()
    pace = max(1, len(data) // 400)
    cuts = [place / len(data) for place in range(0, len(data), pace)]
    assert same(kind, data, cuts, 3).points


@given(
    st.binary(max_size=300),
    st.sampled_from(["rgt", "csv", "lightning", "torchtune", "mlflow_files"]),
)
@QUICK
def test_junk_is_no_error(data: bytes, kind: str) -> None:
    whole, sliced = whole_and_sliced(kind, data, [0.3, 0.6], 3)
    assert whole.points == sliced.points


@given(st.data(), st.sampled_from(["tensorboard", "wandb"]))
@QUICK
def test_damage_in_the_middle_costs_at_most_what_it_hit(data: st.DataObject, kind: str) -> None:
    rows = [("loss", step, float(step)) for step in range(60)]
    if kind == "tensorboard":
        body = makers.scalars(*rows)
    else:
        body = makers.wandb_file(
            [makers.history({"_step": step, "loss": y}) for _, step, y in rows]
        )
    at = data.draw(st.integers(min_value=8, max_value=len(body) - 1))
    broken = (
        body[:at]
        + bytes([body[at] ^ data.draw(st.integers(min_value=1, max_value=255))])
        + body[at + 1 :]
    )
    whole, _ = whole_and_sliced(kind, broken, [], 10)
    good = [point for point in whole.points if point[2] == point[3]]
    assert len(good) == len(whole.points)
    if kind == "tensorboard":
        assert len(good) >= 58 or at > len(body) - 120
