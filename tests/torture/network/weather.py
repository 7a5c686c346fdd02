"""A TCP proxy whose weather can be changed while connections are up: one per box, between client and real sshd."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import struct
from collections.abc import Iterator

from tests.free_ports import free_port

RST = struct.pack("ii", 1, 0)
"""SO_LINGER on with a time of 0: closing sends a reset."""


class Weather(enum.StrEnum):
    """What the network does to every byte of a box."""

    CLEAR = "clear"
    LATENCY = "latency"
    """150 ms each way."""
    NARROW = "narrow"
    """1 KiB/s each way."""
    HOLE = "black hole"
    """Connections stay up, no byte arrives in either direction; new ones are accepted and never answered."""
    HALF_OPEN = "half-open"
    """The server's end is closed without telling the client, whose bytes vanish; new connections hang."""
    CORRUPT = "corrupt"
    """One byte of an established connection is changed; then it is clear again."""
    RESET = "reset"
    """Every connection is reset at once; then it is clear again."""
    DOWN = "down"
    """Every connection is reset, new ones are refused."""


LATENCY_SECONDS = 0.15
NARROW_BYTES = 1024
PIECE = 16384


class Road:
    """The only way to one box.

    Args:
        target: Port of the real server on the loopback.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._weather = Weather.CLEAR
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.port = free_port()  # not one that the kernel gives another while the road is closed
        self.corrupted = 0
        self.accepted = 0

    async def __aenter__(self) -> Road:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=PIECE, reuse_address=True
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def set(self, weather: Weather) -> None:
        """Change the weather now, for the connections that are up and for new ones."""
        self._weather = weather
        self._changed.set()
        self._changed = asyncio.Event()
        if weather in (Weather.RESET, Weather.DOWN):
            self._reset_all()
        if weather is Weather.DOWN and self._server is not None:
            self._server.close()
            self._server = None
        elif weather is not Weather.DOWN and self._server is None:
            await self._listen()

    def _reset_all(self) -> None:
        for end in list(self._ends):
            reset(end)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._ends.add(writer)
        self.accepted += 1
        upstream: asyncio.StreamWriter | None = None
        pumps: list[asyncio.Future[None]] = []
        try:
            await self._passable()
            answers, upstream = await asyncio.open_connection(
                "127.0.0.1", self._target, limit=PIECE
            )
            self._ends.add(upstream)
            pumps = [
                asyncio.ensure_future(self._pump(reader, upstream)),
                asyncio.ensure_future(self._pump(answers, writer)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self._weather is Weather.HALF_OPEN:
                # The server is gone and nobody tells the client: its end stays open until the weather changes.
                upstream.transport.abort()
                await self._passable()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            # Nothing is awaited before the ends are closed: this task may be cancelled once more while it waits.
            for pump in pumps:
                pump.cancel()
            for end in (writer, upstream):
                if end is not None:
                    self._ends.discard(end)
                    end.transport.abort()
            self._tasks.discard(task)
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _passable(self) -> None:
        while self._weather in (Weather.HOLE, Weather.HALF_OPEN):
            await self._changed.wait()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                if self._weather is Weather.HALF_OPEN:
                    return
                await self._passable()
                for piece in self._pieces(data):
                    if self._weather is Weather.LATENCY:
                        await asyncio.sleep(LATENCY_SECONDS)
                    elif self._weather is Weather.NARROW:
                        await asyncio.sleep(len(piece) / NARROW_BYTES)
                    writer.write(self._spoilt(piece))
                    await writer.drain()

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        size = NARROW_BYTES // 4 if self._weather is Weather.NARROW else PIECE
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def _spoilt(self, piece: bytes) -> bytes:
        if self._weather is not Weather.CORRUPT:
            return piece
        self._weather = Weather.CLEAR
        self.corrupted += 1
        middle = len(piece) // 2
        return piece[:middle] + bytes([piece[middle] ^ 0x10]) + piece[middle + 1 :]


def reset(end: asyncio.StreamWriter) -> None:
    """Close a connection with a TCP reset."""
    raw = end.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
    end.transport.abort()
