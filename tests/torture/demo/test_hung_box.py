"""A box of the demo that hangs, whatever it does, does not keep the demo from ending."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from rgt_tui.demo.sandboxes import KeeperProcess, end_process

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(1000)"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_machine_that_is_frozen_or_deaf_is_killed() -> None:
    for freeze in (False, True):
        keeper = KeeperProcess("a box")
        await keeper.start([sys.executable, "-c", DEAF], dict(os.environ))
        if freeze:
            os.kill(keeper.pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            await keeper.stop()
        assert not is_running(keeper.pid)


async def test_a_machine_is_killed_also_where_the_waiting_is_given_up() -> None:
    keeper = KeeperProcess("a box")
    await keeper.start([sys.executable, "-c", DEAF], dict(os.environ))
    stopping = asyncio.create_task(keeper.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    async with asyncio.timeout(60):
        while is_running(keeper.pid):  # noqa: ASYNC110 (nothing tells when another process is gone)
            await asyncio.sleep(0.01)


async def test_a_command_on_a_frozen_machine_is_killed() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DEAF, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(60):
        await end_process(process)
    assert process.returncode == -signal.SIGKILL
