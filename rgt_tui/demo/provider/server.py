"""The local provider: a socket, its connections, and the way from a request through a fault to an answer."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import time
from collections.abc import Awaitable, Callable

from rgt_tui.demo.provider.api import Api, Change, NetworkVolume
from rgt_tui.demo.provider.faults import Fault
from rgt_tui.demo.provider.pods import LocalPod
from rgt_tui.demo.provider.wire import MAX_HEAD, BadRequest, Request, Response, problem, read_request

MAX_CONNECTIONS = 64


class LocalProvider:
    """A control plane on the loopback that answers like RunPod's REST v2.

    Args:
        key: The Bearer key it asks for; None = a random one.
        settle_s: Seconds between the answer to an action and the moment it takes effect and shows.
        per_minute: Requests allowed in a minute; beyond it there is a 429.
        clock: Epoch seconds.
        sleep: Waits that many seconds (the settling).
        on_change: Called when an action takes effect, *before* the new status shows: whatever really runs
            behind the pod is stopped or started here. If it raises, the pod goes to ``ERROR``.
    """

    def __init__(
        self,
        *,
        key: str | None = None,
        settle_s: float = 2.0,
        per_minute: int = 600,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_change: Callable[[Change], Awaitable[None] | None] | None = None,
    ) -> None:
        self.key = key or secrets.token_urlsafe(24)
        self.requests: list[str] = []
        """``METHOD /path`` of the last thousand requests, the refused ones included."""
        self._api = Api(settle_s=settle_s, clock=clock, sleep=sleep, on_change=on_change)
        self._clock = clock
        self._per_minute = per_minute
        self._window: tuple[float, int] = (clock(), 0)
        self._faults: list[Fault] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._address = ("127.0.0.1", 0)

    @property
    def base_url(self) -> str:
        """Where it answers, without a path."""
        host, port = self._address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def pods(self) -> dict[str, LocalPod]:
        """The pods by their id, the terminated ones included."""
        return self._api.pods

    def add_pod(self, pod_id: str, name: str, *, created: float | None = None, **fields: object) -> LocalPod:
        """Add a pod; `fields` are those of `LocalPod`. Without `created` it begins now.

        Raises:
            ValueError: the id is taken.
        """
        return self._api.add(pod_id, name, created, fields)

    def add_volume(self, volume: str, size: float, kind: str = "STANDARD") -> None:
        """Add a network volume of `size` GB, which pods may mount by its id."""
        self._api.volumes[volume] = NetworkVolume(id=volume, size=size, kind=kind)

    def set_balance(self, amount: float | None) -> None:
        """Set what the account has left; None = nothing tells it."""
        self._api.balance = amount

    def inject(self, *faults: Fault) -> None:
        """Let the next matching requests go wrong."""
        self._faults.extend(faults)

    async def settle(self) -> None:
        """Wait until every action that is under way has taken effect."""
        await self._api.settle()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to answer.

        Args:
            host: Address to bind; the loopback unless someone knows better.
            port: 0 = any free one.

        Raises:
            OSError: the port is taken, or may not be bound; the message names it.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(
                error.errno,
                f"the local provider cannot listen on {host} port {port}: {why}; choose another port",
            ) from error
        self._address = self._server.sockets[0].getsockname()[:2]

    async def stop(self) -> None:
        """Close the socket and every connection; actions that are under way are dropped."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        await self._api.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            if len(self._tasks) > MAX_CONNECTIONS:
                writer.write(problem(503, "too many connections").encode(keep_alive=False))
                return
            await self._converse(reader, writer)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # The client left, or we do: either way there is nobody to tell.
        finally:
            if task is not None:
                self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await read_request(reader)
            except BadRequest as error:
                writer.write(problem(error.status, error.detail).encode(keep_alive=False))
                await writer.drain()
                return
            if request is None:
                return
            what = f"{request.method} {request.path}"
            self.requests = [*self.requests[-999:], what]
            fault = next((fault for fault in self._faults if fault.matches(what)), None)
            answer = Response(status=200) if fault and not fault.needs_answer else self._answer(request)
            if fault is not None:
                answer = fault.distort(answer)
                if fault.hang:
                    await asyncio.Event().wait()
            keep = request.keep_alive and (fault is None or fault.cut is None)
            data = answer.encode(keep_alive=keep)
            if fault is not None and fault.cut is not None:
                data = data[: data.index(b"\r\n\r\n") + 4 + fault.cut]
            writer.write(data)
            await writer.drain()
            if not keep:
                return

    def _answer(self, request: Request) -> Response:
        given = request.headers.get("authorization", "").encode("latin-1")
        if not hmac.compare_digest(given, f"Bearer {self.key}".encode()):
            return problem(401, "invalid or missing API key")
        now = self._clock()
        begun, used = self._window
        if not 0 <= now - begun < 60:
            begun, used = now, 0
        self._window = (begun, used + 1)
        left, seconds = self._per_minute - used - 1, max(1, round(begun + 60 - now))
        limits = {
            "RateLimit-Policy": f'"minute";q={self._per_minute};w=60',
            "RateLimit": f'"minute";r={max(0, left)};t={seconds}',
        }
        if left < 0:
            return problem(429, "rate limit exceeded", {**limits, "Retry-After": str(seconds)})
        answer = self._api.handle(request)
        return Response(answer.status, answer.data, {**answer.headers, **limits}, answer.raw)
