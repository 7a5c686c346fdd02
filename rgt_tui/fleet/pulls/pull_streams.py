"""The streams of a pull: several through the system's `ssh`, or a single one through asyncssh."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable

from rgt_tui.fleet.pulls.box_pipe import PipedStream
from rgt_tui.fleet.pulls.pull_way import ENOUGH, SILENCE_S, PullFailed, PullRequest, Way
from rgt_tui.ssh import (
    AuthFailed,
    BoxError,
    BulkChannel,
    ConfigError,
    HostKeyRefused,
    NoCommands,
    NoPython,
    NotCarried,
    Unreachable,
)
from rgt_tui.transfer import Ledger
from rgt_tui.transfer.copying import RANGE_BYTES, Fetcher, Plan, PullProgress, Stream, StreamError

HELD_HIGH, HELD_LOW = 16 << 20, 4 << 20
"""Bytes of one stream waiting to be written at which it pauses and resumes."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 15.0
LOOK_S, LONGEST_LOOK_S = 0.2, 5.0
MOST_STREAMS = 16
MOST_NONSENSE = 3
"""A box that sends invalid data this many times is given up."""
HOPELESS = (AuthFailed, HostKeyRefused, ConfigError, NoCommands, NoPython)
"""Errors that a retry cannot fix."""
ALONE_S = 2.0
"""How long the existing streams are measured before another one starts."""

OnProgress = Callable[[PullProgress], None]


class Throttle:
    """Keeps the total rate of all streams below a limit.

    Args:
        rate: Bytes per second; None = no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._due = 0.0
        self._lock = threading.Lock()

    def wait(self, count: int) -> float:
        """Count received bytes; return for how many seconds to pause."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._due = max(self._due, now) + count / self._rate
            return self._due - now


async def fetch(
    way: Way,
    request: PullRequest,
    todo: Plan,
    ledger: Ledger,
    instance: str,
    on_progress: OnProgress,
) -> Fetcher:
    """Fetch the planned files. After an error the files received so far are kept.

    Raises:
        BoxError: the box became unreachable.
        PullFailed: it sends invalid data.
        LandingFailed: this machine cannot write it.
    """
    loop = asyncio.get_running_loop()
    bells: list[asyncio.Event] = []

    def ring() -> None:
        for bell in bells:
            bell.set()

    def news() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ring)

    fetcher = Fetcher(todo, ledger, request.destination, instance, news)
    throttle = Throttle(request.limit)
    streams = max(1, min(request.streams, MOST_STREAMS, len(todo.steps) or 1))
    if len(todo.steps) == 1 and todo.bytes > RANGE_BYTES:
        streams = max(1, min(request.streams, MOST_STREAMS))
    bells += [asyncio.Event() for _ in range(streams)]
    tasks = [
        asyncio.ensure_future(_stream(way, request, fetcher, throttle, bells[number], number))
        for number in range(streams)
    ]
    try:
        while not fetcher.finished:
            await asyncio.wait(tasks, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            on_progress(fetcher.progress())
            if all(task.done() for task in tasks):
                break
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if fetcher.failure is not None or not fetcher.finished:
            await asyncio.to_thread(fetcher.close)
    if fetcher.failure is not None:
        raise fetcher.failure
    return fetcher


async def _stream(
    way: Way,
    request: PullRequest,
    fetcher: Fetcher,
    throttle: Throttle,
    bell: asyncio.Event,
    number: int,
) -> None:
    """Keep one stream running, reconnecting when needed, until no work is left."""
    wait, lost_at, nonsense = FIRST_WAIT_S, 0.0, 0
    if number and not await _is_needed(fetcher, number):
        return
    while not fetcher.finished:
        before = fetcher.came_bytes
        try:
            if await way.client() is not None:
                await _piped_stream(way, fetcher, throttle, bell)
            elif number:
                return  # several channels of one connection are no faster than one
            else:
                await _one_stream(way, fetcher, throttle, bell)
        except NotCarried as error:
            way.give_up_client(str(error))
            continue
        except HOPELESS as error:
            fetcher.fail(error)
        except StreamError as error:
            nonsense += 1
            if nonsense == MOST_NONSENSE:
                fetcher.fail(PullFailed(f"the box sent what its agent does not send: {error}"))
        except BoxError as error:
            now = time.monotonic()
            if fetcher.came_bytes > before or not lost_at:
                wait, lost_at = FIRST_WAIT_S, now
            if now - lost_at > request.patience:
                fetcher.fail(error)
        if not fetcher.finished:
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT_S, 2 * wait)


async def _is_needed(fetcher: Fetcher, number: int) -> bool:
    """Wait until one more `ssh` is worth its login: the existing ones are slow.

    False = all is done.
    """
    came, since = 0, 0.0
    while not fetcher.finished:
        await asyncio.sleep(ALONE_S / 4)
        now = asyncio.get_running_loop().time()
        if not came:
            came, since = fetcher.came_bytes, now  # data arrives, so the login is done
        elif now - since >= ALONE_S:
            rate, came, since = (fetcher.came_bytes - came) / (now - since), fetcher.came_bytes, now
            if rate < number * ENOUGH:
                return True
    return False


async def _piped_stream(
    way: Way, fetcher: Fetcher, throttle: Throttle, bell: asyncio.Event
) -> None:
    """Run one stream through the system's `ssh`, in a thread.

    Raises:
        NotCarried: ssh cannot connect: use asyncssh.
    """
    pipe = await way.piped()
    piped = PipedStream(pipe, fetcher, throttle.wait, HELD_HIGH, HELD_LOW)
    working = asyncio.ensure_future(asyncio.to_thread(piped.run))
    ringing = asyncio.ensure_future(_pass_on(bell, piped.bell))
    whole = False
    try:
        await asyncio.shield(working)
        whole = fetcher.finished and piped.stream.idle
    finally:
        ringing.cancel()
        piped.stop()
        await asyncio.gather(working, ringing, return_exceptions=True)
        if whole:
            way.keep(pipe)
        else:
            way.leave(pipe)
        await asyncio.to_thread(piped.stream.lost)


async def _pass_on(bell: asyncio.Event, to: threading.Event) -> None:
    while True:
        await bell.wait()
        bell.clear()
        to.set()


async def _one_stream(way: Way, fetcher: Fetcher, throttle: Throttle, bell: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    channel: BulkChannel | None = None

    def drained() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(bell.set)

    stream = Stream(fetcher, HELD_LOW, drained)
    until = 0.0

    def taken(data: bytes) -> None:
        nonlocal until
        stream.feed(data)
        seconds = throttle.wait(len(data))
        if seconds > 0:
            until = max(until, loop.time() + seconds)
        if channel is not None and (until or stream.held > HELD_HIGH or stream.hungry):
            if until or stream.held > HELD_HIGH:
                channel.pause()
            bell.set()

    try:
        channel = await way.open("send", taken)
        ended = asyncio.ensure_future(channel.wait())
        ended.add_done_callback(lambda _: bell.set())
        quiet_since = loop.time()
        while not fetcher.finished and not ended.done():
            before = stream.came
            channel.write(stream.requests())
            if until and loop.time() >= until:
                until = 0.0
            if not until and stream.held < HELD_LOW:
                channel.resume()
            bell.clear()
            pause = min(LONGEST_LOOK_S, max(0.0, until - loop.time())) if until else LONGEST_LOOK_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), pause)
            now = loop.time()
            if stream.came != before or stream.idle or until or stream.held:
                quiet_since = now
            if now - quiet_since > SILENCE_S:
                raise Unreachable(
                    f"the box has sent nothing for {SILENCE_S:g} s, though the connection is up"
                )
        if ended.done() and not fetcher.finished:
            ended.result()
            raise Unreachable(
                f"the agent ended: {channel.words}" if channel.words else "the agent ended"
            )
    finally:
        if channel is not None:
            channel.close()
        await asyncio.to_thread(stream.lost)
