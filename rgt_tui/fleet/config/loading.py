"""Find, read and check the fleet file.

Errors name file and line, and never quote a value that may be a secret.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec

from rgt_tui import files
from rgt_tui.fleet.config.value_checks import (
    ADVICE,
    AGREED,
    BOX,
    NAME,
    PROVIDER,
    SINK,
    Check,
    is_hidden_key,
    looks_like_secret,
    named_like_secret,
)
from rgt_tui.language import translate
from rgt_tui.model import (
    KUBECTL_CHECKS,
    SSH_ONLY_KEYS,
    AlertSettings,
    BoxSpec,
    FrozenStruct,
    KubectlRoute,
    ProviderRef,
    RentalTerms,
    implied_pod_keys,
)
from rgt_tui.profiles import ProfileError, load_profile
from rgt_tui.providers import IN_BOX, OVER


class FleetFileError(Exception):
    """The fleet file is unusable; the message says where and what to do."""


KeyPath = tuple[str | int, ...]
"""Keys from the top; a number is an index in an array."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")


# tomllib keeps no line numbers, so they are found by a second, simpler parse of valid text.
class Positions:
    """The line numbers of all keys of a TOML text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._at = 0
        self._lines: dict[KeyPath, int] = {}
        self._arrays: dict[KeyPath, int] = {}
        self._parse_document()

    @property
    def key_paths(self) -> frozenset[KeyPath]:
        """Every key, table and array element that was found."""
        return frozenset(self._lines)

    def line_number_of(self, path: KeyPath) -> int:
        """Return the line (from 1) of a key, or of its nearest enclosing table."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _parse_document(self) -> None:
        prefix: KeyPath = ()
        self._skip_pattern(_BLANK)
        while self._at < len(self._text):
            if self._text.startswith("[[", self._at):
                self._at += 2
                prefix = self._array_table()
                self._at += 2
            elif self._text[self._at] == "[":
                self._at += 1
                prefix = self._parse_dotted_key(())
                self._at += 1
            else:
                self._parse_pair(prefix)
            self._skip_pattern(_BLANK)

    def _array_table(self) -> KeyPath:
        line = self._current_line()
        path = self._parse_dotted_key(())
        # `_parse_dotted_key` steps into the newest element of every array in the path, including
        # the last one. For the second [[x]] of an array the key's path already ends with the first
        # one's index.
        if path and isinstance(path[-1], int):
            path = path[:-1]
        count = self._arrays.get(path, 0)
        self._arrays[path] = count + 1
        self._lines[*path, count] = line
        return (*path, count)

    def _parse_pair(self, prefix: KeyPath) -> None:
        path = self._parse_dotted_key(prefix)
        self._at += 1  # the equals sign
        self._parse_value(path)

    def _parse_dotted_key(self, prefix: KeyPath) -> KeyPath:
        """Read a dotted key; return its path and record each step's line."""
        path = prefix
        while True:
            self._skip_pattern(_SPACE)
            line = self._current_line()
            path = (*path, self._parse_key())
            # The first line that names a table: dotted keys name it again.
            self._lines.setdefault(path, line)
            # A header below [[x]], such as [x.y], is about the newest element.
            if not prefix and path in self._arrays:
                path = (*path, self._arrays[path] - 1)
            self._skip_pattern(_SPACE)
            if self._text[self._at] != ".":
                return path
            self._at += 1

    def _parse_key(self) -> str:
        if self._text[self._at] in "\"'":
            # Quoted keys have the escapes of strings, which tomllib decodes best.
            import tomllib

            start = self._at
            self._skip_pattern(_STRING)
            value: str = tomllib.loads(f"k = {self._text[start : self._at]}")["k"]
            return value
        match = _BARE_KEY.match(self._text, self._at)
        if match is None:
            raise ValueError(f"no key on line {self._current_line()}: this is not TOML")
        self._at = match.end()
        return match.group()

    def _parse_value(self, path: KeyPath) -> None:
        self._skip_pattern(_BLANK)
        first = self._text[self._at : self._at + 1]
        if first == "[":
            self._parse_array(path)
        elif first == "{":
            self._inline_table(path)
        elif first and first in "\"'":
            self._skip_pattern(_STRING)
        else:
            self._skip_pattern(_BARE_VALUE)

    def _parse_array(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        self._skip_pattern(_BLANK)
        while self._text[self._at] != "]":
            self._lines[*path, index] = self._current_line()
            self._parse_value((*path, index))
            index += 1
            self._skip_pattern(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
            self._skip_pattern(_BLANK)
        self._at += 1

    def _inline_table(self, path: KeyPath) -> None:
        self._at += 1
        self._skip_pattern(_BLANK)
        while self._text[self._at] != "}":
            self._parse_pair(path)
            self._skip_pattern(_BLANK)
            if self._text[self._at] == ",":
                self._at += 1
            self._skip_pattern(_BLANK)
        self._at += 1

    def _skip_pattern(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _current_line(self) -> int:
        return bisect_right(self._starts, self._at)


FILE_NAME = files.FLEET_FILE
VARIABLE = "RGT_FLEET"


def xdg_path(env: Mapping[str, str]) -> Path:
    """Return the path of the person's own fleet file, which may not exist."""
    return files.config_directory(env) / "fleet.toml"


class FleetFilePlace(NamedTuple):
    """Path of the fleet file, and whether it was merely found in the working tree."""

    path: Path
    lies_there: bool = False
    """It was found in the working tree: neither named nor the person's own, so a stranger may have
    written it."""


def find_place(
    named: str | None, env: Mapping[str, str], start: Path | None
) -> FleetFilePlace | None:
    """Return the fleet file to use, or None.

    Args:
        named: Value of ``--fleet``.
        env: The environment; ``RGT_FLEET``, ``XDG_CONFIG_HOME`` and ``HOME`` are read.
        start: The working directory; None if it no longer exists.

    Returns:
        A named file may not exist (reading it reports that); any other file exists.
    """
    # A named file is taken even if it is missing: falling back would watch, and bill, other boxes.
    if named or env.get(VARIABLE):
        return FleetFilePlace(Path(named or env[VARIABLE]).expanduser())
    if env.get("HOME"):
        home = Path(env["HOME"])
    else:
        home = Path.home()
    for folder in () if start is None else files.iterate_upwards(start, home):
        if (folder / FILE_NAME).is_file():
            return FleetFilePlace(folder / FILE_NAME, lies_there=True)
    own = xdg_path(env)
    if own.is_file():
        return FleetFilePlace(own)
    return None


def iterate_leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield every value below tables and lists, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from iterate_leaves(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from iterate_leaves(item, (*path, place))
    else:
        yield path, value


T = TypeVar("T")

TOP = ("boxes", "defaults", "alerts", "sinks")
BOX_KEYS = tuple(field for field in BoxSpec.__struct_fields__ if field not in ("name", "untrusted"))
DEFAULT_KEYS = tuple(key for key in BOX_KEYS if key not in ("host", "provider", "kubectl"))
"""Keys allowed in ``[defaults]``, for every box without a value of its own."""
MAX_BYTES = 1 << 20


class FleetConfig(FrozenStruct):
    """The parsed content of a fleet file."""

    path: Path
    boxes: tuple[BoxSpec, ...]
    alerts: AlertSettings = AlertSettings()
    warnings: tuple[str, ...] = ()
    """Odd but usable settings, a line each, with file and line number."""
    doubt: str | None = None
    """Why the file is not trusted, and what to do; most of its content is ignored then. None = all
    applies."""


def read_fleet(path: Path) -> FleetConfig:
    """Read and check a fleet file, trusted or not.

    Raises:
        FleetFileError: it cannot be read, others may write it, it is not TOML, or has an unknown or
            wrong key.
    """
    return parse_fleet(path, read_source(path).text)


class FleetFileSource(FrozenStruct):
    """The content of a fleet file.

    It is read once, so that the same bytes are checked, shown and used.
    """

    path: Path
    """The path as given, for errors."""
    real: Path
    """Absolute path, links resolved."""
    data: bytes

    @property
    def text(self) -> str:
        """The content as text.

        Raises:
            FleetFileError: it is not UTF-8.
        """
        try:
            # Editors on Windows write a byte order mark, which tomllib refuses.
            return self.data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise FleetFileError(
                translate(
                    "{path} is not UTF-8 text (byte {start})", path=self.path, start=error.start
                )
            ) from error


def read_source(path: Path) -> FleetFileSource:
    """Read a fleet file that only this user and root may write.

    Raises:
        FleetFileError: it cannot be read, or another user may write it.
    """
    try:
        real = path.resolve()
        with files.open_named(path) as file:
            # Of the open file, not of its path, which could be replaced in between.
            wrong = files.find_fault(path, os.fstat(file.fileno()), file.fileno())
            if wrong is not None:
                raise FleetFileError(
                    translate(
                        "{words}, and a fleet file controls which programs run and where keys are "
                        "sent: {cure}",
                        words=wrong.words,
                        cure=wrong.cure,
                    )
                )
            # One more than allowed, to notice a larger file without reading all of it.
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        message = translate("cannot read {path}: {strerror}", path=path, strerror=error.strerror)
        raise FleetFileError(message) from error
    # pathlib raises it for a loop of links up to Python 3.12.
    except RuntimeError as error:
        message = translate("cannot read {path}: its links form a loop", path=path)
        raise FleetFileError(message) from error
    if len(data) > MAX_BYTES:
        raise FleetFileError(
            translate(
                "{path} is not a fleet file: it is larger than {max_bytes} MiB",
                path=path,
                max_bytes=MAX_BYTES >> 20,
            )
        )
    return FleetFileSource(path, real, data)


def parse_fleet(path: Path, text: str) -> FleetConfig:
    """Check the text of a fleet file; `path` is named in its errors.

    Raises:
        FleetFileError: as `read_fleet`.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FleetFileError(_not_toml(path, str(error))) from error
    return _FleetFileReader(path, text).convert_fleet(data)


def _not_toml(path: Path, words: str) -> str:
    found = re.search(r" \(at line (\d+), column (\d+)\)$", words)
    if found is None:
        return translate("{path} is not valid TOML: {words}", path=path, words=words)
    return translate(
        "{path}:{line}: not valid TOML: {words} (column {column})",
        path=path,
        line=found.group(1),
        words=words[: found.start()],
        column=found.group(2),
    )


class _FleetFileReader:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text
        self._lines: Positions | None = None

    def convert_fleet(self, data: dict[str, Any]) -> FleetConfig:
        # First of all: every later message may quote a value.
        for place, value in iterate_leaves(data):
            if looks_like_secret(value):
                self._raise_error(place, translate(ADVICE))
        self._refuse_unknown_keys((), data, TOP)
        boxes = data.get("boxes", {})
        if isinstance(boxes, list):
            name = next(
                (box["name"] for box in boxes if isinstance(box, dict) and "name" in box), "NAME"
            )
            self._raise_error(
                ("boxes",),
                translate(
                    "is a list: write a table for each box, [boxes.{name}], not [[boxes]]",
                    name=name,
                ),
            )
        if not isinstance(boxes, dict) or not boxes:
            raise FleetFileError(
                translate(
                    '{path} names no box; add a table such as [boxes.lab] with host = "lab-a100"',
                    path=self._path,
                )
            )
        defaults = self._read_defaults(data.get("defaults", {}))
        specs = tuple(self._read_box(name, table, defaults) for name, table in boxes.items())
        self._one_machine_each(specs)
        return FleetConfig(
            path=self._path,
            boxes=specs,
            alerts=self._read_alerts(data, [spec.name for spec in specs]),
            warnings=tuple(self._find_duplicates(specs)),
        )

    def _read_alerts(self, data: dict[str, Any], boxes: Sequence[str]) -> AlertSettings:
        kinds, sinks = data.get("alerts", {}), data.get("sinks", [])
        if kinds == {} and sinks == []:
            return AlertSettings()
        # Imported only for a file with alerts or sinks.
        from rgt_tui.health import SettingsError, parse_alerts

        for place, table in enumerate(sinks if isinstance(sinks, list) else ()):
            # A token in a wrong key must not reach the message about that key.
            self._secrets_of(("sinks", place), table)
        try:
            found = parse_alerts(kinds, sinks)
        except SettingsError as error:
            self._raise_error(error.where, _translate_types(error.words))
        for place, sink in enumerate(found.sinks):
            for at, name in enumerate(sink.boxes):
                # A misspelt box would silence its alerts without a word.
                if name not in boxes:
                    near = difflib.get_close_matches(name, boxes, 1)
                    if near:
                        hint = translate("; did you mean {near!r}?", near=near[0])
                    else:
                        hint = translate("; there are: {names}", names=", ".join(boxes))
                    self._raise_error(
                        ("sinks", place, "boxes", at),
                        translate("there is no box {name!r}{hint}", name=name, hint=hint),
                    )
        return found

    def _secrets_of(self, where: KeyPath, table: Any) -> None:
        """Refuse a secret where a variable's or file's name belongs.

        This runs before any other check could quote the secret in its message.
        """
        for key, value in table.items() if isinstance(table, dict) else ():
            if named_like_secret(key):
                self._raise_error((*where, key), translate(ADVICE))
            if key in SINK and isinstance(value, str):
                wrong = SINK[key](value)
            else:
                wrong = None
            if wrong is not None:
                self._raise_error((*where, key), wrong)

    def _read_table(
        self, where: KeyPath, table: Any, kind: type[T], values: Mapping[str, Check]
    ) -> T:
        if not isinstance(table, dict):
            self._raise_error(where, translate("must be a table"))
        self._refuse_unknown_keys(where, table, kind.__struct_fields__)  # type: ignore[attr-defined]
        return self._convert_checked(where, table, table, kind, values)

    def _read_defaults(self, table: Any) -> dict[str, Any]:
        where: KeyPath = ("defaults",)
        if not isinstance(table, dict):
            self._raise_error(where, translate("must be a table"))
        self._refuse_unknown_keys(where, table, DEFAULT_KEYS)
        # With a name and a host, which only a box has, so that the rest is checked where it is
        # written.
        self._convert_checked(where, table, {"name": "x", "host": "x", **table}, BoxSpec, BOX)
        return table

    def _read_box(self, name: str, table: Any, defaults: dict[str, Any]) -> BoxSpec:
        where: KeyPath = ("boxes", name)
        if not NAME.fullmatch(name):
            self._raise_error(
                ("boxes", name),
                translate(
                    "{name!r} is not a valid box name; use letters, digits, '.', '_' and '-'",
                    name=name,
                ),
                named=False,
            )
        if not isinstance(table, dict):
            self._raise_error(where, translate("must be a table"))
        self._refuse_unknown_keys(where, table, BOX_KEYS)
        provider = table.get("provider")
        if isinstance(provider, dict):
            self._read_table((*where, "provider"), provider, ProviderRef, PROVIDER)
        if isinstance(table.get("asked"), dict):
            self._read_table((*where, "asked"), table["asked"], RentalTerms, AGREED)
        # As written: only keys of the box itself are checked again, not those that follow from
        # others.
        said = table
        if "kubectl" in table:
            table = self._add_pod_keys(where, table)
        if "host" not in table:
            self._raise_error(
                where,
                translate(
                    'lacks `host`: a host name or an alias of ssh_config, such as host = "lab-a100"'
                ),
            )
        spec = self._convert_checked(where, said, {**defaults, **table, "name": name}, BoxSpec, BOX)
        try:
            prefilled = load_profile(spec.profile).overrides
        except ProfileError as error:
            owner: KeyPath
            if "profile" in table:
                owner = where
            else:
                owner = ("defaults",)
            self._raise_error((*owner, "profile"), str(error))
        return msgspec.structs.replace(spec, durable=spec.durable or prefilled.durable_dir)

    def _add_pod_keys(self, where: KeyPath, table: dict[str, Any]) -> dict[str, Any]:
        """Check the key `kubectl` of a box; return its table with the keys that follow from it."""
        for key in SSH_ONLY_KEYS:
            if key in table:
                self._raise_error(
                    (*where, key),
                    translate("does not apply to a box that is reached with `kubectl`: remove it"),
                )
        place = (*where, "kubectl")
        route = self._read_table(place, table["kubectl"], KubectlRoute, KUBECTL_CHECKS)
        # Two of them could name different pods.
        given = [key for key in ("pod", "selector", "job") if getattr(route, key) is not None]
        if len(given) != 1:
            what = " and ".join(f"`{key}`" for key in given) or translate("none of them")
            self._raise_error(
                place,
                translate("needs one of `pod`, `selector` and `job`; it has {what}", what=what),
            )
        if route.image is not None and route.job is None:
            self._raise_error(
                (*place, "image"), translate("needs `job`: the Job that rgt creates with it")
            )
        more = implied_pod_keys(route, table)
        return {**table, **more}

    def _convert_checked(
        self, where: KeyPath, said: dict[str, Any], whole: dict[str, Any], kind: type[T],
        values: Mapping[str, Check],
    ) -> T:  # fmt: skip
        try:
            made = msgspec.convert(whole, kind)
        except msgspec.ValidationError as error:
            below, words = _split_message(str(error))
            self._raise_error((*where, *below), words)
        for key, check in values.items():
            if key in said:
                wrong = check(getattr(made, key))
            else:
                wrong = None
            if wrong is not None:
                if is_hidden_key(key):
                    shown = ""
                else:
                    shown = f"{said[key]!r} "
                self._raise_error((*where, key), f"{shown}{wrong}")
        return made

    def _refuse_unknown_keys(
        self, where: KeyPath, table: dict[str, Any], known: Sequence[str]
    ) -> None:
        for key in table:
            place = (*where, key)
            if key not in known:
                if named_like_secret(key):
                    self._raise_error(
                        place,
                        translate(
                            "unknown key {key!r}: {advice}", key=key, advice=translate(ADVICE)
                        ),
                        named=False,
                    )
                near = difflib.get_close_matches(key, known, 1)
                if near:
                    hint = translate("; did you mean {near!r}?", near=near[0])
                else:
                    hint = translate("; known are: {names}", names=", ".join(known))
                inside = _spell_path(where) or translate("the file")
                self._raise_error(
                    place,
                    translate(
                        "unknown key {key!r} in {inside}{hint}", key=key, inside=inside, hint=hint
                    ),
                    named=False,
                )

    def _one_machine_each(self, specs: Sequence[BoxSpec]) -> None:
        """Refuse two boxes with the same machine: a call for one would hit the other."""
        seen: dict[tuple[str, str, str], str] = {}
        for spec in specs:
            ref = spec.provider
            if ref is None:
                continue
            platform = IN_BOX.get(ref.kind, ref.kind)
            if platform != spec.profile and ref.kind not in OVER:
                self._raise_error(
                    ("boxes", spec.name, "provider", "kind"),
                    translate(
                        "is {kind!r}, but the box's profile is {profile!r}: what survives and "
                        'its price would be wrong; set profile = "{platform}", or remove the '
                        "provider",
                        kind=ref.kind,
                        profile=spec.profile,
                        platform=platform,
                    ),
                )
            first = seen.setdefault((ref.kind, ref.account, ref.instance), spec.name)
            if first != spec.name:
                self._raise_error(
                    ("boxes", spec.name, "provider", "instance"),
                    translate(
                        "{instance!r} is also that of boxes.{first}, so the wrong machine could "
                        "be stopped; correct one of them",
                        instance=ref.instance,
                        first=first,
                    ),
                )

    def _find_duplicates(self, specs: Sequence[BoxSpec]) -> list[str]:
        # A warning, not an error: one address may lead to several containers.
        seen: dict[tuple[str, int | None, str | None], str] = {}
        found = []
        for spec in specs:
            if spec.kubectl is not None:  # several containers of a pod are several boxes
                continue
            key = (spec.host, spec.port, spec.user)
            first = seen.setdefault(key, spec.name)
            if first != spec.name:
                line = self._line_of(("boxes", spec.name, "host"))
                found.append(
                    translate(
                        "{path}:{line}: boxes.{name} is the same host, port and user as "
                        "boxes.{first}",
                        path=self._path,
                        line=line,
                        name=spec.name,
                        first=first,
                    )
                )
        return found

    def _line_of(self, where: KeyPath) -> int:
        # Only for an error or a warning: a good file is parsed once.
        if self._lines is None:
            self._lines = Positions(self._text)
        return self._lines.line_number_of(where)

    def _raise_error(self, where: KeyPath, words: str, *, named: bool = True) -> NoReturn:
        name = ""
        if named:
            name = f"{_spell_path(where)}: "
        raise FleetFileError(f"{self._path}:{self._line_of(where)}: {name}{words}")


def _spell_path(where: KeyPath) -> str:
    text = ""
    for key in where:
        if isinstance(key, int):
            text += f"[{key}]"
        elif text:
            text += f".{key}"
        else:
            text = key
    return text


def _split_message(message: str) -> tuple[KeyPath, str]:
    """Split msgspec's message into the path below the table and the error there."""
    found = re.search(r" - at `(?:key in )?\$(.*)`$", message)
    if found is None:
        return (), _translate_types(message)
    parts = re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", found.group(1))
    path: list[str | int] = []
    for key, index in parts:
        if key:
            path.append(key)
        elif index.isdecimal():
            path.append(int(index))
    return tuple(path), _translate_types(message[: found.start()])


_KINDS = {
    "str": "text in quotes", "int": "a whole number", "float": "a number", "bool": "true or false",
    "array": "a list", "object": "a table", "null": "nothing",
}  # fmt: skip


def _translate_types(words: str) -> str:
    """Translate msgspec's type names to TOML's."""
    found = re.fullmatch(r"Expected `([^`]*)`, got `([^`]*)`", words)
    if found is None:
        missing = re.fullmatch(r"Object missing required field `([^`]*)`", words)
        if missing:
            return translate("lacks `{key}`", key=missing.group(1))
        return words
    wanted = translate(" or ").join(
        translate(_KINDS.get(kind.strip(), kind))
        for kind in found.group(1).split("|")
        if kind.strip() != "null"
    )
    return translate(
        "must be {wanted}, not {found}",
        wanted=wanted,
        found=translate(_KINDS.get(found.group(2), found.group(2))),
    )
