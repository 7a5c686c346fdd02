"""Unit tests are pure: one that starts a process belongs to `tests/process`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}
"""Audit events of Python's own ways to start a process."""

_started: list[str] | None = None


def _listen(event: str, args: tuple[Any, ...]) -> None:
    if _started is not None and event in STARTS:
        _started.append(f"{event} {args[:2]}")


sys.addaudithook(_listen)


@pytest.fixture(autouse=True)
def _starts_no_process() -> Iterator[None]:
    global _started
    _started = []
    yield
    seen, _started = _started, None
    assert not seen, f"a unit test starts a process: move its file to tests/process ({seen[0]})"
