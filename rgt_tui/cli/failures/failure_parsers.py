"""Parsers of ``rgt triage`` and ``rgt handbook``."""

from __future__ import annotations

from rgt_tui.cli.arguments import command, json_option
from rgt_tui.cli.commands import Subparsers


def add_triage(commands: Subparsers) -> None:
    """Declare ``rgt triage``."""
    parser = command(
        commands,
        "triage",
        about="Read logs of any origin on this machine and say which known failures they show, the best first:\n"
        "the line that proves it, what never to do, and the fix. Nothing is run, and no box is asked.",
        examples=(
            "rgt triage train.log",
            "rgt triage logs/*.log --json | jq -r '.findings[0].gotcha'",
            "journalctl -u train | rgt triage -",
            "rgt triage /tmp/nccl_trace_rank_*",
        ),
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a log (- is standard input; gz, bz2, xz are unpacked), the ranks' flight recorder dumps, ncclras' output",
    )
    parser.add_argument(
        "--samples",
        metavar="FILE",
        help="readings of the box from that time: a file of rgt record, or lines of the agent's sample",
    )
    parser.add_argument(
        "--box", metavar="NAME", help="whose readings count, where FILE has those of several boxes"
    )
    json_option(parser, "print one JSON object per file: file, findings")


def add_handbook(commands: Subparsers) -> None:
    """Declare ``rgt handbook``."""
    parser = command(
        commands,
        "handbook",
        about="Search the handbook of known failures: by id, by words, or by an error line in quotes. One match\n"
        "is shown whole. `rgt handbook new ID` drafts a page of your own in ~/.config/rgt/handbook.",
        examples=(
            "rgt handbook U7",
            "rgt handbook no space",
            "rgt handbook 'Address already in use'",
            "rgt handbook new LAB1",
        ),
    )
    parser.add_argument(
        "term", nargs="*", metavar="TERM", help="an id, words, or a line (default: list all pages)"
    )
    json_option(parser, "print one JSON object per page, and per trap of a platform")
