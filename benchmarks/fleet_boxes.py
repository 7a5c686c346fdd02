"""A process full of simulated boxes: one SSH server at many loopback addresses, each client connection a box.

What is real: the SSH server side, the commands by which rgt puts its agent on a box (each is run by
    a real shell until
the same input has given the same output twice, then remembered), and the frames, which a real agent
has sent. What is
not: sampling, recorder and log files behind them. Like OpenSSH's ``MaxStartups 10:30:100`` it
    refuses connections at
random while more than ten others have not logged in.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh
import asyncssh.connection
from asyncssh.constants import MSG_IGNORE
from rgt_box.streams.pipes import compress_frame

from benchmarks.fleet_recording import Recording

START_FREE, START_RATE, START_FULL = 10, 0.3, 100
"""sshd's default MaxStartups."""
BACKLOG, TAIL = 120, 200
"""What the real agent sends of the past to a client that knows nothing of the box: samples, and
lines of a log unless it is asked for another number of them."""
NEWS_EVERY = 5
"""A line of the log and a point of the metrics come with one sample in so many."""


class Host:
    """What all boxes of the process share."""

    def __init__(self, recordings: Sequence[Recording], home: Path) -> None:
        self.recordings = recordings
        self.home = home
        self.starting = self.refused = 0
        self.live: set[Box] = set()
        self._answers: dict[str, list[tuple[bytes, int]]] = {}

    async def run(self, command: str, data: bytes) -> tuple[bytes, int]:
        """Run a command of the deployment, or remember what it said."""
        key = hashlib.sha256(command.encode() + b"\0" + data).hexdigest()
        before = self._answers.setdefault(key, [])
        if len(before) >= 2 and before[-1] == before[-2]:
            return before[-1]
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / ".cache")},
        )  # fmt: skip
        output, _ = await child.communicate(data)
        before.append((output, child.returncode or 0))
        return before[-1]

    async def beat(self) -> None:
        """Send each box's sample when its second has come round; boxes are spread evenly over it."""
        while True:
            now = time.monotonic()
            for box in [box for box in self.live if box.due <= now]:
                box.tick(now)
            await asyncio.sleep(0.005)


def send_no_ignore() -> None:
    """Send no MSG_IGNORE before each packet: asyncssh does, OpenSSH's server does not, and the client pays for it."""
    connection = asyncssh.connection.SSHConnection
    send = connection.send_packet

    def without(
        self: asyncssh.connection.SSHConnection, pkttype: int, *args: bytes, **more: Any
    ) -> None:
        if pkttype != MSG_IGNORE:
            send(self, pkttype, *args, **more)

    connection.send_packet = without  # type: ignore[method-assign]


class Packed:
    """The frames that a box sends, each packed by itself if the client accepts that.

    Args:
        lines: The client accepts packed lines.
    """

    def __init__(self, *, lines: bool) -> None:
        self.said = {"packed_lines": lines}
        self._told: dict[bytes, bytes] = {}

    def put(self, frame: bytes) -> bytes:
        """Return the bytes of a frame."""
        if self.said["packed_lines"]:
            return compress_frame(frame, self._told)
        return frame


class Server(asyncssh.SSHServer):
    """One connection."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting = False

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Refuse it as sshd would, or count it as not logged in."""
        have = self._host.starting
        share = START_RATE + (1 - START_RATE) * (have - START_FREE) / (START_FULL - START_FREE)
        if have >= START_FREE and random.random() < share:
            self._host.refused += 1
            conn.abort()
            return
        self._host.starting += 1
        self._waiting = True

    def session_requested(self) -> Box:
        """Every session is a command."""
        return Box(self._host)

    def auth_completed(self) -> None:
        """It is logged in."""
        self._ready()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._ready()

    def _ready(self) -> None:
        if self._waiting:
            self._waiting = False
            self._host.starting -= 1


class Box(asyncssh.SSHServerSession[bytes]):
    """One command on one connection; of ``watch``, the box itself."""

    numbers = 0

    def __init__(self, host: Host) -> None:
        self._host = host
        self._input = b""
        self._command = ""
        self._started = False
        self._seq = self._step = self._offset = 0
        self._interval = 1.0
        self.due = 0.0

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """Keep the channel."""
        self._chan = chan

    def exec_requested(self, command: str) -> bool:
        """Every command is taken."""
        self._command = command
        return True

    def session_started(self) -> None:
        """One whole sample is answered at once."""
        if self._command == "sample":
            self._chan.write(self._host.recordings[0].whole(1))
            self._chan.exit(0)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Take the configuration and the controls of ``watch``, and the input of other commands."""
        self._input += data
        if self._command.split()[-1:] != ["watch"]:
            return
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if not self._started:
                self._begin(message)
            elif message.get("op") == "interval":
                # As the recorder, which samples as soon as it is asked for another pace.
                self._interval, self.due = float(message["seconds"]), time.monotonic()

    def eof_received(self) -> bool:
        """The input is whole: run the command."""
        if self._command.split()[-1:] == ["watch"]:
            return False
        self._task = asyncio.create_task(self._answer())
        return True

    async def _answer(self) -> None:
        output, status = await self._host.run(self._command, self._input)
        with contextlib.suppress(BrokenPipeError):  # whoever asked has left
            self._chan.write(output)
            self._chan.exit(status)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop sending."""
        self._host.live.discard(self)

    def _begin(self, config: dict[str, object]) -> None:
        """Send what a real agent sends to a client that comes for the first time."""
        self._started = True
        Box.numbers += 1
        self._number = Box.numbers
        self._recording = self._host.recordings[Box.numbers % len(self._host.recordings)]
        self._interval = float(str(config.get("interval", 1.0)))
        self._out = Packed(lines=config.get("packed_lines") is True)
        self._chan.write(
            self._recording.hello(f"box{Box.numbers}", self._interval, **self._out.said)
        )
        tail = int(str(config.get("tail", TAIL)))
        log = self._recording.log(self._number, tail, 0, 0)
        self._step, self._offset = tail, len(log)
        now = time.time()
        past = [self._recording.sample(n, n + 1, now - BACKLOG + n) for n in range(BACKLOG)]
        self._seq = BACKLOG
        self._send(log, *past)
        self.due = time.monotonic() + self._interval * random.random()
        self._host.live.add(self)

    def tick(self, now: float) -> None:
        """Send the next sample, and now and then a line of the log and a point."""
        self._seq += 1
        frames = [self._recording.sample(self._seq - 1, self._seq, time.time())]
        if self._seq % NEWS_EVERY == 0:
            self._step += 1
            frames.append(self._recording.log(self._number, 1, self._step, self._offset))
            frames.append(self._recording.scalar(self._step, self._offset))
            self._offset += 100
        self._send(*frames)
        self.due = max(self.due + self._interval, now)

    def _send(self, *frames: bytes) -> None:
        """Write frames as the agent does."""
        self._chan.write(b"".join(map(self._out.put, frames)))


class Distance:
    """Stands between the clients and a server, and lets everything arrive later.

    Args:
        port: Where the server listens on this machine.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.one_way = 0.0
        """Seconds."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join a client and the server."""
        others = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target in ((reader, others[1]), (others[0], writer)):
            queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
            for work in (self._take(source, queue), self._hand_over(queue, target)):
                task = asyncio.create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _take(
        self, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"begun"
        while data:
            try:
                data = await source.read(1 << 16)
            except OSError:
                data = b""
            queue.put_nowait((time.monotonic() + self.one_way, data))

    async def _hand_over(
        self, queue: asyncio.Queue[tuple[float, bytes]], target: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if not data or target.is_closing():
                target.close()
                return
            target.write(data)


async def serve(options: argparse.Namespace) -> None:
    """Listen until the standard input ends; each line of it says how far away the boxes are, and is answered."""
    host = Host([Recording(Path(path)) for path in options.recordings], options.home)
    listener = await asyncssh.listen(
        "127.0.0.1" if options.far else "0.0.0.0",
        0,
        server_factory=lambda: Server(host),
        server_host_keys=[str(options.keys / "host_key")],
        authorized_client_keys=str(options.keys / "id.pub"),
        backlog=1000,
        encoding=None,
        keepalive_interval=0,
    )
    distance, port = Distance(listener.get_port()), listener.get_port()
    if options.far:
        between = await asyncio.start_server(distance.accept, "0.0.0.0", backlog=1000)
        port = between.sockets[0].getsockname()[1]
    print(port, flush=True)
    beat = asyncio.create_task(host.beat())
    while line := await asyncio.to_thread(sys.stdin.readline):
        distance.one_way = float(line.strip() or distance.one_way)
        print(json.dumps({"refused": host.refused, "live": len(host.live)}), flush=True)
    beat.cancel()
    listener.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_boxes")
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument(
        "--far", action="store_true", help="what is sent arrives later by what each line says (s)"
    )
    parser.add_argument("recordings", nargs="+")
    send_no_ignore()
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
