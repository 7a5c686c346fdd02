"""A real HTTP server that remembers what it was sent and can misbehave, and one rgt's alerting with its own clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import FleetAlerting
from rgt_tui.health import SinkError
from rgt_tui.model import AlertEvent, AlertSettings, BoxState, FleetEvent, LinkState, SinkSettings
from tests.unit.triage.builders import DATA, NOW, ROOT, box, run, sample

replace = msgspec.structs.replace
CALM = box()
FULL = sample(ROOT, replace(DATA, inodes_used=4000))
SPEC = CALM.spec
KEY = "vast-demo@127.0.0.1"


@dataclass
class Request:
    """One POST."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came in, and what is answered."""

    port: int = 0
    status: int = 200
    sleep_s: float = 0.0
    requests: list[Request] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    ending = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.requests.append(Request(self.path, headers, body))
            found.came.set()
            until = time.monotonic() + found.sleep_s
            while time.monotonic() < until and not ending.wait(0.02):
                pass
            self.send_response(found.status)
            if found.status in (301, 302, 307):
                self.send_header("Location", f"{found.url}/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield found
    ending.set()
    server.shutdown()
    thread.join()
    server.server_close()


class Ear:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[AlertEvent] = []
        self.broken = False
        self.spoken = asyncio.Event()

    async def send(self, event: AlertEvent) -> None:
        if self.broken:
            raise SinkError("ear answered 500")
        self.heard.append(event)
        self.spoken.set()
        self.spoken.clear()


class World:
    """One rgt's alerting with a clock of its own."""

    def __init__(
        self, path: Path | None = None, now: float = NOW, *, greets: bool = False, **sink: Any
    ) -> None:
        self.now = now
        self.ear = Ear()
        self.woken = 0
        settings = AlertSettings(sinks=(SinkSettings("bell", **{"name": "ear", **sink}),))
        self.alerting = FleetAlerting(
            settings,
            path=path,
            clock=lambda: self.now,
            sinks=[self.ear],
            gather_s=(0.0, 0.0),
            greets=greets,
        )
        self.state = box()
        self.events: list[FleetEvent] = []

    def wake(self) -> None:
        self.woken += 1

    def see(self, seconds: float = 2.0, **over: Any) -> BoxState:
        """Let the engine look at a box that says `over` from now on."""
        self.now += seconds
        base: dict[str, Any] = {"runs": (run(progressed_at=self.now - 1),)}
        if over.get("link", LinkState.LIVE) is LinkState.LIVE:
            base["sample_at"] = self.now
        before = {"alerts": self.state.alerts, "alerts_kept": self.state.alerts_kept}
        kept = replace(CALM, **{**base, **over, **before})
        self.state, events = self.alerting.judge_box(kept, self.now)
        self.events += events
        return self.state

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not true():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.ear.spoken.wait(), 0.02)


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[World]:
    await world.alerting.start_delivery([SPEC], world.wake)
    try:
        yield world
    finally:
        await world.alerting.close()
