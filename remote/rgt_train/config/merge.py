"""Merges defaults, config files and the command line into one set of values; the later of these wins.

PyYAML reads the files where it is installed. A box may lack it: there a reader of our own takes the usual part of YAML,
and refuses the rest (anchors, block text, flow mappings) with file and line instead of guessing.
"""

from __future__ import annotations

import difflib
import importlib
import math
import pkgutil
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from rgt_train.checkpoint.diskio import StrPath
from rgt_train.config.fields import TASKS, Field, Value, fields_of
from rgt_train.exits import UsageError

SHIPPED = ("dev", "prod")
"""Configs that come with the trainer, by name."""

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)\s*:(?:\s+(.*))?\Z")
_ITEM = re.compile(r"-\s+(.+)\Z")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')\s*(?:#.*)?\Z""")
_LIST = re.compile(r"\[(.*)\]\s*(?:#.*)?\Z")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


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
        UsageError: It cannot be read, or something in it is not understood; names file and line.
    """
    if str(path) in SHIPPED:
        data = pkgutil.get_data(__package__, f"{path}.yaml")  # works inside a zipapp, too
        assert data is not None
        return parse(data.decode(), f"{path}.yaml (shipped)")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        hint = f" (shipped are {' and '.join(SHIPPED)})" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"cannot read the config {path}: {error}{hint}") from error
    try:
        yaml: Any = importlib.import_module("yaml")  # here: a box may lack it
    except ImportError:
        try:
            return parse(text, str(path))
        except UsageError as error:
            raise UsageError(f"{error} (with PyYAML installed, all of YAML can be written)") from None
    try:
        return compose(yaml, text, str(path))
    except yaml.YAMLError as error:
        mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise UsageError(f"{where}: not YAML: {why or error}") from None


def compose(yaml: Any, text: str, name: str) -> Dict[str, Scalar]:
    """Return the keys and values of `text`, read by PyYAML.

    Args:
        yaml: The module.
        text: The file.
        name: What it is called in messages.

    Raises:
        UsageError: It is YAML, but not keys with plain values, below headings at most; names file and line.
    """
    found: Dict[str, Scalar] = {}

    def where(node: Any) -> str:
        return f"{name}:{node.start_mark.line + 1}"

    def pairs(node: Any) -> Iterable[Tuple[Any, Any]]:
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{where(node)}: expected 'key: value'")
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UsageError(f"{where(key)}: a key must be a word")
            yield key, value

    def add(key: Any, value: Any, section: str) -> None:
        if isinstance(value, yaml.SequenceNode):
            for item in value.value:
                if not isinstance(item, yaml.ScalarNode) or "," in item.value or not item.value:
                    raise UsageError(f"{where(item)}: this cannot be an item of a list here")
            text = ",".join(item.value for item in value.value)
            _add(found, key.value, Scalar(text, False, where(key), section, items=True))
        elif isinstance(value, yaml.ScalarNode):
            nothing = value.tag.endswith(":null")
            text = "" if nothing else value.value
            _add(found, key.value, Scalar(text, value.style in ("'", '"'), where(key), section))
        else:
            raise UsageError(f"{where(key)}: {key.value!r} takes a plain value or a list, nothing deeper")

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in pairs(root) if root is not None else ():
        if isinstance(value, yaml.MappingNode):
            for inner, plain in pairs(value):
                add(inner, plain, key.value)
        else:
            add(key, value, "")
    return found


@dataclass(frozen=True)
class _Line:
    indent: int
    text: str
    where: str


def parse(text: str, name: str) -> Dict[str, Scalar]:
    """Return the keys and values of `text`; `name` is for messages.

    Raises:
        UsageError: Something in it is not understood; names file and line.
    """
    found: Dict[str, Scalar] = {}
    section, inner = "", 0
    lines = _lines(text, name)
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        match = _KEY.match(line.text)
        if line.indent and section:
            inner = inner or line.indent
        if not match or line.indent not in (0, inner if section else 0):
            raise UsageError(f"{line.where}: expected 'key: value', found {line.text[:60]!r}")
        if not line.indent:
            section, inner = "", 0
        key, rest = match.group(1), _strip(match.group(2) or "")
        if rest:
            _add(found, key, _scalar(rest, line.where, section))
            continue
        items, at = _items(lines, at, line.indent)
        if items is not None:
            _add(found, key, Scalar(",".join(items), False, line.where, section, items=True))
        elif not section and at < len(lines) and lines[at].indent > line.indent:
            section = key
        else:
            _add(found, key, Scalar("", False, line.where, section))
    return found


def _lines(text: str, name: str) -> List[_Line]:
    lines: List[_Line] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        body = raw.strip()
        if not body or body.startswith("#") or (body == "---" and not lines):
            continue
        margin = raw[: len(raw) - len(raw.lstrip())]
        if margin.strip(" "):
            raise UsageError(f"{name}:{number}: a line is indented by something other than spaces")
        lines.append(_Line(len(margin), body, f"{name}:{number}"))
    return lines


def _items(lines: List[_Line], at: int, indent: int) -> Tuple[Optional[List[str]], int]:
    """Return the block list that begins at line `at`, below a key indented by `indent`; None where there is none."""
    items: List[str] = []
    while at < len(lines) and lines[at].indent >= indent:
        match = _ITEM.match(lines[at].text)
        if not match:
            break
        items.append(_item(_strip(match.group(1)), lines[at].where))
        at += 1
    return (items or None), at


def _add(found: Dict[str, Scalar], key: str, scalar: Scalar) -> None:
    if key in found:
        raise UsageError(f"{scalar.where}: {key!r} is given twice, first at {found[key].where}")
    found[key] = scalar


def _strip(text: str) -> str:
    """Return `text` without a comment that is all there is."""
    return "" if text.startswith("#") else text.strip()


def _scalar(text: str, where: str, section: str) -> Scalar:
    if text[:1] in ("'", '"'):
        return Scalar(_unquoted(text, where), True, where, section)
    match = _LIST.match(text)
    if match:
        inside = match.group(1).strip()
        items = [_item(item.strip(), where) for item in inside.split(",")] if inside else []
        return Scalar(",".join(items), False, where, section, items=True)
    text = re.split(r"\s#", text, maxsplit=1)[0].strip()
    if (
        text[:1] in tuple("[]{}&*!|>%@`,?")
        or text.startswith(("- ", ": "))
        or ": " in text
        or text.endswith(":")
    ):
        raise UsageError(
            f"{where}: only plain values and lists of them are read here, not {text[:60]!r} (quote it if it is text)"
        )
    return Scalar(text, False, where, section)


def _item(text: str, where: str) -> str:
    scalar = _scalar(text, where, "")
    if scalar.items or not scalar.text or "," in scalar.text:
        raise UsageError(f"{where}: {text[:60]!r} cannot be an item of a list here")
    return scalar.text


def _unquoted(text: str, where: str) -> str:
    match = _QUOTED.match(text)
    if not match:
        raise UsageError(f"{where}: the quotes of {text[:60]!r} do not match")
    if match.group(1) is None:
        return match.group(2).replace("''", "'")
    return re.sub(r"\\(.)", lambda m: _escape(m.group(1), where), match.group(1))


def _escape(letter: str, where: str) -> str:
    if letter not in _ESCAPES:
        raise UsageError(f"{where}: the escape \\{letter} is not read here; single quotes take text as it is")
    return _ESCAPES[letter]


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
