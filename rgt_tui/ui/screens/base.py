"""The base of every screen that shows the fleet: its fixed lines, keys and state updates."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.screen import Screen
from textual.timer import Timer

from rgt_tui.fleet import FleetSource
from rgt_tui.language import translate
from rgt_tui.model import BoxState, Finding, FleetState, LinkState, ScreenPosition
from rgt_tui.ui.box_status import (
    assess_box,
    box_parts,
    build_failed_assessment,
    clock_of,
    fleet_parts,
)
from rgt_tui.ui.clipboard import ClipboardText, copy_to_clipboard
from rgt_tui.ui.commands import APP, OF_ALL_BOXES, SCREEN, Command, build_bindings, key_for
from rgt_tui.ui.enduring import FaultTolerant, report_fault_to_app
from rgt_tui.ui.legends import LegendRow, legend_of
from rgt_tui.ui.mouse import BACK_KEY, MouseSelection
from rgt_tui.ui.notation import current_glyphs, format_position_time
from rgt_tui.ui.preferences import UNCHANGED, Preferences
from rgt_tui.ui.shells import ShellKeys
from rgt_tui.ui.widgets.fixed_lines import (
    BACK,
    CrumbChosen,
    EntryLine,
    EventLine,
    HeaderLine,
    KeyLine,
    NoticeLine,
    Parts,
)
from rgt_tui.ui.widgets.lines import LineWidget, PaintedGround, RowChosen, StackedWidgets
from rgt_tui.ui.widgets.panes import Pane
from rgt_tui.ui.widgets.selectable_list import SelectableList
from rgt_tui.ui.widgets.spans import Span, Tone, make_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from textual import events
    from textual.widget import Widget

    from rgt_tui.health import Assessment
    from rgt_tui.ui.widgets.panes import PaneSection

WHY_NOT = {
    "box": "no box selected",
    "replay": "this is not a replay",
    "question": "no question is open",
}
"""Reasons why a command does not work, by what it needs."""
MARKED = "marked_moment"
"""Attribute of the app that keeps the first of two moments to compare."""
HINT_SECONDS = 4.0
FAR = 1_000_000
"""Lines: more than any list has."""
SPEEDS = (0.125, 1024.0)
"""Slowest and fastest speed of a replay."""
PACES = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Sampling intervals that a person can choose, in seconds."""


FRESH_SECONDS = 1.0
"""Seconds for which assessments of a state stay valid, so that a key does not assess 200 boxes
again."""


class StateAssessments(NamedTuple):
    """The assessments of a state's boxes made so far."""

    state: FleetState | None = None
    at: float = -math.inf
    """Client clock."""
    # The empty one belongs to no state, and nothing writes to it.
    verdicts: dict[str, Assessment] = {}

    def is_current(self, state: FleetState, now: float) -> bool:
        """Return whether these assessments are of that state, and recent enough."""
        return state is self.state and 0 <= now - self.at < FRESH_SECONDS


@runtime_checkable
class StateSink(Protocol):
    """A screen, also a modal one, that receives the state at each redraw tick."""

    def receive_state(self, state: FleetState, now: float) -> None:
        """Receive the newest state.

        Called at most twice a second, also when only time has passed.
        """
        ...


class Dashboard(Protocol):
    """What a screen needs from the app."""

    def open_screen(
        self, place: str, box_name: str | None, spot: ScreenPosition | None = None
    ) -> None:
        """Open the screen called `place` for a box, at a spot of it."""
        ...

    def return_to(self, place: str, box_name: str | None) -> None:
        """Close the screens above a screen; if it is not open, open it over the fleet."""
        ...

    def start_fleet(self) -> object:
        """Create and start the fleet."""
        ...

    def show_next_question(self, *, again: bool = False) -> bool:
        """Show the oldest question; return whether there was one."""
        ...

    def tick(self, *, force: bool = False) -> None:
        """Draw the newest state on the top screen."""
        ...

    def draw_soon(self) -> object:
        """Draw the newest state after the pending keys are painted."""
        ...


def format_position(recording: FleetSource) -> str:
    """Return the position in a recording, ``12:04 of 1:30:00``, without the length if unknown."""
    length = recording.length
    here = format_position_time(recording.position)
    if length is None:
        return here
    return translate("{here} of {whole}", here=here, whole=format_position_time(length))


class MoveKeys:
    """The keys `MOVE` of a screen: they move in the focused pane, else in the screen's list."""

    @property
    def main_list(self) -> SelectableList[str]:
        """The list."""
        return cast("Screen[None]", self).query_one(SelectableList)

    @property
    def moved_widget(self) -> LineWidget:
        """The widget that the keys move in."""
        focused = cast("Screen[None]", self).focused
        if isinstance(focused, Pane):
            return focused
        return self.main_list

    def open_row(self) -> None:
        """Do what a second click on a row does; for screens where rows can be opened."""

    def follow_row(self) -> None:
        """Show what belongs to the selected row."""
        cast("FleetAwareScreen", self).redraw_now()

    def on_row_chosen(self, message: RowChosen) -> None:
        """Follow the selection, or open the row."""
        if message.opened:
            self.open_row()
        else:
            self.follow_row()

    def action_move(self, count: int) -> None:
        """Move by `count` lines, within the existing ones."""
        self.moved_widget.move_by(count)

    def action_page(self, count: int) -> None:
        """Move by pages."""
        self.action_move(count * self.moved_widget.page_rows)

    def action_move_top(self) -> None:
        """Go to the first line."""
        self.action_move(-FAR)

    def action_move_bottom(self) -> None:
        """Go to the last line."""
        self.action_move(FAR)


class EntrySupport:
    """A screen whose event line can be replaced by an entry line."""

    def open_entry(
        self,
        label: str,
        text: str = "",
        done: Callable[[str], None] = lambda text: None,
        changed: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Open an entry line instead of the event line; see `EntryLine` for the arguments.

        A closed entry may not be removed yet. Then no new one is opened: waiting here would keep
        the screen from removing it, because a screen that calls itself after each refresh blocks
        all else.
        """
        screen = cast("Screen[None]", self)
        # One at a time; one that is leaving is still in the tree.
        if all(entry.leaving for entry in screen.query(EntryLine)):
            screen.mount(EntryLine(label, text, done, changed), before="#event")

    def main_widget(self) -> Widget | None:
        """Return the widget to focus when an entry or a side pane closes.

        None = the screen itself.
        """
        screen = cast("Screen[None]", self)
        if screen.AUTO_FOCUS:
            return screen.query_one(screen.AUTO_FOCUS)
        return None

    @property
    def takes_keys(self) -> bool:
        """False while an entry line is being added or removed: keys wait for it."""
        screen = cast("Screen[None]", self)
        return all(getattr(entry, "takes_keys", True) for entry in screen.query("EntryLine"))


def past_moment_parts(fleet: FleetSource | None) -> Parts:
    """Return the banner of an earlier moment for the header; empty for the present."""
    if fleet is None or not fleet.shows_past_moment:
        return []
    g = current_glyphs()
    # -1: no other part of the header is more important.
    return [(-1, make_line(Span(f"{g.earlier} {fleet.moment_text} {g.later}", Tone.MATCH)))]


class FleetAwareScreen(EntrySupport, ShellKeys, FaultTolerant, MouseSelection, PaintedGround):
    """A screen with a summary line on top, and the last event and the keys at the bottom.

    A subclass sets `KEYS` (its own commands) and `BINDINGS = bindings(KEYS)`, returns its middle
    from `compose_body`, and draws in `show_state`. It never calls anything of the fleet that
    blocks.
    """

    KEYS: ClassVar[tuple[Command, ...]] = ()
    PLACE: ClassVar[str] = ""
    """Name of the screen in the crumbs and in the help."""
    AUTO_FOCUS: ClassVar[str | None] = None
    AT_ONCE: ClassVar[float] = math.inf
    """With more boxes than this, a screen that returns to the top is drawn a moment later."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *build_bindings(SCREEN),
        Binding(BACK_KEY, "back", show=False),
    ]

    fleet_state: reactive[FleetState | None] = reactive(
        # always_update: the same state is drawn again as its ages grow. repaint: the widgets
        # repaint themselves where they changed.
        None,
        init=False,
        always_update=True,
        repaint=False,
    )
    """The newest state; set by the app once per redraw tick."""

    def __init__(self, fleet: FleetSource | None, box_name: str | None = None) -> None:
        super().__init__()
        # another version of Textual draws with its own compositor
        with contextlib.suppress(ImportError, AttributeError, TypeError):
            from rgt_tui.ui.compositing import TightCompositor

            self._compositor = TightCompositor()
        self.attach_fleet(fleet)
        self.box_name = box_name
        self.spot: ScreenPosition | None = None
        """Where to go first, if the screen was opened for a spot; cleared once it is reached."""
        self._hint_timer: Timer | None = None
        self._judged = StateAssessments()
        self._summed: tuple[StateAssessments | None, Parts] = (None, [])
        """The summary of all boxes, and the assessments that it counts."""
        self._ahead = StateAssessments()
        """Assessments of a state that is about to be drawn."""

    def verdict(self, box: BoxState) -> Assessment:
        """Return the assessment of a box, made once per state and `FRESH_SECONDS`."""
        # A key may ask for it before the first state is drawn.
        if self._judged.state is None:
            self._judged = StateAssessments(self.fleet_state, self.now, {})
        return self.assess_cached(box, self._judged)

    def assess_cached(self, box: BoxState, judged: StateAssessments) -> Assessment:
        """Return the assessment of a box, cached with the others of its state."""
        found = judged.verdicts.get(box.spec.name)
        if found is None:
            try:
                found = assess_box(box, judged.at)
            except Exception as error:
                if not report_fault_to_app(self, error):
                    raise
                # One box whose state cannot be judged must not take the screen away.
                found = build_failed_assessment(box, error)
            judged.verdicts[box.spec.name] = found
        return found

    def assess_in_steps(self, state: FleetState, now: float) -> Iterator[None]:
        """Do slow work before a state is drawn, in steps, so that other work can run in between."""
        return iter(())

    @property
    def fleet(self) -> FleetSource:
        """The fleet; screens for a box are opened only if there is one."""
        assert self._fleet is not None
        return self._fleet

    @property
    def has_fleet(self) -> bool:
        """False while the fleet is being started."""
        return self._fleet is not None

    def attach_fleet(self, fleet: FleetSource | None) -> None:
        """Use a fleet that was created after the first frame."""
        self._fleet = fleet
        # Read once per fleet instead of with every command.
        self._replays = fleet is not None and fleet.plays_back
        self._is_past = fleet is not None and fleet.shows_past_moment

    def show_for(self, fleet: FleetSource, box_name: str | None) -> None:
        """Use a screen that was mounted in advance for this box; see `SpareScreens`."""
        self.attach_fleet(fleet)
        self.box_name = box_name

    @property
    def notice(self) -> tuple[str, str] | None:
        """A warning for the whole session, and what to do about it; None = none."""
        found: tuple[str, str] | None = getattr(self.app, "notice", None)
        return found

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """All commands that work here."""
        return (*cls.KEYS, *SCREEN, *APP)

    def offered(self) -> tuple[Command, ...]:
        """Return the commands that work here now, with the person's own keys."""
        chosen: Preferences = getattr(self.app, "preferences", UNCHANGED)
        return tuple(
            chosen.apply_keys(command)
            for command in self.commands()
            if self.why_not(command) is None
        )

    def why_not(self, command: Command) -> str | None:
        """Return why a command does not work now; None if it works."""
        if command.dangerous and getattr(self.app, "readonly", False):
            return translate("rgt was started with --readonly")
        lacking = next((need for need in command.needs if not self.meets_need(need)), None)
        # Only the fleet knows whether it is a replay or an earlier moment.
        if lacking == "live":
            return self.fleet.why_nothing
        if lacking is None:
            return None
        return translate(WHY_NOT[lacking])

    def meets_need(self, need: str) -> bool:
        """Return whether a command's requirement is met.

        Before the first state most count as met.
        """
        if not self.has_fleet or self.fleet_state is None:
            return need not in {"replay", "question"}
        if need in {"live", "replay"}:
            if need == "replay":
                return self._replays
            return not (self._replays or self._is_past)
        if need == "question":
            return bool(self.fleet_state.questions)
        return self.target_box is not None

    def build_legend(self) -> tuple[tuple[str, tuple[LegendRow, ...]], ...]:
        """Return the glyphs and columns that the help explains: titles, each with its rows."""
        return legend_of(self.PLACE)

    def compose(self) -> ComposeResult:
        """Lay out the fixed lines around the body."""
        yield HeaderLine()
        if self.notice is not None:
            yield NoticeLine(*self.notice)
        with StackedWidgets(id="body"):
            yield from self.compose_body()
        yield EventLine()
        yield KeyLine(self.offered())

    def on_mount(self) -> None:
        """Show the path of the screen before there is data."""
        self.query_one(HeaderLine).show_parts(self.shown_crumbs(), [])

    def compose_body(self) -> Iterable[Widget]:
        """Return the widgets between the header and the event line."""
        return ()

    def receive_state(self, state: FleetState, now: float) -> None:
        """Store the state of this redraw tick."""
        self.fleet_state = state

    def watch_fleet_state(self, state: FleetState | None) -> None:
        """Draw the changes."""
        if state is None or not self.is_mounted or not self.has_fleet:
            return
        now = self.now
        # Assessed in steps just before, so that keys could come first.
        if self._ahead.is_current(state, now):
            self._judged = self._ahead
        elif not self._judged.is_current(state, now):
            self._judged = StateAssessments(state, now, {})
        self.query_one(HeaderLine).show_parts(self.shown_crumbs(), self.header_parts(state, now))
        self.query_one(EventLine).show_events(
            state.events, now, self.resting_hint(), getattr(self.app, "seen_at", -math.inf)
        )
        self.query_one(KeyLine).set_badges(*self.build_badges(state))
        self.show_state(state, now)
        # Last, because the keys on offer depend on the selection that was just drawn.
        self.query_one(KeyLine).show_commands(self.offered())

    @property
    def body_height(self) -> int:
        """Lines between the header and the event line."""
        # Header, event line and keys.
        return self.size.height - 3 - (self.notice is not None)

    def show_context(
        self,
        name: str | None,
        above: int,
        first: Callable[[BoxState, int, int], PaneSection] | None = None,
        *,
        steady: bool = False,
    ) -> int:
        """Show more about a box below a list, if the list leaves room; return the height used.

        Args:
            name: The box's name; None = none.
            above: Lines wanted for the list.
            first: Makes the first pane's section from the box, the pane's width and its height;
                None = the box's recent events.
            steady: The list keeps its height when another of its lines is selected.
        """
        # Loaded when a box is shown: the first frame must not wait for it.
        from rgt_tui.ui.widgets.box_context import BoxContext, context_height
        from rgt_tui.ui.widgets.fleet_rows import story_section

        state, now = self.fleet_state, self.now
        if name is None or state is None:
            box = None
        else:
            box = state.find_box(name)
        events = () if state is None else state.events

        def make_story(box: BoxState, width: int, height: int) -> PaneSection:
            name = box.spec.name
            return story_section(
                [one for one in events if one.box == name], name, width, height, now
            )

        height = context_height(self.body_height, above, steady=steady)
        stale = box is not None and self.verdict(box).stale
        self.query_one(BoxContext).show_box(box, first or make_story, height, now, stale=stale)
        if box is not None:
            return height
        return 0

    @property
    def now(self) -> float:
        """The client clock of the fleet."""
        return self.fleet.now()

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the body; implemented by each screen."""

    def redraw_now(self) -> None:
        """Draw the last state again, e.g. after a key changed what is shown."""
        if self.fleet_state is not None:
            # Setting it calls the watcher, also for the same state (always_update).
            self.fleet_state = self.fleet_state

    def build_crumbs(self) -> tuple[str, ...]:
        """Return the path of the screen: ``fleet › box › place``."""
        if self.box_name is None:
            if self.PLACE in OF_ALL_BOXES:
                return ("fleet", self.PLACE)
            return (self.PLACE,)
        if self.PLACE == "box":
            return ("fleet", self.box_name)
        return ("fleet", self.box_name, self.PLACE)

    def shown_crumbs(self) -> tuple[str, ...]:
        """Return the path of the screen in the person's language; a box's name stays as it is."""
        return tuple(
            crumb if crumb == self.box_name else translate(crumb) for crumb in self.build_crumbs()
        )

    def header_parts(self, state: FleetState, now: float) -> Parts:
        """Return the right end of the header: the banner of an earlier moment, and the summary."""
        return [*past_moment_parts(self._fleet), *self.build_summary(state, now)]

    def build_summary(self, state: FleetState, now: float) -> Parts:
        """Return the summary of the screen's box or the fleet; screens may override it."""
        if self.box_name is None:
            # A key that filters, sorts or moves changes nothing in it.
            if self._summed[0] is not self._judged:
                parts = fleet_parts(state, [self.verdict(box) for box in state.boxes])
                self._summed = (self._judged, parts)
            return self._summed[1]
        box = self.box_state
        if box is None:
            return []
        profile = self.fleet.profile_of(box.spec.name)
        return box_parts(box, self.verdict(box), profile.name, clock_of(profile, box, now))

    def build_badges(self, state: FleetState) -> tuple[str, ...]:
        """Return the words at the right end of the key line."""
        if self.box_name is None:
            boxes = state.boxes
        else:
            boxes = tuple(b for b in state.boxes if b.spec.name == self.box_name)
        sim: tuple[str, ...] = ()
        if any(g.sim for b in boxes if b.sample for g in b.sample.gpus):
            sim = (translate("SIM GPU"),)
        if self._is_past:
            return (*sim, translate("PAST read only"))
        if not self._replays:
            return sim
        speed = self.fleet.speed
        pace = ""
        if math.isfinite(speed):
            pace = f" {current_glyphs().times}{speed:g}"
        held = ""
        if self.fleet.is_playback_paused:
            held = " paused"
        return (*sim, f"REPLAY {format_position(self.fleet)}{pace}{held}")

    def resting_hint(self) -> str:
        """Return the event line's text while there are no events."""
        return str(getattr(self.app, "hint_text", "") or "")

    @property
    def box_state(self) -> BoxState | None:
        """The state of this screen's box, if the fleet has it."""
        if self.box_name is None or self.fleet_state is None:
            return None
        return self.fleet_state.find_box(self.box_name)

    @property
    def target_box(self) -> str | None:
        """The box that the keys act on."""
        return self.box_name

    def hint(self, text: str, seconds: float = HINT_SECONDS) -> None:
        """Show a text on the event line for `seconds`. Never a pop-up."""
        self.query_one(EventLine).show_hint(text)
        # The timer of an earlier hint would end this one too soon.
        if self._hint_timer is not None:
            self._hint_timer.stop()
        self._hint_timer = self.set_timer(
            seconds, lambda: self.query_one(EventLine).show_hint(None)
        )

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Draw at once when the screen gets to the top.

        With more than `AT_ONCE` boxes to assess first, the previous frame stays until that is done.
        """
        event.refresh_styles = (
            False  # styles were applied when it was mounted, and at each change of the theme since
        )
        if self.has_fleet:
            # The box on the screen is sampled faster than the others.
            self.fleet.focus_box(self.box_name)
        app = cast("Dashboard", self.app)
        if self.fleet_state is not None and len(self.fleet_state.boxes) > self.AT_ONCE:
            app.draw_soon()
        # Apps of tests may have none.
        elif hasattr(app, "tick"):
            app.tick(force=True)

    def on_crumb_chosen(self, message: CrumbChosen) -> None:
        """Go back to the screen of the clicked crumb; the last one is this screen."""
        message.stop()
        if message.index == BACK:
            self.action_back()
            return
        crumbs = self.build_crumbs()
        if message.index >= len(crumbs) - 1 and len(crumbs) > 1:
            return
        if message.index < len(crumbs):
            here = crumbs[message.index]
        else:
            here = "fleet"
        if here == self.box_name and message.index:
            box = here
        else:
            box = None
        screen = "fleet"
        if box:
            screen = "box"
        cast("Dashboard", self.app).return_to(screen, box)

    def action_back(self) -> None:
        """Go back one screen."""
        if len(self.app.screen_stack) > 1:
            self.dismiss()
        else:
            self.hint(translate("{key} quits; the boxes keep running", key=key_for("app.quit")))

    def action_escape(self) -> None:
        """Undo one step: a selection, the focus of a side pane, a search; otherwise go back.

        The first screen never closes: there the last event is marked as seen.
        """
        if self.end_selection() or self.focus_list_again() or self.clear_on_escape():
            return
        if len(self.app.screen_stack) > 1:
            self.dismiss()
        elif self.has_fleet:
            setattr(self.app, "seen_at", self.now)  # noqa: B010  (an app of tests has none)
            self.redraw_now()

    def focus_list_again(self) -> bool:
        """Move the focus from a side pane to the list; return False if no side pane has it."""
        main = self.main_widget()
        if not isinstance(self.focused, Pane) or self.focused is main:
            return False
        self.set_focus(main)
        return True

    def clear_on_escape(self) -> bool:
        """Clear a filter or a search; return False if there was none."""
        return False

    def to_copy(self) -> ClipboardText | None:
        """Return what ``y`` copies here; None if nothing is selected."""
        return None

    def on_text_selected(self, event: events.TextSelected) -> None:
        """Hint at what can be done with the text selected with the mouse."""
        if self.selections:
            self.hint(translate("{key} copies the selection", key=key_for("screen.copy")))

    def action_copy(self) -> None:
        """Copy the text selected with the mouse, otherwise the selection of the keys."""
        if self.copy_marked(self.hint):
            return
        copied = self.to_copy()
        if copied is None:
            self.hint(translate("nothing to copy here"))
        else:
            self.hint(copy_to_clipboard(self.app, copied))

    def action_connect(self) -> None:
        """Connect to the box without waiting for the next retry."""
        box = self.find_target()
        if box is None:
            return
        if box.link is LinkState.LIVE:
            self.hint(translate("{name} is already connected", name=box.spec.name))
            return
        if box.link is LinkState.PAUSED:
            self.fleet.set_box_paused(box.spec.name, False)
        else:
            self.fleet.retry_box(box.spec.name)
        self.hint(translate("connecting to {name}", name=box.spec.name))

    def action_pause(self) -> None:
        """Disconnect from the box, or connect again."""
        box = self.find_target()
        if box is None:
            return
        paused = box.link is not LinkState.PAUSED
        self.fleet.set_box_paused(box.spec.name, paused)
        name = box.spec.name
        if paused:
            self.hint(
                translate(
                    "disconnected from {name}; its training continues; {key} reconnects",
                    name=name,
                    key=key_for("box.pause"),
                )
            )
        else:
            self.hint(translate("connecting to {name}", name=name))

    def action_interval(self) -> None:
        """Use the next sampling interval."""
        box = self.find_target()
        if box is None:
            return
        if box.interval is not None:
            here = box.interval
        else:
            here = box.spec.interval
        # 0.01 against rounding: the same pace must not be chosen again.
        seconds = next((pace for pace in PACES if pace > here + 0.01), PACES[0])
        self.fleet.set_interval(box.spec.name, seconds)
        self.hint(
            translate("{name}: sampling every {seconds:g} s", name=box.spec.name, seconds=seconds)
        )

    def work_boxes(self) -> Sequence[str]:
        """Return the boxes on which ``w`` starts work; a hint and none if there is no box."""
        box = self.find_target()
        return () if box is None else (box.spec.name,)

    def action_work(self) -> None:
        """Offer the commands that start work on the box, and open the chosen one."""
        from rgt_tui.ui.screens.command import WORK, CommandScreen
        from rgt_tui.ui.screens.dialogs import ChoiceScreen

        boxes = self.work_boxes()

        def open_command(text: str | None) -> None:
            if text is not None:
                self.app.push_screen(CommandScreen(self.fleet, boxes, text))

        if boxes:
            self.app.push_screen(ChoiceScreen("start", WORK), open_command)

    def chosen_finding(self, box: BoxState) -> Finding | None:
        """Return the finding whose steps ``!`` tries: the box's worst one with steps."""
        return next((one for one in box.findings if one.fixes and not one.cleared), None)

    def action_try_fix(self) -> None:
        """Open the dialog that runs the looking steps of a fix, and previews what it would remove."""
        box = self.find_target()
        if box is None:
            return
        finding = self.chosen_finding(box)
        if finding is None:
            self.hint(translate("{name}: no known fix to try", name=box.spec.name))
            return
        from rgt_tui.health import describe_resource
        from rgt_tui.ui.screens.fix_trial import FixTrialScreen

        title = f"{finding.gotcha} {describe_resource(finding.resource)}"
        self.app.push_screen(FixTrialScreen(self.fleet, box, title, finding.never, finding.fixes))

    def find_moment(self, box: BoxState) -> tuple[float, BoxState | None] | None:
        """Return the time that ``'`` marks, and the state then if it is on screen.

        None = nothing is selected that has a time.
        """
        return self.now, box

    def action_mark_moment(self) -> None:
        """Mark a moment of the box; the second time, compare the two."""
        from rgt_tui.ui.screens.what_changed import MarkedMoment, WhatChangedScreen, clock_text

        box = None
        if self.has_fleet and self.fleet_state is not None and self.target_box is not None:
            box = self.fleet_state.find_box(self.target_box)
        moment = None
        if box is not None:
            moment = self.find_moment(box)
        if box is None or moment is None:
            self.hint(
                translate("no moment here: select an event, or a step of a run that logs its time")
            )
            return
        here = MarkedMoment(box.spec.name, *moment)
        earlier: MarkedMoment | None = getattr(self.app, MARKED, None)
        # Used once: after a comparison, the next press marks a first moment again.
        setattr(self.app, MARKED, None)
        if earlier is None or earlier.box != here.box or earlier.at == here.at:
            setattr(self.app, MARKED, here)
            key = key_for("past.changed")
            self.hint(
                translate(
                    "marked {at} of {box}; {key} at another moment compares",
                    at=clock_text(here.at),
                    box=here.box,
                    key=key,
                ),
                8.0,
            )
        else:
            self.app.push_screen(WhatChangedScreen(self.fleet, earlier, here))

    def _is_replay(self) -> bool:
        """Return whether this is a replay; say so if it is not."""
        if not self._replays:
            self.hint(translate("this is not a replay"))
        return self._replays

    def action_hold_replay(self) -> None:
        """Pause or resume a replay."""
        if not self._is_replay():
            return
        self.fleet.set_playback_paused(not self.fleet.is_playback_paused)
        if self.fleet.is_playback_paused:
            self.hint(translate("paused; {key} resumes", key=key_for("replay.hold")))
        else:
            self.hint(translate("resumed"))
        self.redraw_now()

    def action_pace_replay(self, factor: float) -> None:
        """Change the speed of a replay."""
        if not self._is_replay():
            return
        if math.isfinite(self.fleet.speed):
            now = self.fleet.speed
        else:
            # At full speed there is no number to halve.
            now = SPEEDS[1]
        self.fleet.set_speed(min(SPEEDS[1], max(SPEEDS[0], now * factor)))
        self.redraw_now()

    def action_seek_replay(self, seconds: float) -> None:
        """Go back or forward in a replay."""
        if self._is_replay():
            self.fleet.seek_to(self.fleet.position + seconds)

    def seek_replay(self, spot: ScreenPosition | None) -> None:
        """Go to a time of the recording; None = open the entry for it."""
        if spot is None or spot.at is None:
            self.open_entry(
                translate("go to (02:30, or 30m after the beginning)"), done=self._seek_typed_time
            )
        else:
            self.fleet.seek_to(self.fleet.position + spot.at - self.fleet.now())

    def _seek_typed_time(self, text: str) -> None:
        begin = self.fleet.now() - self.fleet.position
        try:
            from rgt_tui.fleet.history.spoken_times import coming_time

            self.fleet.seek_to(coming_time(text, begin) - begin)
        except ValueError as error:
            self.hint(str(error))

    def find_target(self) -> BoxState | None:
        """Return the box to act on.

        None, with a hint, if there is none or the screen shows the past.
        """
        if self._is_past:
            self.hint(self.fleet.why_nothing)
            return None
        found = None
        if self.has_fleet and self.target_box is not None and self.fleet_state is not None:
            found = self.fleet_state.find_box(self.target_box)
        if found is None:
            self.hint(translate("no box selected"))
        return found

    def action_open_past(self, place: str) -> None:
        """Open the journal or the time machine, for the screen's box or the fleet."""
        if not self.has_fleet:
            self.hint(translate("the fleet has not started yet"))
        else:
            cast("Dashboard", self.app).open_screen(place, self.box_name)

    def action_open_all(self, place: str) -> None:
        """Open a screen for all boxes."""
        if self.has_fleet:
            cast("Dashboard", self.app).open_screen(place, None)

    def action_open_for_box(self, place: str) -> None:
        """Open a screen for the box that the keys act on."""
        if place in OF_ALL_BOXES and self.has_fleet and not self.target_box:
            self.action_open_all(place)
        elif self.target_box is None or not self.has_fleet:
            self.hint(translate("no box selected"))
        else:
            cast("Dashboard", self.app).open_screen(place, self.target_box)
