"""How a box stops its own meter: by the key that its platform puts into every machine, or by the platform's command.

Neither is the key of an account: it can end one machine, and rgt lets it do no more than park it.
"""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from rgt_tui.model.autostop import StopWay
from rgt_tui.model.box import ProviderRef


class OwnStop(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform gives a machine of its own."""

    way: StopWay
    """Its `url` is the vendor's own server."""
    what: str
    """In words, for the person who arms it."""
    source: str
    """Page and month."""


_SHUTDOWN = OwnStop(
    way=StopWay(kind="command", command=("/usr/bin/shutdown",)),
    what="the platform's own /usr/bin/shutdown",
    source="https://www.autodl.com/docs/instance_pro_api/ (2026-08)",
)
OWN_STOPS = MappingProxyType(
    {
        "runpod": OwnStop(
            way=StopWay(kind="runpod", url="https://api.runpod.io"),
            what="RUNPOD_API_KEY, the pod's own key, which RunPod puts into its environment",
            source="https://docs.runpod.io/runpodctl/overview (2026-06)",
        ),
        "vastai": OwnStop(
            way=StopWay(kind="vastai", url="https://console.vast.ai"),
            what="CONTAINER_API_KEY, the instance's own key, which vast.ai puts into its environment",
            source="https://docs.vast.ai/guides/instances/docker-environment (2026-11)",
        ),
        "autodl": _SHUTDOWN,
        "autodl-inbox": _SHUTDOWN,
    }
)
"""Kind of provider → how a box of it stops itself. Of others no source names a way."""


def own_stop(ref: ProviderRef | None) -> OwnStop | None:
    """Return how a box stops itself, at the server that the fleet file names; None where no source names a way."""
    found = OWN_STOPS.get(ref.kind) if ref is not None else None
    if found is None or ref is None or not found.way.url or not ref.base_url:
        return found
    return msgspec.structs.replace(
        found, way=msgspec.structs.replace(found.way, url=ref.base_url.rstrip("/"))
    )
