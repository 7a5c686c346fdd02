"""Parsers of the autostop commands: options, help and examples."""

from __future__ import annotations

import argparse

from rgt_tui.cli.arguments import (
    box_argument,
    command,
    duration,
    fleet_option,
    host_key_option,
    json_option,
    readonly_option,
    timeout_option,
)
from rgt_tui.cli.commands import Subparsers


def add_autostop(subparsers: Subparsers) -> None:
    """Declare ``rgt autostop``."""
    parser = command(
        subparsers,
        "autostop",
        about="Arm one box to park itself once it has been idle for that long without a break: no GPU or CPU work\n"
        "of a run, no input at a terminal, no result written. It counts, decides and stops on its own, with its\n"
        "platform's own key, even while this computer sleeps; it never destroys, and a reboot or a resume disarms\n"
        "it. What it would find, keep and lose is shown first; then you type the box's name.",
        examples=(
            "rgt autostop lab --idle 45m",
            "rgt autostop lab --idle 45m --dry-run --json",
            "rgt autostop lab --idle 1h30 --accept 4321 --confirm lab",
            "rgt autostop lab --status",
            "rgt autostop lab --disarm",
        ),
    )
    box_argument(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--idle",
        type=duration,
        metavar="TIME",
        help="arm it: it stops after this long without work: 45m, 8h, 1h30",
    )
    what.add_argument(
        "--status",
        action="store_true",
        help="show whether it is armed, how far it has counted, and what it did before",
    )
    what.add_argument("--disarm", action="store_true", help="disarm it: it no longer stops itself")
    _endings(parser)
    parser.add_argument(
        "--inspect",
        type=duration,
        default=0.0,
        metavar="TIME",
        help="when a cell fails, wait this long for somebody to look (default 0)",
    )
    parser.add_argument(
        "--accept",
        nargs="+",
        default=[],
        metavar="PID",
        help="idle processes that hold memory, such as a forgotten notebook, and may end with the box",
    )
    _arming(parser)
    json_option(parser, "print one JSON object")


def add_lease(subparsers: Subparsers) -> None:
    """Declare ``rgt lease``."""
    parser = command(
        subparsers,
        "lease",
        about="Give one box a hard deadline, which it enforces itself, even while something runs: it warns, sends\n"
        "SIGTERM so that runs save, copies what would be lost to storage that stays, and parks. A run that is not\n"
        "known to save is ended only if you accept that by its name; otherwise the box calls you instead.",
        examples=("rgt lease lab 8h", "rgt lease lab 8h --accept old-run --confirm lab"),
    )
    box_argument(parser)
    parser.add_argument("length", type=duration, metavar="TIME", help="from now on: 8h, 90m, 1h30")
    _endings(parser)
    parser.add_argument(
        "--accept",
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs that do not save on SIGTERM, and may be ended anyway",
    )
    _arming(parser)
    json_option(parser, "print one JSON object")


def _endings(parser: argparse.ArgumentParser) -> None:
    endings = parser.add_mutually_exclusive_group()
    endings.add_argument(
        "--park",
        dest="action",
        action="store_const",
        const="park",
        default="park",
        help="stop the machine so that it can be started again (the default)",
    )
    endings.add_argument(
        "--ask",
        dest="action",
        action="store_const",
        const="ask",
        help="stop nothing: call you (rgt notify)",
    )


def _arming(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what arming would mean; arm nothing")
    parser.add_argument(
        "--confirm", metavar="NAME", help="the box's name, which a person would type, for a script"
    )
    readonly_option(parser)
    fleet_option(parser)
    host_key_option(parser)
    timeout_option(parser, 60.0)


def add_keep(subparsers: Subparsers) -> None:
    """Declare ``rgt keep``."""
    parser = command(
        subparsers,
        "keep",
        about="Put off what a box would do to itself, for that long from now. Its clock then starts again.",
        examples=("rgt keep lab 2h",),
    )
    box_argument(parser)
    parser.add_argument("length", type=duration, metavar="TIME", help="from now on: 2h, 90m, 1h30")
    fleet_option(parser)
    host_key_option(parser)
    json_option(parser, "print one JSON object")


def add_notify(subparsers: Subparsers) -> None:
    """Declare ``rgt notify``."""
    parser = command(
        subparsers,
        "notify",
        about="Give one box an address that it notifies on its own, without this computer, when a queue is done, a\n"
        "cell has failed, a disk is full, or it is about to stop itself. The address is read from standard input\n"
        "and appears on no command line; on the box it is kept in a file that only you may read. ntfy, Slack,\n"
        "Discord, Feishu, DingTalk, WeCom and a plain webhook are recognised by their host.",
        examples=(
            "rgt notify lab < address.txt",
            "rgt notify lab --test",
            "rgt notify lab --remove",
        ),
    )
    box_argument(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--test", dest="what", action="store_const", const="test", help="have the box send one message now"
    )
    what.add_argument(
        "--status", dest="what", action="store_const", const="status", help="say which host it calls, if any"
    )
    what.add_argument(
        "--remove", dest="what", action="store_const", const="remove", help="have the box forget the address"
    )
    what.add_argument("--token", action="store_true", help="a second line is a token, sent as a bearer")
    fleet_option(parser)
    host_key_option(parser)
    json_option(parser, "print one JSON object")
