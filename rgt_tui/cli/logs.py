"""``rgt logs``: a file of a box, byte by byte, on standard output."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys

from rgt_tui.cli import running
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE
from rgt_tui.cli.log_choice import choose
from rgt_tui.cli.log_output import make_output
from rgt_tui.cli.opening import open_boxes
from rgt_tui.cli.printing import complain
from rgt_tui.fleet.exact_log import ExactLog, Request
from rgt_tui.model.box import BoxSpec
from rgt_tui.model.plain import clean
from rgt_tui.ssh.cat import CatFailed
from rgt_tui.ssh.ssh_errors import BoxError, CommandFailed, ConfigError, DeployFailed, NoCommands, NoPython


def run_logs(arguments: argparse.Namespace) -> int:
    """Print the log; return the exit code."""
    opened = open_boxes(arguments, [arguments.box])
    if opened is None:
        return USAGE
    (spec,) = opened[1]

    try:
        return running.run(_print(spec, arguments))
    except (CatFailed, NoPython, NoCommands, DeployFailed, CommandFailed) as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return FAILED
    except ConfigError as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return USAGE
    except BoxError as error:
        complain(f"{spec.name}: {clean(str(error))}")
        return UNREACHABLE


async def _print(spec: BoxSpec, arguments: argparse.Namespace) -> int:
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)

    def say(text: str) -> None:
        sys.stderr.write(f"rgt: {spec.name}: {text}\n")
        sys.stderr.flush()

    async def work() -> int:
        path = await choose(spec, arguments, say)
        if path is None:
            return OK
        request = Request(
            path=path,
            follow=arguments.follow,
            lines=None if arguments.from_start else arguments.lines,
            patience=arguments.timeout,
            accept_new_host_keys=arguments.accept_new_host_key,
        )
        log = ExactLog(spec, request, say)
        output = make_output(log, raw=arguments.raw, as_json=arguments.json)
        try:
            async for data in log.pieces():
                await output.write(data)
        finally:
            await output.close()
        return OK

    over = asyncio.Event()
    running.until_signalled(over)
    working, waiting = asyncio.create_task(work()), asyncio.create_task(over.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        return OK
    return working.result()
