"""The fleet file: TOML, one table per box. Errors name the file, the key, and the nearest known one."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.model.box import BoxSpec, ProviderRef
from rgt_tui.profiles import ProfileError, load_profile

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class FleetFileError(Exception):
    """The fleet file cannot be used; the message says where and what to do."""


def load_fleet(path: Path) -> tuple[BoxSpec, ...]:
    """Read a fleet file.

    Raises:
        FleetFileError: it cannot be read, is not TOML, or has an unknown or wrong key.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise FleetFileError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FleetFileError(f"{path} is not valid TOML: {error}") from error
    _known(path, text, "", data, ("boxes",))
    boxes = data.get("boxes", {})
    if not isinstance(boxes, dict) or not boxes:
        raise FleetFileError(f'{path} names no box; add a table such as [boxes.lab] with host = "lab-a100"')
    return tuple(_box(path, text, name, table) for name, table in boxes.items())


def dump_fleet(specs: Sequence[BoxSpec]) -> str:
    """Return a fleet file for these boxes."""
    tables = {
        spec.name: {
            key: value
            for key, value in msgspec.to_builtins(spec).items()
            if key != "name" and value not in (None, [], {}, ())
        }
        for spec in specs
    }
    for table in tables.values():
        if "provider" in table:
            table["provider"] = {key: value for key, value in table["provider"].items() if value is not None}
    return _toml({"boxes": tables})


def _box(path: Path, text: str, name: str, table: Any) -> BoxSpec:
    where = f"boxes.{name}"
    if not NAME.fullmatch(name):
        raise FleetFileError(f"{path}: {name!r} is no name for a box; use letters, digits, '.', '_' and '-'")
    if not isinstance(table, dict):
        raise FleetFileError(f"{path}: {where} must be a table")
    fields = tuple(field for field in BoxSpec.__struct_fields__ if field != "name")
    _known(path, text, where, table, fields)
    if isinstance(table.get("provider"), dict):
        _known(path, text, f"{where}.provider", table["provider"], ProviderRef.__struct_fields__)
    try:
        spec = msgspec.convert({**table, "name": name}, BoxSpec)
        load_profile(spec.profile)
    except (msgspec.ValidationError, ProfileError) as error:
        raise FleetFileError(f"{path}: {where}: {error}") from error
    return spec


def _known(path: Path, text: str, where: str, table: dict[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are: {', '.join(known)}"
            raise FleetFileError(
                f"{path}:{_line(text, key)}: unknown key {key!r} in {where or 'the file'}{hint}"
            )


def _line(text: str, key: str) -> int:
    wanted = re.compile(rf"^\s*(\[[^\]]*\b)?[\"']?{re.escape(key)}\b")
    return next((number for number, line in enumerate(text.splitlines(), 1) if wanted.match(line)), 1)


def _toml(value: dict[str, Any], prefix: str = "") -> str:
    lines = [f"{_key(key)} = {_value(item)}" for key, item in value.items() if not isinstance(item, dict)]
    text = "\n".join(lines) + ("\n" if lines else "")
    for key, item in value.items():
        if isinstance(item, dict):
            path = f"{prefix}{_key(key)}"
            inner = _toml(item, path + ".")
            text += (f"\n[{path}]\n" if any(not isinstance(v, dict) for v in item.values()) else "") + inner
    return text


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else msgspec.json.encode(key).decode()


def _value(value: Any) -> str:
    # JSON's strings, numbers, booleans and arrays of strings are TOML's, too.
    return msgspec.json.encode(value).decode()
