from __future__ import annotations

import pytest

from tests.torture.network.watching import Ledger


@pytest.fixture
def ledger() -> Ledger:
    """Return a new account."""
    return Ledger()
