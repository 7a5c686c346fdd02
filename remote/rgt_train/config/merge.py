"""Defaults, config file and command line become one set of values; the later of these three wins."""

from __future__ import annotations

import difflib
import math
from typing import Dict, Iterable, Mapping, Optional, Union

from rgt_train.config.fields import TASKS, Field, Value, fields_of
from rgt_train.config.reader import Scalar, read
from rgt_train.durable import StrPath
from rgt_train.exits import UsageError


class Config:
    """The values of one run, checked.

    Args:
        values: Name → value, complete.
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values: Dict[str, Value] = dict(values)

    def int(self, name: str) -> int:
        """Return the integer `name`."""
        return int(self.values[name])

    def float(self, name: str) -> float:
        """Return the number `name`."""
        return float(self.values[name])

    def str(self, name: str) -> str:
        """Return the text `name`."""
        return str(self.values[name])


def merge(path: Optional[StrPath], given: Mapping[str, Optional[str]]) -> Config:
    """Return the config of a launch.

    Args:
        path: The config file, or None.
        given: What the command line says, as text; None where it says nothing.

    Raises:
        UsageError: An unknown task or key (with the nearest known name), or a value of the wrong kind.
    """
    lines: Dict[str, Scalar] = dict(read(path)) if path is not None else {}
    for name, text in given.items():
        if text is not None:
            lines[name] = Scalar(text, False, f"--{name.replace('_', '-')}")
    task = lines["task"].text if "task" in lines else "char_lm"
    if task not in TASKS:
        raise UsageError(f"{lines['task'].where}: unknown task {task!r}{_nearest(task, TASKS)}")
    fields = fields_of(task)
    values: Dict[str, Value] = {name: field.default for name, field in fields.items()}
    for name, scalar in lines.items():
        if name not in fields:
            raise UsageError(f"{scalar.where}: unknown key {name!r} for task {task}{_nearest(name, fields)}")
        values[name] = _convert(fields[name], scalar)
    return Config(values)


def _convert(field: Field, scalar: Scalar) -> Value:
    if field.kind == "str":
        return scalar.text
    try:
        if scalar.quoted:
            raise ValueError
        value: Union[int, float] = int(scalar.text) if field.kind == "int" else float(scalar.text)
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
