"""The curves of one box: keeps a trace per run, takes new snapshots in, draws frames."""

from __future__ import annotations

from collections.abc import Sequence

from rgt_tui.model.run import RunState
from rgt_tui.ui.plot.frame import Curve, Frame, compose, extent
from rgt_tui.ui.plot.settings import Settings, tag
from rgt_tui.ui.plot.trace import Gap, Trace

MOST_NOTED = 4
"""With more runs than this on screen, gaps are explained in the legend alone."""


class Board:
    """Holds what drawing needs between two frames. A run keeps its number, and so its colour."""

    def __init__(self) -> None:
        self._runs: tuple[RunState, ...] = ()
        self._numbers: dict[str, int] = {}
        self._traces: dict[str, Trace] = {}
        self._drawn_as: tuple[str, float] = ("", 0.0)
        self.settings = Settings()
        self.selected: str | None = None

    def update(self, runs: Sequence[RunState], settings: Settings, selected: str | None) -> bool:
        """Take the newest runs and choices; return whether a frame would look different."""
        changed = settings != self.settings or selected != self.selected
        changed = changed or [r.name for r in runs] != [r.name for r in self._runs]
        changed = changed or [r.resumes for r in runs] != [r.resumes for r in self._runs]
        self._runs, self.settings, self.selected = tuple(runs), settings, selected
        self._numbers = {run.name: number for number, run in reversed(list(enumerate(runs)))}
        kind = (settings.metric, settings.smooth)
        if kind != self._drawn_as:
            self._traces.clear()
            self._drawn_as = kind
        for run in runs:
            series = run.series.get(settings.metric)
            if series is None or not len(series):
                changed = self._traces.pop(run.name, None) is not None or changed
                continue
            trace = self._traces.setdefault(run.name, Trace(settings.smooth))
            changed = trace.feed(series) or changed
        for gone in self._traces.keys() - {run.name for run in runs}:
            del self._traces[gone]
        return changed

    @property
    def runs(self) -> tuple[RunState, ...]:
        """All runs of the box."""
        return self._runs

    def trace(self, run: str) -> Trace | None:
        """Return the prepared curve of a run in the metric that is shown."""
        return self._traces.get(run)

    def number(self, run: str) -> int:
        """Return the number of a run, from 0: its place among the box's runs."""
        return self._numbers.get(run, 0)

    def gaps(self, run: str) -> list[Gap]:
        """Return the gaps of a run."""
        trace = self._traces.get(run)
        return list(trace.gaps) if trace is not None else []

    @property
    def shown(self) -> list[str]:
        """Runs that are drawn."""
        return [r.name for r in self._runs if r.name in self._traces and r.name not in self.settings.hidden]

    @property
    def extent(self) -> tuple[float, float]:
        """First and last step of what is drawn."""
        return extent([self._traces[name] for name in self.shown])

    def value_at(self, run: str, step: float) -> float | None:
        """Return what a run had at a step; None where it was not there."""
        trace = self._traces.get(run)
        return None if trace is None else trace.at(step)

    def frame(self, size: tuple[int, int], *, ascii_only: bool = False) -> Frame | None:
        """Draw; None where there is nothing to draw."""
        shown = self.shown
        if not shown:
            return None
        shown.sort(key=lambda name: name == self.selected)
        resumes = {run.name: tuple(float(resume.step) for resume in run.resumes) for run in self._runs}
        curves = [
            Curve(
                self._traces[name],
                self.number(name),
                resumes[name],
                note_gaps=len(shown) <= MOST_NOTED,
                tag=tag(self.number(name)) if len(shown) > 1 else "",
            )
            for name in shown
        ]
        return compose(
            curves,
            size,
            view=self.settings.view,
            log=self.settings.log,
            cross=self.settings.cross,
            ascii_only=ascii_only,
        )
