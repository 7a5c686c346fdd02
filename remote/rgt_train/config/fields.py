"""Every key a config may have: its type, its default, its meaning.

The fields of the shipped tasks stand here and not with the tasks, so that a misspelt key is told before torch is
imported. A task of your own declares them in a ``FIELDS`` attribute of its class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Mapping, Sequence, Tuple, Union

Value = Union[int, float, str, bool]

MODEL = "model"
"""The section of the keys that belong to a task."""


@dataclass(frozen=True)
class Field:
    """One key of a config.

    Attributes:
        name: The key.
        kind: ``int``, ``float``, ``bool``, ``str``, or ``names`` (text; a list in a file, or words with commas).
        default: Its value where nothing is said.
        help: What it means, one line.
        least: Numbers may not be below this.
        choices: Texts that are allowed; empty allows all.
        section: The heading it may stand under in a file.
    """

    name: str
    kind: str
    default: Value
    help: str
    least: float = 0.0
    choices: Tuple[str, ...] = ()
    section: str = MODEL


def _section(name: str, *fields: Field) -> Tuple[Field, ...]:
    return tuple(replace(field, section=name) for field in fields)


# fmt: off
COMMON: Tuple[Field, ...] = (
    *_section(
        "run",
        Field("task", "str", "char_lm", "what to train: char_lm, image_classifier, diffusion, or module:Class"),
        Field("epochs", "int", 4, "epochs in all", 1),
        Field("steps_per_epoch", "int", 200, "optimizer steps of an epoch; 0 takes all samples"),
        Field("seed", "int", 0, "seed of the data, their order, the weights and the dropout"),
        Field("device", "str", "auto", "auto, cpu, cuda or cuda:N"),
        Field("parallel", "str", "none",
              "how the ranks of a torchrun launch share the model: ddp, fsdp, hsdp; none is one process",
              choices=("none", "ddp", "fsdp", "hsdp")),
        Field("precision", "str", "fp32",
              "bits of the computation: fp32, bf16, or fp16 with a scaled loss; the weights have 32 in any case",
              choices=("fp32", "bf16", "fp16")),
        Field("threads", "int", 1, "CPU threads of torch; another number may change the last bits", 1),
        Field("pace_ms", "float", 0.0, "least milliseconds of a step; for demos and tests: leaves the CPU to others"),
    ),
    *_section(
        "optimizer",
        Field("batch", "int", 16, "samples of a batch, over all ranks", 1),
        Field("accumulate", "int", 1, "batches that make one optimizer step", 1),
        Field("lr", "float", 3e-3, "peak learning rate"),
        Field("warmup", "int", 20, "steps of linear warm-up before the cosine decay"),
        Field("weight_decay", "float", 0.01, "AdamW's weight decay"),
        Field("clip", "float", 1.0, "largest gradient norm; 0 does not clip"),
    ),
    *_section(
        "log",
        Field("log_every", "int", 1, "steps between log lines; 0 logs nothing"),
        Field("loggers", "names", "", "further logs besides metrics.jsonl: tensorboard, wandb, trackio"),
        Field("project", "str", "rgt", "the project's name at W&B or trackio"),
    ),
    *_section(
        "save",
        Field("save_every", "int", 0, "steps between checkpoints; 0 chooses them from the measured cost of a save"),
        Field("keep", "int", 2, "step checkpoints that stay (best is kept as well)", 1),
        Field("keep_hours", "float", 0.0, "one more stays for each stretch of so many hours; 0 for none"),
        Field("mirror", "str", "", "second copy of the checkpoints: an absolute path or a URL; empty for none"),
        Field("platform", "str", "auto",
              "kind of machine, for how often it is expected to fail",
              choices=("auto", "spot", "session", "batch", "rented", "owned")),
        Field("max_unsaved", "int", 0, "steps that may be unsaved while the disk refuses; 0 is two save intervals"),
        Field("hold_limit", "float", 1800.0, "seconds to wait for the disk before exit code 74"),
    ),
    *_section(
        "guard",
        Field("max_bad_steps", "int", 5, "NaN or infinite steps in a row before exit code 1", 1),
        Field("spike", "str", "warn",
              "what a loss spike leads to: ignore, warn, skip or rollback",
              choices=("ignore", "warn", "skip", "rollback")),
        Field("spike_factor", "float", 10.0, "spreads above the running median from which on a loss is a spike", 1),
        Field("spike_window", "int", 1, "steps that a rollback leaves out, the spike being the last", 1),
        Field("stall_factor", "float", 20.0, "times the median step that a step may take; 0 does not watch"),
        Field("stall_floor", "float", 300.0, "seconds below which no step counts as stalled"),
        Field("stall_exit", "int", 0, "exit code of a stalled run, such as 75 to be launched again; 0 waits"),
    ),
)

TASKS: Dict[str, Tuple[Field, ...]] = {
    "char_lm": (
        Field("width", "int", 64, "channels of the transformer, a multiple of heads", 1),
        Field("layers", "int", 2, "its blocks", 1),
        Field("heads", "int", 4, "its attention heads", 1),
        Field("context", "int", 64, "characters it sees", 2),
        Field("dropout", "float", 0.1, "dropout probability"),
        Field("corpus", "int", 250_000, "characters of training text, made at run time", 1000),
        Field("layout", "str", "pack",
              "pack fills each row and cuts the document at its end, pad gives each document a row of its own",
              choices=("pack", "pad")),
        Field("z_loss", "float", 1e-4, "weight of the squared log of the softmax's normaliser; 0 leaves it out"),
    ),
    "image_classifier": (
        Field("width", "int", 16, "channels of the first convolution, a multiple of 4", 4),
        Field("size", "int", 16, "pixels of an image's side", 8),
        Field("noise", "float", 0.3, "standard deviation of the noise on the images"),
        Field("dropout", "float", 0.1, "dropout probability"),
        Field("images", "int", 8192, "training images, made at run time", 100),
        Field("label_smoothing", "float", 0.0, "share of the target that is spread over all classes, in training only"),
        Field("imbalance", "float", 0.0, "how much rarer each further class is, 0 to below 1"),
        Field("balance", "bool", True, "weigh rare classes up in the loss"),
        Field("norm", "str", "auto",
              "batch, group (for fewer than 8 images a rank), or auto: batch from 8 images a batch of all ranks on",
              choices=("auto", "batch", "group")),
    ),
    "diffusion": (
        Field("width", "int", 64, "units of a layer", 2),
        Field("layers", "int", 3, "hidden layers", 1),
        Field("modes", "int", 6, "classes: clusters of points on a ring", 2),
        Field("points", "int", 65_536, "training points, made at run time", 100),
        Field("timesteps", "int", 100, "noise levels of training", 2),
        Field("schedule", "str", "cosine", "how noise grows over them", choices=("cosine", "linear")),
        Field("prediction", "str", "v", "what the network predicts", choices=("v", "eps", "x0")),
        Field("snr_gamma", "float", 5.0, "limit of the Min-SNR loss weights; 0 weighs all noise levels alike"),
        Field("drop_condition", "float", 0.1, "share of the samples whose class is hidden, for guidance"),
        Field("guidance", "float", 1.5, "strength of the class in sampling; 1 is the plain conditional model"),
        Field("sample_steps", "int", 25, "steps of the sampler", 1),
        Field("ema", "float", 0.995, "decay of the averaged weights that are validated and sampled; 0 uses the raw"),
    ),
}

# fmt: on
TASK_DEFAULTS: Dict[str, Mapping[str, Value]] = {
    "diffusion": {"batch": 128, "steps_per_epoch": 500, "log_every": 10, "lr": 2e-3},
}
"""Where a task differs from the common defaults."""


def fields_of(task: str, own: Sequence[Field] = ()) -> Dict[str, Field]:
    """Return the fields that hold for `task`, common ones first.

    Args:
        task: A shipped task, or any other name.
        own: The fields of a task that is not shipped.
    """
    defaults = TASK_DEFAULTS.get(task, {})
    common = (
        replace(field, default=defaults[field.name]) if field.name in defaults else field for field in COMMON
    )
    return {field.name: field for field in (*common, *TASKS.get(task, ()), *own)}


def tables() -> str:
    """Return a table for each section of the common keys, and one for each task."""
    parts: List[str] = []
    for section in dict.fromkeys(field.section for field in COMMON):
        parts.append(f"Section `{section}`:\n\n" + _table(f for f in COMMON if f.section == section))
    for task, fields in TASKS.items():
        own = TASK_DEFAULTS.get(task, {})
        changed = ", ".join(f"`{name}` {_shown(value)}" for name, value in own.items())
        title = f"Section `model` of `{task}`" + (f" (other defaults: {changed})" if changed else "")
        parts.append(f"{title}:\n\n" + _table(fields))
    return "\n\n".join(parts) + "\n"


def _table(fields: Iterable[Field]) -> str:
    rows = [f"| `{field.name}` | {_shown(field.default)} | {field.help} |" for field in fields]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "none"


if __name__ == "__main__":
    print(tables(), end="")
