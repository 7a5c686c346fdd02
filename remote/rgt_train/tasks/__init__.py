"""Reference tasks: small, on data made at run time, and really learning; and tasks of your own."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Dict, Sequence, Tuple, cast

from rgt_train.config.fields import COMMON, Field
from rgt_train.config.merge import Config
from rgt_train.exits import UsageError
from rgt_train.tasks.base import Task

SHIPPED: Dict[str, Tuple[str, str]] = {
    "char_lm": ("rgt_train.tasks.char_lm", "CharLM"),
    "image_classifier": ("rgt_train.tasks.image_classifier", "ImageClassifier"),
    "diffusion": ("rgt_train.tasks.diffusion", "Diffusion"),
}
_NEEDED = ("model", "loss", "validation")


def make(config: Config) -> Task:
    """Return the task that `config` names, with its data made.

    Raises:
        UsageError: There is no such class, it is no task, or it refuses the config.
    """
    name = config.str("task")
    module, attribute = SHIPPED[name] if name in SHIPPED else _split(name)
    task = cast(Task, _load(module, attribute, name)(config))
    if not isinstance(getattr(task, "samples", None), int) or task.samples < 1:
        raise UsageError(
            f"task {name}: `samples` must be the number of training samples, an int of at least 1"
        )
    return task


def own_fields(name: str) -> Sequence[Field]:
    """Return the fields that the task ``module:Class`` declares in its ``FIELDS``.

    Raises:
        UsageError: There is no such class, or a field has the name of a common one.
    """
    fields: Sequence[Field] = getattr(_load(*_split(name), name), "FIELDS", ())
    taken = {field.name for field in COMMON}
    for field in fields:
        if field.name in taken:
            raise UsageError(f"task {name}: its field {field.name!r} has the name of a common key")
    return fields


def _split(name: str) -> Tuple[str, str]:
    module, _, attribute = name.partition(":")
    if not (attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UsageError(f"task {name}: a task of your own is module:Class, such as mytasks.audio:Speech")
    return module, attribute


def _load(module: str, attribute: str, name: str) -> Any:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # `python -m` has it, a zipapp has not
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"task {name}: cannot import {module!r}: {error} (looked in {os.getcwd()} and sys.path)"
        ) from error
    found = getattr(loaded, attribute, None)
    if found is None:
        raise UsageError(f"task {name}: {getattr(loaded, '__file__', module)} has no {attribute!r}")
    missing = [method for method in _NEEDED if not callable(getattr(found, method, None))]
    if missing:
        raise UsageError(f"task {name}: {attribute} has no method {', '.join(missing)} (see docs/trainer.md)")
    return found
