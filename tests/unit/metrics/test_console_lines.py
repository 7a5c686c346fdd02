"""Every line format: lines that it reads, and text that no format may take for a curve."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import BY_NAME, ConsoleRow, FormatChooser, split_rank_prefix
from rgt_box.metrics.console_formats import FORMATS

STATEFUL = ("keras", "lightning-rich", "ray-tune", "ultralytics")
NAN = float("nan")
FAIRSEQ = "2026-01-01 10:00:00 | INFO | "
HUGGING_FACE_RUN = "{'train_runtime': '0.19', 'train_samples_per_second': '802.7', 'train_loss': '3.9', 'epoch': '0.8'}"


def read(name: str, *lines: str) -> list[ConsoleRow]:
    """Feed lines to one format alone."""
    state: dict[str, Any] = {}
    rows: list[ConsoleRow] = []
    for line in lines:
        rows += BY_NAME[name].parse(split_rank_prefix(line.encode())[1], state)
    flush = BY_NAME[name].flush
    return rows + (flush(state) if flush else [])


def who(line: str) -> str:
    """Name the format that takes a line first."""
    found = FormatChooser()._try_formats(*split_rank_prefix(line.encode()))
    return "" if found is None else found[0].name


@pytest.mark.parametrize(
    "each", [f for f in FORMATS if f.name not in STATEFUL], ids=lambda each: each.name
)
def test_a_sample_belongs_to_its_own_format_only(each: Any) -> None:
    assert any(hint in each.sample.lower() for hint in each.hints)
    assert who(each.sample) == each.name


LINES = [
    (
        "rgt",
        "step 652  epoch 2  loss 1.7102  lr 2.9e-04  gnorm 0.81  41.2k tok/s",
        652,
        "loss",
        1.7102,
    ),
    (
        "rgt",
        "step 652  epoch 2  loss 1.7102  lr 2.9e-04  gnorm 0.81  41.2k tok/s",
        652,
        "tok_s",
        41200.0,
    ),
    ("rgt", "step 7  epoch 1  loss nan  lr 1.0e-04  950 img/s", 7, "loss", NAN),
    ("generic", "iter 0: loss 10.9893, time 30512.11ms, mfu -100.00%", 0, "mfu", -100.0),
    ("generic", "iter 3: loss inf, time 1.0ms", 3, "loss", math.inf),
    ("generic", "step 250: train loss 3.1200, val loss nan", 250, "val_loss", NAN),
    (
        "generic",
        "step 00001 (0.56%) | loss: 5.1 | lrm: 1.00 | tok/sec: 1,023,456 |",
        1,
        "tok/sec",
        1023456.0,
    ),
    ("generic", "Step 02000 | CORE metric: 0.1234", 2000, "CORE metric", 0.1234),
    (
        "megatron",
        " iteration  5/  9 | lm loss: 6.5E+00 | loss scale: 1.0 | grad norm: nan |",
        5,
        "grad norm",
        NAN,
    ),
    ("megatron", " iteration  5/  9 | number of nan iterations:   1 |", 5, "lm loss", NAN),
    (
        "megatron",
        " validation loss at iteration 20 | lm loss value: 3.12E+00 | lm loss PPL: 2.2E+01 | ",
        20,
        "lm loss validation",
        3.12,
    ),
    (
        "generic",
        "x - \x1b[31mstep:  1  \x1b[32mloss: nan  \x1b[34mtps: 1,234\x1b[39m",
        1,
        "tps",
        1234.0,
    ),
    ("generic", "validate step: 10  loss:  8.1  tps: 1,234", 10, "validate/loss", 8.1),
    ("generic", "Step 2 | loss:2.1 lr:4e-05 tokens_per_second_per_gpu:1250.1", 2, "lr", 4e-5),
    (
        "generic",
        "d2 INFO:  eta: 0:12:34  iter: 19  total_loss: nan  lr: 0.0004  max_mem: 5432M",
        19,
        "lr",
        4e-4,
    ),
    (
        "fairseq",
        FAIRSEQ + "train | epoch 001 | loss 4.2 | num_updates 42 | lr 0.1",
        42,
        "loss_epoch",
        4.2,
    ),
    (
        "fairseq",
        FAIRSEQ + "valid | epoch 001 | valid on 'valid' subset | loss 3.9 | num_updates 42",
        42,
        "valid_loss",
        3.9,
    ),
    (
        "fairseq",
        FAIRSEQ + 'train_inner | {"epoch": 1, "loss": "12.5", "num_updates": "100"}',
        100,
        "loss",
        12.5,
    ),
    (
        "fairseq",
        FAIRSEQ + 'valid | {"valid_loss": "3.5", "valid_num_updates": "9"}',
        9,
        "valid_loss",
        3.5,
    ),
    (
        "generic",
        "(TaskRunner pid=9) step:3 - actor/pg_loss:nan - a/b:np.float64(0.41)",
        3,
        "a/b",
        0.41,
    ),
    ("generic", "Global step 5: {'policy_loss': 0.0123, 'kl': nan}", 5, "kl", NAN),
    (
        "generic",
        "steps: 10 loss: 2.1234 iter time (s): 0.512 samples/sec: 15.6",
        10,
        "samples/sec",
        15.6,
    ),
    (
        "generic",
        "[x] [Rank 0] step=10, skipped=0, lr=[0.0001], mom=[(0.9, 0.999)]",
        10,
        "lr",
        1e-4,
    ),
    (
        "mmengine",
        "mmengine - INFO - Iter(train) [  100/40000]  lr: 1e-2  loss: 0.5",
        100,
        "loss",
        0.5,
    ),
    (
        "mmengine",
        "mmdet - INFO - Epoch [2][50/7330]\tlr: 1.9e-03, eta: 4:53:03, loss: 1.2",
        7380,
        "loss",
        1.2,
    ),
    (
        "generic",
        "Epoch: [1][ 10/100]\tTime  0.5 ( 0.6)\tLoss 6.9e+00 (7.0)",
        10,
        "loss",
        6.9,
    ),
    (
        "generic",
        "Train: 0 [  50/1251 (  4%)]  Loss: 6.95 (6.96)  LR: 1.0e-06",
        50,
        "lr",
        1e-6,
    ),
    (
        "lightning",
        "Epoch 2:  40%|██  | 4/10 [00:00<00:00, 4.1it/s, v_num=2, x_loss=0.485]",
        24,
        "x_loss",
        0.485,
    ),
    (
        "lightning",
        "Epoch 2/3:  40%|██  | 4/10 [00:00<00:00, 4.1it/s, loss=0.485]",
        14,
        "loss",
        0.485,
    ),
    (
        "tqdm",
        "steps: 10%|# | 30/300 [00:00<00:05, 48it/s, avr_loss=0.3, lr=1e-4]",
        30,
        "avr_loss",
        0.3,
    ),
    ("tqdm", " 10%|# | 3.0k/30.0k [00:00<?, 2.1s/it, loss: nan]", 3000, "loss", NAN),
    ("tqdm", "1|5|Loss: 2.41:   0%|  | 5/1000 [00:00<00:00, 28807.03it/s]", 5, "loss", 2.41),
    ("tqdm", "loss: 0.25: 12it [00:03, 4.0it/s]", 12, "loss", 0.25),
    ("generic", "iter 100: loss 1.5", 100, "loss", 1.5),
    ("generic", "loss=1.23 step=1,200 lr=3e-4", 1200, "lr", 3e-4),
    ("generic", "[train] Step [100/600], Training loss: NaN", 100, "train_loss", NAN),
    ("generic", "Epoch [2/5], Step [100/600], Loss: 0.5", 700, "loss", 0.5),
]


@pytest.mark.parametrize(
    ("name", "line", "step", "tag", "value"), LINES, ids=lambda each: str(each)[:40]
)
def test_a_line_is_read(name: str, line: str, step: int, tag: str, value: float) -> None:
    rows = read(name, line)
    assert [row.step for row in rows] == [step]
    assert rows[0].values[tag] == pytest.approx(value, nan_ok=True)
    assert who(line) == name


@pytest.mark.parametrize(
    ("line", "epochs", "steps", "totals"),
    [
        ("Epoch [{}/5], Step [100/600], Loss: 0.5", (1, 2, 5), [100, 700, 2500], [3000] * 3),
        ("Epoch [{}/5], Step [100/600], Loss: 0.5", (0, 1, 4), [100, 700, 2500], [3000] * 3),
        ("Epoch: {}/1 | batch 100/600 | loss 0.5", (0, 1), [100, 700], [600, 0]),
        ("Epoch [{}/5], Step [100/600], Loss: 0.5", (3,), [1300], [3000]),
        ("Epoch [{}/5], Step [601/600], Loss: 0.5", (2,), [601], [0]),
        ("step {}/600 loss 0.5", (599, 600), [599, 600], [600, 600]),
        ("step {}/600 loss 0.5", (300, 600, 300, 600), [300, 600, 300, 600], [600, 600, 0, 0]),
        ("step {}/600 loss 0.5", (600, 601), [600, 601], [600, 0]),
        ("epoch {} step 100/600 loss 0.5", (0, 1), [100, 700], [0, 0]),
        ("epoch {} step 100 loss 0.5", (0, 1), [100, 100], [None, None]),
    ],
)
def test_a_step_within_an_epoch_is_counted_on_from_epoch_0_or_1(
    line: str, epochs: tuple[int, ...], steps: list[int], totals: list[int | None]
) -> None:
    rows = read("generic", *map(line.format, epochs))
    assert ([row.step for row in rows], [row.total for row in rows]) == (steps, totals)


def test_lines_that_stand_at_an_epoch_or_at_samples() -> None:
    (row,) = read("generic", "Epoch 3: val loss 0.25")
    assert (row.x_position(), row.values) == (("epoch", 3.0), {"val_loss": 0.25})
    (row,) = read("generic", "Train Epoch: 2 [640/60000 (1%)]\tLoss: 2.297")
    assert (row.x_position(), row.values) == (("samples", 60640), {"loss": 2.297})
    header = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size"
    frame = "        2/3      1.2G     0.5      13.5          4         64: 100% ━━━━━━━━━━━━ 2/2 5.3it/s 0.4s"
    assert read("ultralytics", frame) == []
    (row,) = read("ultralytics", header, frame)
    assert row.x_position() == ("epoch", 2.0)
    assert row.values == {"train/box_loss": 0.5, "train/cls_loss": 13.5, "train/loss": 14.0}


def test_transformers_needs_a_loss_and_hides_no_nan() -> None:
    (row,) = read("hf", "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9e-05, 'epoch': 0.5}")
    assert math.isnan(row.values["loss"])
    assert row.x_position() == ("epoch", 0.5)
    assert read("hf", HUGGING_FACE_RUN) == []
    assert read("hf", "config = {'epoch': 3, 'batch_size': 8, 'loss': 'mse'}") == []
    (row,) = read(
        "llamafactory", "callbacks:143 >> {'loss': 3.8, 'epoch': 0.10, 'throughput': 7257.13}"
    )
    assert row.values["throughput"] == 7257.13


def test_transformers_takes_its_step_from_the_bar_that_follows() -> None:
    bar = " 12%|█▎        | {}/40 [00:00<00:00, 181.82it/s]"
    loss = "{{'loss': '3.9', 'epoch': '{}'}}"
    rows = read(
        "hf", bar.format(0), loss.format(0.1), bar.format(5), loss.format(0.2), bar.format(10)
    )
    assert [(row.step, row.epoch) for row in rows] == [(5, 0.1), (10, 0.2)]
    # Two dictionaries in a row: stdout is buffered, no bar belongs to either.
    rows = read(
        "hf", bar.format(0), loss.format(0.1), loss.format(0.2), bar.format(12), loss.format(0.3)
    )
    assert [(row.step, row.epoch) for row in rows] == [(None, 0.1), (None, 0.2), (None, 0.3)]
    # The bar of an evaluation has another total.
    other = " 33%|███| 1/3 [00:00<00:00, 9.1it/s]"
    rows = read("hf", bar.format(0), loss.format(0.1), other, bar.format(5))
    assert [row.step for row in rows] == [5]


def test_keras_takes_the_last_frame_of_an_epoch_and_no_evaluation() -> None:
    rows = read(
        "keras",
        "Epoch 4/5",
        " 10/100 [==>...........................] - ETA: 1s - loss: 0.9",
        "100/100 [==============================] - 2s 20ms/step - loss: 0.5",
        "100/100 [==============================] - 2s 20ms/step - loss: 0.5 - val_loss: 0.7",
        "30/30 [==============================] - 0s 1ms/step - loss: 9.9",
    )
    assert [(row.x_position(), row.values["loss"]) for row in rows] == [
        (("epoch", 4.0), 0.5),
        (("epoch", 4.0), 0.5),
    ]
    assert rows[-1].values["val_loss"] == 0.7
    assert read("keras", "30/30 - 0s - 1ms/step - loss: 9.9") == []


def test_the_validation_of_mmengine_stands_at_the_last_training_iteration() -> None:
    rows = read(
        "mmengine",
        "Epoch(train) [1][15/15]  lr: 1.0e-02  eta: 0:00:00  loss: 0.15",
        "Epoch(val) [1][ 5/15]    eta: 0:00:00  time: 0.0012  data_time: 0.0010",
        "Epoch(val) [1][15/15]    acc: 15.0  loss: 0.7  data_time: 0.0004  time: 0.0005",
    )
    assert [row.step for row in rows] == [15, 15]
    assert rows[1].values["val/loss"] == 0.7
    assert "eta" not in rows[0].values


def test_a_bar_counts_on_over_epochs_and_begins_anew_after_a_restart() -> None:
    bar = "{0}%|█| {0}/100 [00:00<00:00, 9it/s, loss=0.5]"
    rows = read("tqdm", *[bar.format(n) for n in (50, 100, 20, 100, 10, 5)])
    assert [row.step for row in rows] == [50, 100, 120, 200, 210, 5]


def bars(desc: str, epochs: range, total: int = 10, post: str = "") -> list[str]:
    """The last drawn state of a bar per epoch."""
    return [
        f"{desc.format(n)}: 100%|█| {total}/{total} [00:00<00:00, 9it/s, loss=0.5{post}]"
        for n in epochs
    ]


@pytest.mark.parametrize(
    ("lines", "steps", "totals"),
    [
        (bars("Epoch {}", range(1, 4)), [10, 20, 30], [0, 0, 0]),
        (bars("Epoch {}", range(3)), [10, 20, 30], [0, 0, 0]),
        (bars("Epoch {}/3", range(1, 4)), [10, 20, 30], [30, 30, 30]),
        (bars("Epoch {} of 3", range(1, 4)), [10, 20, 30], [30, 30, 30]),
        (bars("Epoch {} / 3", range(1, 4)), [10, 20, 30], [30, 30, 30]),
        (bars("Epoch [{}/3]", range(1, 4)), [10, 20, 30], [30, 30, 30]),
        (bars("Epoch {}/3", range(3)), [10, 20, 30], [30, 30, 30]),
        (bars("Epoch {}/3", range(2, 5)), [20, 30, 40], [30, 30, 0]),
        (bars("Epoch {}", range(1, 3), post=", v_num=2"), [20, 30], [0, 0]),
        (bars("Epoch {}", range(2, 4)), [30, 40], [0, 0]),
        (bars("Epoch {}", range(1, 3)) + bars("Epoch {}", range(2)), [10, 20, 10, 20], [0] * 4),
    ],
)
def test_epochs_of_bars_count_on_from_the_first_one(
    lines: list[str], steps: list[int], totals: list[int]
) -> None:
    rows = read("lightning", *lines)
    assert ([row.step for row in rows], [row.total for row in rows]) == (steps, totals)


def test_the_total_of_a_bar_is_known_until_it_begins_anew() -> None:
    bar = "{0}%|█| {0}/100 [00:00<00:00, 9it/s, loss=0.5]"
    assert [row.total for row in read("tqdm", *[bar.format(n) for n in (50, 100, 20)])] == [
        100,
        100,
        0,
    ]
    assert [row.total for row in read("tqdm", "7it [00:00, 9it/s, loss=0.5]")] == [0]


def test_the_trainers_bar_tells_the_total_with_the_step() -> None:
    bars = [f"  {n}%|█| {n}/40 [00:00<00:00, 9it/s]" for n in (4, 5)]
    (row,) = read("hf", bars[0], "{'loss': 1.5, 'learning_rate': 1e-4, 'epoch': 0.5}", bars[1])
    assert (row.step, row.total) == (5, 40)


def test_a_bar_repeats_an_evaluation_that_is_shown_once() -> None:
    bar = "Epoch 0: 10%|█| {}/10 [00:00<00:00, 9it/s, loss=0.5, val_loss={}]"
    check = "Validation DataLoader 0: 100%|█| 2/2 [00:00<00:00, 9it/s]"
    rows = read("lightning", bar.format(1, 0.7), bar.format(2, 0.7), check, bar.format(3, 0.7))
    assert ["val_loss" in row.values for row in rows] == [True, False, True]


PROSE = [
    "batch size 524,288 => gradient accumulation steps: 8",
    "no loss spikes in the last 100 steps",
    "lossless compression at step 3 is on",
    "loss scale: 65536.0 at iteration 12",
    "Loading checkpoint shards: 100%|██████████| 2/2 [00:01<00:00, 1.2it/s]",
    "Map: 40%|████      | 400/1000 [00:01<00:02, 300.1 examples/s, loss=1]",
    "model.safetensors:  40%|████      | 400M/1.0G [00:01<00:02, 300MB/s]",
    "Validation DataLoader 0:  40%|████      | 4/10 [00:00<00:00, 4.1it/s, loss=0.4]",
    "{'epoch': 3, 'lr': 0.1}",
    "Epoch 3 begins, 10 batches, the loss function is MSELoss",
    "step 12 of the tutorial: install version 2.0",
    "2026-01-01 10:00:00 | INFO | fairseq.trainer | begin training epoch 1",
    "iteration 12 | nothing here",
    "Epoch(val) [1][ 5/15]    eta: 0:00:00  time: 0.0012  data_time: 0.0010",
    "[Rank 0] DeepSpeed info: step=now, loss unknown",
    "Saving model checkpoint to out/checkpoint-500",
    "Traceback (most recent call last):",
    '  File "train.py", line 100, in step',
    "loss 1.23",
    "iter 100: 50.0% done",
    "",
]


@pytest.mark.parametrize("line", PROSE)
def test_text_is_no_curve(line: str) -> None:
    chooser = FormatChooser()
    rows = [
        row for _ in range(5) for row in chooser.parse_piece(*split_rank_prefix(line.encode()))[0]
    ]
    assert rows + chooser.flush_formats() == []


def test_the_prefix_of_a_rank_stands_apart() -> None:
    assert split_rank_prefix(b"[default0]:iter 1") == ("default0", "iter 1")
    assert split_rank_prefix(b"(Worker pid=12, ip=10.0.0.1) x") == (
        "(Worker pid=12, ip=10.0.0.1)",
        "x",
    )
    assert split_rank_prefix(b"3: step") == ("3", "step")
    assert split_rank_prefix(b"\x1b[1m12\x1b[0m\x08\x08 \xff") == ("", "12 \ufffd")
    assert split_rank_prefix(b"12:30 step") == ("", "12:30 step")


def test_every_format_is_documented_and_says_where_it_was_seen() -> None:
    text = (Path(__file__).parents[3] / "docs" / "scalars.md").read_text()
    named = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", text, re.M)
        for name in re.findall(r"`([^`]+)`", row)
    }
    assert {each.name for each in FORMATS} <= named
    assert all(each.seen and each.sample for each in FORMATS)
    assert len(BY_NAME) == len(FORMATS)
