"""What the client asks for: the first line of ``watch`` and the control lines after it. Pure."""

from __future__ import annotations

import math

from rgt_box import PROTO, jsonline
from rgt_box.queue.cell_command import hooks
from rgt_box.queue.queue_file import environment
from rgt_box.recorder.control import clamp_interval

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_LINE = 64 << 20
"""Bytes: 28 runs of 1,000 curves have 5 MB of cursors, and the same line comes again at each try."""
MAX_PAST, MAX_POINTS = 366 * 86400.0, 1000
"""Bounds of what a client may ask of the history: so many rows still make one frame."""

OPS = ("interval", "follow", "unfollow", "ping")


class BadConfig(Exception):
    """The line cannot be used; the message says why."""


def parse(line: bytes) -> dict[str, Any]:
    """Return a checked configuration with every key present.

    Raises:
        BadConfig: when the line is no JSON object or a value has the wrong type.
    """
    raw = jsonline.loads_dict(line)
    if raw is None:
        raise BadConfig("the configuration is not a JSON object")
    proto = raw.get("proto", PROTO)
    if proto != PROTO:
        raise BadConfig("protocol %r was requested; this agent speaks %d" % (proto, PROTO))
    return {
        "interval": _interval(raw.get("interval", 1.0)),
        "mounts": _strings(raw, "mounts"),
        "jobs": _strings(raw, "jobs"),
        "logs": _strings(raw, "logs"),
        "runs": _strings(raw, "runs"),
        "pattern": _text(raw, "pattern", "rgt_train"),
        "find": raw.get("find") is True,
        "gpu_trace": _text(raw, "gpu_trace", None),
        "tail": min(100000, max(0, _integer(raw, "tail", 200))),
        "samples_after": _sample_cursor(raw.get("samples_after")),
        "log_cursors": _cursors(raw, "log_cursors"),
        "scalar_cursors": _cursors(raw, "scalar_cursors"),
        "packed_lines": raw.get("packed_lines") is True,
        "history": _history(raw.get("history")),
        "job_env": _environment(raw.get("job_env")),
        "durable": _strings(raw, "durable"),
        "job_hooks": None if raw.get("job_hooks") is None else hooks(raw["job_hooks"]),
    }


def control(line: bytes) -> dict[str, Any] | None:
    """Return a checked control line; None for one that makes no sense (it is ignored, not fatal)."""
    raw = jsonline.loads_dict(line)
    if raw is None or raw.get("op") not in OPS:
        return None
    op = raw["op"]
    try:
        if op == "interval":
            return {"op": op, "seconds": _interval(raw.get("seconds"))}
    except BadConfig:
        return None
    if op in ("follow", "unfollow"):
        return {"op": op, "path": raw["path"]} if isinstance(raw.get("path"), str) and raw["path"] else None
    number = raw.get("id")
    return {"op": op, "id": number if isinstance(number, int) else 0}


def _interval(value: Any, most: float = 0.0) -> float:
    if (
        not isinstance(value, (int, float))
        or isinstance(value, bool)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise BadConfig("%r is not a number of seconds above 0" % (value,))
    return min(most, float(value)) if most else clamp_interval(float(value))


def _strings(raw: dict[str, Any], key: str) -> list[str]:
    value = raw.get(key) or []
    if not isinstance(value, list) or any(not isinstance(item, str) or "\0" in item for item in value):
        raise BadConfig("%s must be a list of strings" % key)
    return value


def _text(raw: dict[str, Any], key: str, default: str | None) -> str | None:
    value = raw.get(key, default)
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise BadConfig("%s must be a string" % key)
    return value


def _integer(raw: dict[str, Any], key: str, default: int) -> int:
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadConfig("%s must be a whole number" % key)
    return value


def _sample_cursor(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if isinstance(value, dict) and isinstance(value.get("boot"), str) and isinstance(value.get("seq"), int):
        return {"boot": value["boot"], "seq": value["seq"]}
    raise BadConfig('samples_after must be {"boot": …, "seq": …}')


def _history(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadConfig('history must be {"seconds": …, "points": …}')
    points = _integer(value, "points", 240)
    return {"seconds": _interval(value.get("seconds"), MAX_PAST), "points": min(MAX_POINTS, max(1, points))}


def _environment(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or environment(value) != value:
        raise BadConfig("job_env must be an object of variables and their values")
    return value


def _cursors(raw: dict[str, Any], key: str) -> dict[str, tuple[int, int]]:
    value = raw.get(key) or {}
    if not isinstance(value, dict):
        raise BadConfig("%s must be an object" % key)
    found = {}
    for path, cursor in value.items():
        inode = cursor.get("inode") if isinstance(cursor, dict) else None
        offset = cursor.get("offset") if isinstance(cursor, dict) else None
        if not isinstance(inode, int) or not isinstance(offset, int) or offset < 0:
            raise BadConfig('%s: %s must be {"inode": …, "offset": …}' % (key, path))
        found[path] = (inode, offset)
    return found
