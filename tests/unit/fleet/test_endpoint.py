"""Where a provider says that a box answers: only what can be connected to counts."""

from __future__ import annotations

from typing import Any

import pytest

from rgt_tui.fleet import endpoint_from
from rgt_tui.model import Meter
from rgt_tui.ssh import peer_address

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
def test_only_an_address_counts(
    host: str | None, port: int | None, expected: tuple[str, int] | None
) -> None:
    assert endpoint_from(Meter(ssh_host=host, ssh_port=port)) == expected


class Standing:
    """What a connection says of itself."""

    def __init__(self, **said: Any) -> None:
        self.said = said

    def get_extra_info(self, name: str) -> Any:
        return self.said.get(name)


@pytest.mark.parametrize(
    ("said", "peer"),
    [
        ({"peername": ("203.0.113.9", 40022)}, ("203.0.113.9", 40022)),
        ({"peername": ("2001:db8::1", 22, 0, 0)}, ("2001:db8::1", 22)),
        ({"peername": ("203.0.113.9", 40022), "rgt_below": object()}, None),
        ({"peername": None}, None),
        ({"peername": ""}, None),
        ({"peername": ("pipe",)}, None),
    ],
)
def test_a_connection_through_a_jump_host_or_a_command_tells_no_address(
    said: Any, peer: Any
) -> None:
    """By its address the gate tells whether this is the machine that the bill is of."""
    assert peer_address(Standing(**said)) == peer  # type: ignore[arg-type]
