"""What `assess` says of a box."""

from __future__ import annotations

import msgspec

from rgt_tui.model.alert import Alert as Alert
from rgt_tui.model.box import Health


class Assessment(msgspec.Struct, frozen=True):
    """How a box stands."""

    health: Health
    word: str
    """For the row: the worst alert's word, else what the box is doing."""
    why: str
    """One line: why the box is where it is, with the source that says so."""
    alerts: tuple[Alert, ...]
    """Worst first, muted ones at the end."""
    progress_age: float | None
    """Seconds since a running cell's step last advanced, the slowest cell's where there are several."""
    sample_age: float | None
    """Seconds since the newest sample arrived."""
    stale: bool
    """The newest sample is older than three intervals, or there is none."""
    rank: tuple[int, int, int, float, str]
    """Sorts boxes worst first."""
