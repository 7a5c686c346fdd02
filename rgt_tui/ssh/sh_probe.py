"""Reads boxes that cannot run the agent: a POSIX shell script, through pipes or a terminal.

The script is not passed on a command line: a different login shell would need other quoting, and a
terminal cuts long lines. One line starts ``sh``, turns off the terminal's echo and reads the script
line by line, with a checksum, because a garbled script must not run; then the script reads our
commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Callable
from importlib.resources import files

import asyncssh
import msgspec

from rgt_tui.language import translate
from rgt_tui.model import (
    DEFAULT_PATTERN,
    PROTOCOL_VERSION,
    ControlLine,
    Frame,
    Hello,
    Pong,
    SampleCursor,
    WatchConfig,
    clean_decoded,
    clean_text,
)
from rgt_tui.ssh.box_transport import (
    BoxChannel,
    BoxTransport,
    NoCommands,
    ProbeFailed,
    describe_lost_stream,
)
from rgt_tui.ssh.remote_command import (
    LineSplitter,
    channel_open_error,
    connection_lost_error,
    open_session,
)
from rgt_tui.ssh.sh_sample import (
    GPU_COLUMNS,
    ProbeGreeting,
    parse_greeting,
    parse_sample,
    program_pattern,
)


def _crc_table_row(byte: int) -> int:
    value = byte << 24
    polynomial = 0x04C11DB7
    for _ in range(8):
        value = (value << 1) ^ (polynomial if value & 0x80000000 else 0)
    return value & 0xFFFFFFFF


_TABLE = tuple(_crc_table_row(byte) for byte in range(256))


def cksum_of(data: bytes) -> int:
    """Return the CRC that ``cksum`` prints for `data`."""
    value, size = 0, len(data)
    # POSIX `cksum` includes the length, lowest byte first: not the CRC of zlib, but on every box.
    tail = bytearray()
    while size:
        tail.append(size & 0xFF)
        size >>= 8
    for byte in data + bytes(tail):
        value = (value << 8 & 0xFFFFFFFF) ^ _TABLE[value >> 24 ^ byte]
    return value ^ 0xFFFFFFFF


# `n` is a line feed: command substitution strips it from the end, so it is taken off after an x.
START = (
    'exec sh -c \'stty -echo -onlcr 2>/dev/null; n=$(printf "\\nx"); n=${n%x}; s=; c=; '
    'printf "\\nRGT%s\\n" +ready; while IFS= read -r l; do case $l in RGT-BEGIN) s=;; '
    'RGT-ACK) printf "RGT%s\\n" +ack;; RGT-END*) c=${l#RGT-END }; break;; *) s="$s$l$n";; esac; '
    'done; x=$(printf %s "$s" | cksum 2>/dev/null) || x=$c; if [ "$x" = "$c" ]; then printf '
    '"\\nRGT%s\\n" +run; eval "$s"; else printf "\\nRGT%s\\n" +damaged; fi\''
)
"""The markers are assembled at run time, so that no output can be mistaken for an echo of this
line. Each one starts on its own line, because a shell may print its prompt after it has read this
line.
"""
READY, ACK, RUN, DAMAGED = "RGT+ready", "RGT+ack", "RGT+run", "RGT+damaged"
STEP_SECONDS = 15.0
MOST_LINE = 1 << 16


_FULL_SCREEN = b"\x1b[?1049h"
"""Switches to the alternate screen, as tmux, screen and menus do."""
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_QUESTION = re.compile(r"[:?：？]$|\[[yY]/[nN]\]$|\((?:yes/no|y/n)[^)]*\)$")
"""Ends of a line that waits for an answer, in any language: of passwd, of a menu."""


class ProbeShell(asyncssh.SSHClientSession[bytes]):
    """The running shell. Lines that arrive before the script runs are kept for messages.

    Attributes:
        ended: Resolves with the reason of its end.
        said: Output before the script ran.
        status: Its exit status; None while it runs, or if the connection was lost first.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.said: list[str] = []
        self._on_line: Callable[[str], None] | None = None
        self._early: list[str] | None = None
        """Output of the script before `set_listener`; None = it does not run yet."""
        self._marks: asyncio.Queue[str] = asyncio.Queue()
        self._seen = b""
        self._news = asyncio.Event()
        self._lines = LineSplitter(MOST_LINE)
        self._channel: BoxChannel | None = None
        self.status: int | None = None

    def connection_made(self, chan: BoxChannel) -> None:
        """Keep the channel."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Split into lines; markers go to the code that starts the script."""
        # Enough for a message; a greeting may have hundreds of lines.
        words = 20
        if self._on_line is None:
            # Only until the script runs: its end is what may be a question.
            self._seen = (self._seen + data)[-4096:]
            self._news.set()
        for raw in self._lines.split_lines(data):
            line = raw.decode(errors="replace").rstrip("\r")
            # A terminal may redraw its prompt with carriage returns in front of the marker.
            mark = line.rpartition("\r")[2]
            if mark in (READY, ACK, RUN, DAMAGED):
                self._marks.put_nowait(mark)
                if mark == RUN:
                    # The script may print before the caller has set its listener.
                    self._early = []
            elif self._on_line is not None:
                self._on_line(line)
            elif self._early is not None:
                self._early.append(line)
            elif line.strip() and len(self.said) < words:
                self.said.append(clean_text(line)[:200])

    def set_listener(self, on_line: Callable[[str], None]) -> None:
        """Pass every line of the script to `on_line`, from its first."""
        self._on_line = on_line
        early, self._early = self._early or [], []
        for line in early:
            on_line(line)

    def exit_status_received(self, status: int) -> None:
        """Keep the exit status."""
        self.status = status

    def connection_lost(self, exc: Exception | None) -> None:
        """Resolve `ended`."""
        if not self.ended.done():
            if exc is None and self.status is not None:
                self.ended.set_result(f"the shell on the box ended with {self.status}")
            else:
                self.ended.set_result(describe_lost_stream(exc))

    def write(self, text: str) -> None:
        """Write to the script; ignored if it has just ended."""
        if self._channel is not None and not self.ended.done():
            with contextlib.suppress(OSError):  # it is closing, and will report why
                self._channel.write(text.encode())

    def close(self) -> None:
        """End the shell."""
        if self._channel is not None:
            self._channel.abort()

    async def wait_for_marker(self, seconds: float) -> str | None:
        """Wait for the next marker; None = it did not arrive in time, or the shell ended."""
        got = asyncio.ensure_future(self._marks.get())
        try:
            await asyncio.wait(
                {got, self.ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if got.done():
                return got.result()
            return None
        finally:
            got.cancel()

    async def find_question(self, seconds: float) -> str | None:
        """Wait until a terminal's output has paused; return what it asks if that is no shell prompt.

        Args:
            seconds: How long to wait for output.
        """
        # A pause this long ends the output: its last line is complete then.
        pause_s = 0.5
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
                while self._news.is_set():
                    self._news.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), pause_s)
        if _FULL_SCREEN in self._seen:
            return "a full-screen program"
        text = _ESCAPES.sub("", self._seen.decode(errors="replace"))
        last = clean_text(re.split(r"[\r\n]", text)[-1].strip())
        if _QUESTION.search(last):
            return last[:200]
        return None

    def shell_message(self) -> str:
        """Return what the box printed instead of running the script."""
        # An echo of the start line says nothing about the box.
        said = [line for line in self.said if "RGT" not in line]
        if said:
            return said[-1]
        if self.ended.done():
            return self.ended.result()
        return "it does not answer"


async def open_shell(connection: BoxTransport, script: str, *, terminal: bool) -> ProbeShell:
    """Start a script on a box.

    Args:
        connection: An open connection.
        script: For ``sh``; it may read what `ProbeShell.write` sends.
        terminal: Type it into a terminal, on a box that runs no commands.

    Raises:
        NoCommands: the box offers no such shell.
        Unreachable: the connection was lost.
        ProbeFailed: the script did not arrive intact.
    """
    shell = ProbeShell()
    try:
        if terminal:
            # Wide, so that the shell does not wrap the start line; "dumb", so that it sends few
            # escapes.
            await open_session(
                connection, lambda: shell, None, term_type="dumb", term_size=(1000, 50, 0, 0)
            )
        else:
            await open_session(connection, lambda: shell, START)
    except asyncssh.ChannelOpenError as error:
        raise channel_open_error(
            connection, error, "a terminal" if terminal else "to run commands"
        ) from error
    except (asyncssh.Error, OSError) as error:
        raise connection_lost_error(connection) from error
    try:
        await _start_script(shell, terminal)
        await _send_script(shell, script)
    except (NoCommands, ProbeFailed) as error:
        shell.close()
        # A connection that was lost explains it better than a missing marker.
        if connection.is_closed() and shell.status is None:
            raise connection_lost_error(connection) from error
        raise
    except BaseException:
        shell.close()
        raise
    return shell


async def _start_script(shell: ProbeShell, terminal: bool) -> None:
    # How often the start line is typed into a terminal whose shell may not be ready yet.
    tries = 3
    if terminal and (question := await shell.find_question(STEP_SECONDS / tries)):
        raise NoCommands(
            translate(
                "the terminal of the box shows no shell but {question!r}, and rgt types nothing "
                "into that: answer it with ssh -t",
                question=question,
            )
        )
    for _ in range(tries if terminal else 1):
        if terminal:
            # The space keeps the line out of the history of many shells.
            shell.write(f" {START}\n")
        mark = await shell.wait_for_marker(STEP_SECONDS / tries if terminal else STEP_SECONDS)
        if mark == READY:
            return
        if shell.ended.done():
            break
    raise NoCommands(
        translate(
            "the box offers no shell; its output: {shell_message}",
            shell_message=shell.shell_message(),
        )
    )


async def _send_script(shell: ProbeShell, script: str) -> None:
    shell.write("RGT-BEGIN\n")
    batch = ""
    # Less than a terminal's input buffer (4,096 bytes).
    batch_bytes = 900
    for line in script.splitlines():
        batch += f"{line}\n"
        if len(batch) > batch_bytes:
            shell.write(f"{batch}RGT-ACK\n")
            batch = ""
            await _expect_marker(shell, ACK)
    # The checksum is that of what the shell reassembles: each line with a line feed.
    text = "".join(f"{line}\n" for line in script.splitlines())
    shell.write(f"{batch}RGT-END {cksum_of(text.encode())} {len(text.encode())}\n")
    await _expect_marker(shell, RUN)


async def _expect_marker(shell: ProbeShell, wanted: str) -> None:
    mark = await shell.wait_for_marker(STEP_SECONDS)
    while mark == READY:  # the start line was typed twice
        mark = await shell.wait_for_marker(STEP_SECONDS)
    if mark == DAMAGED:
        raise ProbeFailed(
            translate("the script for a box without the agent arrived damaged; connect again")
        )
    if mark != wanted:
        raise ProbeFailed(
            translate(
                "the shell on the box stopped answering; its output: {shell_message}",
                shell_message=shell.shell_message(),
            )
        )


AGENT = "sh"
"""Used in `Hello` instead of the agent's hash."""
FASTEST = 1.0
"""Minimum seconds between readings, because each starts a handful of programs on the box."""


def build_script(mounts: tuple[str, ...], pattern: str = DEFAULT_PATTERN) -> str:
    """Return the shell script; `pattern` recognises a training, as in `WatchConfig`."""
    disks = "; ".join(f"r_disk {place} {shlex.quote(mount)}" for place, mount in enumerate(mounts))
    head = (
        f"r_columns={','.join(GPU_COLUMNS)}\nr_programs={shlex.quote(program_pattern(pattern))}\n"
    )
    head += f"r_disks() {{ {disks}; }}\n"
    body = files("rgt_tui.ssh").joinpath("sh_probe.sh").read_text(encoding="utf-8")
    # Without comments and indentation: a terminal takes a few hundred bytes at a time.
    lines = (line.strip() for line in body.splitlines())
    return head + "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def wanted_mounts(config: WatchConfig) -> tuple[str, ...]:
    """Return ``/`` and the configured mount points, as the agent would read them."""
    named = [mount for mount in config.mounts if mount.startswith("/") and mount.isprintable()]
    return tuple(dict.fromkeys(["/", *named]))


class ShellProbe:
    """A running probe, with the interface of the agent's channel."""

    def __init__(
        self,
        shell: ProbeShell,
        config: WatchConfig,
        on_frame: Callable[[Frame], None],
        on_bad: Callable[[int], None],
        on_line: Callable[[bytes], None] | None,
        limited: tuple[str, ...],
    ) -> None:
        self._shell = shell
        self._mounts, self._pattern = wanted_mounts(config), config.pattern
        self._interval = max(FASTEST, config.interval)
        self._after = config.samples_after
        self._on_frame, self._on_bad, self._on_line = on_frame, on_bad, on_line
        self._limited = limited
        self._greeting: asyncio.Future[ProbeGreeting] = asyncio.get_running_loop().create_future()
        self._reading: list[str] | None = None
        self._answered = asyncio.Event()
        self._kick = asyncio.Event()
        self._seq = 0
        self._boot = ""
        self._at: float | None = None
        self._task = asyncio.create_task(self._run_probe(), name="probe")
        # The script cannot answer any more, and waiting for it would take until the time limit.
        shell.ended.add_done_callback(lambda _: self._task.cancel())
        shell.set_listener(self._accept_line)

    def send(self, control: ControlLine) -> None:
        """Change the interval or answer a ping; other controls need the agent and are ignored."""
        if control.op == "interval" and control.seconds is not None:
            self._interval = max(FASTEST, control.seconds)
            self._kick.set()
        elif control.op == "ping" and self._at is not None:
            self._deliver_frame(Pong(id=control.id or 0, at=self._at))

    async def wait(self) -> str:
        """Wait for the end; return its reason."""
        await asyncio.wait([self._task])
        if self._shell.ended.done():
            return self._shell.ended.result()
        if self._task.cancelled():
            error = None
        else:
            error = self._task.exception()
        if error is not None:
            return str(error)
        return "the probe ended"

    def close(self) -> None:
        """End it: the script sees the end of its input."""
        self._task.cancel()
        self._shell.close()

    async def _run_probe(self) -> None:
        answer_seconds = 30.0
        try:
            async with asyncio.timeout(answer_seconds):
                # Shielded: the time limit must not cancel what `_accept_line` still sets.
                hello = await asyncio.shield(self._greeting)
            self._begin_numbering(hello)
            while True:
                self._kick.clear()
                self._answered.clear()
                self._seq += 1
                self._shell.write(f"t {self._seq}\n")
                started = asyncio.get_running_loop().time()
                async with asyncio.timeout(answer_seconds):
                    await self._answered.wait()
                # The time of the reading counts, so that the interval is from start to start.
                pause = self._interval - (asyncio.get_running_loop().time() - started)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._kick.wait(), max(0.0, pause))
        except TimeoutError:
            raise ProbeFailed(
                translate(
                    "the shell on the box has not answered for {answer_seconds:g} s; a disk or "
                    "driver may hang",
                    answer_seconds=answer_seconds,
                )
            ) from None

    def _begin_numbering(self, hello: ProbeGreeting) -> None:
        self._boot = hello.boot
        after = self._after
        # Numbers go on after a reconnect, so that no sample looks lost or repeated.
        if isinstance(after, SampleCursor) and after.boot == hello.boot:
            self._seq = after.seq
        else:
            self._seq = 0

    def _accept_line(self, line: str) -> None:
        # A reading of a broken box may be endless: lines beyond this number are left out.
        most_lines = 2000
        if not self._greeting.done():
            with contextlib.suppress(ValueError):
                self._greeting.set_result(parse_greeting(line))
        elif line.startswith("RGT { "):
            self._reading = [line]
        elif line.startswith("RGT } ") and self._reading is not None:
            reading, self._reading = self._reading, None
            # A late answer to an earlier question is dropped.
            if line.split()[-1] == str(self._seq):
                self._finish_reading(reading)
        elif self._reading is not None and len(self._reading) < most_lines:
            self._reading.append(line)

    def _finish_reading(self, reading: list[str]) -> None:
        hello = self._greeting.result()
        try:
            found = parse_sample(
                reading, self._boot, self._seq, hello.cores, self._mounts, self._pattern
            )
        except (ValueError, msgspec.ValidationError):
            self._on_bad(1)
        else:
            if self._at is None:
                # Only with the first sample: the greeting has no time and does not know of GPUs.
                self._deliver_frame(self._build_hello(hello, found.at, bool(found.gpus)))
            first, self._at = self._at is None, found.at
            self._deliver_frame(found)
            if first:
                self._deliver_frame(Pong(id=0, at=found.at, looked=True))
        self._answered.set()

    def _build_hello(self, hello: ProbeGreeting, at: float, gpus: bool) -> Hello:
        return Hello(
            proto=PROTOCOL_VERSION,
            agent=AGENT,
            boot=self._boot,
            host=hello.host,
            python="",
            pid=hello.pid,
            at=at,
            gpu_source="smi" if gpus else "none",
            interval=self._interval,
            limited=self._limited,
        )

    def _deliver_frame(self, frame: Frame) -> None:
        frame = clean_decoded(frame)
        if self._on_line is not None:
            self._on_line(msgspec.json.encode(frame))
        self._on_frame(frame)


async def open_probe(
    connection: BoxTransport,
    config: WatchConfig,
    on_frame: Callable[[Frame], None],
    on_bad: Callable[[int], None],
    on_line: Callable[[bytes], None] | None = None,
    *,
    terminal: bool,
    limited: tuple[str, ...] = (),
) -> ShellProbe:
    """Read a box with a shell; the arguments are those of `rgt_tui.ssh.channel.open_channel`.

    Args:
        connection: An open connection.
        config: Interval, mounts and the last sample seen; the rest needs the agent.
        on_frame: Called with a `Hello` and then a `Sample` per reading.
        on_bad: Called with the number of invalid readings.
        on_line: Called with each frame as the agent would have written it.
        terminal: See `open_shell`.
        limited: What does not work, for `Hello`.

    Raises:
        NoCommands: the box offers no shell.
        ProbeFailed: the script did not arrive.
    """
    shell = await open_shell(
        connection, build_script(wanted_mounts(config), config.pattern), terminal=terminal
    )
    return ShellProbe(shell, config, on_frame, on_bad, on_line, limited)
