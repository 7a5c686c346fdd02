"""The HTTP server that Prometheus scrapes: one text under one path, made anew for every request."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

PATH = "/metrics"


class MetricsServer:
    """Serves until it is stopped, in threads of its own.

    Args:
        host: An address of this machine.
        port: 0 = any free one; `port` says which.
        text: Makes what is served.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, text: Callable[[], bytes]) -> None:
        class Handler(_Handler):
            make = staticmethod(text)

        self._server = _Server((host, port), Handler, bind_and_activate=False)
        self._server.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server.socket = socket.socket(self._server.address_family, socket.SOCK_STREAM)
        try:
            self._server.server_bind()
            self._server.server_activate()
        except OSError:
            self._server.server_close()
            raise
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    block_on_close = False

    def server_bind(self) -> None:
        # The base class would look up the name of the address, which may take half a minute.
        socketserver.TCPServer.server_bind(self)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.1"
    timeout = 10.0
    make: Callable[[], bytes]

    def do_GET(self) -> None:
        if self.request_version == "HTTP/1.1" and not self.headers.get("Host"):
            self._answer(HTTPStatus.BAD_REQUEST, b"the Host header is missing\n")
        elif urlsplit(self.path).path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"there is only {PATH}\n".encode())
        else:
            try:
                text = self.make()
            except Exception as error:  # a reading that cannot be shown must not end the exporter
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}\n".encode())
            else:
                self._answer(HTTPStatus.OK, text, CONTENT_TYPE_PLAIN_0_0_4)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.close_connection = True  # a body that was sent along is not read
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "rgt"

    def log_message(self, *_: object) -> None:
        """Say nothing: who scrapes is no news."""
