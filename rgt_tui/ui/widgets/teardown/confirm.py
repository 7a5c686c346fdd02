"""The controls of the teardown dialog. They decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

from rich.cells import cell_len
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input

from rgt_tui.language import translate
from rgt_tui.model import BillingVerb, RiskLevel, clean_text
from rgt_tui.ui.commands import Command, build_bindings, keys_for
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.widgets.lines import LineWidget
from rgt_tui.ui.widgets.spans import Line, Span, Tone, dim_span, fit_text

DANGER = cast(Tone, "danger")
"""Tone of the focused button of an irreversible action; a component class of that button only."""
CAUTION = cast(Tone, "caution")
"""Tone of the focused button that stops billing."""
BUTTON_TONES: dict[RiskLevel, tuple[Tone, Tone]] = {
    RiskLevel.LOCAL: (Tone.TEXT, Tone.MATCH),
    RiskLevel.RECOVERABLE: (Tone.ACCENT, Tone.MATCH),
    RiskLevel.METER: (Tone.WARN, CAUTION),
    RiskLevel.IRREVERSIBLE: (Tone.TROUBLE, DANGER),
}
"""Tones of a button without and with the focus, by its stake."""

CHOOSE: tuple[Command, ...] = (
    Command("teardown.other-verb", ("left", "right", "space"), "park or destroy",
            "Switch between the reversible and the irreversible action; the name must be typed "
            "again.", "other_verb"),
)  # fmt: skip


PRESS: tuple[Command, ...] = (
    Command("teardown.press", ("enter",), "press",
            "Press the focused button: Cancel, until you move."),
)  # fmt: skip


class VerbChoice(LineWidget):
    """Park or destroy, as two words of which one is chosen."""

    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = list(build_bindings(CHOOSE))

    class Chosen(Message):
        """Another verb was chosen."""

        def __init__(self, verb: BillingVerb) -> None:
            super().__init__()
            self.verb = verb

    def __init__(self, names: dict[BillingVerb, str], chosen: BillingVerb) -> None:
        super().__init__(id="verbs")
        self._names = names
        self.chosen = chosen

    def _choice_spans(self) -> list[tuple[BillingVerb | None, Span]]:
        out: list[tuple[BillingVerb | None, Span]] = [
            (None, dim_span(fit_text(translate("how"), 15)))
        ]
        for verb, name in self._names.items():
            if verb is self.chosen:
                if self.has_focus:
                    tone = Tone.MATCH
                else:
                    tone = Tone.STRONG
                out.append((verb, Span(f"[ {name} ]", tone)))
            else:
                out.append((verb, dim_span(f"  {name}  ")))
            out.append((None, Span("  ")))
        return out

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the words."""
        return [tuple(span for _, span in self._choice_spans())]

    def action_other_verb(self) -> None:
        """Choose the other verb."""
        others = [verb for verb in self._names if verb is not self.chosen]
        if others:
            self.post_message(self.Chosen(others[0]))

    def on_click(self, event: events.Click) -> None:
        """Choose the verb under the pointer."""
        x = 0
        for verb, span in self._choice_spans():
            if (
                x <= event.x < x + cell_len(span.text)
                and verb is not None
                and verb is not self.chosen
            ):
                self.post_message(self.Chosen(verb))
            x += cell_len(span.text)


class GuardedField(FaultTolerant, Input):
    """Accepts input once the dialog listens; earlier input was meant for the screen below."""

    def __init__(
        self,
        listens: Callable[[], bool],
        *,
        id: str | None = None,  # noqa: A002
        password: bool = False,
        placeholder: str = "",
    ) -> None:
        super().__init__(
            id=id, password=password, placeholder=placeholder, compact=True, select_on_focus=False
        )
        self.listens = listens

    def on_key(self, event: events.Key) -> None:
        """Drop keys that arrive too early."""
        if not self.listens():
            # `prevent_default` keeps Textual's own handler from inserting the character.
            event.prevent_default()
            event.stop()

    def on_paste(self, event: events.Paste) -> None:
        """Drop a paste that arrives too early."""
        if not self.listens():
            event.prevent_default()
            event.stop()


class NameField(GuardedField):
    """Accepts exactly what is typed or pasted."""

    def __init__(self, listens: Callable[[], bool], wanted: Callable[[], str]) -> None:
        super().__init__(listens, id="name")
        self._wanted = wanted
        """Returns the text to be typed."""

    def asks_for_help(self, event: events.Key) -> bool:
        """Return whether a key opens the help page: it is not in the text to be typed."""
        return (
            event.key in keys_for("app.help")
            and (event.character or event.key) not in self._wanted()
        )

    def on_key(self, event: events.Key) -> None:
        """Open the help page instead of typing its key.

        Textual also calls the base class's handler, unless this one prevents it.
        """
        if self.asks_for_help(event):
            event.prevent_default()
            event.stop()
            self.call_later(self.app.run_action, "help")

    def on_paste(self, event: events.Paste) -> None:
        """Drop a paste that contains invisible characters, too."""
        # The field inserts only the first line of a paste.
        first = (event.text.splitlines() or [""])[0]
        if clean_text(first) != first:
            event.prevent_default()
            event.stop()


class DialogButton(LineWidget):
    """A button that is readable without colours: ``[ ]`` while enabled, ``( )`` while disabled."""

    can_focus = True
    FOCUS_ON_CLICK = (
        # losing focus may shorten the focused widget, which would move the button away from the
        # pointer
        False
    )
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = list(build_bindings(PRESS))
    DEFAULT_CSS = f"""
    DialogButton > .tone--{DANGER} {{ color: $error; text-style: bold reverse; }}
    DialogButton > .tone--{CAUTION} {{ color: $warning; text-style: bold reverse; }}
    """

    class Pressed(Message):
        """The button was pressed while enabled."""

        def __init__(self, button: DialogButton) -> None:
            super().__init__()
            self.button = button

    def __init__(self, text: str, *, id: str, disabled: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self.level = RiskLevel.LOCAL
        self.text = text
        self.disabled = disabled

    def show_button(self, text: str, *, disabled: bool, level: RiskLevel = RiskLevel.LOCAL) -> None:
        """Set its text, its stake, and whether it is enabled."""
        if (text, disabled, level) != (self.text, self.disabled, self.level):
            self.text, self.disabled, self.level = text, disabled, level
            self.refresh(layout=True)
            self.redraw()

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return the width of the text and its brackets."""
        return cell_len(self.text) + 4

    def make_lines(self, width: int, height: int) -> list[Line]:
        """Draw the button."""
        if self.disabled:
            return [(dim_span(f"( {self.text} )"),)]
        return [(Span(f"[ {self.text} ]", BUTTON_TONES[self.level][self.has_focus]),)]

    def action_press(self) -> None:
        """Press the button if it is enabled."""
        if not self.disabled:
            self.post_message(self.Pressed(self))

    def on_click(self, event: events.Click) -> None:
        """Press the button."""
        event.stop()
        self.action_press()
