"""``rgt``: the dashboard on a fleet file."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rgt_tui.fleet.source import FleetSource

PLACES = ("rgt.toml",)


def find_fleet_file(named: str | None) -> Path | None:
    """Return the fleet file: the one named, that of ``RGT_FLEET``, ``./rgt.toml``, or the one of XDG."""
    if named or os.environ.get("RGT_FLEET"):
        return Path(named or os.environ["RGT_FLEET"])
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "rgt" / "fleet.toml"
    return next((path for path in (Path("rgt.toml"), config) if path.exists()), None)


def run(arguments: argparse.Namespace) -> int:
    """Open the dashboard; return the exit code."""
    path = find_fleet_file(arguments.fleet)
    if path is None:
        sys.stderr.write(
            "rgt: no fleet file (looked for --fleet, RGT_FLEET, ./rgt.toml and ~/.config/rgt/fleet.toml).\n"
            "     Try `rgt demo`, or write one:\n\n"
            "     [boxes.lab]\n"
            '     host = "lab-a100"\n'
        )
        return 2
    from rgt_tui.fleet.fleet_file import FleetFileError, load_fleet

    try:
        specs = load_fleet(path)
    except FleetFileError as error:
        sys.stderr.write(f"rgt: {error}\n")
        return 2
    from rgt_tui.cli.screen import show

    def make() -> FleetSource:
        from rgt_tui.fleet.engine import Fleet
        from rgt_tui.gate.audit import default_path

        return Fleet(specs, audit=default_path(os.environ))

    return show(make, title=f"rgt {path.name}", hint=None, farewell=None)
