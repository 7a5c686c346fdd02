"""Fixtures of the screen tests: one time zone, one glyph set, no user environment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot

from rgt_tui.ui import RgtApp, key_turns, notation
from rgt_tui.ui.screens import FleetAwareScreen, teardown
from rgt_tui.ui.widgets import lines
from tests.ui.fakes import FakeFleet


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("RGT_ASCII", "0")
    notation.current_glyphs.cache_clear()
    lines._replace_controls.cache_clear()
    yield
    monkeypatch.undo()
    notation.current_glyphs.cache_clear()
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


@pytest.fixture(autouse=True)
def _no_time_passes_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint stands until the next one, and keys wait for a screen however long it takes to come up."""
    hint = FleetAwareScreen.hint
    monkeypatch.setattr(
        FleetAwareScreen, "hint", lambda on, text, seconds=0.0: hint(on, text, 3600.0)
    )
    monkeypatch.setattr(key_turns, "KEY_PACES", replace(key_turns.KEY_PACES, longest_s=120.0))


def has_keys(turns: key_turns.KeyTurns) -> bool:
    """Tell whether some key has not done yet what it does."""
    return bool(turns._waiting) or turns._next is not None or turns._settling is not None


@pytest.fixture(autouse=True)
def _a_pilot_waits_for_what_its_keys_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's own takes an app that gets no CPU for one that is idle: keys may still wait for their turn then."""
    wait = Pilot._wait_for_screen

    async def waited(self: Pilot[None]) -> bool:
        done = await wait(self, 300.0)
        app = self.app
        while isinstance(app, RgtApp) and app.is_running and has_keys(app._keys):
            await asyncio.sleep(0.001)
            if not has_keys(app._keys):
                done = await wait(self, 300.0)
        return done

    monkeypatch.setattr(Pilot, "_wait_for_screen", waited)


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
