"""The fallback for a loop of one's own: a step (or an epoch) and a loss on one line.

It is only believed after three lines whose places rise, so that prose with both words does not make a curve.
"""

from __future__ import annotations

import re

from rgt_box.metrics.console.numbers import NUM, number
from rgt_box.metrics.console.row import GENERIC, Format, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

_COUNT = r"(\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\s{0,2}/\s{0,2}(\d{1,15}))?(?![\d.]{0,20}%|[\w.])"
_STEP = re.compile(
    r"(?<![\w/])(?:(?:global|train|training)[ _]?)?(?:steps?|iter(?:ation)?s?|updates?|batch(?:es)?)\b"
    r"\s{0,4}[:=#]?\s{0,4}[\[(]?\s{0,8}" + _COUNT,
    re.I,
)
_EPOCH = re.compile(
    r"(?<![\w/])epochs?\b\s{0,4}[:=#]?\s{0,4}[\[(]?\s{0,8}(\d{1,9}(?:\.\d{1,9})?)(?:\s{0,2}/\s{0,2}\d{1,9})?(?![\w.%])",
    re.I,
)
_LOSS = re.compile(
    r"(?<![\w/.\-])((?:(?:train(?:ing)?|val(?:id(?:ation)?)?|eval|test|lm|ce|total|avg|mean)[ _/.-]?)?"
    r"(?:loss|nll|perplexity|ppl|bpb))\b\s{0,4}(?:[:=]|is\b)?\s{0,4}(%s)(?!\s{0,2}%%)" % NUM,
    re.I,
)
_OTHER = re.compile(
    r"(?<![\w/.\-])(lr|learning[ _]rate|grad[ _]?norm|gnorm|tok(?:ens)?/s(?:ec)?|samples/s(?:ec)?)\b"
    r"\s{0,4}[:=]?\s{0,4}(%s)" % NUM,
    re.I,
)
_NAMES = {
    "learning rate": "learning_rate",
    "grad norm": "grad_norm",
    "gradnorm": "grad_norm",
    "tok/s": "tok/sec",
    "tokens/s": "tok/sec",
    "tokens/sec": "tok/sec",
    "samples/s": "samples/sec",
    "training loss": "train_loss",
    "train loss": "train_loss",
    "val loss": "val_loss",
    "valid loss": "valid_loss",
    "validation loss": "val_loss",
    "eval loss": "eval_loss",
    "total loss": "total_loss",
}
_SPAN = 160
"""Characters around a step in which its loss must stand."""


def _generic(line: str, _: Dict[str, Any]) -> List[Row]:
    values = {}
    first, last = len(line), 0
    for found in _LOSS.finditer(line):
        values[_name(found.group(1))] = number(found.group(2))
        first, last = min(first, found.start()), max(last, found.end())
    if not values:
        return []
    step, epoch = _STEP.search(line), _EPOCH.search(line)
    place = step or epoch
    if place is None or place.end() < first - _SPAN or place.start() > last + _SPAN:
        return []
    for found in _OTHER.finditer(line):
        values.setdefault(_name(found.group(1)), number(found.group(2)))
    if step is None:
        return [Row(values, epoch=float(epoch.group(1)))] if epoch else []
    at = int(step.group(1).replace(",", ""))
    total = int(step.group(2) or 0)
    if epoch and total and at <= total and epoch.group(1).isdigit():
        at += (
            max(0, int(epoch.group(1)) - 1) * total
        )  # "Epoch [2/5], Step [100/600]": counted within the epoch
    return [Row(values, at)] if at < 10**15 else []


def _name(text: str) -> str:
    tag = text.strip().lower()
    return _NAMES.get(tag, tag)


GENERIC_LINE = Format(
    "generic",
    "loops of one's own",
    ("loss", "nll", "perplexity", "ppl", "bpb"),
    "iter 100: train loss 1.234, lr 3e-4",
    _generic,
    tier=GENERIC,
)
