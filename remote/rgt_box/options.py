"""Parse command lines of long options: argparse would take a third of the agent's start time."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

    from rgt_wire import JsonObject


class UsageError(Exception):
    """The command line is wrong; the message says how."""


def parse_options(argv: list[str], spec: dict[str, str], help_text: str) -> JsonObject:
    """Parse ``--name value`` and ``--name=value``; ``--help`` prints `help_text` and exits 0.

    Args:
        argv: The words to parse. Words after ``--`` are returned under the key ``rest``.
        spec: Option → kind: ``str``, ``int``, ``float``, ``list`` (may be repeated) or ``flag``.
        help_text: What ``--help`` prints.

    Returns:
        Option name without dashes → value; absent options are None (``list``: [], ``flag``: False).

    Raises:
        UsageError: An option is unknown, or its value is missing or malformed.
    """
    found: JsonObject = {
        name[2:]: {"list": [], "flag": False}.get(kind) for name, kind in spec.items()
    }
    found["rest"] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word in ("-h", "--help"):
            print(help_text.strip())
            raise SystemExit(0)
        if word == "--":
            found["rest"] = words
            break
        name, equals, value = word.partition("=")
        if name not in spec:
            raise UsageError(f"unknown argument: {word}")
        key = name[2:]
        kind = spec[name]
        if kind == "flag":
            found[key] = True
            continue
        if not equals:
            if not words:
                raise UsageError(f"{name} needs a value")
            value = words.pop(0)
        if kind == "list":
            # A new list: the default may be shared.
            found[key] = found[key] + [value]
        else:
            found[key] = _convert_value(name, kind, value)
    return found


def _convert_value(name: str, kind: str, value: str) -> Any:
    kinds: Mapping[str, Any] = {"str": str, "int": int, "float": float}
    try:
        return kinds[kind](value)
    except ValueError:
        raise UsageError(f"{name} needs a number, not {value!r}") from None


def parse_or_exit(argv: list[str], spec: dict[str, str], help_text: str) -> JsonObject:
    """Like `parse_options`, but report a wrong command line on stderr and exit 2."""
    try:
        return parse_options(argv, spec, help_text)
    except UsageError as problem:
        print(f"{problem} (see --help)", file=sys.stderr)
        raise SystemExit(2) from None


def refuse_verb(argv: list[str], help_text: str) -> int:
    """Print the help for a first word that is no verb; return the exit status, 0 for ``--help``."""
    if argv and argv[0] in ("-h", "--help"):
        print(help_text.strip())
        return 0
    print(help_text.strip(), file=sys.stderr)
    return 2
