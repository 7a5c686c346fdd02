"""A followed log: only the lines in sight are looked at, wrapped, marked and drawn."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

from rgt_tui.model.box import LogView
from rgt_tui.ui.format import clean, compact_time, thousands
from rgt_tui.ui.widgets.frame import framed
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.log_model import ERROR, LogCursor
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line

STEP_ASIDE = 16


class LogPane(LineWidget):
    """Shows a log in a frame; follows it until one scrolls up."""

    DEFAULT_CSS = "LogPane { height: 1fr; }"

    can_focus = True

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

    def on_mouse_scroll_down(self) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(3)

    def on_mouse_scroll_up(self) -> None:
        """Scroll with the wheel."""
        self.scroll_lines(-3)

    def on_focus(self) -> None:
        """Show the focus in the border."""
        self.redraw()

    def on_blur(self) -> None:
        """Show the focus in the border."""
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
            new = f"+{thousands(cursor.arrived)} lines  " if cursor.arrived else ""
            return line(Span(f"{new}F follows", Tone.ACCENT))
        if self._age is not None:
            return line(dim(f"last line {compact_time(self._age)} ago"))
        return line(dim("following"))

    def _foot(self) -> Line:
        cursor = self.cursor
        parts = []
        if cursor.searched:
            count = cursor.matches()
            parts.append(f"{clean(cursor.searched)}: {count} {'line' if count == 1 else 'lines'}")
        if not cursor.following:
            first = cursor.first(self.rows)
            parts.append(f"{thousands(first + 1)} of {thousands(len(cursor.lines))}")
        if cursor.dropped:
            parts.append(f"{thousands(cursor.dropped)} earlier lines are on the box")
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
