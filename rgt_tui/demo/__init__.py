"""The embedded fleet: three sandboxed boxes on loopback that really train, and their stories.

Public names are imported on first use: reading `RECORDING` must not load the fleet.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_tui.demo.demo_fleet import DemoFleet
    from rgt_tui.demo.embedded import EmbeddedFleet
    from rgt_tui.demo.platforms import InjectedFault, LocalPod, LocalRunPod, MachineChange
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
    "LocalPod",
    "LocalRunPod",
    "MachineChange",
]

__getattr__ = imported_later(
    __name__,
    {
        "demo_fleet": "DemoFleet",
        "embedded": "EmbeddedFleet",
        "platforms": "MachineChange InjectedFault LocalPod LocalRunPod",
        "workspace": "DemoError",
    },
)
