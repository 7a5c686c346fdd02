"""How the benchmarks start rgt, and what they read of its trace file."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import BenchmarkError

TRACE = "RGT_TRACE_FILE"
"""Environment variable: the program appends a line of JSON to it at its first frame and first
sample.
"""

HEADER = r"\bfleet\b"
"""Painted by the first frame: the header line of the fleet screen."""

READING = r"\d ?%"
"""Painted as soon as a reading of a box is shown."""


def rgt() -> str:
    """The installed program, that of the running environment first."""
    beside = Path(sys.executable).with_name("rgt")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("rgt")
    if not found:
        raise BenchmarkError("the program rgt is not installed in this environment (make setup)")
    return found


@dataclass(frozen=True)
class Event:
    """One line of the trace file."""

    at: float
    fields: Mapping[str, Any]


def read_trace(path: Path) -> dict[str, Event]:
    """The first event of each kind; lines that are not complete yet are passed over."""
    events: dict[str, Event] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    for line in lines:
        try:
            fields = json.loads(line)
            event = Event(float(fields["t"]), fields)
            events.setdefault(str(fields["event"]), event)
        except (ValueError, KeyError, TypeError):
            continue
    return events


def last_words(text: str) -> str:
    """The end of what a program painted, to show why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-12:])[-1500:] or "(nothing)"
