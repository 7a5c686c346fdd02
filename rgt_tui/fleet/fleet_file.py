"""The fleet file: TOML, one table per box. `rgt_tui.fleet.config` has the parts; this is what others need of it."""

from __future__ import annotations

from pathlib import Path

from rgt_tui.fleet.config.errors import FleetFileError
from rgt_tui.fleet.config.find import find_fleet_file, working_directory
from rgt_tui.fleet.config.load import FleetConfig, read_fleet
from rgt_tui.fleet.config.write import dump_fleet
from rgt_tui.model.box import BoxSpec

__all__ = [
    "FleetConfig",
    "FleetFileError",
    "dump_fleet",
    "find_fleet_file",
    "load_fleet",
    "read_fleet",
    "working_directory",
]


def load_fleet(path: Path) -> tuple[BoxSpec, ...]:
    """Return the boxes of a fleet file.

    Raises:
        FleetFileError: it cannot be read, is not TOML, or has an unknown or wrong key.
    """
    return read_fleet(path).boxes
