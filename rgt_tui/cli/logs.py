"""``rgt logs``: a file of a box, byte by byte, on standard output."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rgt_tui.cli.arguments import (
    box_argument,
    command,
    count,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)
from rgt_tui.cli.commands import FAILED, OK, UNREACHABLE, USAGE, Subparsers

if TYPE_CHECKING:
    from rgt_tui.model.box import BoxSpec

LINES = 200


def add_logs(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "logs",
        about="Print a file of a box to standard output, byte by byte: nothing is stripped, cut or decoded. A lost\n"
        "connection is taken up again where it broke off, without a gap or a repeat; rotation and truncation are\n"
        "told on standard error. On a terminal escape sequences are made harmless, unless --raw.",
        examples=(
            "rgt logs lab                              the newest of its logs",
            "rgt logs lab gpt-small --follow           that run's, as it grows",
            "rgt logs lab '~/exp/*.log' --from-start > exp.log",
        ),
    )
    box_argument(parser)
    log = parser.add_argument(
        "log",
        metavar="PATH|RUN",
        nargs="?",
        help="a path on the box (~ and globs are expanded there), or the name of a run; default: the newest log",
    )
    log.completer = lambda **_: []  # type: ignore[attr-defined]
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--from-start", action="store_true", help="the whole file")
    where.add_argument(
        "--lines", type=count, default=LINES, metavar="N", help=f"the last N lines (default {LINES})"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what is written, until Ctrl-C"
    )
    parser.add_argument("--raw", action="store_true", help="leave escape sequences also on a terminal")
    json_option(
        parser,
        "a JSON object per line instead of its bytes: path, offset, text (what is no UTF-8 is replaced)",
    )
    parser.add_argument("--list", action="store_true", help="list the logs of the box, the newest first")
    fleet_option(parser)
    timeout_option(parser, 60.0)
    host_key_option(parser)


def run_logs(arguments: argparse.Namespace) -> int:
    """Print the log; return the exit code."""
    from rgt_tui.cli.opening import open_boxes
    from rgt_tui.cli.printing import complain

    opened = open_boxes(arguments, [arguments.box])
    if opened is None:
        return USAGE
    (spec,) = opened[1]
    from rgt_tui.cli import running
    from rgt_tui.model.plain import clean
    from rgt_tui.ssh.cat import CatFailed
    from rgt_tui.ssh.ssh_errors import (
        BoxError,
        CommandFailed,
        ConfigError,
        DeployFailed,
        NoCommands,
        NoPython,
    )

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
    import asyncio
    import contextlib
    import logging

    from rgt_tui.cli import running
    from rgt_tui.cli.log_choice import choose
    from rgt_tui.cli.log_output import make_output
    from rgt_tui.fleet.exact_log import ExactLog, Request

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
