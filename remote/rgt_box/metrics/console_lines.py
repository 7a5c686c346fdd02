"""What a printed line says: chunks of a console, rows, and line formats as data."""

from __future__ import annotations

import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

    Values = Dict[str, float]
    State = Dict[str, Any]
    Parse = Callable[[str, State], List["Row"]]
    Flush = Callable[[State], List["Row"]]
    Pairs = Callable[[str], List[Tuple[str, str]]]

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


class LineFormat:
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


NUM = (
    r"(?:[-+]?(?:(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,24})(?:\.\d{0,24})?|\.\d{1,24})(?:e[-+]?\d{1,4})?"
    r"|[-+]?(?:nan|inf(?:inity)?))(?![\w.])"
)
"""A whole number token; every repetition is bounded, so that no text makes it slow. For ``re.IGNORECASE``."""


def decimal(text: str) -> float:
    """Return the number that `NUM` matched; thousands separators are dropped."""
    return float(text.replace(",", ""))


_ALONE = re.compile(r"\s{0,40}(%s)\s{0,40}$" % NUM, re.I)


def pipes(rest: str) -> List[Tuple[str, str]]:
    """Return the pairs of ``name: 1.0 | name: 2.0 |``; cells that hold more than one number are left out."""
    found = []
    for cell in rest.split("|")[:200]:
        name, colon, text = cell.partition(":")
        value = _ALONE.match(text) if colon else None
        if value is not None:
            found.append((name.strip()[:100], value.group(1)))
    return found


def _all(pattern: str) -> Pairs:
    return re.compile(pattern % NUM, re.I).findall


colons = _all(r"([A-Za-z_\[][\w/.\[\]\-()%%]{0,80}):\s*(%s)")
"""``name: 1.0  name:2.0``"""

equals = _all(r"(?:^|, ?|\| )([A-Za-z_]\w{0,80})[= ](%s)")
"""``name=1.0, name=2.0`` and ``| name 1.0 | name 2.0``"""

dictionary = _all(r"'([^'{}]{1,100})':\s*'?(%s)'?(?=\s*[,}]|\s*$)")
"""``'name': 1.0, 'name': '2.0'``"""

dashes = _all(r"(?:^| - )([^\s:][^:]{0,100}?):(?:np\.\w{1,20}\()?(%s)")
"""``name:1.0 - name:np.float64(2.0)``"""

_PLACES = ("step", "epoch", "rest")


class Shape:
    """One kind of line.

    Args:
        pattern: For ``search``, without regard to case. Group ``step`` or ``epoch`` is the place, ``rest`` is searched
            for pairs, any other group is a value of that name (``name`` and ``value`` together are one pair).
        pairs: Finds the pairs in ``rest``.
        names: Tag as printed → tag to use; None drops it.
        prefix: Put before every tag that is not in `names`.
        step_key: The pair that is the step.
        weak: See `Row`.
    """

    def __init__(
        self,
        pattern: str,
        pairs: Optional[Pairs] = None,
        names: Optional[Mapping[str, Optional[str]]] = None,
        prefix: str = "",
        step_key: str = "",
        weak: bool = False,
    ) -> None:
        self._search = re.compile(pattern.replace("{N}", NUM), re.I).search
        self._pairs, self._names, self._prefix = pairs, names or {}, prefix
        self._step_key, self._weak = step_key, weak

    def read(self, line: str) -> Row | None:
        """Return the row of a line; None where the line is of another kind or has no number."""
        match = self._search(line)
        if match is None:
            return None
        groups = match.groupdict()
        pairs: Dict[str, Any] = {k: v for k, v in groups.items() if v is not None and k not in _PLACES}
        if "name" in pairs and "value" in pairs:
            pairs[pairs.pop("name")] = pairs.pop("value")
        if self._pairs is not None and groups.get("rest"):
            pairs.update(self._pairs(groups["rest"]))
        step, epoch = groups.get("step"), groups.get("epoch")
        if self._step_key:
            step = pairs.pop(self._step_key, step)
        epoch = pairs.pop("epoch", epoch) if epoch is None else epoch
        values = {}
        for key, text in pairs.items():
            tag = self._names[key] if key in self._names else self._prefix + key
            if tag is not None:
                values[tag] = decimal(text)
        row = Row(
            values,
            step=None if step is None else whole(step),
            epoch=None if epoch is None else decimal(epoch),
            weak=self._weak,
        )
        return row if values and row.place() else None


def whole(text: str) -> Optional[int]:
    """Return a step as an integer; None for one that is no number of steps."""
    value = decimal(text)
    return int(value) if 0 <= value < 1e15 else None


def any_of(*shapes: Shape) -> Parse:
    """Return a parse function that takes the first of `shapes` that fits."""

    def parse(line: str, _: Dict[str, Any]) -> List[Row]:
        for shape in shapes:
            row = shape.read(line)
            if row is not None:
                return [row]
        return []

    return parse


CAP = 8192
"""Bytes of a piece that are looked at; the rest of a longer one is dropped."""

PIECE = re.compile(rb"[^\r\n]+")

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x08\x00]")
"""Escape sequences, and the backspaces with which Keras takes its bar back."""

_RANK = re.compile(
    r"(?:\[([A-Za-z_]{1,40}\d{1,6})\]:|(\([\w.]{1,80} pid=\d{1,10}(?:, ip=[\d.a-f:]{1,50})?\))|(\d{1,4}):(?= ))\s?"
)
"""What torchrun ``--tee``, Ray and ``srun -l`` put before each line of a rank."""


def complete(data: bytes) -> int:
    """Return how many bytes of `data` belong to pieces that are ended."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1


def clean(piece: bytes) -> tuple[str, str]:
    """Return (rank, text) of a piece: escape sequences gone, the rank's prefix apart; "" where there is none."""
    text = piece[:CAP].decode("utf-8", "replace")
    if "\x1b" in text or "\x08" in text or "\x00" in text:
        text = _ANSI.sub("", text)
    found = _RANK.match(text)
    if found is None:
        return "", text
    return found.group(1) or found.group(2) or found.group(3), text[found.end() :]
