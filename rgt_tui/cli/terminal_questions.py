"""Questions of a login (a new host key, a password) asked on the terminal of the command that connects."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import termios
from collections.abc import Iterator

from rgt_tui.cli.printing import interactive, waiting_paused
from rgt_tui.model import Question, QuestionKind, clean
from rgt_tui.ssh import answered_by


class TerminalQuestions:
    """Asks one question at a time, while other boxes go on."""

    def __init__(self, *, secrets: bool = True) -> None:
        """`secrets`: also ask for passwords and codes; without it, only about host keys."""
        self._secrets = secrets
        self.turn = asyncio.Lock()
        """Held while a question is on the screen: what else is printed then would hide it."""

    async def ask(self, question: Question) -> str | None:
        """Show a question and wait for a line; None = refused."""
        if question.kind is not QuestionKind.HOST_KEY and not self._secrets:
            return None
        async with self.turn:
            with waiting_paused(), _echo(question.kind is not QuestionKind.SECRET):
                sys.stderr.write("\n".join(clean(line) for line in (question.title, *question.lines)) + "\n")
                if question.kind is QuestionKind.HOST_KEY:
                    sys.stderr.write("yes accepts it, anything else refuses: ")
                sys.stderr.flush()
                answer = await _line()
        return answer or None


async def _line() -> str:
    """Wait for a line without holding up the loop; Ctrl-C ends the command meanwhile."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    # A terminal has something to read only once the line is complete.
    return sys.stdin.readline().rstrip("\n")


@contextlib.contextmanager
def _echo(shown: bool) -> Iterator[None]:
    """Hide what is typed, unless `shown`."""
    if shown:
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    hidden = [*before]
    hidden[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        sys.stderr.write("\n")


@contextlib.contextmanager
def asked_here(*, secrets: bool = True) -> Iterator[TerminalQuestions | None]:
    """Answer the questions of logins inside on this terminal; None = a script, which cannot be asked."""
    if not interactive():
        yield None
        return
    questions = TerminalQuestions(secrets=secrets)
    with answered_by(questions.ask):
        yield questions
