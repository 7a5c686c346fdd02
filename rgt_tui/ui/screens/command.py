"""A dialog that runs an ``rgt`` command on boxes of the fleet: its dry run first, then the command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input
from textual.worker import Worker

from rgt_tui.fleet import FleetSource, NotOffered, NotRunnable
from rgt_tui.language import translate
from rgt_tui.ui.commands import Command, build_bindings, key_for
from rgt_tui.ui.enduring import FaultTolerant
from rgt_tui.ui.mouse import MouseSelection
from rgt_tui.ui.notation import make_displayable
from rgt_tui.ui.screens.dialogs import Choice
from rgt_tui.ui.widgets.lines import FittedLines
from rgt_tui.ui.widgets.spans import Line, Tone, make_line, wrap_text

WORK = (
    Choice("p", "pull results", "pull {box}"),
    Choice("u", "push code", "push {box} ."),
    Choice("r", "run", "run {box} -- "),
    Choice("q", "queue", "queue {box} status"),
)
"""The letters of the commands, and what is typed in advance; ``{box}`` is the name of each box."""

EDITOR = "code {box}"
READING = frozenset({"code"})
"""Commands that change nothing: Enter runs them without a dry run."""

DRY_RUNS = dict.fromkeys(("pull", "push", "autostop", "lease"), "--dry-run")
"""Command: the option that only shows what it would do."""

COMMAND: tuple[Command, ...] = (
    Command("command.close", ("escape",), "close",
            "Stop what the dialog runs here and close it; what runs on the boxes keeps running.",
            "close", footer=1),
)  # fmt: skip


class CommandScreen(FaultTolerant, MouseSelection, ModalScreen[None]):
    """Asks for a command, shows its dry run, runs it on Enter, and shows what it prints.

    Args:
        fleet: Runs the command.
        boxes: Names of the boxes, one run of the command for each.
        text: The command typed in advance, without ``rgt``.
    """

    PLACE = "command"
    KEYS: ClassVar[tuple[Command, ...]] = COMMAND
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(COMMAND)
    DEFAULT_CSS = """
    CommandScreen { align: center middle; }
    CommandScreen > Vertical {
        width: 110; max-width: 96%; height: auto; max-height: 96%; padding: 0 1;
        border: round $accent; border-title-color: $foreground; background: $background;
    }
    CommandScreen VerticalScroll { height: auto; max-height: 20; scrollbar-size-vertical: 1; }
    CommandScreen Input, CommandScreen Input:focus {
        height: 1; border: none; padding: 0; background: $rgt-raised; color: $foreground;
    }
    """

    def __init__(self, fleet: FleetSource, boxes: Sequence[str], text: str) -> None:
        super().__init__()
        self._fleet, self._boxes = fleet, tuple(boxes)
        # With several boxes the placeholder stays, and each run replaces it.
        self._text = text if len(boxes) > 1 else text.replace("{box}", boxes[0])
        self._said: list[tuple[str, Tone]] = [(translate("enter shows what it would do"), Tone.DIM)]
        self._previewed = ""
        """The text whose dry run ended well; Enter on the same text runs the command."""
        self._worker: Worker[None] | None = None

    @classmethod
    def commands(cls) -> tuple[Command, ...]:
        """The keys of the dialog."""
        return COMMAND

    def compose(self) -> ComposeResult:
        """Lay out the entry, and below it what the command prints."""
        with Vertical() as page:
            page.border_title = Content(
                make_displayable(translate("rgt … on {boxes}", boxes=", ".join(self._boxes)))
            )
            keys = translate(
                "enter: dry run, then run · {key} closes", key=key_for("command.close")
            )
            if self._text.partition(" ")[0] in READING:
                keys = translate("enter runs it · {key} closes", key=key_for("command.close"))
            page.border_subtitle = Content(keys)
            # A selected text would be replaced by the first key.
            yield Input(self._text, compact=True, select_on_focus=False)
            with VerticalScroll(can_focus=False):
                yield FittedLines(self._make_lines)

    def on_mount(self) -> None:
        """Focus the entry."""
        entry = self.query_one(Input)
        entry.focus()
        # It changes nothing, so it runs without Enter.
        if self._text.partition(" ")[0] in READING:
            self.call_after_refresh(entry.action_submit)

    def _make_lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        for text, tone in self._said:
            # `wrap_text` drops leading blanks, but indentation has a meaning in what a command
            # prints.
            shown = text.lstrip(" ")
            indent = " " * min(len(text) - len(shown), width // 2)
            lines += [
                make_line(indent, *line) for line in wrap_text(shown, width - len(indent), tone)
            ]
        return lines

    def _show_line(self, text: str, tone: Tone = Tone.TEXT) -> None:
        most_lines = 500
        self._said = [*self._said, (text, tone)][-most_lines:]
        if self.is_mounted:
            self.query_one(FittedLines).update()
            self.query_one(VerticalScroll).scroll_end(animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Run the dry run; a second time with the same text, the command."""
        event.stop()
        if self._worker is not None and self._worker.is_running:
            return
        text = event.value
        try:
            words = shlex.split(text)
        except ValueError as error:
            self._said = []
            self._show_line(translate("not a command line: {error}", error=error), Tone.WARN)
            return
        if not words:
            return
        dry = text != self._previewed and words[0] not in READING
        self._said = []
        self._worker = self.run_worker(self._run_command(text, words, dry), exit_on_error=False)

    async def _run_command(self, text: str, words: list[str], dry: bool) -> None:
        option = DRY_RUNS.get(words[0])
        self._previewed = ""
        succeeded = True
        for box in self._boxes:
            named = [word.replace("{box}", box) for word in words]
            if dry and option is not None:
                if "--confirm" in named:
                    # A dry run has nothing to confirm.
                    at = named.index("--confirm")
                    del named[at : at + 2]
                named.insert(1, option)
            self._show_line(f"$ rgt {shlex.join(named)}", Tone.STRONG)
            if not dry or option is not None:
                succeeded = await self._run_words(named) and succeeded
        if not dry:
            if succeeded:
                last_text = translate("done")
            else:
                last_text = translate("not all of it succeeded")
            self._show_line(last_text, Tone.STRONG)
        elif succeeded:
            self._previewed = text
            self._show_line(translate("enter again runs it"), Tone.ACCENT)

    async def _run_words(self, words: Sequence[str]) -> bool:
        """Run one command; return whether it succeeded."""
        try:
            status = await self._fleet.run_command(tuple(words), self._show_line)
        except (NotRunnable, NotOffered) as error:
            self._show_line(str(error) or translate("nothing can be run here"), Tone.WARN)
            return False
        if status:
            self._show_line(translate("exit status {status}", status=status), Tone.WARN)
        return status == 0

    def action_close(self) -> None:
        """End the command's process here, and close."""
        if self._worker is not None:
            self._worker.cancel()
        self.dismiss()
