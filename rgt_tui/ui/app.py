"""The app: paints the first frame, starts the fleet, passes each new state to the top screen."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol, cast
from weakref import WeakSet

from textual import events, work
from textual._context import active_message_pump
from textual.app import App, ScreenStackError
from textual.binding import Binding
from textual.command import CommandPalette
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen
from textual.theme import Theme
from textual.widget import Widget
from textual.widgets import Input

from rgt_tui.fleet import FirstSteps, FleetSource
from rgt_tui.language import translate
from rgt_tui.model import FleetState, FrozenStruct, LinkState, Profile, ScreenPosition, is_gone
from rgt_tui.ui.box_pulls import BoxPulls
from rgt_tui.ui.clipboard import stretch_wide_text, write_screenshot
from rgt_tui.ui.commands import APP, build_bindings, choose_keys, key_for, screen_class
from rgt_tui.ui.enduring import (
    NO_TERMINAL,
    FaultTolerant,
    append_traceback,
    describe_error,
    report_path,
    shorten_path,
)
from rgt_tui.ui.key_turns import (
    GARBAGE_PACES,
    KEY_PACES,
    KeyTurns,
    QuietGarbage,
    SpareScreens,
    SteadyStylesheet,
    Typed,
    warm_up,
)
from rgt_tui.ui.legends import legend_of
from rgt_tui.ui.mouse import hear_back_button
from rgt_tui.ui.notation import make_displayable
from rgt_tui.ui.preferences import UNCHANGED, Preferences, remember_theme
from rgt_tui.ui.screens.base import FleetAwareScreen, StateSink
from rgt_tui.ui.screens.fleet import FleetScreen
from rgt_tui.ui.terminal_quirks import know_quirks
from rgt_tui.ui.themes import DEFAULT, THEMES, themes_of
from rgt_tui.ui.widgets.fleet_rows.since_lines import AWAY_S, LastActivity, visits_path


class AppPaces(FrozenStruct):
    """How often the app redraws, and how long it shows its messages, in seconds."""

    tick_s: float = 0.5
    """Minimum time between two automatic redraws, however often the fleet sends."""
    stop_s: float = 5.0
    """Seconds that the fleet gets to stop when the app ends."""
    fault_s: float = 30.0
    """How long a failure message is shown; the same one is not repeated within that time."""
    screenshot_s: float = 15.0
    """How long the path of a screenshot is shown."""
    presence_s: float = 30.0
    """How often to check whether the person is away, so that boxes are sampled less often."""
    thread_turn_s: float = 0.0005
    """Python's switch interval while the app runs; its default is 5 ms. The thread that writes to
    the terminal waits that long for a screen that is busy with what follows its paint: with 200
    boxes the median from key to paint was 8 to 10 ms by default, and 5.4 to 5.7 ms with this
    (three rounds in turn)."""


APP_PACES = AppPaces()


LOOKS = (events.Key, events.Paste, events.MouseDown, events.AppFocus)
"""Events that prove that a person is present."""


class SeenPlatforms(Protocol):
    """Remembers which platform pages the person has seen. It may block, so it runs in a worker."""

    async def has_seen(self, profile: Profile) -> bool:
        """Return whether the person has seen the current version of the page."""
        ...

    async def record_seen(self, profile: Profile) -> str | None:
        """Record that the page was shown; return why that failed, or None."""
        ...


def _palette_class() -> type:
    from rgt_tui.ui.palette import PaletteProvider

    return PaletteProvider


class RgtApp(FaultTolerant, App[None]):
    """The terminal dashboard.

    Args:
        make_fleet: Makes the fleet; called after the first frame, so that its imports do not delay
            the start.
        title: Shown by terminals that show a title.
        hint: Shown on the event line until something happens.
        farewell: One line printed after leaving; None lists the boxes that keep running.
        notice: A warning for the whole session and what to do about it, below the header of every
            screen.
        readonly: Offer no action that stops billing.
        preferences: The person's theme and keys.
        remember: The file in which a chosen theme is saved; None = not saved.
        waiting: Shown until the fleet has started; empty = that it connects.
        first_steps: Choices for a first fleet; the fleet is made after one is chosen.
        met: Knows which platform pages the person has seen; None = no page opens by itself.
    """

    CSS_PATH = "app.tcss"
    # A function, which Textual calls when the palette opens: its imports do not delay the first
    # frame.
    COMMANDS: ClassVar = {_palette_class}
    BINDINGS: ClassVar = [
        *build_bindings(APP),
        Binding("ctrl+c", "help_quit", show=False, system=True),
    ]
    ENDURES: ClassVar[bool] = True
    """False lets a fault end the app: the tests of the screens need to see it."""
    # Textual's own theme is the current one until `__init__` has set ours.
    _themed = False
    _coloured: tuple[Theme | None, dict[str, str]] = (None, {})
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"

    def __init__(
        self,
        make_fleet: Callable[[], FleetSource],
        *,
        title: str = "rgt",
        hint: str | None = None,
        farewell: str | None = None,
        notice: tuple[str, str] | None = None,
        waiting: str = "",
        readonly: bool = False,
        preferences: Preferences = UNCHANGED,
        remember: Path | None = None,
        first_steps: FirstSteps | None = None,
        met: SeenPlatforms | None = None,
    ) -> None:
        super().__init__()
        # Textual's driver assumes 80 x 24 for a terminal without a size (0 x 0), Rich 80 x 25.
        # Without this, the screen would be laid out for one and the other in turn, in an endless
        # loop.
        self.console.size = shutil.get_terminal_size()
        self.title = title
        self.hint_text = hint
        self.notice = notice
        self.waiting_text = waiting
        self.readonly = readonly
        self.fleet: FleetSource | None = None
        self.failure: BaseException | None = None
        self._make_fleet = make_fleet
        self._farewell = farewell
        self._newest: FleetState | None = None
        self._drawn: FleetState | None = None
        # Held by `redraw_in_steps`: the timer and `draw_soon` may call it at the same time.
        self._drawn_at = 0.0
        self._beating = asyncio.Lock()
        self._unsubscribe: Callable[[], None] | None = None
        self._stopped = False
        self.starting = True
        """Whether the fleet is still starting, so that an empty fleet means nothing yet."""
        # Ids of questions that were shown once; those open again only by a key.
        self._asked: set[int] = set()
        self.seen_at = -math.inf
        """Client clock up to which the person has marked events as seen."""
        self._garbage = QuietGarbage()
        self._thread_turn_before = sys.getswitchinterval()
        self._keys = KeyTurns(self, self._garbage)
        self.active_at = time.monotonic()
        """When the person last did something (monotonic clock)."""
        self._is_watched = True
        self._spares = SpareScreens(self, self._keys)
        self.pulls = BoxPulls(self)
        self.last_look = LastActivity(self, visits_path(os.environ))
        self._met = met
        self._asked_of: dict[str, bool | None] = {}
        """Whether to show a platform's page, by its id; None = not known yet, or already shown."""
        self.faults: dict[str, float] = {}
        """When each failure was last shown (monotonic clock), by its text."""
        # Where each failure was reported; kept, because a repeated failure is not written again.
        self._reports: dict[str, str] = {}
        self._taken_away: WeakSet[Screen[object]] = WeakSet()
        # Frames of an animation carry no news, and the link may be slow.
        """Screens that failed and are being closed."""
        self.animation_level = "none"
        hear_back_button()
        # Before the driver starts the thread that reads keys.
        know_quirks(self._is_typing)
        for theme in THEMES:
            self.register_theme(theme)
        self.preferences = preferences
        choose_keys(preferences.keys)
        self.first_steps = first_steps
        self._remember = remember
        self.theme = preferences.theme or DEFAULT
        self._themed = True
        self.stylesheet = SteadyStylesheet(variables=self.get_css_variables())
        self.warm: asyncio.Event | None = None
        """Set when every screen opens at full speed; None = the warm-up has not started."""

    def get_css_variables(self) -> dict[str, str]:
        """Return the colours of the theme, computed once per theme.

        Textual's own theme is set before ours; computing its colours would be wasted.
        """
        if self._themed and self._coloured[0] is not self.current_theme:
            self._coloured = (self.current_theme, super().get_css_variables())
        return self._coloured[1]

    def match_terminal(self) -> None:
        # "standard" is Rich's name for 16 colours.
        """Use only colours that this terminal has; call before the app runs."""
        if self.console.color_system == "standard":
            for theme in themes_of(16):
                self.register_theme(theme)
            self.add_class("few-colours")

    async def on_event(self, event: events.Event) -> None:
        """Handle a key or a paste only after everything typed before it has had its effect."""
        if isinstance(event, LOOKS):
            self.last_look.record_activity()
            self._record_presence()
            # Keys that must wait count, too: a collection now would delay them.
            self._garbage.note_input()
        # A forwarded event bubbles up from a widget; it had its turn on its way down.
        if event.is_forwarded or not isinstance(event, Typed) or self._keys.has_turn(event):
            await super().on_event(event)

    def check_presence(self) -> None:
        """Have the boxes sampled less often once the dashboard is not watched.

        A terminal without the focus may still be watched, so the person must also have done nothing
        for `AWAY_S`. A terminal that does not report its focus counts as watched.
        """
        away = not self.app_focus and time.monotonic() - self.active_at >= AWAY_S
        if away and self._is_watched and self.fleet is not None:
            self._is_watched = False
            self.fleet.set_looking(False)

    def _record_presence(self) -> None:
        self.active_at = time.monotonic()
        if not self._is_watched and self.fleet is not None:
            self._is_watched = True
            self.fleet.set_looking(True)

    def get_default_screen(self) -> Screen[None]:
        """Return the fleet screen, which can draw itself without a fleet."""
        return FleetScreen(None)

    def on_mount(self) -> None:
        """Start making the fleet after the first frame."""
        sys.setswitchinterval(APP_PACES.thread_turn_s)
        if self.preferences.keys:
            self.set_keymap(self.preferences.keymap)
        # After the first frame, so that what exists by then is frozen and never traversed again.
        self.call_after_refresh(self._garbage.begin)
        if self.first_steps is None:
            # Not before the first frame: the imports of the fleet would delay it.
            self.call_after_refresh(self.start_fleet)
        else:
            self.push_screen(cast("Screen[None]", screen_class("welcome")(None)))
        self.set_interval(APP_PACES.tick_s, self.redraw_in_steps)
        self.set_interval(GARBAGE_PACES.rest_s, self._garbage.collect_if_due)
        self.set_interval(APP_PACES.presence_s, self.check_presence)
        self.set_timer(KEY_PACES.warm_up_s, self.begin_warm_up)

    def begin_warm_up(self) -> None:
        # Both the timer and the first sample start it.
        """Load in advance what the screens need, so that their first opening is fast."""
        if self.warm is None:
            self.warm = asyncio.Event()
            self._warm_up(self.warm)

    @work(group="warm up", exit_on_error=False, description="load what the screens need")
    async def _warm_up(self, done: asyncio.Event) -> None:
        await warm_up(self, self._keys)
        done.set()
        self.theme_changed_signal.subscribe(self, self._renew_spares)
        self.mount_spares()

    @work(exclusive=True, group="spares", exit_on_error=False, description="mount spare screens")
    async def mount_spares(self) -> None:
        """Mount screens in advance, so that they open fast."""
        if self.fleet is not None:
            await self._spares.mount_missing(self.fleet)

    def _renew_spares(self, theme: Theme) -> None:
        """Mount the spare screens again: in the colours of the new theme."""
        self._spares.drop_all()
        self.mount_spares()

    @property
    def away_since(self) -> float | None:
        """When the person was last active before this visit (client clock); None = unknown."""
        return self.last_look.away_since

    def begin_with(self, make: Callable[[], FleetSource], said: str) -> None:
        """Close the welcome screen, and start the chosen fleet."""
        self._make_fleet = make
        self.hint_text = said
        self.pop_screen()
        self.start_fleet()

    @property
    def farewell_line(self) -> str:
        """The line to print after leaving."""
        if self._farewell is not None:
            return self._farewell
        if self._newest:
            names = [box.spec.name for box in self._newest.boxes]
        else:
            names = []
        if not names:
            return translate("rgt has quit")
        more = ""
        if len(names) > 6:
            more = translate(" and {names} more", names=len(names) - 6)
        return translate(
            "rgt has quit; the boxes keep running: {names}{more}",
            names=", ".join(names[:6]),
            more=more,
        )

    @work(
        exclusive=True, group="fleet", exit_on_error=False, description="make and start the fleet"
    )
    async def start_fleet(self) -> None:
        """Make the fleet and start it; show the error if that fails."""
        self.failure = None
        self.starting = True
        # After a failed start, the command "connect" calls this again with the fleet that exists.
        try:
            fleet = self.fleet
            if fleet is None:
                fleet = self._make_fleet()
                self.fleet = fleet
                self._unsubscribe = fleet.subscribe(self._store_state)
                # Keys go first: a state may wait, a person should not.
                fleet.delay_while_busy(lambda: self._keys.is_busy)
                # The fleet screen was drawn before the fleet existed.
                self._store_state(fleet.state)
            for screen in self.screen_stack:
                if isinstance(screen, FleetScreen):
                    screen.attach_fleet(fleet)
            self.tick(force=True)
            await self.last_look.load_visits(fleet)
            await fleet.start()
            self.starting = False
            self._store_state(fleet.state)
        except Exception as error:  # after any failure the person must be told what to do
            self.failure = error
            for screen in self.screen_stack:
                if isinstance(screen, FleetScreen):
                    screen.show_failure(error)

    def _store_state(self, state: FleetState) -> None:
        """Keep the newest state until the next redraw tick."""
        # Stored only: it is drawn with the next tick, however many states arrive until then.
        self._newest = state

    @property
    def shown_fleet(self) -> FleetSource | None:
        """The fleet shown by the top screens: the live one, or an earlier moment of it."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, FleetAwareScreen) and screen.has_fleet:
                return screen.fleet
        return self.fleet

    @work(group="beat", exit_on_error=False, description="draw waiting updates")
    async def draw_soon(self) -> None:
        """Draw the newest state on the top screen as `redraw_in_steps` does.

        The old frame stays until then.
        """
        await self.redraw_in_steps(force=True)

    async def redraw_in_steps(self, *, force: bool = False) -> None:
        """Redraw like `tick`, but in steps, so that keys pressed meanwhile are handled first."""
        async with self._beating:  # two at once would assess the same boxes twice
            await self._redraw_locked(force=force)

    async def _redraw_locked(self, *, force: bool) -> None:
        due = self._find_due_state(force=force)
        if due is None:
            return
        # A key between two steps may close the screen, so it is compared again below.
        top = self.screen
        if isinstance(top, FleetAwareScreen) and top.has_fleet:
            try:
                await self._keys.run_between_keys(top.assess_in_steps(*due))
            except Exception as error:
                if not self.report_screen_fault(top, error):
                    raise
        if top is self.screen:  # another screen has drawn the state when it opened
            self._pass_state(*due)

    def _find_due_state(self, *, force: bool = False) -> tuple[FleetState, float] | None:
        """Return the state to draw and the time, if either has changed enough; else None."""
        source = self.shown_fleet
        if source is None or self._newest is None or not self.is_running:
            return None
        is_now = source is self.fleet
        # The state of an earlier moment does not change by itself.
        now, newest = source.now(), self._newest if is_now else source.state
        # Ages are redrawn this often even if nothing arrives.
        age_seconds = 1.0
        # A quarter of a tick of tolerance: a timer that fires slightly early must not wait for the
        # next.
        aged = not 0 <= now - self._drawn_at < age_seconds - APP_PACES.tick_s / 4
        if force or newest is not self._drawn or (aged and is_now):
            return (newest, now)
        return None

    def tick(self, *, force: bool = False) -> None:
        """Pass the newest state to the top screen, if it or the time has changed."""
        due = self._find_due_state(force=force)
        if due is not None:
            self._pass_state(*due)

    def _pass_state(self, newest: FleetState, now: float) -> None:
        if not self.is_running:
            return
        # A box that left the fleet file still exists in the past.
        is_now = self.shown_fleet is self.fleet
        if is_now:
            self._close_removed_boxes(newest)
        top = self.screen
        if isinstance(top, FleetAwareScreen) or isinstance(top, StateSink):  # noqa: SIM101  (the first is quick)
            # Set first: a state that fails to be drawn is not tried again at every tick.
            self._drawn, self._drawn_at = newest, now
            try:
                top.receive_state(newest, now)
            except Exception as error:
                if not (isinstance(top, MessagePump) and self.report_screen_fault(top, error)):
                    raise
        if is_now and not self.show_next_question():
            self.introduce()
        # The first sample has been drawn: loading modules delays nothing that a person waits for.
        if self.warm is None and any(box.sample is not None for box in newest.boxes):
            self.begin_warm_up()

    def _close_removed_boxes(self, state: FleetState) -> None:
        """Close the screens of a box that is no longer in the fleet file, with a hint."""
        name = getattr(self.screen, "box_name", None)
        if (
            not isinstance(name, str)
            or state.find_box(name) is not None
            # The `box_name` of the fleet screen is its selection; it selects another one itself.
            or self.screen is self.screen_stack[0]
        ):
            return
        # One screen per call: if the one below shows the same box, the next state closes it.
        self.pop_screen()
        cast("FleetAwareScreen", self.screen_stack[0]).hint(
            translate("{name} is no longer in the fleet file", name=name)
        )

    def _is_typing(self) -> bool:
        """Return whether the keyboard goes into an entry.

        Called in the thread that reads the terminal, where Textual knows no active app.
        """
        with contextlib.suppress(ScreenStackError):
            return isinstance(self.focused, Input)
        return False

    def introduce(self) -> None:
        """Open the page of an unseen platform, once one of its boxes has answered."""
        state, fleet = self._newest, self.fleet
        if self._met is None or state is None or fleet is None or not self.is_running:
            return
        # As for a question: elsewhere, the page would interrupt something.
        if getattr(self.screen, "PLACE", "") not in {"fleet", "box"} or isinstance(
            self.focused, Input
        ):
            return
        for box in state.boxes:
            if box.link is not LinkState.LIVE or (box.hello is None and box.sample is None):
                continue
            profile = fleet.profile_of(box.spec.name)
            if profile.id not in self._asked_of:
                # Set before the worker runs, so that the next state does not start a second one.
                self._asked_of[profile.id] = None
                self.check_platform_seen(profile)
            elif self._asked_of[profile.id]:
                self._asked_of[profile.id] = None
                self.open_screen("first contact", box.spec.name)
                return

    @work(group="met", exit_on_error=False, description="ask whether a platform was met")
    async def check_platform_seen(self, profile: Profile) -> None:
        """Check whether to show the page of a platform."""
        assert self._met is not None
        self._asked_of[profile.id] = not await self._met.has_seen(profile)

    def platform_seen(self, profile: Profile) -> None:
        """Record that the person has seen the page of a platform."""
        self._asked_of[profile.id] = None
        if self._met is not None:
            self.save_platform_seen(profile)

    @work(group="met", exit_on_error=False, description="remember that a platform was met")
    async def save_platform_seen(self, profile: Profile) -> None:
        """Save it; show a hint on failure, because the page will open again."""
        assert self._met is not None
        if (trouble := await self._met.record_seen(profile)) is not None:
            cast("FleetAwareScreen", self.screen).hint(
                translate("could not save that it was read: {trouble}", trouble=trouble)
            )

    def show_next_question(self, *, again: bool = False) -> bool:
        """Show the oldest question that was not postponed; with `again`, postponed ones, too.

        A question opens by itself only over the fleet and the box screen, and never while the
        person types into an entry.
        """
        state = self._newest
        if state is None or self.fleet is None or not self.is_running:
            return False
        # Only those that still wait: an id is forgotten with its question.
        self._asked &= {question.id for question in state.questions}
        waiting = [
            question for question in state.questions if again or question.id not in self._asked
        ]
        top = self.screen
        if (
            not waiting
            or getattr(top, "PLACE", "") not in {"fleet", "box"}
            or isinstance(self.focused, Input)
        ):
            return bool(waiting)
        from rgt_tui.ui.screens.question import QuestionScreen

        self._asked.add(waiting[0].id)
        # A question that opens by itself must not be answered by keys that were already typed.
        self.push_screen(QuestionScreen(self.fleet, waiting[0], unasked=not again))
        return True

    def report_screen_fault(
        self, who: MessagePump, error: Exception, *, opening: bool = False
    ) -> bool:
        """Report that a screen or widget failed, and go on; return False if the app cannot."""
        gone = isinstance(error, OSError) and error.errno in NO_TERMINAL
        # Without a terminal the message is not seen, and every repaint would fail again.
        if not self.ENDURES or gone or not self.is_running or not self._dom_ready:
            return False
        try:
            if isinstance(who, Widget):
                screen = who.screen
            else:
                screen = self.screen
        except Exception:  # it was just removed
            screen = self.screen
        place = str(getattr(screen, "PLACE", "")) or "a dialog"
        if screen in self._taken_away:
            return True  # a consequence of the fault that closed it
        # A screen without an event line could not show the message.
        stays = not isinstance(screen, ModalScreen) and bool(screen.query("#event"))
        # The lowest screen cannot be closed: the app would have none.
        stays = screen is self.screen_stack[0] or (stays and not (opening and who is screen))
        where = translate("this screen") if stays else place
        failed = translate("{where} failed: {error}", where=where, error=describe_error(error))
        said, now = self.faults.get(failed), time.monotonic()
        # Maximum different failures that are reported to a file.
        most_faults = 100
        if said is None and len(self.faults) < most_faults:
            self.log.error(failed)
            path = report_path(os.environ)
            if append_traceback(path, f"{place}: {type(who).__name__}", error):
                where = translate("reported in {path}", path=shorten_path(path))
            else:
                where = translate("and {path} cannot be written", path=shorten_path(path))
            self._reports[failed] = where
        if not stays:
            self._taken_away.add(screen)
        # The same failure at every redraw would hide all other hints.
        elif said is not None and now - said < APP_PACES.fault_s:
            return True
        self.faults[failed] = now
        # Later: in the middle of a failed handler the screen must not be removed.
        self.call_later(self._show_screen_failure, screen, failed)
        return True

    def _show_screen_failure(self, screen: Screen[object], failed: str) -> None:
        """Show on the event line that a screen failed; close it if it did not open, or is a dialog.

        A dialog that is not shown completely must not be answered.
        """
        unreported = translate("not reported: 100 others were")
        text = f"{failed}, {self._reports.get(failed, unreported)}"
        # Another screen may have opened above it meanwhile; that one must stay.
        if screen in self._taken_away and screen is self.screen:
            with contextlib.suppress(Exception):
                self.pop_screen()
        try:
            cast("FleetAwareScreen", self.screen).hint(text, APP_PACES.fault_s)
        # The screen with the event line may be the broken one.
        except Exception:
            self.notify(
                make_displayable(text), severity="error", timeout=APP_PACES.fault_s, markup=False
            )

    def _handle_exception(self, error: Exception) -> None:
        """Go on after an error that Textual caught in a timer, a callback or its own widgets."""
        if not self.report_screen_fault(active_message_pump.get(self), error):
            super()._handle_exception(error)

    def open_screen(
        self, place: str, box_name: str | None, spot: ScreenPosition | None = None
    ) -> None:
        """Open a screen, at a spot if it supports that."""
        source = self.shown_fleet
        if source is None:
            return
        # The time machine is below every screen of the past; a second one would show the past of
        # the past.
        if source.shows_past_moment and place == "time machine":
            self._return_to_moment(spot)
            return
        if source.plays_back and place == "time machine":
            cast("FleetAwareScreen", self.screen).seek_replay(spot)
            return
        if source.why_nothing and place == "teardown":
            cast("FleetAwareScreen", self.screen).hint(source.why_nothing)
            return
        if self.readonly and place == "teardown":
            self._hint_readonly()
            return
        if box_name is not None:
            box = source.state.find_box(box_name)
        else:
            box = None
        # A machine that is gone needs no teardown; its receipt lists what it cost.
        if place == "teardown" and box is not None and is_gone(box.meter):
            from rgt_tui.ui.screens.receipt import ReceiptScreen

            self.push_screen(ReceiptScreen(source, box.spec.name))
            return
        screen: Screen[None] | None = self._spares.take_spare(place, source, box_name)
        if screen is None:
            make = cast("Callable[[FleetSource, str | None], Screen[None]]", screen_class(place))
            screen = make(source, box_name)
        else:
            self.mount_spares()
        if spot is not None and isinstance(screen, FleetAwareScreen):
            screen.spot = spot
        self.push_screen(screen)

    def _return_to_moment(self, spot: ScreenPosition | None) -> None:
        """Return to the time machine below, and to another moment if the spot has one."""
        from rgt_tui.ui.screens.time_machine import TimeMachineScreen

        while not isinstance(self.screen, TimeMachineScreen) and len(self.screen_stack) > 1:
            self.pop_screen()
        top = self.screen
        if isinstance(top, TimeMachineScreen) and spot is not None and spot.at is not None:
            top.go_to_time(spot.at)

    def return_to(self, place: str, box_name: str | None) -> None:
        """Close the screens above a screen; if it is not open, open it over the fleet."""
        while len(self.screen_stack) > 1:
            top = self.screen
            if getattr(top, "PLACE", "") == place and getattr(top, "box_name", None) == box_name:
                return
            self.pop_screen()
        if place != "fleet":
            self.open_screen(place, box_name)

    def _hint_readonly(self) -> None:
        hint = getattr(self.screen, "hint", None)
        if callable(hint):
            hint(translate("rgt was started with --readonly: it sends no billing action"))

    def action_help(self) -> None:
        """Show the keys of the top screen."""
        from rgt_tui.ui.screens.help import HelpScreen

        screen = self.screen
        if isinstance(screen, HelpScreen):
            return
        place = str(getattr(screen, "PLACE", ""))
        if isinstance(screen, FleetAwareScreen):
            offered = screen.offered()
            without = len(screen.commands()) - len(offered)
            # The help counts the keys that are hidden because they have no use now.
            self.push_screen(HelpScreen(offered, place, screen.build_legend(), without))
            return
        own = getattr(screen, "commands", None)
        commands = tuple(map(self.preferences.apply_keys, own() if callable(own) else APP))
        self.push_screen(HelpScreen(commands, place, legend_of(place)))

    def action_next_theme(self) -> None:
        """Switch to the next theme."""
        names = [theme.name for theme in THEMES]
        if self.theme in names:
            here = names.index(self.theme)
        else:
            here = -1
        self.theme = names[(here + 1) % len(names)]
        if self._remember is None:
            self._hint_below_dialog(
                translate("theme {theme}", theme=self.theme), APP_PACES.screenshot_s
            )
        else:
            self._save_theme(self._remember, self.theme)

    @work(exclusive=True, group="theme", exit_on_error=False, description="remember the theme")
    async def _save_theme(self, path: Path, theme: str) -> None:
        await asyncio.sleep(0)  # if the key is pressed twice, the second press wins
        self._hint_below_dialog(
            await asyncio.to_thread(remember_theme, path, theme), APP_PACES.screenshot_s
        )

    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        """Write the screen as SVG to the first writable directory, and show the path."""
        # Exported before the worker starts: the picture shows the moment when the key was pressed.
        svg, hint = self.export_screenshot(), getattr(self.screen, "hint", None)
        self._put_screenshot(svg, hint if callable(hint) else self._hint_below_dialog)

    def _hint_below_dialog(self, text: str, seconds: float) -> None:
        """Show a hint on the event line of the screen below a dialog."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, FleetAwareScreen):
                screen.hint(text, seconds)
                return

    @work(group="screenshot", exit_on_error=False, description="write a screenshot")
    async def _put_screenshot(self, svg: str, say: Callable[[str, float], None]) -> None:
        """Write a screenshot in a thread, because the disk may be slow."""
        say(await asyncio.to_thread(write_screenshot, svg, os.environ), APP_PACES.screenshot_s)

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Return the screen as an SVG picture, with room for wide characters."""
        return stretch_wide_text(super().export_screenshot(title=title, simplify=simplify))

    def action_command_palette(self) -> None:
        """Open the palette, with its prompt in the person's language."""
        if not CommandPalette.is_open(self.app):
            self.push_screen(
                CommandPalette(
                    id="--command-palette", placeholder=translate("Search for commands…")
                )
            )

    def action_help_quit(self) -> None:
        """Handle ctrl+c: show on the event line how to quit."""
        hint = getattr(self.screen, "hint", None)
        if callable(hint):
            hint(translate("{key} quits; the boxes keep running", key=key_for("app.quit")))

    async def action_quit(self) -> None:
        """Disconnect and quit. The boxes keep running."""
        await self.stop_fleet()
        self.exit()

    async def on_unmount(self) -> None:
        """Disconnect also if the app ends in another way."""
        await self.stop_fleet()
        self._garbage.end()
        sys.setswitchinterval(self._thread_turn_before)

    async def stop_fleet(self) -> None:
        """Stop the fleet once; a fleet that hangs is abandoned after `AppPaces.stop_s`."""
        # Both the key and the unmounting lead here.
        if self._stopped:
            return
        self._stopped = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        await self.last_look.save_visits()
        if self.fleet is not None:
            try:
                # Bounded: a hanging connection must not keep the person from leaving.
                await asyncio.wait_for(self.fleet.stop(), APP_PACES.stop_s)
            # Leaving must succeed, so the error only goes to the log.
            except Exception as error:
                self.log.error(f"the fleet did not stop cleanly: {error!r}")
