"""Run a command's coroutine, and end when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine


def run(work: Coroutine[None, None, int]) -> int:
    """Run a coroutine to its end and return its exit code.

    A name server that does not answer holds a thread of the standard library for half a minute, and Python waits
    for it at its end. A command that was asked to be quick does not.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(work)
    try:
        code = loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        raise
    finally:
        loop.run_until_complete(_drop_the_rest())
        loop.run_until_complete(loop.shutdown_asyncgens())
    if any(thread.name.startswith("asyncio_") and thread.is_alive() for thread in threading.enumerate()):
        _leave_unless_idle(loop, code)
    loop.close()
    return code


async def _drop_the_rest() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _leave_unless_idle(loop: asyncio.AbstractEventLoop, code: int) -> None:
    """End the process at once where a thread of the loop is still at work; an idle one lets go by itself."""
    try:
        loop.run_until_complete(asyncio.wait_for(loop.shutdown_default_executor(), 0.2))
    except TimeoutError:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def until_signalled(over: asyncio.Event) -> None:
    """Set `over` on Ctrl-C and SIGTERM instead of dying by them."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
