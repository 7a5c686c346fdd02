"""A POSIX shell on a box that runs one script of ours: over a command's pipes, or typed into a terminal.

The script is not given on a command line: a login shell of another kind would have to quote it, and a terminal
cuts long lines. One line starts ``sh``, silences the terminal's echo and takes the script line by line, with a
checksum; then the script reads what we write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncssh

from rgt_tui.model.plain import clean
from rgt_tui.ssh.channel import LineSplitter
from rgt_tui.ssh.errors import NoCommands, ProbeFailed
from rgt_tui.ssh.limited.cksum import cksum
from rgt_tui.ssh.refusing import lost, not_opened, open_session

START = (
    'exec sh -c \'stty -echo -onlcr 2>/dev/null; n=$(printf "\\nx"); n=${n%x}; s=; c=; '
    'printf "\\nRGT%s\\n" +ready; while IFS= read -r l; do case $l in RGT-BEGIN) s=;; '
    'RGT-ACK) printf "RGT%s\\n" +ack;; RGT-END*) c=${l#RGT-END }; break;; *) s="$s$l$n";; esac; done; '
    'x=$(printf %s "$s" | cksum 2>/dev/null) || x=$c; '
    'if [ "$x" = "$c" ]; then printf "\\nRGT%s\\n" +run; eval "$s"; else printf "\\nRGT%s\\n" +damaged; fi\''
)
"""No line of the script's output can be mistaken for an echo of this one: the marks are put together when run. Each
begins on a line of its own, since a shell may print its prompt after it has read this line."""
READY, ACK, RUN, DAMAGED = "RGT+ready", "RGT+ack", "RGT+run", "RGT+damaged"
STEP_SECONDS = 15.0
TRIES = 3
"""Times that the start is typed into a terminal whose shell may not listen yet."""
BATCH_BYTES = 900
"""Less than a terminal holds (4,096 bytes) before somebody reads."""
MOST_LINE = 1 << 16
WORDS = 20


class Shell(asyncssh.SSHClientSession[bytes]):
    """The running shell. Lines that come before the script runs are kept for messages.

    Attributes:
        ended: Resolves with why it ended.
        said: What came before the script ran.
        status: Its exit status; None while it runs, and where the connection was lost before.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[str] = loop.create_future()
        self.said: list[str] = []
        self._on_line: Callable[[str], None] | None = None
        self._early: list[str] | None = None
        """What the script has said before anyone listens; None = it does not run yet."""
        self._marks: asyncio.Queue[str] = asyncio.Queue()
        self._lines = LineSplitter(MOST_LINE)
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self.status: int | None = None

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """Take note of the channel."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Cut into lines; a mark of ours goes to whoever starts the script."""
        for raw in self._lines.feed(data):
            line = raw.decode(errors="replace").rstrip("\r")
            mark = line.rpartition("\r")[2]
            if mark in (READY, ACK, RUN, DAMAGED):
                self._marks.put_nowait(mark)
                if mark == RUN:
                    self._early = []
            elif self._on_line is not None:
                self._on_line(line)
            elif self._early is not None:
                self._early.append(line)
            elif line.strip() and len(self.said) < WORDS:
                self.said.append(clean(line)[:200])

    def listen(self, on_line: Callable[[str], None]) -> None:
        """Hand every line of the script to `on_line`, from its first."""
        self._on_line = on_line
        early, self._early = self._early or [], []
        for line in early:
            on_line(line)

    def exit_status_received(self, status: int) -> None:
        """Keep how it ended."""
        self.status = status

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that it has ended."""
        if not self.ended.done():
            if exc is not None:
                self.ended.set_result(f"ssh: {exc}")
            elif self.status is not None:
                self.ended.set_result(f"the shell on the box ended with {self.status}")
            else:
                self.ended.set_result("ssh: the connection was lost")

    def write(self, text: str) -> None:
        """Write to the script; silently nothing when it has just ended."""
        if self._channel is not None and not self.ended.done():
            self._channel.write(text.encode())

    def close(self) -> None:
        """End it."""
        if self._channel is not None:
            self._channel.abort()

    async def mark(self, seconds: float) -> str | None:
        """Wait for the next mark; None = it did not come in time, or the shell ended."""
        got = asyncio.ensure_future(self._marks.get())
        try:
            await asyncio.wait({got, self.ended}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return got.result() if got.done() else None
        finally:
            got.cancel()

    def words(self) -> str:
        """Return what the box said instead of doing what was asked."""
        said = [line for line in self.said if "RGT" not in line]
        return said[-1] if said else (self.ended.result() if self.ended.done() else "it does not answer")


async def open_shell(connection: asyncssh.SSHClientConnection, script: str, *, terminal: bool) -> Shell:
    """Start a script on a box.

    Args:
        connection: An open connection.
        script: For ``sh``; it may read what `Shell.write` sends.
        terminal: Type it into a terminal, on a box that runs no commands.

    Raises:
        NoCommands: the box gives no shell of that kind.
        Unreachable: the connection was lost.
        ProbeFailed: the script did not arrive whole.
    """
    shell = Shell()
    try:
        if terminal:
            await open_session(connection, lambda: shell, None, term_type="dumb", term_size=(1000, 50, 0, 0))
        else:
            await open_session(connection, lambda: shell, START)
    except asyncssh.ChannelOpenError as error:
        raise not_opened(connection, error, "a terminal" if terminal else "to run commands") from error
    except (asyncssh.Error, OSError) as error:
        raise lost(connection) from error
    try:
        await _started(shell, terminal)
        await _sent(shell, script)
    except (NoCommands, ProbeFailed) as error:
        shell.close()
        if connection.is_closed() and shell.status is None:
            raise lost(connection) from error
        raise
    except BaseException:
        shell.close()
        raise
    return shell


async def _started(shell: Shell, terminal: bool) -> None:
    for _ in range(TRIES if terminal else 1):
        if terminal:
            shell.write(f" {START}\n")
        mark = await shell.mark(STEP_SECONDS / TRIES if terminal else STEP_SECONDS)
        if mark == READY:
            return
        if shell.ended.done():
            break
    raise NoCommands(f"the box gives no shell; it says: {shell.words()}")


async def _sent(shell: Shell, script: str) -> None:
    shell.write("RGT-BEGIN\n")
    batch = ""
    for line in script.splitlines():
        batch += f"{line}\n"
        if len(batch) > BATCH_BYTES:
            shell.write(f"{batch}RGT-ACK\n")
            batch = ""
            await _expect(shell, ACK)
    text = "".join(f"{line}\n" for line in script.splitlines())
    shell.write(f"{batch}RGT-END {cksum(text.encode())} {len(text.encode())}\n")
    await _expect(shell, RUN)


async def _expect(shell: Shell, wanted: str) -> None:
    mark = await shell.mark(STEP_SECONDS)
    while mark == READY:  # the start was typed twice
        mark = await shell.mark(STEP_SECONDS)
    if mark == DAMAGED:
        raise ProbeFailed("the script for a box without the agent arrived garbled; connect again")
    if mark != wanted:
        raise ProbeFailed(f"the shell on the box stopped answering; it says: {shell.words()}")
