"""The demo's control plane: a real HTTP server on the loopback that answers like RunPod's REST v2.

Nothing of it bills anybody. It exists so that the very adapter that talks to the vendor is what the demo and
the tests drive, with the awkward parts kept: states that lag behind, 409s, rate limits, and faults on demand.
"""

from rgt_tui.demo.provider.faults import Fault
from rgt_tui.demo.provider.pods import LocalPod
from rgt_tui.demo.provider.server import LocalProvider

__all__ = ["Fault", "LocalPod", "LocalProvider"]
