"""What the commands take that are a verb of the agent each."""

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


def _add(
    subparsers: Subparsers, name: str, about: str, examples: tuple[str, ...], json: str, seconds: float
) -> argparse.ArgumentParser:
    parser = command(subparsers, name, about=about, examples=examples)
    box_argument(parser)
    fleet_option(parser)
    json_option(parser, json)
    timeout_option(parser, seconds)
    host_key_option(parser)
    return parser


def add_gpu_health(subparsers: Subparsers) -> None:
    """Declare ``rgt gpu-health``."""
    parser = _add(
        subparsers,
        "gpu-health",
        "Check every GPU of a box, and change nothing: does it answer, memory errors, throttling, the kernel's Xid\n"
        "messages, PCIe lanes, temperature, memory that nobody holds. What cannot be told is called so.",
        ("rgt gpu-health lab --expect 8", "rgt gpu-health lab --strict --json"),
        "print one JSON object: checks, source, error, status",
        60.0,
    )
    parser.add_argument("--expect", metavar="N", type=count, help="how many GPUs there must be")
    parser.add_argument("--hot", metavar="C", type=float, help="what counts as too hot (default 85)")
    parser.add_argument(
        "--strict", action="store_true", help="what cannot be told is not good enough, either"
    )


def add_reap(subparsers: Subparsers) -> None:
    """Declare ``rgt reap``."""
    parser = _add(
        subparsers,
        "reap",
        "List who holds a GPU of a box without the driver knowing: what a training that died has left behind.\n"
        "Nothing is touched without --kill, and then one process only, by its pid and its start, after the name of\n"
        "the box was typed. What trains is never ended.",
        (
            "rgt reap lab",
            "rgt reap lab --kill 4711:8812345",
            "rgt reap lab --kill 4711:8812345 --confirm lab",
        ),
        "print one JSON object: holders, ended, refused, why",
        60.0,
    )
    parser.add_argument(
        "--kill", metavar="PID:START", help="end this process; both numbers as the list shows them"
    )
    parser.add_argument(
        "--unverified", action="store_true", help="also where it cannot be told whether it is an orphan"
    )
    parser.add_argument("--confirm", metavar="NAME", help="the name of the box, in place of typing it")


def add_grep(subparsers: Subparsers) -> None:
    """Declare ``rgt grep``."""
    parser = _add(
        subparsers,
        "grep",
        "Search logs on a box from their end, so that the newest lines come first, within bounds of time and bytes:\n"
        "it disturbs no training. PATTERN is a regular expression of Python. Without PATH: the logs and the jobs\n"
        "that the fleet file names.",
        (
            "rgt grep lab 'CUDA out of memory|Traceback' --context 3",
            "rgt grep lab loss '~/exp/*.log' --max 5",
        ),
        "print one JSON object per match, and one with end at last",
        60.0,
    )
    parser.add_argument("pattern", metavar="PATTERN", help="a regular expression")
    parser.set_defaults(gathers="paths")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="a file, a directory or a glob on the box")
    parser.add_argument("--max", metavar="N", type=count, help="stop after so many matches (default 100)")
    parser.add_argument("--context", metavar="N", type=count, help="lines around each match (at most 50)")
    parser.add_argument("--ignore-case", action="store_true", help="upper and lower case are the same")


def add_manifest(subparsers: Subparsers) -> None:
    """Declare ``rgt manifest``."""
    parser = _add(
        subparsers,
        "manifest",
        "Print the SHA-256 and the path of every file below a directory of a box, as sha256sum does. Hashes are\n"
        "remembered there: a second look reads what has changed. Links are named, never followed.",
        ("rgt manifest lab /workspace/runs > runs.sha256", "rgt manifest lab '~/data' --json"),
        "print one JSON object per file, and one with end at last",
        3600.0,
    )
    parser.add_argument("dir", metavar="DIR", help="on the box")
    parser.add_argument("--no-cache", action="store_true", help="hash everything anew")


def add_mirror(subparsers: Subparsers) -> None:
    """Declare ``rgt mirror``."""
    parser = _add(
        subparsers,
        "mirror",
        "Copy a directory on a box to another one there, on storage that outlives the box: each file is read back\n"
        "and compared before it takes its place. Stopped anywhere, the next one goes on; nothing there is deleted.",
        ("rgt mirror lab /root/autodl-tmp/runs/a /root/autodl-fs/runs/a",),
        "print one JSON object per file, and one with end at last",
        4 * 3600.0,
    )
    parser.add_argument("source", metavar="SRC", help="a directory on the box")
    parser.add_argument("target", metavar="DST", help="where to, on the box")
