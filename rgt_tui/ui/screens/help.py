"""Help: every key of the screen below that works now, and its glyphs and columns.

Rows can be clicked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen

from rgt_tui.language import translate, translate_in
from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.commands import MOVE, Command, build_bindings, key_for
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.legends import Legend
from rgt_tui.ui.mouse import MouseSelection
from rgt_tui.ui.notation import make_displayable
from rgt_tui.ui.screens.base import EntrySupport, MoveKeys
from rgt_tui.ui.widgets.fixed_lines import EventLine
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.panes import draw_frame
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    make_line,
    text_of,
    wrap_text,
)

HELP: tuple[Command, ...] = (
    Command("help.close", ("q", "question_mark", "f1"), "close", "Close the help.", "close",
            footer=1),
    Command("help.escape", ("escape",), "clear", "Clear the search, then close the help.",
            "escape"),
    Command("help.search", ("slash",), "search", "Show only rows with these words.", "search",
            footer=2),
    Command("help.copy", ("y",), "copy", "Copy the rows that are shown.", "copy", footer=3),
)  # fmt: skip


TWO_FROM, GAP = 150, 2
"""Minimum width for two columns, used if the rows do not fit in one, and the gap between them."""


class HelpRow(NamedTuple):
    """A row: a command, an entry of the legend, or a title."""

    lead: str = ""
    name: str = ""
    text: str = ""
    command: Command | None = None
    title: bool = False


FIRST_KEYS = 6
"""Keys that are enough to begin with, including the one that quits."""


def key_rows(commands: Sequence[Command]) -> list[HelpRow]:
    """Return a row per command: keys, name, and what it does.

    The first rows are the keys that one needs first: those of the key line, and how to quit.
    """
    quits = [one for one in commands if one.id == "app.quit"]
    shown = sorted((one for one in commands if one.footer), key=lambda one: one.footer)
    first = [*shown[: FIRST_KEYS - len(quits)], *quits]
    rest = [one for one in commands if one not in first]
    rows = [
        HelpRow(make_displayable(c.shown_keys), c.shown_title, c.shown_help, c)
        for c in (*first, *rest)
    ]
    # Dialogs have no such keys, and their few rows need no titles.
    if not shown or not quits:
        return rows
    at = len(first)
    return [
        HelpRow(translate("first"), title=True),
        *rows[:at],
        HelpRow(),
        HelpRow(translate("all others"), title=True),
        *rows[at:],
    ]


def legend_rows(legend: Legend) -> list[HelpRow]:
    """Return the legend, each part with its title."""
    out: list[HelpRow] = []
    for title, rows in legend:
        out += [HelpRow(), HelpRow(translate(title), title=True)]
        out += [HelpRow(make_displayable(row.mark), text=translate(row.means)) for row in rows]
    return out


def search_rows(rows: Sequence[HelpRow], query: str) -> list[HelpRow]:
    """Return the rows that contain all words of a search; without a search, all rows."""
    words = query.casefold().split()
    if not words:
        return list(rows)
    return [
        row
        for row in rows
        if not row.title
        and row.text
        and all(word in " ".join(row[:3]).casefold() for word in words)
    ]


def row_lines(rows: Sequence[HelpRow], width: int) -> list[tuple[Line, HelpRow]]:
    """Return the lines of the rows, each with its row."""
    leads = max((cell_len(row.lead) for row in rows if not row.title), default=0)
    names = max((cell_len(row.name) for row in rows), default=0)
    room = max(8, width - leads - names - 4)
    out: list[tuple[Line, HelpRow]] = []
    for row in rows:
        if row.title or not row.text:
            out.append((make_line(Span(row.lead, Tone.STRONG)) if row.title else EMPTY, row))
            continue
        if row.command is not None and row.command.dangerous:
            tone = Tone.WARN
        else:
            tone = Tone.ACCENT
        if row.command is None:
            tone = Tone.TEXT
        for index, part in enumerate(wrap_text(row.text, room, Tone.DIM)):
            lead, name = (row.lead, row.name) if index == 0 else ("", "")
            made = make_line(
                Span(fit_text(lead, leads, right=True), tone),
                "  ",
                Span(fit_text(name, names)),
                "  ",
                *part,
            )
            out.append((made, row))
    return out


class HelpPanel(LineWidget):
    """The rows in a frame."""

    DEFAULT_CSS = "HelpPanel { width: 1fr; height: 1fr; }"
    WHEEL = 2

    def __init__(self, rows: Sequence[HelpRow], place: str, without: int) -> None:
        super().__init__(id="help-panel")
        self._rows, self._place, self._without = rows, place, without
        self.query_text = ""
        self._top = 0

    @property
    def shown_rows(self) -> list[HelpRow]:
        """The shown rows."""
        return search_rows(self._rows, self.query_text)

    def show_matching(self, text: str) -> None:
        """Show only rows with these words."""
        self.query_text, self._top = text, 0
        self.redraw()

    def _make_columns(self, width: int, height: int) -> list[list[tuple[Line, HelpRow]]]:
        """Return the lines in one column, or in two if one is too long and two fit."""
        made = row_lines(self.shown_rows, width)
        if len(made) <= height or width < TWO_FROM:
            return [made]
        made = row_lines(self.shown_rows, width // 2 - GAP)
        # Cut at the blank line nearest to the middle, which is then left out.
        blanks = [place for place, (_, row) in enumerate(made) if not row.text and not row.title]
        cut = min((*blanks, len(made)), key=lambda place: abs(2 * place - len(made)))
        return [made[:cut], made[cut + 1 :]]

    def scroll_lines(self, count: int) -> None:
        """Scroll a list that is longer than the screen."""
        width, height = self.size.width - 4, self.size.height - 2
        # Negative if all rows fit.
        most = max(map(len, self._make_columns(width, height))) - height
        self._top = max(0, min(self._top + count, most))
        self.redraw()

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the list."""
        columns = self._make_columns(width - 4, height - 2)
        body = [made for made, _ in columns[0]]
        if len(columns) > 1:
            beside = [made for made, _ in columns[1]]
            half = (width - 4) // 2
            body = [
                make_line(*clip_line(left, half), *right)
                for left, right in zip_longest(body, beside, fillvalue=EMPTY)
            ]
        if not body:
            body = [
                make_line(translate("no row has "), Span(self.query_text, Tone.ACCENT)),
                make_line(
                    dim_span(translate("{key} clears the search", key=key_for("help.escape")))
                ),
            ]
        if self._place:
            title = translate("{place}: keys", place=translate(self._place))
        else:
            title = translate_in("keyboard", "keys")
        if self._without:
            title += translate(
                "  1 key hidden: no use here"
                if self._without == 1
                else "  {count} keys hidden: no use here",
                count=self._without,
            )
        hint = make_line(
            dim_span(
                translate(
                    "{key} searches  click runs  {key_2} closes",
                    key=key_for("help.search"),
                    key_2=key_for("help.escape"),
                )
            )
        )
        return draw_frame(
            body[self._top :], width, height, title=make_line(title), hint=hint, active=True
        )

    def on_click(self, event: events.Click) -> None:
        """Run the command of the clicked row."""
        width = self.size.width - 4
        columns = self._make_columns(width, self.size.height - 2)
        # A single column is the last one, too, so a click anywhere hits it.
        made = columns[-1 if event.x - 2 >= width // 2 else 0]
        index = self._top + event.y - 1
        if 0 < event.y < self.size.height - 1 and index < len(made):
            command = made[index][1].command
            if command is not None and isinstance(self.screen, HelpScreen):
                self.screen.run_below(command)


class HelpScreen(MoveKeys, EntrySupport, FaultTolerant, MouseSelection, ModalScreen[None]):
    """Covers the screen that it explains.

    Args:
        commands: The commands that work there now.
        place: Name of the screen.
        legend: Its glyphs and columns.
        without: How many commands do not work there now.
    """

    PLACE = "help"
    KEYS: ClassVar[tuple[Command, ...]] = (*HELP, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)

    def __init__(
        self, commands: Sequence[Command], place: str, legend: Legend = (), without: int = 0
    ) -> None:
        super().__init__()
        self._rows = [*key_rows(commands), *legend_rows(legend)]
        self._place, self._without = place, without

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The commands of the help itself."""
        return cls.KEYS

    def compose(self) -> ComposeResult:
        """Lay out the panel, and the event line that the search replaces."""
        yield HelpPanel(self._rows, self._place, self._without)
        yield EventLine()

    @property
    def help_panel(self) -> HelpPanel:
        """The panel with the rows."""
        return self.query_one(HelpPanel)

    def hint(self, text: str, seconds: float = 0.0) -> None:
        """Show a message on the last line."""
        self.query_one(EventLine).show_hint(text)

    def run_below(self, command: Command) -> None:
        """Close the help, and run a command of the screen below."""
        # Before this screen closes, which changes the stack.
        below = self.app.screen_stack[-2]
        self.dismiss()
        # It would open this page again.
        if command.id != "app.help":
            # Later, when the screen below is the top one again.
            self.app.call_later(below.run_action, command.textual_action)

    def action_close(self) -> None:
        """Close the help."""
        self.dismiss()

    def action_escape(self) -> None:
        """Clear the selection, then the search, then close."""
        if self.end_selection():
            return
        if self.help_panel.query_text:
            self.help_panel.show_matching("")
        else:
            self.dismiss()

    def action_search(self) -> None:
        """Open the entry line of the search."""
        self.open_entry(
            translate("search"), self.help_panel.query_text, changed=self.help_panel.show_matching
        )

    def action_copy(self) -> None:
        """Copy the text selected with the mouse, otherwise the shown rows."""
        if self.copy_marked(self.hint):
            return
        rows = [text_of(made).rstrip() for made, _ in row_lines(self.help_panel.shown_rows, 100)]
        self.hint(
            copy_to_clipboard(self.app, ClipboardText(what=translate("help"), text="\n".join(rows)))
        )

    @property
    def moved_widget(self) -> HelpPanel:
        """The panel with the rows."""
        return self.help_panel
