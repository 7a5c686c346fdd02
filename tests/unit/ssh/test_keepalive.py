"""How long a silent link is believed."""

from __future__ import annotations

import pytest

from rgt_tui.ssh import Host
from rgt_tui.ssh.hop import keepalive


@pytest.mark.parametrize(
    ("interval", "count", "expected"),
    [
        (None, None, (10, 3)),
        (7, 2, (7, 2)),
        (0, 0, (10, 3)),
        (7, 0, (7, 3)),
        (7, -1, (7, 3)),
        (None, 9, (10, 9)),
    ],
)
def test_a_dead_link_is_always_found_out(
    interval: float | None, count: int | None, expected: tuple[float, int]
) -> None:
    host = Host("a", "a", 22, "root", alive_interval=interval, alive_count=count)
    assert tuple(keepalive(host).values()) == expected
