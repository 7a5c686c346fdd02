"""Runs and their curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from rgt_tui.model.protocol import Cursor


class Series(Sequence[tuple[int, float]]):
    """A growing curve seen at one length: ``(step, value)`` pairs in arrival order; a value may be NaN or infinite.

    Snapshots share two append-only lists, so that taking one costs nothing, however long the run is. Only
    `extended` appends, and only from the snapshot that is the newest.
    """

    __slots__ = ("_n", "_xs", "_ys")

    def __init__(self, xs: list[int] | None = None, ys: list[float] | None = None) -> None:
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

    def head(self, count: int) -> tuple[list[int], list[float]]:
        """Return copies of the first `count` steps and values."""
        size = min(count, self._n)
        return self._xs[:size], self._ys[:size]

    @property
    def last(self) -> tuple[int, float] | None:
        """The newest point."""
        return (self._xs[self._n - 1], self._ys[self._n - 1]) if self._n else None

    def extended(self, points: Sequence[tuple[int, float]]) -> Series:
        """Return a snapshot with `points` after this one's (copies first if someone appended to this one before)."""
        xs, ys = self._xs, self._ys
        if len(xs) != self._n:
            xs, ys = xs[: self._n], ys[: self._n]
        for x, y in points:
            xs.append(x)
            ys.append(y)
        return Series(xs, ys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and list(self) == list(other)

    def __hash__(self) -> int:
        return id(self)


class Resume(msgspec.Struct, frozen=True):
    """A run went on from a checkpoint."""

    step: int
    reason: str
    index: int
    """Position in the loss series of the first point after the resume."""


class RunState(msgspec.Struct, frozen=True):
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
