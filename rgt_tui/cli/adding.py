"""Put boxes into the fleet file that is meant, and say where they went."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rgt_tui.cli.exits import FAILED, OK, USAGE
from rgt_tui.cli.opening import complain, rgt_with
from rgt_tui.fleet.config.write import add_boxes, box_table
from rgt_tui.fleet.fleet_file import FleetFileError, find_fleet_file, working_directory
from rgt_tui.profiles import all_profiles

ORDER = ("host", "port", "user", "identity", "ssh_config", "profile", "logs", "jobs", "runs")


def guess_profile(host: str) -> str | None:
    """Return the profile whose platform hands out such host names; None where that is not known."""
    name = host.lower()
    for profile in all_profiles().values():
        if any(fnmatchcase(name, pattern) for pattern in profile.hosts):
            return profile.id
    return None


def target_path(named: str | None) -> Path:
    """Return the fleet file to add to: the one that is meant, else a new ``rgt.toml`` here."""
    return find_fleet_file(named, os.environ, working_directory()) or Path("rgt.toml")


def say(path: Path | None, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Print boxes as JSON; `path` is where they stand now, None = nowhere yet."""
    for name, values in tables.items():
        box = {"box": name, **values, "file": None if path is None else str(path)}
        sys.stdout.write(json.dumps(box) + "\n")


def write(named: str | None, tables: Mapping[str, Mapping[str, Any]], *, as_json: bool = False) -> int:
    """Add boxes; return the exit code.

    Args:
        named: What ``--fleet`` says.
        tables: Name → keys of each box.
        as_json: Print JSON objects instead of tables.
    """
    path = target_path(named)
    ordered = {name: {key: table[key] for key in ORDER if key in table} for name, table in tables.items()}
    try:
        config = add_boxes(path, ordered)
    except FleetFileError as error:
        complain(error)
        return FAILED if isinstance(error.__cause__, OSError) else USAGE
    for warning in config.warnings:
        complain(warning)
    if as_json:
        say(path, ordered)
        return OK
    for name, values in ordered.items():
        sys.stdout.write(f"{path}: added\n\n{box_table(name, values)}\n")
    sys.stdout.write(f"next: {rgt_with(named)} doctor {' '.join(ordered)}\n")
    return OK
