"""An alarm that does not flicker: it needs to last before it rises, and a margin before it clears."""

from __future__ import annotations

import msgspec


class Hysteresis(msgspec.Struct, frozen=True):
    """A pure state machine: `step` returns the next state, this one stays as it is.

    A missing value says nothing: it neither raises nor clears, and it does not restart the wait.
    """

    raise_above: float
    """Raised when the value has been at or above this for `for_s`."""
    clear_below: float
    """Cleared as soon as the value is below this; not above `raise_above`."""
    for_s: float = 0.0
    """Seconds."""
    raised: bool = False
    pending_since: float | None = None
    """When the value went above `raise_above`, while the alarm waits to rise."""
    raised_at: float | None = None

    def __post_init__(self) -> None:
        if self.clear_below > self.raise_above:
            raise ValueError(f"clear_below {self.clear_below:g} is above raise_above {self.raise_above:g}")

    def step(self, value: float | None, now: float) -> Hysteresis:
        """Return the state after the reading `value` at `now` (seconds of any one clock)."""
        if value is None or value != value:
            return self
        if self.raised:
            if value >= self.clear_below:
                return self
            return msgspec.structs.replace(self, raised=False, pending_since=None, raised_at=None)
        if value < self.raise_above:
            if self.pending_since is None:
                return self
            return msgspec.structs.replace(self, pending_since=None)
        since = now if self.pending_since is None else self.pending_since
        if now - since >= self.for_s:
            return msgspec.structs.replace(self, raised=True, pending_since=None, raised_at=now)
        return self if since == self.pending_since else msgspec.structs.replace(self, pending_since=since)
