"""Frames and panes: a title and a hint in the border, and sections that share one frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from textual.widget import Widget

from rgt_tui.language import translate
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, clip_line, make_line, width_of


class PaneSection(NamedTuple):
    """One titled part of a frame."""

    title: Line
    body: Sequence[Line]
    hint: Line = EMPTY


def draw_border(
    width: int,
    left: str,
    right: str,
    *,
    title: Line = EMPTY,
    hint: Line = EMPTY,
    tone: Tone = Tone.DIM,
    active: bool = False,
) -> Line:
    """Return a horizontal border with a title near its left end and a hint near its right end.

    In a focused frame the cursor is drawn before the title, because colours are not always visible.
    """
    flat = current_glyphs().frame[1]
    inner = max(0, width - 2)
    if inner < 8:
        return make_line(Span(left + flat * inner + right, tone))
    badged = inner - width_of(hint) - 6
    if width_of(title) > badged >= 4 and any(span.tone is Tone.BADGE for span in hint):
        title = clip_line(title, badged)  # keep the badge: it qualifies what is below
    if width_of(title) > inner - 4:
        title, hint = clip_line(title, max(0, inner - 4)), EMPTY
    mark = Span(current_glyphs().cursor, Tone.ACCENT) if active else " "
    if title:
        start = make_line(Span(flat, tone), mark, *title, " ")
    else:
        start = EMPTY
    if hint:
        end = make_line(" ", *hint, " ", Span(flat, tone))
    else:
        end = EMPTY
    room = inner - width_of(start) - width_of(end)
    # Without room for both, the title stays.
    if room < 0:
        end, room = EMPTY, inner - width_of(start)
    return make_line(
        Span(left, tone), start, Span(flat * max(0, room), tone), end, Span(right, tone)
    )


def draw_frame(
    body: Sequence[Line],
    width: int,
    height: int,
    *,
    title: Line = EMPTY,
    hint: Line = EMPTY,
    foot: Line = EMPTY,
    active: bool = False,
) -> list[Line]:
    """Return `body` in a frame of exactly `width` times `height` cells.

    What does not fit is cut.
    """
    return draw_sections([PaneSection(title, body, hint)], width, height, foot=foot, active=active)


def draw_sections(
    parts: Sequence[PaneSection],
    width: int,
    height: int,
    *,
    foot: Line = EMPTY,
    active: bool = False,
    top: int = 0,
) -> list[Line]:
    """Return several sections in one frame; later ones are cut if the height is too small.

    `top` lines below the first title are scrolled away. The lower border counts the hidden lines.
    """
    if width < 4 or height < 2:
        return [clip_line(EMPTY, max(0, width))] * max(0, height)
    tone = Tone.ACCENT if active else Tone.DIM
    top_left, _, top_right, side, bottom_right, bottom_left, tee_left, tee_right = tuple(
        current_glyphs().frame
    )
    rows: list[Line] = []
    # The first title is part of the border.
    total = -1
    titles: set[int] = set()
    for index, part in enumerate(parts):
        total += 1 + len(part.body)
        if index:
            titles.add(len(rows))
            rows.append(
                draw_border(width, tee_left, tee_right, title=part.title, hint=part.hint, tone=tone)
            )
        # Lines that cannot be in sight are not drawn.
        rows.extend(_wall_line(row, width, side, tone) for row in part.body[: top + height])
    if parts:
        first = parts[0]
    else:
        first = PaneSection(EMPTY, ())
    out = [
        draw_border(
            width, top_left, top_right, title=first.title, hint=first.hint, tone=tone, active=active
        )
    ]
    shown = rows[top : top + height - 2]
    if shown and top + len(shown) - 1 in titles and top + len(shown) < len(rows):
        shown.pop()  # a title without its section is useless
    out += shown
    while len(out) < height - 1:
        out.append(_wall_line(EMPTY, width, side, tone))
    more = out_of_sight(top, total - top - len(shown))
    out.append(draw_border(width, bottom_left, bottom_right, title=more, hint=foot, tone=tone))
    return out


# Most lines are the same in the next drawing.
@lru_cache(maxsize=1024)
def _wall_line(row: Line, width: int, side: str, tone: Tone) -> Line:
    return make_line(Span(f"{side} ", tone), clip_line(row, width - 4), Span(f" {side}", tone))


def out_of_sight(above: int, below: int) -> Line:
    """Return the count of lines out of sight; empty if none are."""
    if below > 0:
        words = [f"{current_glyphs().more} {translate('{below} more', below=below)}"]
    else:
        words = []
    words += [translate("{above} above", above=above)] if above > 0 else []
    if words:
        return make_line(Span("  ".join(words), Tone.STRONG))
    return EMPTY


def height_of(parts: Sequence[PaneSection]) -> int:
    """Return the height of a frame that shows all sections; 0 without sections."""
    if parts:
        return 1 + sum(1 + len(part.body) for part in parts)
    return 0


MakeSections = Callable[[int], Sequence[PaneSection]]
"""Returns the sections of a pane for its inner width."""


class Pane(LineWidget):
    """One frame with one or more titled sections."""

    DEFAULT_CSS = "Pane { height: 1fr; }"
    WHEEL = 2

    def __init__(self, *, id: str, focusable: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.can_focus = focusable
        self._make_sections: MakeSections = lambda width: ()
        self._foot: Line = EMPTY
        self._top = 0
        self._framed: tuple[tuple[object, ...], Sequence[PaneSection], Sequence[Line]] = (
            (),
            (),
            (),
        )
        """Cache of the last frame: size and state, sections, and resulting lines."""

    def show_sections(self, make: MakeSections, foot: Line = EMPTY) -> None:
        """Set the function that makes the sections, and draw what changed."""
        self._make_sections, self._foot = make, foot
        self.redraw()

    def wanted_height(self, width: int) -> int:
        """Return the height that shows everything."""
        return height_of(self._make_sections(max(8, width - 4)))

    def make_lines(self, width: int, height: int) -> Sequence[Line]:
        """Draw the frame, from the cache if nothing changed."""
        parts = self._make_sections(width - 4)
        if not parts:
            return ()
        # The pane may be taller than before, or its text shorter.
        self._top = max(0, min(self._top, height_of(parts) - height))
        asked = (width, height, self._foot, self.has_focus, self._top, current_glyphs())
        # The same sections as before have the same lines, which are then not compared again.
        if parts is not self._framed[1] or asked != self._framed[0]:
            lines = draw_sections(
                parts, width, height, foot=self._foot, active=self.has_focus, top=self._top
            )
            self._framed = asked, parts, tuple(lines)
        return self._framed[2]

    def scroll_lines(self, count: int) -> None:
        """Scroll the pane."""
        self._top = max(0, self._top + count)
        self.redraw()


def set_width(widget: Widget, width: int) -> None:
    """Set a width in cells if it differs; 0 hides the widget."""
    if widget.display != bool(width):
        widget.display = bool(width)
    if width and (widget.styles.width is None or widget.styles.width.value != width):
        widget.styles.width = width


def set_height(widget: Widget, height: int) -> None:
    """Set a height in lines if it differs."""
    if widget.styles.height is None or widget.styles.height.value != height:
        widget.styles.height = height
