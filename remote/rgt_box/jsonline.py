"""Frames as bytes: one compact JSON object per line, always valid UTF-8 and never a bare NaN."""

from __future__ import annotations

import json
import math
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def replace_nonfinite(value: Any) -> Any:
    """Return `value` with every NaN and infinity inside it replaced by None."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None
    if isinstance(value, dict):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_nonfinite(item) for item in value]
    return value


def dumps(frame: JsonObject) -> bytes:
    """Return `frame` as JSON without a newline.

    Undecodable characters of file names become ``?``.
    """
    try:
        text = _encode(frame)
    except ValueError:
        # Only now: searching each frame for NaN would cost more than encoding it.
        text = _encode(replace_nonfinite(frame))
    # Names that are not UTF-8 have surrogates, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace")


def encode_line(frame: JsonObject) -> bytes:
    """Return `frame` as one JSON line."""
    return dumps(frame) + b"\n"


def print_frame(frame: JsonObject) -> None:
    """Print `frame` as one JSON line, at once."""
    sys.stdout.buffer.write(encode_line(frame))
    sys.stdout.buffer.flush()


def drop_empty(fields: JsonObject) -> JsonObject:
    """Remove None and empty lists, which the reader's defaults restore."""
    return {
        key: item for key, item in fields.items() if item is not None and item != [] and item != ()
    }


def loads_dict(data: bytes | str) -> JsonObject | None:
    """Decode a JSON object; None for anything else, however broken."""
    try:
        found = json.loads(data)
    # RecursionError: thousands of nested brackets.
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        return found
    return None
