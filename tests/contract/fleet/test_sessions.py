"""Sessions of the real engine with a real agent behind a real sshd: pauses, intervals, absence, faults, an end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncssh
import msgspec
import pytest

from rgt_tui.fleet import CONNECT_PACES, Fleet, box_session, connector, engine, meters, reducers
from rgt_tui.model import BoxSpec, BoxState, FleetState, LinkState, MeterKind, Scalars
from rgt_tui.ssh import connect, start_watch
from tests.contract.ssh.conftest import RealSshd
from tests.contract.ssh.conftest import real_sshd as real_sshd
from tests.contract.ssh.servers import spec_of, sshd

replace = msgspec.structs.replace


class Run:
    """A running fleet, and what came over the wire."""

    def __init__(
        self, specs: list[BoxSpec], folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self.lines: list[tuple[str, bytes]] = []
        self.fleet = Fleet(specs, audit=folder / "audit", clock=clock, tap=self._tap)
        self.name = specs[0].name

    def _tap(self, box: str, at: float, line: bytes) -> None:
        self.lines.append((box, line))

    def box(self, name: str | None = None) -> BoxState:
        found = self.fleet.state.find_box(name or self.name)
        assert found is not None
        return found

    def kinds(self, kind: str) -> int:
        """How many frames of a kind have come."""
        return sum(line.startswith(b'{"t":"%s"' % kind.encode()) for _, line in self.lines)

    async def until(
        self, condition: Callable[[BoxState], bool], name: str | None = None
    ) -> BoxState:
        """Wait for a state of a box: what waits for the end of a minute needs that minute, too."""
        reached = asyncio.Event()

        def look(_: FleetState) -> None:
            if condition(self.box(name)):
                reached.set()

        unsubscribe = self.fleet.subscribe(look)
        try:
            if not condition(self.box(name)):
                async with asyncio.timeout(180):
                    await reached.wait()
        except TimeoutError:
            state = self.box(name)
            raise AssertionError(f"it did not come about: {state.link}, {state.reason}") from None
        finally:
            unsubscribe()
        return self.box(name)

    async def more(self, count: int = 2, name: str | None = None) -> BoxState:
        """Wait for further samples."""
        seen = self.box(name).counters.samples
        return await self.until(
            lambda box: box.link is LinkState.LIVE and box.counters.samples >= seen + count, name
        )


@contextlib.asynccontextmanager
async def running(
    *specs: BoxSpec, folder: Path, clock: Callable[[], float] = time.time
) -> AsyncIterator[Run]:
    """A fleet that is stopped at the end."""
    run = Run(list(specs), folder, clock)
    await run.fleet.start()
    try:
        yield run
    finally:
        async with asyncio.timeout(90):
            await run.fleet.stop()


@pytest.fixture
def spec(real_sshd: RealSshd) -> BoxSpec:
    return replace(real_sshd.spec, interval=0.2)


async def gone(pid: int) -> None:
    """Wait for the end of a process that is not our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(handle, ended.set)
    try:
        async with asyncio.timeout(90):
            await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def test_a_paused_box_is_left_alone_and_goes_on_without_a_gap(
    spec: BoxSpec, tmp_path: Path
) -> None:
    async with running(spec, folder=tmp_path) as run:
        before = await run.more()
        assert before.hello is not None
        run.fleet.set_box_paused(spec.name, True)
        paused = await run.until(lambda box: box.link is LinkState.PAUSED)
        assert paused.reason == "paused by you"
        assert paused.sample is not None
        await gone(before.hello.pid)  # nothing of ours is left there but the recorder
        run.fleet.retry_box(spec.name)
        run.fleet.focus_box(spec.name)
        run.fleet.set_interval(spec.name, 0.3)
        run.fleet.set_box_paused(spec.name, False)
        after = await run.more()
        assert (after.counters.gaps, after.counters.duplicates) == (0, 0)
        assert after.counters.connects == 2
        assert after.interval == 0.3
        texts = [event.text for event in run.fleet.state.events]
        assert texts.count("paused by you") == 1


async def test_a_box_can_be_paused_while_it_cannot_be_reached(
    spec: BoxSpec, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = replace(spec, port=closed.getsockname()[1])
        async with running(away, folder=tmp_path) as run:
            lost = await run.until(lambda box: box.link is LinkState.UNREACHABLE)
            assert lost.retry_at is not None
            run.fleet.set_box_paused(spec.name, True)
            paused = await run.until(lambda box: box.link is LinkState.PAUSED)
            assert paused.retry_at is None
            run.fleet.set_box_paused(spec.name, False)
            await run.until(lambda box: box.link is LinkState.UNREACHABLE)


async def test_a_faster_pace_counts_from_its_first_sample_and_a_slower_one_at_once(
    spec: BoxSpec, tmp_path: Path
) -> None:
    async with running(replace(spec, interval=1.0), folder=tmp_path) as run:
        await run.more(1)
        shown: list[float | None] = []
        run.fleet.subscribe(lambda state: shown.append(state.boxes[0].interval))
        run.fleet.set_interval(spec.name, 0.1)
        # Not what is published: that may have samples in it that were waiting meanwhile.
        state = run.fleet._sessions[spec.name].state
        assert state.interval is None, "what came at the slower pace would be called stale"
        fast = await run.until(lambda box: box.interval == 0.1)
        await run.more(5)
        run.fleet.set_interval(spec.name, 5.0)
        run.fleet.publish_now()
        assert run.box().interval == 5.0
        run.fleet.set_interval(spec.name, None)
        back = await run.until(lambda box: box.interval is None)
        assert back.counters.samples > fast.counters.samples
        assert back.counters.gaps == 0


async def test_in_a_larger_fleet_only_the_box_on_the_screen_is_fast(
    spec: BoxSpec, tmp_path: Path
) -> None:
    # The others stay away; what counts is what is asked of them.
    others = [replace(spec, name=f"other{n}", host="127.0.0.9") for n in range(12)]
    async with running(replace(spec, interval=1.0), *others, folder=tmp_path) as run:
        await run.more(1)
        run.fleet.focus_box("other1")
        await run.until(lambda box: box.interval == 5.0)
        assert run.box("other1").interval is None
        run.fleet.focus_box(spec.name)
        await run.until(lambda box: box.interval is None)
        run.fleet.set_looking(False)
        await run.until(lambda box: box.interval == 5.0)
        run.fleet.set_interval(spec.name, 2.0)
        await run.until(lambda box: box.interval == 2.0)
        run.fleet.set_looking(True)
        run.fleet.focus_box(None)
        await run.until(lambda box: box.interval is None, name="other1")
        assert run.box().interval == 2.0, "what a person chose stays"


async def test_what_the_recorder_saw_is_asked_for_at_first_and_after_a_long_absence(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, elapsed = [0.0], connector.elapsed_seconds
    # The computer sleeps: a clock that alone went ahead would be one that was set, and then nothing was absent.
    monkeypatch.setattr(connector, "elapsed_seconds", lambda: elapsed() + ahead[0])
    monkeypatch.setattr(engine, "ENGINE_PACES", replace(engine.ENGINE_PACES, clock_s=0.05))
    async with running(spec, folder=tmp_path, clock=lambda: time.time() + ahead[0]) as run:
        # What was seen live may fill a stretch first, where the clock stands just before the end of one.
        await run.until(lambda box: run.kinds("history") > 0 and bool(box.past.at))
        assert run.kinds("history") == 1
        assert f"disk:{'/'}" in run.box().past.names
        before = await run.more()
        assert before.hello is not None
        os.kill(before.hello.pid, signal.SIGKILL)
        await run.until(lambda box: box.link is LinkState.UNREACHABLE)
        run.fleet.retry_box(spec.name)
        await run.more()
        assert run.kinds("history") == 1, "a short gap is filled sample by sample"
        run.fleet.set_box_paused(spec.name, True)
        await run.until(lambda box: box.link is LinkState.PAUSED)
        ahead[0] = 600.0
        run.fleet.set_box_paused(spec.name, False)
        after = await run.more()
        await run.until(lambda box: run.kinds("history") == 2)
        assert (after.counters.gaps, after.counters.duplicates) == (0, 0)
        assert list(after.past.at) == sorted(set(after.past.at))


async def test_a_fault_of_ours_is_named_and_counted_and_the_box_comes_back(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "poisoned"
    out.mkdir()
    (
        out / "metrics.jsonl"
    ).touch()  # from the start: else what is found beside it may tell the same point, too

    real = reducers._REDUCERS[Scalars]

    def fail(state: BoxState, frame: Scalars, now: float) -> BoxState:
        if frame.run == out.name:  # trainings of other tests on this machine may be found as well
            raise ValueError("it is poisoned")
        return real(state, frame, now)

    monkeypatch.setitem(reducers._REDUCERS, Scalars, fail)
    other = replace(spec, name="other")
    async with running(replace(spec, runs=(str(out),)), other, folder=tmp_path) as run:
        await run.more()
        await run.more(name="other")
        (out / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
        lost = await run.until(lambda box: box.link is LinkState.UNREACHABLE)
        assert "could not process a Scalars frame: ValueError: it is poisoned" in lost.reason
        assert lost.counters.bad_frames == 1
        run.fleet.retry_box(spec.name)
        back = await run.more(5)
        assert back.counters.bad_frames == 1, "the same frame came again"
        assert (back.counters.gaps, back.counters.duplicates) == (0, 0)
        assert (await run.more(name="other")).counters.connects == 1


async def test_an_error_nobody_thought_of_does_not_end_a_session(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def odd(*arguments: object, **named: object) -> object:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise KeyError("odd")
        return await start_watch(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(box_session, "start_watch", odd)
    async with running(spec, folder=tmp_path) as run:
        lost = await run.until(lambda box: box.link is LinkState.UNREACHABLE)
        assert "KeyError: 'odd'" in lost.reason
        run.fleet.retry_box(spec.name)
        await run.more()


async def test_a_connection_that_died_while_the_computer_slept_is_made_anew(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "CONNECT_PACES", replace(connector.CONNECT_PACES, woken_s=60.0))
    async with running(spec, folder=tmp_path) as run:
        live = await run.more()
        assert live.hello is not None
        session = run.fleet._sessions[spec.name]
        before = session._keepalive._last
        session.recover_from_sleep()
        await run.more(4)
        session._keepalive._judge_answer(
            before
        )  # as when its time is over, however long the answer took
        same = await run.more(1)
        assert same.counters.connects == 1, "one that answers stays"
        monkeypatch.setattr(
            connector, "CONNECT_PACES", replace(connector.CONNECT_PACES, woken_s=0.5)
        )
        os.kill(live.hello.pid, signal.SIGSTOP)
        try:
            while (
                run.box().link is not LinkState.UNREACHABLE
            ):  # what was on its way is an answer, too
                run.fleet._sessions[spec.name].recover_from_sleep()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        await run.until(lambda box: box.link is LinkState.UNREACHABLE)
        finally:
            os.kill(live.hello.pid, signal.SIGKILL)
        run.fleet.retry_box(spec.name)
        back = await run.more()
        assert (back.counters.connects, back.counters.gaps) == (2, 0)


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_of_ours_that_is_set_makes_nothing_old(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr(engine, "ENGINE_PACES", replace(engine.ENGINE_PACES, clock_s=0.05))
    ahead = [0.0]
    async with running(spec, folder=tmp_path, clock=lambda: time.time() + ahead[0]) as run:
        await run.more()
        await run.until(lambda box: box.looked)  # which comes with a reading of the box's clock
        ahead[0] = hours * 3600.0
        words = f"clock went {'forward' if hours > 0 else 'back'} 1h00"
        await run.until(lambda _: any(words in event.text for event in run.fleet.state.events))
        state = await run.more(3)
        assert state.sample_at is not None
        assert state.clock_skew is not None
        assert abs(run.fleet.now() - state.sample_at) < 60
        assert abs(state.clock_skew + hours * 3600) < 60
        assert state.counters.connects == 1


async def test_the_price_of_a_box_that_begins_to_answer_is_there_at_once(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "METER_LIMITS", replace(meters.METER_LIMITS, count_s=3600.0))
    async with running(replace(spec, per_hour=1.98, currency="CNY"), folder=tmp_path) as run:
        seen = await run.until(lambda box: box.meter.kind is MeterKind.COMPUTE_AND_STORAGE)
        assert (seen.meter.per_hour, seen.meter.currency) == (1.98, "CNY")


async def test_a_price_of_the_fleet_file_counts_what_was_seen(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "METER_LIMITS", replace(meters.METER_LIMITS, count_s=0.05))
    async with running(replace(spec, per_hour=3.6e6), folder=tmp_path) as run:
        seen = await run.until(lambda box: (box.meter.spent or 0.0) > 0)
        assert seen.meter.kind is MeterKind.COMPUTE_AND_STORAGE
        assert seen.meter.source == "fleet file"
        run.fleet.set_box_paused(spec.name, True)
        lost = await run.until(lambda box: box.meter.kind is MeterKind.UNKNOWN)
        assert (lost.meter.spent or 0.0) >= (seen.meter.spent or 0.0)
        assert lost.meter.per_hour == 3.6e6
        run.fleet.set_box_paused(spec.name, False)
        await run.until(lambda box: box.meter.kind is MeterKind.COMPUTE_AND_STORAGE)


@contextlib.asynccontextmanager
async def silent(count: int) -> AsyncIterator[tuple[list[int], asyncio.Event]]:
    """Servers that accept and never say a word; the event tells that all were reached."""
    reached, ports, writers = asyncio.Event(), [], set()
    waiting = set(range(count))

    async def serve(number: int) -> asyncio.Server:
        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            waiting.discard(number)
            if not waiting:
                reached.set()
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()

        return await asyncio.start_server(hold, "127.0.0.1", 0)

    servers = [await serve(number) for number in range(count)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    try:
        yield ports, reached
    finally:
        for server in servers:
            server.close()
        for writer in writers:
            writer.close()


async def test_boxes_that_hang_do_not_hold_up_the_others(spec: BoxSpec, tmp_path: Path) -> None:
    async with silent(CONNECT_PACES.at_once) as (ports, _):
        hanging = [replace(spec, name=f"hangs{n}", port=port) for n, port in enumerate(ports)]
        async with running(*hanging, spec, folder=tmp_path) as run:
            await run.more(1, spec.name)
            still = [box.name for box in hanging if run.box(box.name).link is LinkState.CONNECTING]
            assert still, "the box came only when the hanging ones had given up"


async def test_it_ends_in_time_whatever_hangs(spec: BoxSpec, tmp_path: Path) -> None:
    """A server without a word, one that answers no command, and a live box: all are left within seconds."""
    folder = tmp_path / "mute"
    folder.mkdir()
    asked = asyncio.Event()

    async def mute(process: asyncssh.SSHServerProcess[bytes]) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with silent(1) as (ports, reached):
        with sshd(folder):
            pass  # makes the keys
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[str(folder / "host_key")],
            authorized_client_keys=str(folder / "authorized_keys"),
            process_factory=mute,
            encoding=None,
        )
        mutes = spec_of(folder, server.get_port(), name="mute")
        key = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.get_port()} {key}")
        specs = [replace(spec, name="silent", port=ports[0]), mutes, spec]
        run = Run(specs, tmp_path)
        await run.fleet.start()
        async with asyncio.timeout(60):
            await asyncio.gather(reached.wait(), asked.wait())
        await run.more(1, spec.name)
        async with asyncio.timeout(90):
            await run.fleet.stop()
        assert not run.fleet._tasks
        await run.fleet.stop()  # a second time does no harm
        server.close()
        await server.wait_closed()


async def test_a_connection_survives_new_keys(tmp_path: Path) -> None:
    """What was offered at the first key exchange is let go of; the next one brings its own."""
    with sshd(tmp_path, "RekeyLimit 64K\n") as port:
        async with await connect(spec_of(tmp_path, port)) as connection:
            done = await connection.run(
                "head -c 2000000 /dev/zero | tr '\\0' x", encoding=None, timeout=60
            )
    assert done.stdout == b"x" * 2000000


async def test_a_tap_that_fails_ends_neither_the_session_nor_the_fleet(
    spec: BoxSpec, tmp_path: Path
) -> None:
    failing = [True]

    def tap(box: str, at: float, line: bytes) -> None:
        if failing[0]:
            raise OSError("the disk is full")

    fleet = Fleet([spec], audit=tmp_path / "audit", tap=tap)
    run = Run([spec], tmp_path)
    run.fleet = fleet
    await fleet.start()
    try:
        lost = await run.until(lambda box: box.link is LinkState.UNREACHABLE)
        assert "OSError: the disk is full" in lost.reason
        failing[0] = False
        fleet.retry_box(spec.name)
        assert (await run.more()).counters.gaps == 0
    finally:
        await fleet.stop()
