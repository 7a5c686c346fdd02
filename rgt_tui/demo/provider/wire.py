"""Just enough HTTP/1.1 (RFC 9112) for one local server: bounded parsing, keep-alive, plain bodies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

MAX_HEAD = 16 * 1024
"""Bytes of request line and headers."""
MAX_BODY = 64 * 1024
HEAD_S = 30.0
"""Seconds a connection may idle, or take to say what it wants."""


class BadRequest(Exception):
    """The request cannot be understood, or is too large; `status` says which."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def keep_alive(self) -> bool:
        """Whether the client wants the connection to stay."""
        return self.headers.get("connection", "").lower() != "close"


@dataclass(frozen=True)
class Response:
    """One answer; `data` None means an empty body."""

    status: int
    data: object = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """A body that is not JSON, instead of `data`."""

    def encode(self, *, keep_alive: bool) -> bytes:
        """Return the bytes on the wire."""
        body = (
            self.raw if self.raw is not None else b"" if self.data is None else json.dumps(self.data).encode()
        )
        kind = "application/problem+json" if self.status >= 400 else "application/json"
        reason = HTTPStatus(self.status).phrase
        head = [f"HTTP/1.1 {self.status} {reason}", f"Connection: {'keep-alive' if keep_alive else 'close'}"]
        if self.status != 204:  # A 204 has neither body nor length (RFC 9110 section 8.6).
            head += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (b"" if self.status == 204 else body)


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as RFC 9457 problem details."""
    data = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, "errors": []}
    return Response(status=status, data=data, headers=headers or {})


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read one request; None = the client closed the connection between two.

    Raises:
        BadRequest: what came is not a request that this server takes.
        TimeoutError: nothing came for `HEAD_S`.
    """
    async with asyncio.timeout(HEAD_S):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                return None
            raise BadRequest(400, "the request ended too early") from None
        except asyncio.LimitOverrunError:
            raise BadRequest(431, f"more than {MAX_HEAD} bytes of headers") from None
        lines = head.decode("latin-1").split("\r\n")
        first = lines[0].split(" ")
        if len(first) != 3 or not first[2].startswith("HTTP/1."):
            raise BadRequest(400, "not an HTTP/1 request line")
        headers = _headers(lines[1:-2])
        body = await _body(reader, headers)
    try:
        target = urlsplit(first[1])
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
    except ValueError:
        raise BadRequest(400, "not a request target") from None
    return Request(method=first[0], path=target.path, query=query, headers=headers, body=body)


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400, "a header line without a name")
        lower = name.lower()
        if lower in ("content-length", "authorization") and lower in headers:
            raise BadRequest(400, f"{lower} is there twice")
        headers[lower] = value.strip()
    return headers


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise BadRequest(411, "send a Content-Length; chunked bodies are not taken")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise BadRequest(400, "Content-Length is not a number")
    if len(length) > 9 or int(length) > MAX_BODY:
        raise BadRequest(413, f"more than {MAX_BODY} bytes of body")
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError:
        raise BadRequest(400, "the body ended too early") from None
