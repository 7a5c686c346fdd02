"""``rgt``: the command line. Imports nothing heavy before the command is known."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rgt_tui import __version__
from rgt_tui.cli.arguments import Arguments, DashboardArguments, HelpFormatter, arguments_of
from rgt_tui.cli.commands import (
    COMMANDS,
    FAILED,
    INTERRUPTED,
    USAGE,
    NotOpened,
    build_epilog,
    find_runner,
    format_overview,
)
from rgt_tui.cli.printing import drop_output, is_lost_output, open_standard_streams
from rgt_tui.language import speaks_english, translate

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

VALUED = ("--fleet",)
"""Options before the command whose value is a separate word."""
WINDOWS = (
    "rgt: Windows is not supported; use rgt in WSL, the Windows Subsystem for Linux: wsl "
    "--install\n"
)


ARGPARSE_TEXTS = (
    "usage: ",
    "positional arguments",
    "options",
    "show this help message and exit",
    "%(prog)s: error: %(message)s\n",
    "argument %(argument_name)s: %(message)s",
    "the following arguments are required: %s",
    "one of the arguments %s is required",
    "not allowed with argument %s",
    "expected one argument",
    "expected at least one argument",
    "ignored explicit argument %r",
    "invalid choice: %(value)r (choose from %(choices)s)",
    "ambiguous option: %(option)s could match %(matches)s",
)
"""The texts of argparse that a person sees."""


class RgtParser(argparse.ArgumentParser):
    """An argument parser that raises an error if its help cannot be written."""

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        if message:
            (file or sys.stderr).write(message)


def build_parser(names: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of these commands (all by default); only their modules are imported."""
    if not speaks_english():
        # argparse looks its texts up in the catalogues of the locale, which has no other way in.
        vars(argparse)["_"] = translate
    parser: argparse.ArgumentParser = RgtParser(
        prog="rgt",
        usage="rgt [-h] [--version] [--fleet FILE] [--no-history] [--readonly] [COMMAND ...]",
        description=translate(
            "Watch training on rented GPU boxes, and stop the meter without losing a result.\n"
            "Without a command: the dashboard on the fleet file."
        ),
        epilog=format_overview()
        + "\n"
        + build_epilog(
            "rgt",
            "rgt demo      three boxes on this machine that really train",
            "rgt init      create a starter fleet file",
            "rgt add lab user@host && rgt      watch a box of your own",
        ),
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"rgt {__version__}",
        help=translate("print the version and exit"),
    )
    DashboardArguments.fill_parser(parser)
    # The overview lists the commands by group. Without prog, a subparser would use the usage above
    # as its name.
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", help=argparse.SUPPRESS, prog="rgt"
    )
    for name in names:
        arguments_of(name).add_to(subparsers, name)
    parser.set_defaults(parsers=subparsers.choices)
    return parser


def first_word(words: Sequence[str]) -> str | None:
    """Return the word that must be the command: the first that is no option or option value."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in VALUED
        else:
            return word
    return None


def parse_command_line(words: Sequence[str]) -> Any:
    """Parse a command line; errors, ``--help`` and ``--version`` exit as in argparse."""
    word = first_word(words)
    if word is not None and word not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(word, COMMANDS, 1)
        if near:
            hint = translate("did you mean {near!r}?", near=near[0])
        else:
            hint = translate("rgt --help lists them")
        sys.stderr.write(
            translate("rgt: no command is called {word!r}; {hint}\n", word=word, hint=hint)
        )
        raise SystemExit(USAGE)
    parser = build_parser([word] if word else ())
    if word:
        arguments = arguments_of(word)()
    else:
        arguments = DashboardArguments()
    if word is None or not COMMANDS[word].carries or "--" not in words:
        return _parse_words(parser, words, arguments)
    # Split by hand: argparse treats -- differently between versions of Python, and these words must
    # not change.
    at = list(words).index("--")
    _parse_words(parser, words[:at], arguments)
    arguments.words = list(words[at + 1 :])
    return arguments


def _parse_words(
    parser: argparse.ArgumentParser, words: Sequence[str], arguments: Arguments
) -> Arguments:
    """Parse; positional words after an option are added to those before it."""
    _, more = parser.parse_known_args(words, arguments)
    # errors show the usage of the command
    parser = parser.get_default("parsers").get(arguments.command, parser)
    free = [
        (attribute, settings)
        for attribute, declared in arguments.list_declared().items()
        for settings in declared.actions.values()
        if declared.positional and settings.get("nargs")
    ]
    for word in more:
        told = ((name, settings, getattr(arguments, name)) for name, settings in free)
        name, settings, had = next(
            (row for row in told if row[1]["nargs"] != "?" or row[2] is None), (None, {}, None)
        )
        if name is None or any(each.startswith("-") for each in more):
            parser.error(translate("unrecognized arguments: {more}", more=" ".join(more)))
        setattr(arguments, name, word if settings["nargs"] == "?" else [*(had or ()), word])
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    if sys.platform == "win32":
        sys.stderr.write(WINDOWS)
        return USAGE
    open_standard_streams()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(build_parser())
    command: str | None = None
    try:
        # imported modules stay alive: collecting garbage meanwhile would slow every start
        gc.disable()
        try:
            arguments = parse_command_line(sys.argv[1:] if argv is None else argv)
            command = arguments.command
            if command is None:
                from rgt_tui.cli import dashboard

                run: Callable[[Any], int] = dashboard.open_dashboard
            else:
                run = find_runner(command)
            if argv is None:
                gc.freeze()  # speeds up the exit, too: the process runs only this command
        finally:
            gc.enable()
            sys.stdout.flush()  # printing help ends the process
        code = run(arguments)
        sys.stdout.flush()
        return code
    except NotOpened:
        return USAGE
    except KeyboardInterrupt:
        sys.stderr.write(translate("rgt: interrupted\n"))
        return INTERRUPTED
    except OSError as error:
        if not is_lost_output(error):
            raise
        drop_output()
        if not isinstance(error, BrokenPipeError):  # the program that closed the pipe knows it
            with contextlib.suppress(OSError):
                sys.stderr.write(
                    translate(
                        "rgt: cannot write to standard output: {strerror}\n",
                        strerror=error.strerror,
                    )
                )
        if command:
            return COMMANDS[command].untold
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
