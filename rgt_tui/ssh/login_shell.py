"""Starts commands under a login shell whose start-up files print, end the shell or replace it.

sshd passes every command to the login shell, which reads start-up files such as ``~/.bashrc``
first.
So a marker precedes each command: what arrives before it belongs to the start-up files and is
dropped, and without it the command did not run, even if the exit status is 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import asyncssh

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.ssh.box_transport import (
    BoxChannel,
    BoxError,
    BoxTransport,
    CommandNotRun,
    PasswordExpired,
    RestrictedShell,
)

MARKER = "RGT-COMMAND-BEGINS"
_MARKER_LINE = f"\n{MARKER}\n".encode()
MOST_SAID = 2048
"""Bytes of a start-up file's output that are kept for messages."""
GUARD = "[[ $- == *i* ]] || return"
"""Ends a start-up file of bash or zsh in a shell that is not interactive."""


def quote_words(*words: str) -> str:
    """Return words as a command line that means the same to sh, bash, zsh, fish, csh and busybox.

    Between single quotes csh expands exclamation marks, and fish backslashes: not outside of them.
    """
    # The quotes are closed, the character is escaped outside of them, and they are opened again.
    return shlex.join(words).replace("\\", "'\\\\'").replace("!", "'\\!'")


def mark_command(command: str) -> str:
    """Return the command, preceded by a marker on a line of its own.

    ``echo``, ``;`` and single-quoted words mean the same to sh, bash, zsh, fish, csh and busybox.
    """
    # The first echo ends a line that a start-up file may have left open.
    return f"echo; echo {MARKER}; {command}"


class StartUpCost(FrozenStruct):
    """What the start-up files cost before a command began."""

    seconds: float = 0.0
    printed_bytes: int = 0

    @property
    def is_slow(self) -> bool:
        """Whether they take long enough to be reported."""
        return self.seconds >= 2.0

    @property
    def cost_text(self) -> str:
        """The cost as text; empty if it is small."""
        noisy_bytes = 64 << 10
        found = []
        if self.is_slow:
            found.append(f"take {self.seconds:.1f} s")
        if self.printed_bytes >= noisy_bytes:
            found.append(f"print {self.printed_bytes / 1e6:.1f} MB")
        return " and ".join(found)


def start_up_cost(connection: BoxTransport) -> StartUpCost | None:
    """Return what the start-up files cost before the last command; None if none has begun."""
    cost: StartUpCost | None = connection.get_extra_info("rgt_start_up")
    return cost


class MarkedSession(asyncssh.SSHClientSession[bytes]):
    """Forwards a command's session from the marker on.

    If the login shell ends before it, `inner.connection_lost` gets the error `CommandNotRun`.

    Attributes:
        started: Resolves with whether the marker has arrived, at the latest at the end.
    """

    def __init__(self, inner: asyncssh.SSHClientSession[bytes], connection: BoxTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[bool] = self._loop.create_future()
        self._inner, self._connection = inner, connection
        self._began, self._dropped = self._loop.time(), 0
        self._status: int | None = None
        self._said = bytearray()
        self._words = bytearray()
        self._tail = b"\n"

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """Forward the channel."""
        chan.set_extra_info(rgt_started=self.started)
        self._inner.connection_made(chan)

    def session_started(self) -> None:
        """Forward that the server has accepted the command."""
        self._inner.session_started()

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Forward standard error, and standard output after the marker."""
        # Standard error is not held back: its order relative to the marker is not defined.
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            if not self.started.done():
                self._words += data[: MOST_SAID - len(self._words)]
            self._inner.data_received(data, datatype)
            return
        if self.started.done():
            self._inner.data_received(data, datatype)
            return
        self._said += data[: MOST_SAID - len(self._said)]
        # The marker may be cut at any byte, so as much as it is long is kept from piece to piece.
        data = self._tail + data
        before, marker, rest = data.partition(_MARKER_LINE)
        self._dropped += len(before)
        if not marker:
            self._tail = data[-len(_MARKER_LINE) :]
            self._dropped -= len(self._tail)
            return
        self.started.set_result(True)
        cost = StartUpCost(self._loop.time() - self._began, self._dropped)
        self._connection.set_extra_info(rgt_start_up=cost)
        if rest:
            self._inner.data_received(rest, datatype)
        if self._status is not None:  # it may overtake the output
            self._inner.exit_status_received(self._status)

    def eof_received(self) -> bool:
        """Forward the end of the output of a command that ran."""
        return self.started.done() and bool(self._inner.eof_received())

    def exit_status_received(self, status: int) -> None:
        """Forward the exit status of a command that ran; otherwise it is that of the shell."""
        self._status = status
        if self.started.done():
            self._inner.exit_status_received(status)

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """Forward the signal that ended the command."""
        self._inner.exit_signal_received(signal, core_dumped, msg, lang)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward the end; without a marker, as the error that says that the command did not run.

        If the caller itself waits for the marker, the error is its own to raise.
        """
        if not self.started.done():
            self.started.set_result(False)
            if (
                exc is None
                and self._status is not None
                # There the shell's status is not about the command.
                and not reads_commands_from_stdin(self._connection)
            ):
                exc = not_run_error(
                    bytes(self._words) + b"\n" + bytes(self._said), self._status, self._connection
                )
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward that the box reads no more for now."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Forward that the box reads again."""
        self._inner.resume_writing()


EXPIRED = re.compile(
    r"password (has|is) expired|password change required|(must|required to) change your password|"
    r"\b(new|current|old) (unix )?password",
    re.IGNORECASE,
)
"""sshd's own messages, which it does not translate, and PAM's."""


RESTRICTED = re.compile(
    r"\b(?:rbash|rksh|rzsh): |\b(?:ba|mk|k|z)?sh:(?:[^\n]*:)? ?restricted\b|: restricted: cannot |"
    r"\brestricted by rssh\b|forbidden (?:command|path|character)|"
    r"account is currently not available|fatal: unrecognized command|git shell is not enabled",
    re.IGNORECASE,
)
"""Messages of bash, ksh and zsh in restricted mode, lshell, rssh, nologin and git-shell.

Not the word alone: a banner may say that the use of a system is restricted.
"""


def refuse_restricted(text: str) -> None:
    """Raise `RestrictedShell` if `text` is the message of a restricted shell."""
    if RESTRICTED.search(text):
        raise RestrictedShell(
            translate("the box's login shell is restricted; its output: {words}", words=text)
        )


def not_run_error(said: bytes, status: int, connection: BoxTransport) -> BoxError:
    """Return the error for a login shell that ended before the command.

    Args:
        said: Its standard error and output.
        status: Its exit status.
        connection: The connection.
    """
    lines = [clean_text(line) for line in said.decode(errors="replace").splitlines()]
    text = next((line for line in lines if line.strip() and not line.startswith("RGT-")), "")[:200]
    if EXPIRED.search("\n".join(lines)):
        by_hand: tuple[str, ...] = connection.get_extra_info("rgt_by_hand", ())
        return PasswordExpired(
            translate(
                "the password has expired, and the box runs nothing until you change it: run "
                "{value} (rgt types nothing into that prompt); its output: {words}",
                value=shlex.join(["ssh", "-t", *by_hand]),
                words=text,
            )
        )
    if start_up_cost(connection) is None:
        message = translate(
            "the box runs no commands: its login shell ended with {status} before the command",
            status=status,
        )
    else:  # an earlier command began, so this one's text is the cause: a syntax error
        message = translate(
            "the box's login shell did not run this command, and ended with {status}", status=status
        )
    if text:
        message += f"; its output: {text}"
    return CommandNotRun(message, text)


def _encode_command(command: str) -> Any:
    """Return a command as bytes: names on the box need not be UTF-8. asyncssh declares only `str`."""
    # asyncssh would encode a text strictly, and fail for a name that is not UTF-8.
    return command.encode(errors="surrogateescape")


async def open_in_login_shell(
    connection: BoxTransport,
    make: Callable[[], asyncssh.SSHClientSession[bytes]],
    command: str,
    **options: Any,
) -> BoxChannel:
    """Start a command in a session of its own, in the way that works on this connection.

    Raises:
        CommandNotRun: the shell that reads commands from standard input ended, or did not answer.
        asyncssh.Error: the session cannot be started.
    """
    # A forced command may compare the exact text.
    if runs_plain_commands(connection):
        channel, _ = await connection.create_session(
            make, _encode_command(command), encoding=None, **options
        )
        return channel
    marked: list[MarkedSession] = []

    def make_marked() -> asyncssh.SSHClientSession[bytes]:
        marked.append(MarkedSession(make(), connection))
        return marked[-1]

    patience_s: float | None = connection.get_extra_info("rgt_stdin_shell")
    if patience_s is None:
        channel, _ = await connection.create_session(
            make_marked, _encode_command(mark_command(command)), encoding=None, **options
        )
        return channel
    channel, _ = await connection.create_session(make_marked, None, encoding=None, **options)
    # `exec`, so that the command's end is the session's end.
    line = f" exec {quote_words('sh', '-c', mark_command(command))}\n"
    with contextlib.suppress(OSError):  # the shell has ended: `started` says so
        channel.write(_encode_command(line))
    # A shell may read ahead, so nothing else is sent before the command runs.
    done, _ = await asyncio.wait({marked[-1].started}, timeout=patience_s)
    if done and marked[-1].started.result():
        return channel
    # Not a polite close: a program that reads nothing would never end by it.
    channel.abort()
    raise CommandNotRun(
        translate("the box runs no commands: no shell answers on its standard input")
    )


def has_begun(channel: BoxChannel) -> bool:
    """Return whether the command of a channel runs, or has run; True where no marker shows it."""
    started: asyncio.Future[bool] | None = channel.get_extra_info("rgt_started")
    return started is None or (started.done() and started.result())


async def wait_for_begin(channel: BoxChannel, patience_s: float) -> bool:
    """Return whether the command of a channel begins within some seconds, or has ended after it began."""
    started: asyncio.Future[bool] | None = channel.get_extra_info("rgt_started")
    if started is not None:
        await asyncio.wait({started}, timeout=patience_s)
    return has_begun(channel)


def set_stdin_shell(connection: BoxTransport, patience_s: float | None) -> None:
    """Choose how commands are started on this connection.

    Args:
        connection: The connection.
        patience_s: None = as commands. Otherwise each command is a line for the login shell's
            standard input, which must start it within these seconds: a login shell that was given
            no command reads other start-up files, and a shell that has replaced it reads that line.
    """
    connection.set_extra_info(rgt_stdin_shell=patience_s)


def reads_commands_from_stdin(connection: BoxTransport) -> bool:
    """Return whether commands are lines for a shell's standard input."""
    return connection.get_extra_info("rgt_stdin_shell") is not None


def set_plain_commands(connection: BoxTransport, is_plain: bool) -> None:
    """Choose whether commands are sent without a marker: a forced command may refuse a ``;``."""
    connection.set_extra_info(rgt_plain_commands=is_plain)


def runs_plain_commands(connection: BoxTransport) -> bool:
    """Return whether commands are sent without a marker."""
    return connection.get_extra_info("rgt_plain_commands") is True


# Which line of which start-up file is the cause.


class StartUpLine(FrozenStruct):
    """A line of a start-up file that hinders commands."""

    file: str
    line: int
    text: str
    """The line, printable and shortened."""

    @property
    def place_text(self) -> str:
        """File, line and text for messages."""
        return f"{self.file} line {self.line} ({self.text})"


_SHELLS = r"(?:\S*/)?(?:ba|z|fi|da|k|tc|c|nu|xon|elvi)?sh"
_TAKES_TERMINAL = r"(?:\S*/)?(?:tmux|screen|byobu|zellij|abduco|dtach|mosh-server)"
_START = r"(?:^|[;&|(){]|\b(?:then|else|do)\s)\s*"
_ENDS = tuple(
    re.compile(_START + pattern)
    for pattern in (
        r"exec\s+(?![0-9]*[<>&])\S",
        rf"(?:command\s+)?{_TAKES_TERMINAL}(?:\s|$)",
        rf"(?:(?:newgrp|sg|su)\s+\S|{_SHELLS}(?:\s+-l|\s+--login|\s+-i)*\s*(?:$|[;&|)}}]))",
        r"(?:exit|logout)\b",
        r"(?:read\s|select\s+\w+\s+in\b|cat\s*(?:$|[|>;]))(?!.*<)",
        r"set\s+(?:-[a-zA-Z]*[eu]|-o\s+(?:errexit|nounset))",
    )
)
"""Commands that end or replace a shell, or read its input, the least doubtful first."""
WAITS = tuple(
    re.compile(_START + pattern)
    for pattern in (
        r"(?:while|until)\s(?!.*\bread\b)",
        r"(?:yes|tail\s+-\w*[fF]|wait)\b",
        r"sleep\s",
        r"(?:ping|curl|wget|nc|ssh|rsync|mount|conda|mamba|pip3?|git)\s",
    )
)
"""Commands that may take without an end, the least doubtful first."""
_READS_INPUT = re.compile(r"(?:read|select) |cat$")
"""A traced command that reads the input, if something has read it."""
_GUARDS = re.compile(
    r"\$-|\$\{-\}|\bPS1\b|\[\[?\s+(?:!\s+)?-t\s+[0-2]|status\s+(?:is-|--is-)interactive|\$\?prompt"
)
"""A test of whether the shell is interactive; what it guards does not run for commands."""


def find_ending_line(
    files: Iterable[tuple[str, str]], patterns: Sequence[re.Pattern[str]] = _ENDS
) -> StartUpLine | None:
    """Return the line of a start-up file that most probably ends or replaces the shell.

    Args:
        files: Name and content of each file.
        patterns: What such a line contains, the least doubtful first; `WAITS` for one that never
            ends.
    """
    kept: list[tuple[int, int, StartUpLine]] = []
    for order, (name, content) in enumerate(files):
        lines = content.splitlines()
        for number, code in enumerate(lines, 1):
            if code.lstrip().startswith("#"):
                continue
            # The `return` of such a guard may be some lines further down.
            if _GUARDS.search(code):
                following = "\n".join(lines[number - 1 : number + 4])
                if re.search(r"\breturn\b", following):
                    break
                if not re.search(r"\bexit\b", following):
                    continue
            # The least doubtful command of all files wins, not the first one.
            for rank, pattern in enumerate(patterns):
                if pattern.search(code):
                    found = StartUpLine(name, number, clean_text(code.strip())[:120])
                    kept.append((rank, order, found))
                    break
    *_, best = min(kept, key=lambda row: row[:2], default=(0, 0, None))
    return best


def name_replacing_program(said: str) -> str | None:
    """Return the program that has replaced the login shell, by its own words; None if unknown."""
    if "open terminal failed" in said:
        return "tmux"
    if "Must be connected to a terminal" in said:
        return "screen"
    found = re.search(r"\b(fish|zsh|tcsh|ksh|mksh|dash|nu|xonsh|elvish|zellij|byobu): ", said)
    if found is None:
        return None
    return found[1]


_LOGIN_FILES = ("~/.bash_profile", "~/.bash_login", "~/.profile")
"""A login shell of bash reads the first that is readable."""
START_UP_FILES = (
    "~/.bashrc", "~/.zshenv", "~/.config/fish/config.fish", "~/.tcshrc", "~/.cshrc",
    *_LOGIN_FILES, "~/.zprofile", "~/.zshrc", "~/.login",
    "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshenv", "/etc/zshenv", "/etc/profile",
    "/etc/profile.d/*.sh",
)  # fmt: skip
"""In the order in which they matter for a command."""
_FILE_MARKER = "\nRGT-FILE "
_SOURCED = re.compile(
    r"(?:^|[;&|({]|\b(?:then|else|do)\s)[ \t]*(?:source|\.)[ \t]+[\"']?"
    r"(?:~|\$HOME|\$\{HOME\})(/[^\s\"'`$;&|()<>]{1,200})",
    re.MULTILINE,
)


def print_files_command(names: str) -> str:
    """Return the command that prints those files that are readable, each below its name.

    Args:
        names: Words for ``sh``, such as `quote_file_name` returns.
    """
    script = (
        f'for f in {names}; do if [ -f "$f" ] && [ -r "$f" ]; then n=$f; '
        'case $f in "$HOME"/*) n="~${f#"$HOME"}";; esac; '
        'echo; echo "RGT-FILE $n"; head -c 65536 "$f"; fi; done'
    )
    return quote_words("sh", "-c", script)


def quote_file_name(name: str) -> str:
    """Return a name that begins with ``~/`` as a word for ``sh``."""
    return f'"$HOME"/{shlex.quote(name.removeprefix("~/"))}'


def list_sourced_files(files: Iterable[tuple[str, str]]) -> list[str]:
    """Return the other files in the home directory that start-up files of it source.

    Args:
        files: Name and content of each start-up file.
    """
    most_files = 20
    found = [
        f"~{match[1]}"
        for name, text in files
        if name.startswith("~/")
        for match in _SOURCED.finditer(text)
    ]
    others = [name for name in dict.fromkeys(found) if name not in START_UP_FILES]
    return others[:most_files]


def split_start_up_files(printed: str) -> list[tuple[str, str]]:
    """Return name and content of each file in the output of `print_files_command`."""
    found = []
    for part in f"\n{printed}".split(_FILE_MARKER)[1:]:
        name, _, text = part.partition("\n")
        found.append((name, text))
    return found


def drop_unread_files(files: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the files without those that bash skips, because it reads an earlier one instead.

    A file that an earlier one names is kept: it is probably sourced.
    """
    kept: list[tuple[str, str]] = []
    for name, text in files:
        is_second = name in _LOGIN_FILES and any(other in _LOGIN_FILES for other, _ in kept)
        # By its bare name, since it may be sourced as ~/x, $HOME/x or /root/x.
        base = name.rpartition("/")[2]
        sourced = re.compile(rf"(?:^|[\s/\"']){re.escape(base)}(?![\w.])", re.MULTILINE)
        if not is_second or any(sourced.search(earlier) for _, earlier in kept):
            kept.append((name, text))
    return kept


async def read_start_up_files(
    connection: BoxTransport, seconds: float = 4.0
) -> list[tuple[str, str]]:
    """Return name and content of the readable start-up files; empty without SFTP.

    sshd serves SFTP itself on many boxes, without the login shell.
    """
    most_bytes = 64 << 10
    found: list[tuple[str, str]] = []
    if not isinstance(connection, asyncssh.SSHClientConnection):
        return found
    with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
        async with asyncio.timeout(seconds), connection.start_sftp_client() as client:
            names = list(START_UP_FILES)
            for name in names:
                paths: list[str] = [name]
                if "*" in name:
                    with contextlib.suppress(asyncssh.SFTPError):
                        paths = sorted(str(path) for path in await client.glob(name))
                for path in paths:
                    with contextlib.suppress(asyncssh.SFTPError):
                        async with client.open(
                            path.removeprefix("~/"), "r", errors="replace"
                        ) as file:
                            text = str(await file.read(most_bytes))
                        found.append((path, text))
                if name == START_UP_FILES[-1]:  # what they source comes after them
                    names += list_sourced_files(found)
    return found


_SOURCE_COMMAND_FILES = (
    "if [ -r /etc/bash.bashrc ]; then . /etc/bash.bashrc; fi; "
    "if [ -r ~/.bashrc ]; then . ~/.bashrc; fi"
)
_SOURCE_LOGIN_FILES = (
    "if [ -r /etc/profile ]; then . /etc/profile; fi; "
    f'for f in {" ".join(_LOGIN_FILES)}; do if [ -r "$f" ]; then . "$f"; break; fi; done'
)


def _build_trace_command(sourced: str, zsh_options: str) -> str:
    """Return the command that reads the start-up files once more, and reports each of their commands.

    A shell that a start-up file starts runs the line on standard input, so the output shows where.

    Args:
        sourced: How bash reads them: it takes no PS4 from root's environment, so it does so by
            hand.
        zsh_options: Options of zsh.
    """
    for_bash = (
        f"PS4='+RGT $EPOCHREALTIME $BASH_SOURCE:$LINENO '; set -x; {sourced}; echo RGT-END; cat"
    )
    script = (
        's=$(getent passwd "$(id -un)" 2>/dev/null | cut -d: -f7); s=${s:-$SHELL}; echo "RGT-HOME '
        '$HOME"; '
        f"case $s in *bash) set -- --norc -c {shlex.quote(for_bash)};; "
        f'*zsh) set -- -{zsh_options} "echo RGT-END; cat";; *) exit 0;; esac; '
        'echo "echo RGT-EATEN" | env -i PS4="+RGT %D{%s.%6.} %x:%I " HOME="$HOME" USER="$USER" '
        'LOGNAME="$USER" PATH="$PATH" SSH_CLIENT="$SSH_CLIENT" SSH_CONNECTION="$SSH_CONNECTION" '
        '"$s" "$@" 2>&1 | head -c 4000000'
    )
    return quote_words("sh", "-c", script)


TRACE_COMMAND = _build_trace_command(_SOURCE_COMMAND_FILES, "xc")
"""Traces the files that sshd's commands read."""
LOGIN_TRACE_COMMAND = _build_trace_command(_SOURCE_LOGIN_FILES, "lxc")
"""Traces the files of a login shell: some boxes start every command in one."""
ASK_LOGIN_SHELL = "shopt -q login_shell && echo RGT-LOGIN"
"""Prints ``RGT-LOGIN`` if bash runs commands in a login shell; other shells fail."""


class StartUpTrace(FrozenStruct):
    """What the start-up files do, by a trace of the login shell."""

    ending: StartUpLine | None = None
    """The line that ends or replaces the shell, or starts another one that reads its input."""
    slowest: StartUpLine | None = None
    slowest_s: float = 0.0
    loudest: StartUpLine | None = None
    loudest_bytes: int = 0


_TRACED = re.compile(r"^\++RGT ([\d.,]*) ?(\S*):(\d+) (.*)$")


def read_trace(text: str, home: str = "") -> StartUpTrace:
    """Return what the output of `TRACE_COMMAND` shows.

    Args:
        text: The output.
        home: The home directory, written as ``~``.
    """
    steps: list[tuple[StartUpLine, float]] = []
    sizes: list[int] = []
    ending: StartUpLine | None = None
    ended = is_eaten = True
    for line in text.splitlines():
        if traced := _TRACED.match(line):
            clock, file, number, command = traced.groups()
            if home and file.startswith(f"{home}/"):
                file = f"~{file[len(home) :]}"
            # A locale may write the point as a comma; bash before 5 has no EPOCHREALTIME at all.
            at = float(clock.replace(",", ".") or "nan")
            steps.append((StartUpLine(file, int(number), clean_text(command)[:120]), at))
            sizes.append(0)
        elif line == "RGT-END":
            ended = False
        elif line == "RGT-EATEN" and steps and ending is None:
            ending = steps[-1][0]
        elif line == "echo RGT-EATEN":
            is_eaten = False
        elif steps:
            sizes[-1] += len(line) + 1
    named = [step for step, _ in steps if step.file]
    # The trace never came to its end, so its last line did not return.
    if ended and ending is None and named:
        ending = named[-1]
    elif is_eaten and ending is None:
        ending = next(filter(lambda step: _READS_INPUT.match(step.text), reversed(named)), None)
    spans = [
        (later - at, step)
        for (step, at), (_, later) in itertools.pairwise(steps)
        if later >= at and step.file
    ]
    slowest_s, slowest = max(spans, key=lambda span: span[0], default=(0.0, None))
    loudest_bytes, loudest = max(
        zip(sizes, (step for step, _ in steps), strict=True),
        key=lambda pair: pair[0],
        default=(0, None),
    )
    return StartUpTrace(ending, slowest, slowest_s, loudest, loudest_bytes)


def start_up_words(connection: BoxTransport) -> str:
    """Return what the box's start-up files cost, as the end of a message."""
    cost = start_up_cost(connection)
    if cost is None:
        found = "have not let a command begin yet"
    elif cost.cost_text:
        found = f"{cost.cost_text} before each command"
    else:
        return ""
    return f"; the start-up files of its login shell {found}: rgt doctor names the line"
