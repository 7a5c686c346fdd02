"""What the commands take that start work on a box, or open it to a person's own programs."""

from __future__ import annotations

import argparse

from rgt_tui.cli.arguments import (
    box_argument,
    command,
    count,
    duration,
    fleet_option,
    host_key_option,
    json_option,
    timeout_option,
)
from rgt_tui.cli.commands import Subparsers

CONNECT_SECONDS = 60.0


def launch_options(parser: argparse.ArgumentParser) -> None:
    """Add what every launch takes."""
    parser.add_argument(
        "--probe",
        metavar="TIME",
        type=duration,
        default=60.0,
        help="wait at most so long for a first step (60s)",
    )
    parser.add_argument("--no-smoke", action="store_true", help="start without the smoke command")
    parser.add_argument(
        "--smoke-seconds",
        metavar="TIME",
        type=duration,
        default=600.0,
        help="what the smoke command may take (10m)",
    )


def add_run(subparsers: Subparsers) -> None:
    """Declare ``rgt run``."""
    parser = command(
        subparsers,
        "run",
        about="Run a command on a box so that it outlives the connection: as a job of its own (docs/jobs.md), by what\n"
        "the platform's profile says of Python, disks and environment. Its smoke command first, then the check of\n"
        "the queue, then the start, detached, and a look: alive, first line, first step, no traceback. One word\n"
        "behind -- is a line for a shell; several are run exactly as they stand. The same command again starts\n"
        "nothing: it tells how the job stands. $RGT_OUT in its environment is the directory of its results.",
        examples=(
            "rgt run lab -- python train.py --config big.yaml",
            "rgt run lab --in /workspace/code --smoke 'python train.py --steps 2' -- python train.py",
            "rgt run lab --name try-2 --env LR=3e-4 -- 'python train.py --out \"$RGT_OUT\"'",
            "rgt run lab --wait --json -- ./sweep.sh",
        ),
    )
    parser.set_defaults(words=[])
    box_argument(parser)
    parser.add_argument("--name", metavar="N", help="of the job (default: from the command, always the same)")
    parser.add_argument("--smoke", metavar="CMD", help="a line for a shell that must end with 0 before")
    parser.add_argument(
        "--env", metavar="K=V", action="append", help="environment of the command; several times"
    )
    parser.add_argument(
        "--in", dest="workdir", metavar="DIR", help="where it starts (default: the home directory)"
    )
    parser.add_argument(
        "--retries", metavar="N", type=count, default=0, help="further attempts when it fails"
    )
    parser.add_argument("--wait", action="store_true", help="then wait until it has ended: 0 done, 1 failed")
    launch_options(parser)
    fleet_option(parser)
    json_option(parser, "print one JSON object: box, name, job, smoke, check, start, begins, finding, exit")
    host_key_option(parser)


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
