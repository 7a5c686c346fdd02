"""``rgt add``: a box into the fleet file, from a host name or the ssh command that a rental hands out."""

from __future__ import annotations

import argparse
from pathlib import Path

from rgt_tui.cli.adding import guess_profile, write
from rgt_tui.cli.commands import USAGE
from rgt_tui.cli.pasted import NotSsh, parse_target
from rgt_tui.cli.printing import complain

KEYS = ("profile", "port", "user", "identity", "logs", "jobs", "runs")
"""Options that become keys of the box."""
LOCAL_FILES = ("identity", "ssh_config")


def anchored(path: str) -> str:
    """Return the name of a local file so that it means the same from every working directory, as it was typed here."""
    if path == "none" or path.startswith(("/", "~", "%d", "${")):
        return path
    return str(Path(path).absolute())


def run_add(arguments: argparse.Namespace) -> int:
    """Add the box; return the exit code."""
    try:
        values = parse_target(arguments.target)
    except NotSsh as error:
        complain(error)
        return USAGE
    values |= {key: getattr(arguments, key) for key in KEYS if getattr(arguments, key) is not None}
    for key in LOCAL_FILES:
        if key in values:
            values[key] = anchored(values[key])
    if "profile" not in values and (guess := guess_profile(values["host"])) is not None:
        values["profile"] = guess
    return write(arguments.fleet, {arguments.name: values}, as_json=arguments.json)
