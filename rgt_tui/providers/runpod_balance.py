"""What is left on a RunPod account. Only its GraphQL API tells, which RunPod means to retire early in 2027.

https://docs.runpod.io/sdks/graphql/manage-pods; fields ``myself.clientBalance`` ($) and ``myself.currentSpendPerHr``.
"""

from __future__ import annotations

import math

import msgspec

from rgt_tui.providers.base import BadAnswer
from rgt_tui.providers.http import Account

PATH = "/graphql"
QUERY = "query { myself { clientBalance currentSpendPerHr } }"
AGE_S = 300.0
"""Seconds for which a balance is good."""
RETRY_S = 3600.0
"""Seconds before it is asked for again after a failure: an API that is gone must not eat the rate limit."""


class Balance(msgspec.Struct, frozen=True):
    """An account's money."""

    amount: float
    """What is left; can be negative."""
    per_hour: float | None
    """What all machines of the account cost an hour together."""


async def read_balance(http: Account) -> Balance:
    """Ask for the balance.

    Raises:
        ProviderError: among others when the answer does not hold it; GraphQL reports errors with status 200.
    """
    data = (await http.send("POST", PATH, {"query": QUERY})).data
    found = data.get("data") if isinstance(data, dict) else None
    myself = found.get("myself") if isinstance(found, dict) else None
    amount = _money(myself.get("clientBalance")) if isinstance(myself, dict) else None
    if amount is None or not isinstance(myself, dict):
        raise BadAnswer("RunPod does not say what the account has left", console=http.console)
    return Balance(amount=amount, per_hour=_money(myself.get("currentSpendPerHr")))


def _money(value: object) -> float | None:
    """Return an amount, which may be below zero; None for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
