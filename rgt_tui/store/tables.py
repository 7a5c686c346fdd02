"""The tables of the present version, as data: what is written, verified and salvaged goes by this list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rgt_tui.store.seal import seal


@dataclass(frozen=True)
class Table:
    """A table whose last column, ``crc``, seals the others.

    Attributes:
        name: Its name.
        columns: Without ``crc``, in the order in which they are sealed.
        key: How many of the first columns make the primary key.
    """

    name: str
    columns: tuple[str, ...]
    key: int

    @property
    def select(self) -> str:
        """Read rows, all columns and the seal; a condition may follow."""
        return f"SELECT {', '.join(self.columns)}, crc FROM {self.name}"

    def insert(self, conflict: str = "REPLACE") -> str:
        """Return a statement that writes a sealed row; `conflict` is REPLACE or IGNORE."""
        marks = ", ".join("?" * (len(self.columns) + 1))
        return f"INSERT OR {conflict} INTO {self.name} ({', '.join(self.columns)}, crc) VALUES ({marks})"

    def sealed(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return a row ready for `insert`."""
        assert len(values) == len(self.columns), self.name
        return (*values, seal(values))


BOXES = Table("boxes", ("id", "place", "name", "first_at", "seen_at"), 1)
STATES = Table("states", ("box", "at", "body"), 1)
NAMES = Table("names", ("id", "list"), 1)
SAMPLES = Table("samples", ("box", "width", "slot", "names", "count", "vals"), 3)
RUNS = Table("runs", ("box", "run", "stamp", "at", "body"), 2)
CURVES = Table("curves", ("box", "run", "metric", "chunk", "body"), 4)
MINUTES = Table(
    "minutes",
    (
        "box", "minute", "currency", "rate", "covered", "idle", "busy", "billed", "idle_billed",
        "spent", "since", "at", "gap", "gap_from",
    ),
    3,
)  # fmt: skip
DAYS = Table("days", ("box", "day", "currency", "billed", "idle_billed"), 3)
EVENTS = Table("events", ("at", "box", "text", "level"), 3)
AUDIT = Table("audit", ("path", "start", "at", "box", "verb", "event", "instance", "who", "text"), 2)
MARKS = Table("marks", ("name", "value"), 1)
FLEETS = Table("fleets", ("fleet", "name", "box"), 3)

TABLES = (BOXES, STATES, NAMES, SAMPLES, RUNS, CURVES, MINUTES, DAYS, EVENTS, AUDIT, MARKS, FLEETS)
