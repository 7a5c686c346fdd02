"""Every command: its name, and the module that has its ``add_parser(commands)`` and ``run(arguments)``."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

COMMANDS: dict[str, str] = {
    "init": "rgt_tui.cli.init",
    "add": "rgt_tui.cli.add",
    "import": "rgt_tui.cli.import_ssh",
    "trust": "rgt_tui.cli.trust",
    "status": "rgt_tui.cli.status",
    "watch": "rgt_tui.cli.watch",
    "patrol": "rgt_tui.cli.patrol",
    "alerts": "rgt_tui.cli.try_sinks",
    "mute": "rgt_tui.cli.muting",
    "logs": "rgt_tui.cli.logs",
    "record": "rgt_tui.cli.record",
    "replay": "rgt_tui.cli.replay",
    "doctor": "rgt_tui.cli.doctor",
    "metrics": "rgt_tui.cli.metrics",
    "scalars": "rgt_tui.cli.scalars",
    "push": "rgt_tui.cli.push",
    "remove": "rgt_tui.cli.remove",
    "demo": "rgt_tui.cli.demo",
    "agent": "rgt_tui.cli.agent",
    "completion": "rgt_tui.cli.completion",
}
"""In the order of ``rgt --help``."""


def module_of(name: str) -> ModuleType:
    """Import the module of a command; what it needs beyond its parser it imports when it runs."""
    return import_module(COMMANDS[name])
