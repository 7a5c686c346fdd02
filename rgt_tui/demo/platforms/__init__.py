"""Local control planes: servers on the loopback that answer like a platform's own, for the demo and the tests."""

from rgt_tui.demo.platforms.local_autodl import LocalAutodl, LocalContainer
from rgt_tui.demo.platforms.local_digitalocean import LocalDigitalOcean, LocalSize
from rgt_tui.demo.platforms.local_featurize import LocalFeaturize
from rgt_tui.demo.platforms.local_lambda import LocalLambda, LocalMachine
from rgt_tui.demo.platforms.local_paperspace import LocalPaperspace, LocalTemplate
from rgt_tui.demo.platforms.local_runpod import LocalGpu, LocalPod, LocalRunPod
from rgt_tui.demo.platforms.local_server import Change, Fault, LocalServer, Request, Response, problem
from rgt_tui.demo.platforms.local_vast import Ask, LocalInstance, LocalVast

__all__ = [
    "Ask",
    "Change",
    "Fault",
    "LocalAutodl",
    "LocalContainer",
    "LocalDigitalOcean",
    "LocalFeaturize",
    "LocalGpu",
    "LocalInstance",
    "LocalLambda",
    "LocalMachine",
    "LocalPaperspace",
    "LocalPod",
    "LocalRunPod",
    "LocalServer",
    "LocalSize",
    "LocalTemplate",
    "LocalVast",
    "Request",
    "Response",
    "problem",
]
