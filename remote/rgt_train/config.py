"""Every possible config key, the shipped configs, and the merge of files and options.

The fields of the shipped tasks are defined here and not with the tasks, so that a misspelt key is
reported before torch is imported. A task of your own declares them in a ``FIELDS`` attribute of its
class.
"""

from __future__ import annotations

import difflib
import importlib
import json
import math
from dataclasses import dataclass, replace
from typing import Any, Callable, Iterable, List, Mapping, Sequence, Tuple, Union

from rgt_train.checkpoint.diskio import StrPath
from rgt_train.exits import UsageError

Value = Union[int, float, str, bool]

MODEL = "model"
"""The section of the keys that belong to a task."""
Plain = Union[str, int, float, List[str]]

SHIPPED: Mapping[str, dict[str, dict[str, Plain]]] = {
    # While you write the training: few data, small batches, one epoch; everything is logged, and
    # errors stop it soon.
    "dev": {
        "run": {"epochs": 1, "steps_per_epoch": 0, "data_limit": 512},
        "optimizer": {"batch": 8},
        "log": {"log_every": 1},
        "save": {"save_every": 50, "keep": 2},
        "guard": {"max_bad_steps": 1, "spike": "warn", "stall_floor": 60},
    },
    # For days on a rented machine without supervision: all data, few lines, TensorBoard, more
    # checkpoints. Batch and epochs stay as they are set: they are those of the real training.
    "prod": {
        "run": {"steps_per_epoch": 0, "data_limit": 0},
        "log": {"log_every": 10, "loggers": ["tensorboard"]},
        # 0: chosen from the cost of a save and from how often this run was killed.
        "save": {"save_every": 0, "keep": 3},
        "guard": {
            "max_bad_steps": 5,
            "spike": "rollback",
            "stall_factor": 20,
            "stall_floor": 600,
            "stall_exit": 75,
        },
    },
}
"""The configs that come with the trainer: name, section, key, value."""


@dataclass(frozen=True)
class Field:
    """One key of a config.

    Attributes:
        name: The key.
        kind: ``int``, ``float``, ``bool``, ``str``, or ``names`` (text; a list in a file, or words
            with commas).
        default: Its default value.
        help: Its meaning, one line.
        least: Minimum of a number.
        choices: Allowed texts; empty allows all.
        section: Its heading in a file.
    """

    name: str
    kind: str
    default: Value
    help: str
    least: float = 0.0
    choices: tuple[str, ...] = ()
    section: str = MODEL


def _in_section(name: str, *fields: Field) -> tuple[Field, ...]:
    return tuple(replace(field, section=name) for field in fields)


# fmt: off
COMMON: tuple[Field, ...] = (
    *_in_section(
        "run",
        Field("task", "str", "char_lm",
              "what to train: char_lm, image_classifier, diffusion, or module:Class"),
        Field("epochs", "int", 4, "epochs in all", 1),
        Field("steps_per_epoch", "int", 200, "optimizer steps of an epoch; 0 takes all samples"),
        Field("data_limit", "int", 0, "training samples that are used, the first ones; 0 uses all"),
        Field("seed", "int", 0, "seed of the data, their order, the weights and the dropout"),
        Field("device", "str", "auto", "auto, cpu, cuda or cuda:N"),
        Field("parallel", "str", "none",
              "how the ranks of a torchrun launch share the model: ddp, fsdp, shard_grad_op, hsdp; "
              "none is one process",
              choices=("none", "ddp", "fsdp", "shard_grad_op", "hsdp")),
        Field("precision", "str", "fp32",
              "bits of the computation: fp32, bf16, or fp16 with a scaled loss; the weights have "
              "32 in any case",
              choices=("fp32", "bf16", "fp16")),
        Field("threads", "int", 1, "CPU threads of torch; another number may change the last bits",
              1),
        Field("pace_ms", "float", 0.0,
              "least milliseconds of a step; for demos and tests: leaves the CPU to others"),
    ),
    *_in_section(
        "optimizer",
        Field("batch", "int", 16, "samples of a batch, over all ranks", 1),
        Field("accumulate", "int", 1, "batches that make one optimizer step", 1),
        Field("lr", "float", 3e-3, "peak learning rate"),
        Field("warmup", "int", 20, "steps of linear warm-up before the cosine decay"),
        Field("weight_decay", "float", 0.01, "AdamW's weight decay"),
        Field("clip", "float", 1.0, "largest gradient norm; 0 does not clip"),
    ),
    *_in_section(
        "log",
        Field("log_every", "int", 1, "steps between log lines; 0 logs nothing"),
        Field("dynamics_every", "int", 0,
              "steps between measurements of update_ratio (update by weight) and dead_units (of "
              "ReLU); 0 for none"),
        Field("loggers", "names", "",
              "further logs besides metrics.jsonl: tensorboard, wandb, trackio, mlflow"),
        Field("project", "str", "rgt",
              "the project's name at W&B or trackio, the experiment's at MLflow"),
        Field("tracker_group", "str", "",
              "group of runs at W&B, trackio or MLflow; empty for none"),
        Field("tags", "names", "", "labels of the run at W&B, trackio or MLflow"),
        Field("result_name", "str", "",
              "further name of result.json, such as result_{time}_{model}.json; also {step}, "
              "{run}; empty for none"),
    ),
    *_in_section(
        "save",
        Field("save_every", "int", 0,
              "steps between checkpoints; 0 chooses them from the measured cost of a save"),
        Field("keep", "int", 2, "step checkpoints that stay (best is kept as well)", 1),
        Field("keep_hours", "float", 0.0,
              "one more stays for each stretch of so many hours; 0 for none"),
        Field("mirror", "str", "",
              "second copy of the checkpoints: an absolute path or a URL; empty for none"),
        Field("platform", "str", "auto",
              "kind of machine, for how often it is expected to fail",
              choices=("auto", "spot", "session", "batch", "rented", "owned")),
        Field("max_unsaved", "int", 0,
              "steps that may be unsaved while the disk refuses; 0 is two save intervals"),
        Field("prove", "int", 0,
              "steps that a second process repeats from a checkpoint, to prove a resume; 0: none"),
        Field("hold_limit", "float", 1800.0, "seconds to wait for the disk before exit code 74"),
    ),
    *_in_section(
        "guard",
        Field("max_bad_steps", "int", 5, "NaN or infinite steps in a row before exit code 1", 1),
        Field("spike", "str", "warn",
              "what a loss spike leads to: ignore, warn, skip or rollback",
              choices=("ignore", "warn", "skip", "rollback")),
        Field("spike_factor", "float", 10.0,
              "spreads above the running median from which on a loss is a spike", 1),
        Field("spike_window", "int", 1,
              "steps that a rollback leaves out, the spike being the last", 1),
        Field("stall_factor", "float", 20.0,
              "times the median step that a step may take; 0 does not watch"),
        Field("stall_floor", "float", 300.0, "seconds below which no step counts as stalled"),
        Field("stall_exit", "int", 0,
              "exit code of a stalled run, such as 75 to be launched again; 0 waits"),
    ),
)

TASKS: dict[str, tuple[Field, ...]] = {
    "char_lm": (
        Field("width", "int", 64, "channels of the transformer, a multiple of heads", 1),
        Field("layers", "int", 2, "its blocks", 1),
        Field("heads", "int", 4, "its attention heads", 1),
        Field("context", "int", 64, "characters it sees", 2),
        Field("dropout", "float", 0.1, "dropout probability"),
        Field("corpus", "int", 250_000, "characters of training text, made at run time", 1000),
        Field("layout", "str", "pack",
              "pack fills each row and cuts the document at its end, pad gives each document a row "
              "of its own",
              choices=("pack", "pad")),
        Field("z_loss", "float", 1e-4,
              "weight of the squared log of the softmax's normaliser; 0 leaves it out"),
    ),
    "image_classifier": (
        Field("width", "int", 16, "channels of the first convolution, a multiple of 4", 4),
        Field("size", "int", 16, "pixels of an image's side", 8),
        Field("noise", "float", 0.3, "standard deviation of the noise on the images"),
        Field("dropout", "float", 0.1, "dropout probability"),
        Field("images", "int", 8192, "training images, made at run time", 100),
        Field("label_smoothing", "float", 0.0,
              "share of the target that is spread over all classes, in training only"),
        Field("imbalance", "float", 0.0, "how much rarer each further class is, 0 to below 1"),
        Field("balance", "bool", True, "weigh rare classes up in the loss"),
        Field("norm", "str", "auto",
              "batch, sync (over all ranks), group (for fewer than 8 images a rank), or auto: "
              "batch from 8 images a batch of all ranks on",
              choices=("auto", "batch", "sync", "group")),
    ),
    "diffusion": (
        Field("width", "int", 64, "units of a layer", 2),
        Field("layers", "int", 3, "hidden layers", 1),
        Field("modes", "int", 6, "classes: clusters of points on a ring", 2),
        Field("points", "int", 65_536, "training points, made at run time", 100),
        Field("timesteps", "int", 100, "noise levels of training", 2),
        Field("schedule", "str", "cosine", "how noise grows over them",
              choices=("cosine", "linear")),
        Field("prediction", "str", "v", "what the network predicts", choices=("v", "eps", "x0")),
        Field("snr_gamma", "float", 5.0,
              "limit of the Min-SNR loss weights; 0 weighs all noise levels alike"),
        Field("drop_condition", "float", 0.1,
              "share of the samples whose class is hidden, for guidance"),
        Field("guidance", "float", 1.5,
              "strength of the class in sampling; 1 is the plain conditional model"),
        Field("sample_steps", "int", 25, "steps of the sampler", 1),
        Field("ema", "float", 0.995,
              "decay of the averaged weights that are validated and sampled; 0 uses the raw"),
    ),
}

# fmt: on
TASK_DEFAULTS: dict[str, Mapping[str, Value]] = {
    "diffusion": {"batch": 128, "steps_per_epoch": 500, "log_every": 10, "lr": 2e-3},
}
"""The defaults of a task that differ from the common ones."""


def fields_of(task: str, own: Sequence[Field] = ()) -> dict[str, Field]:
    """Return the fields of `task`, common ones first.

    Args:
        task: A shipped task, or any other name.
        own: The fields of a task that is not shipped.
    """
    defaults = TASK_DEFAULTS.get(task, {})
    common = (
        replace(field, default=defaults[field.name]) if field.name in defaults else field
        for field in COMMON
    )
    return {field.name: field for field in (*common, *TASKS.get(task, ()), *own)}


def config_tables() -> str:
    """Return a table for each section of the common keys, and one for each task."""
    parts: list[str] = []
    for section in dict.fromkeys(field.section for field in COMMON):
        parts.append(
            f"Section `{section}`:\n\n" + _fields_table(f for f in COMMON if f.section == section)
        )
    for task, fields in TASKS.items():
        own = TASK_DEFAULTS.get(task, {})
        changed = ", ".join(f"`{name}` {_default_text(value)}" for name, value in own.items())
        title = f"Section `model` of `{task}`" + (
            f" (other defaults: {changed})" if changed else ""
        )
        parts.append(f"{title}:\n\n" + _fields_table(fields))
    return "\n\n".join(parts) + "\n"


def _fields_table(fields: Iterable[Field]) -> str:
    rows = [
        f"| `{field.name}` | {_default_text(field.default)} | {field.help} |" for field in fields
    ]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


def _default_text(value: Value) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value != "":
        return f"`{value}`"
    return "none"


if __name__ == "__main__":
    print(config_tables(), end="")


# Reads config files: YAML if PyYAML is installed, always JSON, and the shipped configs.


@dataclass(frozen=True)
class WrittenScalar:
    """A value as written in the file.

    Attributes:
        text: Its characters, without quotes and comments; a list is joined by commas.
        quoted: Whether it had quotes: then it is always text.
        where: ``file:line``, for messages.
        section: Its heading; empty at the top level.
        items: Whether it is a list.
    """

    text: str
    quoted: bool
    where: str
    section: str = ""
    items: bool = False


def read_config(path: StrPath) -> dict[str, WrittenScalar]:
    """Return the keys and values of the file at `path`, or of a shipped config, in its order.

    Raises:
        UsageError: It cannot be read, or contains anything but keys with plain values or lists,
            below at most one heading; names the file, and the line if known.
    """
    shipped = SHIPPED.get(str(path))
    if shipped is not None:
        sections = _JsonPairs(
            (section, _JsonPairs(values.items())) for section, values in shipped.items()
        )
        return _flatten_sections(sections, _shipped_place(str(path)))
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        hint = ""
        if isinstance(error, FileNotFoundError):
            hint = f" (shipped are {' and '.join(SHIPPED)})"
        raise UsageError(f"cannot read the config {path}: {error}{hint}") from error
    try:
        yaml: Any = importlib.import_module("yaml")  # here: a box may lack it
    except ImportError:
        return _read_json(text, str(path))
    try:
        return _read_yaml(yaml, text, str(path))
    except yaml.YAMLError as error:
        mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if mark is not None:
            where = f"{path}:{mark.line + 1}"
        else:
            where = str(path)
        raise UsageError(f"{where}: not YAML: {why or error}") from None


def _read_yaml(yaml: Any, text: str, name: str) -> dict[str, WrittenScalar]:
    """Return the keys and values of a YAML text.

    Args:
        yaml: PyYAML's module.
        text: The file's content.
        name: The file's name, for messages.

    Raises:
        UsageError: It is YAML, but not keys with plain values, below headings at most; names file
            and line.
    """
    found: dict[str, WrittenScalar] = {}

    def line_of(node: Any) -> str:
        return f"{name}:{node.start_mark.line + 1}"

    def iterate_pairs(node: Any) -> Iterable[tuple[Any, Any]]:
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{line_of(node)}: expected 'key: value'")
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError(f"{line_of(key)}: a key must be a word")
            yield key, value

    def add_value(key: Any, value: Any, section: str) -> None:
        if isinstance(value, yaml.SequenceNode):
            for item in value.value:
                if not isinstance(item, yaml.ScalarNode) or "," in item.value or not item.value:
                    raise UsageError(f"{line_of(item)}: this cannot be an item of a list here")
            text = ",".join(item.value for item in value.value)
            _add_once(
                found, key.value, WrittenScalar(text, False, line_of(key), section, items=True)
            )
        elif isinstance(value, yaml.ScalarNode):
            nothing = value.tag.endswith(":null")
            if nothing:
                text = ""
            else:
                text = value.value
            _add_once(
                found,
                key.value,
                WrittenScalar(text, value.style in ("'", '"'), line_of(key), section),
            )
        else:
            raise UsageError(
                f"{line_of(key)}: {key.value!r} takes a plain value or a list, nothing deeper"
            )

    # The nodes and not the values: only they know their lines, and whether a text had quotes.
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in iterate_pairs(root) if root is not None else ():
        if isinstance(value, yaml.MappingNode):
            for inner, plain in iterate_pairs(value):
                add_value(inner, plain, key.value)
        else:
            add_value(key, value, "")
    return found


class _JsonPairs(List[Tuple[str, Any]]):
    """A JSON object as its (key, value) pairs, so that a duplicate key is detected."""


def _read_json(text: str, name: str) -> dict[str, WrittenScalar]:
    """Return the keys and values of a JSON text."""
    try:
        found = json.loads(text, object_pairs_hook=_JsonPairs)
    except ValueError as error:
        raise UsageError(
            f"{name}: PyYAML is not installed here, and this is not JSON ({error}): "
            "pip install pyyaml, or write the config as JSON"
        ) from None
    if not isinstance(found, _JsonPairs):
        raise UsageError(f"{name}: expected an object of keys and values")
    return _flatten_sections(found, name)


def _flatten_sections(pairs: _JsonPairs, name: str) -> dict[str, WrittenScalar]:
    """Return the keys and values of a config, with its sections; `name` is for messages."""
    found: dict[str, WrittenScalar] = {}
    for key, value in pairs:
        is_section = isinstance(value, _JsonPairs)
        for inner, plain in value if is_section else [(key, value)]:
            items = isinstance(plain, list)
            texts = [_text_of(item, f"{name}: {inner!r}") for item in (plain if items else [plain])]
            if items and any("," in text or not text for text in texts):
                raise UsageError(
                    f"{name}: {inner!r} has an item that cannot be an item of a list here"
                )
            quoted = isinstance(plain, str)
            _add_once(
                found,
                inner,
                WrittenScalar(",".join(texts), quoted, name, key if is_section else "", items),
            )
    return found


def _text_of(value: Any, where: str) -> str:
    """Return a plain value as it would be written in YAML."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        # As in YAML: true, not True.
        return json.dumps(value)
    raise UsageError(f"{where} takes a plain value or a list, nothing deeper")


def _add_once(found: dict[str, WrittenScalar], key: str, scalar: WrittenScalar) -> None:
    if key in found:
        raise UsageError(f"{scalar.where}: {key!r} is given twice, first at {found[key].where}")
    found[key] = scalar


# Merges defaults, config files and the command line into one set of values; later ones win.


# Inside `Config`, `str` is one of its methods: annotations there need other names.
Key = str
Names = Tuple[str, ...]
FieldsOf = Callable[[str], Sequence[Field]]
"""Name of a task that is not shipped → the fields it declares."""


class Config:
    """The values of one run, checked.

    Args:
        values: Name → value, complete.
        given: The names that the person gave, in a file or on the command line.

    Attributes:
        notes: One line for each shipped config that is in use: the values that it changed.
    """

    def __init__(
        self, values: Mapping[str, Value], given: Mapping[str, Value] | None = None
    ) -> None:
        self.values: dict[str, Value] = dict(values)
        self.given: dict[str, Value] = dict(given or {})
        self.notes: list[str] = []

    def int(self, name: str) -> int:
        """Return the integer `name`."""
        return int(self.values[name])

    def float(self, name: str) -> float:
        """Return the number `name`."""
        return float(self.values[name])

    def bool(self, name: str) -> bool:
        """Return the truth value `name`."""
        return bool(self.values[name])

    def str(self, name: str) -> str:
        """Return the text `name`."""
        return str(self.values[name])

    def names(self, name: "Key") -> "Names":
        """Return the words of `name`."""
        words = [word.strip() for word in str(self.values[name]).split(",")]
        return tuple(word for word in words if word)


def merge_config(
    files: Sequence[StrPath],
    given: Mapping[str, str | None],
    fields_of_other: FieldsOf | None = None,
    settings: Mapping[str, str] | None = None,
) -> Config:
    """Return the config of a launch.

    Args:
        files: The config files, or names of shipped ones; a later one beats an earlier one.
        given: The values of the command line, as text; None if not given.
        fields_of_other: Returns the fields of a task that is not shipped.
        settings: The values of ``--set``; those in `given` beat them.

    Raises:
        UsageError: An unknown task or key (with the nearest known name), or a value of the wrong
            kind.
    """
    lines: dict[str, WrittenScalar] = {}
    replaced: dict[str, dict[str, WrittenScalar]] = {}
    for file in files:
        if str(file) in SHIPPED:
            replaced[str(file)] = dict(lines)
        lines.update(read_config(file))
    lines.update(
        {key: WrittenScalar(word, False, f"--set {key}") for key, word in (settings or {}).items()}
    )
    for name, text in given.items():
        if text is not None:
            lines[name] = WrittenScalar(text, False, f"--{name.replace('_', '-')}")
    if "task" in lines:
        task = lines["task"].text
    else:
        task = "char_lm"
    own: Sequence[Field] = ()
    if ":" in task and fields_of_other is not None:
        own = fields_of_other(task)
    elif task not in TASKS:
        raise UsageError(
            f"{lines['task'].where}: unknown task {task!r}{_suggestion_text(task, TASKS)}; a "
            "task of your own is module:Class"
        )
    fields = fields_of(task, own)
    values: dict[str, Value] = {name: field.default for name, field in fields.items()}
    chosen: dict[str, Value] = {}
    for name, scalar in lines.items():
        chosen[name] = values[name] = _convert_scalar(
            _find_field(name, scalar, fields, task), scalar
        )
    config = Config(values, chosen)
    for shipped, former in replaced.items():
        config.notes.append(_describe_changes(shipped, former, lines, fields))
    return config


def _describe_changes(
    shipped: str,
    former: Mapping[str, WrittenScalar],
    lines: Mapping[str, WrittenScalar],
    fields: Mapping[str, Field],
) -> str:
    """Return one line about the values that are in force because of the config `shipped`."""
    changes: list[str] = []
    for name, scalar in lines.items():
        if scalar.where != _shipped_place(shipped):
            continue
        before = _default_text(fields[name].default).strip("`")
        if name in former:
            before = former[name].text
        if before != scalar.text:
            changes.append(f"{name} {before} → {scalar.text}")
    return f"config {shipped}: {', '.join(changes) or 'changes nothing'}"


def _shipped_place(name: str) -> str:
    return f"{name} (shipped)"


def _find_field(name: str, scalar: WrittenScalar, fields: Mapping[str, Field], task: str) -> Field:
    sections = {field.section for field in fields.values()}
    if scalar.section and scalar.section not in sections:
        raise UsageError(
            f"{scalar.where}: unknown section "
            f"{scalar.section!r}{_suggestion_text(scalar.section, sections)}"
        )
    if name not in fields:
        raise UsageError(
            f"{scalar.where}: unknown key {name!r} for task {task}{_suggestion_text(name, fields)}"
        )
    field = fields[name]
    if scalar.section and scalar.section != field.section:
        raise UsageError(
            f"{scalar.where}: {name} belongs to the section {field.section!r}, not "
            f"{scalar.section!r}"
        )
    return field


def _convert_scalar(field: Field, scalar: WrittenScalar) -> Value:
    if scalar.items and field.kind != "names":
        raise UsageError(f"{scalar.where}: {field.name} takes one value, not a list")
    if field.kind == "bool":
        if scalar.quoted or scalar.text not in ("true", "false"):
            raise UsageError(
                f"{scalar.where}: {field.name} must be true or false, not {scalar.text!r}"
            )
        return scalar.text == "true"
    if field.kind in ("str", "names"):
        if field.choices and scalar.text not in field.choices:
            near = _suggestion_text(scalar.text, field.choices)
            raise UsageError(f"{scalar.where}: {field.name} cannot be {scalar.text!r}{near}")
        return scalar.text
    return _parse_number(field, scalar)


def _parse_number(field: Field, scalar: WrittenScalar) -> Value:
    try:
        if scalar.quoted:
            raise ValueError
        value: float
        if field.kind == "int":
            value = int(scalar.text)
        else:
            value = float(scalar.text)
    except ValueError:
        if field.kind == "int":
            kind = "a whole number"
        else:
            kind = "a number"
        raise UsageError(
            f"{scalar.where}: {field.name} must be {kind}, not {scalar.text!r}"
        ) from None
    if not field.least <= value < math.inf:
        raise UsageError(
            f"{scalar.where}: {field.name} must be at least {field.least:g}, not {scalar.text}"
        )
    return value


def _suggestion_text(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    # Options of the command line have dashes where a key has underscores.
    wanted = name.lower().replace("-", "_")
    close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(names)}"
