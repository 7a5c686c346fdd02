"""``rgt``: the command line. Imports nothing heavy before the command is known."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence

from rgt_tui import __version__
from rgt_tui.cli import exits
from rgt_tui.cli.options import history_option
from rgt_tui.cli.output import drop_output
from rgt_tui.cli.table import COMMANDS, module_of

VALUED = ("--fleet",)
"""Options before the command whose value is a word of its own."""


def build_parser(names: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of these commands (all by default); only their modules are imported."""
    parser = argparse.ArgumentParser(
        prog="rgt",
        description="Watch training on rented GPU boxes, and stop the meter without losing a result.\n"
        "Without a command: the dashboard on the fleet file.",
        epilog=exits.epilog(
            "rgt",
            "rgt demo      three boxes on this machine that really train",
            "rgt init      begin a fleet file",
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rgt {__version__}")
    parser.add_argument(
        "--fleet", metavar="FILE",
        help="the fleet file (else RGT_FLEET, rgt.toml of the project, ~/.config/rgt/fleet.toml)",
    )  # fmt: skip
    history_option(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in names:
        module_of(name).add_parser(commands)
    return parser


def first_word(words: Sequence[str]) -> str | None:
    """Return the word that must be the command: the first that is neither an option nor the value of one."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in VALUED
        else:
            return word
    return None


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; a wrong one, ``--help`` and ``--version`` end the process as argparse does."""
    word = first_word(words)
    if word is not None and word not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(word, COMMANDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "rgt --help lists them"
        sys.stderr.write(f"rgt: no command is called {word!r}; {hint}\n")
        raise SystemExit(exits.USAGE)
    asks = word is None and any(option in ("-h", "--help") for option in words)
    return build_parser([word] if word else COMMANDS if asks else ()).parse_args(words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(build_parser())
    command: str | None = None
    try:
        # Help is printed while parsing, and some Pythons (3.11.2) let a reader that has gone away be an error there.
        arguments = parse(sys.argv[1:] if argv is None else argv)
        command = arguments.command
        if arguments.command is None:
            from rgt_tui.cli import dashboard

            code: int = dashboard.run(arguments)
        else:
            code = module_of(arguments.command).run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        sys.stderr.write("rgt: interrupted\n")
        return exits.INTERRUPTED
    except BrokenPipeError:
        drop_output()
        return exits.UNTOLD.get(command or "", exits.FAILED)


if __name__ == "__main__":
    sys.exit(main())
