"""Terminals for the demo, closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.torture.demo.demo_terminal import Terminal


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def make(width: int, height: int, **options: str) -> Terminal:
        opened.append(Terminal(tmp_path, width, height, **options))
        return opened[-1]

    yield make
    for terminal in opened:
        terminal.kill()
