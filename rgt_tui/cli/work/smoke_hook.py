"""Limits a training to a few batches on the CPU: ``rgt smoke`` starts each Python with this file.

It is copied as ``sitecustomize.py`` and runs in the user's Python (3.8 or later), not in rgt's, so
it imports only the standard library. A framework is changed when the script imports it: some
arguments of some of its methods are replaced, as `LIMITS` says.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.metadata
import inspect
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

BATCHES, OUT, NOTES = "RGT_SMOKE_BATCHES", "RGT_OUT", "RGT_SMOKE_NOTES"
"""Environment variables: number of batches, directory for results, file for the notes."""


class CallLimit(NamedTuple):
    """One method of a framework whose calls are changed."""

    package: str
    """Distribution, for its version."""
    module: str
    owner: str
    """Class of the method."""
    method: str
    arguments: dict[str, Any]
    """Arguments to replace; `BATCHES` and `OUT` become their values. Unknown ones are skipped."""
    attributes: dict[str, Any]
    """Attributes to set on the object before the call, if it has them."""
    shorten: bool = False
    """Whether only the first batches of what it returns are used."""


LIGHTNING: dict[str, Any] = {
    "fast_dev_run": BATCHES, "accelerator": "cpu", "devices": 1, "num_nodes": 1, "strategy": "auto",
}  # fmt: skip
TRAINING_ARGUMENTS: dict[str, Any] = {
    "max_steps": BATCHES, "gradient_accumulation_steps": 1, "logging_steps": 1,
    "eval_steps": BATCHES,
    "report_to": "none", "save_strategy": "no", "load_best_model_at_end": False,
    "push_to_hub": False,
    "output_dir": OUT, "use_cpu": True, "no_cuda": True, "fp16": False, "tf32": None,
    "deepspeed": None, "fsdp": "",
}  # fmt: skip
FIT: dict[str, Any] = {
    "epochs": 1, "initial_epoch": 0, "steps_per_epoch": BATCHES, "validation_steps": BATCHES,
}  # fmt: skip
TRAINER = "transformers.trainer"
LIMITS = (
    CallLimit("transformers", "transformers.training_args", "TrainingArguments", "__post_init__",
              {}, TRAINING_ARGUMENTS),
    CallLimit("transformers", TRAINER, "Trainer", "train", {"resume_from_checkpoint": None}, {}),
    CallLimit("transformers", TRAINER, "Trainer", "get_eval_dataloader", {}, {}, shorten=True),
    *(
        CallLimit(package, f"{module}.trainer.trainer", "Trainer", method, arguments, {})
        for package, module in (
            ("lightning", "lightning.pytorch"),
            ("pytorch-lightning", "pytorch_lightning"),
        )
        for method, arguments in (("__init__", LIGHTNING), ("fit", {"ckpt_path": None}))
    ),
    *(
        CallLimit("keras", module, owner, method, arguments, {})
        for module, owner in (
            ("keras.src.backend.torch.trainer", "TorchTrainer"),
            ("keras.src.backend.jax.trainer", "JAXTrainer"),
            ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer"),
            ("keras.src.engine.training", "Model"),
        )
        for method, arguments in (("fit", FIT), ("evaluate", {"steps": BATCHES}))
    ),
    CallLimit("rgt-train", "rgt_train.run", "Run", "__init__", {"out": OUT, "max_steps": BATCHES},
              {}),
    CallLimit("rgt-train", "rgt_train.cadence", "Options", "__init__",
              {"mirror": "", "loggers": (), "log_every": 1}, {}),
)  # fmt: skip


def first_batches(loader: Any, count: int) -> Any:
    """Return a data loader that ends after `count` batches, and is otherwise the given one."""
    methods = {
        "__iter__": lambda _: itertools.islice(iter(loader), count),
        "__len__": lambda _: min(len(loader), count),
        "__getattr__": lambda _, name: getattr(loader, name),
    }
    return type("FirstBatches", (), methods)()


def limit_method(limit: CallLimit, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that replaces arguments as `limit` says, and notes it."""
    signature = inspect.signature(method)
    values: dict[str, Any] = {BATCHES: int(os.environ[BATCHES]), OUT: os.environ[OUT]}

    def fill_values(wanted: dict[str, Any]) -> dict[str, Any]:
        known = {name: values[value] for name, value in wanted.items() if value in (BATCHES, OUT)}
        return {**wanted, **known}

    @functools.wraps(method)
    def limited_method(self: Any, *given: Any, **named: Any) -> Any:
        bound = signature.bind(self, *given, **named)
        wanted = fill_values(limit.arguments)
        changed = {name: value for name, value in wanted.items() if name in signature.parameters}
        bound.arguments.update(changed)
        for name, value in fill_values(limit.attributes).items():
            if hasattr(self, name):
                setattr(self, name, value)
                changed[name] = value
        if BATCHES in (*limit.arguments.values(), *limit.attributes.values()):
            _note_limit(limit, changed)
        result = method(*bound.args, **bound.kwargs)
        if limit.shorten:
            return first_batches(result, values[BATCHES])
        return result

    return limited_method


def _note_limit(limit: CallLimit, changed: dict[str, Any]) -> None:
    try:
        version = importlib.metadata.version(limit.package)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    note = {
        "framework": f"{limit.package} {version}".rstrip(),
        "call": f"{limit.owner}.{limit.method}",
        "changed": changed,
    }
    # Without the file, only the report lacks it.
    with contextlib.suppress(OSError), Path(os.environ[NOTES]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(note, default=str) + "\n")


class LimitingFinder(importlib.abc.MetaPathFinder):
    """Changes the modules of `LIMITS` when they are imported."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that the other finders have, with a loader that changes the module."""
        limits = [limit for limit in LIMITS if limit.module == fullname]
        if not limits:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                _change_after_load(spec.loader, limits)
                return spec
        return None


def _change_after_load(loader: Any, limits: list[CallLimit]) -> None:
    execute = loader.exec_module

    def execute_and_change(module: Any) -> None:
        execute(module)
        for limit in limits:
            owner = getattr(module, limit.owner, object)
            method = vars(owner).get(limit.method)
            if method is not None:
                setattr(owner, limit.method, limit_method(limit, method))

    loader.exec_module = execute_and_change


def run_hidden_sitecustomize() -> None:
    """Import the ``sitecustomize`` that this file hides, if there is one."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    own = sys.modules.pop("sitecustomize")
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    sys.modules["sitecustomize"] = own  # its import is not over yet


if __name__ == "sitecustomize" and {BATCHES, OUT, NOTES} <= set(os.environ):
    sys.meta_path.insert(0, LimitingFinder())
    run_hidden_sitecustomize()
