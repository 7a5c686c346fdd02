"""What a line format is, and what it finds in a line."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

    Values = Dict[str, float]
    State = Dict[str, Any]
    Parse = Callable[[str, State], List["Row"]]
    Flush = Callable[[State], List["Row"]]

GENERIC, BAR, NAMED = 0, 1, 2
"""Tiers: how far a hit of a format is to be believed."""


class Row:
    """The numbers of one printed line, at one place of the run.

    Attributes:
        values: Tag as printed → number; NaN and infinities are kept.
        step: Training step, where the line tells it.
        epoch: Epoch, where the line tells it (fractional where the program prints it so).
        samples: Samples seen, where the line counts in these.
        stream: Which of several bars or loops of the same format printed it; "" where there is one.
        total: Steps that the run will have, where the line tells them; 0 = they turn out to be unknown.
        weak: True for numbers that many programs print beside their own: they do not vote for a format.
    """

    __slots__ = ("epoch", "samples", "step", "stream", "total", "values", "weak")

    def __init__(
        self,
        values: Values,
        step: Optional[int] = None,
        epoch: Optional[float] = None,
        samples: Optional[int] = None,
        weak: bool = False,
        stream: str = "",
        total: Optional[float] = None,
    ) -> None:
        self.values, self.step, self.epoch, self.samples = values, step, epoch, samples
        self.weak, self.stream, self.total = weak, stream, total

    def place(self) -> tuple[str, float] | None:
        """Return (kind of x, x): the step where it is known, else the epoch, else the samples."""
        if self.step is not None:
            return "step", self.step
        if self.epoch is not None and math.isfinite(self.epoch):
            return "epoch", self.epoch
        return None if self.samples is None else ("samples", self.samples)

    def pack(self) -> list[Any]:
        """Return the row as JSON can keep it; `unpack` is its reverse."""
        values = {tag: y if math.isfinite(y) else repr(y) for tag, y in self.values.items()}
        return [values, self.step, self.epoch, self.samples, self.weak, self.stream, self.total]

    @classmethod
    def unpack(cls, packed: list[Any]) -> Row:
        """Return the row that `pack` wrote."""
        values, *rest = packed
        return cls({tag: float(y) for tag, y in values.items()}, *rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Row(%r, step=%r, epoch=%r, samples=%r)" % (self.values, self.step, self.epoch, self.samples)


class Format:
    """One way in which a program prints its numbers.

    Attributes:
        name: Short name; the source of its points is ``console:NAME``.
        seen: Program and version whose output it was checked against.
        hints: Lower-case substrings of which a line must have one before `parse` is asked.
        sample: A line that it reads.
        parse: ``(line, state)`` → rows. The state is a JSON-able dictionary of the format's own, one per rank.
        tier: `NAMED`, `BAR` or `GENERIC`.
        flush: Gives out what `parse` still holds at the end of the output.
    """

    __slots__ = ("flush", "hints", "name", "parse", "sample", "seen", "tier")

    def __init__(
        self,
        name: str,
        seen: str,
        hints: tuple[str, ...],
        sample: str,
        parse: Parse,
        tier: int = NAMED,
        flush: Optional[Flush] = None,
    ) -> None:
        self.name, self.seen, self.hints, self.sample = name, seen, hints, sample
        self.parse, self.tier, self.flush = parse, tier, flush
