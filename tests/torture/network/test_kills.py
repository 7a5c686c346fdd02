"""Whatever dies, dies by ``kill -9``: the server, the agent, the recorder, rgt, the whole box. And clocks jump."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from rgt_tui.fleet import FleetAlerting, connector, engine
from rgt_tui.health import parse_alerts
from rgt_tui.model import BoxState, LinkState
from rgt_tui.profiles import readings
from tests.process.box.harness import until
from tests.torture.network.boxes import Boxes, Place, finish, writing
from tests.torture.network.watching import Ledger, account, counted

HOUR = 3600
HUNG_SECONDS = connector.CONNECT_PACES.hung_s


@dataclass
class Watched:
    """One box with a writer on it, watched by the real engine."""

    place: Place
    fleet: engine.Fleet
    ledger: Ledger
    writer: asyncio.subprocess.Process
    offset: list[float] = field(default_factory=lambda: [0.0])

    @property
    def state(self) -> BoxState:
        """Its newest state."""
        return self.fleet.state.boxes[0]

    async def until(self, condition: Callable[[BoxState], bool], what: str) -> None:
        """Wait for a state."""
        await self.ledger.until(
            lambda: condition(self.state), lambda: f"{what}: {self.state.link} {self.state.reason}"
        )

    async def flows_on(self, lines: int = 20) -> None:
        """Wait until so many further lines and a further sample have come."""
        tally = self.ledger.tally(self.place.name)
        line, samples = tally.line + lines, tally.samples
        await self.ledger.until(
            lambda: tally.line >= line and tally.samples > samples,
            lambda: f"line {line}, is at {tally.line}",
        )

    async def kill_agent(self, verb: str) -> int:
        """``kill -9`` the agent's processes of a verb, once there are any: what was killed before comes back first.

        Returns:
            How often the box had been connected to by then.
        """
        connects = [0]

        def killed() -> bool:
            connects[0] = self.state.counters.connects
            return self.place.kill_agents(verb) > 0

        await self.ledger.until(killed, lambda: f"no {verb} is running")
        return connects[0]

    async def end(self) -> None:
        """Stop the writer, wait for the last line, and look at the account."""
        written = await finish(self.writer)
        tally = self.ledger.tally(self.place.name)
        await self.ledger.until(
            lambda: (tally.line, tally.step) == (written, written),
            lambda: f"{written}: {tally.line}, {tally.step}",
        )
        assert tally.faults == []
        counters = self.state.counters
        assert (counters.gaps, counters.duplicates, counters.bad_frames) == (0, 0, 0), counters


@contextlib.asynccontextmanager
async def watched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger, more: tuple[str, ...] = ()
) -> AsyncIterator[Watched]:
    """Start one box and the engine; wait until everything flows."""
    boxes = Boxes(folder, 1)
    place = boxes.places[0]
    place.more = more
    monkeypatch.setattr(engine, "BoxSession", counted(ledger, {place.name: str(place.log)}))
    boxes.start()
    try:
        offset = [0.0]
        spec = msgspec.structs.replace(boxes.spec(place, place.port), interval=0.25)

        def clock() -> float:
            return time.time() + offset[0]

        told = FleetAlerting(parse_alerts({"silent": {"hold_s": 0}}, None), clock=clock)
        fleet = engine.Fleet([spec], audit=folder / "audit.jsonl", clock=clock, alerting=told)
        account(fleet, ledger)
        async with writing([place]) as writer:
            await fleet.start()
            try:
                found = Watched(place, fleet, ledger, writer, offset)
                await found.flows_on(5)
                yield found
            finally:
                await fleet.stop()
    finally:
        boxes.stop()


async def test_the_server_is_killed_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    async with watched(tmp_path, monkeypatch, ledger) as box:
        box.place.kill_server()
        await box.until(lambda state: state.link is LinkState.UNREACHABLE, "unreachable")
        box.fleet.retry_box(box.place.name)
        await box.until(lambda state: "refused" in state.reason, "refused, not dead")
        box.place.start()
        box.fleet.retry_box(box.place.name)
        await box.flows_on()
        await box.end()


@pytest.mark.parametrize("verb", ["watch", "record"])
async def test_an_agent_process_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger, verb: str
) -> None:
    async with watched(tmp_path, monkeypatch, ledger) as box:
        for _ in range(3):
            connects = await box.kill_agent(verb)
            if verb == "watch":
                await box.until(
                    lambda state, n=connects: state.counters.connects > n,  # type: ignore[misc]
                    "connected again",
                )
            await box.flows_on()
        await box.end()


def is_hung(said: list[tuple[LinkState, str]]) -> bool:
    """Whether it was said that the agent hangs, whatever has been said since."""
    return any(
        link is LinkState.UNREACHABLE and "does not answer: it hangs" in reason
        for link, reason in said
    )


async def test_an_agent_that_hangs_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    """Stopped as a disk that is gone stops it: no byte comes, and the connection stands."""
    monkeypatch.setattr(readings, "STALE_INTERVALS", 1)
    async with watched(tmp_path, monkeypatch, ledger) as box:
        (recorder,) = box.place.agents()["record"]
        connects = box.state.counters.connects
        os.kill(recorder, signal.SIGSTOP)
        try:
            await box.until(
                lambda state: "silent" in {alert.id for alert in state.alerts}, "silent"
            )
            assert (box.state.link, box.state.counters.connects) == (LinkState.LIVE, connects), (
                "watch answers"
            )
        finally:
            os.kill(recorder, signal.SIGCONT)
        await box.until(
            lambda state: "silent" not in {alert.id for alert in state.alerts}, "samples"
        )
        assert box.state.hello is not None
        agent = box.state.hello.pid
        os.kill(agent, signal.SIGSTOP)
        # From now on alone: one that is only slow to answer, on a busy machine, is not given up.
        said = len(ledger.links[box.place.name])
        monkeypatch.setattr(
            connector, "CONNECT_PACES", replace(connector.CONNECT_PACES, hung_s=0.5)
        )
        try:
            await ledger.until(
                lambda: is_hung(ledger.since(box.place.name, said)), lambda: "given up"
            )
        finally:
            os.kill(agent, signal.SIGKILL)
            monkeypatch.setattr(
                connector, "CONNECT_PACES", replace(connector.CONNECT_PACES, hung_s=HUNG_SECONDS)
            )
        box.fleet.retry_box(box.place.name)
        await box.flows_on()
        await box.end()


async def test_the_box_reboots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    async with watched(tmp_path, monkeypatch, ledger) as box:
        tally = ledger.tally(box.place.name)
        box.place.kill_server()
        box.place.kill_agents("watch", "record")
        await box.until(lambda state: state.link is LinkState.UNREACHABLE, "unreachable")
        last = box.state.counters.seq
        box.place.boot = "boot-00-b"
        # A new boot counts anew: the account of the samples begins again, those of the log and the curve do not.
        tally.expected.add(box.place.boot)
        box.place.start()
        box.fleet.retry_box(box.place.name)
        await box.flows_on()
        assert box.state.hello is not None
        assert box.state.hello.boot == "boot-00-b"
        assert box.state.counters.boot == "boot-00-b"
        assert last > 0
        await box.end()


async def test_rgt_is_killed_and_leaves_only_the_recorder(tmp_path: Path) -> None:
    boxes = Boxes(tmp_path, 3)
    boxes.start()
    try:
        specs = tmp_path / "specs.json"
        specs.write_bytes(
            msgspec.json.encode([boxes.spec(place, place.port) for place in boxes.places])
        )
        recorders: list[list[int]] = []
        for _ in range(2):
            client = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.torture.network.client",
                str(specs),
                stdout=asyncio.subprocess.PIPE,
            )
            assert client.stdout is not None
            assert await client.stdout.readline() == b"watching\n"
            client.kill()
            await client.wait()
            for place in boxes.places:
                until(
                    lambda place=place: not place.agents()["watch"],  # type: ignore[misc]
                    f"{place.name} without a watch",
                )
            recorders.append([pid for place in boxes.places for pid in place.agents()["record"]])
        assert len(recorders[0]) == 3
        assert recorders[0] == recorders[1], "the next rgt found each recorder at work"
    finally:
        boxes.stop()


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_the_clock_of_the_client_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger, jump: int
) -> None:
    async with watched(tmp_path, monkeypatch, ledger) as box:
        box.offset[0] = jump
        await box.flows_on()
        state = box.state
        assert state.sample_at is not None
        assert abs(box.fleet.now() - state.sample_at) < 60, (
            "the age of the newest sample follows the new clock"
        )
        await box.end()
        assert box.state.link is LinkState.LIVE


def compiled(folder: Path) -> Path:
    """Build the wall clock that a file sets."""
    library, source = folder / "skew.so", Path(__file__).with_name("skew.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "a C compiler is one of the system parts"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
async def test_the_clock_of_the_box_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger, jump: int
) -> None:
    library, offset = compiled(tmp_path), tmp_path / "offset"
    offset.write_text("0")
    more = (f"LD_PRELOAD={library}", f"RGT_TEST_CLOCK={offset}")
    async with watched(tmp_path, monkeypatch, ledger, more) as box:
        offset.write_text(str(jump))
        await box.until(
            lambda state: state.clock_skew is not None and abs(state.clock_skew - jump) < 60,
            "the skew is known",
        )
        await box.flows_on()
        state = box.state
        assert state.sample_at is not None
        assert abs(box.fleet.now() - state.sample_at) < 60, (
            "ages are counted by the difference of the clocks"
        )
        assert {link for link, _ in ledger.links[box.place.name]} <= {
            LinkState.CONNECTING,
            LinkState.LIVE,
        }
        await box.end()
