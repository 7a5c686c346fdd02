"""Reads a fleet file. Each error names file, line, key, and the nearest known key."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from rgt_tui import files
from rgt_tui.fleet.config import checks, secrets
from rgt_tui.fleet.config.errors import FleetFileError
from rgt_tui.fleet.config.positions import KeyPath, Positions
from rgt_tui.model.alert import AlertSettings
from rgt_tui.model.box import BoxSpec, ProviderRef
from rgt_tui.profiles import ProfileError, load_profile

T = TypeVar("T")

TOP = ("boxes", "defaults", "alerts", "sinks")
BOX_KEYS = tuple(field for field in BoxSpec.__struct_fields__ if field not in ("name", "untrusted"))
DEFAULT_KEYS = tuple(key for key in BOX_KEYS if key not in ("host", "provider"))
"""What ``[defaults]`` may say for every box that does not say it itself."""
MAX_BYTES = 1 << 20


class FleetConfig(msgspec.Struct, frozen=True):
    """What a fleet file says."""

    path: Path
    boxes: tuple[BoxSpec, ...]
    alerts: AlertSettings = AlertSettings()
    warnings: tuple[str, ...] = ()
    """Odd but usable, a line each, with file and line number."""
    doubt: str | None = None
    """Why it is not trusted, and what to do; most of what it says does not count then. None = it counts as it is."""


def read_fleet(path: Path) -> FleetConfig:
    """Read and check a fleet file, whoever made it.

    Raises:
        FleetFileError: it cannot be read, others may write it, it is not TOML, or has an unknown or wrong key.
    """
    return parse_fleet(path, read_source(path).text)


class Source(msgspec.Struct, frozen=True):
    """What stands in a fleet file, read once: what is checked, shown and used is the same."""

    path: Path
    """As it was named, for errors."""
    real: Path
    """Absolute, links followed."""
    data: bytes

    @property
    def text(self) -> str:
        """It as text.

        Raises:
            FleetFileError: it is none.
        """
        try:
            return self.data.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise FleetFileError(f"{self.path} is not UTF-8 text (byte {error.start})") from error


def read_source(path: Path) -> Source:
    """Read a fleet file that nobody but this user and root may write.

    Raises:
        FleetFileError: it cannot be read, or somebody else may write it.
    """
    try:
        real = path.resolve()
        with path.open("rb") as file:
            wrong = files.fault(path, os.fstat(file.fileno()), file.fileno())
            if wrong is not None:
                raise FleetFileError(
                    f"{wrong.words}, and a fleet file says which programs run and where keys go: {wrong.cure}"
                )
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FleetFileError(f"cannot read {path}: {error.strerror}") from error
    except RuntimeError as error:
        raise FleetFileError(f"cannot read {path}: its links lead in a circle") from error
    if len(data) > MAX_BYTES:
        raise FleetFileError(f"{path} is no fleet file: it is larger than {MAX_BYTES >> 20} MiB")
    return Source(path, real, data)


def parse_fleet(path: Path, text: str) -> FleetConfig:
    """Check the text of a fleet file; `path` is what its errors name.

    Raises:
        FleetFileError: as `read_fleet`.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FleetFileError(_not_toml(path, str(error))) from error
    return _Reader(path, text).fleet(data)


def _not_toml(path: Path, words: str) -> str:
    found = re.search(r" \(at line (\d+), column (\d+)\)$", words)
    if found is None:
        return f"{path} is not valid TOML: {words}"
    return f"{path}:{found.group(1)}: not valid TOML: {words[: found.start()]} (column {found.group(2)})"


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._lines: Positions | None = None

    def fleet(self, data: dict[str, Any]) -> FleetConfig:
        for place, value in secrets.leaves(data):
            if secrets.looks_like_one(value):
                self._fail(place, secrets.ADVICE)
        self._known((), data, TOP)
        boxes = data.get("boxes", {})
        if not isinstance(boxes, dict) or not boxes:
            raise FleetFileError(
                f'{self._path} names no box; add a table such as [boxes.lab] with host = "lab-a100"'
            )
        defaults = self._defaults(data.get("defaults", {}))
        specs = tuple(self._box(name, table, defaults) for name, table in boxes.items())
        return FleetConfig(
            path=self._path,
            boxes=specs,
            alerts=self._alerts(data, [spec.name for spec in specs]),
            warnings=tuple(self._twins(specs)),
        )

    def _alerts(self, data: dict[str, Any], boxes: Sequence[str]) -> AlertSettings:
        kinds, sinks = data.get("alerts", {}), data.get("sinks", [])
        if kinds == {} and sinks == []:
            return AlertSettings()
        # Loaded only for a file that speaks of them.
        from rgt_tui.health.alert_settings import SettingsError, parse

        for place, table in enumerate(sinks if isinstance(sinks, list) else ()):
            self._secrets_of(("sinks", place), table)
        try:
            found = parse(kinds, sinks)
        except SettingsError as error:
            self._fail(error.where, _plain(error.words))
        for place, sink in enumerate(found.sinks):
            for at, name in enumerate(sink.boxes):
                if name not in boxes:
                    near = difflib.get_close_matches(name, boxes, 1)
                    hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(boxes)}"
                    self._fail(("sinks", place, "boxes", at), f"there is no box {name!r}{hint}")
        return found

    def _secrets_of(self, where: KeyPath, table: Any) -> None:
        """Refuse a secret where the name of its place belongs, before anything else could repeat it."""
        for key, value in table.items() if isinstance(table, dict) else ():
            if secrets.named_like_one(key):
                self._fail((*where, key), secrets.ADVICE)
            wrong = checks.SINK[key](value) if key in checks.SINK and isinstance(value, str) else None
            if wrong is not None:
                self._fail((*where, key), wrong)

    def _table(self, where: KeyPath, table: Any, kind: type[T], values: Mapping[str, checks.Check]) -> T:
        if not isinstance(table, dict):
            self._fail(where, "must be a table")
        self._known(where, table, kind.__struct_fields__)  # type: ignore[attr-defined]
        return self._checked(where, table, table, kind, values)

    def _defaults(self, table: Any) -> dict[str, Any]:
        where: KeyPath = ("defaults",)
        if not isinstance(table, dict):
            self._fail(where, "must be a table")
        self._known(where, table, DEFAULT_KEYS)
        self._checked(where, table, {"name": "x", "host": "x", **table}, BoxSpec, checks.BOX)
        return table

    def _box(self, name: str, table: Any, defaults: dict[str, Any]) -> BoxSpec:
        where: KeyPath = ("boxes", name)
        if not checks.NAME.fullmatch(name):
            self._fail(
                ("boxes", name),
                f"{name!r} is no name for a box; use letters, digits, '.', '_' and '-'",
                named=False,
            )
        if not isinstance(table, dict):
            self._fail(where, "must be a table")
        self._known(where, table, BOX_KEYS)
        provider = table.get("provider")
        if isinstance(provider, dict):
            self._table((*where, "provider"), provider, ProviderRef, checks.PROVIDER)
        if "host" not in table:
            self._fail(
                where, 'lacks `host`: a host name or an alias of ssh_config, such as host = "lab-a100"'
            )
        spec = self._checked(where, table, {**defaults, **table, "name": name}, BoxSpec, checks.BOX)
        try:
            load_profile(spec.profile)
        except ProfileError as error:
            owner: KeyPath = where if "profile" in table else ("defaults",)
            self._fail((*owner, "profile"), str(error))
        return spec

    def _checked(
        self, where: KeyPath, said: dict[str, Any], whole: dict[str, Any], kind: type[T],
        values: Mapping[str, checks.Check],
    ) -> T:  # fmt: skip
        try:
            made = msgspec.convert(whole, kind)
        except msgspec.ValidationError as error:
            below, words = _explain(str(error))
            self._fail((*where, *below), words)
        for key, check in values.items():
            wrong = check(getattr(made, key)) if key in said else None
            if wrong is not None:
                shown = "" if secrets.hidden(key) else f"{said[key]!r} "
                self._fail((*where, key), f"{shown}{wrong}")
        return made

    def _known(self, where: KeyPath, table: dict[str, Any], known: Sequence[str]) -> None:
        for key in table:
            place = (*where, key)
            if key not in known:
                if secrets.named_like_one(key):
                    self._fail(place, f"unknown key {key!r}: {secrets.ADVICE}", named=False)
                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known are: {', '.join(known)}"
                inside = _spelled(where) or "the file"
                self._fail(place, f"unknown key {key!r} in {inside}{hint}", named=False)

    def _twins(self, specs: Sequence[BoxSpec]) -> list[str]:
        seen: dict[tuple[str, int | None, str | None], str] = {}
        found = []
        for spec in specs:
            key = (spec.host, spec.port, spec.user)
            first = seen.setdefault(key, spec.name)
            if first != spec.name:
                line = self._line(("boxes", spec.name, "host"))
                found.append(
                    f"{self._path}:{line}: boxes.{spec.name} is the same host, port and user as boxes.{first}"
                )
        return found

    def _line(self, where: KeyPath) -> int:
        if self._lines is None:
            self._lines = Positions(self._text)
        return self._lines.line(where)

    def _fail(self, where: KeyPath, words: str, *, named: bool = True) -> NoReturn:
        name = f"{_spelled(where)}: " if named else ""
        raise FleetFileError(f"{self._path}:{self._line(where)}: {name}{words}")


def _spelled(where: KeyPath) -> str:
    text = ""
    for key in where:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def _explain(message: str) -> tuple[KeyPath, str]:
    """Split msgspec's words into the place below the table, and what is wrong there."""
    found = re.search(r" - at `(?:key in )?\$(.*)`$", message)
    if found is None:
        return (), _plain(message)
    parts = re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", found.group(1))
    path: list[str | int] = []
    for key, index in parts:
        if key:
            path.append(key)
        elif index.isdecimal():
            path.append(int(index))
    return tuple(path), _plain(message[: found.start()])


_KINDS = {
    "str": "text in quotes", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip


def _plain(words: str) -> str:
    """Say types as TOML has them."""
    found = re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`", words)
    if found is None:
        missing = re.fullmatch(r"Object missing required field `([^`]*)`", words)
        return f"lacks `{missing.group(1)}`" if missing else words
    wanted = " or ".join(
        _KINDS.get(kind.strip(), kind) for kind in found.group(1).split("|") if kind.strip() != "null"
    )
    return f"must be {wanted}, not {_KINDS.get(found.group(2), found.group(2))}"
