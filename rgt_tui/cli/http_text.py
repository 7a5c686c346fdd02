"""A very small HTTP server: one text under one path, made anew for every request. One request per connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from email.utils import formatdate
from urllib.parse import urlsplit

HEAD_BYTES = 16 << 10
HEAD_SECONDS = 10.0
AT_ONCE = 32
REASONS = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}  # fmt: skip


_NONE: tuple[str, ...] = ()


class TextServer:
    """Serves one text.

    Args:
        path: Where, e.g. ``/metrics``.
        content_type: Of the text.
        text: Makes it.
    """

    def __init__(self, path: str, content_type: str, text: Callable[[], str]) -> None:
        self._path, self._content_type, self._text = path, content_type, text
        self._server: asyncio.Server | None = None
        self._busy = 0

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port (of use where 0 was asked for).

        Raises:
            OSError: the address cannot be listened on.
        """
        self._server = await asyncio.start_server(self._serve, host, port, limit=HEAD_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy += 1
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head, status, body, extra = b"GET", 503, "too many at once\n", _NONE
                if self._busy <= AT_ONCE:
                    head, status, body, extra = await self._answer(reader)
                writer.write(self._response(head == b"HEAD", status, body, extra))
                await writer.drain()
                writer.write_eof()
                # What the client still sends is read, so that closing does not reset what it has yet to receive.
                while await reader.read(HEAD_BYTES):
                    pass
        except (OSError, TimeoutError):
            pass
        finally:
            self._busy -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[bytes, int, str, tuple[str, ...]]:
        """Read a request; return its method, and status, text and further headers of the answer."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return b"", 431, "the request is too long\n", ()
        except asyncio.IncompleteReadError:
            return b"", 400, "the request has no end\n", ()
        line, *headers = head.decode("latin-1").split("\r\n")
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/"):
            return b"", 400, "this is no HTTP request\n", ()
        method, target, version = words
        if version not in ("HTTP/1.0", "HTTP/1.1"):
            return b"", 505, "HTTP/1.1 is spoken here\n", ()
        names = [header.partition(":")[0].lower() for header in headers if header]
        if version == "HTTP/1.1" and names.count("host") != 1:
            return b"", 400, "the Host header is missing\n", ()
        try:
            path = urlsplit(target).path
        except ValueError:
            return method.encode(), 400, "the address is none\n", ()
        if path != self._path:
            return method.encode(), 404, f"there is only {self._path}\n", ()
        if method not in ("GET", "HEAD"):
            return method.encode(), 405, "only GET and HEAD\n", ("Allow: GET, HEAD",)
        try:
            return method.encode(), 200, self._text(), ()
        except Exception as error:  # a reading that cannot be shown must not end the exporter
            return method.encode(), 500, f"{type(error).__name__}: {error}\n", ()

    def _response(self, head_only: bool, status: int, text: str, extra: tuple[str, ...]) -> bytes:
        body = text.encode()
        kind = self._content_type if status == 200 else "text/plain; charset=utf-8"
        lines = [
            f"HTTP/1.1 {status} {REASONS[status]}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            *extra,
            "Connection: close",
        ]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if head_only else body)
