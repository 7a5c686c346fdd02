"""Phases: the six phases of a box's life as a checklist, with each check's evidence and its age."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.binding import BindingType
from textual.containers import Container
from textual.timer import Timer
from textual.widget import Widget

from rgt_tui.fleet import FleetSource
from rgt_tui.health import PHASES
from rgt_tui.language import translate
from rgt_tui.model import CheckResult, CheckStatus, FleetState, PersonTick
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import (
    BOX_CARE,
    BOX_SHELL,
    BOX_TARGET,
    MOVE,
    Command,
    build_bindings,
    key_for,
)
from rgt_tui.ui.enduring import shorten_path
from rgt_tui.ui.exports import NotExported, export_name, phases_markdown, write_export
from rgt_tui.ui.screens.base import FleetAwareScreen, MoveKeys
from rgt_tui.ui.widgets.box_context import BoxContext
from rgt_tui.ui.widgets.checklist import (
    CheckDetail,
    Checklist,
    ChecklistRow,
    CheckRun,
    PhaseChecks,
    detail_lines,
    next_check,
    phases_of,
    summary_parts,
)
from rgt_tui.ui.widgets.fixed_lines import Parts

LOW = 6
"""Lines of the detail below the list."""


LIFECYCLE: tuple[Command, ...] = (
    Command("phases.next-open", ("e",), "next to do",
            "Go to the next check that failed, warns, or needs you.", "next_open(1)", footer=1),
    Command("phases.previous-open", ("E",), "previous open", "Go to the previous one.",
            "next_open(-1)"),
    Command("phases.run", ("enter",), "run",
            "Run the check of the selected item, if it is read-only; on a phase, expand or "
            "collapse it.",
            "run_check", footer=2),
    Command("phases.tick", ("space",), "tick",
            "Tick or untick an item that only you can judge, with a note and your name; on a "
            "phase, fold it.",
            "tick", footer=3),
    Command("phases.fold", ("f",), "fold", "Expand or collapse the selected phase.", "fold"),
    Command("phases.next-phase", ("right",), "next phase",
            "Open the next phase and go to it.", "step_phase(1)"),
    Command("phases.previous-phase", ("left",), "previous phase",
            "Open the previous phase and go to it.", "step_phase(-1)"),
    Command("phases.all", ("z",), "all", "Expand all phases, or collapse all but this one.",
            "fold_all", footer=10),
    Command("phases.export", ("X",), "export",
            "Write all phases to a Markdown file; copying takes the same.",
            "export", footer=9),
)  # fmt: skip


class LifecycleScreen(MoveKeys, FleetAwareScreen):
    """What is proved about one box, what is not, and what is next."""

    KEYS: ClassVar[tuple[Command, ...]] = (
        *LIFECYCLE,
        *(replace(c, footer=c.footer and c.footer + 2) for c in BOX_TARGET if c.id != "box.phases"),
        *BOX_SHELL,
        *(replace(c, footer=8 if c.id == "box.alerts" else 0) for c in BOX_CARE),
        *MOVE,
    )
    PLACE: ClassVar[str] = "phases"
    BINDINGS: ClassVar[list[BindingType]] = list(build_bindings(KEYS))
    DEFAULT_CSS = """
    LifecycleScreen #lifecycle { layout: vertical; height: 1fr; margin: 1 0 1 0; }
    LifecycleScreen #checks { height: 1fr; width: 1fr; }
    LifecycleScreen #check-detail { height: 6; width: 1fr; }
    LifecycleScreen.tight #lifecycle { margin: 0 0 1 0; }
    LifecycleScreen.huge #lifecycle { layout: horizontal; }
    LifecycleScreen.huge #check-detail { height: 1fr; width: 30%; min-width: 60; margin: 0 0 0 2; }
    """

    def __init__(self, fleet: FleetSource, box_name: str) -> None:
        super().__init__(fleet, box_name)
        self.checklist = Checklist()
        self.phases: tuple[PhaseChecks, ...] = ()
        self.opened: frozenset[int] = frozenset()
        self._seen_trouble: frozenset[int] | None = None
        self.runs: dict[str, CheckRun] = {}
        """The newest run of each check."""
        self._drawing: Timer | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Return the list and the detail, and below them more about the box."""
        yield Container(self.checklist, CheckDetail(), id="lifecycle")
        yield BoxContext()

    def on_resize(self, event: events.Resize) -> None:
        """Lay out for the new size."""
        # Minimum width to show the detail next to the list.
        huge_limit = 160
        self.set_class(event.size.width >= huge_limit, "huge")
        self.set_class(event.size.height < 30, "tight")
        self.redraw_now()

    @property
    def cursor_key(self) -> str | None:
        """Key of the selected line, even if its phase is folded."""
        return self.checklist.picked_key

    @cursor_key.setter
    def cursor_key(self, key: str | None) -> None:
        self.checklist.select_key(key)

    def receive_state(self, state: FleetState, now: float) -> None:
        # Evaluated here, because the header is drawn before the body.
        """Evaluate the checks before the header and the list are drawn from them."""
        found = state.find_box(self.box_name or "")
        if found is not None:
            self.phases = phases_of(self.fleet.evaluate_checks(found.spec.name))
        else:
            self.phases = ()
        self._open_trouble()
        super().receive_state(state, now)

    def _open_trouble(self) -> None:
        """Open phases that newly need attention; a phase that the person closed stays closed."""
        trouble = frozenset(phase.number for phase in self.phases if phase.needs_attention)
        # At the first checks: open what needs attention, and go to it.
        if self._seen_trouble is None and any(phase.checks for phase in self.phases):
            first = next_check(self.phases)
            if first is not None:
                self.cursor_key = first.id
            else:
                self.cursor_key = None
            self.opened = trouble | (
                {first.phase} if first is not None else {self.phases[0].number}
            )
            self._seen_trouble = trouble
        elif self._seen_trouble is not None:
            self.opened |= trouble - self._seen_trouble
            self._seen_trouble = trouble

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the list at every tick, because its ages advance."""
        empty: tuple[str, ...] = ()
        if self.box_state is None:
            empty = (
                translate("{box_name} is no longer in the fleet.", box_name=self.box_name or ""),
                translate("{key} goes back.", key=key_for("screen.back")),
            )
        elif not any(phase.checks for phase in self.phases):
            empty = (
                translate("This box has no checks."),
                translate("{key} goes back.", key=key_for("screen.back")),
            )
        self.checklist.show_phases(self.phases, self.opened, now, empty)
        if empty:
            row = None
        else:
            row = self.checklist.cursor_row
        height = self._fit_detail(
            len(detail_lines(row, max(8, self.size.width - 2), LOW, now, self._runs_by(row)))
        )
        if height is None:
            below = None
        else:
            below = self.checklist.count_hidden_below(height)
        detail = self.query_one(CheckDetail)
        then: list[CheckResult] = []
        if not empty:
            then = self._list_next_checks()
        detail.show_check(row, now, self.selected_run, self._runs_by(row), below=below, then=then)

    def _list_next_checks(self) -> list[CheckResult]:
        """Return the other checks that need attention, in the order that the keys visit them."""
        ids = [check.id for check in self._list_open_checks()]
        here = next((place for place, name in enumerate(ids, 1) if name == self.cursor_key), 0)
        # Those after the selected check, then those before it, as the key goes around.
        return [*self._list_open_checks()[here:], *self._list_open_checks()[: max(0, here - 1)]]

    def _list_open_checks(self) -> list[CheckResult]:
        asking = {CheckStatus.FAILED, CheckStatus.WARN, CheckStatus.PERSON}
        return [check for phase in self.phases for check in phase.checks if check.status in asking]

    def _fit_detail(self, wanted: int) -> int | None:
        """Size the detail below the list.

        Return the list's lines, None if the detail is next to it.

        `wanted` is the number of lines that the detail needs.
        """
        huge, running = self.has_class("huge"), self.selected_run is not None
        # The margins of the list, see `DEFAULT_CSS`.
        room = self.body_height - (1 if self.has_class("tight") else 2)
        rows = max(len(PHASES), len(self.checklist.selectable_rows))
        # A run's output must be readable, so it gets the room of the panes about the box.
        box_name = None
        if not running:
            box_name = self.box_name
        context = self.show_context(box_name, self.body_height - room + rows + (0 if huge else LOW))
        detail = self.query_one(CheckDetail)
        if huge or room <= 0:
            self.checklist.styles.height = "1fr"
            detail.styles.height = "1fr" if huge else LOW
            return None
        if running:
            low = max(LOW, room // 2, room - rows)
        elif rows + LOW > room:
            # Minimum lines of the detail, including the line that counts the hidden lines of the
            # list.
            least = 4
            low = min(LOW, max(least, room - rows, wanted + 1))  # the list gets the rest
        else:
            low = LOW if context else room - rows
        detail.styles.height = low
        height = min(rows, max(3, room - low))
        self.checklist.styles.height = height
        return height

    @property
    def selected_check(self) -> CheckResult | None:
        """The selected check; None on a phase."""
        row = self.checklist.cursor_row
        if row is not None:
            return row.check
        return None

    @property
    def selected_run(self) -> CheckRun | None:
        """The newest run of the selected check."""
        if self.selected_check is not None:
            return self.runs.get(self.selected_check.id)
        return None

    def _runs_by(self, row: ChecklistRow | None) -> str:
        """Return the command that enter runs; may be empty."""
        if row is None or row.check is None or not self.fleet.runs_checks:
            return ""
        return self.fleet.runnable_command(self.box_name or "", row.check.id) or ""

    def action_run_check(self) -> None:
        """Run the selected check's command; on a phase, fold it."""
        check = self.selected_check
        if check is None:
            self.action_fold()
            return
        here = self.runs.get(check.id)
        if here is not None and here.is_running:
            self.hint(translate("it is running; {key} ends it", key=key_for("screen.escape")))
        elif not self.fleet.runs_checks:
            self.hint(self.fleet.why_nothing)
        elif not self._runs_by(self.checklist.cursor_row):
            if check.command:
                typed = translate(": type {command}", command=check.command)
            else:
                typed = translate(": its readings decide it")
            self.hint(translate("{id} has no command to run here{typed}", id=check.id, typed=typed))
        # One at a time: escape ends `self._worker`, the last one started.
        elif any(run.is_running for run in self.runs.values()):
            self.hint(
                translate("another check is running; {key} ends it", key=key_for("screen.escape"))
            )
        else:
            self._run_check(check.id, self._runs_by(self.checklist.cursor_row))

    def why_not(self, command: Command) -> str | None:
        """Return why a command does not work now; None if it works on the selected check."""
        if self.fleet_state is not None:
            check = self.selected_check
        else:
            check = None
        if (
            check is not None
            and command.id == "phases.run"
            and not self._runs_by(self.checklist.cursor_row)
        ):
            return translate("{id} has no command to run here", id=check.id)
        judged = check is not None and not check.by and check.status is not CheckStatus.PERSON
        if judged and command.id == "phases.tick":
            return translate("the selected check is judged by its readings")
        return super().why_not(command)

    def _run_check(self, check: str, command: str) -> None:
        made = self.runs[check] = CheckRun(command=command, began=self.now)
        self._worker = self.run_worker(
            self._carry_out(check, made), group="check", exit_on_error=False, description=command
        )
        self.redraw_now()

    async def _carry_out(self, check: str, run: CheckRun) -> None:
        try:
            run.status = await self.fleet.run_check(
                self.box_name or "", check, partial(self._append_output, run)
            )
        except asyncio.CancelledError:
            run.words = translate("ended by you")
            raise
        except Exception as error:  # after any failure the person must see that nothing was checked
            run.words = str(error) or type(error).__name__
        finally:
            run.ended = self.now
            self.redraw_now()

    def _append_output(self, run: CheckRun, row: str) -> None:
        """Append a line of output, and draw shortly after, so that a burst is drawn once."""
        run.append_output(row)
        if self._drawing is None:
            # Seconds between a run's output and its drawing.
            draw_seconds = 0.1
            self._drawing = self.set_timer(draw_seconds, self._draw_output)

    def _draw_output(self) -> None:
        self._drawing = None
        self.redraw_now()

    def clear_on_escape(self) -> bool:
        """Stop the running check; return whether there was one."""
        under_way = any(run.is_running for run in self.runs.values())
        if under_way:
            self._worker.cancel()
            self.hint(translate("ended"))
        return under_way

    def action_tick(self) -> None:
        """Tick a check that only a person can judge, or undo that; on a phase, fold it."""
        check = self.selected_check
        if check is None:
            self.action_fold()
        elif not self.fleet.runs_checks:
            self.hint(self.fleet.why_nothing)
        elif check.by:
            # Another tick of the same check undoes it; its note is kept.
            self._start_tick(check.id, PersonTick(ticked=False, at=self.now, by=_own_name()))
        elif check.status is CheckStatus.PERSON:
            take = partial(self._take_note, check.id)
            self.open_entry(
                translate("{id}: what did you see?", id=check.id), "", take, self._tick_nothing
            )
        else:
            self.hint(translate("{id} is judged by its readings and cannot be ticked", id=check.id))

    def _tick_nothing(self, text: str) -> None:
        """Say that Escape ticked nothing."""
        if not text:
            self.hint(translate("nothing was ticked"))

    def _take_note(self, check: str, note: str) -> None:
        """Continue with the name of the person."""
        if note.strip():
            take = partial(self._take_name, check, note.strip())
            self.open_entry(translate("your name"), _own_name(), take, self._tick_nothing)
        else:
            self.hint(translate("nothing was ticked: it needs a note"))

    def _take_name(self, check: str, note: str, name: str) -> None:
        if name.strip():
            self._start_tick(
                check, PersonTick(ticked=True, at=self.now, by=name.strip(), note=note)
            )
        else:
            self.hint(translate("nothing was ticked: it needs a name"))

    def _start_tick(self, check: str, tick: PersonTick) -> None:
        self.run_worker(
            self._send_tick(check, tick),
            group="tick",
            exit_on_error=False,
            description="tick a check",
        )

    async def _send_tick(self, check: str, tick: PersonTick) -> None:
        trouble = await self.fleet.store_tick(self.box_name or "", check, tick)
        if trouble is not None:
            self.hint(trouble, 12.0)
        else:
            text = translate("{check} is no longer ticked; the note is kept", check=check)
            if tick.ticked:
                text = translate("{check} is ticked", check=check)
            self.hint(text)
        # The state of the fleet has not changed, but the check has: evaluate it at once.
        if self.fleet_state is not None:
            self.receive_state(self.fleet_state, self.now)

    def to_copy(self) -> ClipboardText | None:
        """Return the output of the selected check's run, else all phases as Markdown."""
        run = self.selected_run
        if run is not None:
            return ClipboardText(
                what=translate("what {command} printed", command=run.command),
                text="\n".join((f"$ {run.command}", *run.lines)),
            )
        if not any(phase.checks for phase in self.phases):
            return None
        return ClipboardText(what=translate("the phases as Markdown"), text=self._make_markdown())

    def _make_markdown(self) -> str:
        return phases_markdown(self.box_name or "", self.phases, self.now)

    def action_export(self) -> None:
        """Write the phases to a file."""
        if not any(phase.checks for phase in self.phases):
            self.hint(translate("nothing to write"))
            return
        self.run_worker(
            self._write_export(self._make_markdown()),
            group="export",
            exit_on_error=False,
            description="export",
        )

    async def _write_export(self, text: str) -> None:
        name = export_name(self.box_name or "", self.now)
        try:
            path = await asyncio.to_thread(write_export, name, text.encode())
        except NotExported as error:
            self.hint(
                translate("{error}; {key} copies it", error=error, key=key_for("screen.copy")), 12.0
            )
        else:
            self.hint(
                translate(
                    "written: {name} in {parent}", name=path.name, parent=shorten_path(path.parent)
                ),
                12.0,
            )

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return the counts, and what is next."""
        return summary_parts(self.phases)

    def _select_key(self, key: str) -> None:
        self.cursor_key = key
        self.redraw_now()

    def action_next_open(self, by: int) -> None:
        """Go to the next check that failed, warns or needs a person."""
        checks = [check for phase in self.phases for check in phase.checks]
        asking = self._list_open_checks()
        wanted = [i for i, check in enumerate(checks) if check in asking]
        if not wanted:
            self.hint(translate("nothing failed, and nothing needs you"))
            return
        ids = [check.id for check in checks]
        if self.cursor_key in ids:
            here = ids.index(self.cursor_key)
        else:
            here = self._before_phase(ids)
        # Beyond the last one, continue with the first.
        ahead = [i for i in wanted if (i > here if by > 0 else i < here)]
        target = checks[(ahead or wanted)[0 if by > 0 else -1]]
        self.opened |= {target.phase}
        self._select_key(target.id)

    def _before_phase(self, ids: list[str]) -> int:
        """Return the index right before the checks of the selected phase."""
        phase = self._selected_phase()
        if phase is not None and phase.checks:
            return ids.index(phase.checks[0].id) - 1
        return -1

    def _selected_phase(self) -> PhaseChecks | None:
        """Return the phase of the selected line, even if it is folded."""
        for phase in self.phases:
            if self.cursor_key == f"phase {phase.number}" or any(
                check.id == self.cursor_key for check in phase.checks
            ):
                return phase
        if self.phases:
            return self.phases[0]
        return None

    def action_fold(self) -> None:
        """Open or close the phase of the selection."""
        phase = self._selected_phase()
        if phase is not None:
            self._toggle_phase(phase.number)

    def _toggle_phase(self, number: int) -> None:
        self.opened ^= {number}
        # Next to the rail, a closed phase has no heading that could be selected.
        if number not in self.opened and not self.checklist_has_all():
            remaining = sorted(self.opened)
            if remaining:
                self.cursor_key = f"phase {remaining[0]}"
            else:
                self.cursor_key = f"phase {number}"
        else:
            self.cursor_key = f"phase {number}"
        self.redraw_now()

    def checklist_has_all(self) -> bool:
        """Return whether the list also has the headings of closed phases."""
        return self.checklist.rail_width == 0

    def action_fold_all(self) -> None:
        """Open all phases, or close all except the selected one."""
        every = frozenset(phase.number for phase in self.phases)
        here = self._selected_phase()
        if self.opened != every:
            self.opened = every
        else:
            self.opened = frozenset({here.number} if here is not None else ())
        self.redraw_now()

    def action_step_phase(self, by: int) -> None:
        """Open the next or previous phase, and go to its heading."""
        here = self._selected_phase()
        if here is None:
            return
        numbers = [phase.number for phase in self.phases]
        number = numbers[min(max(0, numbers.index(here.number) + by), len(numbers) - 1)]
        self.opened |= {number}
        self._select_key(f"phase {number}")

    def on_checklist_folded(self, message: Checklist.Folded) -> None:
        """Open or close the clicked phase."""
        self._toggle_phase(message.phase)


def _own_name() -> str:
    # A user id without a name, as in some containers.
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
