"""Compares requests and answers with a platform's table in ``profiles/api``, in both directions.

A fixture of `conftest` does so with every exchange that a local server of this suite has: our adapters must send only
what the table has, and our servers must answer as it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rgt_tui.profiles import ApiField, ApiTable, parse_field

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)
}  # fmt: skip
TEXTS = {
    "integer": re.compile(r"-?\d+"),
    "number": re.compile(r"-?\d+(\.\d+)?"),
    "boolean": re.compile(r"true|false"),
}


def request_faults(
    table: ApiTable, method: str, path: str, query: Mapping[str, str], body: bytes
) -> Iterator[str]:
    """Yield what is wrong with a request by a table."""
    call = table.find_call(method, path)
    if call is None:
        yield f"{method} {path}: no such call"
        return
    where = f"{method} {call.path}"
    known = {key: parse_field(text) for key, text in call.query.items()}
    for key, text in query.items():
        if key not in known:
            yield f"{where}: no parameter {key}"
        elif not _fits_text(known[key], text):
            yield f"{where}: {key}={text} is not {call.query[key]}"
        elif known[key].kind in ("list", "map", *table.types):  # as JSON
            yield from _faults(table, known[key], _decoded(text.encode()), f"{where}: {key}")
    yield from (
        f"{where}: the parameter {key} is missing"
        for key, field in known.items()
        if field.required and key not in query
    )
    if call.body is None:
        if body:
            yield f"{where}: takes no body"
        return
    yield from _faults(table, parse_field(call.body), _decoded(body), f"{where}: sent")


def answer_faults(
    table: ApiTable, method: str, path: str, status: int, body: bytes
) -> Iterator[str]:
    """Yield what is wrong with an answer by a table."""
    call = table.find_call(method, path)
    if call is None:
        return
    where = f"{method} {call.path}: {status}"
    text = call.answers.get(str(status), call.answers.get("default"))
    if text is None:
        yield f"{where} is no status of this call"
    elif text == "nothing":
        if body:
            yield f"{where} has no body"
    else:
        yield from _faults(table, parse_field(text), _decoded(body), where)


def _decoded(body: bytes) -> object:
    try:
        return json.loads(body or b"null")
    except ValueError:
        return body


def _fits_text(field: ApiField, text: str) -> bool:
    if field.kind == "one of":
        return text in field.choices
    if field.kind == "time":
        return TIME.fullmatch(text) is not None
    return field.kind not in TEXTS or TEXTS[field.kind].fullmatch(text) is not None


def _faults(table: ApiTable, field: ApiField, value: Any, where: str) -> Iterator[str]:
    if (value is None and field.nullable) or field.kind == "any":
        return
    if field.kind == "one of":
        if value not in field.choices:
            yield f"{where} is {value!r}, not one of {', '.join(field.choices)}"
    elif field.kind == "time":
        if not isinstance(value, str) or not TIME.fullmatch(value):
            yield f"{where} is {value!r}, not a time"
    elif field.kind in KINDS:
        wrong = isinstance(value, bool) is not (field.kind == "boolean")
        if wrong or not isinstance(value, KINDS[field.kind]):
            yield f"{where} is {value!r}, not a {field.kind}"
    elif field.kind == "list" and field.of is not None:
        if not isinstance(value, list):
            yield f"{where} is {value!r}, not a list"
            return
        for item in value:
            yield from _faults(table, field.of, item, f"{where}[]")
    elif not isinstance(value, dict):
        yield f"{where} is {value!r}, not {'a map' if field.kind == 'map' else field.kind}"
    elif field.kind == "map" and field.of is not None:
        for item in value.values():
            yield from _faults(table, field.of, item, f"{where}[]")
    else:
        fields = table.parse_fields(field.kind)
        yield from (f"{where}.{key}: no such field" for key in value if key not in fields)
        for key, one in fields.items():
            if key in value:
                yield from _faults(table, one, value[key], f"{where}.{key}")
            elif one.required:
                yield f"{where}.{key} is missing"
