"""How commands print and prompt: JSON lines, errors, questions, and closed or full streams."""

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

from rgt_tui.language import show_recorded, translate

if TYPE_CHECKING:
    from rich.status import Status

_LOST = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def open_standard_streams() -> None:
    """Open /dev/null for closed standard streams (``rgt status >&-``).

    Otherwise the next opened file would become standard output. Characters that a non-UTF-8 locale
    (`zh_CN.GBK`, `de_DE@euro`) lacks are written as ``?``, so that they cannot end a command or
    change its exit status.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            # Python sets the stream of a closed descriptor to None; both are repaired here.
            os.fstat(fd)
        except OSError:
            # os.open returns the lowest free number, which is this one
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    # In the C locale, Python writes UTF-8 with surrogateescape (PEP 540), which lacks nothing.
    if sys.stdout.errors == "strict" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def is_lost_output(error: OSError) -> bool:
    """Return whether an error is a failed write to stdout: a closed reader or a full disk."""
    return isinstance(error, BrokenPipeError) or (error.errno in _LOST and error.filename is None)


def drop_output() -> None:
    """Discard buffered output: otherwise the interpreter reports it at exit, with status 120."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_error(problem: object) -> None:
    """Print an error in the common form; it may quote untrusted files.

    Further lines are indented, so that a quoted text, such as a file name, cannot pass for a
    message of rgt.
    """
    from rgt_tui.model import clean_text

    # Cleaned per line: the cleaning would else escape the line feeds of our own messages.
    lines = show_recorded(str(problem)).split("\n")
    first, *rest = (clean_text(line) for line in lines)
    text = "\n".join((first, *(line if line[:1] in ("", " ") else f"     {line}" for line in rest)))
    with contextlib.suppress(OSError):  # stderr may be closed: the exit status remains
        sys.stderr.write(f"rgt: {text}\n")
        sys.stderr.flush()


def print_lines(*lines: str, out: TextIO | None = None) -> None:
    """Print cleaned lines, by default to stdout: none can contain a line feed or an escape."""
    from rgt_tui.model import clean_text

    (out or sys.stdout).write("".join(f"{clean_text(line)}\n" for line in lines))


def hint_expanded_tilde(path: str | None) -> str:
    """Return a hint if the local shell may have expanded ``~`` in a path on a box, else ""."""
    home = Path.home()
    if path is None or not path.startswith(f"{home}/"):
        return ""
    return translate(
        " (a shell here makes {home} of ~: write '~/{removeprefix}' in quotes)",
        home=home,
        removeprefix=path.removeprefix(f"{home}/"),
    )


def is_interactive() -> bool:
    """Return whether a person can be prompted."""
    # Questions go to stderr, so stdout may be a file.
    return sys.stdin.isatty() and sys.stderr.isatty()


def prompt_line(text: str) -> str:
    """Prompt for a line; return an empty text if there is no answer.

    It blocks the event loop, so that Ctrl-C ends it; a thread would not notice Ctrl-C.
    """
    sys.stderr.write(text)
    sys.stderr.flush()
    try:
        return sys.stdin.readline().rstrip("\n")
    except OSError:
        return ""


def confirm_yes(question: str) -> bool:
    """Ask a question; anything but yes means no."""
    return prompt_line(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def confirm_phrase(phrase: str, question: str) -> bool:
    """Ask the person to type a phrase; return whether it matches.

    Ctrl-C counts as another answer.
    """
    try:
        typed = prompt_line(question)
    except KeyboardInterrupt:
        return False
    return bool(phrase) and typed == phrase


# More than one, when several boxes are asked at once.
_shown_waits: list[Status] = []


@contextlib.contextmanager
def wait_indicator(text: str) -> Iterator[None]:
    """Show on a terminal that the command is waiting; silent elsewhere."""
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
    """Hide the output of `wait_indicator` while a person types, because it would overwrite their line."""
    stopped = list(_shown_waits)
    for status in stopped:
        status.stop()
    try:
        yield
    finally:
        for status in stopped:
            if status in _shown_waits:
                status.start()


def format_row(cells: Sequence[tuple[str, int, str]], rest: str) -> str:
    """Return one row: cells of a fixed width, and a last cell that wraps on a terminal.

    All cells are cleaned. Without a terminal the row is plain text.

    Args:
        cells: Text, width and style of each.
        rest: The last cell.
    """
    from rgt_tui.model import clean_text

    rest, cells = (
        clean_text(rest),
        [(clean_text(text), width, style) for text, width, style in cells],
    )
    from rich.cells import cell_len

    if not sys.stdout.isatty():
        padded = [text + " " * (width - cell_len(text)) for text, width, _ in cells]
        return "  ".join([*padded, rest]) + "\n"
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
    # Columns, not characters: Chinese text is two columns wide.
    longest = max(map(cell_len, rest.split()), default=0)
    fits = indent + longest <= console.width
    row.add_row(*(Text(text, style) for text, _, style in cells), Text(rest if fits else ""))
    with console.capture() as captured:
        if fits or any(text for text, _, _ in cells):
            console.print(row)
        if not fits:
            # Split fingerprints or paths cannot be compared or copied: put them on a line of their
            # own, further left.
            console.print(Padding(Text(rest), (0, 0, 0, max(2, console.width - longest))))
    return captured.get()


def json_line(value: object) -> bytes:
    """Return `value` as JSON with a line feed. Parsing it restores every character.

    JSON escapes only the control characters below U+0020. Those from U+007F to U+009F, which
    terminals obey as well, and those that change the direction of text are escaped here.
    """
    import msgspec

    from rgt_tui.model import INVISIBLE

    return INVISIBLE.sub(_escape_match, msgspec.json.encode(value).decode()).encode() + b"\n"


def print_json(value: object) -> None:
    """Print `value` as `json_line`, see `write_json`."""
    write_json(json_line(value), sys.stdout)


def write_json(data: bytes, out: TextIO) -> None:
    """Write lines of JSON; characters that the encoding lacks are escaped, instead of replaced by ``?``."""
    text = data.decode()
    try:
        text.encode(out.encoding or "utf-8")
    except UnicodeEncodeError:
        text = _BEYOND_ASCII.sub(_escape_match, text)
    out.write(text)


def _escape_match(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1]
