"""Mouse features: the back button, clickable hints in borders, selecting text by dragging."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.actions import SkipAction
from textual.screen import Screen
from textual.strip import Strip

from rgt_tui.model import how_many
from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.notation import current_glyphs, make_displayable
from rgt_tui.ui.widgets.spans import Line, text_of

if TYPE_CHECKING:
    from textual.geometry import Offset
    from textual.message import Message
    from textual.selection import Selection
    from textual.widget import Widget

    from rgt_tui.ui.commands import Command

BACK_KEY = "mouse_back"
"""Key name of the back button in the bindings of a screen."""
_EXTRA = re.compile(r"\x1b\[<(\d+);-?\d+(?:\.\d+)?;-?\d+(?:\.\d+)?([Mm])")
# Bits of an SGR mouse code: shift 4, meta 8, control 16; 32 = motion; 128 = buttons 8 to 11.
_MODIFIERS, _MOVES, _BEYOND, _BACK = 0b11100, 32, 128, 128


def extra_button(code: str) -> tuple[bool, bool]:
    """Return whether a mouse code is of an extra button, and whether it is *back, pressed*.

    In xterm's protocol button 8, which goes back, has code 128; modifier keys are bits of the code.
    """
    found = _EXTRA.match(code)
    number = 0
    # `int` raises for thousands of digits; a real code has at most three.
    if found is not None and len(found[1]) < 6:
        number = int(found[1])
    beyond = bool(number & _BEYOND)
    pressed = found is not None and found[2] == "M" and not number & _MOVES
    return beyond, beyond and pressed and number & ~_MODIFIERS == _BACK


def hear_back_button() -> None:
    """Turn the back button into a key; Textual would treat it as a left click."""
    with contextlib.suppress(ImportError, AttributeError):
        from textual._xterm_parser import XTermParser

        inner = XTermParser.parse_mouse_code
        # Already patched by another app of this process: wrapping it again would nest for each app.
        if inner.__module__ == __name__:
            return

        def parse_mouse_code(self: XTermParser, code: str) -> Message | None:
            beyond, back = extra_button(code)
            if not beyond:
                return inner(self, code)
            if back:
                return events.Key(BACK_KEY, None)
            return None

        setattr(XTermParser, "parse_mouse_code", parse_mouse_code)  # noqa: B010  (a method of another's class)


def find_hinted_command(row: Line, column: int, commands: Sequence[Command]) -> Command | None:
    """Return the command whose key is in a border's hint at or left of a column.

    A box's output may look like a border, but only a real one has its corners as separate spans.
    Dangerous commands cannot be clicked on a border.
    """
    text, frame = text_of(row), current_glyphs().frame
    if (
        not row
        or row[0].text not in (frame[0], frame[5], frame[6])
        or row[-1].text not in (frame[2], frame[4], frame[7])
    ):
        return None
    flat = frame[1]
    # A border is `╭─ title ─── hint ─╮`: the hint follows the last flat piece.
    start = text.rfind(flat, 0, len(text.rstrip(frame + " "))) + 1
    hint = text[start:].rstrip(frame + " ")
    found: Command | None = None
    for word in re.finditer(r"\S+", hint):
        if cell_len(text[: start + word.start()]) > column:
            break
        key = word[0].rstrip(":")
        found = next(
            (
                one
                for one in commands
                if make_displayable(one.shown_key) == key and not one.dangerous
            ),
            found,
        )
    first = len(text[:start]) + (len(hint) - len(hint.lstrip()))
    if cell_len(text[:first]) <= column < cell_len(text[:start] + hint):
        return found
    return None


class MouseSelection(Screen[None]):
    """A screen on which the mouse selects text within the pane where a drag begins.

    The result is shown with `hint`.
    """

    def _forward_event(self, event: events.Event) -> None:
        """Handle a mouse event.

        A press ends an old drag, whose release may have been outside the terminal.
        """
        if isinstance(event, events.MouseDown):
            self._selecting = False
        super()._forward_event(event)

    def get_widget_and_offset_at(self, x: int, y: int) -> tuple[Widget | None, Offset | None]:
        """Return what is under the pointer.

        A drag is clipped to its pane, because panes are side by side.
        """
        if self._selecting and self._select_state:
            began = self._select_state.start.content_widget
        else:
            began = None
        if began is not None and began.region.area:
            left, top, width, height = began.region
            x, y = min(max(x, left), left + width - 1), min(max(y, top), top + height - 1)
        return super().get_widget_and_offset_at(x, y)

    def _key_escape(self) -> None:
        """Do nothing: the command of the escape key clears the selection."""

    def end_selection(self) -> bool:
        """Clear the selection; return whether there was one."""
        there = bool(self.selections)
        self.clear_selection()
        return there

    def find_selection(self) -> ClipboardText | None:
        """Return the text selected with the mouse; None = nothing."""
        text = self.get_selected_text()
        if text:
            return ClipboardText(what=how_many(len(text.splitlines()), "line"), text=text)
        return None

    def copy_marked(self, say: Callable[[str], object]) -> bool:
        """Copy the text selected with the mouse and clear the selection.

        Return whether there was any.
        """
        copied = self.find_selection()
        if copied is not None:
            self.clear_selection()
            say(copy_to_clipboard(self.app, copied))
        return copied is not None

    def action_copy_text(self) -> None:
        """Copy the selection with the usual copy keys, as ``y`` does.

        Raises:
            SkipAction: Nothing is selected.
        """
        if not self.copy_marked(getattr(self, "hint", lambda said: None)):
            raise SkipAction


def text_bounds(row: Line) -> tuple[int, int]:
    """Return the first and end character of a line's text, without the walls of its pane."""
    side = current_glyphs().frame[3]
    text = text_of(row)
    walled = len(row) > 1 and row[-1].text == f" {side}" and len(text) > 3 and text[1] == " "
    # The cursor of a list replaces the left wall.
    walled = walled and text[0] in (side, current_glyphs().cursor)
    if walled:
        return (2, len(text) - 2)
    return (0, len(text))


def marked_text(rows: Sequence[Line], selection: Selection) -> str:
    """Return the selected text of drawn lines, without frames and trailing blanks."""
    frame = re.compile(f"[{re.escape(current_glyphs().frame)}]+")
    corners = set(current_glyphs().frame) - {current_glyphs().frame[3]}
    out: list[str] = []
    for y, row in enumerate(rows):
        span = selection.get_span(y)
        if span is None:
            continue
        (first, last), text = text_bounds(row), text_of(row)
        part = text[max(first, span[0]) : last if span[1] < 0 else max(first, min(last, span[1]))]
        # A border within the selection: its title is kept, the line around it is not.
        if row and row[0].text[:1] in corners and row[-1].text[-1:] in corners:
            part = frame.sub("  ", part).strip(" " + current_glyphs().cursor)
            part = re.sub(" {3,}", "  ", part)
        out.append(part.rstrip())
    return "\n".join(out).strip("\n")


def paint_selection(strip: Strip, row: Line, span: tuple[int, int], style: Style) -> Strip:
    """Return a line with the characters of a span drawn as selected.

    Args:
        strip: The drawn line.
        row: Its content.
        span: First character, and the one after the last; -1 = to the end.
        style: Style of the selection.
    """
    first, last = text_bounds(row)
    start, end = max(first, span[0]), last if span[1] < 0 else min(last, span[1])
    out: list[Segment] = []
    at = 0
    for text, drawn, control in strip:
        left, right = (min(max(0, edge - at), len(text)) for edge in (start, end))
        looks = (drawn, (drawn or Style()) + style, drawn)
        pieces = (text[:left], text[left:right], text[max(left, right) :])
        out += [
            Segment(piece, look, control)
            for piece, look in zip(pieces, looks, strict=True)
            if piece
        ]
        at += len(text)
    return Strip(out, strip.cell_length)
