"""How commands print and ask: JSON lines, error messages, prompts; and standard streams that are closed or full."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.status import Status

_LOST = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def open_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed (``rgt status >&-``): only the exit status is wanted then.

    Otherwise the next file that is opened would become standard output. What a locale that is not UTF-8 (`zh_CN.GBK`,
    `de_DE@euro`) has no character for is written as ``?``: it must not end a command, or change its exit status.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if sys.stdout.errors == "strict" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def is_lost_output(error: OSError) -> bool:
    """Tell whether it was standard output that could not be written: a reader that has gone, a full disk behind it."""
    return isinstance(error, BrokenPipeError) or (error.errno in _LOST and error.filename is None)


def drop_output() -> None:
    """Let what is still buffered go nowhere: the interpreter would complain about it at its end, and exit with 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def complain(problem: object) -> None:
    """Print an error in the form of all commands; it may quote a file that somebody else wrote.

    Its further lines are indented: none that it quotes, the name of a file for instance, can pass for one of rgt's own.
    """
    from rgt_tui.model import clean

    first, *rest = (clean(line) for line in str(problem).split("\n"))
    text = "\n".join((first, *(line if line[:1] in ("", " ") else f"     {line}" for line in rest)))
    with contextlib.suppress(OSError):  # nobody reads it: the exit status still tells
        sys.stderr.write(f"rgt: {text}\n")
        sys.stderr.flush()


def print_lines(*lines: str, out: TextIO | None = None) -> None:
    """Print lines, on standard output where `out` is None, cleaned: none can hold a line feed or a sequence."""
    from rgt_tui.model import clean

    (out or sys.stdout).write("".join(f"{clean(line)}\n" for line in lines))


def expanded_here(path: str | None) -> str:
    """Return a hint for a path on a box that this machine's shell may have made of ``~``; "" if it is none."""
    home = Path.home()
    if path is None or not path.startswith(f"{home}/"):
        return ""
    return f" (a shell here makes {home} of ~: write '~/{path.removeprefix(f'{home}/')}' in quotes)"


def interactive() -> bool:
    """Tell whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def prompt(text: str) -> str:
    """Ask a person for a line; empty where nobody answers.

    It blocks: nothing else goes on meanwhile, and a Ctrl-C ends it, which no thread would notice.
    """
    sys.stderr.write(text)
    sys.stderr.flush()
    try:
        return sys.stdin.readline().rstrip("\n")
    except OSError:
        return ""


def says_yes(question: str) -> bool:
    """Ask a question that anything but yes answers with no."""
    return prompt(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def types(phrase: str, question: str) -> bool:
    """Have a phrase typed; a Ctrl-C is another answer."""
    try:
        typed = prompt(question)
    except KeyboardInterrupt:
        return False
    return bool(phrase) and typed == phrase


_shown_waits: list[Status] = []


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """Show on a terminal that something is waited for; nowhere else."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text, spinner="line") as status:
        _shown_waits.append(status)
        try:
            yield
        finally:
            _shown_waits.remove(status)


@contextlib.contextmanager
def waiting_paused() -> Iterator[None]:
    """Take away what `waiting` shows while a person types: it would be drawn over their line."""
    stopped = list(_shown_waits)
    for status in stopped:
        status.stop()
    try:
        yield
    finally:
        for status in stopped:
            if status in _shown_waits:
                status.start()


def columns(cells: Sequence[tuple[str, int, str]], rest: str) -> str:
    """Return one row: cells of a fixed width, and a text that a terminal wraps below itself; plain where there is none.

    All of them are cleaned.

    Args:
        cells: Text, width and style of each.
        rest: The last cell.
    """
    from rgt_tui.model import clean

    rest, cells = clean(rest), [(clean(text), width, style) for text, width, style in cells]
    if not sys.stdout.isatty():
        return "  ".join([*(f"{text:<{width}}" for text, width, _ in cells), rest]) + "\n"
    from rich.cells import cell_len
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    row = Table.grid(padding=(0, 2))
    for _, width, _ in cells:
        row.add_column(width=width, no_wrap=True)
    row.add_column(ratio=1)
    console = Console(highlight=False)
    indent = sum(width + 2 for _, width, _ in cells)
    longest = max(map(cell_len, rest.split()), default=0)
    fits = indent + longest <= console.width
    row.add_row(*(Text(text, style) for text, _, style in cells), Text(rest if fits else ""))
    with console.capture() as captured:
        if fits or any(text for text, _, _ in cells):
            console.print(row)
        if not fits:
            # A fingerprint or a path in two pieces can neither be compared nor copied: it moves below, to the left.
            console.print(Padding(Text(rest), (0, 0, 0, max(2, console.width - longest))))
    return captured.get()


def json_line(value: object) -> bytes:
    """Return `value` as JSON with its line feed. Nothing is lost: whoever parses it has every character back.

    JSON itself escapes only the control characters below U+0020; those of U+007F to U+009F, which a terminal obeys as
    well, and those that turn the direction of text are escaped here.
    """
    import msgspec

    from rgt_tui.model import INVISIBLE

    return INVISIBLE.sub(_escaped, msgspec.json.encode(value).decode()).encode() + b"\n"


def print_json(value: object) -> None:
    """Write `value` to standard output, as `json_line` has it; what its encoding lacks is escaped there, too."""
    line = json_line(value).decode()
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = _BEYOND_ASCII.sub(_escaped, line)
    sys.stdout.write(line)


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]
