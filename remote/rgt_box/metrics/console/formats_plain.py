"""Trainers that print one self-contained line per step: everything is in the pattern."""

from __future__ import annotations

from rgt_box.metrics.console.row import Format, Row
from rgt_box.metrics.console.shape import Shape, any_of, colons, pipes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

NANOGPT = Format(
    "nanogpt",
    "nanoGPT train.py, 2025",
    ("iter ", "step "),
    "iter 10: loss 9.4102, time 135.12ms, mfu 41.22%",
    any_of(
        Shape(r"^iter (?P<step>\d{1,15}): loss (?P<loss>{N}), time [\d.]{1,20}ms(?:, mfu (?P<mfu>{N})%)?"),
        # Both are means over some batches, so the first is not the curve of the training loss.
        Shape(
            r"^step (?P<step>\d{1,15}): train loss (?P<train>{N}), val loss (?P<val_loss>{N})",
            names={"train": "train loss"},
        ),
    ),
)

NANOCHAT = Format(
    "nanochat",
    "nanochat scripts/base_train.py, 2026",
    ("loss: ", "validation bpb", "core metric", "chatcore"),
    "step 00120/21400 (0.56%) | loss: 5.123456 | lrm: 1.00 | dt: 512.34ms | tok/sec: 1,023,456 | epoch: 1",
    any_of(
        Shape(
            r"^step (?P<step>\d{1,15})(?:/\d{1,15})? \([\d.]{1,20}%\) (?P<rest>\| loss: {N} \|.*)",
            pipes,
        ),
        Shape(
            r"^Step (?P<step>\d{1,15}) \| (?P<name>Validation bpb|CORE metric|ChatCORE): (?P<value>{N})",
            names={"Validation bpb": "val/bpb"},
        ),
    ),
)

TITAN = Format(
    "torchtitan",
    "torchtitan, 2026",
    ("step:",),
    "[titan] 2026-08-21 21:30:21,123 - root - INFO - step:  1  loss: 12.25380  grad_norm:  4.1234  tps: 12,345",
    any_of(
        Shape(
            r"\bvalidate step:\s{0,20}(?P<step>\d{1,15})\s{2,20}(?P<rest>loss:\s{0,20}{N}.*)",
            colons,
            prefix="validation_metrics/",
        ),
        Shape(r"\bstep:\s{0,20}(?P<step>\d{1,15})\s{2,20}(?P<rest>loss:\s{0,20}{N}.*)", colons),
    ),
)

TORCHTUNE = Format(
    "torchtune",
    "torchtune DiskLogger and StdoutLogger, 0.6",
    ("step ",),
    "Step 1 | loss:2.3456 lr:2e-05 tokens_per_second_per_gpu:1234.5 grad_norm:1.1 ",
    any_of(Shape(r"^Step (?P<step>\d{1,15}) \| (?P<rest>[\w/.\-]{1,80}:.*)", colons)),
)

DETECTRON2 = Format(
    "detectron2",
    "detectron2 CommonMetricPrinter, 0.6",
    ("total_loss: ",),
    "[11/21 09:00:00] d2.utils.events INFO:  eta: 0:12:34  iter: 19  total_loss: 1.234  loss_cls: 0.52  "
    "time: 0.3456   lr: 0.00039962  max_mem: 5432M",
    any_of(
        Shape(
            r"\biter: (?P<step>\d{1,15})  (?P<rest>(?:.{0,400}?\b)?total_loss: .*)",
            colons,
            names={"eta": None},
        )
    ),
)

_MEGATRON_NAN = "number of nan iterations"


def _megatron(line: str, _: Dict[str, Any]) -> List[Row]:
    """Megatron-LM leaves the loss out when it is NaN, and only counts such iterations."""
    row = _ITERATION.read(line)
    if row is None:
        row = _VALIDATION.read(line)
        return [] if row is None else [row]
    if row.values.get(_MEGATRON_NAN, 0.0) > 0.0 and "lm loss" not in row.values:
        row.values["lm loss"] = float("nan")
    return [row]


_ITERATION = Shape(
    r"\biteration\s{1,20}(?P<step>\d{1,15})\s{0,20}/\s{0,20}\d{1,15}\s{0,20}(?P<rest>\|.*)",
    pipes,
    names={"learning rate": "learning-rate"},  # as in its TensorBoard files
)
_VALIDATION = Shape(
    r"\bvalidation.{0,40}? loss at iteration (?P<step>\d{1,15})(?: on \w{1,40} set)?\s{0,20}(?P<rest>\|.*)",
    pipes,
    names={"lm loss value": "lm loss validation", "lm loss PPL": "lm loss validation ppl"},
)

MEGATRON = Format(
    "megatron",
    "Megatron-LM core 0.14",
    ("iteration",),
    " [2026-08-22 10:11:12.123456] iteration      100/  500000 | consumed samples:        25600 | "
    "learning rate: 1.500000E-04 | lm loss: 6.543210E+00 | loss scale: 1.0 | grad norm: 1.234 |",
    _megatron,
)
