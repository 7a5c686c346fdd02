"""The command line of a verb that takes paths beside its options."""

from __future__ import annotations

import sys

from rgt_box import options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def parse(argv: list[str], spec: dict[str, str], help_text: str) -> tuple[list[str], dict[str, Any]]:
    """Split the words into paths and options; a wrong command line is told on stderr and exits 2.

    Args:
        argv: The words. Everything after ``--`` is a path, so that one may begin with a dash.
        spec: Option → kind, as for `options.parse`.
        help_text: What ``--help`` prints.

    Returns:
        The paths in their order, and the options.
    """
    paths: list[str] = []
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            paths += words
        elif word.startswith("-") and word != "-":
            rest.append(word)
            name, equals, _ = word.partition("=")
            if spec.get(name, "flag") != "flag" and not equals:
                rest += [value for value in [next(words, None)] if value is not None]
        else:
            paths.append(word)
    return paths, options.parse_or_exit(rest, spec, help_text)


def refuse(text: str) -> int:
    """Say on stderr why nothing was done; returns exit status 2."""
    print("%s (--help tells more)" % text, file=sys.stderr)
    return 2
