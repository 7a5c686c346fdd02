"""Control planes: who owns a box, what it costs now, and the calls that stop the meter.

The HTTP client is imported when the first account is opened.
"""

from rgt_tui.providers.answers import AnswerProof, creation_proof
from rgt_tui.providers.control_plane import (
    AccountContext,
    AuthError,
    BadAnswer,
    Bidder,
    Instance,
    Market,
    NotFound,
    PermitRefused,
    Provider,
    ProviderError,
    RateLimited,
    StateConflict,
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
    AccountListing,
    LazyAdapter,
    Providers,
    UnknownProvider,
)
from rgt_tui.providers.stopping import (
    OWN_STOPS,
    carry_out,
    describe_remaining_bill,
    judge_reading,
    own_stop,
)

__all__ = [
    "IN_BOX",
    "KINDS",
    "OVER",
    "OWN_STOPS",
    "UNTOLD",
    "USUAL_KEYS",
    "AccountContext",
    "AccountListing",
    "AnswerProof",
    "AuthError",
    "BadAnswer",
    "Bidder",
    "Instance",
    "LazyAdapter",
    "Market",
    "NotFound",
    "PermitRefused",
    "Provider",
    "ProviderError",
    "Providers",
    "RateLimited",
    "StateConflict",
    "UnknownProvider",
    "Unreachable",
    "bidder_of",
    "carry_out",
    "creation_proof",
    "describe_remaining_bill",
    "judge_reading",
    "keep_last_good",
    "leftover_gaps",
    "own_stop",
    "use_permit",
]
