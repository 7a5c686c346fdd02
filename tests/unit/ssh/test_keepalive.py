"""How long a silent link is believed."""

from __future__ import annotations

from typing import Any, cast

import asyncssh
import pytest

from rgt_tui.ssh import SshHost, watched_moved_address
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
    host = SshHost("a", "a", 22, "root", alive_interval=interval, alive_count=count)
    assert tuple(keepalive(host).values()) == expected


class Connection:
    """As much of a connection as keeps itself alive."""

    def __init__(self, interval: float, count: int) -> None:
        self.told: dict[str, Any] = {"rgt_alive": (interval, count)}
        self.set: list[float] = []

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return self.told.get(name, default)

    def set_extra_info(self, **more: object) -> None:
        self.told |= more

    def set_keepalive(self, interval: float) -> None:
        self.set.append(interval)


@pytest.mark.parametrize(
    ("alive", "course", "expected"),
    [
        ((10.0, 3), (33.0, 33.0, 40.0), [0]),
        ((10.0, 3), (41.0, None), []),
        ((10.0, 3), (33.0, 60.0, 60.0, 33.0, None), [0, 10.0, 0, 10.0]),
        ((5.0, 2), (33.0,), []),
        ((0.0, 0), (33.0,), []),
    ],
)
def test_it_rests_only_while_something_else_notices_sooner(
    alive: tuple[float, int], course: tuple[float | None, ...], expected: list[float]
) -> None:
    connection = Connection(*alive)
    for seconds in course:
        watched_moved_address(cast(asyncssh.SSHClientConnection, connection), seconds)
    assert connection.set == expected
