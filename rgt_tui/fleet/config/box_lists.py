"""An entry for a list of one box in the fleet file; everything else of the file stays as it was, byte by byte."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.fleet.config.editing import rewrite
from rgt_tui.fleet.config.loading import FleetFileError, Positions, Source, parse_fleet


def with_entry(path: Path, text: str, name: str, key: str, entry: str) -> str:
    """Return the text of a fleet file with an entry in a list of a box; the same text where it has it already.

    Args:
        path: What errors name.
        text: The present text.
        name: The box.
        key: The list, such as ``jobs``.
        entry: What to add. It becomes the first one: what stands in the list is not touched, comments included.

    Raises:
        FleetFileError: the file is broken, or the box is not written as a table of its own; it names what to write.
    """
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FleetFileError(f"{path} is not valid TOML, and is left as it is: {error}") from error
    table = before.get("boxes", {}).get(name)
    if not isinstance(table, dict):
        raise FleetFileError(f"{path} has no box {name!r}")
    shared = before.get("defaults", {}).get(key, [])
    present = table.get(key, shared)
    if entry in present:
        return text
    word = msgspec.json.encode(entry).decode()
    wanted: dict[str, Any] = {**table, key: [entry, *present]}
    rows = text.splitlines(keepends=True)
    places = Positions(text)
    line = places.line(("boxes", name, key)) if key in table else places.line(("boxes", name))
    if key in table:
        opening = re.compile(rf"([ \t]*\"?{re.escape(key)}\"?[ \t]*=[ \t]*\[)")
        rows[line - 1] = opening.sub(lambda match: f"{match[1]}{word}, ", rows[line - 1], count=1)
    else:
        end = "\r\n" if rows[line - 1].endswith("\r\n") else "\n"
        glue = "" if rows[line - 1].endswith("\n") else end
        entries = ", ".join(msgspec.json.encode(one).decode() for one in wanted[key])
        rows[line - 1] += f"{glue}{key} = [{entries}]{end}"
    result = "".join(rows)
    try:
        same = tomllib.loads(result) == {**before, "boxes": {**before["boxes"], name: wanted}}
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise FleetFileError(
            f"{path}:{line}: boxes.{name} is not written as a table of its own: add {word} to its {key} by hand"
        )
    parse_fleet(path, result)
    return result


def add_entry(
    path: Path,
    name: str,
    key: str,
    entry: str,
    written: Callable[[Source | None, Source], None] = lambda before, after: None,
) -> bool:
    """Add an entry to a list of a box in the fleet file at `path`, one rgt at a time.

    Args:
        path: The file.
        name: The box.
        key: The list.
        entry: What to add.
        written: As for `rgt_tui.fleet.config.editing.add_boxes`.

    Returns:
        Whether it was added: False = it was there.

    Raises:
        FleetFileError: as `with_entry`, or the file cannot be read or written; it is then as it was.
    """
    changed: list[bool] = []

    def change(text: str) -> str:
        result = with_entry(path, text, name, key, entry)
        changed.append(result != text)
        return result

    rewrite(path, change, written)
    return changed[-1]
