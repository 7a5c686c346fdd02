"""The welcome screen, shown when nothing is configured. Nothing is sent before a choice is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import ClassVar, NamedTuple, Protocol, cast

from rich.cells import cell_len
from textual import events, work
from textual.binding import BindingType
from textual.widget import Widget

from rgt_tui.fleet import Beginnings, FirstSteps, FleetSource
from rgt_tui.language import translate
from rgt_tui.model import how_many
from rgt_tui.ui.clipboard import ClipboardText
from rgt_tui.ui.commands import MOVE, Command, build_bindings, key_for
from rgt_tui.ui.enduring import describe_error
from rgt_tui.ui.notation import current_glyphs
from rgt_tui.ui.screens.base import FleetAwareScreen, MoveKeys
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.selectable_list import ListRow, SelectableList
from rgt_tui.ui.widgets.spans import (
    EMPTY,
    Line,
    Span,
    Tone,
    dim_span,
    fit_text,
    make_line,
    wrap_text,
)

WELCOME: tuple[Command, ...] = (
    Command("welcome.choose", ("enter",), "choose", "Start with the selected choice.", footer=1),
)
TITLES = 20
LONG = 60.0
EXAMPLE = "ssh -p 40022 root@1.2.3.4"


class BeginChoice(NamedTuple):
    """One choice of how to begin."""

    title: str
    text: str
    go: str
    """``demo``, ``hosts``, ``paste``, or ``account:KIND``; empty = not available."""
    command: str
    """The equivalent command line."""

    @property
    def row_key(self) -> str:
        """Key of its row, the same before and after the search for hosts and accounts."""
        return f"{self.title} {self.go.partition(':')[2]}"


class Beginning(Protocol):
    """What the welcome screen needs from the app."""

    first_steps: FirstSteps

    def begin_with(self, make: Callable[[], FleetSource], said: str) -> None:
        """Close the welcome screen and start the chosen fleet."""
        ...


def list_choices(found: Beginnings | None) -> list[BeginChoice]:
    """Return the choices, with what was found for each."""
    out = [
        BeginChoice(
            translate("look around"),
            translate("demo boxes that train on this computer, or a recording of them"),
            "demo",
            "rgt demo",
        )
    ]
    # The search is not done yet: the row keeps its place.
    if found is None:
        out.append(
            BeginChoice(
                translate("use my ssh hosts"),
                translate("reading ssh_config {ellipsis}", ellipsis=current_glyphs().ellipsis),
                "",
                "rgt import",
            )
        )
    elif found.hosts:
        names = ", ".join(name for name in found.hosts[:4]) + (
            ", …" if len(found.hosts) > 4 else ""
        )
        text = translate(
            "{hosts} in ssh_config: {names}", hosts=how_many(len(found.hosts), "host"), names=names
        )
        out.append(BeginChoice(translate("use my ssh hosts"), text, "hosts", "rgt import --write"))
    else:
        out.append(
            BeginChoice(
                translate("use my ssh hosts"),
                found.trouble or translate("no host in ssh_config"),
                "",
                "rgt import",
            )
        )
    for account in found.accounts if found is not None else ():
        text = translate(
            "{variable} is set: ask {name} for its machines",
            variable=account.variable,
            name=account.name,
        )
        out.append(
            BeginChoice(
                translate("use my account"),
                text,
                f"account:{account.kind}",
                f"rgt import --from {account.kind} --write",
            )
        )
    if found is not None and not found.accounts:
        text = translate("no key of a platform in the environment, such as RUNPOD_API_KEY")
        out.append(BeginChoice(translate("use my account"), text, "", "rgt import --from KIND"))
    out.append(
        BeginChoice(translate("paste an ssh line"), EXAMPLE, "paste", "rgt add NAME 'ssh …'")
    )
    return out


def make_intro(width: int) -> list[Line]:
    """Return the introduction to rgt."""
    text = translate(
        "rgt watches the boxes you rent, and stops their billing without losing a result."
    )
    rows = wrap_text(translate("{words} Nothing is configured yet.", words=text), max(8, width - 4))
    return [EMPTY, *(make_line("  ", *row) for row in rows), EMPTY]


def choice_rows(found: Beginnings | None, width: int) -> list[ListRow]:
    """Return one row per choice."""
    rows = []
    room = max(8, width - TITLES - 4)
    for way in list_choices(found):
        titled, told = (Tone.STRONG, Tone.TEXT) if way.go else (Tone.DIM, Tone.DIM)
        row = make_line(
            "  ", Span(fit_text(way.title, TITLES), titled), Span(fit_text(way.text, room), told)
        )
        rows.append(ListRow(way.row_key, row))
    return rows


def choice_details(way: BeginChoice, found: Beginnings | None, width: int) -> list[Line]:
    """Return the full text if the row cuts it, the equivalent command, and the file to write."""
    out: list[Line] = []
    if cell_len(way.text) > width - TITLES - 2:
        out += [*wrap_text(way.text, max(8, width - 2)), EMPTY]
    out.append(
        make_line(
            dim_span(translate("the same on the command line: {command}", command=way.command))
        )
    )
    # The demo writes no fleet file.
    if found is not None and way.go not in ("", "demo"):
        out.append(make_line(dim_span(translate("the fleet file will be {path}", path=found.path))))
    return out


class WelcomeScreen(MoveKeys, FleetAwareScreen):
    """Shown over the fleet screen if there is no fleet file."""

    PLACE = "welcome"
    KEYS: ClassVar[tuple[Command, ...]] = (*WELCOME, *MOVE)
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(KEYS)

    def __init__(self, fleet: FleetSource | None, box_name: str | None = None) -> None:
        super().__init__(fleet)
        self._busy = False
        self.found: Beginnings | None = None

    def compose_body(self) -> Iterable[Widget]:
        """Return the introduction and the list."""
        yield FittedLines(make_intro)
        yield SelectableList(id="ways", indent=2)

    def on_mount(self) -> None:
        """Search for ssh hosts and accounts."""
        super().on_mount()
        self.show_choices(None)
        self.search_beginnings()

    @property
    def _beginning_app(self) -> Beginning:
        return cast("Beginning", self.app)

    @property
    def picked_choice(self) -> BeginChoice:
        """The selected choice."""
        choices = list_choices(self.found)
        picked = self.main_list.picked_key
        # A row of the first list may be gone once the search is done.
        return next((way for way in choices if way.row_key == picked), choices[0])

    def show_choices(self, found: Beginnings | None) -> None:
        """Show the choices for what was found."""
        self.found = found

        def make_details(key: str, width: int) -> list[Line]:
            return choice_details(self.picked_choice, found, width)

        self.main_list.show_rows(choice_rows(found, self.size.width), (), make_details)

    def on_resize(self, event: events.Resize) -> None:
        """Cut the rows to the new width."""
        self.show_choices(self.found)

    @work(group="welcome", exit_on_error=False, description="find hosts and accounts")
    async def search_beginnings(self) -> None:
        """Search in a worker, so that the first frame does not wait."""
        try:
            self.show_choices(await self._beginning_app.first_steps.find_beginnings())
        except Exception as error:
            self.show_choices(Beginnings(trouble=describe_error(error)))

    def open_row(self) -> None:
        """Begin with the selected choice."""
        self.action_choose()

    def action_back(self) -> None:
        """Hint that a choice is needed: no screen exists below this one."""
        self.hint(
            translate(
                "choose with {key}; {key_2} quits",
                key=key_for("welcome.choose"),
                key_2=key_for("app.quit"),
            )
        )

    def action_escape(self) -> None:
        """Hint that a choice is needed, as `action_back` does."""
        self.action_back()

    def to_copy(self) -> ClipboardText | None:
        """Return the equivalent command."""
        return ClipboardText(what=translate("the command"), text=self.picked_choice.command)

    def action_choose(self) -> None:
        """Start the selected choice."""
        way, steps = self.picked_choice, self._beginning_app.first_steps
        # A choice may take seconds, and a second one would write the fleet file, too.
        if self._busy:
            self.hint(translate("please wait: your choice is in progress"))
        elif not way.go:
            self.hint(f"{way.title}: {way.text}")
        elif way.go == "paste":
            self.open_entry(translate("ssh line"), done=self._paste_line)
        elif way.go == "demo":
            self.carry_out_choice(steps.choose_demo())
        elif way.go == "hosts":
            self.carry_out_choice(steps.take_hosts())
        else:
            kind = way.go.partition(":")[2]
            self.hint(
                translate(
                    "asking {kind} for your machines {ellipsis}",
                    kind=kind,
                    ellipsis=current_glyphs().ellipsis,
                ),
                LONG,
            )
            self.carry_out_choice(steps.import_account(kind))

    def _paste_line(self, text: str) -> None:
        """Add the box of the pasted ssh line."""
        if text.strip():
            self.carry_out_choice(self._beginning_app.first_steps.paste(text))

    @work(group="welcome", exit_on_error=False, description="start with the choice")
    async def carry_out_choice(self, step: Awaitable[str]) -> None:
        """Wait for a choice to finish; show its error, or continue to the fleet."""
        self._busy = True
        try:
            said = await step
        except Exception as error:
            self.hint(" ".join(str(error).split()) or describe_error(error), LONG)
            return
        # Also after a failure: another choice must be possible.
        finally:
            self._busy = False
        self._beginning_app.begin_with(self._beginning_app.first_steps.make_chosen_fleet, said)
