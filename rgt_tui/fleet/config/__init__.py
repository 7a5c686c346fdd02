"""The fleet file: TOML, one table per box."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from rgt_tui.files import add_env_file, working_directory
from rgt_tui.fleet.config import trusted
from rgt_tui.fleet.config.editing import dump_fleet
from rgt_tui.fleet.config.loading import (
    FleetConfig,
    FleetFileError,
    FleetFilePlace,
    FleetFileSource,
    find_place,
    parse_fleet,
    read_fleet,
    read_source,
)
from rgt_tui.model import BoxSpec

__all__ = [
    "FleetConfig",
    "FleetFileError",
    "FleetFilePlace",
    "dump_fleet",
    "find_place",
    "load_fleet",
    "open_place",
    "read_fleet",
    "read_whole_file",
]


def load_fleet(path: Path) -> tuple[BoxSpec, ...]:
    """Return the boxes of a fleet file, trusted or not. Use only their names, never act on them.

    Raises:
        FleetFileError: it cannot be read, is not TOML, or has an unknown or wrong key.
    """
    return read_fleet(path).boxes


def open_place(place: FleetFilePlace, env: Mapping[str, str] | None = None) -> FleetConfig:
    """Read a fleet file in order to act on it.

    Of an untrusted file found in the working tree, only the harmless settings apply.

    Raises:
        FleetFileError: it cannot be read, others may write it, it is not TOML, or has an unknown or
            wrong key.
    """
    env = os.environ if env is None else env
    source, config = read_whole_file(place.path, env)
    if place.lies_there:
        config = trusted.apply_trust(source, config, env)
    # A key of a stranger's repository would rent machines in the stranger's account.
    if config.doubt is None:
        add_env_file(source.real.parent / ".env")
    return config


def read_whole_file(path: Path, env: Mapping[str, str]) -> tuple[FleetFileSource, FleetConfig]:
    """Read the complete content of a fleet file, trusted or not, and its bytes.

    Raises:
        FleetFileError: as `open_place`.
    """
    source = read_source(path)
    config = parse_fleet(path, source.text)
    try:
        is_file = stat.S_ISREG(source.real.stat().st_mode)
    except OSError:
        is_file = False
    # It may be a pipe: --fleet <(…).
    folder = source.real.parent if is_file else working_directory()
    return source, config if folder is None else trusted.with_absolute_paths(config, folder, env)
