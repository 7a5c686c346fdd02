"""TensorBoard's Event message → scalars. Pure.

Fields by event.proto, summary.proto and tensor.proto of TensorFlow; the three ways to write a scalar were run:
``simple_value`` (torch, tensorboardX), a tensor with ``float_val`` or ``double_val`` (torch ``new_style``), a tensor
with ``tensor_content`` (TF2, Keras).
"""

from __future__ import annotations

from struct import calcsize, unpack_from

from rgt_box.metrics.base import EPOCH, MAX_TAG, SAMPLES, STEP
from rgt_box.metrics.wire import BYTES, FIXED32, FIXED64, VARINT, fields, signed, varint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Event(NamedTuple):
        """One record.

        Attributes:
            wall: Wall time.
            step: Its step.
            start: The session was started again here.
            values: Tag and value of each scalar.
        """

        wall: float
        step: int
        start: bool
        values: list[tuple[str, float]]
else:
    from collections import namedtuple

    Event = namedtuple("Event", "wall step start values")

NOTHING = Event(0.0, 0, False, [])
_FORMATS = "1:<f 2:<d 3:<i 4:<B 5:<h 6:<b 9:<q 10:<? 17:<H 19:<e 22:<I 23:<Q"
CONTENT = {int(dtype): form for dtype, _, form in (each.partition(":") for each in _FORMATS.split())}
"""dtype → one element of ``tensor_content``."""
BFLOAT16, HALF = 14, 19
FLOATS, DOUBLES, HALVES = 5, 6, 13
VALUES = {FLOATS: "<f", DOUBLES: "<d", 7: "", 10: "", 11: "", HALVES: "", 16: "", 17: ""}
"""Field of TensorProto → its fixed format, or empty for varints."""
PLUGIN = b"scalars"

AXES = (
    ("* vs samples", SAMPLES),
    ("Train/Samples/*", SAMPLES),
    ("epoch_*", EPOCH),
    ("loss/epoch_average*", EPOCH),
)
"""Tags whose x is no step: Megatron, DeepSpeed, Keras, kohya."""


def axis(tag: str) -> str:
    """Return what the step of a tag counts."""
    for pattern, kind in AXES:
        if tag.startswith(pattern[:-1]) if pattern[-1] == "*" else tag.endswith(pattern[1:]):
            return kind
    return STEP


def decode(data: bytes) -> Event:
    """Decode an Event.

    Raises:
        ValueError, IndexError: when this is no Event.
    """
    wall, step, start = 0.0, 0, False
    values: list[tuple[str, float]] = []
    for number, kind, at, stop in fields(data, 0, len(data)):
        if number == 5 and kind == BYTES:
            for inner, inner_kind, first, last in fields(data, at, stop):
                if inner == 1 and inner_kind == BYTES:
                    found = scalar(data, first, last)
                    if found is not None:
                        values.append(found)
        elif number == 1 and kind == FIXED64:
            wall = unpack_from("<d", data, at)[0]
        elif number == 2 and kind == VARINT:
            step = signed(at)
        elif number == 7 and kind == BYTES:
            start = any(each[:3] == (1, VARINT, 1) for each in fields(data, at, stop))
    return Event(wall, step, start, values)


def scalar(data: bytes, at: int, end: int) -> tuple[str, float] | None:
    """Return tag and value of one Summary.Value; None when it is no scalar."""
    tag, value, tensor = "", None, None
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == BYTES:
            if stop - start > MAX_TAG:
                return None
            tag = data[start:stop].decode("utf-8", "replace")
        elif number == 2 and kind == FIXED32:
            value = unpack_from("<f", data, start)[0]
        elif number == 8 and kind == BYTES:
            tensor = start, stop
        elif number == 9 and kind == BYTES and plugin(data, start, stop) not in (b"", PLUGIN):
            return None
    if value is None and tensor is not None:
        value = element(data, tensor[0], tensor[1])
    return None if value is None else (tag, value)


def plugin(data: bytes, at: int, end: int) -> bytes:
    """Return the plugin name of a SummaryMetadata."""
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == BYTES:
            for inner, inner_kind, first, last in fields(data, start, stop):
                if inner == 1 and inner_kind == BYTES:
                    return data[first:last]
    return b""


def element(data: bytes, at: int, end: int) -> float | None:
    """Return the one number of a TensorProto; None when it holds something else."""
    dtype, content = 0, b""
    found: list[float] = []
    for number, kind, start, stop in fields(data, at, end):
        if number == 1 and kind == VARINT:
            dtype = start
        elif number == 4 and kind == BYTES:
            if stop - start > 8:
                return None
            content = data[start:stop]
        elif number in VALUES:
            found.extend(numbers(data, VALUES[number], kind, start, stop))
            if len(found) > 1:
                return None
    if dtype == BFLOAT16:
        bits = content if len(content) == 2 else b"".join(int(each).to_bytes(2, "little") for each in found)
        return float(unpack_from("<f", b"\0\0" + bits)[0]) if bits else None
    if dtype not in CONTENT:
        return None
    if content:
        form = CONTENT[dtype]
        return float(unpack_from(form, content)[0]) if len(content) == calcsize(form) else None
    if not found:
        return None
    if dtype == HALF:
        return float(unpack_from("<e", int(found[0]).to_bytes(2, "little"))[0])
    return float(found[0])


def numbers(data: bytes, form: str, kind: int, at: int, end: int) -> list[float]:
    """Return the first two values of a repeated field, packed or not."""
    if kind == VARINT:
        return [signed(at)]
    if form:
        size = calcsize(form)
        return [unpack_from(form, data, place)[0] for place in range(at, min(end, at + 2 * size), size)]
    found: list[float] = []
    while at < end and len(found) < 2:
        value, at = varint(data, at)
        found.append(signed(value))
    return found
