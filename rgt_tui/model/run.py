"""Runs and their curves."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from rgt_tui.model.plain import FrozenStruct
from rgt_tui.model.protocol import FileCursor, TrainingPause

TIME = "@time"
"""Series of a run that is not a metric: client clock when each point was logged; NaN = it has no
time of its own."""
EPOCH = "@epoch"
"""Another such series: the epoch of each point."""
PLACES = (TIME, EPOCH)


class Series(Sequence[tuple[int, float]]):
    """A snapshot of a growing curve: ``(step, value)`` pairs in arrival order.

    Values may be NaN or infinite. Snapshots share two append-only lists, so taking one costs
    nothing, however long the run is. Only `with_points` appends, and only to the newest snapshot.
    """

    __slots__ = ("_n", "_xs", "_ys", "dropped")

    def __init__(
        self, xs: list[int] | None = None, ys: list[float] | None = None, *, dropped: int = 0
    ) -> None:
        self.dropped = dropped
        """Earlier points that are not kept."""
        self._xs: list[int] = [] if xs is None else xs
        self._ys: list[float] = [] if ys is None else ys
        # The lists grow under older snapshots: each has its own length.
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

    def backing_columns(self) -> tuple[list[int], list[float], int]:
        """Return the backing lists and the valid length: ``xs[:n]``, ``ys[:n]``.

        Do not mutate them.
        """
        return self._xs, self._ys, self._n

    def first_points(self, count: int) -> Series:
        """Return a copy of the first `count` points ever received, without dropped ones."""
        size = min(max(0, count - self.dropped), self._n)
        return Series(self._xs[:size], self._ys[:size], dropped=self.dropped)

    def last_points(self, count: int) -> Series:
        """Return a copy of the last `count` points."""
        first = max(0, self._n - count)
        return Series(
            self._xs[first : self._n], self._ys[first : self._n], dropped=self.dropped + first
        )

    @property
    def last_point(self) -> tuple[int, float] | None:
        """The newest point, or None."""
        if self._n:
            return (self._xs[self._n - 1], self._ys[self._n - 1])
        return None

    def with_points(self, points: Sequence[tuple[int, float]]) -> Series:
        """Return a snapshot with `points` appended.

        Copies the lists first if this is not the newest snapshot.
        """
        xs, ys = self._xs, self._ys
        # A newer snapshot exists: its points must not appear in this one.
        if len(xs) != self._n:
            xs, ys = xs[: self._n], ys[: self._n]
        for x, y in points:
            xs.append(x)
            ys.append(y)
        return Series(xs, ys, dropped=self.dropped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and list(self) == list(other)

    def __hash__(self) -> int:
        # Hashable by identity: content would have to be compared in full.
        return id(self)


class RunResume(FrozenStruct, gc=False):
    """A run resumed from a checkpoint."""

    step: int
    reason: str
    index: int
    """Position in the loss series of the first point after the resume."""
    reached: int | None = None
    """The last step before the resume, if known."""


class RunState(FrozenStruct, gc=False):
    """One run according to its metrics."""

    name: str
    step: int | None = None
    epoch: float | None = None
    loss: float | None = None
    best: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    throughput: float | None = None
    last_at: float | None = None
    """Box clock of the newest point, or when its file was written if points have no times."""
    progressed_at: float | None = None
    """Client clock when the step last advanced: the age of progress is measured from here."""
    series: dict[str, Series] = {}
    """Metric name → curve."""
    resumes: tuple[RunResume, ...] = ()
    total_steps: int | None = None
    cursors: dict[str, FileCursor] = {}
    """Metric source → cursor up to which `series` is complete: a reconnect, or a later rgt,
    continues there."""
    alive: bool | None = None
    """Whether the processes of a found run (`BoxState.found`) are alive; None for a run of a queue,
    where its cell has that state."""
    ended: float | None = None
    """Box clock when a found run was seen to be gone. Its exit status is unknown: this does not
    mean "done"."""
    surplus: int = 0
    """Points received of curves above a run's maximum number."""
    wait: TrainingPause | None = None
    """Its trainer's wait with unsaved work in memory; None = not waiting."""
    held_s: float = 0.0
    """Seconds that the present attempt spent in finished waits for space or for its mirror."""
    named_by: str = ""
    """Entry of the box's `jobs` or `runs` in the fleet file that the run belongs to; empty = found
    by its processes."""

    unread_at: float | None = None
    """Client clock when its log last grew by lines of progress without a step that is understood:
    until then, the step is unknown. None = every such line is understood."""
    # Frameworks log epochs or samples where others log steps.
    axis: str = "step"
    """What `step` counts: ``step``, ``epoch``, ``samples`` or ``row``."""

    @property
    def counts_rows(self) -> bool:
        """Whether `step` is only the number of logged rows: a silent program may go on."""
        return self.axis == "row"

    @property
    def counts_epochs(self) -> bool:
        """Whether each point is an epoch, not a step or a fraction of an epoch."""
        return self.axis == "epoch" and self.epoch is not None and self.epoch == self.step

    @property
    def position(self) -> str:
        """How far it is, with its unit: ``step 1,200``, ``epoch 3.5``, ``row 12``."""
        if self.axis == "epoch" and self.epoch is not None:
            return f"epoch {self.epoch:g}"
        if self.axis == "samples":
            return f"{self.step or 0:,} samples"
        if self.counts_rows:
            return f"row {self.step or 0:,}"
        return f"step {self.step or 0:,}"

    @property
    def metrics(self) -> dict[str, Series]:
        """The curves that the run logged, without `PLACES`."""
        return {name: series for name, series in self.series.items() if name not in PLACES}


def training_of(run: str, trainings: Container[str]) -> str | None:
    """Return the name of the found training that a run belongs to: its own or the nearest prefix.

    ``NAME/SUB`` are several runs of the training ``NAME``. None = it belongs to none.
    """
    name = run
    # Maximum number of name levels of a run below its training.
    most_levels = 64
    for _ in range(most_levels):
        if name in trainings:
            return name
        name, below, _sub = name.rpartition("/")
        if not below:
            return None
    return None
