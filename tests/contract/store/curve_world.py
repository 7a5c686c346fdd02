"""Runs as a fleet has them: they grow, are corrected, resumed and replaced, one snapshot after the other."""

from __future__ import annotations

import random

from rgt_tui.fleet import fold_points, rewind_run
from rgt_tui.model import RunState, ScalarPoint, Scalars


class Stream:
    """What a box tells of one run, frame by frame, and what it would tell from the start."""

    def __init__(self, name: str, source: str, rng: random.Random) -> None:
        self.run = RunState(name=name)
        self._rng = rng
        self._source = source
        self._inode = 1
        self._step = 0
        self.file: list[ScalarPoint] = []

    def grow(self, count: int, *, resume: bool = False) -> None:
        """Log more points, as one frame."""
        start = len(self.file)
        resumes: tuple[tuple[int, str], ...] = ()
        if resume and self._step > 2:
            self._step -= self._rng.randrange(1, self._step)
            resumes = ((self._step, "SIGTERM"),)
        for _ in range(count):
            self._step += 1
            value: float | str = "nan" if self._rng.random() < 0.01 else self._rng.random()
            self.file.append(
                ScalarPoint(
                    step=self._step, at=1000.0 + self._step, epoch=None, values={"loss": value}
                )
            )
        self._tell(start, resumes)

    def correct(self, back: int) -> None:
        """Tell the last points anew, as a curve that was found does."""
        start = max(0, len(self.file) - back)
        for index in range(start, len(self.file)):
            point = self.file[index]
            self.file[index] = ScalarPoint(
                step=point.step, at=point.at, epoch=None, values={"loss": self._rng.random()}
            )
        self._tell(start)

    def replace(self) -> None:
        """Begin the file anew."""
        self._inode += 1
        self._step = 0
        self.file = []
        self.grow(3)

    def catch_up(self, run: RunState) -> None:
        """Tell a client that comes back with `run` what it has not got, as the agent would."""
        self.run = run
        cursor = run.cursors.get(self._source)
        fits = (
            cursor is not None and cursor.inode == self._inode and cursor.offset <= len(self.file)
        )
        start = cursor.offset if cursor is not None and fits else 0
        if start < len(self.file):
            self._tell(start)

    def _tell(self, start: int, resumes: tuple[tuple[int, str], ...] = ()) -> None:
        frame = Scalars(
            run=self.run.name,
            source=self._source,
            inode=self._inode,
            start=start,
            end=len(self.file),
            points=tuple(self.file[start:]),
            resumes=resumes,
        )
        run = rewind_run(self.run, frame, self.run.cursors.get(self._source))
        self.run = fold_points(run, frame, 5000.0, 0.0)
