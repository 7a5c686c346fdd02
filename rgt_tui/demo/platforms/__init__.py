"""Local control planes that answer like the platforms, for the demo and the tests."""

# In the product and not in the tests, because the demo's meter and its stops run against them.
from rgt_tui.demo.platforms.local_autodl import LocalAutodl, LocalContainer
from rgt_tui.demo.platforms.local_runpod import LocalPod, LocalRunPod, format_iso
from rgt_tui.demo.platforms.local_server import (
    InjectedFault,
    LocalRequest,
    LocalResponse,
    LocalServer,
    MachineChange,
    build_problem,
)
from rgt_tui.demo.platforms.local_vast import LocalInstance, LocalVast

__all__ = [
    "InjectedFault",
    "LocalAutodl",
    "LocalContainer",
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
