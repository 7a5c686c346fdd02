"""Loads modules and parses style sheets in idle time, so that opening a screen for the first time is quick.

All of it once made the first opening of a box take three times as long as the second. It begins when the boxes have
been drawn, so that it delays neither the first frame nor the first reading, and nothing depends on it: whoever is
faster opens the screen as if there were no such thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.app import App

    from rgt_tui.ui.key_turns import KeyTurns

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
    return list(dict.fromkeys(one for one in found if isinstance(one, type) and issubclass(one, Widget)))


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
            sheet._parse_rules(css, place, is_default_rules=True, tie_breaker=tie_breaker, scope=scope)
            yield
    for (place, tie_breaker), (css, scope) in sources.items():
        sheet.add_source(css, read_from=place, is_default_css=True, tie_breaker=tie_breaker, scope=scope)
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
