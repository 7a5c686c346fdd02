"""The base of every screen that shows the fleet: its fixed lines, its keys, how states reach it."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, ClassVar, Protocol, cast, runtime_checkable

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.reactive import reactive
from textual.screen import Screen
from textual.timer import Timer

from rgt_tui.fleet import FleetSource, Playback
from rgt_tui.model.box import BoxState, Link
from rgt_tui.model.fleet import FleetState
from rgt_tui.ui.box_status import Assessment, assess, failed, fleet_parts
from rgt_tui.ui.commands import APP, SCREEN, Command, bindings
from rgt_tui.ui.enduring import Enduring, endured
from rgt_tui.ui.notation import clean, glyphs
from rgt_tui.ui.widgets.fixed_lines import EventLine, HeaderLine, KeyLine, NoticeLine, Parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.widget import Widget

HINT_SECONDS = 4.0
FAR = 1_000_000
"""Lines: from anywhere to the end of any list."""
SPEEDS = (0.125, 1024.0)
"""Between these the pace of a replay can be chosen."""
PACES = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Seconds between samples that a person can choose from."""


@runtime_checkable
class StateSink(Protocol):
    """Anything on top of the screen stack that wants the state at each redraw tick (modal screens, too)."""

    def receive_state(self, state: FleetState, now: float) -> None:
        """Take the newest state; called at most twice a second, also when only time has passed."""
        ...


class Dashboard(Protocol):
    """What a screen asks of the app."""

    def open_screen(self, place: str, box_name: str | None) -> None:
        """Open the screen called `place` for a box."""
        ...

    def begin(self) -> object:
        """Make the fleet and start it."""
        ...

    def ask_next(self, *, again: bool = False) -> bool:
        """Show the oldest question; False when there is none."""
        ...


class Moves:
    """The keys `MOVE` of a screen with lines to move through: all of them follow from `action_move`."""

    @property
    def page_rows(self) -> int:
        """How many lines a page has."""
        raise NotImplementedError

    def action_move(self, count: int) -> None:
        """Move by `count` lines, as far as there are any."""
        raise NotImplementedError

    def action_page(self, count: int) -> None:
        """Move by pages."""
        self.action_move(count * max(1, self.page_rows))

    def action_move_top(self) -> None:
        """Go to the first line."""
        self.action_move(-FAR)

    def action_move_bottom(self) -> None:
        """Go to the last line."""
        self.action_move(FAR)


class FleetAwareScreen(Enduring, Screen[None]):
    """A screen with a summary line on top, and the last event and the keys at the bottom.

    A subclass sets `KEYS` (its own commands), `BINDINGS = bindings(KEYS)`, composes its middle in `body`,
    and draws in `show_state`. It never asks the fleet for anything that waits.
    """

    KEYS: ClassVar[tuple[Command, ...]] = ()
    PLACE: ClassVar[str] = ""
    """Name of the screen in the crumbs and in the help."""
    AUTO_FOCUS: ClassVar[str | None] = None
    BINDINGS: ClassVar[list[BindingType]] = bindings(SCREEN)

    fleet_state: reactive[FleetState | None] = reactive(None, init=False, always_update=True, repaint=False)
    """The newest state; set by the app once per redraw tick."""

    def __init__(self, fleet: FleetSource | None, box_name: str | None = None) -> None:
        super().__init__()
        with contextlib.suppress(ImportError, AttributeError, TypeError):  # another Textual draws by itself
            from rgt_tui.ui.compositing import TightCompositor

            self._compositor = TightCompositor()
        self._fleet = fleet
        self.box_name = box_name
        self._hint_timer: Timer | None = None
        self._verdicts: dict[str, Assessment] = {}

    def verdict(self, box: BoxState) -> Assessment:
        """Judge a box, once per redraw."""
        found = self._verdicts.get(box.spec.name)
        if found is None:
            try:
                found = assess(box, self.now)
            except Exception as error:
                if not endured(self, error):
                    raise
                found = failed(box, error)
            self._verdicts[box.spec.name] = found
        return found

    @property
    def fleet(self) -> FleetSource:
        """The fleet; screens for a box are opened only when there is one."""
        assert self._fleet is not None
        return self._fleet

    @property
    def has_fleet(self) -> bool:
        """False while the fleet is being started."""
        return self._fleet is not None

    def attach(self, fleet: FleetSource) -> None:
        """Take the fleet that was made after the first frame."""
        self._fleet = fleet

    @property
    def notice(self) -> tuple[str, str] | None:
        """What holds for the whole session, and what to do about it; None = nothing."""
        found: tuple[str, str] | None = getattr(self.app, "notice", None)
        return found

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """All commands that work here."""
        return (*cls.KEYS, *SCREEN, *APP)

    def offered(self) -> tuple[Command, ...]:
        """The commands that work here now: without those that stop a meter, where rgt was told to stop none."""
        readonly = bool(getattr(self.app, "readonly", False))
        return tuple(command for command in self.commands() if not (readonly and command.dangerous))

    def compose(self) -> ComposeResult:
        """Lay out the fixed lines around the body."""
        yield HeaderLine()
        if self.notice is not None:
            yield NoticeLine(*self.notice)
        with Vertical(id="body"):
            yield from self.body()
        yield EventLine()
        yield KeyLine(self.offered())

    def on_mount(self) -> None:
        """Say where we are, before there is anything to show."""
        self.query_one(HeaderLine).show(self.crumbs(), [])

    def body(self) -> Iterable[Widget]:
        """Return the widgets between the header and the event line."""
        return ()

    def receive_state(self, state: FleetState, now: float) -> None:
        """Take the state of this redraw tick."""
        self.fleet_state = state

    def watch_fleet_state(self, state: FleetState | None) -> None:
        """Draw what changed."""
        if state is None or not self.is_mounted or not self.has_fleet:
            return
        now = self.now
        self._verdicts.clear()
        crumbs = self.crumbs()
        self.query_one(HeaderLine).show(crumbs, self.summary(state, now))
        self.query_one(EventLine).show(
            state.events, now, self.resting_hint(), getattr(self.app, "seen_at", -math.inf)
        )
        self.query_one(KeyLine).set_badges(*self.badges(state))
        self.show_state(state, now)

    @property
    def now(self) -> float:
        """The client clock of the fleet."""
        return self.fleet.now()

    def show_state(self, state: FleetState, now: float) -> None:
        """Draw the body; implemented by each screen."""

    def redraw_now(self) -> None:
        """Draw the last state again, e.g. after a key changed what is shown."""
        if self.fleet_state is not None:
            self.fleet_state = self.fleet_state

    def crumbs(self) -> tuple[str, ...]:
        """Return where the screen is: ``fleet › box › place``."""
        if self.box_name is None:
            return (self.PLACE,)
        return ("fleet", self.box_name) if self.PLACE == "box" else ("fleet", self.box_name, self.PLACE)

    def summary(self, state: FleetState, now: float) -> Parts:
        """Return the right end of the header: the whole fleet, unless a screen has something nearer."""
        return fleet_parts(state, [self.verdict(box).health for box in state.boxes])

    def badges(self, state: FleetState) -> tuple[str, ...]:
        """Return the words at the right end of the key line."""
        boxes = (
            state.boxes
            if self.box_name is None
            else tuple(b for b in state.boxes if b.spec.name == self.box_name)
        )
        sim = ("SIM GPU",) if any(g.sim for b in boxes if b.sample for g in b.sample.gpus) else ()
        if not isinstance(self._fleet, Playback):
            return sim
        speed = self._fleet.speed
        pace = f" {glyphs().times}{speed:g}" if math.isfinite(speed) else ""
        return (*sim, f"REPLAY{pace}{' paused' if self._fleet.held else ''}")

    def resting_hint(self) -> str:
        """Return what the event line says while nothing has happened."""
        return str(getattr(self.app, "hint_text", "") or "")

    @property
    def box(self) -> BoxState | None:
        """The state of the box that this screen is about, if the fleet has it."""
        if self.box_name is None or self.fleet_state is None:
            return None
        return self.fleet_state.box(self.box_name)

    @property
    def target_box(self) -> str | None:
        """The box that the keys act on."""
        return self.box_name

    def hint(self, text: str, seconds: float = HINT_SECONDS) -> None:
        """Say something on the event line for a moment. Never a pop-up."""
        self.query_one(EventLine).hint(text)
        if self._hint_timer is not None:
            self._hint_timer.stop()
        self._hint_timer = self.set_timer(seconds, lambda: self.query_one(EventLine).hint(None))

    def open_entry(self, label: str, text: str = "") -> None:
        """Open an entry line in place of the event line; it sends `EntryChanged` and `EntryClosed`."""
        from rgt_tui.ui.widgets.fixed_lines import EntryLine

        if not self.query(EntryLine):
            self.mount(EntryLine(label, text), before="#event")

    @property
    def takes_keys(self) -> bool:
        """False while an entry line is being put up or taken away: keys wait for it."""
        return all(getattr(entry, "takes_keys", True) for entry in self.query("EntryLine"))

    def on_screen_resume(self) -> None:
        """Draw at once when the screen comes (back) to the top."""
        if self.has_fleet:
            self.fleet.focus(self.box_name)
        tick = getattr(self.app, "tick", None)
        if tick is not None:
            tick(force=True)

    def action_back(self) -> None:
        """Go back one screen."""
        if len(self.app.screen_stack) > 1:
            self.dismiss()
        else:
            self.hint("ctrl+q quits; the boxes keep running")

    def action_escape(self) -> None:
        """Clear what `clear` finds to clear, else go back; on the first screen the event that stands is seen."""
        if self.clear():
            return
        if len(self.app.screen_stack) > 1:
            self.dismiss()
        elif self.has_fleet:
            setattr(self.app, "seen_at", self.now)  # noqa: B010  (an app of tests has none)
            self.redraw_now()

    def clear(self) -> bool:
        """Clear a filter or a search; return False when there was none."""
        return False

    def action_connect(self) -> None:
        """Connect to the box without waiting for the next try."""
        box = self._target_state()
        if box is None:
            return
        if box.link is Link.LIVE:
            self.hint(f"{clean(box.spec.name)} is already connected")
            return
        if box.link is Link.PAUSED:
            self.fleet.pause(box.spec.name, False)
        else:
            self.fleet.retry(box.spec.name)
        self.hint(f"connecting to {clean(box.spec.name)}")

    def action_pause(self) -> None:
        """Disconnect from the box, or connect again."""
        box = self._target_state()
        if box is None:
            return
        paused = box.link is not Link.PAUSED
        self.fleet.pause(box.spec.name, paused)
        name = clean(box.spec.name)
        self.hint(
            f"disconnected from {name}; its training goes on; P reconnects"
            if paused
            else f"connecting to {name}"
        )

    def action_interval(self) -> None:
        """Use the next pace of samples."""
        box = self._target_state()
        if box is None:
            return
        here = box.interval if box.interval is not None else box.spec.interval
        seconds = next((pace for pace in PACES if pace > here + 0.01), PACES[0])
        self.fleet.set_interval(box.spec.name, seconds)
        self.hint(f"{clean(box.spec.name)}: sampling every {seconds:g} s")

    def action_hold_replay(self) -> None:
        """Let the time of a recording stand still, or go on."""
        if not isinstance(self._fleet, Playback):
            self.hint("this is not a replay")
            return
        self._fleet.hold(not self._fleet.held)
        self.hint("paused; space resumes" if self._fleet.held else "resumed")
        self.redraw_now()

    def action_pace_replay(self, factor: float) -> None:
        """Let the time of a recording pass faster or slower."""
        if not isinstance(self._fleet, Playback):
            self.hint("this is not a replay")
            return
        now = self._fleet.speed if math.isfinite(self._fleet.speed) else SPEEDS[1]
        self._fleet.set_speed(min(SPEEDS[1], max(SPEEDS[0], now * factor)))
        self.redraw_now()

    def _target_state(self) -> BoxState | None:
        found = None
        if self.has_fleet and self.target_box is not None and self.fleet_state is not None:
            found = self.fleet_state.box(self.target_box)
        if found is None:
            self.hint("no box to act on yet")
        return found

    def action_open_for_box(self, place: str) -> None:
        """Open a screen for the box that the keys act on."""
        if self.target_box is None or not self.has_fleet:
            self.hint("no box to act on yet")
        else:
            cast("Dashboard", self.app).open_screen(place, self.target_box)
