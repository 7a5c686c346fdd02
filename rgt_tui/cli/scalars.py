"""``rgt scalars``: what can be plotted of a file or a directory on this machine, by the code that runs on a box."""

from __future__ import annotations

import argparse
import os
import sys

from rgt_tui.cli.arguments import command, json_option
from rgt_tui.cli.commands import FAILED, Subparsers

MODULE = "rgt_box.metrics.scalars_command"


def add_scalars(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "scalars",
        about="List the scalars that training programs left in a file or below a directory of this machine:\n"
        "one line per series.",
        examples=("rgt scalars runs/", "rgt scalars train.log --json"),
    )
    parser.add_argument("path", metavar="PATH", help="a file, or a directory that is searched for sources")
    json_option(parser, "print one JSON object per series")


def run_scalars(arguments: argparse.Namespace) -> int:
    """Run the agent's code in a process of its own and return its exit code."""
    import subprocess

    from rgt_tui.ssh.bundle import remote_root

    try:
        root = remote_root()
    except FileNotFoundError as error:
        sys.stderr.write(f"rgt: {error}\n")
        return FAILED
    path = arguments.path
    words = [f"./{path}" if path.startswith("-") else path]
    words += ["--json"] if arguments.json else []
    # -P: a module in the directory of a run must not stand in for one of the standard library.
    command = [sys.executable, "-P", "-m", MODULE, *words]
    finished = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root)}, check=False)
    return finished.returncode if finished.returncode >= 0 else FAILED
