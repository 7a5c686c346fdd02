"""Phases: the six phases of a box's life as a checklist, each check with its evidence and the age of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.health import PHASES
from rgt_tui.model.evidence import CheckStatus
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.commands import BOX_TARGET, MOVE, Command, bindings
from rgt_tui.ui.notation import clean
from rgt_tui.ui.screens.base import FleetAwareScreen, Moves
from rgt_tui.ui.widgets.checklist import CheckDetail, Checklist, Phase, next_check, phases_of, summary_parts
from rgt_tui.ui.widgets.fixed_lines import Parts

HUGE = 160
"""From this width on the detail stands beside the list."""

LIFECYCLE: tuple[Command, ...] = (
    Command("phases.next-open", ("e",), "next open",
            "Go to the next check that failed, warns, or needs you.", "next_open(1)", footer=1),
    Command("phases.previous-open", ("E",), "previous open", "Go to the previous one.", "next_open(-1)"),
    Command("phases.fold", ("enter", "space"), "fold", "Expand or collapse the selected phase.", "fold", footer=2),
    Command("phases.next-phase", ("right",), "next phase",
            "Open the next phase and go to it.", "step_phase(1)", footer=3),
    Command("phases.previous-phase", ("left",), "previous phase",
            "Open the previous phase and go to it.", "step_phase(-1)"),
    Command("phases.all", ("a",), "all", "Expand all phases, or collapse all but this one.", "fold_all", footer=4),
)  # fmt: skip


class LifecycleScreen(Moves, FleetAwareScreen):
    """What is proved of one box, what is not, and what comes next."""

    KEYS: ClassVar[tuple[Command, ...]] = (
        *LIFECYCLE,
        *(replace(c, footer=c.footer + 3) for c in BOX_TARGET if c.id != "box.phases"),
        *MOVE,
    )
    PLACE: ClassVar[str] = "phases"
    BINDINGS: ClassVar[list[BindingType]] = list(bindings(KEYS))
    DEFAULT_CSS = """
    LifecycleScreen #lifecycle { layout: vertical; height: 1fr; margin: 1 0 1 0; }
    LifecycleScreen #checks { height: 1fr; width: 1fr; }
    LifecycleScreen #check-detail { height: 5; width: 1fr; margin: 1 0 0 0; }
    LifecycleScreen.tight #lifecycle { margin: 0 0 1 0; }
    LifecycleScreen.huge #lifecycle { layout: horizontal; }
    LifecycleScreen.huge #check-detail { height: 1fr; width: 60; margin: 0 0 0 2; }
    """

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__(fleet, box_name)
        self.phases: tuple[Phase, ...] = ()
        self.opened: frozenset[int] = frozenset()
        self.cursor: str | None = None
        self._seen_trouble: frozenset[int] | None = None

    def body(self) -> Iterable[Widget]:
        """Return the list and the detail."""
        yield Container(Checklist(), CheckDetail(), id="lifecycle")

    def on_resize(self, event: events.Resize) -> None:
        """Use the room there is."""
        self.set_class(event.size.width >= HUGE, "huge")
        self.set_class(event.size.height < 30, "tight")

    @property
    def checklist(self) -> Checklist:
        """The list."""
        return self.query_one(Checklist)

    def receive_state(self, state: FleetState, now: float) -> None:
        """Evaluate the checks before header and list are drawn from them."""
        found = state.box(self.box_name or "")
        self.phases = phases_of(self.fleet.checks(found.spec.name)) if found is not None else ()
        self._open_trouble()
        super().receive_state(state, now)

    def _open_trouble(self) -> None:
        """Open what asks for a look when it begins to; what the person closed stays closed until then."""
        trouble = frozenset(phase.number for phase in self.phases if phase.wants_a_look)
        if self._seen_trouble is None and any(phase.checks for phase in self.phases):
            first = next_check(self.phases)
            self.cursor = first.id if first is not None else None
            self.opened = trouble | ({first.phase} if first is not None else {self.phases[0].number})
            self._seen_trouble = trouble
        elif self._seen_trouble is not None:
            self.opened |= trouble - self._seen_trouble
            self._seen_trouble = trouble

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the list; ages grow, so it is drawn at every tick."""
        empty: tuple[str, ...] = ()
        if self.box is None:
            empty = (f"{clean(self.box_name or '')} is no longer in the fleet.", "q goes back.")
        elif not any(phase.checks for phase in self.phases):
            empty = ("No checks are known for this box.", "q goes back.")
        self.checklist.show(self.phases, self.opened, self.cursor, now, empty)
        self.query_one(CheckDetail).show(None if empty else self.checklist.cursor_row, now)
        self._fit()

    def _fit(self) -> None:
        """Keep the detail right under the list, where it is not beside it."""
        room = self.query_one("#lifecycle").size.height
        if self.has_class("huge") or not room:
            self.checklist.styles.height = "1fr"
        else:
            self.checklist.styles.height = min(max(len(PHASES), len(self.checklist.rows)), max(3, room - 6))

    def summary(self, state: FleetState, now: float) -> Parts:
        """Return the counts, and what comes next."""
        return summary_parts(self.phases)

    def _go(self, key: str) -> None:
        self.cursor = key
        self.redraw_now()

    def action_move(self, by: int) -> None:
        """Move the selection."""
        keys = [row.key for row in self.checklist.rows]
        if keys:
            at = keys.index(self.cursor) if self.cursor in keys else 0
            self._go(keys[min(max(0, at + by), len(keys) - 1)])

    @property
    def page_rows(self) -> int:
        """One line stays in sight."""
        return self.checklist.size.height - 1

    def action_next_open(self, by: int) -> None:
        """Go to the next check that is neither proved nor merely waiting."""
        checks = [check for phase in self.phases for check in phase.checks]
        asking = {CheckStatus.FAILED, CheckStatus.WARN, CheckStatus.PERSON}
        wanted = [i for i, check in enumerate(checks) if check.status in asking]
        if not wanted:
            self.hint("nothing failed, and nothing needs you")
            return
        ids = [check.id for check in checks]
        here = ids.index(self.cursor) if self.cursor in ids else self._before_phase(ids)
        ahead = [i for i in wanted if (i > here if by > 0 else i < here)]
        target = checks[(ahead or wanted)[0 if by > 0 else -1]]
        self.opened |= {target.phase}
        self._go(target.id)

    def _before_phase(self, ids: list[str]) -> int:
        """Return the place right before the checks of the selected phase."""
        phase = self._phase_here()
        return ids.index(phase.checks[0].id) - 1 if phase is not None and phase.checks else -1

    def _phase_here(self) -> Phase | None:
        """Return the phase of the selected line, also if the line is folded away."""
        for phase in self.phases:
            if self.cursor == f"phase {phase.number}" or any(
                check.id == self.cursor for check in phase.checks
            ):
                return phase
        return self.phases[0] if self.phases else None

    def action_fold(self) -> None:
        """Open or close the phase of the selection."""
        phase = self._phase_here()
        if phase is not None:
            self._toggle(phase.number)

    def _toggle(self, number: int) -> None:
        self.opened ^= {number}
        if number not in self.opened and not self.checklist_has_all():
            remaining = sorted(self.opened)
            self.cursor = f"phase {remaining[0]}" if remaining else f"phase {number}"
        else:
            self.cursor = f"phase {number}"
        self.redraw_now()

    def checklist_has_all(self) -> bool:
        """Whether the list has the headings of closed phases, too."""
        return self.checklist.rail == 0

    def action_fold_all(self) -> None:
        """Open all phases, or close all but the one of the selection."""
        every = frozenset(phase.number for phase in self.phases)
        here = self._phase_here()
        self.opened = every if self.opened != every else frozenset({here.number} if here is not None else ())
        self.redraw_now()

    def action_step_phase(self, by: int) -> None:
        """Open the phase beside, and go to its heading."""
        here = self._phase_here()
        if here is None:
            return
        numbers = [phase.number for phase in self.phases]
        number = numbers[min(max(0, numbers.index(here.number) + by), len(numbers) - 1)]
        self.opened |= {number}
        self._go(f"phase {number}")

    def on_checklist_picked(self, message: Checklist.Picked) -> None:
        """Select what was clicked; a phase also opens or closes."""
        if message.phase is not None:
            self._toggle(message.phase)
        else:
            self._go(message.key)
