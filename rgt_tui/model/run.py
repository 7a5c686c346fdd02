"""Runs and their curves."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import msgspec

from rgt_tui.model.protocol import Cursor, Wait

TIME = "@time"
"""Series of a run that is no metric: when each point was logged, client clock; NaN where it has no time of its own."""
EPOCH = "@epoch"
"""The same: the epoch of each point."""
PLACES = (TIME, EPOCH)
MOST_LEVELS = 64
"""A run stands at most so many names below its training."""


class Series(Sequence[tuple[int, float]]):
    """A growing curve seen at one length: ``(step, value)`` pairs in arrival order; a value may be NaN or infinite.

    Snapshots share two append-only lists, so that taking one costs nothing, however long the run is. Only
    `extended` appends, and only from the snapshot that is the newest.
    """

    __slots__ = ("_n", "_xs", "_ys", "dropped")

    def __init__(
        self, xs: list[int] | None = None, ys: list[float] | None = None, *, dropped: int = 0
    ) -> None:
        self.dropped = dropped
        """Points that came before the first of these and are not kept."""
        self._xs: list[int] = [] if xs is None else xs
        self._ys: list[float] = [] if ys is None else ys
        self._n = min(len(self._xs), len(self._ys))

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: int | slice) -> object:  # type: ignore[override]
        if isinstance(index, slice):
            return [(self._xs[i], self._ys[i]) for i in range(*index.indices(self._n))]
        if index < 0:
            index += self._n
        if not 0 <= index < self._n:
            raise IndexError(index)
        return (self._xs[index], self._ys[index])

    def __iter__(self) -> Iterator[tuple[int, float]]:
        for i in range(self._n):
            yield (self._xs[i], self._ys[i])

    def columns(self) -> tuple[list[int], list[float], int]:
        """Return the backing lists and the length that counts: ``xs[:n]``, ``ys[:n]``. Do not mutate them."""
        return self._xs, self._ys, self._n

    def until(self, count: int) -> Series:
        """Return a copy of what is kept of the first `count` points that ever came."""
        size = min(max(0, count - self.dropped), self._n)
        return Series(self._xs[:size], self._ys[:size], dropped=self.dropped)

    def newest(self, count: int) -> Series:
        """Return a copy of the last `count` points."""
        first = max(0, self._n - count)
        return Series(
            self._xs[first : self._n], self._ys[first : self._n], dropped=self.dropped + first
        )

    @property
    def last(self) -> tuple[int, float] | None:
        """The newest point."""
        if self._n:
            return (self._xs[self._n - 1], self._ys[self._n - 1])
        return None

    def extended(self, points: Sequence[tuple[int, float]]) -> Series:
        """Return a snapshot with `points` after this one's (copies first if someone appended to this one before)."""
        xs, ys = self._xs, self._ys
        if len(xs) != self._n:
            xs, ys = xs[: self._n], ys[: self._n]
        for x, y in points:
            xs.append(x)
            ys.append(y)
        return Series(xs, ys, dropped=self.dropped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and list(self) == list(other)

    def __hash__(self) -> int:
        return id(self)


class Resume(msgspec.Struct, frozen=True, gc=False):
    """A run resumed from a checkpoint."""

    step: int
    reason: str
    index: int
    """Position in the loss series of the first point after the resume."""
    reached: int | None = None
    """The step that the run had come to before, where that was seen."""


class RunState(msgspec.Struct, frozen=True, gc=False):
    """One run as its metrics tell it."""

    name: str
    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    best: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    throughput: float | None = None
    last_at: float | None = None
    """Box clock of the newest point."""
    progressed_at: float | None = None
    """Client clock when the step last advanced: the age of progress is measured from here."""
    series: dict[str, Series] = {}
    """Metric name → curve."""
    resumes: tuple[Resume, ...] = ()
    total_steps: int | None = None
    cursors: dict[str, Cursor] = {}
    """Metric source → how far it is in `series`: what a reconnect, or a later rgt, goes on from."""
    alive: bool | None = None
    """Whether the processes of a found run (`BoxState.found`) live; None for a run of a queue, whose cell says it."""
    ended: float | None = None
    """Box clock when a found run was seen to be gone. Its exit status is unknown: this is not "done"."""
    surplus: int = 0
    """Points that came of more curves than are kept of a run."""
    wait: Wait | None = None
    """What its trainer waits for, with unsaved work in memory; None = it does not wait."""
    held_s: float = 0.0
    """Seconds that the present attempt has held for room or for its mirror, in waits that are over."""
    named_by: str = ""
    """Entry of the box's `jobs` or `runs` in the fleet file that the run is of; empty = of none: it was found."""

    @property
    def metrics(self) -> dict[str, Series]:
        """The curves that the run logged, without `PLACES`."""
        return {name: series for name, series in self.series.items() if name not in PLACES}


def training_of(run: str, trainings: Container[str]) -> str | None:
    """Return which of the found trainings a run is of, by name: its own, or the nearest above; None = of none.

    ``NAME/SUB`` are several runs of the training ``NAME``.
    """
    name = run
    for _ in range(MOST_LEVELS):
        if name in trainings:
            return name
        name, below, _sub = name.rpartition("/")
        if not below:
            return None
    return None
