"""``rgt agent build``: write the agent's zipapp."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rgt_tui.cli.arguments import command
from rgt_tui.cli.commands import FAILED, OK, Subparsers, epilog

EXAMPLE = "rgt agent build --out rgt-box.pyz"


def add_agent(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "agent",
        about="The program that rgt puts on a box.",
        examples=(EXAMPLE,),
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    build = verbs.add_parser(
        "build",
        help="write the agent's zipapp",
        epilog=epilog("agent", EXAMPLE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    build.add_argument("--out", metavar="FILE", required=True, help="where to write it")


def run_agent(arguments: argparse.Namespace) -> int:
    """Write the zipapp; the same source gives the same bytes."""
    from rgt_tui.ssh.bundle import build_agent

    bundle = build_agent()
    try:
        Path(arguments.out).write_bytes(bundle.data)
    except OSError as error:
        sys.stderr.write(f"rgt: cannot write {arguments.out}: {error.strerror}\n")
        return FAILED
    sys.stdout.write(f"{arguments.out}  {len(bundle.data):,} bytes  sha256 {bundle.digest}\n")
    return OK
