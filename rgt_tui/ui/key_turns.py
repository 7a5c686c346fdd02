"""Key turns: handles keys in order, paints them before garbage collection, and prepares screens.

A terminal may deliver several keys at once (fast typing, ``tmux send-keys``, a slow link), while a
screen or an entry line needs several turns of the event loop to open. Without this, the letters
after ``/`` would be commands of the screen below: ``/Demo`` would open the teardown.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from textual import events
from textual.app import ScreenStackError
from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.widget import Widget

from rgt_tui.model import FrozenStruct

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode
    from textual.message_pump import MessagePump

    from rgt_tui.fleet import FleetSource
    from rgt_tui.ui.screens.base import FleetAwareScreen


Typed = events.Key | events.Paste


class KeyPaces(FrozenStruct):
    """How keys and incoming data take turns, in seconds."""

    longest_s: float = 5.0
    """After this many seconds, keys for a screen that is not ready are dropped instead of sent to
    the one below."""
    between_s: float = 0.002
    """Pause between two slices, in which a key can reach the app."""
    held_s: float = 0.25
    """Data is delayed at most this long while a key is held down."""
    warm_up_s: float = 10.0
    """Seconds after the start at which the warm-up begins even if no box has sent anything."""

    spare_s: float = 0.05
    """Pause before a spare screen is mounted: the next key comes first, a held one is not delayed.
    """


KEY_PACES = KeyPaces()

LEAVE = "ctrl+q"
"""Handled at once: quitting never waits."""
BEYOND_SCREENS = (
    "rgt_tui.ui.palette",
    "rgt_tui.ui.plot.board",
    "rgt_tui.ui.screens.help",
    "rgt_tui.ui.screens.question",
)
"""Modules that keys need besides the screens of a fleet."""


class KeyTurns:
    """Lets an app's keys through one at a time.

    Args:
        app: Its screens and entries have a property ``takes_keys`` that is False while they are not
            ready.
        garbage: Not collected between a key and its paint.
        clock: Monotonic, in seconds.
    """

    def __init__(
        self, app: App[None], garbage: QuietGarbage, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._app = app
        self._garbage = garbage
        self._clock = clock
        self._waiting: deque[Typed] = deque()
        self._next: Typed | None = None
        self._settling: asyncio.Task[None] | None = None

    def has_turn(self, event: Typed) -> bool:
        """Return whether `event` may be handled now.

        Otherwise it is queued and posted again later.
        """
        if isinstance(event, events.Key) and event.key == LEAVE:
            return True
        app = self._app
        try:
            target = app.focused or app.screen
        except ScreenStackError:
            return True  # the app is ending
        its_turn = event is self._next
        if its_turn:
            self._next = None
        elif self._settling is not None or self._next is not None:
            self._waiting.append(event)
            return False
        elif not self._is_ready():
            self._waiting.append(event)
        else:
            its_turn = True
        self._garbage.delay_small()
        self._settling = asyncio.create_task(self._wait_for_effect(target), name="keys in turn")
        return its_turn

    async def _wait_for_effect(self, target: DOMNode) -> None:
        """Wait until a key sent to `target` has had its full effect, then release the next one."""
        try:
            async with asyncio.timeout(KEY_PACES.longest_s):
                # A key goes from the app to the focused widget, and bubbles from there up to the
                # app, which acts on it.
                await _wait_for_messages(self._app, self._app)
                for pump in target.ancestors_with_self:
                    await _wait_for_messages(pump, self._app)
                # Textual sends no message when a screen has become ready, so it is polled.
                look_s = 0.01
                while not self._is_ready():  # noqa: ASYNC110  (nothing tells when a screen stands)
                    await asyncio.sleep(look_s)
                # A new widget asks the app for the focus.
                await _wait_for_messages(self._app, self._app)
                if not self._waiting:
                    paint_now(self._app)
                    await _wait_for_messages(self._app.screen, self._app)
        except TimeoutError:
            if not self._is_ready():
                # Sent late, they would act on the screen that opens then.
                self._waiting.clear()
        finally:
            self._settling = None
            if self._waiting:
                self._next = self._waiting.popleft()
                # Through the queue again: `has_turn` recognizes it by identity.
                self._app.post_message(self._next)
            else:
                # Delay after a paint: its bytes are in the terminal by then, and garbage can be
                # collected.
                written_s = 0.01
                asyncio.get_running_loop().call_later(written_s, self._resume_collection)

    def _resume_collection(self) -> None:
        if not self.is_busy:
            self._garbage.resume_small()

    @property
    def is_busy(self) -> bool:
        """Whether a key is still being handled or painted."""
        return self._settling is not None or self._next is not None

    async def run_between_keys(self, steps: Iterable[object]) -> None:
        """Run the steps of a drawing in time slices, so that keys pressed meanwhile come first."""
        await self._painted_all()
        # Maximum time that drawing data blocks the event loop at a time.
        slice_s = 0.004
        until = self._clock() + slice_s
        for _ in steps:
            if self._clock() < until:
                continue
            await asyncio.sleep(KEY_PACES.between_s)
            await self._painted_all()
            until = self._clock() + slice_s
        await self._painted_all()

    async def _painted_all(self) -> None:
        """Wait until every key is painted, at most `KeyPaces.held_s` in case one is held down."""
        latest = self._clock() + KEY_PACES.held_s
        while self.is_busy and self._clock() < latest:  # noqa: ASYNC110  (keys come from outside)
            await asyncio.sleep(KEY_PACES.between_s)

    def _is_ready(self) -> bool:
        try:
            screen = self._app.screen
        except ScreenStackError:
            return True  # the app is ending
        return screen.is_mounted and bool(getattr(screen, "takes_keys", True))


def paint_now(app: App[None]) -> None:
    """Paint the top screen now instead of with Textual's next frame, up to 1/60 s later.

    It uses a private method of Textual 8; without it, Textual paints with its next frame.
    """
    paint = getattr(app.screen, "_on_timer_update", None)
    if callable(paint):
        app.screen.call_later(paint)


async def _wait_for_messages(pump: MessagePump, app: App[None]) -> None:
    """Wait until `pump` has handled all messages sent to it so far, or was removed."""
    done = asyncio.Event()
    # False: the pump is closing, so nothing will be handled any more.
    if not pump.call_later(done.set):
        return
    while pump.is_running and (pump is app or pump.is_attached):
        try:
            # In short waits: a widget that is removed meanwhile never handles the call.
            await asyncio.wait_for(done.wait(), 0.1)
        except TimeoutError:
            continue
        return


class GarbagePaces(FrozenStruct):
    """When garbage is collected, so that no collection delays a key."""

    never: int = 1 << 30
    """Threshold that prevents automatic collections of the oldest generation."""
    middle: int = 1
    """Collections of the youngest generation before one of the middle generation."""
    full_s: float = 60.0
    """Seconds between two full collections while the person does not type."""
    latest_s: float = 600.0
    """A full collection takes place after this time even while typing, so that memory stays
    bounded."""
    small_s: float = 2.0
    """Maximum delay in seconds of the smaller collections while keys follow each other without a
    pause."""
    rest_s: float = 3.0
    """Seconds without a key after which the person is not typing."""


GARBAGE_PACES = GarbagePaces()


class QuietGarbage:
    """Runs full garbage collections while no key is typed, and delays smaller ones for paints.

    The objects that exist at the beginning are frozen, and so are those left after the first full
    collection, which are mostly modules loaded after the first frame: traversing them takes 0.1 s.

    Args:
        clock: Monotonic, in seconds.
        collect: Runs a full collection.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        collect: Callable[[], object] = gc.collect,
    ) -> None:
        self._clock = clock
        self._collect = collect
        self._before: tuple[int, int, int] | None = None
        self._typed_at = -math.inf
        self._looked_at = -math.inf
        self._loaded = False
        """Whether there was a full collection since the beginning."""
        self._waits_since = -math.inf

    def begin(self) -> None:
        """Disable automatic full collections, and freeze the existing objects.

        Small collections are enabled, even if they were off before.
        """
        if self._before is None:
            self._before = gc.get_threshold()
            self._looked_at = self._clock()
            self._loaded = False
            gc.freeze()
            gc.set_threshold(self._before[0], GARBAGE_PACES.middle, GARBAGE_PACES.never)
            gc.enable()

    def note_input(self) -> None:
        """Record that the person pressed or clicked something."""
        self._typed_at = self._clock()

    def delay_small(self) -> None:
        """Disable smaller collections: opening a screen creates enough objects for several."""
        if self._before is None:
            return
        now = self._clock()
        if gc.isenabled():
            self._waits_since = now
            gc.disable()
        elif now - self._waits_since >= GARBAGE_PACES.small_s:
            gc.enable()

    def resume_small(self) -> None:
        """Enable smaller collections again; one that is due runs at the next allocation."""
        if self._before is not None:
            gc.enable()

    def collect_if_due(self) -> bool:
        """Run a full collection if it is due and delays no key; return whether it ran."""
        now = self._clock()
        since = now - self._looked_at
        due = since >= GARBAGE_PACES.full_s and now - self._typed_at >= GARBAGE_PACES.rest_s
        if self._before is None or not (due or since >= GARBAGE_PACES.latest_s):
            return False
        self._collect()
        if not self._loaded:
            self._loaded = True
            gc.freeze()
        self._looked_at = self._clock()
        return True

    def end(self) -> None:
        """Restore the collector's original settings."""
        if self._before is not None:
            gc.enable()
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None


# Loads modules and parses style sheets in idle time, so that opening a screen for the first time is
# fast.
#
# Without this, opening a box for the first time took three times as long as the second time. It
# starts when the boxes are drawn, so that it delays neither the first frame nor the first sample.
# Nothing depends on it: a screen that opens earlier loads its modules itself.


class SteadyStylesheet(Stylesheet):
    """A style sheet that is parsed again only if its colours changed.

    Textual parses everything twice at the start, and again for each new widget once there are many.
    """

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        # Textual caches 64: with more, each new widget would make it parse all of them again.
        most_sheets = 512
        self._parse_cache = LRUCache(most_sheets)

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set the colours."""
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        """Parse the rules that are not parsed in these colours yet."""
        self.parse()


def screen_modules() -> tuple[str, ...]:
    """Return the modules of all screens that a key opens, the most frequent ones first."""
    from rgt_tui.ui.commands import SCREENS

    return (*dict.fromkeys(module for _, module, _ in SCREENS.values()), *BEYOND_SCREENS)


def preload_modules(modules: tuple[str, ...]) -> None:
    """Import modules, and build their caches.

    Errors are left to the screen that needs the module.
    """
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    with contextlib.suppress(Exception):
        from rgt_tui.ui.line_finder import error_finder

        error_finder()


def list_widget_classes() -> list[type[Widget]]:
    """Return the widget classes in the loaded modules of the screens."""
    named = [module for name, module in sys.modules.items() if name.startswith("rgt_tui.ui.")]
    found = (value for module in named for value in vars(module).values())
    return list(
        dict.fromkeys(one for one in found if isinstance(one, type) and issubclass(one, Widget))
    )


def parse_in_steps(sheet: Stylesheet) -> Iterator[None]:
    """Parse the style sheets of all loaded widgets step by step, then add them to `sheet`.

    `sheet` is unchanged until the end: otherwise the next redraw would parse all of it at once.
    """
    sources = {}
    for widget in list_widget_classes():
        for place, css, tie_breaker, scope in widget._get_default_css(widget.__new__(widget)):
            sources[place, tie_breaker] = (css, scope)
    for (place, tie_breaker), (css, scope) in sources.items():
        if place not in sheet.source:
            sheet._parse_rules(
                css, place, is_default_rules=True, tie_breaker=tie_breaker, scope=scope
            )
            yield
    for (place, tie_breaker), (css, scope) in sources.items():
        sheet.add_source(
            css, read_from=place, is_default_css=True, tie_breaker=tie_breaker, scope=scope
        )
    if sheet._require_parse:
        sheet.parse()


async def warm_up(app: App[None], keys: KeyTurns) -> None:
    """Load and parse what an app's screens need; keys pressed meanwhile come first."""
    await asyncio.to_thread(preload_modules, screen_modules())
    # another version of Textual parses on demand
    with contextlib.suppress(AttributeError, TypeError):
        await keys.run_between_keys(parse_in_steps(app.stylesheet))


SPARE_PLACES = ("box", "curves", "log")
"""Screens that are kept mounted, the most frequent first. Their widgets depend on no box."""


class SpareScreens:
    """Mounts screens before a key opens them, so that the key only has to draw and paint them.

    Mounting a box's screen was 6 of the 13 ms between the key and the paint. A spare is used once,
    so each opening still begins with a new screen. It uses a private method of Textual 8; without
    it, screens are mounted when they are opened.

    Args:
        app: The app that the screens are mounted in.
        keys: Its keys, which come first.
    """

    def __init__(self, app: App[None], keys: KeyTurns) -> None:
        self._app = app
        self._keys = keys
        self._ready: dict[str, FleetAwareScreen] = {}

    def take_spare(
        self, place: str, fleet: FleetSource, box_name: str | None
    ) -> FleetAwareScreen | None:
        """Return a mounted screen for a box, to be pushed; None if no spare is ready."""
        spare = self._ready.get(place)
        if spare is None or not spare.is_mounted:
            return None
        del self._ready[place]
        spare.show_for(fleet, box_name)
        return spare

    async def mount_missing(self, fleet: FleetSource) -> None:
        """Mount the missing spares, each after the pending keys are painted."""
        from rgt_tui.ui.commands import screen_class

        for place in SPARE_PLACES:
            if place in self._ready:
                continue
            await asyncio.sleep(KEY_PACES.spare_s)
            await self._keys.run_between_keys(())
            make = cast("Callable[[FleetSource, None], FleetAwareScreen]", screen_class(place))
            # Another version of Textual mounts a screen when it is pushed.
            with contextlib.suppress(AttributeError, TypeError):
                spare = make(fleet, None)
                self._app._register(self._app, spare)
                self._ready[place] = spare

    def drop_all(self) -> None:
        """Remove the spares: their styles are those of an old theme."""
        spares, self._ready = self._ready, {}
        for spare in spares.values():
            spare.remove()
