"""Ports for servers that a test starts, and for those that must not be there."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from itertools import cycle

FIRST = 12_000
"""Up to 32,767 the kernel gives none of itself: whatever connects in a neighbour's test takes one above."""
EACH = 1_000
"""Ports of each worker: what one has found free no other may take before a server listens there."""


def _own() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw-1").removeprefix("gw")) + 1
    first = FIRST + worker % 20 * EACH
    begin = secrets.randbelow(EACH)  # somebody else may run the tests on this machine, too
    return cycle([*range(first + begin, first + EACH), *range(first, first + begin)])


_ports = _own()


def free_port() -> int:
    """Return a port that is free, and that no other test will take."""
    for port in _ports:
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a cycle has no end")
