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

from rgt_train.cadence import Failures
from rgt_train.durable import StrPath
from rgt_train.jsonl import Appender
from rgt_train.prior import Prior

NAME = "ledger.jsonl"
WANTED = ("done", "left early", "SIGINT", "rollback", "mirror")
"""Ends that say nothing about the machine; any other is a failure."""


@dataclass(frozen=True)
class Past:
    """What the former incarnations of a run left.

    Attributes:
        attempts: How many there were.
        cause: How the last one ended; None where there was none.
        up_s: Node seconds all of them ran, as far as known.
        failures: How many of them ended against their will.
        step: The last step that the last one is known to have come to, as far as it was noted here.
        log_every: Steps between those that the last one logged; 0 where it logged none, None where that is not known.
        told: Whether the last one noted its end itself; else it may have come further than is known.
    """

    attempts: int = 0
    cause: Optional[str] = None
    up_s: float = 0.0
    failures: int = 0
    step: int = 0
    log_every: Optional[int] = None
    told: bool = False

    def lost(self, logged: Optional[int], now: int) -> "Tuple[int, str]":
        """Return the steps of the last incarnation that are to be done again, at least, and how many in words.

        Args:
            logged: The last step in the metrics, as far as known.
            now: The step that is gone on from.
        """
        known = max(logged or 0, self.step)
        lost = max(0, known - now)
        if self.told or self.log_every == 1 or not self.attempts:
            return lost, f"{lost} steps"
        if not self.log_every:
            return lost, f"at least {lost} steps (what came after step {known} was not noted)"
        most = max(0, (known // self.log_every + 1) * self.log_every - 1 - now)
        range_ = f"{lost} to {most} steps (one in {self.log_every} was noted)"
        return lost, range_ if most > lost else f"{lost} steps"

    def expect(self, prior: Prior, nodes: int = 1) -> Failures:
        """Return how often a job on `nodes` machines is expected to fail, from what was seen and the prior."""
        node_s = (3600 * prior.hours * prior.failures + self.up_s) / (prior.failures + self.failures)
        seen = f"{self.failures} seen in {self.up_s / 3600:.1f} h here, {prior.why} assumed before"
        return Failures(node_s / max(1, nodes), seen if self.attempts else f"assumed of {prior.why}")


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

    def start(self, step: int, nodes: int = 1, log_every: int = 1) -> None:
        """Note that this incarnation begins at `step`, on `nodes` machines, and logs one step in `log_every`."""
        self._add({"event": "start", "attempt": self.attempt, "step": step, "pid": os.getpid(), "nodes": nodes,
                   "log_every": log_every, "time": time.time()})  # fmt: skip

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
    spans: List[_Span] = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except OSError:
        return Past()
    for line in lines:
        try:
            entry = json.loads(line)
            event, at, nodes = entry["event"], float(entry["time"]), int(entry.get("nodes", 1))
            step, log_every = int(entry.get("step", 0)), entry.get("log_every")
        except (ValueError, KeyError, TypeError):
            continue
        if event == "start":
            spans.append(_Span(at, at, nodes, step, log_every if isinstance(log_every, int) else None))
        elif spans and event in ("alive", "end"):
            spans[-1].end, spans[-1].step = at, max(step, spans[-1].step)
            if event == "end":
                spans[-1].cause = str(entry.get("cause", ""))
    if not spans:
        return Past()
    if spans[-1].cause is None and last_seen is not None:
        spans[-1].end = max(spans[-1].end, last_seen)
    return Past(
        attempts=len(spans),
        cause=spans[-1].cause or "killed",
        up_s=sum(max(0.0, span.end - span.begin) * span.nodes for span in spans),  # a clock may step back
        failures=sum(span.cause not in WANTED for span in spans),
        step=spans[-1].step,
        log_every=spans[-1].log_every,
        told=spans[-1].cause is not None,
    )


@dataclass
class _Span:
    begin: float
    end: float
    nodes: int
    step: int
    log_every: Optional[int]
    cause: Optional[str] = None
