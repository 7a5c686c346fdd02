"""Differences into whole samples, before anything else of the client sees them.

What did not change is the very object of the sample before. Of the sample as it came only the order of its keys is
kept, shared by all boxes that look alike: a fleet of hundreds is held in memory.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rgt_tui.model.protocol import Sample, SampleDelta
from rgt_tui.ssh.places import Places, fields, places, row

_INT = {int}
APART = frozenset(("t", "boot", "seq", "at", "skipped"))

Changes = dict[Any, Any]
"""Attribute or position → its new value, or what changes in the struct that stands there."""

replace = msgspec.structs.replace
_checked = msgspec.convert


class Rebuilder:
    """Keeps the last sample of a channel, and changes it by what comes next."""

    def __init__(self) -> None:
        self._line: bytes | None = None
        self._sample: Sample | None = None
        self._layout: dict[str, Places] = {}
        self._row = row(())

    def whole(self, line: bytes, sample: Sample) -> None:
        """Take note of a whole sample; it is only looked into when a difference follows."""
        self._line, self._sample = line, sample

    def rebuild(self, delta: SampleDelta) -> Sample:
        """Return the sample that `delta` stands for.

        Raises:
            ValueError: when it does not fit the sample before (`msgspec.ValidationError` is one); until the next
                whole sample no other will.
        """
        base, self._sample = self._sample, None  # whatever fails below leaves nothing to build on
        if base is None or delta.seq - delta.back != base.seq:
            raise ValueError("a difference from a sample that did not come")
        if self._line is not None:
            self._look_into(self._line)
            self._line = None
        new: dict[str, Any] = {"seq": delta.seq, "at": delta.at, "skipped": delta.skipped}
        new.update(_changed(base, self._changes(delta.v)))
        if delta.put:
            new.update(self._put(delta.put))
        self._sample = replace(base, **new)
        return self._sample

    def _look_into(self, line: bytes) -> None:
        decoded = msgspec.json.decode(line)
        self._layout = {
            key: places(key, value, Sample)
            for key, value in decoded.items()
            if value is not None and key not in APART
        }
        self._number()

    def _number(self) -> None:
        self._row = row(tuple(self._layout.values()))

    def _changes(self, changes: tuple[Any, ...]) -> Changes:
        """Return the new values, by where they are."""
        numbers, known = changes[::2], self._row.all
        if len(changes) % 2:
            raise ValueError("a place without a value")
        if numbers and (set(map(type, numbers)) != _INT or min(numbers) < 0 or max(numbers) >= len(known)):
            raise ValueError("a place that the sample before does not have")
        found: Changes = {}
        for number, value in zip(numbers, changes[1::2], strict=True):
            place = known[number]
            if place.holder is None:
                continue
            kind = type(value)
            if kind is not place.plain:
                value = float(value) if kind is int and place.plain is float else _checked(value, place.hint)
            into = found
            for step in place.holder:
                into = into.setdefault(step, {})
            into[place.name] = value
        return found

    def _put(self, put: dict[str, Any]) -> dict[str, Any]:
        changed = {}
        for key, value in put.items():
            if key in APART:
                continue
            if value is None:
                self._layout.pop(key, None)
            else:
                self._layout[key] = places(key, value, Sample)
            hint = fields(Sample).get(key)
            if hint is not None:
                changed[key] = _DEFAULTS[key] if value is None else msgspec.convert(value, hint)
        self._number()
        return changed


_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Sample) if field.name not in APART}


def _changed(old: Any, changes: Changes) -> dict[str, Any]:
    """Return of a struct the attributes that are other ones; every list is gone through once, however much changes."""
    return {
        name: _with(getattr(old, name), change) if type(change) is dict else change
        for name, change in changes.items()
    }


def _with(old: Any, changes: Changes) -> Any:
    """Return a struct, or a tuple of such, with its changes."""
    if not isinstance(old, tuple):
        return replace(old, **_changed(old, changes))
    items = list(old)
    for index, change in changes.items():
        items[index] = _with(items[index], change)
    return tuple(items)
