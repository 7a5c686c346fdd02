"""Control planes: who owns a box, what it costs now, and the calls that stop the meter.

The HTTP client is imported when the first account is opened.
"""

from rgt_tui.providers.answers import Proof, creation_proof
from rgt_tui.providers.control_plane import (
    AuthError,
    BadAnswer,
    Bidder,
    Conflict,
    Context,
    Instance,
    Market,
    NotFound,
    PermitRefused,
    Provider,
    ProviderError,
    RateLimited,
    Unreachable,
    bidder_of,
    keep_last_good,
    leftover_gaps,
    use_permit,
)
from rgt_tui.providers.registry import (
    IN_BOX,
    KINDS,
    OVER,
    UNTOLD,
    USUAL_KEYS,
    Adapter,
    Listed,
    Providers,
    UnknownProvider,
)
from rgt_tui.providers.stopping import OWN_STOPS, came_of, carry_out, own_stop, what_is_off

__all__ = [
    "IN_BOX",
    "KINDS",
    "OVER",
    "OWN_STOPS",
    "UNTOLD",
    "USUAL_KEYS",
    "Adapter",
    "AuthError",
    "BadAnswer",
    "Bidder",
    "Conflict",
    "Context",
    "Instance",
    "Listed",
    "Market",
    "NotFound",
    "PermitRefused",
    "Proof",
    "Provider",
    "ProviderError",
    "Providers",
    "RateLimited",
    "UnknownProvider",
    "Unreachable",
    "bidder_of",
    "came_of",
    "carry_out",
    "creation_proof",
    "keep_last_good",
    "leftover_gaps",
    "own_stop",
    "use_permit",
    "what_is_off",
]
