"""Fixtures of the screen tests: one time zone, one glyph set, no user environment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from rgt_tui.ui import RgtApp, notation
from rgt_tui.ui.screens import teardown
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
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the screens write: what was copied, faults, screenshots; never the person's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "rgt"


@pytest.fixture(autouse=True)
def _faults_end_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RgtApp, "ENDURES", False)


@pytest.fixture
def warms_up() -> None:
    """For tests of what an app does by itself once its boxes are drawn."""


@pytest.fixture(autouse=True)
def _nothing_is_done_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "warms_up" not in request.fixturenames:
        monkeypatch.setattr(RgtApp, "begin_warm_up", lambda self: None)


@pytest.fixture(autouse=True)
def _reviews_come_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the next one would come between two keys, and what was typed would count no more."""
    monkeypatch.setattr(teardown, "REVIEW_SECONDS", 3600.0)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


_parsed: dict[tuple[object, ...], list[RuleSet]] = {}


@pytest.fixture(autouse=True, scope="session")
def _style_sheets_are_parsed_once() -> Iterator[None]:
    """Every app of a worker has the same rules: the parsed ones are read, never changed, as Textual shares them too."""
    parse = Stylesheet._parse_rules

    def parsed(self: Stylesheet, css: str, *where: Any, **more: Any) -> list[RuleSet]:
        key = (css, where, *more.items(), *self._variables.items())
        if key not in _parsed:
            _parsed[key] = parse(self, css, *where, **more)
        return _parsed[key]

    Stylesheet._parse_rules = parsed  # type: ignore[method-assign]
    yield
    Stylesheet._parse_rules = parse  # type: ignore[method-assign]
