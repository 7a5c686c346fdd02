"""One question of a box, over the screen: its first host key, a password, a passphrase, a code."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from rgt_tui.fleet.source import FleetSource
from rgt_tui.model.fleet import FleetState
from rgt_tui.model.question import Question, QuestionKind
from rgt_tui.ui.commands import Command, bindings
from rgt_tui.ui.format import clean
from rgt_tui.ui.glyphs import glyphs
from rgt_tui.ui.widgets.confirm import Facts
from rgt_tui.ui.widgets.spans import EMPTY, Line, Span, Tone, dim, line
from rgt_tui.ui.widgets.wrap import wrapped

QUESTION: tuple[Command, ...] = (
    Command("question.later", ("escape",), "later", "Leave the question open; A on the fleet screen opens it again.",
            "later", footer=1),
)  # fmt: skip

WORDS: dict[QuestionKind, tuple[str, str]] = {
    QuestionKind.HOST_KEY: (
        "Compare the fingerprint with the one your platform shows. A stranger's key means a stranger's machine.",
        "yes accepts it and writes it down, anything else refuses",
    ),
    QuestionKind.SECRET: (
        "It goes to this box alone, is kept in memory while rgt runs, and is never written anywhere.",
        "an empty answer refuses",
    ),
    QuestionKind.TEXT: ("The box asks this; the answer goes to it alone.", "an empty answer refuses"),
}
"""What to know before answering, and what the answers mean."""

FIRST_LINES = 3
"""Lines of a question that stand above what to know; what is below (a picture of the key) may not fit."""
HINTS = {
    QuestionKind.HOST_KEY: "type yes",
    QuestionKind.SECRET: "not shown while typed",
    QuestionKind.TEXT: "",
}


def question_lines(question: Question, width: int) -> list[Line]:
    """Return what is said above the entry: who asks for what, its own lines, and what an answer does."""
    know, answers = WORDS[question.kind]
    out: list[Line] = [
        line(Span(f"{glyphs().person} ", Tone.ACCENT), Span(clean(question.title), Tone.STRONG)),
        EMPTY,
    ]
    first = question.lines[:FIRST_LINES]
    for text in first:
        out += wrapped(clean(text), width)
    if first:
        out.append(EMPTY)
    out += wrapped(know, width, Tone.DIM)
    out.append(line(dim(answers)))
    rest = question.lines[FIRST_LINES:]
    if rest:
        out.append(EMPTY)
    for text in rest:
        out += wrapped(clean(text), width, Tone.DIM)
    return out


class QuestionScreen(ModalScreen[None]):
    """Shows one question and sends its answer; closes by itself when the question is over.

    Args:
        fleet: Takes the answer.
        question: What is asked.
    """

    PLACE = "question"
    KEYS: ClassVar[tuple[Command, ...]] = QUESTION
    BINDINGS: ClassVar[list[BindingType]] = bindings(QUESTION)
    DEFAULT_CSS = """
    QuestionScreen { align: center middle; background: $background 60%; }
    QuestionScreen > Vertical {
        width: 78; max-width: 96%; height: auto; max-height: 96%; padding: 1 2;
        border: round $accent; border-title-color: $foreground; background: $background;
    }
    QuestionScreen Facts { margin: 0 0 2 0; }
    QuestionScreen Input, QuestionScreen Input:focus {
        dock: bottom; height: 1; border: none; padding: 0; background: $rgt-raised; color: $foreground;
    }
    """

    def __init__(self, fleet: FleetSource, question: Question) -> None:
        super().__init__()
        self._fleet = fleet
        self.question = question

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The keys of the dialog."""
        return QUESTION

    def compose(self) -> ComposeResult:
        """Lay out the question and its entry."""
        with Vertical() as box:
            box.border_title = clean(self.question.box)
            box.border_subtitle = "enter answers · esc later"
            yield Facts(lambda width: question_lines(self.question, width), id="question")
            yield Input(
                password=self.question.kind is QuestionKind.SECRET,
                placeholder=HINTS[self.question.kind],
                compact=True,
            )

    def on_mount(self) -> None:
        """Take the keys."""
        self.query_one(Input).focus()

    def receive_state(self, state: FleetState, now: float) -> None:
        """Close when nobody waits for the answer any more."""
        if self.is_current and all(open_.id != self.question.id for open_ in state.questions):
            self.dismiss()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Send the answer; nothing of it stays here."""
        event.stop()
        text = event.value
        event.input.value = ""
        if self.question.kind is QuestionKind.HOST_KEY:
            answer = "yes" if text.strip().lower() == "yes" else None
        else:
            answer = text or None
        self._fleet.answer(self.question.id, answer)
        self.dismiss()

    def action_later(self) -> None:
        """Close and leave the question open."""
        self.query_one(Input).value = ""
        self.dismiss()
