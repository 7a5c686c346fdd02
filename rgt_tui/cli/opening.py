"""From the command line to the boxes it names."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from difflib import get_close_matches

from rgt_tui.cli.arguments import BoxArguments, FleetArguments
from rgt_tui.cli.commands import NotOpened
from rgt_tui.cli.printing import print_error
from rgt_tui.files import working_directory
from rgt_tui.fleet.config import (
    FleetConfig,
    FleetFileError,
    FleetFilePlace,
    find_place,
    open_place,
)
from rgt_tui.fleet.config.following import FleetFileFollower
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec

NONE_FOUND = (
    "no fleet file (looked for --fleet, RGT_FLEET, rgt.toml here and upwards in the project, and "
    "~/.config/rgt/fleet.toml).\n"
    "     Try `rgt demo`, create one with `rgt init` and `rgt add NAME HOST`, or write:\n\n"
    "     [boxes.lab]\n"
    '     host = "lab-a100"'
)
UNTRUSTED = (
    "Until then only its boxes are used: no sinks, keys, providers, programs or files, and only "
    "hosts of your own ssh_config."
)


def find_fleet_place(arguments: FleetArguments) -> FleetFilePlace | None:
    """Return the place of the fleet file to use, or None."""
    return find_place(arguments.fleet, os.environ, working_directory())


def open_fleet(arguments: FleetArguments, *, trusted: bool = False) -> FleetConfig:
    """Read the fleet file to use, and print warnings about it on stderr.

    Args:
        arguments: The parsed command line.
        trusted: Raise if the file is not trusted: its alerts could not be sent.

    Raises:
        FleetFileError: There is none, or it cannot be used.
    """
    # Searched again by commands that write: the file may come from four places, and only one wins.
    place = find_fleet_place(arguments)
    if place is None:
        raise FleetFileError(translate(NONE_FOUND))
    config = open_place(place)
    if config.doubt is not None:
        # Refused instead of reduced: a command that acts must not act on half of the file.
        if trusted:
            raise FleetFileError(config.doubt)
        print_error(f"{config.doubt}\n     {translate(UNTRUSTED)}")
    for warning in config.warnings:
        print_error(warning)
    return config


def watch_fleet_file(
    arguments: FleetArguments, config: FleetConfig, names: Sequence[str] = ()
) -> FleetFileFollower | None:
    """Return a watcher that applies changes of the fleet file; None if the file is a pipe."""
    place = find_fleet_place(arguments)
    # A pipe (--fleet <(…)) can be read once, so it cannot be watched for changes.
    if place is not None and place.path.is_file():
        return FleetFileFollower(place, config, names=names)
    return None


def choose_boxes(config: FleetConfig, names: Sequence[str]) -> tuple[BoxSpec, ...]:
    """Return the named boxes in the order of the file; all if no name is given.

    Raises:
        FleetFileError: There is no box of that name; the message has the nearest one.
    """
    known = [spec.name for spec in config.boxes]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            if near:
                hint = translate("did you mean {near!r}?", near=near[0])
            else:
                hint = translate("it has: {known}", known=", ".join(known))
            raise FleetFileError(
                translate(
                    "{path} has no box {name!r}; {hint}", path=config.path, name=name, hint=hint
                )
            )
    # The file's order, so that output of two calls can be compared.
    return tuple(spec for spec in config.boxes if not names or spec.name in names)


def open_boxes(
    arguments: FleetArguments, names: Sequence[str], *, trusted: bool = False
) -> tuple[FleetConfig, tuple[BoxSpec, ...]]:
    """Read the fleet file to use, and choose boxes from it; `trusted` as in `open_fleet`.

    Raises:
        NotOpened: That failed; the error was printed.
    """
    try:
        config = open_fleet(arguments, trusted=trusted)
        return config, choose_boxes(config, names)
    except FleetFileError as error:
        print_error(error)
        # Printed here, so that no command has to; `main` turns this into the exit status.
        raise NotOpened from error


def open_box(arguments: BoxArguments, *, trusted: bool = False) -> BoxSpec:
    """Return the box that a command line names.

    Raises:
        NotOpened: As in `open_boxes`.
    """
    return open_boxes(arguments, [arguments.box], trusted=trusted)[1][0]


def rgt_with(named: str | None) -> str:
    """Return the start of a command line to copy, with the fleet file that was given, if any."""
    if named is None:
        return "rgt"
    return f"rgt --fleet {shlex.quote(named)}"
