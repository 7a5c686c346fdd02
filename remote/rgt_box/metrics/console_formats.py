"""All line formats, in the order in which they are tried on a line.

The last one is a fallback for custom loops: a step (or an epoch) and a loss on one line.

It is only used after three lines with increasing positions, so that prose with both words does not
become a curve.
"""

from __future__ import annotations

import json
import re

from rgt_box.metrics.console_blocks import ANY_LINE
from rgt_box.metrics.console_lines import (
    HF,
    LIGHTNING,
    LLAMAFACTORY,
    NUM,
    TAKEN,
    TQDM,
    ConsoleRow,
    LineFormat,
    LineShape,
    colons,
    equals,
    parse_decimal,
    parse_piped_pairs,
    parse_step,
)
from rgt_box.metrics.rows import to_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rgt_wire import JsonObject

_MEGATRON_NAN = "number of nan iterations"


def _parse_megatron(line: str, _: JsonObject) -> list[ConsoleRow]:
    """Add the NaN loss that Megatron-LM leaves out: it only counts such iterations."""
    row = _ITERATION.parse_line(line)
    if row is None:
        row = _VALIDATION.parse_line(line)
        if row is None:
            return []
        return [row]
    # Megatron-LM prints no loss for an iteration whose loss is NaN: without this, the curve would
    # end with its last good value.
    if row.values.get(_MEGATRON_NAN, 0.0) > 0.0 and "lm loss" not in row.values:
        row.values["lm loss"] = float("nan")
    return [row]


_ITERATION = LineShape(
    r"\biteration\s{1,20}(?P<step>\d{1,15})\s{0,20}/\s{0,20}(?P<total>\d{1,15})\s{0,20}(?P<rest>\|.*)",
    parse_piped_pairs,
    names={"learning rate": "learning-rate"},  # same name as in its TensorBoard files
)
_VALIDATION = LineShape(
    r"\bvalidation.{0,40}? loss at iteration (?P<step>\d{1,15})(?: on \w{1,40} set)?\s{0,20}(?P<rest>\|.*)",
    parse_piped_pairs,
    names={"lm loss value": "lm loss validation", "lm loss PPL": "lm loss validation ppl"},
)

MEGATRON = LineFormat(
    "megatron",
    "Megatron-LM core 0.14",
    ("iteration",),
    " [2026-08-22 10:11:12.123456] iteration      100/  500000 | consumed samples:        25600 | "
    "learning rate: 1.500000E-04 | lm loss: 6.543210E+00 | loss scale: 1.0 | grad norm: 1.234 |",
    _parse_megatron,
)


_HEAD = r"\| epoch (?P<epoch>\d{1,9})(?: \| valid on '[^']{0,80}' subset)?"
_INNER = LineShape(
    r"\| train_inner " + _HEAD + r":\s{1,20}\d{1,15} / \d{1,15} (?P<rest>.*)",
    equals,
    step_key="num_updates",
)
_FAIRSEQ_EPOCH = LineShape(
    r"\| train " + _HEAD + r" (?P<rest>\| .*)", equals, step_key="num_updates"
)
_VALID = LineShape(
    r"\| valid\w{0,40} " + _HEAD + r"(?::\s{1,20}\d{1,15} / \d{1,15})? (?P<rest>\| .*)",
    equals,
    prefix="valid_",
    step_key="num_updates",
)
_JSON = re.compile(r"\| (train_inner|train|valid)\w{0,40} \| (\{.*\})\s*$")


def _parse_fairseq(line: str, _: JsonObject) -> list[ConsoleRow]:
    row = _INNER.parse_line(line) or _VALID.parse_line(line)
    if row is None:
        row = _mark_as_epoch_means(_FAIRSEQ_EPOCH.parse_line(line)) or _parse_fairseq_json(line)
    if row is None:
        return []
    return [row]


def _mark_as_epoch_means(row: ConsoleRow | None) -> ConsoleRow | None:
    """Rename the means over an epoch, so that they are not mixed with the per-step curve."""
    if row is not None:
        row.values = {tag + "_epoch": y for tag, y in row.values.items()}
    return row


def _parse_fairseq_json(line: str) -> ConsoleRow | None:
    """Read ``--log-format json``: every value is a string, and keys may include the split."""
    found = _JSON.search(line)
    if found is None:
        return None
    try:
        raw = json.loads(found.group(2))
    except (ValueError, RecursionError):
        return None
    split = found.group(1)
    values: dict[str, float] = {}
    for key, text in raw.items():
        value = to_number(text)
        if value is not None:
            values[key.partition("_")[2] if key.startswith(("train_", "valid_")) else key] = value
    updates = values.pop("num_updates", None)
    epoch = values.pop("epoch", None)
    if split == "valid":
        values = {"valid_" + tag: y for tag, y in values.items()}
    row = ConsoleRow(values, None if updates is None else parse_step(repr(updates)), epoch)
    if not values or not row.x_position():
        return None
    if split == "train":
        return _mark_as_epoch_means(row)
    return row


FAIRSEQ = LineFormat(
    "fairseq",
    "fairseq 0.12, --log-format simple and json",
    ("| train", "| valid"),
    "2026-01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 4212 loss=5.1, ppl=34.3, "
    "wps=9000, num_updates=100, lr=1.25e-05, gnorm=1.2, loss_scale=128",
    _parse_fairseq,
)

_RGT = re.compile(
    rf"^step (\d{{1,15}})  epoch (\d{{1,9}})  (loss {NUM}(?:  [a-z_]\w{{0,40}} {NUM})*)"
    r"(?:  ([\d.]{1,20})([kM]?) (\w{1,20})/s)?\s*$",
    re.I,
)
_RGT_PAIR = re.compile(rf"([A-Za-z_]\w{{0,40}}) ({NUM})", re.I)
_UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6}


def _parse_rgt(line: str, _: JsonObject) -> list[ConsoleRow]:
    found = _RGT.match(line)
    if found is None:
        return []
    step, epoch, pairs, rate, scale, unit = found.groups()
    values = {tag: float(text.replace(",", "")) for tag, text in _RGT_PAIR.findall(pairs)}
    if rate:
        speed = to_number(rate)
    else:
        speed = None
    if speed is not None:
        values[unit.lower() + "_s"] = speed * _UNITS[scale]
    return [ConsoleRow(values, int(step), float(epoch))]


RGT = LineFormat(
    "rgt",
    "rgt_train 0.1",
    ("step ",),
    "step 652  epoch 2  loss 1.7102  lr 2.9e-04  gnorm 0.81  41.2k tok/s",
    _parse_rgt,
)


_MM = re.compile(
    r"\b(Epoch|Iter)(?:\((train|val|test)\))?\s{0,4}\[\s{0,12}(\d{1,12})(?:/(\d{1,12}))?\]"
    r"(?:\[\s{0,12}(\d{1,12})/(\d{1,12})\])?\s{1,8}(.*)"
)
_MM_DROP = ("eta", "memory")
_MM_IDLE = ("time", "data_time")


def _parse_mmengine(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read one line; a validation, which counts its own batches, gets the last training step."""
    found = _MM.search(line)
    if found is None:
        return []
    unit, split, a, _, c, d, rest = found.groups()
    values = {tag: parse_decimal(text) for tag, text in colons(rest) if tag not in _MM_DROP}
    if split in ("val", "test"):
        # mmengine prints the loss of a validation under the name of the training's.
        values = {(f"{split}/{tag}" if "loss" in tag else tag): y for tag, y in values.items()}
        # The lines within a validation have only times: its results come with the last one.
        if all(tag in _MM_IDLE for tag in values):
            return []
        if unit == "Epoch":
            epoch = float(a)
        else:
            epoch = None
        rows = [ConsoleRow(values, state.get("step"), epoch)]
        return [row for row in rows if row.x_position()]
    if not any("loss" in tag for tag in values):
        return []
    # The summary of an epoch, without a batch: it has no step.
    if unit == "Epoch" and d is None:
        return []
    if unit == "Iter":
        step = int(a)
    else:
        # Epochs count from 1, iterations within an epoch too.
        step = max(0, int(a) - 1) * int(d) + int(c)
    if step >= 10**15:
        return []
    state["step"] = step
    return [ConsoleRow(values, step, float(a) if unit == "Epoch" else None)]


MMENGINE = LineFormat(
    "mmengine",
    "mmengine 0.10 LoggerHook; mmcv 1 TextLoggerHook",
    ("epoch", "iter"),
    "11/21 09:42:55 - mmengine - INFO - Epoch(train) [1][ 5/15]  lr: 1.0000e-02  eta: 0:00:00  "
    "time: 0.0025  grad_norm: 0.9749  loss: 0.1230",
    _parse_mmengine,
)

_YOLO = re.compile(
    rf"^\s{{1,20}}(\d{{1,9}})/(\d{{1,9}})\s{{1,20}}[\d.]{{1,20}}G?((?:\s{{1,20}}{NUM}){{3,20}})\s{{0,9}}:?",
    re.I,
)
_YOLO_HEADER = re.compile(r"^\s{1,20}Epoch\s{1,20}GPU_mem\s{1,20}(.{1,300})$", re.I)
_YOLO_LOSSES = ("box", "obj", "cls", "dfl", "seg", "pose", "total")
"""Names of losses in YOLOv5's columns; newer versions append ``_loss``."""
_YOLO_NUMBER = re.compile(NUM, re.I)
_YOLO_TABLE = re.compile(
    r"^\s{1,40}Class\s{1,40}Images\s{1,40}(?:Instances|Labels)\s{1,40}(.{1,400})$"
)
_YOLO_ALL = re.compile(
    rf"^\s{{1,40}}all(?:\s{{1,40}}\d{{1,15}}){{2}}((?:\s{{1,40}}{NUM}){{2,20}})\s*$", re.I
)


def _parse_ultralytics(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read a frame of the epoch's bar; the header line before it names the columns.

    The values are running means, so the last frame of an epoch counts.
    """
    header = _YOLO_HEADER.match(line)
    if header is not None:
        names = header.group(1).split()[:40]
        state["names"] = [f"{name}_loss" if name in _YOLO_LOSSES else name for name in names]
        return TAKEN
    table = _YOLO_TABLE.match(line)
    if table is not None:
        state["table"] = _validation_names(table.group(1))
        return TAKEN
    validated = _YOLO_ALL.match(line)
    if validated is not None and "table" in state and "epoch" in state:
        figures = map(parse_decimal, validated.group(1).split())
        return [ConsoleRow(dict(zip(state["table"], figures)), epoch=state["epoch"])]
    names = state.get("names", [])
    if names:
        found = _YOLO.match(line)
    else:
        found = None
    if found is None:
        return []
    # YOLO prints the parts of its loss, not their sum.
    losses = {
        "train/" + name: parse_decimal(text)
        for name, text in zip(names, _YOLO_NUMBER.findall(found.group(3)))
        if name.endswith("loss")
    }
    if not losses:
        return []
    state["epoch"] = float(found.group(1))
    return [
        ConsoleRow(
            dict(losses, **{"train/loss": round(sum(losses.values()), 8)}),
            epoch=state["epoch"],
            total=float(found.group(2)),
        )
    ]


def _validation_names(header: str) -> list[str]:
    """Return the columns of ``Box(P  R  mAP50  mAP50-95)`` by their names in ``results.csv``."""
    group, names = "", []
    for word in header.split()[:20]:
        kind, bracket, name = word.rpartition("(")
        if bracket:
            group = f"({kind[:1]})"
        if name not in ("P", "R") and not name.startswith("mAP"):
            break
        plain = {"P": "precision", "R": "recall"}.get(name, name.rstrip("):"))
        names.append(f"metrics/{plain}{group}")
    return names


ULTRALYTICS = LineFormat(
    "ultralytics",
    "Ultralytics 8.4",
    ("gpu_mem", "g ", " all ", "map50"),
    "        1/3         0G    0.03306      13.44          0          4         64: 100% "
    "━━━━━━━━━━━━ 2/2 5.3it/s",
    _parse_ultralytics,
)

_HEADLINE = re.compile(r"^Epoch (\d{1,9})/(\d{1,9})\s*$")
_FRAME = re.compile(r"^\s{0,9}(\d{1,12})/(\d{1,12}) (?:[━╸\[=>.\]]{1,100} |- )(.*)")


def _parse_keras(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read the epoch's last frame; earlier frames are running means.

    Later frames without validation results are not part of the epoch: ``evaluate`` draws the same
    bar.
    """
    headline = _HEADLINE.match(line)
    if headline is not None:
        epoch, total = map(int, headline.groups())
        state.update(epoch=epoch, epochs=total, done=False)
        return []
    found = _FRAME.match(line)
    if found is None:
        return []
    place = found.group(3).find("loss: ")
    if place < 0 or found.group(1) != found.group(2) or "epoch" not in state:
        return TAKEN
    values = {tag: parse_decimal(text) for tag, text in colons(found.group(3)[place:])}
    validated = any(tag.startswith("val_") for tag in values)
    if not values or (state["done"] and not validated):
        return TAKEN
    state["done"] = True
    return [ConsoleRow(values, epoch=float(state["epoch"]), total=float(state["epochs"]))]


KERAS = LineFormat(
    "keras",
    "Keras 3.15 verbose 1 and 2; Keras 2",
    ("epoch ", "loss: "),
    "8/8 - 1s - 126ms/step - loss: nan - mae: nan - val_loss: nan - val_mae: nan",
    _parse_keras,
)

_RICH = re.compile(r"^Epoch (\d{1,9})/\d{1,9} {1,4}[━╸╺]{1,200} (\d{1,12})/(\d{1,12}) ")
_RICH_VALUE = re.compile(rf"^ {{20,400}}([A-Za-z_][\w/.\-]{{0,80}}): ({NUM})\s*$", re.I)


def _parse_rich_bar(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read the rich bar's last state and the values below it; epochs count from 0."""
    frame = _RICH.match(line)
    if frame is not None:
        epoch, n, total = (int(group) for group in frame.groups())
        state["step"] = epoch * total + n
        return []
    if "step" in state:
        found = _RICH_VALUE.match(line)
    else:
        found = None
    if found is None:
        state.pop("step", None)
        return []
    if state["step"] >= 10**15:
        return []
    return [ConsoleRow({found.group(1): parse_decimal(found.group(2))}, state["step"])]


RICH = LineFormat(
    "lightning-rich",
    "lightning 2.6 RichProgressBar (drawn once, at the end, into a file)",
    ("━", ": "),
    "                                                               train_loss: 0.288",
    _parse_rich_bar,
)


_RESULT = re.compile(r"Result for ([\w.\-]{1,200}):\s*$")
_RESULT_MEMBER = re.compile(
    r"(?P<indent> {2,40})(?:- .*|(?P<name>[^\s:][^:]{0,100}):(?: (?P<y>.*))?)$"
)
_UNNAMED = frozenset(("info", "learner", "learner_stats", "sampler_results", "env_runners"))
"""Levels of RLlib's results that add nothing to a name."""


def _parse_tune_result(line: str, state: JsonObject) -> list[ConsoleRow]:
    """Read a line of a result that Ray Tune prints as indented YAML; its end gives the row."""
    begins = _RESULT.match(line)
    if begins is not None:
        rows = _close_tune_result(state)
        state.update(trial=begins.group(1), values={}, path=[])
        return rows or TAKEN
    if "values" not in state:
        return []
    found = _RESULT_MEMBER.match(line)
    if found is None:
        return _close_tune_result(state)
    indent = len(found.group("indent"))
    state["path"] = path = [level for level in state["path"] if level[0] < indent]
    name = found.group("name")
    if name is None:
        return TAKEN  # a member of a list
    names = [*(level[1] for level in path), name]
    path.append([indent, name])
    y = to_number((found.group("y") or "").strip())
    most_values = 200
    if y is not None and len(state["values"]) < most_values:
        tag = "/".join(part for part in names if part not in _UNNAMED)
        state["values"].setdefault(tag, y)
    return TAKEN


def _close_tune_result(state: JsonObject) -> list[ConsoleRow]:
    """Return the row of the result that has ended; the rows of each trial are a stream."""
    values = state.pop("values", {})
    trial = state.pop("trial", "")
    state.pop("path", None)
    step = values.pop("training_iteration", None)
    if step is None or not 0 <= step < 1e15:
        return []
    return [ConsoleRow(values, int(step), stream=trial)]


RAY_TUNE = LineFormat(
    "ray-tune",
    "RLlib of Ray 1 (a public log of 2022): a block of YAML for each iteration",
    ("result for ", ":", "  - ", "==", "+--"),
    "Result for PPO_CartPole-v1_96499_00000:",
    _parse_tune_result,
    flush=_close_tune_result,
)


FORMATS = (
    RGT,
    RAY_TUNE,
    MEGATRON,
    FAIRSEQ,
    MMENGINE,
    ULTRALYTICS,
    KERAS,
    RICH,
    LLAMAFACTORY,
    HF,
    LIGHTNING,
    TQDM,
    ANY_LINE,
)

BY_NAME = {each.name: each for each in FORMATS}
