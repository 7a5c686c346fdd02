"""Unit tests are pure: one that starts a process belongs to `tests/process`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}
"""Audit events of Python's own ways to start a process."""

_started: list[str] | None = None
_earlier: frozenset[int | None] = frozenset()
"""Threads that an earlier test has left: what they start is not this one's."""


def _listen(event: str, args: tuple[Any, ...]) -> None:
    if _started is not None and event in STARTS and threading.get_ident() not in _earlier:
        _started.append(f"{event} {args[:2]}")


sys.addaudithook(_listen)


@pytest.fixture(autouse=True)
def _starts_no_process() -> Iterator[None]:
    global _started, _earlier
    this = threading.current_thread()
    _started, _earlier = (
        [],
        frozenset(each.ident for each in threading.enumerate() if each is not this),
    )
    yield
    seen, _started = _started, None
    assert not seen, f"a unit test starts a process: move its file to tests/process ({seen[0]})"
