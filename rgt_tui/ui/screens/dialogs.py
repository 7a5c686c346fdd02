"""Small dialogs: a line of choices, each with the letter that picks it, and a text that scrolls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from rgt_tui.language import translate
from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.commands import Command, build_bindings, key_for
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.mouse import MouseSelection
from rgt_tui.ui.notation import make_displayable
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim_span, make_line, width_of

CHOICE: tuple[Command, ...] = (
    Command("choice.cancel", ("escape", "q"), "cancel", "Choose nothing.", "cancel", footer=1),
)


class Choice(NamedTuple):
    """One choice."""

    letter: str
    """Textual's name of the key that picks it."""
    title: str
    value: str
    """What the screen is dismissed with."""


def lay_out_choices(label: str, choices: Sequence[Choice], width: int) -> list[Line]:
    """Return the lines with a label and all choices, wrapped between two choices."""
    rows: list[list[Span]] = [[Span(f" {translate(label)} ", Tone.STRONG)]]
    parts = [
        [Span(f" {choice.letter}", Tone.ACCENT), Span(f" {translate(choice.title)} ")]
        for choice in choices
    ]
    for part in [*parts, [dim_span(translate(" {key} cancels", key=key_for("choice.cancel")))]]:
        if width_of(tuple(rows[-1])) + width_of(tuple(part)) > width:
            rows.append([Span(" " * (cell_len(translate(label)) + 2))])
        rows[-1] += part
    return [make_line(*row) for row in rows]


class ChoiceScreen(FaultTolerant, ModalScreen[str | None]):
    """Shows the choices; a letter or a click picks one, and every other key is ignored.

    Args:
        label: What is chosen.
        choices: In their order; no two have the same letter.
    """

    PLACE = "choice"
    KEYS: ClassVar[tuple[Command, ...]] = CHOICE
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(CHOICE)
    # The margin keeps the key line of the screen below in sight.
    DEFAULT_CSS = """
    ChoiceScreen { align: left bottom; }
    ChoiceScreen > FittedLines { margin: 0 0 1 0; background: $rgt-raised; }
    """

    def __init__(self, label: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._label, self._choices = label, tuple(choices)

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The keys besides the letters."""
        return CHOICE

    def compose(self) -> ComposeResult:
        """Lay out the line."""
        yield FittedLines(lambda width: lay_out_choices(self._label, self._choices, width))

    def on_key(self, event: events.Key) -> None:
        """Pick the choice of a letter."""
        picked = next((one for one in self._choices if one.letter == event.key), None)
        if picked is not None:
            event.stop()
            self.dismiss(picked.value)

    def on_click(self, event: events.Click) -> None:
        """Pick the clicked choice; a click elsewhere cancels."""
        lines = self.query_one(FittedLines)
        row, column = event.screen_y - lines.region.y, event.screen_x
        drawn = lay_out_choices(self._label, self._choices, lines.size.width)
        value = None
        if 0 <= row < len(drawn):
            value = self._choice_at(drawn[row], column)
        self.dismiss(value)

    def _choice_at(self, line: Line, column: int) -> str | None:
        x = 0
        for span in line:
            x += width_of((span,))
            if column < x:
                words = span.text.strip()
                # A letter and its title are two spans; a click on either picks the choice.
                found = (
                    one.value
                    for one in self._choices
                    if words in (one.letter, translate(one.title))
                )
                return next(found, None)
        return None

    def action_cancel(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


class TextDialog(FaultTolerant, MouseSelection, ModalScreen[None]):
    """A frame (`Vertical`) with a text that scrolls (`VerticalScroll`)."""

    def to_copy(self) -> ClipboardText:
        """Return the whole text."""
        raise NotImplementedError

    def hint(self, said: str) -> None:
        """Show a message on the frame."""
        self.query_one(Vertical).border_subtitle = Content(make_displayable(said))

    def action_copy(self) -> None:
        """Copy the text selected with the mouse, otherwise the whole text."""
        copied = self.find_selection() or self.to_copy()
        self.clear_selection()
        self.hint(copy_to_clipboard(self.app, copied))

    def action_close(self) -> None:
        """Clear the mouse selection, else close."""
        if not self.end_selection():
            self.dismiss()

    def action_scroll(self, pages: int) -> None:
        """Scroll by half a page."""
        part = self.query_one(VerticalScroll)
        part.scroll_relative(y=pages * max(1, part.size.height // 2), animate=False)
