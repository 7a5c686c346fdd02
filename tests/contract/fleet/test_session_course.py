"""The course of one session, with a real sshd and agent: how long it waits, what it says, what it catches up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rgt_tui.fleet import (
    CONNECT_PACES,
    WAITS,
    BoxSession,
    ConnectFailure,
    ConnectLimit,
    box_session,
    connector,
)
from rgt_tui.model import BoxSpec, BoxState, Frame, LinkState, Sample, SampleCursor, WatchConfig
from rgt_tui.profiles import load_profile
from rgt_tui.ssh import BoxStream, build_agent, start_watch
from tests.contract.ssh.conftest import RealSshd, running_sshd, stop_recorder
from tests.contract.ssh.conftest import real_sshd as real_sshd

replace = msgspec.structs.replace


class Course:
    """A session that takes in at once what comes, all its states, and the waits between its tries."""

    def __init__(self, spec: BoxSpec, clock: Callable[[], float] = time.time) -> None:
        self.session = BoxSession(
            spec, load_profile("generic-ssh"), build_agent(), ConnectLimit(), clock, self._changed
        )
        self.states: list[BoxState] = []
        self.waits: list[float] = []
        self._news = asyncio.Event()
        self._soon = False

    def _changed(self, box: str) -> None:
        if not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self._take_in)

    def _take_in(self) -> None:
        self._soon = False
        self.session.apply_received()
        self.states.append(self.session.state)
        self._news.set()

    async def until(self, condition: Callable[[BoxState], bool]) -> BoxState:
        """Wait for a state from now on."""
        async with asyncio.timeout(60):
            while not condition(self.session.state):
                self._news.clear()
                await self._news.wait()
        return self.session.state

    async def tried(self, count: int) -> list[float]:
        """Wait for so many tries that failed; return the waits after them."""
        await self.until(lambda _: len(self.waits) >= count)
        return self.waits[:count]

    async def live(self, more: int = 2) -> BoxState:
        """Wait for samples."""
        seen = self.session.state.counters.samples
        return await self.until(
            lambda box: (
                box.link is LinkState.LIVE
                and box.counters.samples >= seen + more
                and box.hello is not None
            )
        )


@contextlib.asynccontextmanager
async def course(
    spec: BoxSpec, clock: Callable[[], float] = time.time
) -> AsyncIterator[tuple[Course, asyncio.Task[None]]]:
    made = Course(spec, clock)
    task = asyncio.create_task(made.session.run())
    try:
        yield made, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def spec(real_sshd: RealSshd) -> BoxSpec:
    return replace(real_sshd.spec, interval=0.2)


@pytest.fixture
def away(spec: BoxSpec) -> Iterator[BoxSpec]:
    """A port at which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield replace(spec, port=closed.getsockname()[1])


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Callable[[Course], None]:
    """Lets a course not wait between its tries; what it would have waited is noted."""

    def make(one: Course) -> None:
        real = BoxSession._wait_or_woken

        async def wait(self: BoxSession, seconds: float | None = None) -> None:
            if self is not one.session or seconds is None:
                await real(self, seconds)
            else:
                one.waits.append(seconds)
                one._news.set()
                await asyncio.sleep(0.01)

        monkeypatch.setattr(BoxSession, "_wait_or_woken", wait)

    return make


def doubled(waits: list[float], first: float, longest: float) -> bool:
    """Tell whether each wait is drawn from the upper half of twice the one before."""
    tops = [min(longest, first * 2.0**n) for n in range(len(waits))]
    return all(top / 2 <= wait <= top for wait, top in zip(waits, tops, strict=True))


async def test_it_waits_ever_longer_and_says_until_when_and_since_when(
    away: BoxSpec, hasty: Callable[[Course], None]
) -> None:
    now = [1000.0]
    async with course(away, lambda: now[0]) as (one, _):
        hasty(one)
        for count in range(1, 11):
            await one.tried(count)
            state = one.session.state
            assert state.link is LinkState.UNREACHABLE
            assert state.retry_at == now[0] + one.waits[-1]
            assert state.since == 1000.0, "it is unreachable since the first try failed"
            now[0] += 7.0
        assert doubled(one.waits[:10], *WAITS[ConnectFailure.UNREACHABLE])
        one.session.set_paused(True)
        paused = await one.until(lambda box: box.link is LinkState.PAUSED)
        assert paused.since == now[0]
        assert paused.retry_at is None


async def test_a_nudge_ends_the_wait_and_only_that(away: BoxSpec) -> None:
    async with course(away) as (one, _):
        first = await one.until(lambda box: box.retry_at is not None)
        one.session.retry_now()
        second = await one.until(lambda box: box.retry_at not in (None, first.retry_at))
        assert second.link is LinkState.UNREACHABLE
        assert second.since == first.since


@pytest.mark.parametrize(("lived", "resets"), [(0.01, True), (1e9, False)])
async def test_a_connection_that_lived_begins_the_waits_anew(
    spec: BoxSpec,
    hasty: Callable[[Course], None],
    monkeypatch: pytest.MonkeyPatch,
    lived: float,
    resets: bool,
) -> None:
    monkeypatch.setattr(box_session, "CONNECT_PACES", replace(CONNECT_PACES, lived_s=lived))
    async with course(spec) as (one, _):
        hasty(one)
        for _ in range(4):
            state = await one.live(4)
            assert state.hello is not None
            os.kill(state.hello.pid, signal.SIGKILL)
            await one.until(lambda box: box.link is LinkState.UNREACHABLE)
        first, longest = WAITS[ConnectFailure.UNREACHABLE]  # what a signal ended has no exit status
        await one.tried(4)
        if resets:
            assert all(first / 2 <= wait <= first for wait in one.waits[:4])
        else:
            assert doubled(one.waits[:4], first, longest)


async def test_a_try_that_fails_is_no_life_of_the_one_before(
    tmp_path: Path, hasty: Callable[[Course], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_session, "CONNECT_PACES", replace(CONNECT_PACES, lived_s=0.1))
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as afterwards:
        # With a home of its own: a recorder in that of whoever runs the tests would go on there.
        box = stack.enter_context(running_sshd(tmp_path))
        afterwards.callback(stop_recorder, box)
        async with course(replace(box.spec, interval=0.2)) as (one, _):
            hasty(one)
            state = await one.live(3)
            assert state.hello is not None
            stack.close()  # nobody listens any more; the connection that stands goes on
            os.kill(state.hello.pid, signal.SIGKILL)
            waits = await one.tried(6)
            assert waits[0] <= WAITS[ConnectFailure.UNREACHABLE].first
            assert waits[5] > 8.0, "each failed try counted as a life of the last connection"


async def test_an_agent_that_does_not_get_to_speak_is_given_up_and_that_is_said(
    spec: BoxSpec, hasty: Callable[[Course], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_session, "DEPLOY_SECONDS", 0.5)

    async def hangs(*arguments: object, **named: object) -> BoxStream:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(box_session, "start_watch", hangs)
    async with course(spec) as (one, _):
        hasty(one)
        await one.tried(1)
        assert one.session.state.reason.startswith("ssh: the agent was not ready within 0.5 s")
        assert one.session.state.link is LinkState.UNREACHABLE
        monkeypatch.setattr(box_session, "start_watch", start_watch)
        monkeypatch.setattr(box_session, "DEPLOY_SECONDS", 600.0)
        await one.live()


async def test_a_link_that_hung_is_named_and_the_next_end_is_not_called_so(
    spec: BoxSpec, hasty: Callable[[Course], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "CONNECT_PACES", replace(connector.CONNECT_PACES, hung_s=0.3))
    monkeypatch.setattr(box_session, "stale_after", lambda box: 0.6)
    async with course(spec) as (one, _):
        hasty(one)
        state = await one.live()
        assert state.hello is not None
        os.kill(state.hello.pid, signal.SIGSTOP)
        try:
            lost = await one.until(lambda box: box.link is LinkState.UNREACHABLE)
        finally:
            os.kill(state.hello.pid, signal.SIGKILL)
        assert "does not answer: it hangs" in lost.reason
        assert lost.reason.startswith("ssh: ")
        monkeypatch.setattr(box_session, "stale_after", lambda box: 60.0)
        pid = lost.hello.pid if lost.hello is not None else 0
        back = await one.until(
            lambda box: (
                box.link is LinkState.LIVE and box.hello is not None and box.hello.pid != pid
            )
        )
        assert back.hello is not None
        os.kill(back.hello.pid, signal.SIGKILL)
        ended = await one.until(lambda box: box.link is LinkState.UNREACHABLE)
        assert "hangs" not in ended.reason


async def test_what_is_asked_for_while_the_agent_is_on_its_way_reaches_it(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described, asked = tmp_path / "described.log", tmp_path / "asked.log"
    described.write_text("described\n")
    asked.write_text("asked for\n")
    standing, go_on = asyncio.Event(), asyncio.Event()
    asked_for: list[WatchConfig] = []

    async def slowly(*arguments: Any, **named: Any) -> BoxStream:
        asked_for.append(arguments[3])
        made = await start_watch(*arguments, **named)
        standing.set()
        await go_on.wait()
        return made

    monkeypatch.setattr(box_session, "start_watch", slowly)
    async with course(replace(spec, interval=900.0, logs=(str(described),))) as (one, _):
        async with asyncio.timeout(60):
            await standing.wait()
        one.session.set_interval(0.1)
        one.session.follow_log(str(asked))
        one.session.follow_log(str(asked))
        go_on.set()
        ours = {str(described): ("described",), str(asked): ("asked for",)}

        def shown(box: BoxState) -> dict[str, tuple[str, ...]]:
            return {view.path: view.lines for view in box.logs if view.path in ours}

        state = await one.until(lambda box: box.counters.samples >= 4 and len(shown(box)) == 2)
        assert shown(state) == ours
        assert asked_for[0].interval == 900.0
        assert asked_for[0].logs == (str(described),)
        assert state.interval == 0.1


async def test_a_sample_that_was_on_its_way_is_not_the_first_one_of_a_faster_pace(
    spec: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[float | None] = []
    take = BoxSession._accept_frame

    def noted(session: BoxSession, frame: Frame) -> None:
        take(session, frame)
        if isinstance(frame, Sample):
            shown.append(session.state.interval)

    monkeypatch.setattr(
        box_session, "MOST_TOGETHER", 1
    )  # each is taken in as it comes, however slow this machine is
    monkeypatch.setattr(BoxSession, "_accept_frame", noted)
    monkeypatch.setattr(
        BoxSession, "_send_control", lambda self, control: None
    )  # the box never hears of it
    async with course(spec) as (one, _):
        await one.live()
        del shown[:]
        one.session.set_interval(spec.interval / 4)
        await one.until(lambda _: len(shown) >= 3)
    assert shown[:3] == [None, spec.interval / 4, spec.interval / 4], (
        "the older pace holds for the first one"
    )


async def test_nothing_is_sent_twice_that_the_first_line_said(
    spec: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(BoxSession, "_send_control", lambda self, control: sent.append(control))
    async with course(spec) as (one, _):
        one.session.follow_log("/before")
        one.session.set_interval(0.3)
        del sent[:]
        await one.live()
        assert sent == []


async def test_a_reconnect_goes_on_behind_what_is_known(
    spec: BoxSpec, hasty: Callable[[Course], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[WatchConfig] = []

    async def noted(*arguments: Any, **named: Any) -> BoxStream:
        asked.append(arguments[3])
        return await start_watch(*arguments, **named)

    monkeypatch.setattr(box_session, "start_watch", noted)
    async with course(spec) as (one, _):
        hasty(one)
        state = await one.live()
        assert state.hello is not None
        os.kill(state.hello.pid, signal.SIGKILL)
        lost = await one.until(lambda box: box.link is LinkState.UNREACHABLE)
        await one.live()
        assert asked[0].samples_after is None
        assert asked[1].samples_after == SampleCursor(
            boot=lost.counters.boot, seq=lost.counters.seq
        )
        assert one.session.state.counters.gaps == one.session.state.counters.duplicates == 0


@pytest.fixture
async def mute() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A server that accepts and says nothing."""
    reached = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        reached.set()
        with contextlib.suppress(OSError):
            await reader.read()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], reached
    server.close()
    for writer in writers:
        writer.close()


async def test_a_pause_calls_it_back_and_an_end_ends_it(
    spec: BoxSpec, mute: tuple[int, asyncio.Event]
) -> None:
    port, reached = mute
    async with course(replace(spec, port=port)) as (one, task):
        async with asyncio.timeout(60):
            await reached.wait()
        one.session.set_paused(True)
        one.session.set_paused(True)
        await one.until(lambda box: box.link is LinkState.PAUSED)
        assert not task.done()
        assert task.cancelling() == 0, (
            "a pause is no cancellation for whoever waits for the session"
        )
        reached.clear()
        one.session.set_paused(False)
        async with asyncio.timeout(60):
            await reached.wait()
        assert one.session.state.link is LinkState.CONNECTING
        one.session.set_paused(True)
        task.cancel()  # both at once: it ends
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()


async def test_an_end_while_it_waits_or_rests_ends_it(away: BoxSpec) -> None:
    for pause in (False, True):
        async with course(away) as (one, task):
            await one.until(lambda box: box.link is LinkState.UNREACHABLE)
            if pause:
                one.session.set_paused(True)
                await one.until(lambda box: box.link is LinkState.PAUSED)
            task.cancel()
            await asyncio.wait([task], timeout=60)
            assert task.cancelled()


async def test_what_has_been_taken_in_dates_nothing_that_comes_later(
    spec: BoxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, passed = [1000.0], [5.0]
    async with course(spec, lambda: now[0]) as (one, _):
        await one.live()
        one.session.apply_received()
        assert one.session.apply_received() is False
        monkeypatch.setattr(box_session, "steady_time", lambda: passed[0])
        now[0], passed[0] = 1050.0, 55.0
        assert one.session._receipt_time() == 1050.0
        one.session._record_arrival()
        now[0], passed[0] = 1100.0, 105.0
        assert one.session._receipt_time() == 1050.0, "what waits is dated by when it came"
        now[0] += 3600.0
        one.session.recover_from_sleep(3600.0)
        assert one.session._receipt_time() == 4650.0, "by the clock as it is set now"
        one.session.apply_received()
        assert one.session._receipt_time() == 4700.0


async def test_a_look_ends_with_the_first_sample_that_was_taken_after_it(spec: BoxSpec) -> None:
    """And not with its time: each step of a teardown would take as long as that."""
    async with course(spec) as (one, _):
        await one.live()
        async with asyncio.timeout(60):
            begun = await one.session.wait_for_sample(3600.0)
        taken = one.session.state.seen.sample
        assert taken is not None and taken >= begun
