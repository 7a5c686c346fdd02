"""Every key a config may have: its type, its default, its meaning.

The fields of the shipped tasks stand here and not with the tasks, so that a misspelt key is told before torch is
imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple, Union

Value = Union[int, float, str]


@dataclass(frozen=True)
class Field:
    """One key: `kind` is ``int``, ``float`` or ``str``; numbers may not be below `least`."""

    name: str
    kind: str
    default: Value
    help: str
    least: float = 0.0


COMMON: Tuple[Field, ...] = (
    Field("task", "str", "char_lm", "what to train: char_lm or image_classifier"),
    Field("epochs", "int", 4, "epochs in all", 1),
    Field("steps_per_epoch", "int", 200, "optimizer steps of an epoch; 0 takes all samples"),
    Field("batch", "int", 16, "samples of a batch", 1),
    Field("seed", "int", 0, "seed of the data, their order, the weights and the dropout"),
    Field("lr", "float", 3e-3, "peak learning rate"),
    Field("warmup", "int", 20, "steps of linear warm-up before the cosine decay"),
    Field("weight_decay", "float", 0.01, "AdamW's weight decay"),
    Field("clip", "float", 1.0, "largest gradient norm; 0 does not clip"),
    Field("device", "str", "auto", "auto, cpu, cuda or cuda:N"),
    Field("threads", "int", 1, "CPU threads of torch; another number may change the last bits", 1),
    Field("log_every", "int", 1, "steps between log lines; 0 logs nothing"),
    Field(
        "save_every", "int", 0, "steps between checkpoints; 0 chooses them from the measured cost of a save"
    ),
    Field("keep", "int", 2, "step checkpoints that stay (best is kept beside them)", 1),
    Field(
        "max_unsaved", "int", 0, "steps that may be unsaved while the disk refuses; 0 is two save intervals"
    ),
    Field("hold_limit", "float", 1800.0, "seconds to wait for the disk before exit code 74"),
    Field("max_bad_steps", "int", 5, "NaN or infinite steps in a row before exit code 1", 1),
    Field(
        "pace_ms", "float", 0.0, "least milliseconds of a step; for demos and tests: leaves the CPU to others"
    ),
)

TASKS: Dict[str, Tuple[Field, ...]] = {
    "char_lm": (
        Field("width", "int", 64, "channels of the transformer, a multiple of heads", 1),
        Field("layers", "int", 2, "its blocks", 1),
        Field("heads", "int", 4, "its attention heads", 1),
        Field("context", "int", 64, "characters it sees", 2),
        Field("dropout", "float", 0.1, "dropout probability"),
        Field("corpus", "int", 100_000, "characters of training text, made at run time", 1000),
    ),
    "image_classifier": (
        Field("width", "int", 16, "channels of the first convolution", 1),
        Field("size", "int", 16, "pixels of an image's side", 8),
        Field("noise", "float", 0.3, "standard deviation of the noise on the images"),
        Field("dropout", "float", 0.1, "dropout probability"),
        Field("images", "int", 8192, "training images, made at run time", 100),
    ),
}


def fields_of(task: str) -> Dict[str, Field]:
    """Return the fields that hold for `task`, common ones first."""
    return {field.name: field for field in (*COMMON, *TASKS[task])}
