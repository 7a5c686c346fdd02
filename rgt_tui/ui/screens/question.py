"""A question while connecting, as a dialog: a first host key, a password, a passphrase, a code."""

from __future__ import annotations

import math
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from rgt_tui.fleet import FleetSource
from rgt_tui.language import translate
from rgt_tui.model import BoxQuestion, FleetState, QuestionKind
from rgt_tui.ui.commands import Command, build_bindings, key_for
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.mouse import MouseSelection
from rgt_tui.ui.notation import current_glyphs, make_displayable
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, make_line, wrap_text
from rgt_tui.ui.widgets.teardown.confirm import GuardedField

QUESTION: tuple[Command, ...] = (
    Command("question.later", ("escape",), "later",
            "Answer later; the fleet screen opens the question again.", "later", footer=1),
)  # fmt: skip

QUESTION_WORDS: dict[QuestionKind, tuple[str, str]] = {
    QuestionKind.HOST_KEY: (
        (
            "Compare the fingerprint with the one your platform shows. A different key means a "
            "different machine."
        ),
        "type yes to accept it and add it to known_hosts; anything else refuses",
    ),
    QuestionKind.SECRET: (
        "It is sent to this box only, kept in memory while rgt runs, and never written to disk.",
        "an empty answer refuses",
    ),
    QuestionKind.TEXT: (
        "The box is asking; the answer is sent only to it.",
        "an empty answer refuses",
    ),
}
"""What to know before answering, and what the answers mean."""

QUESTION_OVER = "The box is no longer asking; nothing is sent. Enter closes."
QUESTION_HINTS = {
    QuestionKind.HOST_KEY: "type yes",
    QuestionKind.SECRET: "hidden while you type",
    QuestionKind.TEXT: "",
}


def question_lines(question: BoxQuestion, width: int) -> list[Line]:
    """Return the text above the entry: who asks for what, its lines, and what an answer does."""
    know, answers = QUESTION_WORDS[question.kind]
    out: list[Line] = [
        make_line(
            Span(f"{current_glyphs().person} ", Tone.ACCENT), Span(question.title, Tone.STRONG)
        ),
        EMPTY,
    ]
    # Lines of a question shown before the explanation; the rest (a key's picture) may not fit.
    first_lines = 3
    first = question.lines[:first_lines]
    for text in first:
        out += wrap_text(text, width)
    if first:
        out.append(EMPTY)
    out += wrap_text(translate(know), width, Tone.DIM)
    out += wrap_text(translate(answers), width, Tone.DIM)
    rest = question.lines[first_lines:]
    if rest:
        out.append(EMPTY)
    for text in rest:
        out += wrap_text(text, width, Tone.DIM)
    return out


class QuestionScreen(FaultTolerant, MouseSelection, ModalScreen[None]):
    """Shows one question and sends its answer; closes by itself when the question is over.

    Args:
        fleet: Receives the answer.
        question: The question.
        unasked: It opened by itself: keys on their way are meant for the screen below, and are
            dropped.
    """

    PLACE = "question"
    KEYS: ClassVar[tuple[Command, ...]] = QUESTION
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(QUESTION)
    DEFAULT_CSS = """
    QuestionScreen { align: center middle; }
    QuestionScreen > Vertical {
        width: 78; max-width: 96%; height: auto; max-height: 96%; padding: 1 2;
        border: round $accent; border-title-color: $foreground; background: $background;
    }
    QuestionScreen FittedLines { margin: 0 0 2 0; }
    QuestionScreen Input, QuestionScreen Input:focus {
        dock: bottom; height: 1; border: none; padding: 0; background: $rgt-raised; color: $foreground;
    }
    """

    def __init__(self, fleet: FleetSource, question: BoxQuestion, *, unasked: bool = False) -> None:
        super().__init__()
        self._fleet = fleet
        self.question = question
        if unasked:
            self._pressed_at = fleet.now()
        else:
            self._pressed_at = -math.inf
        self._over = False

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The keys of the dialog."""
        return QUESTION

    def compose(self) -> ComposeResult:
        """Lay out the question and its entry."""
        with Vertical() as box:
            box.border_title = make_displayable(self.question.box)
            box.border_subtitle = translate(
                "enter answers · {key} later", key=key_for("question.later")
            )
            yield FittedLines(self._make_lines, id="question")
            yield GuardedField(
                self.accepts_keys,
                password=self.question.kind is QuestionKind.SECRET,
                placeholder=translate(QUESTION_HINTS[self.question.kind]),
            )

    def _make_lines(self, width: int) -> list[Line]:
        if self._over:
            over = [make_line(Span(translate(QUESTION_OVER), Tone.WARN)), EMPTY]
        else:
            over = []
        return [*over, *question_lines(self.question, width)]

    def on_mount(self) -> None:
        """Focus the entry."""
        self.query_one(Input).focus()

    def accepts_keys(self) -> bool:
        """Return whether a key counts now; a burst that began too early is dropped to its end."""
        now = self._fleet.now()
        # A question that opened by itself accepts keys after this many seconds without a key press.
        guard_seconds = 0.5
        early = 0 <= now - self._pressed_at < guard_seconds
        if early:
            self._pressed_at = now
        return not early

    def receive_state(self, state: FleetState, now: float) -> None:
        """Close when the box no longer waits for the answer, but not while the person is typing.

        The rest of a password must not become commands of the screen below.
        """
        if not self.is_current or any(open_.id == self.question.id for open_ in state.questions):
            return
        if not self.query_one(Input).value:
            self.dismiss()
        elif not self._over:
            self._over = True
            self.query_one(FittedLines).update()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the answer, and clear it here."""
        event.stop()
        text = event.value
        # First of all: it may be a secret.
        event.input.value = ""
        if self._over:
            self.dismiss()
            return
        if self.question.kind is QuestionKind.HOST_KEY:
            if text.strip().lower() == "yes":
                answer = "yes"
            else:
                answer = None
        else:
            answer = text or None
        self._fleet.answer_question(self.question.id, answer)
        self.dismiss()

    def action_later(self) -> None:
        """Clear the mouse selection, else close and leave the question open."""
        # An escape on its way was meant for the screen below, like any other key.
        if not self.accepts_keys() or self.end_selection():
            return
        self.query_one(Input).value = ""
        self.dismiss()
