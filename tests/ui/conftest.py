"""Fixtures of the screen tests: one time zone, one glyph set, no user environment."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rgt_tui.ui import RgtApp, notation
from rgt_tui.ui.widgets import lines
from tests.ui.fakes import FakeFleet


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("RGT_ASCII", "0")
    notation.glyphs.cache_clear()
    lines._safe.cache_clear()
    yield
    monkeypatch.undo()
    notation.glyphs.cache_clear()
    time.tzset()


@pytest.fixture(autouse=True)
def _faults_end_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RgtApp, "ENDURES", False)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()
