"""The numbered values of a sample's field: which place is which attribute. Boxes that look alike share one."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import msgspec

Path = tuple[str | int, ...]
"""Attribute names and positions in tuples, from the sample down."""


class Place:
    """One value.

    Attributes:
        holder: Where the struct is whose attribute it is; None for what this client does not know.
        name: The attribute.
        plain: The type that its values have as they come; object where each has to be looked into.
        hint: The declared type.
    """

    __slots__ = ("hint", "holder", "name", "plain")

    def __init__(self, path: Path | None, hint: Any) -> None:
        self.holder = None if path is None else path[:-1]
        self.name = "" if path is None else str(path[-1])
        self.hint = hint
        self.plain = plain_type(hint)


class Places:
    """All places of one top-level field, in order."""

    __slots__ = ("__weakref__", "all")

    def __init__(self, all: tuple[Place, ...]) -> None:  # noqa: A002
        self.all = all


class Row:
    """All places of a sample, as they are counted."""

    __slots__ = ("__weakref__", "all")

    def __init__(self, parts: tuple[Places, ...]) -> None:
        self.all = tuple(place for part in parts for place in part.all)


_ROWS: WeakValueDictionary[tuple[Places, ...], Row] = WeakValueDictionary()
_SHARED: WeakValueDictionary[tuple[str, Any, Any], Places] = WeakValueDictionary()
"""Kept as long as some box looks like this."""


def places(key: str, value: Any, owner: type) -> Places:
    """Return the places of the field `key` of `owner`, as the shape of `value`, just decoded, tells."""
    shape = shape_of(value)
    found = _SHARED.get((key, shape, owner))
    if found is None:
        hint = fields(owner).get(key, MISSING)
        found = Places(tuple(_walk(value, (key,) if hint is not MISSING else None, hint)))
        _SHARED[key, shape, owner] = found
    return found


def row(parts: tuple[Places, ...]) -> Row:
    """Return the places of fields in this order."""
    found = _ROWS.get(parts)
    if found is None:
        found = _ROWS[parts] = Row(parts)
    return found


def is_objects(value: Any) -> bool:
    """Tell whether a value is a list of objects, into which the numbering goes down."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def shape_of(value: Any) -> Any:
    """Return what two values have in common that have the same places."""
    if isinstance(value, dict):
        if _NESTED.isdisjoint(map(type, value.values())):
            return tuple(value)
        return tuple((key, shape_of(item)) for key, item in value.items())
    return ("*", *map(shape_of, value)) if is_objects(value) else None


_NESTED = frozenset((dict, list))


def _walk(value: Any, path: Path | None, hint: Any) -> Iterator[Place]:
    if isinstance(value, dict):
        known = fields(struct_of(hint)) if path is not None else {}
        for key, item in value.items():
            inner = known.get(key, MISSING)
            yield from _walk(item, (*path, key) if path is not None and inner is not MISSING else None, inner)
    elif is_objects(value):
        item_hint = item_of(hint)
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index) if path is not None else None, item_hint)
    else:
        yield Place(path, hint)


MISSING = object()


@cache
def fields(owner: type | None) -> dict[str, Any]:
    """Return name → declared type of a struct's fields; nothing for what is no struct."""
    return {} if owner is None else dict(typing.get_type_hints(owner))


def struct_of(hint: Any) -> type | None:
    """Return the struct that a value of a declared type is, if it is one."""
    return hint if isinstance(hint, type) and issubclass(hint, msgspec.Struct) else None


def item_of(hint: Any) -> Any:
    """Return the type of a tuple's items; MISSING where it is no tuple."""
    found = typing.get_args(hint)
    return found[0] if typing.get_origin(hint) is tuple and found else MISSING


@cache
def plain_type(hint: Any) -> type:
    """Return the one simple type of a declared type, None apart; object where there is none."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    else:
        kinds = [hint]
    return kinds[0] if len(kinds) == 1 and kinds[0] in (int, float, str, bool) else object
