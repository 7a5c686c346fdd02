"""``rgt``: the command line. Imports nothing heavy before the command is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rgt_tui import __version__
from rgt_tui.cli import scalars

EXIT_USAGE = 2
EXIT_FAILED = 1


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="rgt",
        description="Watch training on rented GPU boxes, and stop the meter without losing a result.",
        epilog="example: rgt demo        (three boxes on this machine that really train)",
    )
    parser.add_argument("--version", action="version", version=f"rgt {__version__}")
    parser.add_argument("--fleet", metavar="FILE", help="the fleet file to open the dashboard on")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _demo(commands)
    _agent(commands)
    scalars.add_parser(commands)
    return parser


def _demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="watch three boxes on this machine that really train",
        description="Open the dashboard on the embedded fleet: three sandboxed boxes that really train.",
        epilog="examples: rgt demo · rgt demo --headless --for 45 --json · rgt demo --headless --until story",
    )
    demo.add_argument("--headless", action="store_true", help="no screen: progress on stderr")
    demo.add_argument("--for", dest="seconds", type=_seconds, metavar="SECONDS", help="stop after this time")
    demo.add_argument("--until", choices=["story"], help="stop when all three stories have happened")
    demo.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    demo.add_argument("--port-base", type=_port, metavar="PORT", help="first SSH port (default: any free)")
    demo.add_argument(
        "--follow-advice",
        action="store_true",
        help="remove what fills the disk once rgt has said so (otherwise that is yours to do)",
    )
    demo.add_argument(
        "--fleet-only", action="store_true", help="run the boxes alone, for another rgt to watch"
    )
    demo.add_argument("--write-fleet", metavar="FILE", help="with --fleet-only: write the fleet file there")


def _agent(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    agent = commands.add_parser("agent", help="the program that rgt puts on a box")
    verbs = agent.add_subparsers(dest="verb", metavar="VERB", required=True)
    build = verbs.add_parser(
        "build", help="write the agent's zipapp", epilog="example: rgt agent build --out a.pyz"
    )
    build.add_argument("--out", metavar="FILE", required=True, help="where to write it")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds, such as 45")
    return value


def _port(text: str) -> int:
    if not text.isdecimal() or not 1024 <= int(text) <= 65000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port between 1024 and 65000")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        if arguments.command == "demo":
            from rgt_tui.cli import demo

            return demo.run(arguments)
        if arguments.command == "agent":
            from rgt_tui.cli import agent

            return agent.build(arguments)
        if arguments.command == "scalars":
            return scalars.run(arguments)
        from rgt_tui.cli import dashboard

        return dashboard.run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("rgt: interrupted\n")
        return 130
    except BrokenPipeError:
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
