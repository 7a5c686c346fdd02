"""The handbook: pages about current problems first, every known failure below.

Search while typing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from textual import work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.handbook import (
    ACTION_WORDS,
    HandbookError,
    HandbookPage,
    all_pages,
    build_page_index,
    find_pages,
    shipped_pages,
)
from rgt_tui.health import ids_referring_to
from rgt_tui.language import translate
from rgt_tui.model import BoxState, Finding, FixStep, FleetState, Severity, how_many
from rgt_tui.ui.box_status import SEVERITIES, old_mark
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import (
    ALERTS_TOO,
    BOX_FIX,
    HANDBOOK,
    MOVE,
    Command,
    build_bindings,
    key_for,
)
from rgt_tui.ui.notation import compact_time, current_glyphs, percent_or_dash
from rgt_tui.ui.screens.base import FleetAwareScreen, MoveKeys
from rgt_tui.ui.widgets.fixed_lines import Parts
from rgt_tui.ui.widgets.lines import SideBySideWidgets
from rgt_tui.ui.widgets.panes import Pane, PaneSection
from rgt_tui.ui.widgets.selectable_list import ListRow, SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_text,
    label_lines,
    make_line,
    tone_line,
    wrap_text,
)
from rgt_tui.ui.widgets.why import action_lines

WIDE = 110
"""Minimum width to show the page next to the list instead of below it."""
# Severities are declared worst first.
ORDER = {severity: place for place, severity in enumerate(Severity)}


def list_rows(pages: Iterable[HandbookPage], held: Mapping[str, bool]) -> list[ListRow]:
    """Return a row per page.

    Those of current findings are marked, and dimmed if the data is old.
    """
    return [ListRow(page.id, _draw_row(page, held)) for page in pages]


def _draw_row(page: HandbookPage, held: Mapping[str, bool]) -> Line:
    mark, tone = SEVERITIES[page.severity].glyph_and_tone
    if not held.get(page.id, True):
        tone = Tone.DIM
    title_tone = Tone.TEXT
    if page.own:
        title_tone = Tone.STRONG
    title = Span(translate(page.title), title_tone)
    ids_limit = 8
    if page.id not in held:
        return make_line("   ", fit_text(page.id, ids_limit), title)
    return make_line(Span(f" {mark} ", tone), Span(fit_text(page.id, ids_limit), tone), title)


class BoxFinding(NamedTuple):
    """An active finding on a box."""

    box: str
    finding: Finding
    age: str = ""
    """Glyph and age of the box's data if it is old; empty = current."""


def _proof_section(found: BoxFinding, page: HandbookPage, width: int, tone: Tone) -> PaneSection:
    """Return the proof of a page on one box; dimmed for a box whose data is old."""
    finding = found.finding
    rows = [
        *label_lines("proof", finding.evidence, width, Tone.WARN, most=4),
        # A finding may know better than its page what to do; the page's own advice is above.
        *(action_lines(finding, width) if finding.action != page.action else ()),
        *label_lines("where", _describe_place(finding), width, Tone.DIM),
    ]
    if not found.age:
        return PaneSection(make_line(Span(translate("on {box} now", box=found.box), tone)), rows)
    title = make_line(Span(translate("on {box}", box=found.box), Tone.DIM))
    return PaneSection(
        title,
        [tone_line(row, Tone.DIM) for row in rows],
        make_line(dim_span(translate("{age} old", age=found.age))),
    )


def page_sections(page: HandbookPage, found: Sequence[BoxFinding], width: int) -> list[PaneSection]:
    """Return a page for a pane of that inner width.

    The order is: what to do, what never to do, the fixes, the proof on the boxes, the cause.
    """
    mark, tone = SEVERITIES[page.severity].glyph_and_tone
    head = [
        *wrap_text(translate(page.title), width, Tone.STRONG),
        make_line(
            Span(f"{mark} {translate(page.severity.value)}", tone),
            dim_span(f" {current_glyphs().dot} {translate(page.topic)}"),
        ),
        *label_lines("do", translate(ACTION_WORDS[page.action]), width),
    ]
    made = [
        PaneSection(make_line(page.id, dim_span(translate("  your own") if page.own else "")), head)
    ]
    steps = steps_of(page, found)
    rows = label_lines("never", translate(page.never), width, Tone.WARN, most=6)
    for number, fix in enumerate(steps, 1):
        rows += label_lines(
            translate("fix {number}", number=number), translate(fix.text), width, most=8
        )
        if fix.command is not None:
            rows += label_lines("", f"$ {fix.command}", width, Tone.ACCENT, most=6)
    made.append(PaneSection(make_line(translate("fix")), rows))
    made += [_proof_section(one, page, width, tone) for one in found]
    about = [
        *label_lines("seen", translate(page.symptom), width, pad=7, most=12),
        *label_lines("cause", translate(page.cause), width, pad=7, most=12),
    ]
    made.append(PaneSection(make_line(translate("why")), about))
    if page.beats:
        more = label_lines("beats", ", ".join(page.beats), width, Tone.DIM)
    else:
        more = []
    for name, ids in zip(("alerts", "checks"), ids_referring_to(page.id), strict=True):
        more += label_lines(name, ", ".join(ids), width, Tone.DIM, pad=7) if ids else []
    more += [row for source in page.sources for row in wrap_text(source, width, Tone.DIM)]
    made.append(PaneSection(make_line(translate("sources")), more))
    return made


def steps_of(page: HandbookPage, found: Sequence[BoxFinding]) -> Sequence[FixStep]:
    """Return the fixes of the first box with a finding, with its real paths.

    Else the page's fixes.
    """
    return (found[0].finding.fixes if found else ()) or page.fixes


def _describe_place(finding: Finding) -> str:
    if finding.line_no is None:
        line_no = ""
    else:
        line_no = translate(", line {number:,}", number=finding.line_no)
    if finding.confidence is None:
        sure = ""
    else:
        sure = translate("; {share} sure", share=percent_or_dash(100.0 * finding.confidence))
    return f"{finding.where}{line_no}{sure}"


class HandbookScreen(MoveKeys, FleetAwareScreen):
    """Known failures: their symptoms, causes and fixes."""

    PLACE = "handbook"
    KEYS: ClassVar[tuple[Command, ...]] = (*HANDBOOK, *BOX_FIX, *ALERTS_TOO, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)
    AUTO_FOCUS = ""
    # Textual sets one of these classes, by the width.
    HORIZONTAL_BREAKPOINTS = [(0, "-below"), (WIDE, "-beside")]
    DEFAULT_CSS = """
    HandbookScreen #split { layout: vertical; }
    HandbookScreen.-beside #split { layout: horizontal; }
    HandbookScreen #pages { width: 1fr; }
    HandbookScreen #page { width: 1fr; height: 2fr; }
    HandbookScreen.-beside #page { height: 1fr; }
    """

    def __init__(self, fleet: FleetSource, box_name: str | None = None) -> None:
        super().__init__(fleet, box_name)
        self._pages: Mapping[str, HandbookPage] = shipped_pages()
        self._term = ""
        self._found: tuple[str, Sequence[HandbookPage]] | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Return the list and the page."""
        with SideBySideWidgets(id="split"):
            yield SelectableList(id="pages")
            yield Pane(id="page", focusable=True)

    def on_mount(self) -> None:
        """Read the person's own pages, which may be on a slow disk."""
        super().on_mount()
        self.read_own()

    @work(group="handbook", exit_on_error=False, description="read your own pages")
    async def read_own(self) -> None:
        """Add the person's own pages; an invalid one is reported."""
        try:
            self._pages = await asyncio.to_thread(all_pages)
        except HandbookError as error:
            self.hint(str(error), 15.0)
        # In a thread and in advance, so that the first search finds the index ready.
        await asyncio.to_thread(build_page_index, tuple(self._pages.values()))
        self._found = None
        self.redraw_now()

    @property
    def picked_page(self) -> HandbookPage | None:
        """The selected page."""
        return self._pages.get(self.main_list.picked_key or "")

    def _list_findings(self, state: FleetState) -> dict[str, list[BoxFinding]]:
        """Return the findings by page, those of current data first."""
        found: dict[str, list[BoxFinding]] = {}
        for box in state.boxes:
            if self.box_name in (None, box.spec.name) and box.findings:
                verdict = self.verdict(box)
                old = f"{old_mark(verdict.health)} {compact_time(verdict.sample_age)}"
                for finding in box.findings:
                    if not finding.cleared:
                        age = ""
                        if verdict.stale:
                            age = old
                        one = BoxFinding(box.spec.name, finding, age)
                        found.setdefault(finding.gotcha, []).append(one)
        return {page: sorted(some, key=lambda one: bool(one.age)) for page, some in found.items()}

    def _find_shown_pages(self, now: Iterable[str]) -> Sequence[HandbookPage]:
        """Return the matching pages, those with findings first."""
        # Kept until the search changes, because this is called at every redraw.
        if self._found is None or self._found[0] != self._term:
            pages = list(self._pages.values())
            self._found = (
                self._term,
                find_pages(self._term, pages) if self._term.strip() else pages,
            )
        held = set(now)
        # Sorting is stable: all other pages keep the order of the search.
        return sorted(
            self._found[1], key=lambda page: ORDER[page.severity] if page.id in held else len(ORDER)
        )

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the list and the selected page."""
        findings = self._list_findings(state)
        seen = {page: not some[0].age for page, some in findings.items()}
        shown = self._find_shown_pages(findings)
        empty = [
            EMPTY,
            make_line(
                dim_span(
                    translate(
                        " no page matches; {key} clears the search", key=key_for("screen.escape")
                    )
                )
            ),
        ]
        self.main_list.show_rows(list_rows(shown, seen), empty)
        if self.spot is not None and self.spot.gotcha is not None:
            # Once: the next state must not take the selection back.
            wanted, self.spot = self.spot.gotcha, None
            ids = [page.id for page in shown]
            if wanted in ids:
                self.main_list.select_index(ids.index(wanted))
            else:
                self.hint(translate("the handbook has no page {wanted}", wanted=wanted))
        picked = self.picked_page
        page = self.query_one("#page", Pane)

        def make_page(width: int) -> list[PaneSection]:
            if picked is None:
                return []
            return page_sections(picked, findings.get(picked.id, ()), width)

        scrolls = page.wanted_height(page.size.width) > page.size.height
        scroll_hint = EMPTY
        if scrolls:
            scroll_hint = make_line(
                dim_span(translate("{key} scrolls it", key=key_for("handbook.next-pane")))
            )
        page.show_sections(make_page, scroll_hint)

    @property
    def target_box(self) -> str | None:
        """The screen's box, else the first box with the page's finding."""
        page = self.picked_page
        if self.box_name is None and page is not None and self.fleet_state is not None:
            found = self._list_findings(self.fleet_state).get(page.id, [])
            return next((one.box for one in found), None)
        return self.box_name

    def chosen_finding(self, box: BoxState) -> Finding | None:
        """Return the page as it was found on the box, else its own steps."""
        page = self.picked_page
        if page is None:
            return None
        own = Finding(
            page.id,
            # Without a finding on the box: the page's own steps, and no evidence.
            page.title,
            page.severity,
            page.title,
            "",
            "",
            fixes=page.fixes,
            never=page.never,
        )
        return next((one for one in box.findings if one.gotcha == page.id), own)

    def action_next_pane(self) -> None:
        """Move the focus to the page, or back to the list."""
        self.set_focus(None if isinstance(self.focused, Pane) else self.query_one("#page", Pane))

    def action_search(self) -> None:
        """Open the entry line of the search."""
        self.open_entry(translate("search"), self._term, changed=self._apply_search)

    def _apply_search(self, text: str) -> None:
        """Search while typing."""
        self._term = text
        self.redraw_now()

    def clear_on_escape(self) -> bool:
        """Clear the search; return whether there was one."""
        had = bool(self._term)
        self._apply_search("")
        return had

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return the search and its number of pages, otherwise the fleet's summary."""
        if not self._term:
            return super().build_summary(state, now)
        found = how_many(len(self._find_shown_pages(())), "page")
        return [
            (0, make_line(dim_span(translate("search ")), Span(self._term, Tone.ACCENT))),
            (1, make_line(dim_span(found))),
        ]

    def to_copy(self) -> ClipboardText | None:
        """Return the fixes of the page, with what never to do above them."""
        page = self.picked_page
        if page is None:
            return None
        if self.fleet_state is not None:
            found = self._list_findings(self.fleet_state).get(page.id, [])
        else:
            found = []
        steps = steps_of(page, found)
        # As a comment, so that the text can be pasted into a shell.
        rows = ["# " + translate("never: {what}", what=translate(page.never))]
        for fix in steps:
            rows += [
                f"# {translate(fix.text)}",
                *([fix.command] if fix.command is not None else []),
            ]
        return ClipboardText(
            what=translate("the fix of {id}: {steps} steps", id=page.id, steps=len(steps)),
            text="\n".join(rows),
        )
