"""A real dstack and a real SkyPilot server (`make services`), or what they have answered (`make test`).

`RGT_SERVICES=live` starts the servers. `RGT_UPDATE_RECORDINGS=1` then writes what they answer as the new recordings.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rgt_tui.model import BillingVerb, Permit, ProviderRef, StopProgress, steady_time
from rgt_tui.providers import Provider, Providers, carry_out
from tests.contract.services.real_servers import (
    DSTACK_TOKEN,
    ROOT,
    USER_ID,
    Dstack,
    SkyPilot,
    seed,
    version,
)
from tests.contract.services.recordings import (
    Recorder,
    Replay,
    read_recording,
    shapes,
    write_recording,
)

LIVE = os.environ.get("RGT_SERVICES") == "live"
KEY_ENV = "SOME_TOKEN"


@dataclass
class Service:
    """A server, real or replayed, and the adapter that speaks to it."""

    kind: str
    url: str
    home: Path
    token: str = ""
    opened: list[Providers] = field(default_factory=list)

    def box(self, instance: str, *, token: str | None = None) -> Provider:
        """Return the control plane of a machine, as a program that was just started sees it."""
        env = {
            KEY_ENV: token or self.token,
            "SKYPILOT_USER_ID": USER_ID,
            "SKYPILOT_USER": "",
            "USER": "alice",
        }
        self.opened.append(Providers(env=env, home=self.home, timeout_s=20.0))
        return self.opened[-1].open_control_plane(
            ProviderRef(self.kind, instance, self.url, KEY_ENV if self.token else None)
        )

    async def carry_out(self, box: Provider, verb: BillingVerb) -> list[StopProgress]:
        """Park or destroy a machine, and follow that to its end."""
        ref = box.ref
        permit = Permit(
            "box", verb, ref.instance, "digest", steady_time() + 60,
            kind=ref.kind, account=ref.account, nonce=secrets.token_hex(8),
        )  # fmt: skip
        steps = carry_out(
            box, permit, clock=time.time, sleep=self.wait, timeout_s=300.0, poll_s=1.0
        )
        return [step async for step in steps]

    async def wait(self, seconds: float) -> None:
        """Wait for a real server; a replayed one has already done everything."""
        await asyncio.sleep(seconds if LIVE else 0.0)


@dataclass
class Recorded:
    """A real server of this run, and what it has answered so far."""

    recorder: Recorder
    package: str
    work: Callable[[], None] = lambda: None
    """Lets dstack begin to process what it was asked for."""


def _recorder(port: int, home: Path) -> Recorder:
    return Recorder(port, {str(home): "~", str(ROOT): "…", DSTACK_TOKEN: "…"})


@pytest.fixture(scope="session")
def real_dstack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded | None]:
    """The real dstack server; None = what it has answered is replayed."""
    if not LIVE:
        yield None
        return
    home = tmp_path_factory.mktemp("dstack")
    server = Dstack(home)
    with contextlib.ExitStack() as running:
        quiet = running.enter_context(contextlib.ExitStack())
        quiet.enter_context(server.running(works=False))
        seed("dstack_rows.py", server.env)

        def work() -> None:
            quiet.close()
            running.enter_context(server.running(works=True))

        recorder = _recorder(server.port, home)
        yield Recorded(recorder, "dstack", work)
        recorder.close()


@pytest.fixture(scope="session")
def real_skypilot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded | None]:
    """The real SkyPilot server; None = what it has answered is replayed."""
    if not LIVE:
        yield None
        return
    home = tmp_path_factory.mktemp("skypilot")
    server = SkyPilot(home)
    with server.running():
        recorder = _recorder(server.port, home)
        yield Recorded(recorder, "skypilot")
        recorder.close()


@contextlib.asynccontextmanager
async def _service(
    kind: str, real: Recorded | None, scene: str, home: Path, token: str
) -> AsyncIterator[Service]:
    replay = None
    if real is None:
        replay = Replay(read_recording(kind)["scenes"].get(scene, []))
        await replay.start()
        made = Service(kind, replay.base_url, home, token)
    else:
        real.recorder.scene = scene
        made = Service(kind, real.recorder.url, home, token)
    try:
        yield made
    finally:
        for providers in made.opened:
            await providers.close()
        if replay is not None:
            await replay.stop()


@pytest.fixture
async def dstack(
    real_dstack: Recorded | None, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Service]:
    """A dstack server with the rows of `seeds/dstack_rows.py`."""
    async with _service("dstack", real_dstack, request.node.name, tmp_path, DSTACK_TOKEN) as made:
        yield made


@pytest.fixture
async def skypilot(
    real_skypilot: Recorded | None, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Service]:
    """A SkyPilot server with the clusters of `seeds/skypilot_rows.py`."""
    async with _service("skypilot", real_skypilot, request.node.name, tmp_path, "") as made:
        yield made


def check_recording(kind: str, real: Recorded | None) -> None:
    """Write what a real server has answered in this run, or compare it with the recording."""
    assert real is not None
    scenes = real.recorder.scenes
    if os.environ.get("RGT_UPDATE_RECORDINGS"):
        month = datetime.now(UTC).strftime("%Y-%m")
        write_recording(kind, f"{real.package} {version(real.package)}", month, scenes)
    recorded = read_recording(kind)["scenes"]
    assert {name: shapes(one) for name, one in scenes.items()} == {
        name: shapes(one) for name, one in recorded.items()
    }, (
        "the server answers otherwise than recorded: RGT_UPDATE_RECORDINGS=1 make services, and read the difference"
    )
