"""From the command line to the boxes that are meant."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from rgt_tui.fleet.fleet_file import (
    FleetConfig,
    FleetFileError,
    find_fleet_file,
    read_fleet,
    working_directory,
)
from rgt_tui.model.box import BoxSpec

NONE_FOUND = (
    "no fleet file (looked for --fleet, RGT_FLEET, rgt.toml here and upwards in the project, and "
    "~/.config/rgt/fleet.toml).\n"
    "     Try `rgt demo`, begin one by `rgt init` and `rgt add NAME HOST`, or write:\n\n"
    "     [boxes.lab]\n"
    '     host = "lab-a100"'
)


def named_path(arguments: argparse.Namespace) -> Path | None:
    """Return the fleet file that is meant; None when there is none."""
    return find_fleet_file(arguments.fleet, os.environ, working_directory())


def open_fleet(arguments: argparse.Namespace, *, warn: bool = True) -> FleetConfig:
    """Read the fleet file that is meant.

    Args:
        arguments: The parsed command line.
        warn: Say on stderr what is odd about it.

    Raises:
        FleetFileError: there is none, or it cannot be used.
    """
    path = named_path(arguments)
    if path is None:
        raise FleetFileError(NONE_FOUND)
    config = read_fleet(path)
    for warning in config.warnings if warn else ():
        sys.stderr.write(f"rgt: {warning}\n")
    return config


def chosen(config: FleetConfig, names: Sequence[str]) -> tuple[BoxSpec, ...]:
    """Return the boxes of these names, in the order of the file; all when no name is given.

    Raises:
        FleetFileError: there is no box of that name; the nearest is named.
    """
    known = [spec.name for spec in config.boxes]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}"
            raise FleetFileError(f"{config.path} has no box {name!r}; {hint}")
    return tuple(spec for spec in config.boxes if not names or spec.name in names)


def open_boxes(
    arguments: argparse.Namespace, names: Sequence[str]
) -> tuple[FleetConfig, tuple[BoxSpec, ...]] | None:
    """Read the fleet file that is meant and choose boxes from it; None where that failed, which has been said."""
    try:
        config = open_fleet(arguments)
        return config, chosen(config, names)
    except FleetFileError as error:
        complain(error)
        return None


def complain(problem: object) -> None:
    """Write an error as all commands do."""
    sys.stderr.write(f"rgt: {problem}\n")


def rgt_with(named: str | None) -> str:
    """Return how a command line begins that a person may copy: with the fleet file that was named, if one was."""
    return "rgt" if named is None else f"rgt --fleet {shlex.quote(named)}"
