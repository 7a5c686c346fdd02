"""Reads the flat part of YAML (``key: value`` lines), strictly, without PyYAML.

What this reader accepts, every YAML reader understands the same way. What it does not accept (nesting, lists,
anchors, duplicates) it refuses with file and line instead of guessing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict

from rgt_train.durable import StrPath
from rgt_train.exits import UsageError

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)\s*:(?:\s+(.*))?\Z")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)')\s*(?:#.*)?\Z""")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


@dataclass(frozen=True)
class Scalar:
    """A value as it stands in the file.

    Attributes:
        text: Its characters, without quotes and comments.
        quoted: Whether it had quotes: then it is text, whatever it looks like.
        where: ``file:line``, for messages.
    """

    text: str
    quoted: bool
    where: str


def read(path: StrPath) -> Dict[str, Scalar]:
    """Return the keys and values of the file at `path`, in its order.

    Raises:
        UsageError: It cannot be read, or a line is not ``key: value``; names file and line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the config {path}: {error}") from error
    found: Dict[str, Scalar] = {}
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        if not line.strip() or line.lstrip().startswith("#") or (line.rstrip() == "---" and not found):
            continue
        match = _KEY.match(line.rstrip())
        if not match:
            raise UsageError(
                f"{where}: expected 'key: value' at the start of the line, found {line.strip()[:60]!r}"
            )
        key, rest = match.group(1), (match.group(2) or "").strip()
        if key in found:
            raise UsageError(f"{where}: {key!r} is given twice, first at {found[key].where}")
        found[key] = _scalar(rest, where)
    return found


def _scalar(text: str, where: str) -> Scalar:
    if text[:1] in ("'", '"'):
        match = _QUOTED.match(text)
        if not match:
            raise UsageError(f"{where}: the quotes of {text[:60]!r} do not match")
        if match.group(1) is not None:
            body = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(0)), match.group(1))
        else:
            body = match.group(2).replace("''", "'")
        return Scalar(body, True, where)
    text = re.split(r"(?:^|\s)#", text, maxsplit=1)[0].strip()
    if text[:1] in tuple("[{&*!|>%@`"):
        raise UsageError(
            f"{where}: only plain values are read here, not {text[:60]!r} (quote it if it is text)"
        )
    return Scalar(text, False, where)
