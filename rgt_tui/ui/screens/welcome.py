"""The welcome screen, shown when nothing is configured. Nothing is sent before a choice is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar, NamedTuple, Protocol, cast

from rich.cells import cell_len
from textual import events, work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import Beginnings, FirstSteps, FleetSource
from rgt_tui.profiles import how_many
from rgt_tui.ui.clipboard import Copied
from rgt_tui.ui.commands import MOVE, Command, bindings, key_for
from rgt_tui.ui.enduring import words
from rgt_tui.ui.notation import glyphs
from rgt_tui.ui.screens.base import FleetAwareScreen, Moves
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.selectable_list import ListRow, SelectableList
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, fit, line, wrapped

WELCOME: tuple[Command, ...] = (
    Command("welcome.choose", ("enter",), "choose", "Start with the selected choice.", footer=1),
)
TITLES = 20
LONG = 60.0
EXAMPLE = "ssh -p 40022 root@1.2.3.4"


class Way(NamedTuple):
    """One choice of how to begin."""

    title: str
    text: str
    go: str
    """``demo``, ``hosts``, ``paste``, or ``account:KIND``; empty = not available."""
    command: str
    """The equivalent command line."""


class Beginning(Protocol):
    """What the welcome screen needs from the app."""

    first_steps: FirstSteps

    def begin_with(self, make: Callable[[], FleetSource], said: str) -> None:
        """Close the welcome screen and start the chosen fleet."""
        ...


def ways(found: Beginnings | None) -> list[Way]:
    """Return the choices, with what was found for each."""
    out = [
        Way(
            "look around",
            "demo boxes that train on this computer, or a recording of them",
            "demo",
            "rgt demo",
        )
    ]
    if found is None:
        out.append(
            Way("use my ssh hosts", f"reading ssh_config {glyphs().ellipsis}", "", "rgt import")
        )
    elif found.hosts:
        names = ", ".join(name for name in found.hosts[:4]) + (
            ", …" if len(found.hosts) > 4 else ""
        )
        text = f"{how_many(len(found.hosts), 'host')} in ssh_config: {names}"
        out.append(Way("use my ssh hosts", text, "hosts", "rgt import --write"))
    else:
        out.append(
            Way("use my ssh hosts", found.trouble or "no host in ssh_config", "", "rgt import")
        )
    for account in found.accounts if found is not None else ():
        text = f"{account.variable} is set: ask {account.name} for its machines"
        out.append(
            Way(
                "use my account",
                text,
                f"account:{account.kind}",
                f"rgt import --from {account.kind} --write",
            )
        )
    if found is not None and not found.accounts:
        text = "no key of a platform in the environment, such as RUNPOD_API_KEY"
        out.append(Way("use my account", text, "", "rgt import --from KIND"))
    out.append(Way("paste an ssh line", EXAMPLE, "paste", "rgt add NAME 'ssh …'"))
    return out


def intro(width: int) -> list[Line]:
    """Return the introduction to rgt."""
    text = "rgt watches the boxes you rent, and stops their billing without losing a result."
    rows = wrapped(f"{text} Nothing is configured yet.", max(8, width - 4))
    return [EMPTY, *(line("  ", *row) for row in rows), EMPTY]


def way_rows(found: Beginnings | None, width: int) -> list[ListRow]:
    """Return one row per choice."""
    rows = []
    room = max(8, width - TITLES - 4)
    for number, way in enumerate(ways(found)):
        titled, told = (Tone.STRONG, Tone.TEXT) if way.go else (Tone.DIM, Tone.DIM)
        row = line("  ", Span(fit(way.title, TITLES), titled), Span(fit(way.text, room), told))
        rows.append(ListRow(str(number), row))
    return rows


def way_details(way: Way, found: Beginnings | None, width: int) -> list[Line]:
    """Return the full text if the row cuts it, the equivalent command, and the file to write."""
    out: list[Line] = []
    if cell_len(way.text) > width - TITLES - 2:
        out += [*wrapped(way.text, max(8, width - 2)), EMPTY]
    out.append(line(dim(f"the same on the command line: {way.command}")))
    if found is not None and way.go not in ("", "demo"):
        out.append(line(dim(f"the fleet file will be {found.path}")))
    return out


class WelcomeScreen(Moves, FleetAwareScreen):
    """Shown over the fleet screen if there is no fleet file."""

    PLACE = "welcome"
    KEYS: ClassVar[tuple[Command, ...]] = (*WELCOME, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)

    def __init__(self, fleet: FleetSource | None, box_name: str | None = None) -> None:
        super().__init__(fleet)
        self._busy = False
        self.found: Beginnings | None = None

    def body(self) -> Iterable[Widget]:
        """Return the introduction and the list."""
        yield FittedLines(intro)
        yield SelectableList(id="ways", indent=2)

    def on_mount(self) -> None:
        """Search for ssh hosts and accounts."""
        super().on_mount()
        self.show_ways(None)
        self.look()

    @property
    def _app(self) -> Beginning:
        return cast("Beginning", self.app)

    @property
    def picked(self) -> Way:
        """The selected choice."""
        return ways(self.found)[int(self.main_list.picked or 0)]

    def show_ways(self, found: Beginnings | None) -> None:
        """Show the choices for what was found."""
        self.found = found

        def details(key: str, width: int) -> list[Line]:
            return way_details(ways(found)[int(key)], found, width)

        self.main_list.show(way_rows(found, self.size.width), (), details)

    def on_resize(self, event: events.Resize) -> None:
        """Cut the rows to the new width."""
        self.show_ways(self.found)

    @work(group="welcome", exit_on_error=False, description="find hosts and accounts")
    async def look(self) -> None:
        """Search in a worker, so that the first frame does not wait."""
        try:
            self.show_ways(await self._app.first_steps.look())
        except Exception as error:
            self.show_ways(Beginnings(trouble=words(error)))

    def open_row(self) -> None:
        """Begin with the selected choice."""
        self.action_choose()

    def action_back(self) -> None:
        """Hint that a choice is needed: no screen exists below this one."""
        self.hint(f"choose with {key_for('welcome.choose')}; {key_for('app.quit')} quits")

    def action_escape(self) -> None:
        """Hint that a choice is needed, as `action_back` does."""
        self.action_back()

    def to_copy(self) -> Copied | None:
        """Return the equivalent command."""
        return Copied(what="the command", text=self.picked.command)

    def action_choose(self) -> None:
        """Start the selected choice."""
        way, steps = self.picked, self._app.first_steps
        if self._busy:
            self.hint("please wait: your choice is in progress")
        elif not way.go:
            self.hint(f"{way.title}: {way.text}")
        elif way.go == "paste":
            self.open_entry("ssh line", done=self._paste_line)
        elif way.go == "demo":
            self.go(steps.demo())
        elif way.go == "hosts":
            self.go(steps.take_hosts())
        else:
            kind = way.go.partition(":")[2]
            self.hint(f"asking {kind} for your machines {glyphs().ellipsis}", LONG)
            self.go(steps.take_account(kind))

    def _paste_line(self, text: str) -> None:
        """Add the box of the pasted ssh line."""
        if text.strip():
            self.go(self._app.first_steps.paste(text))

    @work(group="welcome", exit_on_error=False, description="start with the choice")
    async def go(self, step: Awaitable[str]) -> None:
        """Wait for a choice to finish; show its error, or continue to the fleet."""
        self._busy = True
        try:
            said = await step
        except Exception as error:
            self.hint(" ".join(str(error).split()) or words(error), LONG)
            return
        finally:
            self._busy = False
        self._app.begin_with(self._app.first_steps.make, said)
