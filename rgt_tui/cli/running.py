"""Runs a command's coroutine, prompts for what a login needs, and exits without waiting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import termios
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from rgt_tui.cli.commands import FAILED, UNREACHABLE, USAGE
from rgt_tui.cli.printing import is_interactive, print_error, waiting_paused
from rgt_tui.fleet import new_loop
from rgt_tui.language import translate
from rgt_tui.model import BoxQuestion, QuestionKind, clean_text
from rgt_tui.ssh import (
    BoxError,
    CatFailed,
    CommandFailed,
    ConfigError,
    DeployFailed,
    NoCommands,
    NoPython,
    Unreachable,
    answered_by,
)

T = TypeVar("T")


def run_coroutine(work: Coroutine[None, None, int], *, boxes: int = 0) -> int:
    """Run a coroutine to its end and return its exit code; `boxes` is how many it watches.

    A name server that does not answer blocks a thread of the standard library for half a minute,
    and Python waits for that thread at exit. Here the process exits at once.
    """
    loop = new_loop(boxes)
    asyncio.set_event_loop(loop)
    threads = _TrackedThreadPool()
    # asyncio's own pool cannot be asked whether a thread is still busy.
    loop.set_default_executor(threads)
    task = loop.create_task(work)
    try:
        code = loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        raise
    finally:
        loop.run_until_complete(_drop_the_rest())
        loop.run_until_complete(loop.shutdown_asyncgens())
    if threads.is_busy:
        sys.stdout.flush()
        sys.stderr.flush()
        # Only if a thread hangs: it skips atexit handlers and buffers, hence the two flushes.
        os._exit(code)
    loop.close()
    return code


def run_on_box(
    name: str, work: Coroutine[None, None, int], *, hint: str = "", secrets: bool = True
) -> int:
    """Run a command about one box; print its error and return the exit status for it.

    Args:
        name: The box.
        work: The command.
        hint: Added to the message if the box cannot be reached.
        secrets: On a terminal, prompt for passwords too, not only for new host keys.
    """
    # Its warnings repeat what the printed error says, with a traceback.
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    # Before Python 3.12 it says so of each kubectl that ends after the command.
    logging.getLogger("asyncio").addFilter(lambda record: "that handles pid" not in record.msg)
    try:
        with terminal_questions(secrets=secrets):
            return run_coroutine(work)
    # All are `BoxError`s, so the order matters: the box was reached, and something there failed.
    except (CatFailed, NoPython, NoCommands, DeployFailed, CommandFailed) as error:
        print_error(f"{name}: {error}")
        return FAILED
    except ConfigError as error:
        print_error(f"{name}: {error}")
        return USAGE
    except BoxError as error:
        print_error(f"{name}: {error}{hint}")
        return UNREACHABLE


def status_of(error: BoxError) -> int:
    """Return the exit status for one failed box of several."""
    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, Unreachable):
        return UNREACHABLE
    return FAILED


async def first_of(*works: Coroutine[Any, Any, object], seconds: float | None = None) -> None:
    """Run coroutines concurrently until one has ended, or the time is up; cancel the others.

    Raises:
        Exception: As raised by the one that ended.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


class _TrackedThreadPool(ThreadPoolExecutor):
    """The loop's thread pool, which knows whether a thread is still working."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="rgt")
        self._given: set[Future[Any]] = set()

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        # `running()` is false while a job only waits in the queue: such a one cannot block the
        # exit.
        future = super().submit(work, *args, **kwargs)
        self._given.add(future)
        future.add_done_callback(self._given.discard)
        return future

    @property
    def is_busy(self) -> bool:
        """Whether a job is still running."""
        return any(future.running() for future in list(self._given))


async def _drop_the_rest() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def until_signalled(over: asyncio.Event) -> None:
    """Set `over` on Ctrl-C, SIGTERM and SIGHUP instead of ending the process."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # SIGHUP, too: after a closed terminal the command still ends in order, e.g. with its
        # history written.
        loop.add_signal_handler(number, over.set)


async def run_until_signalled(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; a signal cancels it, and what it has open is closed.

    Raises:
        KeyboardInterrupt: Ctrl-C, SIGTERM or SIGHUP came first.
        Exception: As raised by the coroutine.
    """
    over = asyncio.Event()
    until_signalled(over)
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(over.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        raise KeyboardInterrupt
    return working.result()


# Questions of a login (a new host key, a password) asked on the terminal of the command that
# connects.


class TerminalQuestions:
    """Asks one question at a time, while other boxes continue."""

    def __init__(self, *, secrets: bool = True) -> None:
        """Create it.

        Without `secrets` it asks only about host keys, not for passwords and codes.
        """
        self._secrets = secrets
        self.turn = asyncio.Lock()
        """Locked while a question is on the screen, because other output would hide it."""

    async def ask_question(self, question: BoxQuestion) -> str | None:
        """Show a question and wait for a line; None = refused."""
        # Host keys are asked for in any case: rgt itself must know the key of the machine.
        if question.kind is not QuestionKind.HOST_KEY and not self._secrets:
            return None
        async with self.turn:
            with waiting_paused(), _terminal_echo(question.kind is not QuestionKind.SECRET):
                sys.stderr.write(
                    "\n".join(clean_text(line) for line in (question.title, *question.lines)) + "\n"
                )
                if question.kind is QuestionKind.HOST_KEY:
                    sys.stderr.write(translate("type yes to accept it, anything else to refuse: "))
                sys.stderr.flush()
                # Not input(): it would block the loop, and all other boxes with it.
                answer = await _read_line()
        return answer or None


async def _read_line() -> str:
    """Wait for a line without blocking the loop, so that Ctrl-C ends the command."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    # A thread in readline() could not be cancelled, and the exit would wait for it.
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    # A terminal is readable only once the line is complete.
    return sys.stdin.readline().rstrip("\n")


@contextlib.contextmanager
def _terminal_echo(shown: bool) -> Iterator[None]:
    """Turn off the terminal's echo, unless `shown`."""
    if shown:
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    hidden = [*before]
    hidden[3] &= ~termios.ECHO
    # FLUSH: keys typed before the question are no answer to it, and were visible.
    termios.tcsetattr(terminal, termios.TCSAFLUSH, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        sys.stderr.write("\n")


@contextlib.contextmanager
def terminal_questions(*, secrets: bool = True) -> Iterator[TerminalQuestions | None]:
    """Prompt for the questions of logins inside on this terminal.

    None in a script, without prompts.
    """
    if not is_interactive():
        yield None
        return
    questions = TerminalQuestions(secrets=secrets)
    with answered_by(questions.ask_question):
        yield questions
