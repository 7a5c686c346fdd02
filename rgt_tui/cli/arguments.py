"""Argument types and options that the commands' parsers share."""

from __future__ import annotations

import argparse
import math
import re
import sys

from rgt_tui.cli.commands import COMMANDS, OK, Subparsers, epilog

LONGEST_S = 1e7
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def command(
    subparsers: Subparsers, name: str, *, about: str, examples: tuple[str, ...]
) -> argparse.ArgumentParser:
    """Declare a command of the table.

    Args:
        subparsers: Where to.
        name: Its name.
        about: What ``--help`` says first.
        examples: Command lines, shown as they are.
    """
    return subparsers.add_parser(
        name,
        help=COMMANDS[name].brief,
        description=about,
        epilog=epilog(name, *examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def fleet_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--fleet``; it may also come before the command."""
    parser.add_argument(
        "--fleet", metavar="FILE", default=argparse.SUPPRESS,
        help="the fleet file (else RGT_FLEET, rgt.toml of the project, ~/.config/rgt/fleet.toml)",
    )  # fmt: skip


def boxes_argument(parser: argparse.ArgumentParser) -> None:
    """Add the names of boxes; none = all."""
    action = parser.add_argument("boxes", metavar="BOX", nargs="*", help="only these boxes (default: all)")
    action.completer = box_names  # type: ignore[attr-defined]


def box_argument(parser: argparse.ArgumentParser) -> None:
    """Add the name of one box."""
    action = parser.add_argument("box", metavar="BOX", help="name of the box in the fleet file")
    action.completer = box_names  # type: ignore[attr-defined]


def json_option(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=text)


def timeout_option(parser: argparse.ArgumentParser, seconds: float) -> None:
    """Add ``--timeout``."""
    parser.add_argument(
        "--timeout", type=duration, default=seconds, metavar="TIME",
        help=f"wait at most this long for the boxes: 45, 90s, 5m (default {seconds:g}s)",
    )  # fmt: skip


def host_key_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--accept-new-host-key``."""
    parser.add_argument(
        "--accept-new-host-key", action="store_true",
        help="accept the key of an unknown host and write it to known_hosts; a changed key is still refused",
    )  # fmt: skip


def connection_options(
    parser: argparse.ArgumentParser, *, json: str = "", seconds: float | None = None
) -> None:
    """Add what commands that connect have: ``--fleet``, ``--json`` and ``--timeout`` where given, the host keys."""
    fleet_option(parser)
    if json:
        json_option(parser, json)
    if seconds is not None:
        timeout_option(parser, seconds)
    host_key_option(parser)


def history_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-history``; it may also come before the command."""
    parser.add_argument(
        "--no-history", action="store_true", default=argparse.SUPPRESS,
        help="do not show or keep history (RGT_HISTORY=off does the same, RGT_HISTORY=FILE moves it)",
    )  # fmt: skip


def readonly_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--readonly``; it may also come before the command."""
    parser.add_argument(
        "--readonly", action="store_true", default=argparse.SUPPRESS,
        help="stop no meter: every billing action is refused, and the dashboard offers none",
    )  # fmt: skip


_PARTS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", re.ASCII)
_BARE_MINUTES = re.compile(r".*h\d+", re.ASCII)


def duration(text: str) -> float:
    """Parse a span of time such as ``90s``, ``30m``, ``2h``, ``1d``, ``1h30``; a number alone is seconds.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    number, unit = (text[:-1], UNITS[text[-1]]) if text[-1:] in UNITS else (text, 1.0)
    parts = _PARTS.fullmatch(f"{text}m" if _BARE_MINUTES.fullmatch(text) else text)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not seconds and parts is not None:
        seconds = sum(
            float(part) * size for part, size in zip(parts.groups("0"), (86400, 3600, 60, 1), strict=True)
        )
    if not 0 < seconds < LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 30m, 2h, 1h30 or 1d")
    return seconds


def count(text: str) -> int:
    """Parse a number of things, 0 included.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or len(text) > 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


SIZES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def byte_count(text: str) -> int:
    """Parse a number of bytes such as ``500M`` or ``2GB``, 0 included.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGT]?)B?", text, re.ASCII | re.IGNORECASE)
    found = float(match[1]) * SIZES.get(match[2].upper(), 1.0) if match else -1.0
    if not 0 <= found < 1e18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500M or 2G")
    return int(found)


def words_list(text: str) -> tuple[str, ...]:
    """Parse words with commas between them.

    Raises:
        argparse.ArgumentTypeError: there is none.
    """
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise argparse.ArgumentTypeError(f"{text!r} names none")
    return words


def gpu_wish(text: str) -> tuple[str, int]:
    """Parse a model, a memory or both, and how many: ``A100``, ``A100:80GB:2``, ``24GB+``.

    Raises:
        argparse.ArgumentTypeError: it is none of these.
    """
    from rgt_tui.model.gpu_names import read_gpu_name

    model, colon, number = text.rpartition(":")
    if not colon or not number.isdecimal():
        model, number = text, "1"
    wish = " ".join(model.replace(":", " ").split())
    name = read_gpu_name(wish)
    if not (name.words or name.memory_gb) or not 1 <= int(number[:4]) <= 64:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a GPU such as A100, 'RTX 4090:2', A100:80GB or 24GB+"
        )
    return wish, int(number)


def price(text: str) -> float:
    """Parse an amount of money.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a price such as 1.50")
    return value


def currency(text: str) -> str:
    """Parse the three letters of a currency.

    Raises:
        argparse.ArgumentTypeError: they are none.
    """
    if not (len(text) == 3 and text.isascii() and text.isalpha()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a currency such as USD or CNY")
    return text.upper()


def provider_kinds() -> list[str]:
    """Return the kinds of providers that a shell may complete."""
    from rgt_tui.providers import KINDS

    return list(KINDS)


def port(text: str, lowest: int = 1024, highest: int = 65000) -> int:
    """Parse a port.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not text.isdecimal() or not lowest <= int(text) <= highest:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port between {lowest} and {highest}")
    return int(text)


def box_names(*, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the names that a shell may complete; none where there is no usable fleet file."""
    import os

    from rgt_tui.fleet.config import FleetFileError, find_fleet_file, load_fleet, working_directory

    path = find_fleet_file(getattr(parsed_args, "fleet", None), os.environ, working_directory())
    try:
        return [] if path is None else [spec.name for spec in load_fleet(path)]
    except FleetFileError:
        return []


def run_completion(arguments: argparse.Namespace) -> int:
    """Print what a shell has to load once; it then asks rgt itself at every TAB. Return the exit status."""
    from argcomplete.shell_integration import shellcode

    sys.stdout.write(shellcode(["rgt"], shell=arguments.shell) + "\n")
    return OK
