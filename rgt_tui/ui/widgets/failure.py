"""What the fleet screen says when there is no fleet to show."""

from __future__ import annotations

from rgt_tui.ui.format import clean
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line
from rgt_tui.ui.widgets.wrap import wrapped


def failure_lines(error: BaseException, width: int) -> list[Line]:
    """Return what went wrong and what to do, in words instead of a traceback."""
    text = clean(str(error)).strip() or type(error).__name__
    return [
        EMPTY,
        line(Span(f"{glyphs().trouble} the fleet did not start", Tone.TROUBLE)),
        EMPTY,
        *(row for part in text.splitlines() or [text] for row in wrapped(part, width)),
        line(dim(f"({type(error).__name__})")),
        EMPTY,
        line(dim("check  "), Span("rgt doctor", Tone.ACCENT), " says what is missing and how to get it"),
        line(dim("retry  "), Span("r", Tone.ACCENT), " starts the fleet again"),
        line(dim("quit   "), Span("ctrl+q", Tone.ACCENT)),
    ]
