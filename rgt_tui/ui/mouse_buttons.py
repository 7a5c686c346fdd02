"""The mouse beside rows and columns: the button that goes back, and the hints in the frames of panes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events

from rgt_tui.ui.notation import glyphs, plain
from rgt_tui.ui.widgets.spans import Line, text_of

if TYPE_CHECKING:
    from textual.message import Message

    from rgt_tui.ui.commands import Command

BACK_KEY = "mouse_back"
"""What the back button is to the bindings of a screen."""
_EXTRA = re.compile(r"\x1b\[<(\d+);-?\d+(?:\.\d+)?;-?\d+(?:\.\d+)?([Mm])")
_MODIFIERS, _MOVES, _BEYOND, _BACK = 0b11100, 32, 128, 128


def extra_button(code: str) -> tuple[bool, bool]:
    """Return whether a code of a terminal is about a button beyond the third, and whether it says *back, pressed*.

    To xterm's protocol the eighth button, the one that goes back, is 128; modifier keys are bits of the same number.
    """
    found = _EXTRA.match(code)
    number = int(found[1]) if found is not None and len(found[1]) < 6 else 0
    beyond = bool(number & _BEYOND)
    pressed = found is not None and found[2] == "M" and not number & _MOVES
    return beyond, beyond and pressed and number & ~_MODIFIERS == _BACK


def hear_back_button() -> None:
    """Make the back button a key. Textual takes it for the left one, which would select what happens to lie there."""
    with contextlib.suppress(ImportError, AttributeError):
        from textual._xterm_parser import XTermParser

        inner = XTermParser.parse_mouse_code
        if inner.__module__ == __name__:
            return

        def parse_mouse_code(self: XTermParser, code: str) -> Message | None:
            beyond, back = extra_button(code)
            if not beyond:
                return inner(self, code)
            return events.Key(BACK_KEY, None) if back else None

        setattr(XTermParser, "parse_mouse_code", parse_mouse_code)  # noqa: B010  (a method of another's class)


def hinted(row: Line, column: int, commands: Sequence[Command]) -> Command | None:
    """Return the command whose key stands in the hint of a border at a column, or left of it in the same hint.

    What a box writes may look like a border, and is none: there the corners are pieces of their own. What is dangerous
    is not done by a click on a frame.
    """
    text, frame = text_of(row), glyphs().frame
    if (
        not row
        or row[0].text not in (frame[0], frame[5], frame[6])
        or row[-1].text not in (frame[2], frame[4], frame[7])
    ):
        return None
    flat = frame[1]
    start = text.rfind(flat, 0, len(text.rstrip(frame + " "))) + 1
    hint = text[start:].rstrip(frame + " ")
    found: Command | None = None
    for word in re.finditer(r"\S+", hint):
        if cell_len(text[: start + word.start()]) > column:
            break
        key = word[0].rstrip(":")
        found = next((one for one in commands if plain(one.shown_key) == key and not one.dangerous), found)
    first = len(text[:start]) + (len(hint) - len(hint.lstrip()))
    return found if cell_len(text[:first]) <= column < cell_len(text[:start] + hint) else None
