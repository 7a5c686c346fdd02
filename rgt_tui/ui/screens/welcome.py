"""The welcome: shown when nothing is configured, with the ways to begin. Nothing is sent before one is chosen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar, NamedTuple, Protocol, cast

from rich.cells import cell_len
from textual import events, work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import Beginnings, FirstSteps, FleetSource
from rgt_tui.profiles.readings import how_many
from rgt_tui.ui.clipboard import Copied
from rgt_tui.ui.commands import MOVE, Command, bindings, key_for
from rgt_tui.ui.enduring import words
from rgt_tui.ui.notation import clean, glyphs
from rgt_tui.ui.screens.base import FleetAwareScreen, Moves
from rgt_tui.ui.widgets.lines import EntryClosed, LineWidget
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, fit, line, wrapped

WELCOME: tuple[Command, ...] = (
    Command("welcome.choose", ("enter",), "choose", "Start with the selected choice.", footer=1),
)
TITLES = 20
LONG = 60.0
EXAMPLE = "ssh -p 40022 root@1.2.3.4"


class Way(NamedTuple):
    """One way to begin."""

    title: str
    text: str
    go: str
    """``demo``, ``hosts``, ``paste``, or ``account:KIND``; empty = it cannot be gone."""
    command: str
    """What does the same on the command line."""


class Beginning(Protocol):
    """What the welcome asks of the app."""

    first_steps: FirstSteps

    def begin_with(self, make: Callable[[], FleetSource], said: str) -> None:
        """Leave the welcome and start the fleet that was chosen."""
        ...


def ways(found: Beginnings | None) -> list[Way]:
    """Return the ways to begin, with what was found for each."""
    out = [
        Way("look around", "boxes that train on this computer, or a recording of them", "demo", "rgt demo")
    ]
    if found is None:
        out.append(Way("take my hosts", f"reading ssh_config {glyphs().ellipsis}", "", "rgt import"))
    elif found.hosts:
        names = ", ".join(clean(name) for name in found.hosts[:4]) + (", …" if len(found.hosts) > 4 else "")
        text = f"{how_many(len(found.hosts), 'host')} in ssh_config: {names}"
        out.append(Way("take my hosts", text, "hosts", "rgt import --write"))
    else:
        out.append(Way("take my hosts", found.trouble or "no host in ssh_config", "", "rgt import"))
    for account in found.accounts if found is not None else ():
        text = f"{account.variable} is set: ask {account.name} for its machines"
        out.append(
            Way(
                "take my account",
                text,
                f"account:{account.kind}",
                f"rgt import --from {account.kind} --write",
            )
        )
    if found is not None and not found.accounts:
        text = "no key of a platform in the environment, such as RUNPOD_API_KEY"
        out.append(Way("take my account", text, "", "rgt import --from KIND"))
    out.append(Way("paste an ssh line", EXAMPLE, "paste", "rgt add NAME 'ssh …'"))
    return out


class WayList(LineWidget):
    """The ways, one selected."""

    DEFAULT_CSS = "WayList { height: 1fr; }"

    def __init__(self) -> None:
        super().__init__(id="ways")
        self.found: Beginnings | None = None
        self._index = 0
        self._top = 0

    @property
    def picked(self) -> Way:
        """The selected way."""
        every = ways(self.found)
        return every[min(self._index, len(every) - 1)]

    def move(self, count: int) -> None:
        """Select another way."""
        self._index = max(0, min(len(ways(self.found)) - 1, self._index + count))
        self.redraw()

    def _intro(self, width: int) -> list[Line]:
        text = "rgt watches the boxes you rent, and stops their meters without losing a result."
        return [
            EMPTY,
            *(line("  ", *row) for row in wrapped(f"{text} Nothing is configured yet.", max(8, width - 4))),
            EMPTY,
        ]

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw what rgt is, the ways, and what the selected one would write."""
        out = self._intro(width)
        self._top = len(out)
        for way in ways(self.found):
            tone = Tone.STRONG if way.go else Tone.DIM
            room = max(8, width - TITLES - 4)
            out.append(
                line(
                    "  ",
                    Span(fit(way.title, TITLES), tone),
                    Span(fit(way.text, room), Tone.TEXT if way.go else Tone.DIM),
                )
            )
        picked = self.picked
        if cell_len(picked.text) > max(8, width - TITLES - 4):
            out += [EMPTY, *(line("  ", *row) for row in wrapped(picked.text, max(8, width - 4)))]
        out += [EMPTY, line(dim(f"  the same on the command line: {picked.command}"))]
        if self.found is not None and picked.go not in ("", "demo"):
            out.append(line(dim(f"  it is written to {clean(self.found.path)}")))
        return out

    def selected_line(self) -> int | None:
        """The selected way's line."""
        return self._top + min(self._index, len(ways(self.found)) - 1)

    def on_click(self, event: events.Click) -> None:
        """Select a way, or go the one that is selected."""
        index = event.y - self._top
        if 0 <= index < len(ways(self.found)):
            again = index == self._index
            self._index = index
            self.redraw()
            if again and isinstance(self.screen, WelcomeScreen):
                self.screen.action_choose()


class WelcomeScreen(Moves, FleetAwareScreen):
    """Shown over the fleet screen where there is no fleet file."""

    PLACE = "welcome"
    KEYS: ClassVar[tuple[Command, ...]] = (*WELCOME, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = bindings(KEYS)

    def __init__(self, fleet: FleetSource | None, box_name: str | None = None) -> None:
        super().__init__(fleet)
        self._busy = False

    def body(self) -> Iterable[Widget]:
        """Return the list."""
        yield WayList()

    def on_mount(self) -> None:
        """Look what there is to begin with."""
        super().on_mount()
        self.look()

    @property
    def _app(self) -> Beginning:
        return cast("Beginning", self.app)

    @property
    def way_list(self) -> WayList:
        """The list."""
        return self.query_one(WayList)

    @work(group="welcome", exit_on_error=False, description="look what there is to begin with")
    async def look(self) -> None:
        """Look aside, so that the first frame does not wait."""
        try:
            self.way_list.found = await self._app.first_steps.look()
        except Exception as error:
            self.way_list.found = Beginnings(trouble=words(error))
        self.way_list.redraw()

    def action_move(self, count: int) -> None:
        """Select another way."""
        self.way_list.move(count)

    @property
    def page_rows(self) -> int:
        """All ways."""
        return 10

    def action_back(self) -> None:
        """There is nothing to go back to yet."""
        self.hint(f"choose a way with {key_for('welcome.choose')}; {key_for('app.quit')} quits")

    def action_escape(self) -> None:
        """There is nothing to go back to yet."""
        self.action_back()

    def to_copy(self) -> Copied | None:
        """Return the command that does the same."""
        return Copied(what="the command", text=self.way_list.picked.command)

    def action_choose(self) -> None:
        """Go the selected way."""
        way, steps = self.way_list.picked, self._app.first_steps
        if self._busy:
            self.hint("one moment: what you chose is under way")
        elif not way.go:
            self.hint(f"{way.title}: {way.text}")
        elif way.go == "paste":
            self.open_entry("ssh line")
        elif way.go == "demo":
            self.go(steps.demo())
        elif way.go == "hosts":
            self.go(steps.take_hosts())
        else:
            kind = way.go.partition(":")[2]
            self.hint(f"asking {kind} for your machines {glyphs().ellipsis}", LONG)
            self.go(steps.take_account(kind))

    def on_entry_closed(self, message: EntryClosed) -> None:
        """Take the box of the line that was pasted."""
        if message.text is not None and message.text.strip():
            self.go(self._app.first_steps.paste(message.text))

    @work(group="welcome", exit_on_error=False, description="go the way that was chosen")
    async def go(self, step: Awaitable[str]) -> None:
        """Wait for a way; say what was wrong with it, or go on to the fleet."""
        self._busy = True
        try:
            said = await step
        except Exception as error:
            self.hint(clean(" ".join(str(error).split())) or words(error), LONG)
            return
        finally:
            self._busy = False
        self._app.begin_with(self._app.first_steps.make, said)
