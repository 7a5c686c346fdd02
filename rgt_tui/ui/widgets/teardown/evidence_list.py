"""The evidence for a billing action as a list, and the actions on each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType
from textual.message import Message

from rgt_tui.language import translate
from rgt_tui.model import ActionReview, EvidenceItem
from rgt_tui.ui.commands import Command, build_bindings, key_for
from rgt_tui.ui.notation import compact_time, current_glyphs, size_or_dash
from rgt_tui.ui.widgets.lines import FittedLines, RowChosen
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import (
    Line,
    Span,
    Tone,
    clip_line,
    dim_span,
    fit_text,
    make_line,
    text_of,
    width_of,
    wrap_text,
)
from rgt_tui.ui.widgets.teardown.confirm_state import ItemChoice

KINDS = 15
"""Width of the cursor, the mark and the kind of a row; further lines are indented to the text."""
AGE = 7
SIZE = 9
NAME = "name"
"""Kind of the item that the name field replaces."""

EVIDENCE: tuple[Command, ...] = (
    Command("teardown.give-up", ("f",), "give up",
            "Give up what this row protects, or undo that; you must then type a longer phrase.",
            "act('forfeit')"),
    Command("teardown.ignore", ("i",), "no result",
            "Mark the unclaimed files of this row as no result, or undo that.", "act('ignore')"),
    Command("teardown.pull", ("p",), "pull",
            "Copy the files of this row here and verify the copy; while it runs, stop it.",
            "act('pull')"),
    Command("teardown.pull-all", ("P",), "pull all",
            "Pull the files of all rows that block the action; while a pull runs, stop it.",
            "act('pull-all')"),
    Command("teardown.agree", ("Y",), "agree",
            "Accept the traffic cost of a pull that asks; the pull then continues.",
            "act('agree')"),
)  # fmt: skip
"""Keys for the selected row of the evidence, the last ones for all rows. None of them sends
anything."""
WALK: tuple[Command, ...] = (
    Command(
        "teardown.walk-down",
        ("down",),
        "evidence",
        "Go to the evidence, then to its next row.",
        "walk(1)",
    ),
    Command(
        "teardown.walk-up",
        ("up",),
        "row up",
        "Go to the evidence, then to its previous row.",
        "walk(-1)",
    ),
)
"""Keys of the whole dialog. The list binds them too: otherwise its container would scroll."""


def in_order(review: ActionReview) -> tuple[EvidenceItem, ...]:
    """Return the items grouped by kind; kinds and items that fail come first."""
    # The name is typed in the field below, not looked at as evidence.
    items = [item for item in review.items if item.kind != NAME]
    kinds = list(dict.fromkeys(item.kind for item in items))
    failed = {item.kind for item in items if not item.ok}
    rank = {kind: (kind not in failed, place) for place, kind in enumerate(kinds)}
    return tuple(sorted(items, key=lambda item: (rank[item.kind], item.ok)))


@dataclass(frozen=True)
class EvidenceRow:
    """One item as displayed now."""

    item: EvidenceItem
    kind: str
    """Empty if the row above is of the same kind."""
    age: float | None
    """Seconds since it was read."""
    newest: float | None
    """Seconds since its newest file was written."""
    ignored: bool = False
    """Ignored by this person; what the fleet file ignores cannot be undone here."""
    pulling: bool = False
    """Whether a pull of it is running."""

    @property
    def full_text(self) -> str:
        """Its text, with the directory that it is about."""
        text, path = self.item.text, self.item.path
        if not path or path in text:
            whole = text
        else:
            whole = f"{path}: {text}"
        if self.pulling:
            return translate("pulling: {whole}", whole=whole)
        if self.item.forfeited:
            return translate("given up: {whole}", whole=whole)
        return whole

    @property
    def item_mark(self) -> Span:
        """Glyph of the item's state."""
        g = current_glyphs()
        if self.pulling:
            return Span(g.more, Tone.ACCENT)
        if self.item.forfeited:
            return Span(g.warn, Tone.WARN)
        # Proved, but by a source that may be wrong: no tick.
        if self.item.ok and self.item.doubt:
            return Span(g.warn, Tone.WARN)
        if self.item.ok and self.item.ignorable:
            return Span(g.dash, Tone.DIM)  # ignored by someone: nothing is proved
        if self.item.ok:
            return Span(g.check, Tone.PROVED)
        return Span(g.trouble, Tone.TROUBLE)

    @property
    def text_tone(self) -> Tone:
        """Tone of its text."""
        if self.item.is_blocking:
            return Tone.STRONG
        return Tone.TEXT


def list_pullable(review: ActionReview | None) -> tuple[str, ...]:
    """Return the directories of all rows that block the action."""
    if review is not None:
        items = in_order(review)
    else:
        items = ()
    return tuple(item.path for item in items if item.path and item.is_blocking)


def rows_of(
    review: ActionReview, choice: ItemChoice, now: float, pulled: frozenset[str] = frozenset()
) -> tuple[EvidenceRow, ...]:
    """Return the rows of a review.

    Args:
        review: The newest one.
        choice: What the person forfeited and ignored.
        now: Client clock.
        pulled: Directories that are being pulled.
    """
    made: list[EvidenceRow] = []
    before = ""
    for item in in_order(review):
        if item.newest is None:
            newest = None
        else:
            newest = max(0.0, now - item.newest)
        if item.kind == before:
            kind = ""
        else:
            kind = item.kind
        ignored = item.key in choice.ignored_keys
        made.append(
            EvidenceRow(
                item, kind, review.item_age_s(item, now), newest, ignored, item.path in pulled
            )
        )
        before = item.kind
    return tuple(made)


def key_hints(row: EvidenceRow, width: int) -> list[Line]:
    """Return the key hints for a row, in as many lines as needed."""
    item = row.item
    said: list[tuple[str, str]] = []
    if row.pulling:
        said.append((key_for("teardown.pull"), translate("stops the pull")))
    elif item.path and not item.ok:
        said.append((key_for("teardown.pull"), translate("pulls it")))
    if item.forfeited:
        said.append((key_for("teardown.give-up"), translate("takes it back")))
    elif item.forfeitable and not item.ok:
        said.append(
            (key_for("teardown.give-up"), translate("gives it up{row}", row=_at_stake(row)))
        )
    if row.ignored:
        said.append((key_for("teardown.ignore"), translate("takes it back")))
    elif item.ignorable and not item.ok:
        said.append((key_for("teardown.ignore"), translate("it is no result")))
    if not said:
        if item.ok:
            return []
        return [make_line(dim_span(translate("this cannot be given up")))]
    lines: list[Line] = []
    for key, words in said:
        one = (Span(key, Tone.ACCENT), dim_span(f" {words}"))
        if lines and width_of(lines[-1]) + 3 + width_of(one) <= width:
            lines[-1] = make_line(lines[-1], "   ", one)
        else:
            lines.append(one)
    return lines


def _at_stake(row: EvidenceRow) -> str:
    """Return what giving up a row would lose."""
    if row.item.bytes is not None:
        parts = [size_or_dash(row.item.bytes)]
    else:
        parts = []
    if row.newest is not None:
        parts += [translate("newest {newest} ago", newest=compact_time(row.newest))]
    if parts:
        return f": {', '.join(parts)}"
    return ""


@dataclass(frozen=True)
class EvidenceColumns:
    """The columns right of the texts, and the total width."""

    width: int
    sized: bool
    newest: bool

    @classmethod
    def for_rows(cls, rows: tuple[EvidenceRow, ...], width: int) -> EvidenceColumns:
        """Return the columns that the rows need and that fit."""
        sized = any(row.item.bytes is not None or row.newest is not None for row in rows)
        # Minimum width for the column of the newest file; below, only the selected row has it.
        narrow = 90
        return cls(width, sized, sized and width >= narrow)

    @property
    def text_room(self) -> int:
        """Cells for the text."""
        return max(4, self.width - KINDS - AGE - SIZE * (self.sized + self.newest))

    def right_cells(self, held: str, newest: str, age: str, tone: Tone) -> Line:
        """Return the columns right of the text."""
        if self.sized:
            spans = [Span(fit_text(held, SIZE, right=True), tone)]
        else:
            spans = []
        spans += [dim_span(fit_text(newest, SIZE, right=True))] if self.newest else []
        return (*spans, dim_span(fit_text(age, AGE, right=True)))


def row_line(row: EvidenceRow, text: str, columns: EvidenceColumns) -> Line:
    """Return a row in one line; its first cell is reserved for the cursor."""
    if row.item.bytes is None:
        held = ""
    else:
        held = size_or_dash(row.item.bytes)
    newest, age = ("" if one is None else compact_time(one) for one in (row.newest, row.age))
    right = columns.right_cells(held, newest, age, row.text_tone)
    kind = Span(fit_text(translate(row.kind), KINDS - 4) + " ", row.text_tone)
    made = make_line(
        " ", row.item_mark, " ", kind, Span(fit_text(text, columns.text_room), row.text_tone), right
    )
    return clip_line(made, columns.width)


def draw_heading(columns: EvidenceColumns) -> Line:
    """Return the titles of the columns."""
    named = Span(f" {fit_text(translate('evidence'), KINDS - 1 + columns.text_room)}", Tone.DIM)
    titles = (translate("size"), translate("newest"), translate("age"))
    return clip_line(make_line(named, columns.right_cells(*titles, Tone.DIM)), columns.width)


def list_lines(
    rows: tuple[EvidenceRow, ...], picked: str | None, width: int
) -> list[tuple[str | None, Line]]:
    """Return all lines with the keys of their rows.

    The row `picked` in full, with its key hints.
    """
    if not rows:
        return []
    columns = EvidenceColumns.for_rows(rows, width)
    out: list[tuple[str | None, Line]] = [(None, draw_heading(columns))]
    for row in rows:
        key = row.item.key
        if key == picked:
            drawn = _full_row_lines(row, columns)
        else:
            drawn = [row_line(row, row.full_text, columns)]
        out += [(key, each) for each in drawn]
    return out


def _full_row_lines(row: EvidenceRow, columns: EvidenceColumns) -> list[Line]:
    """Return the lines of the selected row: its full text and the key hints."""
    begin, *rest = wrap_text(row.full_text, columns.text_room)
    under = [*rest, *key_hints(row, columns.width - KINDS)]
    return [
        row_line(row, text_of(begin), columns),
        *(clip_line(make_line(" " * KINDS, made), columns.width) for made in under),
    ]


class EvidenceList(FittedLines, SelectableList[str]):
    """Shows the rows; ↑ ↓ move through them, and action keys are posted to the screen."""

    # `FittedLines` is the first base, because it draws; `SelectableList` selects.
    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = list(build_bindings((*WALK, *EVIDENCE)))
    DEFAULT_CSS = "EvidenceList { height: auto; }"
    WHEEL = 0
    """0, because the wheel scrolls the whole review."""

    class Acted(Message):
        """An action on an item was requested."""

        def __init__(self, what: str, key: str) -> None:
            super().__init__()
            self.what = what
            self.key = key

    def __init__(self, make_rows: Callable[[], tuple[EvidenceRow, ...]]) -> None:
        super().__init__(self._evidence_lines, id="evidence")
        self._make_rows = make_rows
        self._place = 0
        """Index of the selected row, used when the row disappears."""

    @property
    def picked_key(self) -> str:
        """Key of the item that the keys act on; empty = none."""
        # Every review has new rows, so the keys are read each time.
        self._keys = [row.item.key for row in self._make_rows()]
        if self._picked in self._keys:
            self._place = self.selected_index
        elif self._keys:
            # The row was proved meanwhile and is gone: the next one takes its place.
            self._place = min(self._place, len(self._keys) - 1)
            self._picked = self._keys[self._place]
        else:
            self._picked = None
        return self._picked or ""

    def _evidence_lines(self, width: int) -> list[Line]:
        picked_key = None
        if self.has_focus:
            picked_key = self.picked_key
        made = list_lines(self._make_rows(), picked_key, width)
        self._owners = [key for key, _ in made]
        return [each for _, each in made]

    @property
    def selection(self) -> tuple[int, int]:
        """First line and number of lines of the selected row."""
        return self.selected_line() or 0, self._owners.count(self._picked)

    def selected_line(self) -> int | None:
        """Return the line of the selected row, if the list has the focus."""
        if self.has_focus:
            return super().selected_line()
        return None

    def watch_has_focus(self, has_focus: bool) -> None:
        """Show the selected row in full while the list has the focus."""
        super().watch_has_focus(has_focus)
        # The selected row takes more lines, and so does the list.
        self.update()
        if has_focus:
            self.post_message(RowChosen(self.picked_key, opened=False))

    def select_index(self, index: int) -> None:
        """Select the row at `index`, which then takes more lines."""
        super().select_index(index)
        self.update()

    def action_walk(self, count: int) -> None:
        """Select another row."""
        if self.picked_key:
            self.move_by(count)

    def action_act(self, what: str) -> None:
        """Request an action on the selected item."""
        if self.picked_key:
            self.post_message(self.Acted(what, self.picked_key))
