"""``rgt import``: hosts of ssh_config into the fleet file."""

from __future__ import annotations

import argparse
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rgt_tui.cli.adding import guess_profile, say, target, write
from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.printing import complain
from rgt_tui.fleet.config.checks import BOX, NAME
from rgt_tui.fleet.config.write import box_table
from rgt_tui.fleet.fleet_file import FleetFileError, load_fleet
from rgt_tui.ssh.resolve import Wanted, resolve
from rgt_tui.ssh.ssh_config import scan, surroundings
from rgt_tui.ssh.ssh_errors import ConfigError

GIT_HOSTS = ("github.com", "gitlab.com", "bitbucket.org", "ssh.dev.azure.com", "git.sr.ht", "codeberg.org")
"""Hosts that people have in ssh_config and that are no boxes; a pattern that names one takes it all the same."""


def run_import(arguments: argparse.Namespace) -> int:
    """List or add; return the exit code."""
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
    path = target(arguments.fleet).path
    # One that names no box yet, as `rgt init` writes it, has nothing to read; what is wrong with it is said by reading.
    if not path.exists() or not re.search(rb"^\s*\[?boxes", path.read_bytes(), re.MULTILINE):
        return {}
    return {name: spec.name for spec in load_fleet(path) for name in (spec.host, spec.name)}


def _tables(arguments: argparse.Namespace, taken: dict[str, str]) -> dict[str, dict[str, Any]]:
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
