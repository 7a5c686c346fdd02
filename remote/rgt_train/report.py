"""What a run tells: lines for a person on stdout, points and events for programs in ``metrics.jsonl``."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any, Dict, Iterable, List, Optional, Tuple

from rgt_train.durable import StrPath
from rgt_train.jsonl import Appender
from rgt_train.logs.sinks import Sink

METRICS = "metrics.jsonl"
_TAIL = 1 << 16
_encode = json.JSONEncoder(allow_nan=False).encode


class Report:
    """Speaks for one run; a full disk or a closed pipe never ends the training.

    Args:
        out: The run directory.
    """

    def __init__(self, out: StrPath) -> None:
        self._file = Appender(os.path.join(out, METRICS))
        self._sinks: List[Sink] = []

    def add(self, sinks: Iterable[Sink]) -> None:
        """Send the points to further sinks from now on; `close` closes them."""
        self._sinks += sinks

    def say(self, line: str) -> None:
        """Print one line now."""
        say(line)

    def point(self, step: int, epoch: float, **values: float) -> None:
        """Append one point of the curves at `step`; `epoch` counts from 0 and has a fraction."""
        now = time.time()
        self._append({"step": step, "epoch": round(epoch, 6), "time": now, **values})
        for sink in self._sinks:
            sink.point(step, now, values)

    def event(self, kind: str, step: int, **fields: Any) -> None:
        """Append one event."""
        self._append({"event": kind, "step": step, **fields, "time": time.time()})

    def reopen(self) -> None:
        """Go on with the file that has come into the place of this one."""
        self._file.close()
        self._file = Appender(self._file.path)

    def close(self) -> None:
        """Write what waits and close."""
        self._file.close()
        while self._sinks:
            self._sinks.pop().close()

    def _append(self, entry: Dict[str, Any]) -> None:
        try:
            line = _encode(entry)
        except ValueError:  # one of them is not finite, which is rare
            line = _encode(_finite(entry))
        self._file.append(line)


def say(line: str) -> None:
    """Print `line` and push it out, ignoring a reader that is gone or a log that does not fit."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        return


def last_seen(out: StrPath) -> Tuple[Optional[int], Optional[float]]:
    """Return the highest step among the last points logged, and the time of the last line of all."""
    try:
        with open(os.path.join(out, METRICS), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None, None
    step: Optional[int] = None
    at: Optional[float] = None
    for line in lines:
        try:
            entry = json.loads(line)
            at = float(entry["time"])
            if "event" not in entry:
                step = max(step or 0, int(entry["step"]))
            elif entry["event"] == "resume":
                step = int(entry["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return step, at


def _finite(value: Any) -> Any:
    """JSON has no NaN: the contract writes it as a string."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value
