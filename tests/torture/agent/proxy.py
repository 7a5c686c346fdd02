"""A TCP proxy that is bad to its connections, each in another way, at a point that the dice choose."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Fate:
    """What happens to one connection after `after` bytes from the server."""

    kind: str
    """reset (both ends), silence (bytes vanish, then a reset), corrupt (some bytes vanish) or none."""
    after: int


class Proxy:
    """Stands between a client and a server on the loopback."""

    def __init__(self, target: int, dice: random.Random) -> None:
        self._target, self._dice = target, dice
        self.gentle = False
        self.fates: list[Fate] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def _choose(self) -> Fate:
        if self.gentle:
            return Fate("none", 0)
        kind = self._dice.choice(("reset", "reset", "silence", "corrupt", "none"))
        # The key exchange takes and the start of the agent take some 5,000 bytes; beyond are frames.
        return Fate(kind, int(6000 + 15000 * self._dice.random() ** 2))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        fate = self._choose()
        self.fates.append(fate)
        upstream: asyncio.StreamWriter | None = None
        try:
            answers, upstream = await asyncio.open_connection("127.0.0.1", self._target)
            requests = asyncio.ensure_future(self._pump(reader, upstream, Fate("none", 0)))
            try:
                await self._pump(answers, writer, fate)
            finally:
                requests.cancel()
                await asyncio.gather(requests, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()
            self._tasks.discard(task)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fate: Fate) -> None:
        left = fate.after
        silent = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if fate.kind != "none":
                    if len(data) >= left:
                        if fate.kind == "reset":
                            writer.write(data[:left])
                            return
                        silent += len(data) - left
                        data = data[:left] + (data[left + 7 :] if fate.kind == "corrupt" else b"")
                        left = 0
                        if silent > 500 and fate.kind == "silence":
                            return
                    else:
                        left -= len(data)
                writer.write(data)
                await writer.drain()
