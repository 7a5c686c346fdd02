"""The embedded fleet: three sandboxed boxes on loopback that really train, and their stories.

Its meters and stops run against local control planes that answer like the platforms; tests use them
too.

Public names are imported on first use: reading `RECORDING` must not load the fleet.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.demo.demo_fleet import DemoFleet
    from rgt_tui.demo.embedded import EmbeddedFleet
    from rgt_tui.demo.local_autodl import LocalAutodl
    from rgt_tui.demo.local_runpod import LocalPod, LocalRunPod, format_iso
    from rgt_tui.demo.local_server import (
        InjectedFault,
        LocalRequest,
        LocalResponse,
        LocalServer,
        MachineChange,
        build_problem,
    )
    from rgt_tui.demo.local_vast import LocalInstance, LocalVast
    from rgt_tui.demo.workspace import DemoError

# Inside the package, so that a wheel has it, too.
RECORDING = Path(__file__).with_name("replay.jsonl.gz")
"""A recorded run, used where the demo cannot run; created by ``python -m scripts.record_demo``."""

__all__ = [
    "RECORDING",
    "DemoError",
    "DemoFleet",
    "EmbeddedFleet",
    "InjectedFault",
    "LocalAutodl",
    "LocalInstance",
    "LocalPod",
    "LocalRequest",
    "LocalResponse",
    "LocalRunPod",
    "LocalServer",
    "LocalVast",
    "MachineChange",
    "build_problem",
    "format_iso",
]

__getattr__ = imported_later(
    __name__,
    {
        "demo_fleet": "DemoFleet",
        "embedded": "EmbeddedFleet",
        "local_autodl": "LocalAutodl",
        "local_runpod": "LocalPod LocalRunPod format_iso",
        "local_server": (
            "InjectedFault LocalRequest LocalResponse LocalServer MachineChange build_problem"
        ),
        "local_vast": "LocalInstance LocalVast",
        "workspace": "DemoError",
    },
)
