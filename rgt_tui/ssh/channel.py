"""The one long-lived stream of frames from a box: from the agent, or a plain shell without it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
import zlib
from collections.abc import Callable

import asyncssh
import msgspec

from rgt_tui.model import (
    ControlLine,
    Frame,
    FrozenStruct,
    Hello,
    LogLines,
    WatchConfig,
    clean_decoded,
    is_plain_json,
)
from rgt_tui.ssh.box_transport import (
    BoxChannel,
    BoxTransport,
    CommandNotRun,
    DeployFailed,
    NoCommands,
    NoPython,
    describe_lost_stream,
)
from rgt_tui.ssh.bundle import AgentBundle
from rgt_tui.ssh.deployment import DeployedAgent, deploy_agent
from rgt_tui.ssh.remote_command import LineSplitter, extract_record, open_session
from rgt_tui.ssh.sh_probe import ShellProbe, open_probe

WAITING_BYTES = 256 << 10
"""With this much data waiting to be decoded, reading pauses; the agent then leaves out samples."""
TOLD_BY = {b'{"t":"sample': 8192, b'{"t":"log","': 1024, b'{"t":"scalar': 1024}
"""Line prefixes whose newest line is kept, because the next one may be compressed with it as
dictionary, and the maximum bytes of such a line; the same as in `rgt_box`.
"""
LONGEST_TOLD = max(TOLD_BY.values())
HEAD = 6
"""Bytes of a zlib stream's header, including the dictionary id:
https://www.rfc-editor.org/rfc/rfc1950
"""
INFLATED_BYTES = 32 << 10
"""Maximum bytes inflated at once, to bound the cost of highly compressed input."""


class DamagedStream(Exception):
    """The input is not the expected zlib stream; nothing after it can be read."""


class PackedLines:
    """Decodes a zlib stream per line, most of them with an earlier line as dictionary.

    Nothing else of the past must be kept. One zlib stream for the whole connection would take 15 KB
    per box.
    """

    __slots__ = ("_begun", "_line", "_stream", "_told")

    def __init__(self) -> None:
        self._begun = b""
        """Start of a stream that is too short to contain its dictionary id."""
        self._stream: zlib._Decompress | None = None
        self._line = b""
        """The line being read, as long as it is short enough to be kept."""
        self._told: dict[bytes, tuple[int, bytes]] = {}
        """Prefix → checksum and line; the checksum is the end of the line's stream."""

    def feed_data(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return decoded bytes, at most a line and `INFLATED_BYTES`, and what to feed next.

        None = nothing.

        Raises:
            DamagedStream: it is damaged.
        """
        try:
            if self._stream is None:
                data, self._begun = self._begun + data, b""
                if len(data) < HEAD:
                    self._begun = data
                    return b"", None
                self._stream = self._open_stream(data)
            # Bounded per call: 4 KB of zlib can become 4 MB, which would stall the interface.
            found = self._stream.decompress(data, INFLATED_BYTES)
        except zlib.error as error:
            raise DamagedStream(str(error)) from error
        held = len(self._line) <= LONGEST_TOLD
        if held:
            line = self._line + found
        else:
            line = self._line
        if not self._stream.eof:
            self._line = line
            # A full result may have been cut by the bound; the caller passes the tail in again.
            return found, self._stream.unconsumed_tail if len(found) == INFLATED_BYTES else None
        rest, self._stream, self._line = self._stream.unused_data, None, b""
        begins_limit = 12
        begins = line[:begins_limit]
        # Bytes of the checksum at its end.
        checksum = 4
        if len(line) <= TOLD_BY.get(begins, 0):
            end = len(data) - len(rest)
            # The stream ends with Adler-32 of the line (RFC 1950), so it need not be computed,
            # except when the checksum was split over two reads.
            if end >= checksum:
                sum_ = int.from_bytes(data[end - checksum : end], "big")
            else:
                sum_ = zlib.adler32(line)
            self._told[begins] = sum_, line
        return found, rest or None

    def _open_stream(self, data: bytes) -> zlib._Decompress:
        """Begin a stream: its header has the checksum of the line that is its dictionary."""
        dictionary = 0x20
        if not data[1] & dictionary:
            # wbits=0: the window size is taken from the header.
            return zlib.decompressobj(wbits=0)
        wanted = int.from_bytes(data[2:HEAD], "big")
        for sum_, line in self._told.values():
            if sum_ == wanted:
                return zlib.decompressobj(wbits=0, zdict=line)
        raise DamagedStream("it refers to a line that did not arrive")


_decode: Callable[[bytes], Frame] = msgspec.json.Decoder(Frame).decode
_packed = msgspec.msgpack.Encoder().encode


def read_frame(line: bytes) -> Frame:
    """Return the frame of a line, with cleaned texts (see `rgt_tui.model.protocol` for exceptions).

    Raises:
        ValueError: it is not a frame (`msgspec.DecodeError` and `UnicodeDecodeError` are
            subclasses), or has a number of more than 64 bits, which Python would accept but later
            computations would not.
        RecursionError: it is nested too deeply.
    """
    frame = _decode(line)
    # skipped for speed: log lines are long, and their numbers are not computed with
    if not isinstance(frame, LogLines):
        try:
            # The JSON decoder accepts integers of any size, MessagePack only those of 64 bits.
            _packed(frame)
        except OverflowError as error:
            raise ValueError("a number needs more than 64 bits") from error
    if is_plain_json(line):
        return frame
    return clean_decoded(frame)


def _is_no_json(error: ValueError | RecursionError) -> bool:
    """Return whether it is not JSON at all, as opposed to a frame that this client rejects."""
    malformed = isinstance(error, msgspec.DecodeError) and not isinstance(
        error, msgspec.ValidationError
    )
    return malformed or isinstance(error, UnicodeDecodeError)


class _FrameSession(asyncssh.SSHClientSession[bytes]):
    def __init__(
        self,
        on_frame: Callable[[Frame], None],
        on_bad: Callable[[int], None],
        on_line: Callable[[bytes], None] | None,
        on_waiting: Callable[[], None] | None,
    ) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.words = b""
        self._on_frame = on_frame
        self._on_bad = on_bad
        self._on_line = on_line
        self._on_waiting = on_waiting
        self._waiting: list[bytes] = []
        """Received data, the oldest at the end."""
        self._waiting_bytes = 0
        self._cut: list[bytes] = []
        """Decoded lines that are not processed yet, the first at the end."""
        self._chan: BoxChannel | None = None
        self._paused = False
        self._lines = LineSplitter()
        self._greeted = False
        """The agent's hello has arrived; earlier output is from the login shell's start-up files.
        """
        self._unpacker: PackedLines | None = None
        self.status: int | None = None

    def connection_made(self, chan: BoxChannel) -> None:
        self._chan = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            # Only the end, because only the last line is shown, and a noisy box must not fill
            # memory.
            stderr_bytes = 4096
            self.words = (self.words + data)[-stderr_bytes:]
            return
        if self.ended.done():
            return
        self._waiting.insert(0, data)
        self._waiting_bytes += len(data)
        if self._on_waiting is None:
            self.apply_received(math.inf)
            return
        if self._waiting_bytes > WAITING_BYTES and not self._paused and self._chan is not None:
            self._paused = True
            # asyncssh then stops extending the SSH window, and the agent's writes block.
            self._chan.pause_reading()
        # With more than one, the caller knows already that this box waits.
        if len(self._waiting) == 1:
            self._on_waiting()

    def apply_received(self, until: float) -> bool:
        """Process waiting data line by line until a time (monotonic).

        Return whether some is left.
        """
        bad = 0
        while self._cut or self._waiting:
            if self._cut:
                bad += not self._accept_line(self._cut.pop())
            else:
                before = self._lines.oversized
                self._cut = self._lines.split_lines(self._pop_data())
                self._cut.reverse()
                bad += self._lines.oversized - before
            # After the line, not before it: every call makes progress, however late it comes.
            if time.monotonic() > until:
                break
        if bad:
            self._on_bad(bad)
        if self._paused and not self._waiting and self._chan is not None:
            self._paused = False
            self._chan.resume_reading()
        return bool(self._cut or self._waiting)

    def _pop_data(self) -> bytes:
        """Return as much waiting data as can be cut into lines at once."""
        data = self._waiting.pop()
        self._waiting_bytes -= len(data)
        if self._unpacker is not None:
            try:
                found, rest = self._unpacker.feed_data(data)
            except DamagedStream as error:
                self._give_up(str(error))
                return b""
            if rest is not None:
                self._waiting.append(rest)
                self._waiting_bytes += len(rest)
            return found
        if not self._greeted and b"\n" in data[:-1]:
            # The data after the hello may be compressed.
            data, *parts = data.splitlines(keepends=True)
            self._waiting.extend(reversed(parts))
            self._waiting_bytes += sum(map(len, parts))
        return data

    def _give_up(self, why: str) -> None:
        self._cut.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        if not self.ended.done():
            self.ended.set_result(f"ssh: the compressed stream from the box is damaged: {why}")
        if self._chan is not None:
            self._chan.close()

    def _accept_line(self, line: bytes) -> bool:
        if not self._greeted:
            line = extract_record(line)
            if not line:
                return True  # only output of start-up files: not a lost frame
        if self._on_line is not None:
            self._on_line(line)
        try:
            frame = read_frame(line)
        except (ValueError, RecursionError) as error:
            # Uncompressed, a bad line damages only itself; compressed, later lines may refer to it.
            if self._unpacker is not None and _is_no_json(error):
                self._give_up("a line of it is not JSON")
            return False
        if isinstance(frame, Hello) and not self._greeted:
            self._greeted = True
            if frame.packed_lines:
                self._unpacker = PackedLines()
            else:
                self._unpacker = None
        self._on_frame(frame)
        return True

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def connection_lost(self, exc: Exception | None) -> None:
        if self.ended.done():
            return
        last = self.words.decode(errors="replace").strip().splitlines()
        if self.status is not None:
            self.ended.set_result(
                f"the agent ended with {self.status}" + (f": {last[-1]}" if last else "")
            )
        else:
            self.ended.set_result(describe_lost_stream(exc))


class WatchChannel:
    """A running ``watch`` on a box."""

    def __init__(self, channel: BoxChannel, session: _FrameSession) -> None:
        self._channel = channel
        self._session = session

    def send(self, control: ControlLine) -> None:
        """Send a control line; ignored if the channel has just ended."""
        if not self._session.ended.done():
            with contextlib.suppress(OSError):  # it is closing, and will report why
                self._channel.write(msgspec.json.encode(control) + b"\n")

    def apply_received(self, until: float = math.inf) -> bool:
        """Decode and forward the data received since the last call.

        Only with `open_channel`'s `on_waiting`.

        Args:
            until: When to stop, by the monotonic clock; at least one line is always processed.

        Returns:
            True if data is left.
        """
        return self._session.apply_received(until)

    async def wait(self) -> str:
        """Wait for the end; return its reason."""
        # Shielded: a waiter that is cancelled must not cancel the future of the others.
        return await asyncio.shield(self._session.ended)

    @property
    def status(self) -> int | None:
        """Exit status of the agent; None while it runs, or if the connection was lost first."""
        return self._session.status

    def close(self) -> None:
        """Close it: the agent sees the end of its input and exits."""
        self._channel.close()


async def open_channel(
    connection: BoxTransport,
    command: str,
    config: WatchConfig,
    on_frame: Callable[[Frame], None],
    on_bad: Callable[[int], None],
    on_line: Callable[[bytes], None] | None = None,
    on_waiting: Callable[[], None] | None = None,
) -> WatchChannel:
    """Start ``watch`` on the box and pass every frame to `on_frame`.

    Args:
        connection: An open connection.
        command: The shell command that starts the agent.
        config: The first line that the agent reads.
        on_frame: Called from the event loop, in order of arrival.
        on_bad: Called with the number of lines that were not frames.
        on_line: Called with every raw line, before `on_frame`.
        on_waiting: Called when data has arrived; it is decoded only by
            `WatchChannel.apply_received`. Processing the data of hundreds of boxes in batches costs
            a fraction of processing it on arrival.
    """
    session = _FrameSession(on_frame, on_bad, on_line, on_waiting)
    channel = await open_session(connection, lambda: session, command)
    with contextlib.suppress(OSError):  # if the agent has already ended, its status says why
        channel.write(msgspec.json.encode(config) + b"\n")
    return WatchChannel(channel, session)


NO_HISTORY = (
    "no log, no curve, no queue and no history, and processes by their command lines only: these "
    "need the agent on the box"
)
NO_FILES = (
    "no file transfer (SFTP, scp): push results to storage from the box, or use the direct "
    "TCP address"
)


class BoxStream(FrozenStruct):
    """A running stream of frames, and what does not work on this box."""

    channel: WatchChannel | ShellProbe
    limited: tuple[str, ...] = ()
    deployed: DeployedAgent | None = None
    """The agent; None if a plain shell is read."""


async def start_watch(
    connection: BoxTransport,
    bundle: AgentBundle,
    pythons: tuple[str, ...],
    config: WatchConfig,
    on_frame: Callable[[Frame], None],
    on_bad: Callable[[int], None],
    on_line: Callable[[bytes], None] | None = None,
    on_waiting: Callable[[], None] | None = None,
) -> BoxStream:
    """Deploy the agent on the box and start it; if that fails, read the box with its shell.

    Args:
        connection: An open connection.
        bundle: The agent.
        pythons: Interpreters to try first.
        config: See `open_channel`, as for the callbacks.
        on_frame: Called from the event loop, in order of arrival.
        on_bad: Called with the number of lines that were not frames.
        on_line: Called with every raw line.
        on_waiting: See `open_channel`; a shell's output is processed on arrival.

    Raises:
        NoCommands: the box offers no shell at all.
        ProbeFailed: the shell could not be used.
        CommandFailed: the box does not answer in time.
    """
    refusal: NoCommands | None = None
    limited: tuple[str, ...]
    try:
        deployed = await deploy_agent(connection, bundle, pythons)
    except NoPython as error:
        limited = (f"{error}; {NO_HISTORY}",)
    except DeployFailed as error:
        limited = (f"{error}; fix that and press retry; until then {NO_HISTORY}",)
    except NoCommands as error:
        refusal = error
        limited = (f"{error}: a terminal only; {NO_HISTORY}", NO_FILES)
    else:
        command = deployed.build_command("watch")
        channel = await open_channel(
            connection, command, config, on_frame, on_bad, on_line, on_waiting
        )
        return BoxStream(channel, (deployed.note,) if deployed.note else (), deployed)
    try:
        probe = await open_probe(
            connection,
            config,
            on_frame,
            on_bad,
            on_line,
            terminal=refusal is not None,
            limited=limited,
        )
    except NoCommands as error:
        if isinstance(refusal, CommandNotRun):
            # The start-up files are the cause; what a terminal shows of it is not.
            raise refusal from error
        raise
    return BoxStream(probe, limited)
