"""New lines of a log into what is kept of it."""

from __future__ import annotations

from rgt_tui.model.box import LogView
from rgt_tui.model.plain import clean
from rgt_tui.model.protocol import LogLines

LOG_LINES = 2000
LONGEST = 20_000
"""Characters of a line that are kept; the agent cuts a line after fewer, and says so in it."""


class OpenLogView(LogView, frozen=True):
    """A log whose last line is not finished: the next frame takes its place."""


def extended(old: LogView | None, frame: LogLines, now: float, most: int = LOG_LINES) -> LogView:
    """Return the log after `frame`.

    Args:
        old: The log so far; None when this is its first frame.
        frame: New lines, the unfinished one included.
        now: Client clock.
        most: How many lines are kept; those before them count as dropped.
    """
    kept = old if not frame.reset else None
    before = kept.lines if kept is not None else ()
    if isinstance(kept, OpenLogView):
        before = before[:-1]
    dropped = (kept.dropped if kept is not None else 0) + frame.skipped
    lines = before + tuple(clean(line[:LONGEST]) for line in frame.lines)
    if frame.partial is not None:
        lines += (clean(frame.partial[:LONGEST]),)
    if len(lines) > most:
        dropped += len(lines) - most
        lines = lines[-most:]
    kind = LogView if frame.partial is None else OpenLogView
    return kind(path=frame.path, lines=lines, dropped=dropped, at=now)
