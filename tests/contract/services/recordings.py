"""What a real server and an adapter say to each other: recorded by a proxy between them, and replayed without a server.

A recording (`tests/fixtures/services`) has a list of exchanges for each test. Keys, pickles and paths of the machine on
which it was made are replaced.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rgt_tui.demo import LocalRequest, LocalResponse, LocalServer

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "services"
OPAQUE = ("entrypoint", "request_body", "object", "resources", "owner", "pid")
"""Keys of pickles, of numbers of processes and of accounts, which say nothing to an adapter."""
JSON_TEXTS = ("error", "return_value")
HEADERS = ("x-skypilot-request-id",)
Exchange = dict[str, Any]


def without_secrets(data: Any, paths: Mapping[str, str]) -> Any:
    """Return an answer without pickles, and with other texts in place of some."""
    if isinstance(data, list):
        return [without_secrets(one, paths) for one in data]
    if isinstance(data, str):
        for path, instead in paths.items():
            data = data.replace(path, instead)
        return data
    if not isinstance(data, dict):
        return data
    found = {}
    for key, value in data.items():
        if key in OPAQUE and not isinstance(value, dict | None):
            found[key] = "…"
        elif key in JSON_TEXTS and isinstance(value, str):
            inner = json.loads(value)
            # `sky start` returns the pickle itself.
            kept = "…" if isinstance(inner, str) else without_secrets(inner, paths)
            found[key] = json.dumps(kept)
        else:
            found[key] = without_secrets(value, paths)
    return found


@dataclass
class Recorder:
    """A proxy on the loopback that notes each exchange with the server behind it.

    Args:
        target: Port of the server.
        paths: Text that must not be recorded → what is recorded instead.
    """

    target: int
    paths: Mapping[str, str]
    scenes: dict[str, list[Exchange]] = field(default_factory=dict)
    scene: str = ""

    def __post_init__(self) -> None:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                behind = http.client.HTTPConnection("127.0.0.1", recorder.target)
                headers = {
                    name: text for name, text in self.headers.items() if name.lower() != "host"
                }
                behind.request(self.command, self.path, body or None, headers)
                answer = behind.getresponse()
                raw = answer.read()
                recorder.note(self.command, self.path, body, answer, raw)
                self.send_response(answer.status)
                for name, text in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, text)
                self.end_headers()
                self.wfile.write(raw)
                behind.close()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def note(
        self, method: str, path: str, body: bytes, answer: http.client.HTTPResponse, raw: bytes
    ) -> None:
        """Keep one exchange."""
        headers = {name: answer.headers[name] for name in HEADERS if name in answer.headers}
        self.scenes.setdefault(self.scene, []).append(
            {
                "method": method,
                "path": path,
                "body": json.loads(body) if body else None,
                "status": answer.status,
                "headers": headers,
                "answer": without_secrets(json.loads(raw), self.paths),
            }
        )

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class Replay(LocalServer):
    """Answers as recorded: equal requests get the recorded answers in their order, and then the last one again."""

    scheme = ""

    def __init__(self, exchanges: list[Exchange]) -> None:
        super().__init__()
        self._answers: dict[str, list[Exchange]] = {}
        for one in exchanges:
            self._answers.setdefault(_asked(one["method"], one["path"], one["body"]), []).append(
                one
            )

    def _identify_caller(self, request: LocalRequest) -> str:
        return "account"

    def handle_request(self, request: LocalRequest) -> LocalResponse:
        """Return the recorded answer."""
        query = "&".join(f"{name}={text}" for name, text in request.query.items())
        asked = _asked(
            request.method,
            f"{request.path}?{query}" if query else request.path,
            request.parse_json() or None,
        )
        found = self._answers.get(asked)
        if not found:
            return LocalResponse(501, {"detail": f"not recorded: {asked}"})
        one = found.pop(0) if len(found) > 1 else found[0]
        raw = json.dumps(one["answer"]).encode()
        return LocalResponse(one["status"], None, dict(one["headers"]), raw=raw)


def _asked(method: str, path: str, body: Any) -> str:
    return f"{method} {path} {json.dumps(body, sort_keys=True)}"


def read_recording(name: str) -> dict[str, Any]:
    """Return a recording: the server with its version, the month, and the exchanges of each test."""
    path = RECORDINGS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"scenes": {}}
    return found


def write_recording(
    name: str, server: str, month: str, scenes: Mapping[str, list[Exchange]]
) -> None:
    """Replace a recording; what was asked for again, and answered alike, is kept once."""
    short = {scene: list(_without_repeats(exchanges)) for scene, exchanges in scenes.items()}
    found = {"server": server, "recorded": month, "scenes": short}
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    (RECORDINGS / f"{name}.json").write_text(text)


def _without_repeats(exchanges: list[Exchange]) -> Iterator[Exchange]:
    last: dict[str, Exchange] = {}
    for one in exchanges:
        asked = _asked(one["method"], one["path"], one["body"])
        if last.get(asked) != one:
            yield one
        last[asked] = one


def shapes(exchanges: list[Exchange]) -> set[tuple[str, str, int, str]]:
    """Return what kinds of requests and answers occur: method, path, status and the keys of the answer."""
    return {
        (
            one["method"],
            one["path"].partition("?")[0],
            one["status"],
            " ".join(sorted(set(_keys(one["answer"])))),
        )
        for one in exchanges
    }


def _keys(data: Any) -> list[str]:
    if isinstance(data, list):
        return [key for one in data for key in _keys(one)]
    if not isinstance(data, dict):
        return []
    return [*data, *(key for value in data.values() for key in _keys(value))]
