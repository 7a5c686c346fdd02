"""``rgt``: the dashboard on a fleet file."""

from __future__ import annotations

import argparse

from rgt_tui.cli.commands import USAGE
from rgt_tui.cli.opening import open_fleet
from rgt_tui.cli.printing import complain
from rgt_tui.fleet.fleet_file import FleetFileError
from rgt_tui.fleet.source import FleetSource

NOTICE = "this fleet file is not trusted: no sinks, keys or providers, and only hosts of your own ssh_config"
"""On every screen, while it is so."""


def run(arguments: argparse.Namespace) -> int:
    """Open the dashboard; return the exit code."""
    try:
        config = open_fleet(arguments)
    except FleetFileError as error:
        complain(error)
        return USAGE
    from rgt_tui.cli.screen import show

    def make() -> FleetSource:
        from rgt_tui.cli.composing import make_kept_fleet

        return make_kept_fleet(
            config.boxes,
            config.alerts,
            fleet_file=config.path,
            asks=True,
            history=not getattr(arguments, "no_history", False),
        )

    return show(
        make,
        title=f"rgt {config.path.name}",
        hint=None,
        farewell=None,
        without="`rgt status` or `rgt watch`",
        boxes=len(config.boxes),
        notice=None if config.doubt is None else (NOTICE, "rgt trust"),
    )
