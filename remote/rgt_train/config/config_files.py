"""Reads config files: YAML where PyYAML is installed, JSON everywhere, and the configs that come with the trainer."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Tuple, Union

from rgt_train.checkpoint.diskio import StrPath
from rgt_train.exits import UsageError

Plain = Union[str, int, float, List[str]]

SHIPPED: Mapping[str, Dict[str, Dict[str, Plain]]] = {
    # While you write the training: everything is logged, mistakes stop soon, nothing takes long.
    "dev": {
        "log": {"log_every": 1},
        "save": {"save_every": 50, "keep": 2},
        "guard": {"max_bad_steps": 1, "spike": "warn", "stall_floor": 60},
    },
    # For days on a rented machine with nobody awake: few lines, TensorBoard, more checkpoints to go back to.
    "prod": {
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
class Scalar:
    """A value as written in the file.

    Attributes:
        text: Its characters, without quotes and comments; those of a list joined by commas.
        quoted: Whether it had quotes: then it is text, whatever it looks like.
        where: ``file:line``, for messages.
        section: The heading it stands under; empty at the top level.
        items: Whether it is a list.
    """

    text: str
    quoted: bool
    where: str
    section: str = ""
    items: bool = False


def read(path: StrPath) -> Dict[str, Scalar]:
    """Return the keys and values of the file at `path`, or of a shipped config, in its order.

    Raises:
        UsageError: It cannot be read, or has something else than keys with plain values or lists of them, below
            headings at most; names the file, and the line where that is known.
    """
    shipped = SHIPPED.get(str(path))
    if shipped is not None:
        sections = _Object((section, _Object(values.items())) for section, values in shipped.items())
        return _flatten(sections, f"{path} (shipped)")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        hint = f" (shipped are {' and '.join(SHIPPED)})" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"cannot read the config {path}: {error}{hint}") from error
    try:
        yaml: Any = importlib.import_module("yaml")  # here: a box may lack it
    except ImportError:
        return _read_json(text, str(path))
    try:
        return _read_yaml(yaml, text, str(path))
    except yaml.YAMLError as error:
        mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise UsageError(f"{where}: not YAML: {why or error}") from None


def _read_yaml(yaml: Any, text: str, name: str) -> Dict[str, Scalar]:
    """Return the keys and values of a YAML text.

    Args:
        yaml: PyYAML's module.
        text: The file's content.
        name: The file's name, for messages.

    Raises:
        UsageError: It is YAML, but not keys with plain values, below headings at most; names file and line.
    """
    found: Dict[str, Scalar] = {}

    def line_of(node: Any) -> str:
        return f"{name}:{node.start_mark.line + 1}"

    def pairs(node: Any) -> Iterable[Tuple[Any, Any]]:
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{line_of(node)}: expected 'key: value'")
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError(f"{line_of(key)}: a key must be a word")
            yield key, value

    def add(key: Any, value: Any, section: str) -> None:
        if isinstance(value, yaml.SequenceNode):
            for item in value.value:
                if not isinstance(item, yaml.ScalarNode) or "," in item.value or not item.value:
                    raise UsageError(f"{line_of(item)}: this cannot be an item of a list here")
            text = ",".join(item.value for item in value.value)
            _add(found, key.value, Scalar(text, False, line_of(key), section, items=True))
        elif isinstance(value, yaml.ScalarNode):
            nothing = value.tag.endswith(":null")
            text = "" if nothing else value.value
            _add(found, key.value, Scalar(text, value.style in ("'", '"'), line_of(key), section))
        else:
            raise UsageError(f"{line_of(key)}: {key.value!r} takes a plain value or a list, nothing deeper")

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in pairs(root) if root is not None else ():
        if isinstance(value, yaml.MappingNode):
            for inner, plain in pairs(value):
                add(inner, plain, key.value)
        else:
            add(key, value, "")
    return found


class _Object(List[Tuple[str, Any]]):
    """A JSON object as its (key, value) pairs, so that a key that is given twice is seen."""


def _read_json(text: str, name: str) -> Dict[str, Scalar]:
    """Return the keys and values of a JSON text."""
    try:
        found = json.loads(text, object_pairs_hook=_Object)
    except ValueError as error:
        raise UsageError(
            f"{name}: PyYAML is not installed here, and this is not JSON ({error}): "
            "pip install pyyaml, or write the config as JSON"
        ) from None
    if not isinstance(found, _Object):
        raise UsageError(f"{name}: expected an object of keys and values")
    return _flatten(found, name)


def _flatten(pairs: _Object, name: str) -> Dict[str, Scalar]:
    """Return the keys and values of a config, those of its sections included; `name` is for messages."""
    found: Dict[str, Scalar] = {}
    for key, value in pairs:
        is_section = isinstance(value, _Object)
        for inner, plain in value if is_section else [(key, value)]:
            items = isinstance(plain, list)
            texts = [_text_of(item, f"{name}: {inner!r}") for item in (plain if items else [plain])]
            if items and any("," in text or not text for text in texts):
                raise UsageError(f"{name}: {inner!r} has an item that cannot be an item of a list here")
            quoted = isinstance(plain, str)
            _add(found, inner, Scalar(",".join(texts), quoted, name, key if is_section else "", items))
    return found


def _text_of(value: Any, where: str) -> str:
    """Return a plain value as it would be written in YAML."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise UsageError(f"{where} takes a plain value or a list, nothing deeper")


def _add(found: Dict[str, Scalar], key: str, scalar: Scalar) -> None:
    if key in found:
        raise UsageError(f"{scalar.where}: {key!r} is given twice, first at {found[key].where}")
    found[key] = scalar
