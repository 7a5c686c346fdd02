"""Runs a command on a box with limits on its time and output, and explains failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import asyncssh
import msgspec
from asyncssh.constants import OPEN_CONNECT_FAILED, OPEN_RESOURCE_SHORTAGE

from rgt_tui.language import translate
from rgt_tui.model import MAX_FRAME_BYTES, FrozenStruct, clean_decoded, clean_text
from rgt_tui.ssh.box_transport import (
    BoxChannel,
    BoxError,
    BoxTransport,
    CommandFailed,
    CommandNotRun,
    NoCommands,
    Unreachable,
    transport_name,
)
from rgt_tui.ssh.login_shell import (
    GUARD,
    START_UP_FILES,
    WAITS,
    StartUpLine,
    drop_unread_files,
    find_ending_line,
    has_begun,
    list_sourced_files,
    name_replacing_program,
    open_in_login_shell,
    print_files_command,
    quote_file_name,
    read_start_up_files,
    reads_commands_from_stdin,
    refuse_restricted,
    set_plain_commands,
    set_stdin_shell,
    split_start_up_files,
    start_up_cost,
    wait_for_begin,
)

T = TypeVar("T")

_BEGINS = b'{"'


def extract_record(line: bytes) -> bytes:
    """Return the JSON object at the end of a line; empty without one.

    Output of a login shell's start-up files precedes a command's own, often in its first line: a
    ``.bashrc`` that sets the terminal's title unconditionally is enough.
    """
    # Start-up files may print without a line feed, directly before the record.
    at = line.find(_BEGINS)
    if at >= 0:
        return line[at:]
    return b""


def decode_answer(line: bytes, kind: type[T], what: str) -> T:
    """Return a line printed by an agent verb, with cleaned texts except those of type `Exact`.

    Args:
        line: One JSON object.
        kind: The expected struct.
        what: Start of the error: ``the agent's answer``.

    Raises:
        CommandFailed: it cannot be used.
    """
    try:
        return clean_decoded(msgspec.json.decode(line, type=kind))
    except (msgspec.DecodeError, RecursionError) as error:
        raise CommandFailed(
            translate("{what} cannot be used: {error}", what=what, error=error)
        ) from error


class LineSplitter:
    """Cuts a byte stream into lines.

    A line above the size limit is dropped as a whole and counted.
    """

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self.oversized = 0
        self._limit = limit
        self._rest = bytearray()
        self._skipping = False

    def split_lines(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without line feeds.

        An incomplete line is only buffered.
        """
        if (
            data.find(b"\n") == len(data) - 1 <= self._limit
            and data
            and not self._rest
            and not self._skipping
        ):
            # the usual case: one frame
            if len(data) > 1:
                return [data[:-1]]
            return []
        *lines, rest = data.split(b"\n")
        if lines:
            if self._skipping:
                lines[0] = b""
            else:
                lines[0] = bytes(self._rest + lines[0])
            self._rest.clear()
            self._skipping = False
        kept = [line for line in lines if line and len(line) <= self._limit]
        self.oversized += sum(len(line) > self._limit for line in lines)
        # Counted at the limit, not at the line's end, which may never come.
        if not self._skipping and len(self._rest) + len(rest) > self._limit:
            self._skipping = True
            self.oversized += 1
            self._rest.clear()
        elif not self._skipping:
            self._rest += rest
        return kept


Make = Callable[[], asyncssh.SSHClientSession[bytes]]

FREED = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between attempts while an ended session may still count: where sshd allows one per
connection (MaxSessions 1), it refuses the next until it has cleaned up the last, with no more
detail than "open failed".
"""

_CLOSED = "SSH connection closed"
"""asyncssh's text for a connection lost before the answer; it has no separate error for that."""


async def open_session(
    connection: BoxTransport, make: Make, command: str | None, **options: Any
) -> BoxChannel:
    """Start a command in its own session, of bytes.

    If a connection's first session is refused, there is no retry: such a box runs no commands at
    all.

    Args:
        connection: The connection.
        make: Makes the session, once it is granted.
        command: For the login shell of the box; None = that shell itself.
        options: More options for `BoxTransport.create_session`.

    Raises:
        asyncssh.ChannelOpenError: it is refused; `channel_open_error` explains it.
        asyncssh.Error: it cannot be started.
    """
    for wait in FREED:
        try:
            return await _open_channel(connection, make, command, options)
        except asyncssh.ChannelOpenError as error:
            if not no_further(connection, error):
                raise
        await asyncio.sleep(wait)
    return await _open_channel(connection, make, command, options)


async def _open_channel(
    connection: BoxTransport,
    make: Make,
    command: str | None,
    options: dict[str, Any],
) -> BoxChannel:
    if command is None:
        channel, _ = await connection.create_session(make, None, encoding=None, **options)
    else:
        channel = await open_in_login_shell(connection, make, command, **options)
    connection.set_extra_info(rgt_had_session=True)
    return channel


def no_further(connection: BoxTransport, error: asyncssh.ChannelOpenError) -> bool:
    """Return whether only this session is refused: others were granted on the same connection."""
    granted = connection.get_extra_info("rgt_had_session") is True
    return (
        granted and error.code == OPEN_CONNECT_FAILED and not _is_connection_gone(connection, error)
    )


def channel_open_error(
    connection: BoxTransport, error: asyncssh.ChannelOpenError, what: str
) -> BoxError:
    """Return the error for a channel that was not opened.

    Args:
        connection: The connection.
        error: asyncssh's error, the same for a box that refuses and for a lost connection.
        what: What the box would refuse: ``to run commands``.
    """
    if _is_connection_gone(connection, error):
        return connection_lost_error(connection)
    if error.code == OPEN_RESOURCE_SHORTAGE:
        return Unreachable(
            translate(
                "ssh: {connection} is out of resources: {reason}",
                connection=_connection_label(connection),
                reason=clean_text(str(error.reason)),
            )
        )
    if no_further(connection, error):
        return NoCommands(
            translate(
                "the box allows no more sessions on this connection ({reason}): its sshd may be at "
                "its limit; raise MaxSessions in its sshd_config",
                reason=clean_text(str(error.reason)),
            )
        )
    return NoCommands(
        translate(
            "the box refuses {what}: {reason}", what=what, reason=clean_text(str(error.reason))
        )
    )


def _is_connection_gone(connection: BoxTransport, error: asyncssh.ChannelOpenError) -> bool:
    return (error.code == OPEN_CONNECT_FAILED and error.reason == _CLOSED) or connection.is_closed()


def connection_lost_error(connection: BoxTransport) -> Unreachable:
    """Return the error for a connection that was lost."""
    name = transport_name(connection)
    return Unreachable(
        translate(
            "{name}: {connection}: the connection was lost",
            name=name,
            connection=_connection_label(connection),
        )
    )


def _connection_label(connection: BoxTransport) -> str:
    return str(connection.get_extra_info("rgt_label") or "the box")


SECONDS = 30.0
MOST_BYTES = 4 << 20


class RemoteCommandResult(FrozenStruct):
    """The result of a command."""

    status: int | None
    """None = it was ended by a signal, or the box did not report it."""
    out: bytes
    words: str
    """Its standard error, printable."""


class CommandSession(asyncssh.SSHClientSession[bytes]):
    """A running command: its exit status, and its end, an error if the connection is lost."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status: int | None = None

    def exit_status_received(self, status: int) -> None:
        """Keep the exit status."""
        self.status = status

    def connection_lost(self, exc: Exception | None) -> None:
        """Resolve `ended`."""
        if self.ended.done():
            return
        if exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc)
            # marks it as retrieved, so that asyncio does not log it if the caller has given up
            self.ended.exception()


class _Collector(CommandSession):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.out = bytearray()
        self.err = bytearray()
        self.overflow = False
        self._most = most
        self._channel: BoxChannel | None = None

    def connection_made(self, chan: BoxChannel) -> None:
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            target = self.err
        else:
            target = self.out
        if self.overflow or len(target) + len(data) > self._most:
            self.overflow = True
            if self._channel is not None:
                # abort: a close would wait for the box to stop printing.
                self._channel.abort()
            return
        target += data

    def connection_lost(self, exc: Exception | None) -> None:
        # After an abort the loss is our own doing, and `overflow` says why.
        super().connection_lost(None if self.overflow else exc)


async def run_command(
    connection: BoxTransport,
    command: str,
    *,
    data: bytes = b"",
    seconds: float = SECONDS,
    most_bytes: int = MOST_BYTES,
    name: str = "a command",
    patience_s: float | None = None,
) -> RemoteCommandResult:
    """Run a command and wait for its end.

    Args:
        connection: An open connection.
        command: For the login shell of the box.
        data: Its standard input.
        seconds: Time limit, after which it is disconnected.
        most_bytes: Maximum output, separately for stdout and stderr.
        name: Its name in messages.
        patience_s: Send `data` once the command has begun, within these seconds, and else only the
            end of the input: a shell that has replaced the login shell would run it. None = at
            once.

    Raises:
        CommandFailed: it took too long or printed too much.
        NoCommands: the box runs no commands; `CommandNotRun` if its login shell ended first.
        Unreachable: the connection was lost.
    """
    collector = _Collector(most_bytes)
    channel: BoxChannel | None = None
    try:
        async with asyncio.timeout(seconds):
            try:
                channel = await open_session(connection, lambda: collector, command)
            except asyncssh.ChannelOpenError as error:
                raise channel_open_error(connection, error, "to run commands") from error
            except (asyncssh.Error, OSError) as error:
                raise connection_lost_error(connection) from error
            try:
                if patience_s is None or await wait_for_begin(channel, patience_s):
                    channel.write(data)
                # Also without data: a command that reads stdin would wait for it.
                channel.write_eof()
            except BrokenPipeError:
                pass  # it ended without reading: its status says why
            try:
                await asyncio.shield(collector.ended)
            except (asyncssh.Error, OSError) as error:
                raise connection_lost_error(connection) from error
            finally:
                channel.abort()
    except TimeoutError:
        if channel is not None and not has_begun(channel):
            raise CommandFailed(
                translate(
                    "{name} did not begin within {seconds:g} s on the box: the start-up files of "
                    "its login shell (~/.bashrc, /etc/profile.d) wait for something, or print "
                    "without end",
                    name=name,
                    seconds=seconds,
                )
            ) from None
        raise CommandFailed(
            translate(
                "{name} did not end within {seconds:g} s on the box", name=name, seconds=seconds
            )
        ) from None
    if collector.status is None and connection.is_closed():
        # A server that disconnects cleanly raises nothing; the output is then incomplete.
        raise connection_lost_error(connection)
    if collector.overflow:
        raise CommandFailed(
            translate(
                "{name} printed more than {most_bytes:g} MiB on the box; it was cut off",
                name=name,
                most_bytes=most_bytes / 2**20,
            )
        )
    lines = bytes(collector.err).decode(errors="replace").strip().splitlines()
    # The last lines: a start-up file's warnings come first.
    words = " ".join(clean_text(line) for line in lines[-5:])[:1000]
    return RemoteCommandResult(collector.status, bytes(collector.out), words)


SHELL_ANSWERS = "RGT-SHELL"


class _ShNotFound(CommandNotRun):
    """The login shell runs commands, but not ``sh``."""


async def run_first_script(
    connection: BoxTransport,
    script: str = "",
    *,
    most_bytes: int = 1 << 16,
    needs_sh: bool = True,
) -> RemoteCommandResult:
    """Run a script with ``sh``, and find out how this box starts commands.

    A start-up file may end or replace the login shell, or start another one that reads the standard
    input. Then a login shell that reads commands from its standard input may still work, and is
    used on this connection from now on.

    Args:
        connection: An open connection.
        script: For ``sh``; harmless to any other shell.
        most_bytes: Maximum output.
        needs_sh: False = a box that runs commands but not ``sh`` is no error; the result is empty.

    Raises:
        CommandNotRun: neither works; the message names the line of a start-up file if it is known.
        RestrictedShell: neither works, and the login shell's message says why.
        BoxError: as for `run_command`.
    """
    began = asyncio.get_running_loop().time()
    try:
        return await _run_checked(connection, script, most_bytes)
    except CommandNotRun as error:
        if reads_commands_from_stdin(connection):
            raise
        if not needs_sh and await _runs_without_sh(connection, error):
            return RemoteCommandResult(0, b"", "")
        first = error
    except CommandFailed as error:
        if start_up_cost(connection) is not None:  # a command has begun
            raise
        line = find_ending_line(await read_start_up_files(connection), WAITS)
        if line is None:
            raise
        raise CommandFailed(
            translate("{error}: probably {line}", error=error, line=line.place_text)
        ) from None
    # As long as the start-up files have just taken, and some.
    set_stdin_shell(connection, 3.0 + asyncio.get_running_loop().time() - began)
    try:
        return await _run_checked(connection, script, most_bytes)
    except (CommandNotRun, CommandFailed):
        # Neither way works, so the connection returns to the usual one.
        set_stdin_shell(connection, None)
        refuse_restricted(first.said)
        line = await find_replacing_line(connection)
        unknown = "a start-up file (~/.bashrc, ~/.bash_profile, ~/.profile)"
        if line is not None:
            does = "ends or replaces the login shell, or reads its input"
            cause = f"{line.place_text} {does}: put {GUARD} in front of it"
        elif program := name_replacing_program(str(first)):
            cause = f"{unknown} starts {program}: put {GUARD} in front of that line"
        elif "its output" not in str(first):
            cause = (
                "a forced command (ForceCommand in sshd_config, command= in authorized_keys) or "
                f"{unknown} probably ends it: put {GUARD} in the first line of such a file"
            )
        else:
            raise first from None
        raise CommandNotRun(f"{first}; {cause}") from None


async def find_replacing_line(connection: BoxTransport) -> StartUpLine | None:
    """Return the line of a start-up file that probably ends or replaces the login shell.

    The files come over SFTP, or else from the shell that has replaced the login shell.
    """
    files = await read_start_up_files(connection)
    if not files:
        names = " ".join(START_UP_FILES)
        files = split_start_up_files(await _print_start_up_files(connection, names))
        if sourced := list_sourced_files(files):
            names = " ".join(map(quote_file_name, sourced))
            files += split_start_up_files(await _print_start_up_files(connection, names))
    return find_ending_line(drop_unread_files(files))


async def _print_start_up_files(connection: BoxTransport, names: str, seconds: float = 8.0) -> str:
    """Return what a login shell prints that reads `print_files_command` and then the end of its input.

    fish runs nothing from its standard input before that end, so it can run no other command.
    """
    collector = _Collector(MOST_BYTES)
    with contextlib.suppress(asyncssh.Error, OSError, TimeoutError, BoxError):
        async with asyncio.timeout(seconds):
            channel = await open_session(connection, lambda: collector, None)
            try:
                channel.write(f" exec {print_files_command(names)}\n".encode())
                channel.write_eof()
                await asyncio.shield(collector.ended)
            finally:
                channel.abort()
    return collector.out.decode(errors="replace")


async def _runs_without_sh(connection: BoxTransport, error: CommandNotRun) -> bool:
    """Return whether a command that needs no ``sh`` runs; without a marker if only that works.

    A forced command or a restricted shell may lack ``sh``, or refuse the marker's ``;``.
    """
    if isinstance(error, _ShNotFound):
        return True
    if start_up_cost(connection) is not None:  # a marker arrived
        return False
    answers = False
    set_plain_commands(connection, True)
    try:
        done = await run_command(connection, f"echo {SHELL_ANSWERS}", name="the first look")
        answers = SHELL_ANSWERS.encode() in done.out.splitlines()
    finally:
        set_plain_commands(connection, answers)
    return answers


async def _run_checked(
    connection: BoxTransport, script: str, most_bytes: int
) -> RemoteCommandResult:
    """Run the script; make sure that ``sh`` has read it from standard input."""
    # A line feed first: start-up files may print without one at their end.
    data = f"printf '\\n{SHELL_ANSWERS}\\n'\n{script}".encode()
    known = start_up_cost(connection)
    patience_s = 2.0
    if known is not None:
        patience_s += 2.0 * known.seconds
    for last_try in (False, True):
        done = await run_command(
            connection,
            "sh -s",
            data=data,
            most_bytes=most_bytes,
            name="the first look",
            patience_s=patience_s,
        )
        cost = start_up_cost(connection)
        if last_try or cost is None or cost.seconds < patience_s:
            break
        # Slow start-up files, or some that read their input to its end: it came without the script.
        patience_s = 1.0 + 1.25 * cost.seconds
    # Anything may be printed around it; only the whole line proves that sh has run.
    if SHELL_ANSWERS.encode() not in done.out.splitlines():
        # A shell's codes for "cannot execute" and "not found".
        if done.status in (126, 127):
            raise _ShNotFound(
                f"the box's login shell cannot start sh; its output: {done.words}", done.words
            )
        raise CommandNotRun(
            translate(
                "the box runs no commands: its start-up files start a program that reads the input "
                "of every command"
            )
        )
    return done


NO_SFTP = (
    "no SFTP: sftp and scp cannot copy files to or from it; rsync, scp -O and tar through ssh may"
)


async def has_sftp(connection: BoxTransport) -> bool | None:
    """Return whether the box serves SFTP.

    None if it does not answer in time, allows no session, or is not reached by SSH.

    Raises:
        Unreachable: the connection is gone, which says nothing about SFTP.
    """
    if not isinstance(connection, asyncssh.SSHClientConnection):
        return None
    sftp_seconds = 15.0
    try:
        async with asyncio.timeout(sftp_seconds):
            client = await connection.start_sftp_client()
    except TimeoutError:
        return None
    except asyncssh.ChannelOpenError as error:
        refusal = channel_open_error(connection, error, "SFTP")
        if isinstance(refusal, Unreachable):
            raise refusal from error
        if no_further(connection, error):
            return None
        return False
    except (asyncssh.ConnectionLost, asyncssh.DisconnectError) as error:
        raise connection_lost_error(connection) from error
    except (asyncssh.Error, OSError) as error:
        if connection.is_closed():
            raise connection_lost_error(connection) from error
        return False
    client.exit()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(client.wait_closed(), sftp_seconds)
    return True
