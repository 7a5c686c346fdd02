"""Real consoles through the reader: points, cursors, cuts at any byte, and text that is nothing at all."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rgt_box.metrics import ConsoleReader, ConsoleRow, SeriesStore, read_all
from rgt_box.metrics.console_formats import FORMATS

FIXTURES = Path(__file__).parents[2] / "fixtures" / "scalars" / "console"
NAN = float("nan")

SAMPLES = [
    ("deepspeed_console.log", "generic", "loss", "step", 1, 10, 2.1234),
    ("detectron2_log.txt", "generic", "total_loss", "step", 1, 19, 1.234),
    ("hf_trainer_buffered.log", "hf", "loss", "epoch", 8, 0.8, 3.906),
    ("hf_trainer_unbuffered.log", "hf", "loss", "step", 8, 40, 3.904),
    ("hf_trainer_unbuffered.log", "hf", "eval_loss", "step", 2, 40, 3.894),
    ("hf_v4_console.log", "hf", "loss", "epoch", 2, 0.5, NAN),
    ("keras_verbose1.log", "keras", "val_loss", "epoch", 3, 3, 7.8542),
    ("keras_verbose2_nan.log", "keras", "loss", "epoch", 3, 3, NAN),
    ("lightning_rich.log", "lightning-rich", "val_loss", "step", 1, 30, 0.122),
    ("lightning_tqdm.log", "lightning", "train_loss", "step", 30, 30, 0.365),
    ("lightning_tqdm.log", "lightning", "val_loss", "step", 3, 30, 0.224),
    ("megatron.log", "megatron", "lm loss", "step", 2, 200, NAN),
    ("megatron.log", "megatron", "lm loss validation", "step", 1, 200, 3.123456),
    ("mmengine.log", "mmengine", "loss", "step", 6, 30, 0.1063),
    ("mmengine.log", "mmengine", "acc", "step", 2, 30, 15.0),
    ("nanochat.log", "generic", "loss", "step", 2, 120, 5.123456),
    ("nanogpt.log", "generic", "loss", "step", 2, 10, 9.4102),
    ("nanogpt.log", "generic", "val_loss", "step", 2, 250, NAN),
    ("openrlhf_console.log", "generic", "policy_loss", "step", 1, 5, 0.0123),
    ("torchrun.log", "tqdm", "loss", "step", 1, 2, 1.2),
    ("torchtitan.log", "generic", "loss", "step", 1, 1, 12.2538),
    ("torchtitan.log", "generic", "validate/loss", "step", 1, 10, 8.1234),
    ("torchtune_log.txt", "generic", "lr", "step", 2, 2, 4e-5),
    ("tqdm_postfix.log", "tqdm", "avr_loss", "step", 16, 300, 0.01),
    ("ultralytics.log", "ultralytics", "train/box_loss", "epoch", 3, 3, 0.03417),
]


def curves(store: SeriesStore) -> str:
    return repr([(key, s.xs, s.ys, s.breaks, s.segment) for key, s in sorted(store.series.items())])


@pytest.mark.parametrize(("file", "name", "tag", "kind", "count", "x", "y"), SAMPLES)
def test_a_real_console_is_read(
    file: str, name: str, tag: str, kind: str, count: int, x: float, y: float
) -> None:
    reader = ConsoleReader(str(FIXTURES / file), ended=True)
    store, problems = read_all(reader)
    assert (reader.source, problems) == ("console:" + name, [])
    series = store.series["", tag, kind]
    assert len(series.xs) == count
    assert (series.xs[-1], series.ys[-1]) == pytest.approx((x, y), nan_ok=True)
    assert series.segment == 0


@pytest.mark.parametrize("file", sorted({sample[0] for sample in SAMPLES}))
def test_every_sample_is_tested_and_read_alike_at_any_limit(file: str) -> None:
    path = str(FIXTURES / file)
    whole, _ = read_all(ConsoleReader(path))
    assert curves(read_all(ConsoleReader(path), limit=1)[0]) == curves(whole)


def test_no_fixture_is_forgotten() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == {sample[0] for sample in SAMPLES}


def pieces_of(data: bytes, cuts: list[int], path: Path) -> SeriesStore:
    """Read a file that grows to each of `cuts`, by a new reader every time, with a cursor that went over the wire."""
    store, cursor = SeriesStore(), None
    for end in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:end]) if cursor is None else path.open("r+b").write(data[:end])
        while True:
            batch = ConsoleReader(str(path)).read(cursor, 7)
            store.apply_batch(batch)
            assert not batch.problems
            cursor = json.loads(json.dumps(batch.cursor, allow_nan=False))
            if not batch.more:
                break
    return store


@pytest.mark.parametrize("file", sorted({sample[0] for sample in SAMPLES}))
def test_a_cut_at_any_byte_gives_the_same_points(file: str, tmp_path: Path) -> None:
    data = (FIXTURES / file).read_bytes()
    whole = curves(read_all(ConsoleReader(str(FIXTURES / file)))[0])
    for n in range(0, len(data), max(1, len(data) // 40)):
        path = tmp_path / str(n)
        assert curves(pieces_of(data, [n, min(len(data), n + 333)], path)) == whole


WORDS = st.sampled_from(
    [each.sample for each in FORMATS]
    + [
        "step",
        "iter ",
        "loss ",
        "loss: ",
        "nan",
        "1,234",
        "5",
        "5/9",
        " ",
        "=",
        ":",
        "|",
        "%|",
        "[",
        "]",
        "\r",
        "\n",
    ]
    + [
        "Epoch 1/3\n",
        "'epoch'",
        "{'loss': 1, 'epoch': 2}",
        "[default0]:",
        "\x1b[1m",
        "\x08",
        "é",
        "━",
        "\x00",
    ]
)
TEXT = st.lists(WORDS | st.text(max_size=20), max_size=40).map("".join)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=TEXT | st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=3))
def test_no_text_is_an_error_and_no_cut_matters(
    text: str | bytes, cuts: list[int], tmp_path: Path
) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    path = tmp_path / "console.log"
    path.write_bytes(data)
    store, problems = read_all(ConsoleReader(str(path), ended=True))
    assert problems == []
    assert all(math.isfinite(x) for series in store.series.values() for x in series.xs)
    # Once a format is chosen (the end of a file forces a choice), it does not matter where the file was cut.
    data = b"".join(b"iter %d: loss 2.5, time 1.0ms\n" % n for n in (1, 2, 3)) + data
    path.write_bytes(data)
    whole = curves(read_all(ConsoleReader(str(path)))[0])
    path.unlink()
    assert curves(pieces_of(data, [min(len(data), 40 + cut) for cut in cuts], path)) == whole


@settings(max_examples=200, deadline=None)
@given(line=TEXT)
def test_no_line_is_too_much_for_any_format(line: str) -> None:
    for each in FORMATS:
        state: dict[str, object] = {}
        for _ in range(2):
            for row in each.parse(line, state):
                assert row.values
                assert (
                    ConsoleRow.from_json_values(
                        json.loads(json.dumps(row.to_json_values(), allow_nan=False))
                    )
                    == row
                )
        json.dumps(state, allow_nan=False)


NASTY = [
    "1",
    "a",
    " ",
    "1 ",
    "step 1 ",
    "iter: 1  ",
    "%|",
    "'a': ",
    "loss ",
    "loss: 1 ",
    "1,234",
    "| ",
    "\x1b[1",
    "━",
    "(",
    "Epoch 1/",
]


@pytest.mark.parametrize("unit", NASTY)
def test_a_line_of_a_megabyte_is_no_trouble(unit: str, tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    starts = [
        "",
        "step 1 loss: ",
        "{'epoch'",
        " 5%|",
        "iteration 5/9 | ",
        "step:1 - a",
        "epoch global step 1: {",
    ]
    lines = [start + unit * ((1 << 20) // len(unit)) for start in starts]
    path.write_text(
        "\n".join([*lines, *[f"iter {n}: loss 2.5, time 1.0ms" for n in (1, 2, 3)], ""])
    )
    store, problems = read_all(ConsoleReader(str(path)))
    assert problems == []
    assert store.series["", "loss", "step"].xs[-3:] == [1.0, 2.0, 3.0]


def test_a_replaced_or_shortened_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("".join(f"iter {n}: loss 2.5, time 1.0ms\n" for n in range(10)))
    first = ConsoleReader(str(path)).read()
    assert [point.x for point in first.points if point.tag == "loss"] == list(range(10))
    path.write_text("step 3  epoch 1  loss 7.5\n")
    second = ConsoleReader(str(path)).read(first.cursor)
    assert second.reset
    assert [(point.x, point.y) for point in second.points if point.tag == "loss"] == [(3.0, 7.5)]


def test_a_partial_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("Step 1 | loss:2.5 lr:2e-05 tps:5\nStep 2 | loss:2.4 lr:2e-")
    batch = ConsoleReader(str(path)).read()
    assert {point.x for point in batch.points} == {1.0}
    with path.open("a") as file:
        file.write("05 tps:7\n")
    assert [(p.tag, p.x) for p in ConsoleReader(str(path)).read(batch.cursor).points] == [
        ("loss", 2.0),
        ("lr", 2.0),
        ("tps", 2.0),
    ]


def test_a_restart_in_the_same_log_is_a_segment_and_a_new_format_hides_what_it_overtakes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "console.log"
    lines = [f"step {n}  epoch 1  loss 2.5" for n in (10, 20, 30, 20, 40)]
    megatron = [f" iteration {n}/ 900 | loss: 1.5 | grad norm: 1.0 |" for n in range(35, 60)]
    path.write_text("\n".join([*lines, *megatron, ""]))
    reader = ConsoleReader(str(path))
    store, _ = read_all(reader)
    series = store.series["", "loss", "step"]
    assert series.xs == [10, 20, *range(35, 60)]
    assert series.segment == 2
    assert reader.source == "console:megatron"


def test_a_missing_file_and_a_directory_are_told(tmp_path: Path) -> None:
    assert ConsoleReader(str(tmp_path / "none")).read().problems
    assert ConsoleReader(str(tmp_path)).read().problems


ENVELOPES = {
    "kubectl --timestamps": "2026-05-06T10:00:0{n}.123456789Z {line}",
    "a pod's runtime": "2026-05-06T10:00:0{n}.123456789+00:00 stdout F {line}",
    "kubectl --prefix": "[pod/train-0-abcde/trainer] {line}",
    "compose": "trainer-1  | {line}",
    "journal": "May  6 10:00:0{n} box python3[4711]: {line}",
    "logger": "[2026-05-06 10:00:0{n},123] {line}",
    "torchrun": "[rank0]:{line}",
    "mpirun": "[1,0]<stdout>:{line}",
    "ray": "(Worker pid=12, ip=10.0.0.1) {line}",
}


def wrapped(data: bytes, envelope: str) -> bytes:
    """Put each line of a log into an envelope; a bar's states share their line's."""
    lines = data.decode().split("\n")
    return "\n".join(
        envelope.format(n=n % 10, line=line) if line else line for n, line in enumerate(lines)
    ).encode()


@pytest.mark.parametrize("where", [*ENVELOPES, "docker's json-file", "cloud logging"])
def test_a_console_inside_an_envelope_gives_the_same_curves(where: str, tmp_path: Path) -> None:
    for file in (
        "keras_verbose2_nan.log", "nanochat.log", "nanogpt.log", "torchtune_log.txt", "torchtitan.log",
        "detectron2_log.txt", "mmengine.log", "megatron.log",
    ):  # fmt: skip
        data = (FIXTURES / file).read_bytes()
        path = tmp_path / file
        path.write_bytes(data)
        plain = curves(read_all(ConsoleReader(str(path), ended=True))[0])
        if where in ENVELOPES:
            path.write_bytes(wrapped(data, ENVELOPES[where]))
        else:
            key = "log" if "docker" in where else "textPayload"
            rows = [
                json.dumps({key: line + "\n", "time": "2026-05-06T10:00:00.1Z"})
                for line in data.decode().split("\n")
            ]
            path.write_text("\n".join(rows) + "\n")
        assert curves(read_all(ConsoleReader(str(path), ended=True))[0]) == plain, file
