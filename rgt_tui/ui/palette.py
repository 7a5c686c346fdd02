"""The command palette: finds boxes, runs, screens and commands by name.

Nothing dangerous by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from rgt_tui.language import translate
from rgt_tui.model import FleetState, ScreenPosition
from rgt_tui.ui.box_status import describe_age, health_mark
from rgt_tui.ui.commands import APP, OF_ALL_BOXES, SCREENS, Command
from rgt_tui.ui.notation import current_glyphs, make_displayable

CALLED, BEGINS, WORD, INSIDE, ABOUT, LIKE = 6.0, 5.0, 4.0, 3.0, 2.0, 1.0
"""Match quality: the title equals the query, begins with it, has words that begin with it, contains
it; its texts contain all words; or its letters occur in that order."""
NOT_BY_NAME = frozenset({"fleet", "box", "teardown", "first contact", "welcome"})
"""Screens that are opened as a box, are the first one, or are opened on purpose only."""


@dataclass(frozen=True)
class PaletteEntry:
    """One thing that can be found."""

    title: str
    help: str
    run: Callable[[], Any]
    about: str = ""
    """More words that find it."""
    key: str = ""
    """The key that does the same."""
    rank: float = 0.0
    """Below 1; decides between two equally good matches, the higher one first."""
    dangerous: bool = False


def escape_markup(text: str) -> str:
    """Escape a text for the palette's markup."""
    # The palette parses help texts as markup; an escaped bracket is shown as it is.
    return make_displayable(text).replace("[", r"\[")


def in_order(letters: str, text: str) -> bool:
    """Return whether the letters occur in a text in this order, with any text in between."""
    # `in` consumes the iterator up to the match, so the next letter is searched for after it.
    left = iter(text)
    return all(letter in left for letter in letters)


def score_entry(entry: PaletteEntry, query: str) -> float:
    """Return how well an entry matches a query; 0 = not at all."""
    words = query.casefold().split()
    # As it is shown: this terminal may replace characters of a name.
    title = make_displayable(entry.title).casefold()
    if not words:
        return 1.0 + entry.rank
    whole = " ".join(words)
    # Minimum letters of a query to match by letters in order.
    least_like = 3
    if title == whole:
        found = CALLED
    elif title.startswith(whole):
        found = BEGINS
    elif all(
        any(part.startswith(word) for part in title.replace("-", " ").split()) for word in words
    ):
        found = WORD
    elif whole in title:
        found = INSIDE
    # Dangerous commands are found by their title only, never by words of their help.
    elif entry.dangerous:
        return 0.0
    elif all(word in f"{title} {entry.about} {entry.help}".casefold() for word in words):
        found = ABOUT
    elif len(whole) >= least_like and in_order(whole, title):
        found = LIKE
    else:
        return 0.0
    if entry.dangerous:
        # Score of a dangerous command, which puts it after everything else.
        return 0.01
    return found + entry.rank


def find_entries(entries: Iterable[PaletteEntry], query: str) -> list[tuple[float, PaletteEntry]]:
    """Return the matching entries, the best first."""
    scored = [(score_entry(entry, query), entry) for entry in entries]
    return sorted((one for one in scored if one[0] > 0), key=lambda one: -one[0])


class PaletteProvider(Provider):
    """Everything that can be found from the screen below the palette."""

    def current_commands(self) -> tuple[Command, ...]:
        """Return the commands that work on that screen now."""
        made = getattr(self.screen, "offered", None)
        if callable(made):
            return tuple(made())
        return APP

    def list_entries(self) -> list[PaletteEntry]:
        """Return everything that can be found."""
        state: FleetState | None = getattr(self.screen, "fleet_state", None)
        return [
            *self._of_commands(),
            *self._screen_entries(state),
            *self._box_entries(state),
            *self._run_entries(state),
        ]

    def _of_commands(self) -> list[PaletteEntry]:
        entries = []
        for command in self.current_commands():
            if command.id == "app.palette":
                continue
            title = command.shown_title
            if command.dangerous:
                title = f"{current_glyphs().warn} {title}"
            run = partial(self.screen.run_action, command.textual_action)
            entries.append(
                PaletteEntry(
                    title,
                    command.shown_help,
                    run,
                    command.id,
                    command.shown_key,
                    0.2,
                    command.dangerous,
                )
            )
        return entries

    def _open_action(
        self, place: str, box: str | None, spot: ScreenPosition | None = None
    ) -> Callable[[], None]:
        return partial(getattr(self.app, "open_screen", lambda *_: None), place, box, spot)

    def _screen_entries(self, state: FleetState | None) -> list[PaletteEntry]:
        if state is None:
            return []
        box: str | None = getattr(self.screen, "target_box", None)
        # A screen that a key of this screen opens is in the list already, as its command.
        here = {command.textual_action for command in self.current_commands()} | {
            f"open_for_box('{self._place_name}')"
        }
        out = []
        of_all = getattr(self.screen, "box_name", None) is None
        if of_all:
            opened = {command.title for command in self.current_commands()}
        else:
            opened = set()
        if self._place_name != "fleet":
            back: Callable[[], None] = partial(
                getattr(self.app, "return_to", lambda *_: None), "fleet", None
            )
            out.append(
                PaletteEntry(
                    "fleet",
                    translate("Every box on one screen."),
                    back,
                    translate("screen boxes"),
                    rank=0.4,
                )
            )
        for place, (title, *_) in SCREENS.items():
            if place in NOT_BY_NAME or f"open_for_box('{place}')" in here:
                continue
            if place in OF_ALL_BOXES and title.lower() in opened:
                continue  # a key of this screen opens the same
            if place in OF_ALL_BOXES:
                out.append(
                    PaletteEntry(
                        title.lower(),
                        translate("Screen, of all boxes."),
                        self._open_action(place, None),
                        "screen",
                        rank=0.3,
                    )
                )
            elif box is not None:
                text = translate("Screen of {box}.", box=box)
                out.append(
                    PaletteEntry(
                        title.lower(), text, self._open_action(place, box), "screen", rank=0.3
                    )
                )
        return out

    @staticmethod
    def _entry_text(entry: PaletteEntry) -> Content:
        """Return the text in the list, as plain text, because names come from boxes and files."""
        return Content(
            make_displayable(f"{entry.title}  ({entry.key})" if entry.key else entry.title)
        )

    @property
    def _place_name(self) -> str:
        return str(getattr(self.screen, "PLACE", ""))

    def _box_entries(self, state: FleetState | None) -> list[PaletteEntry]:
        out = []
        for box in state.boxes if state is not None else ():
            name = box.spec.name
            verdict = getattr(self.screen, "verdict", None)
            if callable(verdict):
                judged = verdict(box)
            else:
                judged = None
            if judged is None:
                seen = ""
            else:
                seen = f"{health_mark(judged.health)[0]} {judged.health.value}, "
            if judged is not None and judged.stale and judged.sample_age is not None:
                seen += f"{describe_age(judged)}, "
            text = translate("Box: {seen}", seen=f"{seen}{self._platform_name(name)}")
            out.append(
                PaletteEntry(
                    name, text, self._open_action("box", name), f"box {box.spec.profile}", rank=0.5
                )
            )
        return out

    def _platform_name(self, name: str) -> str:
        fleet = getattr(self.app, "fleet", None)
        if fleet is None:
            return ""
        return str(fleet.profile_of(name).name)

    def _run_entries(self, state: FleetState | None) -> list[PaletteEntry]:
        return [
            PaletteEntry(
                run.name,
                translate("Run of {name}: its curve.", name=box.spec.name),
                self._open_action("curves", box.spec.name, ScreenPosition(run=run.name)),
                translate("run curve"),
                rank=0.1,
            )
            for box in (state.boxes if state is not None else ())
            for run in box.runs
        ]

    async def discover(self) -> Hits:
        """List commands, screens and boxes while nothing is typed."""
        state: FleetState | None = getattr(self.screen, "fleet_state", None)
        for entry in (
            *self._of_commands(),
            *self._screen_entries(state),
            *self._box_entries(state),
        ):
            yield DiscoveryHit(
                self._entry_text(entry), entry.run, text=entry.title, help=escape_markup(entry.help)
            )

    async def search(self, query: str) -> Hits:
        """List the matches."""
        for points, entry in find_entries(self.list_entries(), query):
            yield Hit(
                points,
                self._entry_text(entry),
                entry.run,
                text=entry.title,
                help=escape_markup(entry.help),
            )
