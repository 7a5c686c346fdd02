"""Tables of a platform's API in ``profiles/api/*.toml``: calls, parameters and fields, each with source and month.

They are ours, written from the vendor's own description: local servers, adapters and recordings are compared with
them, so that an adapter and a server that were written from the same assumption do not merely agree with each other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date

import msgspec

from rgt_tui.profiles.loader import ProfileError, data_dir
from rgt_tui.profiles.profile_faults import MONTH, URL, Shortfall, none_of

OLD_DAYS = 120
"""Days after which a table has to be compared with its source again, counted from the first of its month."""
SCALARS = ("string", "integer", "number", "boolean", "time", "any")
"""``time`` is a string by ISO 8601; ``any`` is not looked into."""
NOTHING = "nothing"
"""Of an answer: it has no body."""


class ApiField(msgspec.Struct, frozen=True):
    """One field, parameter or body: ``list of TYPE``, ``map of TYPE``, ``one of A|B``, a scalar or a named type."""

    kind: str
    """A scalar, ``list``, ``map``, ``one of``, ``nothing``, or the name of a type of the table."""
    of: ApiField | None = None
    """What a list or a map holds."""
    choices: tuple[str, ...] = ()
    unit: str | None = None
    required: bool = True
    nullable: bool = False


class ApiCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call."""

    method: str
    path: str
    """With ``{name}`` for a variable part."""
    query: dict[str, str] = {}
    body: str | None = None
    answers: dict[str, str]
    """Status, or ``default`` → body."""
    source: str | None = None
    """Where it differs from the table's."""
    verified: str | None = None
    note: str | None = None

    def matches(self, method: str, path: str) -> bool:
        """Tell whether a request is this call."""
        pattern = "[^/]+".join(re.escape(part) for part in re.split(r"\{\w+\}", self.path))
        return method == self.method and re.fullmatch(pattern, path) is not None


class ApiTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a platform's API takes and answers."""

    platform: str
    source: str
    verified: str
    """Month in which it was compared with the source."""
    note: str | None = None
    any_slash: bool = False
    """Whether a path is the same with a slash at its end."""
    calls: tuple[ApiCall, ...]
    types: dict[str, dict[str, str]] = {}
    """Name → field → its type in words, see `parse_field`."""

    def call(self, method: str, path: str) -> ApiCall | None:
        """Return the call that a request is; one with fewer variable parts counts first."""
        path = path.rstrip("/") if self.any_slash else path
        found = [one for one in self.calls if one.matches(method, path)]
        return min(found, key=lambda one: one.path.count("{"), default=None)

    def fields(self, name: str) -> dict[str, ApiField]:
        """Return the fields of a named type."""
        return {key: parse_field(text) for key, text in self.types[name].items()}

    def months(self) -> Iterator[tuple[str, str]]:
        """Yield month and source of each call."""
        for call in self.calls:
            yield call.verified or self.verified, call.source or self.source


@functools.cache
def parse_field(text: str) -> ApiField:
    """Read ``TYPE [in UNIT] [or null] [, optional]``.

    Raises:
        ValueError: the words are not of this form.
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


def _faults(table: ApiTable, stem: str) -> Iterator[str]:
    if table.platform != stem:
        yield f"platform: '{table.platform}' is not the file's name '{stem}'"
    for month, source in {(table.verified, table.source), *table.months()}:
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
    """Read a table.

    Raises:
        ProfileError: it is not TOML, or breaks the form; names file and key.
    """
    import tomllib  # the first frame does not wait for it

    shown = f"api/{stem}.toml"
    try:
        table = msgspec.convert(tomllib.loads(data.decode("utf-8")), ApiTable)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ProfileError(f"{shown}: {error}") from error
    if wrong := list(_faults(table, stem)):
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
    """Yield the tables whose calls were compared with their source too long ago."""
    tables = load_api_tables()
    for platform in platforms:
        if platform not in tables:
            continue
        calls: dict[tuple[str, str], int] = {}
        for origin in tables[platform].months():
            calls[origin] = calls.get(origin, 0) + 1
        for (month, source), count in calls.items():
            days = (as_of - date.fromisoformat(f"{month}-01")).days
            if days > OLD_DAYS:
                words = f"compared with its source {days} days ago, in {month}: compare again ({source})"
                yield Shortfall(
                    profile=platform, key=f"table of the API, {count} calls", words=words, fails=False
                )
