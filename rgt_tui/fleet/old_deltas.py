"""Frames of a recording. Until 0.1 most samples came, and were recorded, as their difference from the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from rgt_tui.model.protocol import Frame, Sample
from rgt_tui.ssh.channel import FrameReader

DELTA = b'{"t":"delta",'
APART = ("t", "boot", "seq", "at", "skipped")
"""Fields of a sample that are no part of the numbered values."""


class Delta(msgspec.Struct, frozen=True, tag_field="t", tag="delta"):
    """A sample as its difference from the one before."""

    seq: int
    at: float
    back: int = 1
    """The sample that it builds on has number ``seq - back``."""
    v: tuple[Any, ...] = ()
    """Place, value, place, value …: the places are the values of the sample before, counted depth first."""
    put: dict[str, Any] = {}
    """Top-level fields whose shape changed, whole; null removes one."""
    skipped: int = 0


class RecordedFrames:
    """Lines of one recorded channel into frames."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._last = b""
        """The sample before, whole."""

    def read(self, line: bytes) -> Frame:
        """Return the frame of a line.

        Raises:
            ValueError: when it is none, or a difference from a sample that did not come.
            RecursionError: when it nests without end.
        """
        if line.startswith(DELTA):
            line = self._whole(line)
        frame = self._reader.read(line)
        if isinstance(frame, Sample):
            self._last = line
        return frame

    def _whole(self, line: bytes) -> bytes:
        last, self._last = self._last, b""  # whatever fails leaves nothing to build on
        delta = msgspec.json.decode(line, type=Delta)
        sample = msgspec.json.decode(last) if last else {}
        if sample.get("seq") != delta.seq - delta.back:
            raise ValueError("a difference from a sample that did not come")
        fields = {key: value for key, value in sample.items() if value is not None and key not in APART}
        places = list(_places(fields, tuple(fields)))
        for place, value in zip(delta.v[::2], delta.v[1::2], strict=True):
            if type(place) is not int or not 0 <= place < len(places):
                raise ValueError("a place that the sample before does not have")
            holder, key = places[place]
            holder[key] = value
        fields.update((key, value) for key, value in delta.put.items() if key not in APART)
        fields = {key: value for key, value in fields.items() if value is not None}
        head = {"t": "sample", "boot": sample["boot"], "seq": delta.seq, "at": delta.at}
        return msgspec.json.encode(head | {"skipped": delta.skipped} | fields)


def _places(holder: Any, keys: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield where each value is that is neither an object nor a list of objects, depth first."""
    for key in keys:
        value = holder[key]
        if isinstance(value, dict):
            yield from _places(value, tuple(value))
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            yield from _places(value, range(len(value)))
        else:
            yield holder, key
