"""Differences into whole samples, before anything else of the client sees them."""

from __future__ import annotations

from typing import Any

import msgspec

from rgt_tui.model.protocol import Sample, SampleDelta

APART = frozenset(("t", "boot", "seq", "at", "skipped"))


class Rebuilder:
    """Keeps the last sample of a channel as it came, and changes it by what comes next."""

    def __init__(self) -> None:
        self._line: bytes | None = None
        self._fields: dict[str, Any] = {}
        self._places: list[tuple[Any, Any]] = []
        self._boot, self._seq = "", -1

    def whole(self, line: bytes, sample: Sample) -> None:
        """Take note of a whole sample; it is only looked into when a difference follows."""
        self._line, self._boot, self._seq = line, sample.boot, sample.seq

    def rebuild(self, delta: SampleDelta) -> Sample:
        """Return the sample that `delta` stands for.

        Raises:
            ValueError: when it does not fit the sample before (`msgspec.ValidationError` is one); until the next
                whole sample no other will.
        """
        if self._seq < 0 or delta.seq - delta.back != self._seq:
            self._seq = -1
            raise ValueError("a difference from a sample that did not come")
        self._seq = -1  # whatever fails below leaves nothing to build on
        if self._line is not None:
            decoded = msgspec.json.decode(self._line)
            self._fields = {
                key: value for key, value in decoded.items() if value is not None and key not in APART
            }
            self._line, self._places = None, places(self._fields)
        self._change(delta.v)
        if delta.put:
            self._put(delta.put)
        about = {
            "t": "sample",
            "boot": self._boot,
            "seq": delta.seq,
            "at": delta.at,
            "skipped": delta.skipped,
        }
        sample = msgspec.convert(self._fields | about, Sample)
        self._seq = delta.seq
        return sample

    def _change(self, changes: tuple[Any, ...]) -> None:
        if len(changes) % 2:
            raise ValueError("a place without a value")
        for place, value in zip(changes[::2], changes[1::2], strict=True):
            if type(place) is not int or not 0 <= place < len(self._places):
                raise ValueError("a place that the sample before does not have")
            holder, key = self._places[place]
            holder[key] = value

    def _put(self, put: dict[str, Any]) -> None:
        for key, value in put.items():
            if value is None:
                self._fields.pop(key, None)
            elif key not in APART:
                self._fields[key] = value
        self._places = places(self._fields)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return (holder, key) of every value that is neither an object nor a list of objects, depth first."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any]] = []
    for key, item in items:
        if isinstance(item, dict) or is_objects(item):
            found += places(item)
        else:
            found.append((value, key))
    return found


def is_objects(value: Any) -> bool:
    """Tell whether a value is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
