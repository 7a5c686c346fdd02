"""Trainers whose line is a step and a list of ``name value`` pairs: fairseq, verl, OpenRLHF, DeepSpeed, rgt."""

from __future__ import annotations

import json
import re

from rgt_box.metrics.console.numbers import NUM
from rgt_box.metrics.console.row import Format, Row
from rgt_box.metrics.console.shape import Shape, any_of, dashes, dictionary, equals, whole
from rgt_box.metrics.numbers import number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

_HEAD = r"\| epoch (?P<epoch>\d{1,9})(?: \| valid on '[^']{0,80}' subset)?"
_INNER = Shape(
    r"\| train_inner " + _HEAD + r":\s{1,20}\d{1,15} / \d{1,15} (?P<rest>.*)", equals, step_key="num_updates"
)
_EPOCH = Shape(r"\| train " + _HEAD + r" (?P<rest>\| .*)", equals, step_key="num_updates")
_VALID = Shape(
    r"\| valid\w{0,40} " + _HEAD + r"(?::\s{1,20}\d{1,15} / \d{1,15})? (?P<rest>\| .*)",
    equals,
    prefix="valid_",
    step_key="num_updates",
)
_JSON = re.compile(r"\| (train_inner|train|valid)\w{0,40} \| (\{.*\})\s*$")


def _fairseq(line: str, _: Dict[str, Any]) -> List[Row]:
    row = _INNER.read(line) or _VALID.read(line)
    if row is None:
        row = _means(_EPOCH.read(line)) or _fairseq_json(line)
    return [] if row is None else [row]


def _means(row: Optional[Row]) -> Optional[Row]:
    """Name the means over an epoch so that they are not taken for the curve of the steps."""
    if row is not None:
        row.values = {tag + "_epoch": y for tag, y in row.values.items()}
    return row


def _fairseq_json(line: str) -> Optional[Row]:
    """Read ``--log-format json``: every value is a string, the keys may carry the split."""
    found = _JSON.search(line)
    if found is None:
        return None
    try:
        raw = json.loads(found.group(2))
    except (ValueError, RecursionError):
        return None
    split = found.group(1)
    values: Dict[str, float] = {}
    for key, text in raw.items():
        value = number(text)
        if value is not None:
            values[key.partition("_")[2] if key.startswith(("train_", "valid_")) else key] = value
    updates, epoch = values.pop("num_updates", None), values.pop("epoch", None)
    if split == "valid":
        values = {"valid_" + tag: y for tag, y in values.items()}
    row = Row(values, None if updates is None else whole(repr(updates)), epoch)
    if not values or not row.place():
        return None
    return _means(row) if split == "train" else row


FAIRSEQ = Format(
    "fairseq",
    "fairseq 0.12, --log-format simple and json",
    ("| train", "| valid"),
    "2026-01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 4212 loss=5.1, ppl=34.3, wps=9000, "
    "num_updates=100, lr=1.25e-05, gnorm=1.2, loss_scale=128",
    _fairseq,
)

VERL = Format(
    "verl",
    "verl LocalLogger, 0.5 (numpy 1 and 2)",
    ("step:",),
    "step:3 - actor/pg_loss:-0.0123 - critic/score/mean:np.float64(0.41) - perf/throughput:1234.5",
    any_of(Shape(r"\bstep:(?P<step>\d{1,15}) - (?P<rest>[\w/@.\-]{1,100}:.*)", dashes)),
)

OPENRLHF = Format(
    "openrlhf",
    "OpenRLHF PPO trainer, 0.8",
    ("global step ",),
    "2026-08-13 19:25:45 INFO ✨ Global step 5: {'policy_loss': 0.0123, 'reward': 0.5, 'actor_lr': 5e-07}",
    any_of(
        Shape(r"Global step (?P<step>\d{1,15}): \{(?P<rest>.*)\}", dictionary, names={"actor_lr": "actor/lr"})
    ),
)

_ds_pairs = re.compile(r"([a-z][\w/]{0,40}(?: [a-z]\w{0,40})?(?: \([a-z]{1,3}\))?): (%s)" % NUM, re.I).findall

DEEPSPEED = Format(
    "deepspeed",
    "DeepSpeed 0.17 (pipeline engine, log_dist, throughput timer)",
    ("steps: ", "[rank ", "global_step="),
    "steps: 10 loss: 2.1234 iter time (s): 0.512 samples/sec: 15.625",
    any_of(
        Shape(r"\bsteps: (?P<step>\d{1,15}) (?P<rest>loss: {N}.*)", _ds_pairs),
        # The engine prints these below any trainer.
        Shape(r"\[Rank \d{1,6}\] step=(?P<step>\d{1,15}), skipped=\d{1,15}, lr=\[(?P<lr>{N})", weak=True),
        Shape(
            r"/global_step=(?P<step>\d{1,15}), RunningAvgSamplesPerSec={N}, CurrSamplesPerSec=(?P<rate>{N})",
            names={"rate": "samples/sec"},
            weak=True,
        ),
    ),
)

_RGT = re.compile(
    r"^step (\d{1,15})  epoch (\d{1,9})  (loss %s(?:  [a-z_]\w{0,40} %s)*)(?:  ([\d.]{1,20})([kM]?) (\w{1,20})/s)?\s*$"
    % (NUM, NUM),
    re.I,
)
_RGT_PAIR = re.compile(r"([A-Za-z_]\w{0,40}) (%s)" % NUM, re.I)
_UNITS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6}


def _rgt(line: str, _: Dict[str, Any]) -> List[Row]:
    found = _RGT.match(line)
    if found is None:
        return []
    step, epoch, pairs, rate, scale, unit = found.groups()
    values = {tag: float(text.replace(",", "")) for tag, text in _RGT_PAIR.findall(pairs)}
    speed = number(rate) if rate else None
    if speed is not None:
        values[unit.lower() + "_s"] = speed * _UNITS[scale]
    return [Row(values, int(step), float(epoch))]


RGT = Format(
    "rgt",
    "rgt_train 0.1",
    ("step ",),
    "step 652  epoch 2  loss 1.7102  lr 2.9e-04  gnorm 0.81  41.2k tok/s",
    _rgt,
)
