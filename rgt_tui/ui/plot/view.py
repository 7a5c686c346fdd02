"""The window of steps that is on screen, as a value: zoom, pan and reset return a new one."""

from __future__ import annotations

from dataclasses import dataclass

MIN_SPAN = 8.0
"""The closest zoom, in steps."""
FINEST = 1e-12
"""The same, as a share of the steps themselves: some count nanoseconds since 1970, and a float has 16 digits."""


@dataclass(frozen=True)
class View:
    """A window on the x axis. The default shows everything; a window at the right edge follows new points."""

    span: float | None = None
    """Width in steps; None = all there is."""
    right: float | None = None
    """Right edge in steps; None = the newest point, wherever that is by then."""

    @property
    def is_all(self) -> bool:
        """Whether everything is shown."""
        return self.span is None

    def window(self, extent: tuple[float, float]) -> tuple[float, float]:
        """Return the first and the last step on screen, given those of the data. Never of zero width."""
        first, last = extent
        finest = FINEST * max(abs(first), abs(last))
        if not last - first > finest:
            last = first + max(1.0, finest)
        if self.span is None or self.span >= last - first:
            return first, last
        span = max(self.span, finest)
        right = last if self.right is None else min(max(self.right, first + span), last)
        return right - span, right

    def zoom(self, factor: float, about: float | None, extent: tuple[float, float]) -> View:
        """Scale the window by `factor` (below 1 = closer); the step `about` (or the middle) stays."""
        x0, x1 = self.window(extent)
        full = self.__class__().window(extent)
        span = max((x1 - x0) * factor, min(MIN_SPAN, full[1] - full[0]))
        if span >= full[1] - full[0]:
            return View()
        anchor = (x0 + x1) / 2 if about is None else min(max(about, x0), x1)
        share = (x1 - anchor) / (x1 - x0)
        return self._at(anchor + share * span, span, full)

    def pan(self, share: float, extent: tuple[float, float]) -> View:
        """Move by `share` of the window's width, to the right if positive."""
        if self.span is None:
            return self
        x0, x1 = self.window(extent)
        return self._at(x1 + share * (x1 - x0), x1 - x0, self.__class__().window(extent))

    @staticmethod
    def _at(right: float, span: float, full: tuple[float, float]) -> View:
        if right >= full[1] - span * 1e-9:
            return View(span, None)
        return View(span, max(right, full[0] + span))
