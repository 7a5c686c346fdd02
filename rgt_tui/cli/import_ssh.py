"""``rgt import``: hosts of ssh_config into the fleet file."""

from __future__ import annotations

import argparse
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rgt_tui.cli.arguments import command, fleet_option, json_option
from rgt_tui.cli.commands import FAILED, OK, USAGE, Subparsers

GIT_HOSTS = ("github.com", "gitlab.com", "bitbucket.org", "ssh.dev.azure.com", "git.sr.ht", "codeberg.org")
"""Hosts that people have in ssh_config and that are no boxes; a pattern that names one takes it all the same."""


def add_import(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = command(
        subparsers,
        "import",
        about="List the hosts that ssh_config names (Include is followed, wildcards are no hosts) as boxes; with\n"
        "--write, add them to the fleet file. A box names its alias only: port, user, keys and jump hosts stay in\n"
        "ssh_config.",
        examples=("rgt import", "rgt import 'gpu-*' lab --write", "rgt import --config work.conf --write"),
    )
    parser.add_argument(
        "patterns", metavar="PATTERN", nargs="*", help="only these hosts; globs (default: all)"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="that ssh_config file, not ~/.ssh/config and the system's"
    )
    parser.add_argument(
        "--write", action="store_true", help="write, instead of only showing what would be added"
    )
    json_option(parser, "print one JSON object per box: its keys, and the file")
    fleet_option(parser)


def run_import(arguments: argparse.Namespace) -> int:
    """List or add; return the exit code."""
    from rgt_tui.cli.adding import say, write
    from rgt_tui.cli.printing import complain
    from rgt_tui.fleet.config.write import box_table
    from rgt_tui.fleet.fleet_file import FleetFileError
    from rgt_tui.ssh.ssh_errors import ConfigError

    try:
        taken = _taken(arguments)
        tables = _tables(arguments, taken)
    except (FleetFileError, ConfigError) as error:
        complain(error)
        return USAGE
    except OSError as error:
        complain(f"cannot read the fleet file: {error}")
        return FAILED
    if not tables:
        where = arguments.config or "ssh_config"
        complain(f"no host of {where} matches that is not in the fleet file already")
        return FAILED
    if arguments.write:
        return write(arguments.fleet, tables, as_json=arguments.json)
    if arguments.json:
        say(None, tables)
        return OK
    sys.stdout.write("\n".join(box_table(name, values) for name, values in tables.items()))
    sys.stdout.write("\n# nothing is written yet: add --write, and patterns for only some of them\n")
    return OK


def _taken(arguments: argparse.Namespace) -> dict[str, str]:
    """Return host → box of the fleet file, as far as there is one."""
    from rgt_tui.cli.adding import target
    from rgt_tui.fleet.fleet_file import load_fleet

    path = target(arguments.fleet).path
    # One that names no box yet, as `rgt init` writes it, has nothing to read; what is wrong with it is said by reading.
    if not path.exists() or not re.search(rb"^\s*\[?boxes", path.read_bytes(), re.MULTILINE):
        return {}
    return {name: spec.name for spec in load_fleet(path) for name in (spec.host, spec.name)}


def _tables(arguments: argparse.Namespace, taken: dict[str, str]) -> dict[str, dict[str, Any]]:
    from rgt_tui.cli.adding import guess_profile
    from rgt_tui.cli.printing import complain
    from rgt_tui.fleet.config.checks import BOX, NAME
    from rgt_tui.ssh.resolve import Wanted, resolve
    from rgt_tui.ssh.ssh_config import scan, surroundings
    from rgt_tui.ssh.ssh_errors import ConfigError

    config = str(Path(arguments.config).expanduser().absolute()) if arguments.config else None
    around = surroundings(config)
    found: dict[str, dict[str, Any]] = {}

    def host_of(alias: str) -> str:
        try:
            return resolve(Wanted(alias), around).host
        except ConfigError:
            return alias  # the box then says what is wrong with its entry

    names = scan(around).aliases
    with ThreadPoolExecutor() as threads:
        hosts = dict(zip(names, threads.map(host_of, names), strict=True))
    for alias in names:
        wanted = [pattern for pattern in arguments.patterns if fnmatchcase(alias, pattern)]
        name = alias if NAME.fullmatch(alias) else re.sub(r"[^A-Za-z0-9._-]+", "-", alias).strip("-._")
        if (
            (arguments.patterns and not wanted)
            or alias in taken
            or name in taken
            or name in found
            or not name
        ):
            continue
        if (wrong := BOX["host"](alias)) is not None:
            complain(f"{alias!r} is left out: {wrong}; give that host a plain name in ssh_config")
            continue
        if (host := hosts[alias]) in GIT_HOSTS and alias not in arguments.patterns:
            continue
        values: dict[str, Any] = {"host": alias}
        if config is not None:
            values["ssh_config"] = config
        if (guess := guess_profile(host)) is not None:
            values["profile"] = guess
        found[name] = values
    return found
