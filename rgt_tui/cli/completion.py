"""``rgt completion``: what a shell has to load once, so that it completes commands, options and box names."""

from __future__ import annotations

import argparse
import sys

from rgt_tui.cli.arguments import command
from rgt_tui.cli.commands import OK, Subparsers

SHELLS = ("bash", "zsh", "fish")


def add_completion(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "completion",
        about="Print what makes a shell complete commands, options and the names of boxes (asked of rgt itself at\n"
        "every TAB, so that it is never out of date). Paths on a box are not completed.",
        examples=(
            'eval "$(rgt completion bash)"                        in ~/.bashrc',
            'eval "$(rgt completion zsh)"                         in ~/.zshrc, behind compinit',
            "rgt completion fish > ~/.config/fish/completions/rgt.fish",
        ),
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run_completion(arguments: argparse.Namespace) -> int:
    """Print it; return the exit code."""
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["rgt"], shell=arguments.shell) + "\n")
    return OK
