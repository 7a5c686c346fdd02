"""The parsers of the commands that bring results off a box and prove that they are whole."""

from __future__ import annotations

import argparse

from rgt_tui.cli.arguments import (
    box_argument,
    command,
    count,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)
from rgt_tui.cli.commands import Subparsers

RATES = {"K": 1e3, "M": 1e6, "G": 1e9}


def add_pull(subparsers: Subparsers) -> None:
    """Declare ``rgt pull``."""
    parser = command(
        subparsers,
        "pull",
        about="Copy the results of a box here, and verify every byte: each file is hashed on both sides, brought to\n"
        "the disk, and then takes its name. Stop it anywhere: the next one goes on. What is verified here is never\n"
        "replaced by something that may be worse; links, odd names and files that change are named. Nothing on the\n"
        "box is changed.",
        examples=(
            "rgt pull lab",
            "rgt pull lab /workspace/runs '~/exp/*/checkpoints' --dest ~/results",
            "rgt pull lab --dry-run",
            "rgt pull lab --limit 20M --streams 2",
        ),
    )
    box_argument(parser)
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", help="on the box; globs allowed (default: its results)"
    )
    parser.add_argument("--dest", metavar="DIR", help="where to (default: ./pulled/BOX)")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be pulled")
    parser.add_argument(
        "--limit", metavar="RATE", type=byte_rate, help="at most so many bytes per second: 500K, 20M, 1G"
    )
    parser.add_argument(
        "--streams", metavar="N", type=stream_count, default=4, help="side by side (default 4, at most 16)"
    )
    fleet_option(parser)
    json_option(parser, 'print JSON lines: the progress, and at the end one with "end": true')
    timeout_option(parser, 120.0)
    host_key_option(parser)


def byte_rate(text: str) -> float:
    """Parse a number of bytes per second such as ``500K`` or ``20M``.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    number, unit = (text[:-1], RATES[text[-1].upper()]) if text[-1:].upper() in RATES else (text, 1.0)
    try:
        found = float(number) * unit
    except ValueError:
        found = 0.0
    if not 1 <= found < 1e15:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as 500K, 20M or 1G")
    return found


def stream_count(text: str) -> int:
    """Parse a number of streams.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or not 1 <= int(text[:3]) <= 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of streams between 1 and 16")
    return int(text)


def add_verify(subparsers: Subparsers) -> None:
    """Declare ``rgt verify``."""
    parser = command(
        subparsers,
        "verify",
        about="Look at every file below a directory of results: hash it, compare it with what the pull, a manifest or\n"
        "the last verification knew of it, and prove that every checkpoint in it is whole and loads. Nothing\n"
        "in a file is ever run. PULL_VERIFIED.json in the directory says what was found.",
        examples=("rgt verify pulled/lab", "rgt verify pulled/lab --expect 12 --json"),
    )
    parser.add_argument("directory", metavar="DIR", help="the directory")
    parser.add_argument(
        "--expect", metavar="N", type=count, help="how many whole checkpoints there must be, at least"
    )
    parser.add_argument(
        "--renew", action="store_true",
        help="go without what the last verification found: files were changed or removed on purpose",
    )  # fmt: skip
    parser.add_argument("--no-torch", action="store_true", help="do not load files of torch.save with torch")
    json_option(parser, "print one JSON object: ok, files, bytes, errors (path, reason) and more")
