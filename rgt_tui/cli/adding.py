"""Put boxes into the fleet file that is meant, and say where they went."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import rgt_with
from rgt_tui.cli.printing import complain
from rgt_tui.fleet.config.load import Source
from rgt_tui.fleet.config.trusted import default_path, renew
from rgt_tui.fleet.config.write import add_boxes, box_table
from rgt_tui.fleet.fleet_file import FleetFileError, Place, find_place, working_directory
from rgt_tui.profiles import all_profiles

ORDER = ("host", "port", "user", "identity", "ssh_config", "profile", "logs", "jobs", "runs")


def guess_profile(host: str) -> str | None:
    """Return the profile whose platform hands out such host names; None where that is not known."""
    name = host.lower()
    for profile in all_profiles().values():
        if any(fnmatchcase(name, pattern) for pattern in profile.hosts):
            return profile.id
    return None


def target(named: str | None) -> Place:
    """Return the fleet file to add to: the one that is meant, else a new ``rgt.toml`` here."""
    return find_place(named, os.environ, working_directory()) or Place(Path("rgt.toml"), lies_there=True)


def say(path: Path | None, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Print boxes as JSON; `path` is where they stand now, None = nowhere yet."""
    for name, values in tables.items():
        box = {"box": name, **values, "file": None if path is None else str(path)}
        sys.stdout.write(json.dumps(box) + "\n")


def keep_trust(before: Source | None, after: Source) -> str | None:
    """Trust a fleet file that rgt has written, if it was trusted or is new; return why it is not trusted now."""
    try:
        if renew(default_path(os.environ), before, after, os.environ):
            return None
        why = f"{after.path} was not trusted before, and is not now"
    except FleetFileError as error:
        why = f"{after.path} is written, but could not be noted as trusted: {error}"
    return f"{why}: rgt trust {shlex.quote(str(after.path))}"


def write(named: str | None, tables: Mapping[str, Mapping[str, Any]], *, as_json: bool = False) -> int:
    """Add boxes; return the exit code.

    Args:
        named: What ``--fleet`` says.
        tables: Name → keys of each box.
        as_json: Print JSON objects instead of tables.
    """
    path, lies_there = target(named)
    ordered = {name: {key: table[key] for key in ORDER if key in table} for name, table in tables.items()}
    doubts: list[str | None] = []
    try:
        config = add_boxes(path, ordered, lambda before, after: doubts.append(keep_trust(before, after)))
    except FleetFileError as error:
        complain(error)
        return FAILED if isinstance(error.__cause__, OSError) else USAGE
    for warning in (*config.warnings, *(doubt for doubt in doubts if doubt and lies_there)):
        complain(warning)
    if as_json:
        say(path, ordered)
        return OK
    for name, values in ordered.items():
        sys.stdout.write(f"{path}: added\n\n{box_table(name, values)}\n")
    sys.stdout.write(f"next: {rgt_with(named)} doctor {' '.join(ordered)}\n")
    return OK
