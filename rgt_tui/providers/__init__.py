"""Control planes: who owns a box, what it costs now, and the calls that stop the meter.

The HTTP client is loaded with the first account that is opened.
"""

from rgt_tui.providers.answers import Proof, creation_proof
from rgt_tui.providers.control_plane import (
    Account,
    AuthError,
    BadAnswer,
    Conflict,
    Context,
    Instance,
    Market,
    NotFound,
    Open,
    PermitRefused,
    Provider,
    ProviderError,
    RateLimited,
    Unreachable,
    keep_last_good,
    use_permit,
    use_rent_permit,
)
from rgt_tui.providers.markets.wish_matching import same_gpu
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
from rgt_tui.providers.stopping import OWN_STOPS, OwnStop, came_of, carry_out, own_stop, what_is_off

__all__ = [
    "IN_BOX",
    "KINDS",
    "OVER",
    "OWN_STOPS",
    "UNTOLD",
    "USUAL_KEYS",
    "Account",
    "Adapter",
    "AuthError",
    "BadAnswer",
    "Conflict",
    "Context",
    "Instance",
    "Listed",
    "Market",
    "NotFound",
    "Open",
    "OwnStop",
    "PermitRefused",
    "Proof",
    "Provider",
    "ProviderError",
    "Providers",
    "RateLimited",
    "UnknownProvider",
    "Unreachable",
    "came_of",
    "carry_out",
    "creation_proof",
    "keep_last_good",
    "own_stop",
    "same_gpu",
    "use_permit",
    "use_rent_permit",
    "what_is_off",
]
