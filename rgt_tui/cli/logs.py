"""``rgt logs``: copy a file of a box to standard output, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
import shlex
import sys
import unicodedata
from collections.abc import Callable
from pathlib import PurePosixPath

import msgspec

from rgt_tui.cli import running
from rgt_tui.cli.commands import OK
from rgt_tui.cli.opening import open_box
from rgt_tui.cli.printing import json_line, print_json, print_lines
from rgt_tui.cli.watch_arguments import LogsArguments
from rgt_tui.fleet import ExactLog, ExactLogRequest, connected_agent
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec, BoxState, LinkState, clean_text, moment
from rgt_tui.ssh import (
    CatFailed,
    FileListed,
    Unreachable,
    list_matching_files,
    resolve_hops,
)

# The agent follows the screen of a pane like a log, but there is no file to copy.
PANE = "tmux:"
"""Prefix of the "path" of a tmux pane."""


async def choose_log_path(
    spec: BoxSpec, arguments: LogsArguments, say: Callable[[str], None]
) -> str | None:
    """Return the path on the box; None if only a list was requested, which is printed.

    Raises:
        CatFailed: There is no such log.
        ConfigError: ssh_config, or the box's entry in the fleet file, is wrong.
        BoxError: The box cannot be reached.
    """
    wanted = arguments.log
    if wanted is not None and is_path(wanted) and not arguments.list_only:
        # Expanded on the box: ~ and globs are those of the login there.
        return str(wanted)
    from rgt_tui.cli.gathering import (
        gather_state,  # imported here, because reading a path needs no fleet
    )

    state = await gather_state(
        [spec], arguments.timeout, accept_new_host_keys=arguments.accept_new_host_key
    )
    box = state.boxes[0]
    if box.link is not LinkState.LIVE:
        await asyncio.to_thread(
            resolve_hops, spec
        )  # a mistake in ssh_config is a local error, not an unreachable box
        raise Unreachable(box.reason)
    # Names of runs come before names of files, because `rgt status` shows the former.
    if wanted is not None and not arguments.list_only:
        log = of_run(box, wanted)
    else:
        log = None
    if log is not None:
        return log
    async with connected_agent(spec) as (connection, deployed):
        # Asked of the box, because logs that no run has open are in no state of the fleet.
        found = await list_matching_files(
            connection, deployed, (wanted,) if wanted else tuple(list_log_paths(box))
        )
    if wanted is not None and not arguments.list_only:
        if not found:
            raise CatFailed(describe_unknown_log(box, wanted))
        return str(wanted)
    if arguments.list_only:
        for file in found:
            if arguments.json:
                print_json({"box": spec.name, **msgspec.to_builtins(file)})
                continue
            print_lines(f"{moment(file.mtime)} {file.size:>14,} {file.path}")
        return None
    return choose_newest_log(found, spec.name, say)


def is_path(word: str) -> bool:
    """Return whether a word must be a path; ``exp/train`` may be the name of a found training."""
    return word.startswith(("/", "~", "./", "../")) or any(char in word for char in "*?[")


def list_log_paths(box: BoxState) -> list[str]:
    """Return the paths of a box's logs: those that are followed, and those of its runs."""
    logs = [log for logs in list_run_logs(box).values() for log in logs]
    # A log can be known three ways: by its run, because it is followed, or by the fleet file.
    paths = dict.fromkeys([*logs, *(view.path for view in box.logs), *box.spec.logs])
    return [path for path in paths if not path.startswith(PANE)]


def list_run_logs(box: BoxState) -> dict[str, tuple[str, ...]]:
    """Return the runs of a box as in `rgt status`, each with its outputs, the best first."""
    # A cell's log wins over that of a found training of the same name: the queue wrote the former.
    cells = {
        cell.name: (cell.log,) if cell.log else () for queue in box.queues for cell in queue.cells
    }
    found = {run.name: (*((run.log,) if run.log else ()), *run.logs) for run in box.found}
    names = dict.fromkeys((*cells, *(run.name for run in box.runs), *found))
    return {clean_text(name): cells.get(name) or found.get(name) or () for name in names}


def of_run(box: BoxState, name: str) -> str | None:
    """Return the log of a run, or a log with that name; None if neither is known.

    Raises:
        CatFailed: The run exists, but its output is in no file.
    """
    logs = list_run_logs(box).get(clean_text(name))
    # The best log comes first, see `list_run_logs`.
    path = next((log for log in logs or () if not log.startswith(PANE)), None)
    if path is None:
        path = next(
            (
                log
                for log in list_log_paths(box)
                if name in (PurePosixPath(log).name, PurePosixPath(log).stem)
            ),
            None,
        )
    if path is None and logs:
        pane = logs[0].removeprefix(PANE)
        raise CatFailed(
            translate(
                "{name} prints only to the tmux pane {pane}, and to no file: `rgt` shows its "
                "screen; to keep its output in a file, run on the box: tmux pipe-pane -o -t "
                "{pane_2} 'cat >> ~/train.log'",
                name=name,
                pane=pane,
                pane_2=shlex.quote(pane),
            )
        )
    # The run exists, so a file of its name in the home directory would be a wrong guess.
    if path is None and logs is not None:
        raise CatFailed(
            translate(
                "no log is known for {name}; if there is one, give its path{box}",
                name=name,
                box=describe_existing_names(box, name),
            )
        )
    return path


def describe_unknown_log(box: BoxState, name: str) -> str:
    """Return the message for a name that is no run, log or file."""
    word = clean_text(name)
    return translate(
        "no run, log or file is called {word}{box}; to wait for a file that does not exist yet, "
        "use --follow with its path: {value}",
        word=word,
        box=describe_existing_names(box, name),
        value=shlex.quote(f"./{word}"),
    )


def describe_existing_names(box: BoxState, name: str) -> str:
    """Return a text with the existing names, those most like `name` first."""
    there = list(
        dict.fromkeys(
            (
                *list_run_logs(box),
                *(clean_text(PurePosixPath(log).name) for log in list_log_paths(box)),
            )
        )
    )
    if not there:
        return translate("; rgt knows of no runs and no logs there")
    # Maximum names in a message.
    named = 20
    # A cutoff of 0 lists all names; this only sorts them.
    near = difflib.get_close_matches(clean_text(name), there, named, 0.0)
    more = ""
    if len(there) > named:
        more = translate(
            " and {count} more (rgt status {name} --json)",
            count=len(there) - named,
            name=box.spec.name,
        )
    return translate("; there are: {near}{more}", near=", ".join(near), more=more)


def choose_newest_log(found: tuple[FileListed, ...], name: str, say: Callable[[str], None]) -> str:
    """Return the log that was written last; if there are several, print which one.

    Raises:
        CatFailed: No log was found.
    """
    if not found:
        raise CatFailed(
            translate(
                "no log was found; give a path (rgt logs {name} '~/exp/train.log'), or set "
                'logs = ["~/exp/*.log"]',
                name=name,
            )
        )
    shown_limit = 5
    if len(found) > 1:
        others = ", ".join(clean_text(file.path) for file in found[1 : 1 + shown_limit])
        more = ""
        if len(found) - 1 > shown_limit:
            more = translate(" and {found} more", found=len(found) - 1 - shown_limit)
        say(
            translate(
                "{path} is the newest of {found} logs; also: {others}{more}",
                path=found[0].path,
                found=len(found),
                others=others,
                more=more,
            )
        )
    return found[0].path


LONGEST_LINE = 1 << 20
"""Maximum bytes without a line end that are buffered for a terminal."""
PAUSE_SECONDS = 1.0
"""Seconds after which an incomplete line is drawn."""


class ExactOutput:
    """Writes bytes unchanged.

    Args:
        fd: The file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def write(self, data: bytes) -> None:
        """Write all data, in a thread, because a reader that pauses must not stop the connection.

        Raises:
            BrokenPipeError: The reader has closed the pipe.
        """
        await asyncio.to_thread(self._write_all, data)

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            # A pipe takes as much as it has room for.
            view = view[os.write(self._fd, view) :]

    async def close(self) -> None:
        """Write what is buffered: nothing."""


class LineOutput(ExactOutput):
    """Writes complete lines without escape sequences.

    An overwritten line only in its last state.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._rest = b""
        """The last line, which is not complete yet."""

    async def write(self, data: bytes) -> None:
        """Write the lines that are complete now."""
        # Only LF ends a line: a CR alone begins a progress bar again.
        *lines, self._rest = (self._rest + data).split(b"\n")
        # A file without line ends (a binary) would else be buffered as a whole.
        if len(self._rest) > LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        if lines:
            await super().write(self._format_lines(lines))

    async def close(self) -> None:
        """Write the rest of a last line."""
        if self._rest:
            lines, self._rest = [self._rest], b""
            await super().write(self._format_lines(lines))

    def _format_lines(self, lines: list[bytes]) -> bytes:
        return b"".join(clean_line(line) + b"\n" for line in lines)


class TerminalOutput(LineOutput):
    """Writes lines to a terminal, and the incomplete last one as well.

    An incomplete line, such as a progress bar, is drawn about once a second, cut to one row, and
    overwritten by later output.

    Args:
        fd: The file descriptor.
        columns: Returns the width of the terminal.
    """

    def __init__(self, fd: int, columns: Callable[[], int] | None = None) -> None:
        super().__init__(fd)
        # Asked each time: the window may have been resized.
        self._columns = columns or (lambda: os.get_terminal_size(fd).columns)
        self._drawn = 0
        """Columns of the incomplete line on the terminal."""
        # Writes happen in threads, so the redraw of a line could run into the next lines.
        self._turn = asyncio.Lock()
        self._drawing: asyncio.Task[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write the lines that are complete now."""
        async with self._turn:
            await super().write(data)
        if self._drawing is not None and self._drawing.done():
            self._drawing.result()  # raises if the terminal is gone
            self._drawing = None
        if self._rest and self._drawing is None:
            self._drawing = asyncio.create_task(self._draw_soon())

    async def close(self) -> None:
        """Write the rest of a last line."""
        async with self._turn:
            if self._drawing is not None:
                self._drawing.cancel()
            await super().close()

    def _format_lines(self, lines: list[bytes]) -> bytes:
        return self._erase_drawn() + super()._format_lines(lines)

    async def _draw_soon(self) -> None:
        # A bar that is updated a hundred times a second would else flood a slow terminal.
        await asyncio.sleep(PAUSE_SECONDS)
        async with self._turn:
            # A terminal would show only the part after the last CR.
            newest = self._rest.rstrip(b"\r").rpartition(b"\r")[2]
            # Maximum bytes of an incomplete line that are read to show its beginning.
            longest_row = 4096
            # One column less than the width: a full row makes some terminals wrap to the next one.
            text = one_row(clean_line(newest[:longest_row]).decode(), self._columns() - 1)
            if text:
                out = self._erase_drawn() + text.encode()
                # A guess upwards: an ambiguous character counts as two columns, so all of it is
                # overwritten.
                self._drawn = count_columns(text)
                await ExactOutput.write(self, out)

    def _erase_drawn(self) -> bytes:
        """Return bytes that overwrite the incomplete line with spaces, for any terminal."""
        drawn, self._drawn = self._drawn, 0
        if drawn:
            return b"\r" + b" " * drawn + b"\r"
        return b""


class JsonOutput(LineOutput):
    """Writes an object per line: its offset and its text.

    Args:
        fd: The file descriptor.
        log: The log of the lines.
        box: The box's name in the fleet file.
    """

    def __init__(self, fd: int, log: ExactLog, box: str) -> None:
        super().__init__(fd)
        self._box = box
        self._log = log
        self._begin = self._end = 0
        self._path = ""

    async def write(self, data: bytes) -> None:
        """Write the lines that are complete now."""
        if (self._path, self._end) != (self._log.path, self._log.offset):
            await self.close()  # another file, so the last line of the previous one is complete
            self._path, self._begin, self._end = self._log.path, self._log.offset, self._log.offset
        # Offsets are those of the file, so that a reader can continue there.
        self._end += len(data)
        await super().write(data)

    def _format_lines(self, lines: list[bytes]) -> bytes:
        out = []
        for line in lines:
            # JSON text is UTF-8: the exact bytes are in the file at this offset.
            text = line.decode("utf-8", "replace")
            out.append(
                json_line(
                    {"box": self._box, "path": self._path, "offset": self._begin, "text": text}
                )
            )
            self._begin += len(line) + 1
        self._begin = self._end - len(self._rest)
        return b"".join(out)


def clean_line(line: bytes) -> bytes:
    """Return a line of a log that is safe for a terminal."""
    # CRLF files end in \r, which is no overwriting.
    shown = line.rstrip(b"\r").rpartition(b"\r")[2]
    return clean_text(shown.decode("utf-8", "replace")).encode("utf-8", "replace")


def count_columns(text: str) -> int:
    """Return the maximum number of columns of a text."""
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in text)


def one_row(text: str, columns: int) -> str:
    """Return as much of a text as fits into `columns` columns."""
    # Each character counts as at least one column, so this bounds the loop below.
    text = text[: max(0, columns)]
    while count_columns(text) > columns > 0:
        text = text[:-1]
    return text


def make_output(
    log: ExactLog, box: str, *, raw: bool, as_json: bool, plain: bool = False
) -> ExactOutput:
    """Return the output: exact, except with `plain`, or on a terminal without `raw`."""
    # Below, bytes go to the descriptor, past Python's buffer.
    sys.stdout.flush()
    fd = sys.stdout.fileno()
    # Before the check of the terminal: JSON lines are the same everywhere.
    if as_json:
        return JsonOutput(fd, log, box)
    if sys.stdout.isatty() and not raw:
        return TerminalOutput(fd)
    if plain:
        return LineOutput(fd)
    return ExactOutput(fd)


def run_logs(arguments: LogsArguments) -> int:
    """Print the log; return the exit code."""
    spec = open_box(arguments)

    return running.run_on_box(spec.name, _print_log(spec, arguments))


async def _print_log(spec: BoxSpec, arguments: LogsArguments) -> int:
    def print_note(text: str) -> None:
        print_lines(f"rgt: {spec.name}: {text}", out=sys.stderr)
        sys.stderr.flush()

    async def copy_log() -> int:
        path = await choose_log_path(spec, arguments, print_note)
        if path is None:
            return OK
        request = ExactLogRequest(
            path=path,
            follow=arguments.follow,
            lines=None if arguments.from_start else arguments.lines,
            patience=arguments.timeout,
            accept_new_host_keys=arguments.accept_new_host_key,
        )
        log = ExactLog(spec, request, print_note)
        output = make_output(
            log, spec.name, raw=arguments.raw, as_json=arguments.json, plain=arguments.plain
        )
        try:
            async for data in log.stream_pieces():
                await output.write(data)
        finally:
            # Also after an error: the last line of a killed training has no line end and often says
            # why.
            await output.close()
        return OK

    # Ctrl-C is the normal end of --follow, so it exits with 0, after the buffered line is printed.
    over = asyncio.Event()
    running.until_signalled(over)
    working, waiting = asyncio.create_task(copy_log()), asyncio.create_task(over.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        return OK
    return working.result()
