"""Merges defaults, config files and the command line into one set of values; the later of these wins."""

from __future__ import annotations

import difflib
import math
from typing import Callable, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from rgt_train.checkpoint.diskio import StrPath
from rgt_train.config.config_files import Scalar, read
from rgt_train.config.fields import TASKS, Field, Value, fields_of
from rgt_train.exits import UsageError

Key = str
Names = Tuple[str, ...]
FieldsOf = Callable[[str], Sequence[Field]]
"""Name of a task that is not shipped → the fields it declares."""


class Config:
    """The values of one run, checked.

    Args:
        values: Name → value, complete.
        given: Those of them that the person gave, in a file or on the command line.
    """

    def __init__(self, values: Mapping[str, Value], given: Optional[Mapping[str, Value]] = None) -> None:
        self.values: Dict[str, Value] = dict(values)
        self.given: Dict[str, Value] = dict(given or {})

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
        return tuple(word.strip() for word in str(self.values[name]).split(",") if word.strip())


def merge(
    files: Sequence[StrPath], given: Mapping[str, Optional[str]], fields_of_other: Optional[FieldsOf] = None
) -> Config:
    """Return the config of a launch.

    Args:
        files: The config files, or names of shipped ones; a later one beats an earlier one.
        given: What the command line says, as text; None where it says nothing.
        fields_of_other: Asked for the fields of a task that is not shipped.

    Raises:
        UsageError: An unknown task or key (with the nearest known name), or a value of the wrong kind.
    """
    lines: Dict[str, Scalar] = {}
    for file in files:
        lines.update(read(file))
    for name, text in given.items():
        if text is not None:
            lines[name] = Scalar(text, False, f"--{name.replace('_', '-')}")
    task = lines["task"].text if "task" in lines else "char_lm"
    own: Sequence[Field] = ()
    if ":" in task and fields_of_other is not None:
        own = fields_of_other(task)
    elif task not in TASKS:
        raise UsageError(
            f"{lines['task'].where}: unknown task {task!r}{_nearest(task, TASKS)}; a task of your own is module:Class"
        )
    fields = fields_of(task, own)
    values: Dict[str, Value] = {name: field.default for name, field in fields.items()}
    chosen: Dict[str, Value] = {}
    for name, scalar in lines.items():
        chosen[name] = values[name] = _convert(_known(name, scalar, fields, task), scalar)
    return Config(values, chosen)


def _known(name: str, scalar: Scalar, fields: Mapping[str, Field], task: str) -> Field:
    sections = {field.section for field in fields.values()}
    if scalar.section and scalar.section not in sections:
        raise UsageError(
            f"{scalar.where}: unknown section {scalar.section!r}{_nearest(scalar.section, sections)}"
        )
    if name not in fields:
        raise UsageError(f"{scalar.where}: unknown key {name!r} for task {task}{_nearest(name, fields)}")
    field = fields[name]
    if scalar.section and scalar.section != field.section:
        raise UsageError(
            f"{scalar.where}: {name} belongs to the section {field.section!r}, not {scalar.section!r}"
        )
    return field


def _convert(field: Field, scalar: Scalar) -> Value:
    if scalar.items and field.kind != "names":
        raise UsageError(f"{scalar.where}: {field.name} takes one value, not a list")
    if field.kind == "bool":
        if scalar.quoted or scalar.text not in ("true", "false"):
            raise UsageError(f"{scalar.where}: {field.name} must be true or false, not {scalar.text!r}")
        return scalar.text == "true"
    if field.kind in ("str", "names"):
        if field.choices and scalar.text not in field.choices:
            near = _nearest(scalar.text, field.choices)
            raise UsageError(f"{scalar.where}: {field.name} cannot be {scalar.text!r}{near}")
        return scalar.text
    return _number(field, scalar)


def _number(field: Field, scalar: Scalar) -> Value:
    try:
        if scalar.quoted:
            raise ValueError
        value = int(scalar.text) if field.kind == "int" else float(scalar.text)
    except ValueError:
        kind = "a whole number" if field.kind == "int" else "a number"
        raise UsageError(f"{scalar.where}: {field.name} must be {kind}, not {scalar.text!r}") from None
    if not field.least <= value < math.inf:
        raise UsageError(f"{scalar.where}: {field.name} must be at least {field.least:g}, not {scalar.text}")
    return value


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name.lower().replace("-", "_"), names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(names)}"
