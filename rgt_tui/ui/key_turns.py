"""Keys come first: handled one after another, painted before garbage is collected or a screen is loaded ahead.

A terminal hands over a burst (fast hands, ``tmux send-keys``, a slow link) at once, while a screen or an entry line
needs several turns of the event loop to stand. Without this, the letters behind ``/`` would be commands of the
screen below: ``/Demo`` would open the teardown.
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
from typing import TYPE_CHECKING

from textual import events
from textual.app import ScreenStackError
from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode
    from textual.message_pump import MessagePump


Typed = events.Key | events.Paste
LONGEST_S = 5.0
"""Keys for what does not stand by then go nowhere, rather than to the screen below."""
LEAVE = "ctrl+q"
"""Waits for nothing: whoever wants to leave, leaves."""
_LOOK_S = 0.01
SLICE_S = 0.004
"""So long the drawing of data holds the loop at a time."""
BETWEEN_S = 0.002
"""Between two slices: a key that has come gets through to the app."""
HELD_S = 0.25
"""Data wait no longer than this for the keys of somebody who holds one down."""
WRITTEN_S = 0.01
"""Behind a paint: by then its bytes are in the terminal, and garbage may be looked for."""
MOST_SHEETS = 512
"""Textual keeps 64: with one more, each new widget would let it parse all of them again."""
TURN_S = 0.0005
"""So long the thread that loads goes on while the screens have something to do; by itself Python lets it for 5 ms."""
LATEST_S = 10.0
"""Seconds after the start at which it begins even though no box has sent anything."""
BEYOND_SCREENS = (
    "rgt_tui.ui.palette",
    "rgt_tui.ui.plot.board",
    "rgt_tui.ui.screens.help",
    "rgt_tui.ui.screens.question",
)
"""What keys open besides the screens of a fleet."""


class KeyTurns:
    """Lets the keys of an app through one by one.

    Args:
        app: A screen or an entry in it that is not ready yet says so by a property ``takes_keys``.
        garbage: Is not looked for between a key and its paint.
        clock: Seconds, monotonic.
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
        """Say whether `event` may go on now; else it is kept, and posted to the app again when its turn comes."""
        if isinstance(event, events.Key) and event.key == LEAVE:
            return True
        its_turn = event is self._next
        if its_turn:
            self._next = None
        elif self._settling is not None or self._next is not None:
            self._waiting.append(event)
            return False
        elif not self._ready():
            self._waiting.append(event)
        else:
            its_turn = True
        app = self._app
        self._garbage.wait()
        self._settling = asyncio.create_task(
            self._settle(app.focused or app.screen), name="keys in turn"
        )
        return its_turn

    async def _settle(self, target: DOMNode) -> None:
        """Wait until a key that goes to `target` has done all that it does, then give the next one its turn."""
        try:
            async with asyncio.timeout(LONGEST_S):
                # A key goes from the app to what has the focus, and from there up to the app, which acts on it.
                await _passed(self._app, self._app)
                for pump in target.ancestors_with_self:
                    await _passed(pump, self._app)
                while not self._ready():  # noqa: ASYNC110  (nothing tells when a screen stands)
                    await asyncio.sleep(_LOOK_S)
                # A widget that has just been put up asks the app for the focus.
                await _passed(self._app, self._app)
                if not self._waiting:
                    paint_now(self._app)
                    await _passed(self._app.screen, self._app)
        except TimeoutError:
            if not self._ready():
                self._waiting.clear()
        finally:
            self._settling = None
            if self._waiting:
                self._next = self._waiting.popleft()
                self._app.post_message(self._next)
            else:
                asyncio.get_running_loop().call_later(WRITTEN_S, self._painted)

    def _painted(self) -> None:
        if not self.busy:
            self._garbage.go_on()

    @property
    def busy(self) -> bool:
        """Whether a key is still to do what it does, or to be painted."""
        return self._settling is not None or self._next is not None

    async def behind(self, steps: Iterable[object]) -> None:
        """Go through the steps of what has to be drawn, a slice at a time: keys that come meanwhile are first."""
        await self._painted_all()
        until = self._clock() + SLICE_S
        for _ in steps:
            if self._clock() < until:
                continue
            await asyncio.sleep(BETWEEN_S)
            await self._painted_all()
            until = self._clock() + SLICE_S
        await self._painted_all()

    async def _painted_all(self) -> None:
        """Wait until no key is to be painted, or somebody holds one down for long."""
        latest = self._clock() + HELD_S
        while self.busy and self._clock() < latest:  # noqa: ASYNC110  (keys come from outside)
            await asyncio.sleep(BETWEEN_S)

    def _ready(self) -> bool:
        try:
            screen = self._app.screen
        except ScreenStackError:
            return True  # the app ends
        return screen.is_mounted and bool(getattr(screen, "takes_keys", True))


def paint_now(app: App[None]) -> None:
    """Paint what the screen on top has to paint, instead of with Textual's next frame, up to a 60th of a second later.

    It builds on a private method of Textual 8; where there is none, the frame comes when it comes.
    """
    paint = getattr(app.screen, "_on_timer_update", None)
    if callable(paint):
        app.screen.call_later(paint)


async def _passed(pump: MessagePump, app: App[None]) -> None:
    """Wait until `pump` has dealt with everything that was sent to it so far, or was taken away."""
    done = asyncio.Event()
    if not pump.call_later(done.set):
        return
    while pump.is_running and (pump is app or pump.is_attached):
        try:
            await asyncio.wait_for(done.wait(), 0.1)
        except TimeoutError:
            continue
        return


NEVER = 1 << 30
"""Of the smaller looks before a whole one."""
MIDDLE = 1
"""Looks at the youngest before one at those of middle age."""
EVERY_SECONDS = 60.0
"""Between two whole looks, while somebody rests."""
LATEST_SECONDS = 600.0
"""After this one takes place even while somebody types: memory must not grow without end."""
WAITS_SECONDS = 2.0
"""The smaller looks wait no longer than this for keys that follow each other without a pause."""
REST_SECONDS = 3.0
"""Without a key: nobody is about to press the next one of a row."""


class QuietGarbage:
    """Looks through all objects while nobody types, and through the young ones while no key waits for its paint.

    What is there at the beginning is passed over, and so is, from then on, what is left at the first whole look: the
    modules that were loaded behind the first frame, nearly all of it. To walk through them takes a tenth of a second.

    Args:
        clock: Seconds, monotonic.
        collect: The whole look.
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
        """A whole look has come since the beginning."""
        self._waits_since = -math.inf

    def begin(self) -> None:
        """Let no whole look come by itself, and pass over what is there already: modules, and what they made.

        Small looks take place from now on, even where none did until now.
        """
        if self._before is None:
            self._before = gc.get_threshold()
            self._looked_at = self._clock()
            self._loaded = False
            gc.freeze()
            gc.set_threshold(self._before[0], MIDDLE, NEVER)
            gc.enable()

    def typed(self) -> None:
        """Take in that somebody pressed or clicked something."""
        self._typed_at = self._clock()

    def wait(self) -> None:
        """Let no smaller look come by itself: a screen that opens makes enough for several of them."""
        if self._before is None:
            return
        now = self._clock()
        if gc.isenabled():
            self._waits_since = now
            gc.disable()
        elif now - self._waits_since >= WAITS_SECONDS:
            gc.enable()

    def go_on(self) -> None:
        """Let the smaller looks come again; one that is due comes with the next object that is made."""
        if self._before is not None:
            gc.enable()

    def look(self) -> bool:
        """Look through everything, if it is time for that and disturbs nobody; tell whether that was done."""
        now = self._clock()
        since = now - self._looked_at
        due = since >= EVERY_SECONDS and now - self._typed_at >= REST_SECONDS
        if self._before is None or not (due or since >= LATEST_SECONDS):
            return False
        self._collect()
        if not self._loaded:
            self._loaded = True
            gc.freeze()
        self._looked_at = self._clock()
        return True

    def end(self) -> None:
        """Leave the collector as it was found."""
        if self._before is not None:
            gc.enable()
            gc.set_threshold(*self._before)
            gc.unfreeze()
            self._before = None


# Loads modules and parses style sheets in idle time, so that opening a screen for the first time is quick.
#
# All of it once made the first opening of a box take three times as long as the second. It begins when the
# boxes have been drawn, so that it delays neither the first frame nor the first reading, and nothing depends
# on it: whoever is faster opens the screen as if there were no such thing.


class SteadyStylesheet(Stylesheet):
    """A style sheet of Textual that parses again only what has other colours than before.

    Textual itself parses everything twice at the start, and all of it again for one more widget once there are many.
    """

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._parse_cache = LRUCache(MOST_SHEETS)

    def set_variables(self, variables: dict[str, str]) -> None:
        """Set the colours."""
        if variables != self._variables:
            super().set_variables(variables)

    def reparse(self) -> None:
        """Parse what is not parsed in these colours yet."""
        self.parse()


def screen_modules() -> tuple[str, ...]:
    """Return the modules of everything that a key opens, those that are opened most often first."""
    from rgt_tui.ui.commands import SCREENS

    return (*dict.fromkeys(module for _, module, _ in SCREENS.values()), *BEYOND_SCREENS)


def load(modules: tuple[str, ...]) -> None:
    """Import modules, and build what they build once; what fails is said by the screen that needs it, when opened."""
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    with contextlib.suppress(Exception):
        from rgt_tui.ui.logs.line_finder import error_finder

        error_finder()


def widgets() -> list[type[Widget]]:
    """Return the classes of widgets that the loaded modules of the screens have or use."""
    named = [module for name, module in sys.modules.items() if name.startswith("rgt_tui.ui.")]
    found = (value for module in named for value in vars(module).values())
    return list(
        dict.fromkeys(one for one in found if isinstance(one, type) and issubclass(one, Widget))
    )


def parsing(sheet: Stylesheet) -> Iterator[None]:
    """Parse the style sheets of all widgets that are loaded, one after the other, and then let the screens have them.

    Until then `sheet` stays as it is: it would be parsed by whoever draws something meanwhile.
    """
    sources = {}
    for widget in widgets():
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
    """Load and parse what the screens of an app need; keys that come meanwhile are first."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_S)
    try:
        await asyncio.to_thread(load, screen_modules())
    finally:
        sys.setswitchinterval(before)
    with contextlib.suppress(AttributeError, TypeError):  # another Textual parses when it has to
        await keys.behind(parsing(app.stylesheet))
