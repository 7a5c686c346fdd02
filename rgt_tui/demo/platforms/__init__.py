"""Local control planes that answer like the platforms, for the demo and the tests."""

from rgt_tui.demo.platforms.local_autodl import LocalAutodl, LocalContainer
from rgt_tui.demo.platforms.local_runpod import LocalGpu, LocalPod, LocalRunPod, iso
from rgt_tui.demo.platforms.local_server import (
    Change,
    Fault,
    LocalServer,
    Request,
    Response,
    problem,
)
from rgt_tui.demo.platforms.local_vast import Ask, LocalInstance, LocalVast

__all__ = [
    "Ask",
    "Change",
    "Fault",
    "LocalAutodl",
    "LocalContainer",
    "LocalGpu",
    "LocalInstance",
    "LocalPod",
    "LocalRunPod",
    "LocalServer",
    "LocalVast",
    "Request",
    "Response",
    "iso",
    "problem",
]
