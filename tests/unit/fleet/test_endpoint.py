"""Where a provider says that a box answers: only what can be connected to counts."""

from __future__ import annotations

import pytest

from rgt_tui.fleet.connector import endpoint_from
from rgt_tui.model.money import Meter

TOLD = [
    ("203.0.113.7", 40022, ("203.0.113.7", 40022)),
    ("203.0.113.7", None, None),
    (None, 40022, None),
    ("", 22, None),
    ("pending; see console", 22, None),
    ("203.0.113.7", 0, None),
    ("203.0.113.7", 70000, None),
]


@pytest.mark.parametrize(("host", "port", "expected"), TOLD)
def test_only_an_address_counts(host: str | None, port: int | None, expected: tuple[str, int] | None) -> None:
    assert endpoint_from(Meter(ssh_host=host, ssh_port=port)) == expected
