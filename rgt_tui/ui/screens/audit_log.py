"""The audit log: who did what to which box, newest first, and whether the log is intact."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.gate import (
    AuditEntry,
    AuditEvent,
    AuditLine,
    HashChainCheck,
    describe_chain_check,
    read_checked,
)
from rgt_tui.language import show_recorded, translate
from rgt_tui.model import FleetState, moment
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import AUDIT, MOVE, Command, build_bindings, key_for
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.screens.base import FleetAwareScreen, MoveKeys
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.selectable_list import ListRow, SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_name,
    fit_text,
    label_lines,
    make_line,
    name_width,
    wrap_text,
)

EVERY_SECONDS = 5.0
WHOLE = 1000
TONES = {AuditEvent.REFUSED: Tone.WARN, AuditEvent.REQUESTED: Tone.STRONG}


def audit_row(one: AuditLine, names: int, width: int = WHOLE) -> Line:
    """Draw an entry: time, box, verb, event and text; a narrow line drops the year and seconds.

    Args:
        one: The entry.
        names: Cells of the longest name.
        width: Available cells.
    """
    entry = one.entry
    if entry is None:
        return make_line(
            Span(
                translate(
                    " {trouble} line {number} cannot be read",
                    trouble=current_glyphs().trouble,
                    number=one.number,
                ),
                Tone.TROUBLE,
            )
        )
    tone = TONES.get(entry.event, Tone.TEXT)
    verb, event = translate(entry.deed_text), translate(entry.event.value)
    when = moment(entry.at)
    # Below this width there would be no room for the text after a full timestamp.
    narrow = 80
    head = make_line(
        # Month to minute.
        dim_span(f"  {when[5:16] if width < narrow else when}  "),
        Span(fit_name(entry.box, names)),
        "  ",
    )
    return make_line(
        head,
        Span(f"{fit_text(verb, 8)}{fit_text(event, 10)}", tone),
        dim_span(show_recorded(entry.text)),
    )


def _list_proof(entry: AuditEntry) -> tuple[tuple[str, str], ...]:
    """Return what was typed and the evidence, each with its label."""
    return (
        ("typed", entry.typed), ("shown", entry.shown), ("proof", entry.evidence),
        ("boot", entry.boot),
    )  # fmt: skip


def audit_details(one: AuditLine, width: int) -> list[Line]:
    """Return everything in an entry."""
    entry = one.entry
    # Columns of the labels; sha256 is the longest.
    pad = 8
    out = label_lines("line", f"{one.number}", width, pad=pad)
    if entry is not None:
        for label, text in (
            ("who", entry.who), ("on", entry.instance), *_list_proof(entry)[:1],
            ("text", show_recorded(entry.text)), *_list_proof(entry)[1:],
        ):  # fmt: skip
            out += label_lines(label, text, width, pad=pad, most=WHOLE) if text else []
    return [*out, *label_lines("sha256", one.hash, width, Tone.DIM, pad=pad)]


class AuditScreen(MoveKeys, FleetAwareScreen):
    """The record of billing actions, of one box or of all of them.

    Args:
        fleet: The fleet.
        box_name: Only this box; None = all.
        env: Environment that decides where the log is.
    """

    PLACE = "audit"
    KEYS: ClassVar[tuple[Command, ...]] = (*AUDIT, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)

    def __init__(
        self, fleet: FleetSource, box_name: str | None = None, env: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(fleet, box_name)
        self._env = env
        self._lines: dict[str, AuditLine] = {}
        self._chain: HashChainCheck | None = None
        self._trouble = ""
        self._asked_at = -math.inf
        self._opened = True

    def compose_body(self) -> Iterable[Widget]:
        """Return the list."""
        yield SelectableList(id="audit")

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the entries, and read the log again every `EVERY_SECONDS`."""
        if not 0.0 <= now - self._asked_at < EVERY_SECONDS:
            self._asked_at = now
            self.read_log()
        self._draw_list()

    def why_not(self, command: Command) -> str | None:
        """Return why a command does not work now; the details need an entry."""
        if command.id == "audit.details" and not self._lines:
            return translate("no billing action has been tried yet")
        return super().why_not(command)

    def _draw_list(self) -> None:
        named = (one.entry.box for one in self._lines.values() if one.entry)
        names = name_width(named, self.size.width)
        rows = [
            ListRow(key, audit_row(one, names, self.size.width)) for key, one in self._lines.items()
        ]
        if self._trouble:
            empty = self._trouble
        elif self._chain is None:
            empty = translate("reading the audit log")
        else:
            empty = translate("no billing action has been tried yet")
        why = [
            make_line(" ", *row) for row in wrap_text(empty, max(20, self.size.width - 2), Tone.DIM)
        ]
        self.main_list.show_rows(rows, (EMPTY, *why), self._make_details)

    def _make_details(self, key: str, width: int) -> list[Line]:
        one = self._lines[key]
        if self._opened:
            return audit_details(one, width)
        return [
            make_line(
                dim_span(
                    translate("{key}: the full text of this line", key=key_for("audit.details"))
                )
            )
        ]

    @work(group="audit", exclusive=True, exit_on_error=False, description="read the audit log")
    async def read_log(self) -> None:
        """Read and verify the log in a thread: it may be long, and its disk slow."""
        try:
            lines, self._chain = await asyncio.to_thread(
                read_checked, self._env, self.fleet.audit_file
            )
        except Exception as error:  # an unreadable log must not look like an empty one
            self._trouble = str(error) or type(error).__name__
        else:
            self._trouble = ""
            mine = [
                one
                for one in lines
                # A line that cannot be read may be about any box.
                if self.box_name is None or one.entry is None or one.entry.box == self.box_name
            ]
            self._lines = {str(one.number): one for one in reversed(mine)}
        self.redraw_now()

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return whether the log is intact."""
        if self._trouble:
            return [
                (1, make_line(Span(f"{current_glyphs().trouble} {self._trouble}", Tone.TROUBLE)))
            ]
        if self._chain is None:
            return []
        bad = self._chain.broken is not None
        if bad:
            mark = Span(f"{current_glyphs().trouble} ", Tone.TROUBLE)
        else:
            mark = Span(f"{current_glyphs().check} ", Tone.PROVED)
        # An empty log proves nothing.
        if not self._chain.lines:
            mark = Span("")
        tone = Tone.TEXT
        if bad:
            tone = Tone.TROUBLE
        return [
            (
                1,
                make_line(mark, Span(describe_chain_check(self._chain), tone)),
            )
        ]

    def open_row(self) -> None:
        """Show or hide the details."""
        self.action_details()

    def action_details(self) -> None:
        """Show or hide everything in the selected entry."""
        self._opened = not self._opened
        self._draw_list()

    def to_copy(self) -> ClipboardText | None:
        """Return everything in the selected entry."""
        one = self._lines.get(self.main_list.picked_key or "")
        if one is None:
            return None
        entry = one.entry
        if entry is None:
            return ClipboardText(
                what=translate("line {number}", number=one.number),
                text=translate(
                    "line {number} cannot be read, sha256 {hash}", number=one.number, hash=one.hash
                ),
            )
        verb = translate(entry.deed_text)
        parts = (
            moment(entry.at),
            entry.who,
            entry.box,
            verb,
            entry.instance,
            translate(entry.event.value),
            show_recorded(entry.text),
            *(f"{label} {text}" for label, text in _list_proof(entry) if text),
            one.hash,
        )
        return ClipboardText(
            what=translate("line {number} of the audit log", number=one.number),
            text="  ".join(part for part in parts if part),
        )
