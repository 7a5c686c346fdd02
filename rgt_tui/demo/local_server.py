"""The base of all local control planes: an HTTP server on loopback, with faults on demand.

It bills nothing. The adapters for the vendors' APIs run against it in the demo and the tests, with
the awkward parts kept: delayed states, conflicts, rate limits, and faults on demand.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import json
import os
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

# The largest request of an adapter is a creation of a few kilobytes.
MAX_BODY = 64 * 1024
IDLE_S = 30.0
"""Seconds that a connection may be idle, or take to send its request."""


@dataclass(frozen=True)
class LocalRequest:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    key: str
    """The Authorization header."""
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in small letters."""

    def parse_json(self) -> Any:
        """Return the body's JSON, or None."""
        try:
            return json.loads(self.body or b"null")
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True)
class LocalResponse:
    """One answer; `data` None means an empty body."""

    status: int
    data: object = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """A body that is not JSON, instead of `data`."""

    @property
    def body(self) -> bytes:
        """The bytes of the body."""
        if self.raw is not None:
            return self.raw
        if self.data is None:
            return b""
        return json.dumps(self.data).encode()


def build_problem(status: int, detail: str, headers: dict[str, str] | None = None) -> LocalResponse:
    """Return an error as RFC 9457 problem details."""
    data = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, "errors": []}
    return LocalResponse(status=status, data=data, headers=headers or {})


@dataclass(frozen=True)
class MachineChange:
    """An action that takes effect on a machine."""

    machine: str
    """Its id."""
    name: str
    action: str
    """create, stop, start, restart or terminate, on every platform."""


@dataclass
class InjectedFault:
    """The fault of the next matching requests; one fault per request, the oldest first.

    Example:
        A timeout after the server has acted::

            provider.inject(Fault(on="POST /v2/pods/", act=True, hang=True))
    """

    on: str = ""
    """Start of ``METHOD /path``; empty = every request."""
    sends: bytes = b""
    """What the body of the request must contain."""
    status: int | None = None
    """Answer with this status instead: with the body `raw`, otherwise as an error in the platform's
    format.
    """
    headers: dict[str, str] = field(default_factory=dict)
    """Extra headers, e.g. ``{"Retry-After": "7"}``."""
    raw: bytes | None = None
    """Answer with these bytes as the body."""
    change: Callable[[Any], object] | None = None
    """Edit the JSON of the true answer."""
    act: bool = False
    """Carry out the request before failing. Without it, a hang or an error status changes nothing.
    """
    hang: bool = False
    """Never answer."""
    drop: bool = False
    """Close the connection without an answer; like a timeout, but without the wait."""
    cut: int | None = None
    """Send only this many bytes of the answer's body, then close the connection."""
    times: int = 1
    """How many requests; a negative number = all."""

    def consume_match(self, what: str, body: bytes = b"") -> bool:
        """Return whether this fault applies to ``METHOD /path`` and a body.

        A match uses up one of `times`.
        """
        if self.times == 0 or not what.startswith(self.on) or self.sends not in body:
            return False
        self.times -= 1
        return True

    @property
    def needs_answer(self) -> bool:
        """Whether the request is carried out at all."""
        return self.act or (self.status is None and not self.hang and not self.drop)

    def distort_answer(
        self, answer: LocalResponse, refusal: Callable[..., LocalResponse] = build_problem
    ) -> LocalResponse:
        """Return what is sent instead of the true answer.

        Args:
            answer: The true one.
            refusal: Makes an error in the platform's own shape of a status, words and headers.
        """
        headers = {**answer.headers, **self.headers}
        if self.status is not None and self.raw is not None:
            return LocalResponse(self.status, headers=headers, raw=self.raw)
        if self.status is not None:
            return refusal(self.status, "injected fault", headers)
        if self.change is None:
            data = answer.data
        else:
            data = self.change(answer.data)
        return LocalResponse(status=answer.status, data=data, headers=headers, raw=self.raw)


class LocalServer:
    """Shared base of the local control planes: socket, key, rate limit, faults, delayed effects.

    Args:
        key: What `LocalRequest.key` must hold after `scheme`; None = a random one.
        settle_s: Seconds between the answer to an action and the moment it takes effect and shows.
        per_minute: Requests allowed in a minute; beyond it there is a 429.
        clock: Epoch seconds.
        sleep: Waits that many seconds (the settling).
        on_change: Called when an action takes effect, *before* the new state shows, to stop or
            start what really runs for the machine. If it raises, the machine goes to an error
            state.
    """

    scheme = "Bearer "
    """Prefix of the key in the header."""
    key_header = "Authorization"

    def __init__(
        self,
        *,
        key: str | None = None,
        settle_s: float = 2.0,
        per_minute: int = 600,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_change: Callable[[MachineChange], Awaitable[None] | None] | None = None,
    ) -> None:
        # Random: another program on this machine must not control the demo.
        self.key = key or secrets.token_urlsafe(24)
        self.requests: list[str] = []
        """``METHOD /path`` of the last thousand requests, the refused ones included."""
        self.bodies: list[bytes] = []
        """Bodies of the same requests."""
        self.machine_keys: dict[str, str] = {}
        """Key that the platform has put into a machine → the machine's id; it is valid only for
        that machine.
        """
        self.machine_keys_read_only = False
        """A machine's key may read that machine and change nothing, as is often so at RunPod."""
        self.askers: list[str] = []
        """Sender of each of these requests: ``account``, a machine's id, or empty for a wrong key.
        """
        self.settle_s = settle_s
        self.clock = clock
        self.sleep = sleep
        self._on_change = on_change
        self._changes: set[asyncio.Task[Any]] = set()
        self._per_minute = per_minute
        self._window: tuple[float, int] = (clock(), 0)
        self._faults: list[InjectedFault] = []
        self._server: _PlaneServer | None = None
        self._loop: asyncio.AbstractEventLoop
        self._address = ("127.0.0.1", 0)

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Answer one request whose key has been checked, as the platform does."""
        raise NotImplementedError

    def build_refusal(
        self, status: int, text: str, headers: dict[str, str] | None = None
    ) -> LocalResponse:
        """Return an error in the platform's own shape."""
        return build_problem(status, text, headers)

    def apply_later(self, effect: Callable[[], Awaitable[None]]) -> None:
        """Apply an accepted action after `settle_s`: until then it is *requested*, not *done*."""

        async def wait_and_apply() -> None:
            await self.sleep(self.settle_s)
            await effect()

        # Referenced until it is done: the loop itself keeps only weak references to tasks.
        task = asyncio.ensure_future(wait_and_apply())
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)

    async def notify_owner(self, change: MachineChange) -> bool:
        """Notify the owner that an action takes effect.

        False if that failed, and the state must not change.
        """
        if self._on_change is None:
            return True
        try:
            result = self._on_change(change)
            if inspect.isawaitable(result):
                await result
        except Exception:  # Anything that the owner's code raised.
            return False
        return True

    @property
    def base_url(self) -> str:
        """Where it answers, without a path."""
        host, port = self._address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def inject_faults(self, *faults: InjectedFault) -> None:
        """Make the next matching requests fail."""
        self._faults.extend(faults)

    async def wait_settled(self) -> None:
        """Wait until every pending action has taken effect."""
        await asyncio.gather(*self._changes)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Begin to answer.

        Args:
            host: Address to bind; the loopback unless someone knows better.
            port: 0 = any free one.

        Raises:
            OSError: The port is taken, or may not be bound; the message names it.
        """
        self._loop = asyncio.get_running_loop()
        try:
            # A real socket and thread, so that the clients' own HTTP code is tested with it.
            self._server = _PlaneServer((host, port), self)
        except OSError as error:
            if error.errno:
                why = os.strerror(error.errno)
            else:
                why = str(error)
            raise OSError(
                error.errno,
                f"the local control plane cannot listen on {host} port {port}: {why}; choose "
                "another port",
            ) from error
        self._address = (host, self._server.server_address[1])
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="control plane", daemon=True
        ).start()

    async def stop(self) -> None:
        """Close the socket and every connection; pending actions are dropped."""
        server, self._server = self._server, None
        if server is not None:
            await asyncio.to_thread(server.close_all)
        for task in self._changes:
            task.cancel()
        await asyncio.gather(*self._changes, return_exceptions=True)

    def answer_with_fault(
        self, request: LocalRequest
    ) -> tuple[LocalResponse, InjectedFault | None]:
        """Return a request's answer and its fault, if any; called by the connection's thread."""

        async def in_the_loop() -> tuple[LocalResponse, InjectedFault | None]:
            what = f"{request.method} {request.path}"
            # In the loop's thread, and replaced instead of changed: a test may read it at any time.
            self.requests = [*self.requests[-999:], what]
            self.bodies = [*self.bodies[-999:], request.body]
            # The first match only, so that two faults for one call apply to two calls.
            fault = next(
                (fault for fault in self._faults if fault.consume_match(what, request.body)), None
            )
            self.askers = [*self.askers[-999:], self._identify_caller(request)]
            if fault and not fault.needs_answer:
                answer = LocalResponse(status=200)
            else:
                answer = self._check_and_answer(request)
            return answer if fault is None else fault.distort_answer(
                answer, self.build_refusal
            ), fault

        return asyncio.run_coroutine_threadsafe(in_the_loop(), self._loop).result()

    def _identify_caller(self, request: LocalRequest) -> str:
        # Header bytes; a comparison of str would refuse non-ASCII ones with an error.
        given = request.key.encode("latin-1")
        if hmac.compare_digest(given, f"{self.scheme}{self.key}".encode()):
            return "account"
        return self.machine_keys.get(request.key.removeprefix(self.scheme), "")

    def _check_and_answer(self, request: LocalRequest) -> LocalResponse:
        asker = self.askers[-1]
        if not asker:
            return self.build_refusal(401, "invalid or missing API key")
        # A machine's own key is good for that machine alone, as at RunPod and vast.ai.
        if asker != "account" and (
            asker not in request.path.split("/") or request.method == "DELETE"
        ):
            return self.build_refusal(
                403, "the key of a machine is good for that machine alone, and ends none"
            )
        if asker != "account" and self.machine_keys_read_only and request.method != "GET":
            return self.build_refusal(
                403, "Forbidden: the API key lacks the permission for this operation"
            )
        now = self.clock()
        begun, used = self._window
        # Also a clock of a test that was set back begins a new minute.
        if not 0 <= now - begun < 60:
            begun, used = now, 0
        self._window = (begun, used + 1)
        left, seconds = self._per_minute - used - 1, max(1, round(begun + 60 - now))
        limits = {
            "RateLimit-Policy": f'"minute";q={self._per_minute};w=60',
            "RateLimit": f'"minute";r={max(0, left)};t={seconds}',
        }
        if left < 0:
            return self.build_refusal(
                429, "rate limit exceeded", {**limits, "Retry-After": str(seconds)}
            )
        # After the limit: a refused request must have no effect.
        answer = self.handle_request(request)
        return LocalResponse(answer.status, answer.data, {**answer.headers, **limits}, answer.raw)


class _PlaneServer(ThreadingHTTPServer):
    """The socket, a thread per connection, and the way to end them all."""

    block_on_close = False

    def __init__(self, address: tuple[str, int], plane: LocalServer) -> None:
        self.plane = plane
        self.ending = threading.Event()
        self._connections: set[socket.socket] = set()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        else:
            self.address_family = socket.AF_INET
        super().__init__(address, _RequestHandler)

    def server_bind(self) -> None:
        # The base class would look up the name of the address, which may take half a minute.
        socketserver.TCPServer.server_bind(self)

    def process_request_thread(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]
        # Kept-alive connections would outlive `server_close`.
        self._connections.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.discard(request)

    def handle_error(self, *_: object) -> None:
        """Ignore errors of closed connections."""

    def close_all(self) -> None:
        """Stop listening, and cut every connection."""
        self.ending.set()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the loop, which otherwise ends later
        self.shutdown()
        self.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _RequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True
    """Otherwise a body waits for the client's ACK of the headers: 40 ms for each answer."""
    server: _PlaneServer

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the server's own date, as every answer has it."""
        return super().date_time_string(
            int(self.server.plane.clock() if timestamp is None else timestamp)
        )

    def do_GET(self) -> None:
        request = self._read_request()
        if isinstance(request, LocalResponse):
            self._send_answer(request, close=True)
            return
        answer, fault = self.server.plane.answer_with_fault(request)
        if fault is not None and fault.hang:
            # Until the server ends, so that a client's own time limit decides.
            self.server.ending.wait()
            self.close_connection = True
            return
        if fault is not None and fault.drop:
            self.close_connection = True
            return
        self._send_answer(answer, None if fault is None else fault.cut)

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_PATCH(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def _read_request(self) -> LocalRequest | LocalResponse:
        """Return the request, or an error response."""
        lengths = self.headers.get_all("Content-Length", ["0"])
        keys = self.headers.get_all(self.server.plane.key_header, [""])
        if self.headers.defects:
            return build_problem(400, "a header line without a name")
        if len(lengths) > 1 or len(keys) > 1:
            return build_problem(400, "Content-Length or the key is there twice")
        if "Transfer-Encoding" in self.headers:
            return build_problem(411, "send a Content-Length; chunked bodies are not taken")
        if not (lengths[0].isascii() and lengths[0].isdecimal()):
            return build_problem(400, "Content-Length is not a number")
        if int(lengths[0]) > MAX_BODY:
            return build_problem(413, f"more than {MAX_BODY} bytes of body")
        body = self.rfile.read(int(lengths[0]))
        if len(body) < int(lengths[0]):
            return build_problem(400, "the body ended too early")
        try:
            target = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        except ValueError:
            return build_problem(400, "not a request target")
        return LocalRequest(
            self.command,
            target.path,
            query,
            keys[0],
            body,
            {name.lower(): value for name, value in self.headers.items()},
        )

    def _send_answer(
        self, answer: LocalResponse, cut: int | None = None, *, close: bool = False
    ) -> None:
        """Send an answer; `cut`: only so many bytes of its body, and then nothing more."""
        self.close_connection = self.close_connection or close or cut is not None
        self.send_response(answer.status)
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        if answer.status != 204:  # A 204 has neither body nor length (RFC 9110 section 8.6).
            if answer.status >= 400:
                kind = "application/problem+json"
            else:
                kind = "application/json"
            if "Content-Type" not in answer.headers:
                self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer.body)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.status != 204:
            self.wfile.write(answer.body[:cut])

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Return a request error in the API's format."""
        self._send_answer(build_problem(code, message or ""), close=True)

    def log_message(self, *_: object) -> None:
        """Log nothing: `LocalServer.requests` has the requests."""
