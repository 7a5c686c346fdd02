"""How a command declares its arguments: a class whose attributes are options and positionals.

Parser, help, completion and the typed values that ``run_NAME`` receives are derived from it;
argparse fills in an instance. The converters of values and the arguments that commands share are
here, too.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import textwrap
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar, cast, overload

from rgt_tui.cli.commands import COMMANDS, GROUPS, OK, Subparsers, build_epilog
from rgt_tui.language import speaks_english, translate

T = TypeVar("T")
Completer: TypeAlias = Callable[..., list[str]] | None
"""What argcomplete calls for words that a shell may complete."""


class DeclaredArgument(NamedTuple):
    """An option or a positional argument, as passed to argparse's ``add_argument``."""

    initial: Any
    """Its value if it is not on the command line."""
    actions: dict[tuple[str, ...], dict[str, Any]]
    """Settings per names. An option without names is named after its attribute; several may set one
    attribute."""
    completer: Completer = None
    positional: bool = False

    def add_to(self, container: argparse._ActionsContainer, attribute: str) -> None:
        """Add it to a parser, or to a mutually exclusive group."""
        for names, declared in self.actions.items():
            settings = declared | {"help": translate(declared["help"])}
            if self.positional:
                # SUPPRESS: a subparser begins with an empty namespace, so a default would reset
                # an option that was given before the command.
                action = container.add_argument(attribute, default=argparse.SUPPRESS, **settings)
            else:
                words = names or (f"--{attribute.replace('_', '-')}",)
                action = container.add_argument(
                    *words, dest=attribute, default=argparse.SUPPRESS, **settings
                )
            if self.completer is not None:
                # argcomplete's own convention: it looks for this attribute, which argparse does not
                # declare.
                action.completer = self.completer  # type: ignore[attr-defined]


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps Chinese help by cells; argparse counts characters, and breaks only at blanks."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        if speaks_english():
            return super()._split_lines(text, width)
        from rgt_tui.model import wrap_cells  # half the time that `rgt --version` takes

        return wrap_cells(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if speaks_english():
            return super()._fill_text(text, width, indent)
        from rgt_tui.model import wrap_cells

        lines: list[str] = []
        # The lines of a paragraph are broken where the English ones would be.
        whole = re.sub(r"(?<=[^\x00-\x7f])\n(?=[^\x00-\x7f])", "", text)
        for line in whole.splitlines():
            # The text of a row such as "  1  not found" continues below its text.
            start = re.match(r"\s*(?:\S+\s{2,})?", line)
            inner = start.end() if start is not None else 0
            lines += wrap_cells(line, width, inner) or [""]
        return "\n".join(indent + line for line in lines)


class Arguments:
    """Base of the arguments of all commands; an instance has the values of one command line.

    A subclass declares one attribute for each argument. In the help, inherited positional arguments
    come first and inherited options last; an option that is declared again is listed with those of
    the subclass.
    """

    about: ClassVar[str]
    """Description at the top of ``--help``; indented as the code is."""
    examples: ClassVar[tuple[str, ...]]
    """Command lines that ``--help`` shows unchanged."""
    one_of: ClassVar[tuple[str, ...]] = ()
    """Mutually exclusive groups: attribute names separated by spaces."""
    one_is_required: ClassVar[bool] = False
    """Whether one of the first group is required."""
    subcommand: ClassVar[str] = ""
    """The required subcommand, if there is one; only the inherited arguments may come before it."""
    subcommand_brief: ClassVar[str]
    subcommand_about: ClassVar[str] = ""
    command: str | None = None
    words: list[str]
    """The words after ``--``, for a command that sends them to a box."""

    def __init__(self, **values: Any) -> None:
        initial = {name: declared.initial for name, declared in self.list_declared().items()}
        vars(self).update({"words": []} | initial | values)

    @classmethod
    def list_declared(cls) -> dict[str, DeclaredArgument]:
        """Return the arguments by their attributes, in the order of the help."""
        rows: dict[str, DeclaredArgument] = {}
        # Base classes first, so that options common to many commands end up last in each help.
        for base in reversed(cls.__mro__):
            own = {
                name: value
                for name, value in vars(base).items()
                if isinstance(value, DeclaredArgument)
            }
            first = {name: value for name, value in rows.items() if value.positional}
            # `own` twice: once for its place in the order, once so that its value wins over an
            # inherited one.
            rows = first | own | rows | own
        return rows

    @classmethod
    def add_to(cls, subparsers: Subparsers, name: str) -> None:
        """Add a command of the table with these arguments to the parser."""

        def add_subparser(
            parsers: Subparsers, word: str, brief: str, about: str
        ) -> argparse.ArgumentParser:
            return parsers.add_parser(
                word,
                help=translate(brief),
                description=translate(textwrap.dedent(about).strip()) or None,
                epilog=build_epilog(name, *cls.examples),
                formatter_class=HelpFormatter,
            )

        # `rgt alerts test`: inherited options go before the subcommand, all others after it.
        parser = add_subparser(subparsers, name, COMMANDS[name].brief, cls.about)
        if cls.subcommand:
            inherited: Any = cls.__base__
            inherited.fill_parser(parser)
            verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
            parser = add_subparser(
                verbs, cls.subcommand, cls.subcommand_brief, cls.subcommand_about
            )
        cls.fill_parser(parser)

    @classmethod
    def fill_parser(cls, parser: argparse.ArgumentParser) -> None:
        """Add the arguments to a parser."""
        groups: dict[str, argparse._ActionsContainer] = {}
        for members in cls.one_of:
            group = parser.add_mutually_exclusive_group(required=cls.one_is_required and not groups)
            groups |= dict.fromkeys(members.split(), group)
        for attribute, declared in cls.list_declared().items():
            declared.add_to(groups.get(attribute, parser), attribute)


def flag(text: str, *names: str, initial: bool = False) -> bool:
    """Declare an option without a value, which sets the attribute to the opposite of `initial`."""
    if initial:
        action = "store_false"
    else:
        action = "store_true"
    # The class attribute is a declaration, the instance attribute a bool. The cast shows mypy the
    # second, which is what all commands use.
    return cast(bool, DeclaredArgument(initial, {names: {"help": text, "action": action}}))


def flag_choice(default: str | None = None, **texts: str) -> Any:
    """Declare flags that set the attribute to their own name; the values are their help."""
    return DeclaredArgument(
        default,
        {
            (f"--{name}",): {"help": text, "action": "store_const", "const": name}
            for name, text in texts.items()
        },
    )


def text_option(
    metavar: str | None, text: str, *names: str, complete: Completer = None, **settings: Any
) -> str | None:
    """Declare an option with a text value."""
    settings |= {"help": text, "metavar": metavar}
    return cast(str | None, DeclaredArgument(None, {names: settings}, complete))


@overload
def option(
    metavar: str, parse: Callable[[str], T], text: str, *names: str, complete: Completer = None
) -> T | None: ...
@overload
def option(
    metavar: str,
    parse: Callable[[str], T],
    text: str,
    *names: str,
    default: T,
    required: bool = False,
) -> T: ...
def option(
    metavar: str,
    parse: Callable[[str], Any],
    text: str,
    *names: str,
    complete: Completer = None,
    default: Any = None,
    required: bool = False,
) -> Any:
    """Declare an option whose value is parsed."""
    settings = {"help": text, "metavar": metavar, "type": parse, "required": required}
    return DeclaredArgument(default, {names: settings}, complete)


def list_option(metavar: str, text: str, *names: str, **settings: Any) -> list[str]:
    """Declare an option that may be repeated or, with ``nargs``, has several values."""
    settings = {"help": text, "metavar": metavar, "action": "append"} | settings
    return cast(list[str], DeclaredArgument([], {names: settings}))


def positional(
    metavar: str | None, text: str, *, complete: Completer = None, **settings: Any
) -> Any:
    """Declare a positional argument: one, or as ``nargs`` says."""
    initial: Any
    if settings.get("nargs") in ("*", "+"):
        initial = []
    else:
        initial = None
    return DeclaredArgument(
        initial, {(): {"help": text, "metavar": metavar, **settings}}, complete, positional=True
    )


def parse_duration(text: str) -> float:
    """Return the seconds of a duration, as `parse_seconds`.

    Raises:
        argparse.ArgumentTypeError: It is not a duration.
    """
    from rgt_tui.model import parse_seconds  # late: --help needs no model

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_count(text: str) -> int:
    """Parse a count, 0 included.

    Raises:
        argparse.ArgumentTypeError: It is not a whole number.
    """
    # A limit of digits, because int() of thousands of them is slow and useless here.
    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(translate("{words!r} is not a whole number", words=text))
    return int(text)


SIZES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def byte_count(text: str) -> int:
    """Parse a number of bytes such as ``500M`` or ``2GB``, 0 included.

    Raises:
        argparse.ArgumentTypeError: It is not a size.
    """
    # Decimal units, as disks and platforms count: 2G is 2,000,000,000 bytes.
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGT]?)B?", text, re.ASCII | re.IGNORECASE)
    if match:
        found = float(match[1]) * SIZES.get(match[2].upper(), 1.0)
    else:
        found = -1.0
    if not 0 <= found < 1e18:
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not a size such as 500M or 2G", words=text)
        )
    return int(found)


def words_list(text: str) -> tuple[str, ...]:
    """Parse words separated by commas.

    Raises:
        argparse.ArgumentTypeError: There is no word.
    """
    # A name given twice would be asked twice, so it counts once; the order stays.
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise argparse.ArgumentTypeError(translate("{words!r} is an empty list", words=text))
    return words


def gpu_wish(text: str) -> tuple[str, int]:
    """Parse a model, a memory or both, and a count: ``A100``, ``A100:80GB:2``, ``24GB+``.

    Raises:
        argparse.ArgumentTypeError: It has another form.
    """
    from rgt_tui.model.gpu_names import read_gpu_name

    # From the right, because the memory also comes after a colon: A100:80GB:2.
    model, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal():
        model, number = text, "1"
    wish = " ".join(model.replace(":", " ").split())
    name = read_gpu_name(wish)
    # The length before the number: int() raises ValueError for more than 4,300 digits.
    if not (name.words or name.memory_gb) or len(number) > 4 or not 1 <= int(number) <= 64:
        raise argparse.ArgumentTypeError(
            translate(
                "{words!r} is not a GPU such as A100, 'RTX 4090:2', A100:80GB or 24GB+", words=text
            )
        )
    return wish, int(number)


def parse_price(text: str) -> float:
    """Parse an amount of money.

    Raises:
        argparse.ArgumentTypeError: It is not a positive number.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not a price such as 1.50", words=text)
        )
    return value


def parse_currency(text: str) -> str:
    """Parse a currency of three letters.

    Raises:
        argparse.ArgumentTypeError: It does not have that form.
    """
    if not (len(text) == 3 and text.isascii() and text.isalpha()):
        raise argparse.ArgumentTypeError(
            translate("{words!r} is not a currency such as USD or CNY", words=text)
        )
    return text.upper()


def provider_kinds(**_: object) -> list[str]:
    """Return the kinds of providers for shell completion."""
    from rgt_tui.providers import KINDS

    return list(KINDS)


def parse_port(text: str, lowest: int = 1024, highest: int = 65000) -> int:
    """Parse a port.

    Raises:
        argparse.ArgumentTypeError: It is not a port in this range.
    """
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise argparse.ArgumentTypeError(
            translate(
                "{words!r} is not a port between {lowest} and {highest}",
                words=text,
                lowest=lowest,
                highest=highest,
            )
        )
    return int(text)


def box_names(*, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the box names for shell completion; empty without a usable fleet file."""
    import os

    from rgt_tui.files import working_directory
    from rgt_tui.fleet.config import FleetFileError, find_place, load_fleet

    # Completion runs at every TAB: no host is asked, and any error means no suggestions.
    place = find_place(getattr(parsed_args, "fleet", None), os.environ, working_directory())
    try:
        if place is None:
            return []
        return [spec.name for spec in load_fleet(place.path)]
    except FleetFileError:
        return []


FLEET = text_option(
    "FILE", "the fleet file (default: RGT_FLEET, rgt.toml of the project, ~/.config/rgt/fleet.toml)"
)
"""May also be given before the command, as the next two."""
# RGT_HISTORY also reaches the dashboards that `rgt serve` starts, which get no such option.
NO_HISTORY = flag(
    "do not show or keep history (RGT_HISTORY=off does the same, RGT_HISTORY=FILE moves it)"
)
READONLY = flag("refuse every billing action; the dashboard offers none")
HOST_KEY = flag(
    "accept the key of an unknown host and write it to known_hosts; a changed key is still refused"
)


def timeout_option(seconds: float) -> float:
    """Declare ``--timeout``."""
    text = translate(
        "wait at most this long for the boxes: 45, 90s, 5m (default {seconds:g}s)", seconds=seconds
    )
    return option("TIME", parse_duration, text, default=seconds)


class FleetArguments(Arguments):
    """Arguments of a command that reads the fleet file."""

    fleet = FLEET


class DashboardArguments(FleetArguments):
    """Arguments of ``rgt`` without a command, and all that may precede a command."""

    fleet = FLEET
    no_history = NO_HISTORY
    readonly = READONLY


class ConnectedArguments(FleetArguments):
    """Arguments of a command that connects to boxes."""

    fleet = FLEET
    accept_new_host_key = HOST_KEY


class BoxesArguments(ConnectedArguments):
    """Arguments of a command about some boxes; none = all."""

    boxes: list[str] = positional(
        "BOX", "only these boxes (default: all)", nargs="*", complete=box_names
    )


class BoxArguments(ConnectedArguments):
    """Arguments of a command about one box."""

    box: str = positional("BOX", "name of the box in the fleet file", complete=box_names)


def arguments_of(name: str) -> type[Arguments]:
    """Return the class of a command's arguments, without importing the command's own modules."""
    # The group's light module of arguments: --help must not load what the command itself imports.
    module = import_module(f"rgt_tui.cli.{GROUPS[COMMANDS[name].group]}")
    found: type[Arguments] = getattr(module, f"{name.title().replace('-', '')}Arguments")
    return found


def run_completion(arguments: argparse.Namespace) -> int:
    """Print the shell code for completion, which calls rgt at every TAB; return the exit status."""
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["rgt"], shell=arguments.shell) + "\n")
    return OK
