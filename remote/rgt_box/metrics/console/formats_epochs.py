"""Trainers whose lines stand within an epoch: mmengine, Ultralytics, and the loops of the PyTorch examples and timm."""

from __future__ import annotations

import re

from rgt_box.metrics.console.numbers import NUM, number
from rgt_box.metrics.console.row import Format, Row
from rgt_box.metrics.console.shape import colons

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_MM = re.compile(
    r"\b(Epoch|Iter)(?:\((train|val|test)\))?\s{0,4}\[\s{0,12}(\d{1,12})(?:/(\d{1,12}))?\]"
    r"(?:\[\s{0,12}(\d{1,12})/(\d{1,12})\])?\s{1,8}(.*)"
)
_MM_DROP = ("eta", "memory")
_MM_IDLE = ("time", "data_time")


def _mmengine(line: str, state: Dict[str, Any]) -> List[Row]:
    """Read one line; a validation stands at the last training iteration, as its own count is of its batches."""
    found = _MM.search(line)
    if found is None:
        return []
    unit, split, a, _, c, d, rest = found.groups()
    values = {tag: number(text) for tag, text in colons(rest) if tag not in _MM_DROP}
    if split in ("val", "test"):
        values = {("%s/%s" % (split, tag) if "loss" in tag else tag): y for tag, y in values.items()}
        if all(tag in _MM_IDLE for tag in values):
            return []
        epoch = float(a) if unit == "Epoch" else None
        rows = [Row(values, state.get("step"), epoch)]
        return [row for row in rows if row.place()]
    if not any("loss" in tag for tag in values):
        return []
    if unit == "Epoch" and d is None:
        return []
    step = int(a) if unit == "Iter" else max(0, int(a) - 1) * int(d) + int(c)
    if step >= 10**15:
        return []
    state["step"] = step
    return [Row(values, step, float(a) if unit == "Epoch" else None)]


MMENGINE = Format(
    "mmengine",
    "mmengine 0.10 LoggerHook; mmcv 1 TextLoggerHook",
    ("epoch", "iter"),
    "11/21 09:42:55 - mmengine - INFO - Epoch(train) [1][ 5/15]  lr: 1.0000e-02  eta: 0:00:00  time: 0.0025  "
    "grad_norm: 0.9749  loss: 0.1230",
    _mmengine,
)

_YOLO = re.compile(
    r"^\s{1,20}(\d{1,9})/(\d{1,9})\s{1,20}[\d.]{1,20}G?((?:\s{1,20}%s){3,20})\s{0,9}:?" % NUM, re.I
)
_YOLO_HEADER = re.compile(r"^\s{1,20}Epoch\s{1,20}GPU_mem\s{1,20}(.{1,300})$")
_YOLO_NUMBER = re.compile(NUM, re.I)


def _ultralytics(line: str, state: Dict[str, Any]) -> List[Row]:
    """Read a frame of the epoch's bar (running means, the last one stays); the header above names the columns."""
    header = _YOLO_HEADER.match(line)
    if header is not None:
        state["names"] = header.group(1).split()[:40]
        return []
    names: list[str] = state.get("names", [])
    found = _YOLO.match(line) if names else None
    if found is None:
        return []
    losses = {
        "train/" + name: number(text)
        for name, text in zip(names, _YOLO_NUMBER.findall(found.group(3)))  # noqa: B905 (3.10)
        if name.endswith("loss")
    }
    if not losses:
        return []
    return [Row(dict(losses, **{"train/loss": round(sum(losses.values()), 8)}), epoch=float(found.group(1)))]


ULTRALYTICS = Format(
    "ultralytics",
    "Ultralytics 8.4",
    ("gpu_mem", "g "),
    "        1/3         0G    0.03306      13.44          0          4         64: 100% ━━━━━━━━━━━━ 2/2 5.3it/s",
    _ultralytics,
)

_MNIST = re.compile(
    r"^Train Epoch: (\d{1,9}) \[\s{0,9}(\d{1,12})/(\d{1,12}) \(\s{0,3}\d{1,3}%%\)\]\s{1,8}Loss: (%s)" % NUM,
    re.I,
)


def _mnist(line: str, _: Dict[str, Any]) -> List[Row]:
    found = _MNIST.match(line)
    if found is None:
        return []
    epoch, seen, total, loss = found.groups()
    return [Row({"Loss": number(loss)}, samples=max(0, int(epoch) - 1) * int(total) + int(seen))]


MNIST = Format(
    "pytorch-mnist",
    "pytorch/examples mnist",
    ("train epoch: ",),
    "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.297",
    _mnist,
)

_METERS = re.compile(
    r"^(?:Epoch: \[(\d{1,9})\]|Train: (\d{1,9}) )\s{0,4}\[\s{0,12}(\d{1,12})/(\d{1,12})"
    r"(?: \(\s{0,3}\d{1,3}%\))?\]\s(.*)"
)
_METER = re.compile(r"(?:^|\s)(Loss|Acc@[15]|LR|Time|Data):?\s{1,4}(%s)" % NUM, re.I)


def _meters(line: str, _: Dict[str, Any]) -> List[Row]:
    """Read the value of each meter, not the running mean that follows in brackets."""
    found = _METERS.match(line)
    if found is None:
        return []
    epoch = int(found.group(1) or found.group(2))
    values = {
        tag.lower() if tag.lower() in ("loss", "lr") else tag: number(y)
        for tag, y in _METER.findall(found.group(5))
    }
    step = epoch * int(found.group(4)) + int(found.group(3))
    return [Row(values, step, float(epoch))] if "loss" in values and step < 10**15 else []


METERS = Format(
    "pytorch-imagenet",
    "pytorch/examples imagenet; timm 1.0",
    ("epoch: [", "train: "),
    "Epoch: [0][  10/5005]\tTime  0.512 ( 0.600)\tData  0.001 ( 0.020)\tLoss 6.9078e+00 (6.9500e+00)",
    _meters,
)
