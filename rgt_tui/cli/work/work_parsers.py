"""What the commands take that start work on a box, or open it to a person's own programs."""

from __future__ import annotations

from rgt_tui.cli.arguments import box_argument, command, fleet_option, host_key_option, timeout_option
from rgt_tui.cli.commands import Subparsers

CONNECT_SECONDS = 60.0


def add_ssh(subparsers: Subparsers) -> None:
    """Declare ``rgt ssh``."""
    parser = command(
        subparsers,
        "ssh",
        about="Become ssh, on the way that rgt uses: its address (also a new one that the provider tells), its jump\n"
        "hosts and its key, held to the host key that rgt has verified there just now. Words behind -- are run in\n"
        "a terminal instead of a shell.",
        examples=("rgt ssh lab", "rgt ssh lab -- htop"),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    fleet_option(parser)
    timeout_option(parser, CONNECT_SECONDS)
    host_key_option(parser)


def add_exec(subparsers: Subparsers) -> None:
    """Declare ``rgt exec``."""
    parser = command(
        subparsers,
        "exec",
        about="Run one command on a box, with this terminal's standard input and outputs, every byte as it is. One\n"
        "word behind -- is a line for the box's shell; several stay what they are, blanks and quotes included.\n"
        "It needs neither a Python nor the agent there. Ctrl-C hangs up, and is handed on before\n"
        "where the sshd there does that (not to root). What is to outlive the connection is started with rgt run.",
        examples=(
            "rgt exec lab -- nvidia-smi",
            "rgt exec lab -- 'cd /workspace && ls | wc -l'",
            "rgt exec lab -- tar -C /workspace/code -xf - < code.tar",
        ),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    fleet_option(parser)
    timeout_option(parser, CONNECT_SECONDS)
    host_key_option(parser)
