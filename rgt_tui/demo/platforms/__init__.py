"""Local control planes: servers on the loopback that answer like a platform's own, for the demo and the tests."""

from rgt_tui.demo.platforms.local_runpod import Change, LocalGpu, LocalPod, LocalRunPod
from rgt_tui.demo.platforms.local_server import Fault, LocalServer, Request, Response, problem

__all__ = [
    "Change",
    "Fault",
    "LocalGpu",
    "LocalPod",
    "LocalRunPod",
    "LocalServer",
    "Request",
    "Response",
    "problem",
]
