"""A followed log: where one looks in it, which lines are errors, and the pane that draws the lines in sight."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len, chop_cells

from rgt_tui.model.box import LogView
from rgt_tui.profiles.readings import how_many
from rgt_tui.ui.notation import clean, compact_time, thousands
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.panes import framed
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line

_MEASURED = r"\s{0,4}['\"]?\s{0,4}[:=]\s{0,4}[-+]?(?:0\b|\d{0,20}\.\d)"
"""What stands behind a word that names a figure: ``error: 0.031``, ``'FAILED': 0``."""
_SIGNS = (
    r"\bTraceback\b",
    # An exception by its name; ``MeanAbsoluteError`` and its kin are measures.
    r"\b(?!\w{0,99}(?:Mean|Median|Squared?|Absolute|Percentage|Logarithmic|Reconstruction))"
    r"\w{0,200}[A-Za-z\d](?:Error|Exception|Interrupt|OOMKilled)\b(?!" + _MEASURED + ")",
    r"\b(?:Exception|Error) (?:in|while|at|during|from)\b",
    # A level, as loggers print it; glog has a letter and the date.
    r"(?<![\w.=/-])(?<!level )(?:ERROR|CRITICAL|FATAL|FAILURE)(?![\w=/-]|" + _MEASURED + ")",
    r"(?<![\w-])\"?level\"?\s?[=:]\s?\"?(?i:error|fatal|critical)\b",
    r"\[(?i:error|fatal|critical)\]|^\s{0,9}[EF]\d{4} \d\d:\d\d:|\[[EF] \w{1,60}\.(?:cpp|cu|cc|h):\d",
    # What programs say of themselves.
    r"\b(?i:error|fatal):(?!\s{0,4}(?:[-+]?(?:0\b|\d{0,20}\.\d)|(?i:none|null|false)\b))|\b[Ff]atal error\b",
    r"\*\*\* \[.{1,300}\] Error \d|\bpanicked at\b|\bterminate called\b",
    r"\bcommand not found\b|\bsh: \d{1,6}: .{1,300} not found",
    r"\b(?:No such file or directory|Permission denied|Connection (?:refused|reset))\b",
    r"\b(?:Input/output error|Stale file handle)\b",
    r"\b(?:No space left|ENOSPC|Disk quota exceeded|[Cc]annot allocate memory)\b",
    r"\b(?:FAILED|[A-Z]{2,20}_STATUS_\w{1,60}_FAILED)\b(?!" + _MEASURED + ")",
    r"\b[Aa]ssertion\b.{1,300}\bfailed\b",
    # How processes end.
    r"\b(?:Killed|OOM|OOMKilled|oom_kill|Xid|Segmentation fault|[Ss]egfault|Bus error)\b",
    r"\b(?:Illegal instruction|core dumped)\b",
    r"^\s{0,9}(?:Terminated|Aborted)\b|\b[Jj]ob step aborted\b|\bCANCELLED AT\b",
    r"\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE)",
    r"\bSIG(?:TERM|KILL|SEGV|ABRT|BUS|ILL|FPE|XCPU)\b|\bexit(?:code)?\s{0,4}[:=]\s{0,4}-?[1-9]",
    r"\bexit(?:ed|s|ing)?,? (?:with )?(?:an? )?(?:non-?zero )?(?:exit |return |error )?(?:code|status)\W{0,5}[1-9]",
    r"\bexited with -?[1-9]\d{0,2}\b(?!\.\d)|\breturn(?:ed)? ?code\W{0,5}[1-9]",
    # GPUs and what joins them.
    r"\b(?i:out of memory)\b|\b(?:CUDA|HIP|cuda) (?:error|failure)\b|\bCuda failure\b|\bdevice-side assert\b",
    r"NCCL(?! INFO).{0,80}?\b(?i:errors?|timeout|timed out|abort(?:ed|ing)?|failure)\b(?!\s?[:=]\s?\d)",
    r"\bcollective operation timeout\b|\bbefore timing out\b",
    # No numbers any more.
    r"(?<![\w/.-])-?(?:nan|NaN|NAN)(?![\w/-]|\s?[:=]\s?\d)",
    r"(?i:loss|grad(?:ient)?[ _-]?norm|gnorm|perplexity|ppl|logits)['\"\])]{0,3}"
    r"\s{0,4}(?:[:=|]|is|was|became|of|->)?\s{0,4}(?:tensor\()?[-+]?(?i:inf|infinity)(?![\w-])",
)
ERROR = re.compile("|".join(_SIGNS))
"""Lines that `e` stops at."""


class LogCursor:
    """Follows the end of a log until one scrolls up, and then stays where it is, whatever arrives."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.lines: Sequence[str] = ()
        self.dropped = 0
        self.following = True
        self.top = 0
        """Index of the first visible line while not following."""
        self.arrived = 0
        """Lines that came since following ended."""
        self.mark: int | None = None
        """Index of the line that a search or an error jump found."""
        self._searched = ""
        self._pattern: re.Pattern[str] | None = None

    def update(self, view: LogView | None) -> None:
        """Take the newest lines; what is looked at stays in place."""
        if view is None:
            self.__init__()  # type: ignore[misc]
            return
        if view.path != self.path or view.dropped + len(view.lines) < self.dropped + len(self.lines):
            query = self._searched
            self.__init__()  # type: ignore[misc]
            self.search(query)
            self.path = view.path
        elif not self.following:
            gone = view.dropped - self.dropped
            self.arrived += max(0, gone + len(view.lines) - len(self.lines))
            self.top = max(0, self.top - gone)
            if self.mark is not None:
                self.mark = self.mark - gone if self.mark >= gone else None
        self.lines, self.dropped = view.lines, view.dropped

    def first(self, height: int) -> int:
        """Return the index of the first line in a window of `height` lines."""
        last = max(0, len(self.lines) - height)
        return last if self.following else min(self.top, last)

    def scroll(self, count: int, height: int) -> None:
        """Move by `count` lines; upwards ends following, and reaching the end takes it up again."""
        last = max(0, len(self.lines) - height)
        target = self.first(height) + count
        if target >= last:
            if count > 0:
                self.follow()
            return
        self._stop_at(max(0, target))

    def _stop_at(self, top: int) -> None:
        if self.following:
            self.following = False
            self.arrived = 0
        self.top = top

    def follow(self) -> None:
        """Follow the end."""
        self.following, self.arrived, self.mark = True, 0, None

    def search(self, text: str) -> None:
        """Set what `next_match` looks for: plain text, upper and lower case alike."""
        self._searched = text
        self._pattern = re.compile(re.escape(text), re.IGNORECASE) if text else None

    @property
    def searched(self) -> str:
        """What is searched for."""
        return self._searched

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What matches are marked by."""
        return self._pattern

    def matches(self) -> int:
        """Return how many lines match."""
        return sum(1 for text in self.lines if self._pattern is not None and self._pattern.search(text))

    def next_match(self, direction: int, height: int) -> bool:
        """Go to the next line that matches; False when there is none in that direction."""
        return self._pattern is not None and self._jump(self._pattern, direction, height)

    def next_error(self, direction: int, height: int) -> bool:
        """Go to the next line with an error; False when there is none in that direction."""
        return self._jump(ERROR, direction, height)

    def _jump(self, pattern: re.Pattern[str], direction: int, height: int) -> bool:
        start = self.mark
        if start is None:
            start = len(self.lines) if self.following or direction < 0 else self.first(height) - 1
            if self.following and direction > 0:
                start = -1
        places = range(start + 1, len(self.lines)) if direction > 0 else range(start - 1, -1, -1)
        for place in places:
            if pattern.search(self.lines[place]):
                self.mark = place
                self._stop_at(max(0, min(place - height // 3, len(self.lines) - height)))
                return True
        return False


STEP_ASIDE = 16


class LogPane(LineWidget):
    """Shows a log in a frame; follows it until one scrolls up."""

    DEFAULT_CSS = "LogPane { height: 1fr; }"

    can_focus = True
    WHEEL = 3

    def __init__(self, *, id: str, wrap: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.cursor = LogCursor()
        self.wrap = wrap
        self._aside = 0
        self._age: float | None = None
        self._why_empty = "no log yet"
        self._mark_at: int | None = None

    def show(self, view: LogView | None, *, age: float | None, empty: str) -> None:
        """Take the newest lines of a log; `age` is given when they are old."""
        self.cursor.update(view)
        self._age, self._why_empty = age, empty
        self.redraw()

    @property
    def rows(self) -> int:
        """How many lines of text are in sight."""
        return max(1, self.size.height - 2)

    def scroll_lines(self, count: int) -> None:
        """Scroll by lines."""
        self.cursor.scroll(count, self.rows)
        self.redraw()

    def sideways(self, direction: int) -> None:
        """Scroll cut lines."""
        self._aside = max(0, self._aside + direction * STEP_ASIDE)
        self.redraw()

    def selected_line(self) -> int | None:
        """The line that a search or a jump to an error has found."""
        return None if self._mark_at is None else 1 + self._mark_at

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the frame and the lines in sight."""
        self._mark_at = None
        body = self._body(max(1, width - 4), max(1, height - 2))
        return framed(
            body,
            width,
            height,
            title=self._title(),
            hint=self._hint(),
            foot=self._foot(),
            active=self.has_focus,
        )

    def _title(self) -> Line:
        path = self.cursor.path
        return line(clean(path).rpartition("/")[2]) if path else line(dim("log"))

    def _hint(self) -> Line:
        cursor = self.cursor
        if not cursor.lines:
            return EMPTY
        if not cursor.following:
            new = f"+{how_many(cursor.arrived, 'line')}  " if cursor.arrived else ""
            return line(Span(f"{new}F follows", Tone.ACCENT))
        if self._age is not None:
            return line(dim(f"last line {compact_time(self._age)} ago"))
        return line(dim("following"))

    def _foot(self) -> Line:
        cursor = self.cursor
        parts = []
        if cursor.searched:
            count = cursor.matches()
            parts.append(f"{clean(cursor.searched)}: {how_many(count, 'line')}")
        if not cursor.following:
            first = cursor.first(self.rows)
            parts.append(f"{thousands(first + 1)} of {thousands(len(cursor.lines))}")
        if cursor.dropped:
            parts.append(f"{how_many(cursor.dropped, 'earlier line')} on the box")
        return line(dim("   ".join(parts))) if parts else EMPTY

    def _body(self, width: int, height: int) -> list[Line]:
        cursor = self.cursor
        if not cursor.lines:
            return [line(dim(self._why_empty))]
        if not self.wrap:
            first = cursor.first(height)
            if cursor.mark is not None and first <= cursor.mark < first + height:
                self._mark_at = cursor.mark - first
            return [
                self._line(place, width) for place in range(first, min(first + height, len(cursor.lines)))
            ]
        if not cursor.following:
            out: list[Line] = []
            for place in range(cursor.first(height), len(cursor.lines)):
                if place == cursor.mark:
                    self._mark_at = len(out)
                out += self._wrapped(place, width)
                if len(out) >= height:
                    break
            return out[:height]
        rows: list[Line] = []
        for place in range(len(cursor.lines) - 1, -1, -1):
            rows = self._wrapped(place, width) + rows
            if len(rows) >= height:
                break
        return rows[-height:]

    def _tone(self, place: int, text: str) -> Tone:
        if ERROR.search(text):
            return Tone.TROUBLE
        return Tone.STRONG if place == self.cursor.mark else Tone.TEXT

    def _line(self, place: int, width: int) -> Line:
        text = clean(self.cursor.lines[place])
        return self._marked(text[self._aside :], self._tone(place, text))

    def _wrapped(self, place: int, width: int) -> list[Line]:
        text = clean(self.cursor.lines[place])
        tone = self._tone(place, text)
        parts = chop_cells(text, width) if cell_len(text) > width else [text]
        return [self._marked(part, tone) for part in parts or [""]]

    def _marked(self, text: str, tone: Tone) -> Line:
        pattern = self.cursor.pattern
        if pattern is None:
            return (Span(text, tone),)
        out: list[Span] = []
        end = 0
        for match in pattern.finditer(text):
            out += [Span(text[end : match.start()], tone), Span(match.group(), Tone.MATCH)]
            end = match.end()
        out.append(Span(text[end:], tone))
        return tuple(out)
