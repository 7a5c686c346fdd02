"""The first opening of a screen: what it would wait for is done before, and not before the boxes are drawn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode

from rgt_tui.ui import THEMES, SteadyStylesheet, key_turns, parse_in_steps
from rgt_tui.ui.widgets import HeaderLine, KeyLine, Tone
from tests.ui.fakes import FakeFleet, demo_state
from tests.ui.snap import running, settle

OPENED = """
import asyncio, json, sys
import textual.css.stylesheet as sheets
from rgt_tui.ui import RgtApp
from rgt_tui.ui.commands import OF_ALL_BOXES, SCREENS
from tests.ui.fakes import FakeFleet, demo_state

parsed = []
parse = sheets.parse

def noted(scope, css, *more, **named):
    parsed.append((scope, named["tie_breaker"], css))
    return parse(scope, css, *more, **named)

sheets.parse = noted

async def main():
    fleet = FakeFleet(demo_state())
    app = RgtApp(lambda: fleet)
    begin, app.begin_warm_up = app.begin_warm_up, lambda: None
    async with app.run_test(size=(120, 34)) as pilot:
        while app.fleet is None:
            await pilot.pause()
        await pilot.pause()
        found = {"first frame": [len(parsed), len(set(parsed))]}
        before = len(sys.modules)
        parsed.clear()
        begin()
        await app.warm.wait()
        found["warm up"] = [len(sys.modules) - before, len(parsed)]
        box = fleet.state.boxes[0].spec.name
        for place in ["help", *(name for name in SCREENS if name not in ("fleet", "welcome"))]:
            known = set(sys.modules)
            parsed.clear()
            app.action_help() if place == "help" else app.open_screen(place, None if place in OF_ALL_BOXES else box)
            await pilot.pause()
            await app.workers.wait_for_complete()
            await pilot.pause()
            assert len(app.screen_stack) == 2, place
            found[place] = [sorted(set(sys.modules) - known), list(parsed)]
            app.pop_screen()
            await pilot.pause()
    print(json.dumps(found), file=sys.__stdout__)

asyncio.run(main())
"""


def test_after_it_no_screen_loads_or_parses_anything() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENED], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    parsed, different = found.pop("first frame")
    assert parsed == different > 10, "before the first frame, a style sheet is parsed twice"
    modules, sheets = found.pop("warm up")
    assert modules > 40 and sheets > 15, "there was nothing to do: a weak test"
    assert len(found) > 12
    assert {place: waited for place, waited in found.items() if waited != [[], []]} == {}


@pytest.mark.usefixtures("warms_up")
async def test_it_begins_when_a_box_is_drawn_with_what_it_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # After this long it begins in any case.
    paces = replace(key_turns.KEY_PACES, warm_up_s=3600.0)
    monkeypatch.setattr("rgt_tui.ui.app.KEY_PACES", paces)
    fleet = FakeFleet(demo_state())
    for box in fleet.state.boxes:
        fleet.change(box.spec.name, sample=None)
    async with running(lambda: fleet) as (app, pilot, _):
        assert app.warm is None
        fleet.change(fleet.state.boxes[0].spec.name, sample=demo_state().boxes[0].sample)
        await settle(pilot)
        begun = app.warm
        assert begun is not None
        await asyncio.wait_for(begun.wait(), 60)
        app.begin_warm_up()
        assert app.warm is begun, "once"


def looks(sheet: Stylesheet) -> list[tuple[str, Any]]:
    """Return the rules of a style sheet."""
    return [(rule.selectors, rule.styles.get_rules()) for rule in sheet.rules]


async def test_a_screen_that_opens_again_does_not_style_its_parts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    styled: list[str] = []
    apply = Stylesheet.apply

    def record_apply(sheet: Stylesheet, node: DOMNode, **named: Any) -> None:
        styled.extend(name for name in node.classes if name.startswith(("tone--", "row--")))
        apply(sheet, node, **named)

    monkeypatch.setattr(Stylesheet, "apply", record_apply)
    async with running(FakeFleet(demo_state())) as (app, pilot, fleet):
        for time in ("first", "second", "third"):
            styled.clear()
            app.open_screen("box", fleet.state.boxes[0].spec.name)
            await settle(pilot)
            assert bool(styled) == (time == "first"), styled
            app.pop_screen()
            await settle(pilot)


async def test_a_part_looks_as_its_own_widget_has_it() -> None:
    async with running(FakeFleet(demo_state())) as (app, pilot, _):
        header, keys = app.screen.query_one(HeaderLine), app.screen.query_one(KeyLine)
        before = header._tone_style(Tone.ACCENT, False)
        assert before == keys._tone_style(Tone.ACCENT, False)
        app.stylesheet.add_source(
            "KeyLine.loud > .tone--accent { color: #123456; }", read_from=("test", "")
        )
        app.stylesheet.reparse()
        keys.add_class("loud")
        assert "#123456" in str(keys._tone_style(Tone.ACCENT, False))
        assert header._tone_style(Tone.ACCENT, False) == before
        keys.remove_class("loud")
        assert keys._tone_style(Tone.ACCENT, False) == before
        app.theme = next(theme.name for theme in THEMES if theme.accent != app.current_theme.accent)
        await pilot.pause()
        assert header._tone_style(Tone.ACCENT, False) != before


async def test_other_colours_are_parsed_anew() -> None:
    async with running(FakeFleet(demo_state())) as (app, pilot, _):
        sheet = app.stylesheet
        assert isinstance(sheet, SteadyStylesheet)
        for theme in THEMES:
            app.theme = theme.name
            await pilot.pause()
            plain = Stylesheet(variables=app.get_css_variables())
            plain.source = dict(sheet.source)
            plain.parse()
            assert looks(sheet) == looks(plain), theme.name
            assert str(app.screen.styles.background.hex).lower() == theme.background


async def test_the_screens_go_on_with_what_they_have_until_all_is_parsed() -> None:
    async with running(FakeFleet(demo_state())) as (app, _, _):
        sheet = SteadyStylesheet(variables=app.get_css_variables())
        steps = parse_in_steps(sheet)
        for _ in range(5):
            next(steps)
            assert not sheet.source and not sheet._require_parse
        for _ in steps:
            pass
        assert len(sheet.source) > 10 and not sheet._require_parse
