"""A log that ends within a traceback, before the line of its exception.

The frames say at least what the program was doing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rgt_tui.handbook.line_search import LineHit, find_quoted_rows, writer_of

_FRAME = re.compile(
    r'(?:[^\n]{0,80}?\s)?(File ["][^"\n]{1,400}["], line \d{1,7}(?:, in [^\n]{1,200})?)'
)
_NOTEBOOK_FRAME = re.compile(r"File ([^\s<\"][^\n]{0,400}?):(\d{1,7}), in ([^\n(]{1,200})")
_HEADER = "Traceback (most recent call last"
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}_?[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Warning)\b(?:: "
    r"|$)"
)


def find_torn_traceback(end: str, last: int, exception: str) -> Iterator[LineHit]:
    """Yield a hit for each frame of a traceback that is cut off at the end of a log, the innermost first.

    A stack without the first line of a traceback is one that a program prints of itself, as a
    watchdog does, unless the log was cut within it.

    Args:
        end: End of the log.
        last: Number of its last line.
        exception: Page of the hits.
    """
    most_frames, most_lines = 8, 60
    whole = end.rstrip().split("\n")
    lines = whole[-most_lines:]
    number = last - end[len(end.rstrip()) :].count("\n")
    quoted = find_quoted_rows(lines)
    found = 0
    for above, (line, is_quoted) in enumerate(zip(reversed(lines), reversed(quoted), strict=True)):
        text = writer_of(line)[1]
        frame = _read_frame(text)
        # Below the innermost frame, there is only its source; a complete traceback has its
        # exception.
        is_source = not text.strip() or text[0] in " \t-"
        if _RAISED.match(text) or is_quoted or not (frame or found or is_source):
            return
        if frame:
            if not found and not _is_raised(whole[: len(whole) - above]):
                return
            found += 1
            yield LineHit(id=exception, line=line.strip(), line_no=number - above, frame=frame)
        if found >= most_frames:
            return


def _is_raised(lines: list[str]) -> bool:
    """Return whether the stack that `lines` end with is of an exception."""
    # Lines of other writers between those of a traceback.
    most_others, others = 20, 0
    for line in reversed(lines):
        text = writer_of(line)[1]
        # Only of an exception, a notebook shows its stack.
        if _HEADER in text or _NOTEBOOK_FRAME.match(text):
            return True
        if _RAISED.match(text) or others > most_others:
            return False
        if text.strip() and text[0] not in " \t-" and not _read_frame(text):
            others += 1
    return not others


def _read_frame(text: str) -> str:
    """Return a frame as Python writes it; empty for another line."""
    found = _FRAME.match(text)
    if found is not None:
        return found[1].replace("\\", "/")
    found = _NOTEBOOK_FRAME.match(text)
    if found is not None:
        return f'File "{found[1]}", line {found[2]}, in {found[3]}'
    return ""
