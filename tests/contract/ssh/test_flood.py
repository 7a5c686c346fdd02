"""A box that talks without end has its turn and no more; nothing of what it says is lost or mixed up."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from rgt_tui.model import Frame, Pong, WatchConfig
from rgt_tui.ssh import WatchChannel, connect, open_channel
from rgt_tui.ssh.channel import WAITING_BYTES
from tests.contract.ssh.conftest import RealSshd

COUNT = 60_000
TALKS = f"""seq -f '{{"t":"pong","id":%.0f,"at":1}}' 1 {COUNT}; echo '{{"nonsense'; cat"""
HELLO = """echo '{"t":"hello","proto":1,"agent":"a","boot":"b","host":"h","python":"3","pid":1,"at":1}'; """


@pytest.mark.parametrize("begins", ["", HELLO], ids=["no hello yet", "behind a hello"])
async def test_what_waits_is_taken_in_by_turns_and_all_of_it(
    real_sshd: RealSshd, begins: str
) -> None:
    frames: list[Frame] = []
    bad: list[int] = []
    news = asyncio.Event()
    async with await connect(real_sshd.spec) as connection:
        channel = await open_channel(
            connection,
            begins + TALKS,
            WatchConfig(),
            frames.append,
            bad.append,
            on_waiting=news.set,
        )
        turns, longest = 0, 0.0
        gc.disable()  # to walk through all that this process holds would be counted as a turn
        try:
            async with asyncio.timeout(120):
                while not bad:
                    await news.wait()
                    news.clear()
                    waits = True
                    while waits:
                        begun = time.thread_time()
                        waits = channel.apply_received(time.monotonic() + 0.002)
                        longest = max(longest, time.thread_time() - begun)
                        turns += 1
                        await asyncio.sleep(0)
        finally:
            gc.enable()
        channel.close()
    assert [frame.id for frame in frames if isinstance(frame, Pong)] == list(range(1, COUNT + 1))
    assert sum(bad) >= 1, "the nonsense; what `cat` says of the first line is no frame either"
    assert turns > 20
    assert longest < 0.1


async def test_a_box_that_nobody_listens_to_is_not_listened_to(real_sshd: RealSshd) -> None:
    news = asyncio.Event()
    async with await connect(real_sshd.spec) as connection:
        channel = await open_channel(
            connection,
            "yes xxxxxxxxxxxxxxxxxxxxxxxx",
            WatchConfig(),
            print,
            lambda _: None,
            on_waiting=news.set,
        )
        session = channel._session
        async with asyncio.timeout(60):
            while not session._paused:  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.01)
        before = session._waiting_bytes
        assert WAITING_BYTES < before < 4 * WAITING_BYTES
        for _ in range(50):
            await asyncio.sleep(0.01)
        assert session._waiting_bytes == before
        channel.apply_received()
        async with asyncio.timeout(60):
            while session._waiting_bytes < WAITING_BYTES:  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.01)
        channel.close()


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_a_turn_takes_a_line_at_most_when_it_is_late(size: int) -> None:
    from rgt_tui.ssh.channel import _FrameSession

    async def turns() -> None:
        frames: list[Frame] = []
        session = _FrameSession(frames.append, lambda _: None, None, lambda: None)
        data = b'{"t":"pong","id":1,"at":1}\n{"t":"pong","id":2,"at":1}\n{"t":"po'
        for start in range(0, len(data), size):
            session.data_received(data[start : start + size], None)
        channel = WatchChannel(None, session)  # type: ignore[arg-type]
        for count in (1, 2):
            while len(frames) < count:
                before = len(frames)
                channel.apply_received(0.0)
                assert len(frames) <= before + 1
        assert channel.apply_received() is False
        session.data_received(b'ng","id":3,"at":1}\n', None)
        assert channel.apply_received() is False
        assert [frame.id for frame in frames if isinstance(frame, Pong)] == [1, 2, 3]

    asyncio.run(turns())
