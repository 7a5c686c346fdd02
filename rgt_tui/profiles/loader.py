"""Reads ``profiles/*.toml`` into `Profile` and ``profiles/api/*.toml`` into `ApiTable`, cached.

A person's own file in ``$XDG_CONFIG_HOME/rgt/profiles`` replaces the shipped one with the same
name. There is no other source of profiles: a fleet file, which may be untrusted, only names them.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui.files import NotOurs, config_directory, read_own
from rgt_tui.language import speaks_english, translate
from rgt_tui.model import FrozenStruct, Profile
from rgt_tui.model import profile as parts
from rgt_tui.profiles.profile_faults import (
    MONTH,
    URL,
    Shortfall,
    find_faults,
    none_of,
    suggest_nearest,
)

__all__ = [
    "TEXT_FIELDS",
    "ProfileError",
    "all_profiles",
    "change_texts",
    "is_cluster",
    "load_profile",
    "own_profile",
    "read_profile",
    "restore_english",
]

MOST_BYTES = 4 << 20
SCALARS = ("string", "integer", "number", "boolean", "time", "any")
"""``time`` is an ISO 8601 string; ``any`` is not checked."""
NOTHING = "nothing"
"""The type of an answer without a body."""


class ProfileError(Exception):
    """A missing or broken profile; the message has the file, the key and the closest known name."""


_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def data_dir() -> Path:
    """Return the directory of the profile files: in an installed wheel, else in the source tree.

    Raises:
        ProfileError: neither exists.
    """
    candidates = (_PACKAGE / "_data" / "profiles", _PACKAGE.parent / "profiles")
    for path in candidates:
        if path.is_dir():
            return path
    raise ProfileError(f"no profile directory: looked for {' and '.join(map(str, candidates))}")


def read_profile(path: Path) -> Profile:
    """Read and check one shipped profile.

    Raises:
        ProfileError: it cannot be read, is not TOML, or violates the schema; with file and key.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path.name}: cannot be read: {error}") from error
    return _decode_profile(data, path.stem, path.name)


def _decode_profile(data: bytes, stem: str, shown: str) -> Profile:
    import tomllib  # imported here so that the first frame does not wait

    tables: dict[str, object] = {}
    try:
        tables = tomllib.loads(data.decode("utf-8"))
        profile = msgspec.convert(tables, Profile)
    except UnicodeDecodeError as error:
        raise ProfileError(f"{shown}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{shown}: not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ProfileError(f"{shown}: {_explain_error(str(error), tables)}") from error
    wrong = list(find_faults(profile, stem))
    if wrong:
        raise ProfileError(f"{shown}: {'; '.join(wrong)}")
    return profile


def _explain_error(message: str, tables: dict[str, object]) -> str:
    """Turn msgspec's message into ``key: what``, with the closest known name or missing keys."""
    where = re.search(r" - at `\$\.?(.*)`$", message)
    key = where.group(1) if where else ""
    if where:
        text = message[: where.start()]
    else:
        text = message
    if field := re.search(r"unknown field `(.+?)`", text):
        return (
            f"{f'{key}.' if key else ''}{field.group(1)}: no such "
            f"key{suggest_nearest(field.group(1), _list_known_names(key))}"
        )
    if missing := re.search(r"missing required field `(.+?)`", text):
        names = list(_list_missing_keys(tables, msgspec.inspect.type_info(Profile), ""))
        if len(names) > 1:
            listed = ", ".join(names)
            return (
                f"{listed}: these keys are missing; docs/profiles.md has a minimal profile to "
                "start from"
            )
        return f"{f'{key}.' if key else ''}{missing.group(1)}: the key is missing"
    if given := re.match(r"Invalid enum value '(.*)'", text):
        return f"{key}: {none_of(given.group(1), _list_known_names(key))}"
    if key:
        return f"{key}: {text}"
    return text


def _list_missing_keys(value: object, kind: msgspec.inspect.Type, key: str) -> Iterator[str]:
    """Yield every required key missing in a profile's value; msgspec names only the first."""
    if isinstance(kind, msgspec.inspect.UnionType):
        kind = _unwrap_type(kind)
    if isinstance(kind, msgspec.inspect.VarTupleType) and isinstance(value, list):
        for i, item in enumerate(value):
            yield from _list_missing_keys(item, kind.item_type, f"{key}[{i}]")
    if not isinstance(kind, msgspec.inspect.StructType) or not isinstance(value, dict):
        return
    for field in kind.fields:
        if key:
            name = f"{key}.{field.encode_name}"
        else:
            name = field.encode_name
        if field.encode_name in value:
            yield from _list_missing_keys(value[field.encode_name], field.type, name)
        elif field.required:  # for a missing table, its keys are named
            yield from list(_list_missing_keys({}, field.type, name)) or [name]


def _list_known_names(key: str) -> tuple[str, ...]:
    """Return the valid field names or enum values at a key such as ``tiers[0].prices[1]``."""
    kind: msgspec.inspect.Type = msgspec.inspect.type_info(Profile)
    for name in re.findall(r"\w+", re.sub(r"\[.*?\]", "", key)):
        if isinstance(kind, msgspec.inspect.StructType):
            fields = kind.fields
        else:
            fields = ()
        kind = next((_unwrap_type(field.type) for field in fields if field.name == name), kind)
    if isinstance(kind, msgspec.inspect.StructType):
        return tuple(field.encode_name for field in kind.fields)
    if isinstance(kind, msgspec.inspect.EnumType):
        return tuple(kind.cls)
    return ()


def _unwrap_type(kind: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """Return the struct or enum in a type such as ``tuple[Tier, ...]`` or ``Traffic | None``."""
    if isinstance(kind, msgspec.inspect.VarTupleType):
        return _unwrap_type(kind.item_type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return _unwrap_type(
            next(one for one in kind.types if not isinstance(one, msgspec.inspect.NoneType))
        )
    return kind


def own_directory() -> Path:
    """Return the directory of a person's own profiles, which replace shipped ones by name."""
    return config_directory(os.environ) / "profiles"


def own_profile(id: str) -> Path | None:  # noqa: A002
    """Return the person's own file for a platform; None = the shipped one is used.

    Raises:
        ProfileError: the directory exists and cannot be read.
    """
    return _own_files(own_directory()).get(id)


def _own_files(directory: Path) -> dict[str, Path]:
    try:
        paths = sorted(directory.iterdir())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ProfileError(f"{directory}: cannot be read: {error.strerror}") from error
    return {path.stem: path for path in paths if path.suffix == ".toml"}


def _read_own(path: Path) -> Profile:
    """Read a person's own profile.

    One that others can write is refused: it affects data and money.
    """
    try:
        data = read_own(path, MOST_BYTES)
    except NotOurs as error:
        raise ProfileError(str(error)) from error
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from error
    return _decode_profile(data, path.stem, str(path))


@functools.cache
def _load_cached(id: str, config: str | None, home: str | None) -> Profile:  # noqa: A002
    """Load a profile.

    The variables, which determine the own directory, are part of the cache key.
    """
    shipped, mine = data_dir(), _own_files(own_directory())
    known = sorted({*mine, *(file.stem for file in shipped.glob("*.toml"))})
    if id not in known:
        raise ProfileError(
            f"no profile is called '{id}'{suggest_nearest(id, known)} (known: {', '.join(known)})"
        )
    if id in mine:
        return _read_own(mine[id])
    return read_profile(shipped / f"{id}.toml")


TEXT_FIELDS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    parts.Profile: ("top_danger", "confidence_note", "stops_gpu", "stops_all", "conveniences"),
    parts.FactSource: ("fact", "cited_as"),
    parts.StorageTier: ("note", "scope", "where", "size", "speed"),
    parts.StorageFacts: ("checkpoints", "inodes", "notes"),
    parts.BillingAction: ("note", "how", "confirm_with", "first"),
    parts.ClockClaim: ("says", "cited_as"),
    parts.DangerClock: ("what", "consequence", "applies_when"),
    parts.LaunchFacts: ("api", "address", "key_step", "environment", "notes"),
    parts.LaunchMethod: ("call", "note"),
    parts.SshAccess: ("name", "note"),
    parts.NetworkFacts: ("proxy_note", "mirrors", "traps", "ports", "notes"),
    parts.TrafficFacts: ("note", "cited_as"),
    parts.TensorBoard: ("note",),
    parts.Interruption: ("model", "spot_signal", "detect", "resume", "losses"),
    parts.DaemonFacts: ("install", "native_queue", "on_start_note", "notes"),
    parts.Gotcha: ("symptom", "cause", "fix", "probe", "note", "signature_in"),
    parts.Contradiction: ("about", "sides", "counts"),
    parts.Overrides: ("python_note", "durable_note", "credentials", "scratch"),
}
"""The other fields are names, numbers, commands and what programs compare."""


def change_texts(part: Any, change: Callable[[str], str]) -> Any:
    """Return a profile, or a part of one, with each of its texts changed."""
    if isinstance(part, tuple):
        return tuple(change_texts(one, change) for one in part)
    if not isinstance(part, msgspec.Struct):
        return part
    made = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if name not in TEXT_FIELDS.get(type(part), ()):
            made[name] = change_texts(value, change)
        elif isinstance(value, str):
            made[name] = change(value)
        elif value is not None:
            made[name] = tuple(change(one) for one in value)
    return msgspec.structs.replace(part, **made)


@functools.cache
def _load_translated(id: str, config: str | None, home: str | None) -> Profile:  # noqa: A002
    """Load a profile with its texts in the person's language."""
    made: Profile = change_texts(_load_cached(id, config, home), translate)
    return made


def all_profiles(*, english: bool = False) -> dict[str, Profile]:
    """Return every profile by id, sorted; read once per process.

    Args:
        english: See `load_profile`.

    Raises:
        ProfileError: one of the files is broken.
    """
    names = {file.stem for file in data_dir().glob("*.toml")} | set(_own_files(own_directory()))
    return {name: load_profile(name, english=english) for name in sorted(names)}


def load_profile(id: str, *, english: bool = False) -> Profile:  # noqa: A002
    """Return the profile called `id`, preferring the person's own; read once per process.

    Args:
        id: Its name.
        english: Leave its texts in English, for a program that reads them; else they are in the
            person's language.

    Raises:
        ProfileError: there is none of that name (the closest is named), or its file is broken.
    """
    # Called for every box at every poll, so no path is built here.
    load = _load_translated
    if english or speaks_english():
        load = _load_cached
    return load(id, os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME"))


def restore_english(profile: Profile) -> Profile:
    """Return a profile of `load_profile` in English, and any other one as it is."""
    try:
        if profile == load_profile(profile.id):
            return load_profile(profile.id, english=True)
    except ProfileError:
        pass
    return profile


CLUSTERS = ("slurm", "kubernetes")
"""Kinds of platforms whose lists contain other people's jobs, or have no hourly price."""


def is_cluster(platform: str) -> bool:
    """Return whether a platform bills nobody per machine. An unknown platform is not a cluster."""
    try:
        return load_profile(platform).kind in CLUSTERS
    except ProfileError:
        return False


# Tables of a platform's API in ``profiles/api/*.toml``: calls, parameters and fields, each with
# source and month.
#
# They are written independently from the vendor's own description: local servers, adapters and
# recordings are compared with them, because an adapter and a server based on the same wrong
# assumption would agree with each other.


class ApiField(FrozenStruct):
    """One field, parameter or body: ``list of TYPE``, ``one of A|B``, a scalar or a type name."""

    kind: str
    """A scalar, ``list``, ``map``, ``one of``, ``nothing``, or the name of a type of the table."""
    of: ApiField | None = None
    """Element type of a list or map."""
    choices: tuple[str, ...] = ()
    unit: str | None = None
    required: bool = True
    nullable: bool = False


class ApiCall(FrozenStruct, kw_only=True, forbid_unknown_fields=True):
    """One call."""

    method: str
    path: str
    """With ``{name}`` for a variable part."""
    query: dict[str, str] = {}
    body: str | None = None
    answers: dict[str, str]
    """Status, or ``default`` → body."""
    source: str | None = None
    """Set if it differs from the table's source."""
    verified: str | None = None
    note: str | None = None

    def matches_request(self, method: str, path: str) -> bool:
        """Return whether a request is this call."""
        pattern = "[^/]+".join(re.escape(part) for part in re.split(r"\{\w+\}", self.path))
        return method == self.method and re.fullmatch(pattern, path) is not None


class ApiTable(FrozenStruct, kw_only=True, forbid_unknown_fields=True):
    """The requests and answers of a platform's API."""

    platform: str
    source: str
    verified: str
    """Month in which it was compared with the source."""
    note: str | None = None
    any_slash: bool = False
    """Whether a trailing slash in a path is ignored."""
    calls: tuple[ApiCall, ...]
    types: dict[str, dict[str, str]] = {}
    """Name → field → its type as text, see `parse_field`."""

    def find_call(self, method: str, path: str) -> ApiCall | None:
        """Return the call of a request; calls with fewer variable parts take precedence."""
        if self.any_slash:
            path = path.rstrip("/")
        found = [one for one in self.calls if one.matches_request(method, path)]
        return min(found, key=lambda one: one.path.count("{"), default=None)

    def parse_fields(self, name: str) -> dict[str, ApiField]:
        """Return the fields of a named type."""
        return {key: parse_field(text) for key, text in self.types[name].items()}

    def iterate_verified_months(self) -> Iterator[tuple[str, str]]:
        """Yield month and source of each call."""
        for call in self.calls:
            yield call.verified or self.verified, call.source or self.source


@functools.cache
def parse_field(text: str) -> ApiField:
    """Parse ``TYPE [in UNIT] [or null] [, optional]``.

    Raises:
        ValueError: the text has another form.
    """
    match = re.fullmatch(r"(.+?)(?: in ([^,]+?))?( or null)?(, optional)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not TYPE [in UNIT] [or null] [, optional]")
    words, unit, null, optional = match.groups()
    field = ApiField(words, unit=unit, nullable=null is not None, required=optional is None)
    for kind in ("list", "map"):
        if words.startswith(f"{kind} of "):
            return msgspec.structs.replace(
                field, kind=kind, of=parse_field(words.removeprefix(f"{kind} of "))
            )
    if words.startswith("one of "):
        choices = tuple(words.removeprefix("one of ").split("|"))
        return msgspec.structs.replace(field, kind="one of", choices=choices)
    if not re.fullmatch(r"\w+", words):
        raise ValueError(f"{words!r} is neither a scalar nor the name of a type")
    return field


def _find_table_faults(table: ApiTable, stem: str) -> Iterator[str]:
    if table.platform != stem:
        yield f"platform: '{table.platform}' is not the file's name '{stem}'"
    for month, source in {(table.verified, table.source), *table.iterate_verified_months()}:
        if not MONTH.fullmatch(month):
            yield f"verified: '{month}' is not a month such as 2026-08"
        if not URL.fullmatch(source):
            yield f"source: '{source}' is not an address"
    texts: list[tuple[str, str]] = []
    for name, fields in table.types.items():
        texts += [(f"types.{name}.{key}", text) for key, text in fields.items()]
    for call in table.calls:
        where = f"calls.{call.method} {call.path}"
        texts += [(f"{where}.query.{key}", text) for key, text in call.query.items()]
        texts += [(f"{where}.answers.{status}", text) for status, text in call.answers.items()]
        texts += [(f"{where}.body", call.body)] if call.body is not None else []
    known = (*SCALARS, NOTHING, *table.types)
    for where, text in texts:
        try:
            field: ApiField | None = parse_field(text)
        except ValueError as error:
            yield f"{where}: {error}"
            continue
        while field is not None and field.kind in ("list", "map"):
            field = field.of
        if field is not None and field.kind != "one of" and field.kind not in known:
            yield f"{where}: {none_of(field.kind, known)}"


def parse_table(data: bytes, stem: str) -> ApiTable:
    """Parse a table.

    Raises:
        ProfileError: it is not TOML, or violates the schema; with file and key.
    """
    import tomllib  # imported here so that the first frame does not wait

    shown = f"api/{stem}.toml"
    try:
        table = msgspec.convert(tomllib.loads(data.decode("utf-8")), ApiTable)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ProfileError(f"{shown}: {error}") from error
    if wrong := list(_find_table_faults(table, stem)):
        raise ProfileError(f"{shown}: {'; '.join(wrong)}")
    return table


@functools.cache
def load_api_tables() -> Mapping[str, ApiTable]:
    """Return every shipped table by its platform.

    Raises:
        ProfileError: one of them is broken.
    """
    paths = sorted((data_dir() / "api").glob("*.toml"))
    return {path.stem: parse_table(path.read_bytes(), path.stem) for path in paths}


def old_tables(platforms: Iterable[str], as_of: date) -> Iterator[Shortfall]:
    """Yield the tables whose last comparison with their source is too old."""
    tables = load_api_tables()
    # Days after which a table must be compared with its source again, from the first of its month.
    old_days = 120
    for platform in platforms:
        if platform not in tables:
            continue
        calls: dict[tuple[str, str], int] = {}
        for origin in tables[platform].iterate_verified_months():
            calls[origin] = calls.get(origin, 0) + 1
        for (month, source), count in calls.items():
            days = (as_of - date.fromisoformat(f"{month}-01")).days
            if days > old_days:
                words = (
                    f"compared with its source {days} days ago, in {month}: compare again "
                    f"({source})"
                )
                yield Shortfall(
                    profile=platform,
                    key=f"table of the API, {count} calls",
                    words=words,
                    fails=False,
                )
