"""Samples from a box that cannot run the agent: the same frames, as far as a shell can read them."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable
from importlib.resources import files

import asyncssh
import msgspec

from rgt_tui.model.protocol import (
    DEFAULT_PATTERN,
    PROTOCOL_VERSION,
    Control,
    Frame,
    Hello,
    Pong,
    SampleCursor,
    WatchConfig,
)
from rgt_tui.ssh.errors import ProbeFailed
from rgt_tui.ssh.limited.command_lines import programs
from rgt_tui.ssh.limited.parse import GPU_COLUMNS, Greeting, greeting, sample
from rgt_tui.ssh.limited.shell import Shell, open_shell

AGENT = "sh"
"""Stands in `Hello` where the agent says its own hash."""
FASTEST = 1.0
"""A reading starts a handful of programs on the box: not more than one a second."""
ANSWER_SECONDS = 30.0
MOST_LINES = 2000


def script(mounts: tuple[str, ...], pattern: str = DEFAULT_PATTERN) -> str:
    """Return what the shell runs; `pattern` tells a training, as in `WatchConfig`."""
    disks = "; ".join(f"r_disk {place} {shlex.quote(mount)}" for place, mount in enumerate(mounts))
    head = f"r_columns={','.join(GPU_COLUMNS)}\nr_programs={shlex.quote(programs(pattern))}\n"
    head += f"r_disks() {{ {disks}; }}\n"
    body = files("rgt_tui.ssh.limited").joinpath("probe.sh").read_text(encoding="utf-8")
    lines = (line.strip() for line in body.splitlines())
    return head + "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def wanted_mounts(config: WatchConfig) -> tuple[str, ...]:
    """Return ``/`` and the configured mount points, as the agent would read them."""
    named = [mount for mount in config.mounts if mount.startswith("/") and mount.isprintable()]
    return tuple(dict.fromkeys(["/", *named]))


class Probe:
    """A running probe, in the place of the agent's channel."""

    def __init__(
        self,
        shell: Shell,
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
        self._greeting: asyncio.Future[Greeting] = asyncio.get_running_loop().create_future()
        self._reading: list[str] | None = None
        self._answered = asyncio.Event()
        self._kick = asyncio.Event()
        self._seq = 0
        self._boot = ""
        self._at: float | None = None
        self._task = asyncio.create_task(self._run(), name="probe")
        shell.ended.add_done_callback(lambda _: self._task.cancel())
        shell.listen(self._line)

    def send(self, control: Control) -> None:
        """Change the interval; what only the agent can do is left."""
        if control.op == "interval" and control.seconds is not None:
            self._interval = max(FASTEST, control.seconds)
            self._kick.set()
        elif control.op == "ping" and self._at is not None:
            self._frame(Pong(id=control.id or 0, at=self._at))

    async def wait(self) -> str:
        """Wait for the end; return why it ended."""
        await asyncio.wait([self._task])
        if self._shell.ended.done():
            return self._shell.ended.result()
        error = None if self._task.cancelled() else self._task.exception()
        return str(error) if error is not None else "the probe ended"

    def close(self) -> None:
        """End it: the script sees the end of its input."""
        self._task.cancel()
        self._shell.close()

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                hello = await asyncio.shield(self._greeting)
            self._begin(hello)
            while True:
                self._kick.clear()
                self._answered.clear()
                self._seq += 1
                self._shell.write(f"t {self._seq}\n")
                started = asyncio.get_running_loop().time()
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._answered.wait()
                pause = self._interval - (asyncio.get_running_loop().time() - started)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._kick.wait(), max(0.0, pause))
        except TimeoutError:
            raise ProbeFailed(
                f"the shell on the box has not answered for {ANSWER_SECONDS:g} s; a disk or driver may hang"
            ) from None

    def _begin(self, hello: Greeting) -> None:
        self._boot = hello.boot
        after = self._after
        self._seq = after.seq if isinstance(after, SampleCursor) and after.boot == hello.boot else 0

    def _line(self, line: str) -> None:
        if not self._greeting.done():
            with contextlib.suppress(ValueError):
                self._greeting.set_result(greeting(line))
        elif line.startswith("RGT { "):
            self._reading = [line]
        elif line.startswith("RGT } ") and self._reading is not None:
            reading, self._reading = self._reading, None
            if line.split()[-1] == str(self._seq):
                self._finish(reading)
        elif self._reading is not None and len(self._reading) < MOST_LINES:
            self._reading.append(line)

    def _finish(self, reading: list[str]) -> None:
        hello = self._greeting.result()
        try:
            found = sample(reading, self._boot, self._seq, hello.cores, self._mounts, self._pattern)
        except (ValueError, msgspec.ValidationError):
            self._on_bad(1)
        else:
            if self._at is None:
                self._frame(self._hello(hello, found.at, bool(found.gpus)))
            first, self._at = self._at is None, found.at
            self._frame(found)
            if first:
                self._frame(Pong(id=0, at=found.at, looked=True))
        self._answered.set()

    def _hello(self, hello: Greeting, at: float, gpus: bool) -> Hello:
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

    def _frame(self, frame: Frame) -> None:
        if self._on_line is not None:
            self._on_line(msgspec.json.encode(frame))
        self._on_frame(frame)


async def open_probe(
    connection: asyncssh.SSHClientConnection,
    config: WatchConfig,
    on_frame: Callable[[Frame], None],
    on_bad: Callable[[int], None],
    on_line: Callable[[bytes], None] | None = None,
    *,
    terminal: bool,
    limited: tuple[str, ...] = (),
) -> Probe:
    """Read a box with a shell; the arguments are those of `rgt_tui.ssh.channel.open_channel`.

    Args:
        connection: An open connection.
        config: Interval, mounts and the last sample that was seen; the rest needs the agent.
        on_frame: Called with a `Hello` and then a `Sample` per reading.
        on_bad: Called with the number of readings that made no sense.
        on_line: Called with each frame as the agent would have written it.
        terminal: See `open_shell`.
        limited: What does not work, for `Hello`.

    Raises:
        NoCommands: the box gives no shell.
        ProbeFailed: the script did not arrive.
    """
    shell = await open_shell(connection, script(wanted_mounts(config), config.pattern), terminal=terminal)
    return Probe(shell, config, on_frame, on_bad, on_line, limited)
