"""The parsers of the commands that name what went wrong."""

from __future__ import annotations

import argparse

from rgt_tui.cli.commands import COMMANDS, Subparsers, epilog

FORMAT = argparse.RawDescriptionHelpFormatter


def add_triage(commands: Subparsers) -> None:
    """Declare ``rgt triage``."""
    parser = commands.add_parser(
        "triage",
        help=COMMANDS["triage"].brief,
        formatter_class=FORMAT,
        description="Read logs of any origin on this machine and say which known failures they show, the best first:\n"
        "the line that proves it, what never to do, and the fix. Nothing is run, and no box is asked.",
        epilog=epilog("triage", "rgt triage train.log", "rgt triage logs/*.log --json | jq -r '.findings[0].gotcha'",
                      "journalctl -u train | rgt triage -", "rgt triage /tmp/nccl_trace_rank_*"),
    )  # fmt: skip
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a log (- is standard input, .gz is unpacked), the flight recorder's dumps of all ranks, ncclras' output",
    )
    parser.add_argument(
        "--samples",
        metavar="FILE",
        help="readings of the box from that time: JSON lines, as rgt record and the agent's sample write them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per file: file, findings")


def add_handbook(commands: Subparsers) -> None:
    """Declare ``rgt handbook``."""
    parser = commands.add_parser(
        "handbook",
        help=COMMANDS["handbook"].brief,
        formatter_class=FORMAT,
        description="Search the handbook of known failures: by id, by words, or by an error line in quotes. One match\n"
        "is shown whole. `rgt handbook new ID` drafts a page of your own in ~/.config/rgt/handbook.",
        epilog=epilog("handbook", "rgt handbook U7", "rgt handbook no space", "rgt handbook 'Address already in use'",
                      "rgt handbook new LAB1"),
    )  # fmt: skip
    parser.add_argument(
        "term", nargs="*", metavar="TERM", help="an id, words, or a line (default: list all pages)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per page")
