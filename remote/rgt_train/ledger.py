"""The diary of a run directory: when each incarnation started, and how it ended if it could say so.

A start without an end was killed. Resuming needs none of this; it serves the receipt ("killed" or "SIGTERM") and
the estimate of the mean time between failures that the checkpoint interval is computed from.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from rgt_train.durable import StrPath
from rgt_train.jsonl import Appender

NAME = "ledger.jsonl"
PRIOR_MTBF_S = 4 * 3600.0
"""Mean seconds between failures assumed before this run has seen any (rented spot boxes: 1 to 8 h)."""


@dataclass(frozen=True)
class Past:
    """What the former incarnations of a run left.

    Attributes:
        attempts: How many there were.
        cause: How the last one ended; None where there was none.
        up_s: Seconds all of them ran, as far as known.
        failures: How many of them ended against their will.
    """

    attempts: int = 0
    cause: Optional[str] = None
    up_s: float = 0.0
    failures: int = 0

    def mtbf_s(self) -> float:
        """Return the mean time between failures in seconds (one imagined failure after the prior)."""
        return (PRIOR_MTBF_S + self.up_s) / (1 + self.failures)


class Ledger:
    """Reads the past once, then appends the present.

    Args:
        out: The run directory.
        last_seen: Time of the last sign of life in the metrics, seconds since the epoch: when a killed incarnation
            was still alive.
    """

    def __init__(self, out: StrPath, last_seen: Optional[float] = None) -> None:
        self.path = os.path.join(out, NAME)
        self.past = _read(self.path, last_seen)
        self.attempt = self.past.attempts + 1
        self._file = Appender(self.path)

    def start(self, step: int) -> None:
        """Note that this incarnation begins at `step`."""
        self._add(
            {"event": "start", "attempt": self.attempt, "step": step, "pid": os.getpid(), "time": time.time()}
        )

    def alive(self, step: int) -> None:
        """Note a sign of life (after each checkpoint: often enough, and bounded)."""
        self._add({"event": "alive", "attempt": self.attempt, "step": step, "time": time.time()})

    def end(self, step: int, cause: str) -> None:
        """Note how this incarnation ends."""
        self._add(
            {"event": "end", "attempt": self.attempt, "step": step, "cause": cause, "time": time.time()}
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _add(self, entry: Dict[str, Any]) -> None:
        self._file.append(json.dumps(entry))


def _read(path: str, last_seen: Optional[float]) -> Past:
    """Fold the lines; a torn or foreign line is skipped, it only makes the estimate poorer."""
    spans: List[Tuple[float, float, Optional[str]]] = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return Past()
    for line in lines:
        try:
            entry = json.loads(line)
            event, at = entry["event"], float(entry["time"])
        except (ValueError, KeyError, TypeError):
            continue
        if event == "start":
            spans.append((at, at, None))
        elif spans and event in ("alive", "end"):
            cause = str(entry.get("cause", "")) if event == "end" else spans[-1][2]
            spans[-1] = (spans[-1][0], at, cause)
    if not spans:
        return Past()
    if spans[-1][2] is None and last_seen is not None:
        spans[-1] = (spans[-1][0], max(spans[-1][1], last_seen), None)
    return Past(
        attempts=len(spans),
        cause=spans[-1][2] or "killed",
        up_s=sum(end - begin for begin, end, _ in spans),
        failures=sum(cause != "done" for _, _, cause in spans),
    )
