"""transformers' Trainer: a printed dictionary without a step, and the bar that may tell it.

Where stdout is not buffered, the first bar drawn after a dictionary stands at its step; where it is buffered,
dictionaries come in bursts and only their epoch is sure. Which of the two a log is shows as soon as two
dictionaries follow each other.
"""

from __future__ import annotations

import math
import re

from rgt_box.metrics.console.bars import bar_at
from rgt_box.metrics.console.numbers import number
from rgt_box.metrics.console.row import Format, Row
from rgt_box.metrics.console.shape import dictionary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

_PRINTED = re.compile(r"(?<!>> )\{('[^'{}]{1,100}': [^{}]*)\}")
_CALLBACK = re.compile(r"callbacks?:\d{1,6} >> \{('[^'{}]{1,100}': [^{}]*)\}")


def _read(found: Optional[re.Match[str]]) -> Optional[Row]:
    """Return the row of a dictionary that is one of scalars: it has an epoch, and a loss or a reward."""
    if found is None or "'epoch'" not in found.group(1):
        return None
    values = {key: number(text) for key, text in dictionary(found.group(1))}
    epoch = values.pop("epoch", None)
    if epoch is None or not math.isfinite(epoch) or ("train_runtime" in values and "train_loss" in values):
        return None
    if not any(key == "reward" or key.endswith("loss") for key in values):
        return None
    if values.get("loss") == 0.0 and math.isnan(values.get("grad_norm", 0.0)):
        values["loss"] = float("nan")  # logging_nan_inf_filter writes 0 for it
    return Row(values, epoch=epoch)


def _trainer(line: str, state: Dict[str, Any]) -> List[Row]:
    found = _PRINTED.search(line) if "'epoch'" in line else None
    row = _read(found)
    bar = bar_at(line)
    rows: List[Row] = []
    if bar is not None and (row is None or found is None or bar.start < found.start()):
        rows += _advance(bar.n, bar.total, bar.desc, state)
        bar = None
    if row is not None:
        rows += _dictionary(row, state)
    if bar is not None:
        rows += _advance(bar.n, bar.total, bar.desc, state)
    return rows


def _dictionary(row: Row, state: Dict[str, Any]) -> List[Row]:
    rows = flush(state)
    if rows:
        state["burst"] = True
    if state.get("burst") or "total" not in state:
        return rows + [row]
    state["row"] = row.pack()
    return rows


def _advance(n: float, total: float, desc: str, state: Dict[str, Any]) -> List[Row]:
    """Take a bar; the first without a title is the trainer's, others (evaluation) have another total."""
    if desc:
        return []
    if state.setdefault("total", total) != total or "row" not in state:
        return []
    rows = flush(state)
    rows[0].step, rows[0].total = int(n), total
    return rows


def flush(state: Dict[str, Any]) -> List[Row]:
    """Give out the dictionary that waits for its bar, without a step."""
    packed = state.pop("row", None)
    return [] if packed is None else [Row.unpack(packed)]


def _llamafactory(line: str, _: Dict[str, Any]) -> List[Row]:
    row = _read(_CALLBACK.search(line))
    return [] if row is None else [row]


LLAMAFACTORY = Format(
    "llamafactory",
    "LLaMA-Factory 0.9 LogCallback",
    (">> {'",),
    "[INFO|2026-03-01 10:00:00] llamafactory.train.callbacks:143 >> {'loss': 3.8978, 'learning_rate': 1.6000e-04, "
    "'epoch': 0.10, 'throughput': 7257.13}",
    _llamafactory,
)

HF = Format(
    "hf",
    "transformers 4.57 (numbers) and 5.23 (strings)",
    ("'epoch'", "%|"),
    "{'loss': '3.898', 'grad_norm': 'nan', 'learning_rate': '5.714e-06', 'epoch': '0.8'}",
    _trainer,
    flush=flush,
)
